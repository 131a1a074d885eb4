/* SPDX-License-Identifier: MIT */
/** @file The runtime directory in which names live, and the socket address that a name has. */
#include "posix.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODE_OWN        0700u
#define MODE_SHARED     0770u
#define ABSTRACT_PREFIX "gpuipc/"

/* Where the default, below XDG_RUNTIME_DIR, is missing or another user's (su, sudo -E, a container). */
#define REMEDY "name one of your own: export GPUIPC_RUNTIME_DIR=$HOME/.gpuipc"

static gpuipc_status path_too_long(const char *text, size_t capacity) {
    return status_fail(GPUIPC_ERR_NAME_TOO_LONG,
                       "the directory %.80s... has %zu characters; %zu are possible", text,
                       strlen(text), capacity - 1);
}

/** "from/last", or "from" alone; ERR_NAME_TOO_LONG. */
static gpuipc_status path_copy(const char *from, const char *last, char *path, size_t capacity) {
    int length = snprintf(path, capacity, "%s%s", from, last);
    if (length < 0 || (size_t)length >= capacity) {
        return path_too_long(from, capacity);
    }
    /* open(2): O_NOFOLLOW looks at the last component only, which "link/" is not. */
    for (size_t end = (size_t)length; end > 1 && path[end - 1] == '/'; end--) {
        path[end - 1] = '\0';
    }
    return GPUIPC_OK;
}

static bool is_set(const char *text) {
    return text != NULL && text[0] != '\0';
}

bool posix_is_another_users(const char *path, uid_t *out_owner) {
    struct stat found;
    const bool is_known = stat(path, &found) == 0;
    if (is_known) {
        *out_owner = found.st_uid;
    }
    return is_known && found.st_uid != geteuid() && found.st_uid != 0;
}

/* sudo -E, su and cron leave the variable of the user who came before. Root may make directories in that user's, who then
 * could not use them; and this process would look elsewhere than others of its user. */
static gpuipc_status session_check(const char *session) {
    char room[STATUS_PATH_MAX];
    uid_t owner;
    return posix_is_another_users(session, &owner)
               ? status_fail(GPUIPC_ERR_UNSAFE_DIRECTORY,
                             "XDG_RUNTIME_DIR is %s, which belongs to user %u, and this process "
                             "runs as user %u; unset XDG_RUNTIME_DIR, or export "
                             "GPUIPC_RUNTIME_DIR=$HOME/.gpuipc",
                             status_path(session, room), (unsigned)owner, (unsigned)geteuid())
               : GPUIPC_OK;
}

/** Directories that others set up for a session or a container, and in which gpuipc has one of its own: the first that is
 *  set. NULL: none. */
static const char *place_for_ours(bool *out_is_session) {
    *out_is_session = false;
    /* NVIDIA's driver for Kubernetes' dynamic resource allocation: one for each claim, in all containers that have it
     * (kubernetes-sigs/dra-driver-nvidia-gpu, pull request 1391). */
    const char *of_claim = os_environment("NVIDIA_DRA_LOCAL_IPC_DIR");
    if (is_set(of_claim)) {
        return of_claim;
    }
    /* XDG Base Directory Specification: a path there that is not absolute is to be ignored. */
    const char *session = os_environment("XDG_RUNTIME_DIR");
    *out_is_session = is_set(session) && session[0] == '/';
    return *out_is_session ? session : NULL;
}

gpuipc_status os_directory_resolve(const os_directory *directory, char *path, size_t capacity) {
    const char *given = directory != NULL ? directory->path : NULL;
    const char *source = "the given runtime directory";
    if (given == NULL) {
        const char *named = os_environment("GPUIPC_RUNTIME_DIR");
        if (is_set(named)) {
            given = named;
            source = "GPUIPC_RUNTIME_DIR";
        }
    }
    if (given != NULL) {
        if (given[0] != '/') {
            return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%s is no absolute path: \"%.80s\"",
                               source, given);
        }
        return path_copy(given, "", path, capacity);
    }
    bool is_session;
    const char *place = place_for_ours(&is_session);
    if (place != NULL && place[0] != '/') {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "NVIDIA_DRA_LOCAL_IPC_DIR is no absolute path: \"%.80s\"", place);
    }
    if (place != NULL) {
        const gpuipc_status status = path_copy(place, "/gpuipc", path, capacity);
        return status == GPUIPC_OK && is_session ? session_check(place) : status;
    }
    char own[32];
    snprintf(own, sizeof(own), "/gpuipc-%u", (unsigned)geteuid());
    return path_copy("/tmp", own, path, capacity);
}

static gpuipc_status directory_open_failed(const char *path, int code) {
    switch (code) {
    case ENOENT:
        return posix_fail_as(GPUIPC_ERR_NOT_FOUND, code, "open",
                             "the runtime directory %s is missing", path);
    case ENOTDIR: /* what O_DIRECTORY with O_NOFOLLOW answers for a symbolic link as well */
    case ELOOP:
        return posix_fail_as(GPUIPC_ERR_UNSAFE_DIRECTORY, code, "open",
                             "%s is a symbolic link or no directory; a real directory is wanted",
                             path);
    case EACCES:
        return posix_fail_as(GPUIPC_ERR_ACCESS_DENIED, code, "open",
                             "this user (%u) may not enter the runtime directory %s; " REMEDY,
                             (unsigned)geteuid(), path);
    default:
        return posix_fail(code, "open", "the runtime directory %s cannot be opened", path);
    }
}

static gpuipc_status directory_check(int fd, const char *path, bool shared) {
    struct stat found;
    if (fstat(fd, &found) != 0) {
        return posix_fail(errno, "fstat", "the runtime directory %s cannot be looked at", path);
    }
    unsigned mode = found.st_mode & 07777u;
    unsigned allowed = shared ? MODE_SHARED : MODE_OWN;
    bool owner_wrong = !shared && found.st_uid != geteuid();
    if (!owner_wrong && (mode & 0777u & ~allowed) == 0) {
        return GPUIPC_OK;
    }
    char owner[32] = "any user";
    if (!shared) {
        snprintf(owner, sizeof(owner), "user %u", (unsigned)geteuid());
    }
    return status_fail(GPUIPC_ERR_UNSAFE_DIRECTORY,
                       "%s belongs to user %u and has mode %04o; wanted: %s, and no rights beyond "
                       "mode %04o; set them, or " REMEDY,
                       path, (unsigned)found.st_uid, mode, owner, allowed);
}

gpuipc_status posix_directory_open(const char *path, bool shared, bool create, int *out_fd) {
    if (create && mkdir(path, shared ? MODE_SHARED : MODE_OWN) != 0 && errno != EEXIST) {
        return posix_fail(
            errno, "mkdir",
            "the directory %s cannot be made (is the one above it there?); its path is the "
            "context config's, else GPUIPC_RUNTIME_DIR's, else below that of NVIDIA_DRA_LOCAL_IPC_DIR or XDG_RUNTIME_DIR; " REMEDY,
            path);
    }
    /* Who only connects needs no right to list the directory; who listens locks it. */
    int flags = (create ? O_RDONLY : O_PATH) | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd;
    posix_register_lock();
    do {
        fd = open(path, flags);
    } while (fd < 0 && errno == EINTR); /* signal(7): where a file system waits for others */
    int code = errno;
    gpuipc_status status = fd < 0 ? GPUIPC_OK : posix_register_add(fd, "open");
    posix_register_unlock();
    if (fd < 0) {
        return directory_open_failed(path, code);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    status = directory_check(fd, path, shared);
    if (status != GPUIPC_OK) {
        posix_register_close(fd);
        return status;
    }
    *out_fd = fd;
    return GPUIPC_OK;
}

mode_t posix_socket_rights(bool shared) {
    return shared ? 0660 : 0600;
}

/** man 7 unix, "Abstract": sun_path begins with a null byte, and the size of the address says where
 *  the name ends. */
static gpuipc_status address_make_abstract(const char *name, posix_address *address) {
    char *path = address->socket.sun_path;
    size_t capacity = sizeof(address->socket.sun_path);
    int length = snprintf(path + 1, capacity - 1, ABSTRACT_PREFIX "%s", name);
    if (length < 0 || (size_t)length >= capacity - 1) {
        return status_fail(GPUIPC_ERR_NAME_TOO_LONG,
                           "the abstract name %.40s... has %zu characters; %zu are possible", name,
                           strlen(name), capacity - 1 - sizeof(ABSTRACT_PREFIX));
    }
    address->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    return GPUIPC_OK;
}

gpuipc_status posix_address_make(const char *directory_path, const char *name,
                                 posix_address *out_address) {
    posix_address address = {.socket = {.sun_family = AF_UNIX}};
    if (name[0] == POSIX_ABSTRACT_MARK) {
        gpuipc_status status = address_make_abstract(name + 1, &address);
        if (status == GPUIPC_OK) {
            *out_address = address;
        }
        return status;
    }
    char *path = address.socket.sun_path;
    size_t capacity = sizeof(address.socket.sun_path);
    int length = snprintf(path, capacity, "%s/%s" POSIX_SOCKET_SUFFIX, directory_path, name);
    if (length < 0 || (size_t)length >= capacity) {
        return status_fail(GPUIPC_ERR_NAME_TOO_LONG,
                           "the socket path for \"%.40s\" in %.120s has %d characters; %zu are "
                           "possible",
                           name, directory_path, length, capacity - 1);
    }
    address.size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length + 1);
    address.file = strlen(directory_path) + 1;
    *out_address = address;
    return GPUIPC_OK;
}

/* ---- bound and connected to in the directory that was checked ---------------------------------- */

void posix_descriptor_path(int fd, char *path, size_t capacity) {
    (void)snprintf(path, capacity, "/proc/self/fd/%d", fd);
}

static const char *file_of(const posix_address *address) {
    return address->socket.sun_path + address->file;
}

/* proc(5): a link of /proc/PID/fd leads to what the descriptor has open, and to no path that it once had. Whether this
 * /proc is one, and shows this process, is looked at each time. */
static bool address_through_proc(int directory, const char *file, struct sockaddr_un *out_address) {
    char path[64];
    struct stat wanted;
    struct stat seen;
    *out_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    posix_descriptor_path(directory, path, sizeof(path));
    int length =
        snprintf(out_address->sun_path, sizeof(out_address->sun_path), "%s/%s", path, file);
    return length > 0 && (size_t)length < sizeof(out_address->sun_path) &&
           fstat(directory, &wanted) == 0 && stat(path, &seen) == 0 &&
           wanted.st_dev == seen.st_dev && wanted.st_ino == seen.st_ino;
}

typedef struct visit {
    posix_address_call *call;
    int fd;
    int directory;
    const char *file;
    int code;
} visit;

/* On a thread that has a working directory and an umask of its own: unshare(2), CLONE_FS. */
static void visit_directory(void *argument) {
    visit *self = argument;
    struct sockaddr_un beside = {.sun_family = AF_UNIX};
    (void)snprintf(beside.sun_path, sizeof(beside.sun_path), "%s", self->file);
    if (unshare(CLONE_FS) != 0) {
        self->code = POSIX_UNREACHABLE;
        return;
    }
    umask(0); /* the socket itself says which rights its file has */
    self->code = fchdir(self->directory) == 0 &&
                         self->call(self->fd, (const struct sockaddr *)&beside, sizeof(beside)) == 0
                     ? 0
                     : errno;
}

/* There is no bindat(2). So the directory is named by its descriptor, or where that cannot be (no /proc, a file name too
 * long to stand behind it), a thread goes there. The path would lead elsewhere if somebody exchanged a part of it after
 * it was checked. */
int posix_address_do(posix_address_call *call, int fd, int directory,
                     const posix_address *address) {
    struct sockaddr_un through;
    os_thread *thread;
    if (address->file == 0) {
        const struct sockaddr *abstract = (const struct sockaddr *)&address->socket;
        return call(fd, abstract, address->size) == 0 ? 0 : errno;
    }
    if (address_through_proc(directory, file_of(address), &through)) {
        return call(fd, (const struct sockaddr *)&through, sizeof(through)) == 0 ? 0 : errno;
    }
    visit there = {
        .call = call, .fd = fd, .directory = directory, .file = file_of(address), .code = 0};
    gpuipc_error why = status_save();
    if (os_thread_start(visit_directory, &there, &thread) != GPUIPC_OK) {
        status_restore(&why);
        return EAGAIN; /* pthread_create(3) */
    }
    os_thread_join(thread);
    return there.code;
}

gpuipc_status posix_address_unreachable(const posix_address *address) {
    return posix_fail_as(GPUIPC_ERR_NOT_SUPPORTED, EPERM, "unshare",
                         "%s cannot be reached safely: no /proc is mounted here, and a thread may "
                         "not have a directory of its own (CLONE_FS)",
                         address->socket.sun_path);
}
