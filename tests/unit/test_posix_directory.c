/* SPDX-License-Identifier: MIT */
/** @file The runtime directory: which one, and which are refused. Names that do not fit. */
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "form.h"
#include "leak_gate.h"
#include "os_pair.h"
#include "posix.h"
#include "thread_state.h"

TestSuite(posix_directory, .timeout = 60);
/* Of those that do something more often in the full form; in the short one CTest's own limit is what ends them. */
#define MANY_TIMES_S 1800

static const uid_t other_user = 65534;

static gpuipc_status listen_once(const os_pair *pair, bool shared) {
    os_directory directory = {pair->path, shared};
    os_listener *listener;
    gpuipc_status status = os_listener_open(&directory, pair->name, NULL, &listener);
    if (status == GPUIPC_OK) {
        os_listener_destroy(listener);
    }
    return status;
}

static gpuipc_status connect_once(const os_pair *pair, bool shared) {
    os_directory directory = {pair->path, shared};
    os_connection *connection;
    gpuipc_status status =
        os_connection_open(&directory, pair->name, os_deadline_after(0), &connection);
    if (status == GPUIPC_OK) {
        os_connection_destroy(connection);
    }
    return status;
}

typedef struct sentences {
    int count;
    char last[256];
} sentences;

static void sentence_note(void *user_data, const char *sentence) {
    sentences *all = user_data;
    all->count++;
    snprintf(all->last, sizeof(all->last), "%s", sentence);
}

Test(posix_directory, a_socket_of_a_dead_process_is_replaced_and_that_is_told) {
    os_pair pair;
    sentences told = {0};
    os_log log = {sentence_note, &told};
    char line[CHILD_LINE_MAX];
    child_process *helper;
    os_pair_name(&pair);
    const char *const arguments[] = {"listen", pair.path, pair.name, NULL};
    check_ok(child_start("unit_helper", arguments, NULL, &helper));
    cr_assert(child_expect_line(helper, "GPUIPC_OK", line, SOON_MS), "%s", line);
    child_destroy(helper);
    check_ok(os_listener_open(&pair.directory, pair.name, &log, &pair.listener));
    cr_assert_eq(told.count, 1);
    cr_assert(strstr(told.last, pair.name) != NULL, "%s", told.last);
    os_pair_close(&pair);
}

Test(posix_directory, rights_of_others_are_refused) {
    static const struct {
        mode_t mode;
        bool own;    /**< allowed for a directory of the user's own */
        bool shared; /**< allowed for a shared one */
    } rows[] = {{0700, true, true},   {0500, true, true},    {0770, false, true},
                {0750, false, true},  {0710, false, true},   {0720, false, true},
                {0701, false, false}, {0704, false, false},  {0702, false, false},
                {0777, false, false}, {01777, false, false}, {0755, false, false}};
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_pair_name(&pair);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char wanted[16];
        cr_assert_eq(chmod(pair.path, rows[i].mode), 0);
        snprintf(wanted, sizeof(wanted), "%04o", (unsigned)rows[i].mode);
        for (int shared = 0; shared < 2; shared++) {
            bool allowed = shared ? rows[i].shared : rows[i].own;
            if (allowed) {
                check_status(GPUIPC_ERR_NOT_FOUND, connect_once(&pair, shared));
                continue;
            }
            check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, wanted, connect_once(&pair, shared));
            check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, pair.path, listen_once(&pair, shared));
        }
    }
    cr_assert_eq(chmod(pair.path, 0700), 0);
    check_ok(listen_once(&pair, false));
    check_ok(listen_once(&pair, true));
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(posix_directory, one_of_another_user_is_refused_unless_shared) {
    if (geteuid() != 0) {
        cr_skip_test("only root can give a directory away");
    }
    os_pair pair;
    os_pair_name(&pair);
    cr_assert_eq(chown(pair.path, other_user, (gid_t)-1), 0);
    check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, "65534", listen_once(&pair, false));
    check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, "65534", connect_once(&pair, false));
    check_ok(listen_once(&pair, true));
    os_pair_close(&pair);
}

Test(posix_directory, what_is_no_real_directory_is_refused) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_pair odd;
    os_pair_name(&pair);
    odd = pair;
    snprintf(odd.path, sizeof(odd.path), "%.30s/link", pair.path);
    cr_assert_eq(symlink(pair.path, odd.path), 0);
    check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, odd.path, listen_once(&odd, false));
    check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, odd.path, connect_once(&odd, false));
    snprintf(odd.path, sizeof(odd.path), "%.30s/link//", pair.path);
    check_status(GPUIPC_ERR_UNSAFE_DIRECTORY, listen_once(&odd, false));
    snprintf(odd.path, sizeof(odd.path), "%.30s/file", pair.path);
    close(open(odd.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0700));
    check_status(GPUIPC_ERR_UNSAFE_DIRECTORY, listen_once(&odd, false));
    check_status(GPUIPC_ERR_UNSAFE_DIRECTORY, connect_once(&odd, false));
    static const char *const relative[] = {"", "here", "./here", "../there"};
    for (size_t i = 0; i < sizeof(relative) / sizeof(relative[0]); i++) {
        snprintf(odd.path, sizeof(odd.path), "%s", relative[i]);
        check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "absolute", listen_once(&odd, false));
        check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "absolute", connect_once(&odd, false));
    }
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(posix_directory, a_missing_one_is_made_by_who_listens_but_not_its_parents) {
    os_pair pair;
    os_pair deeper;
    struct stat made;
    os_pair_name(&pair);
    deeper = pair;
    snprintf(deeper.path, sizeof(deeper.path), "%.30s/run", pair.path);
    check_status(GPUIPC_ERR_NOT_FOUND, connect_once(&deeper, false));
    cr_assert_neq(stat(deeper.path, &made), 0, "made by who only connects");
    check_ok(listen_once(&deeper, false));
    cr_assert_eq(stat(deeper.path, &made), 0);
    cr_assert_eq(made.st_mode & 07777, 0700);
    cr_assert_eq(rmdir(deeper.path), 0, "something was left in it");
    snprintf(deeper.path, sizeof(deeper.path), "%.30s/no/run", pair.path);
    check_refused(GPUIPC_ERR_OS, deeper.path, listen_once(&deeper, false));
    os_pair_close(&pair);
}

Test(posix_directory, the_environment_says_which_is_the_default) {
    char path[256];
    char own[64];
    snprintf(own, sizeof(own), "/tmp/gpuipc-%u", (unsigned)geteuid());
    static const struct {
        const char *ours;
        const char *claim;
        const char *session;
        const char *expected; /**< NULL: that in /tmp */
    } rows[] = {{"/run/ours", "/run/claim", "/run/user", "/run/ours"},
                {"/run/ours/", NULL, NULL, "/run/ours"},
                {"", "", "/run/user", "/run/user/gpuipc"},
                {NULL, "/run/claim", "/run/user", "/run/claim/gpuipc"},
                {NULL, "/run/claim", NULL, "/run/claim/gpuipc"},
                {NULL, NULL, "/run/user", "/run/user/gpuipc"},
                {NULL, NULL, "relative", NULL},
                {NULL, NULL, "", NULL},
                {NULL, NULL, NULL, NULL},
                {"/", NULL, NULL, "/"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsetenv("GPUIPC_RUNTIME_DIR");
        unsetenv("XDG_RUNTIME_DIR");
        if (rows[i].ours != NULL) {
            setenv("GPUIPC_RUNTIME_DIR", rows[i].ours, 1);
        }
        unsetenv("NVIDIA_DRA_LOCAL_IPC_DIR");
        if (rows[i].claim != NULL) {
            setenv("NVIDIA_DRA_LOCAL_IPC_DIR", rows[i].claim, 1);
        }
        if (rows[i].session != NULL) {
            setenv("XDG_RUNTIME_DIR", rows[i].session, 1);
        }
        check_ok(os_directory_resolve(NULL, path, sizeof(path)));
        cr_assert_str_eq(path, rows[i].expected != NULL ? rows[i].expected : own);
        os_directory given = {"/run/given", false};
        check_ok(os_directory_resolve(&given, path, sizeof(path)));
        cr_assert_str_eq(path, "/run/given");
    }
    setenv("GPUIPC_RUNTIME_DIR", "relative", 1);
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "GPUIPC_RUNTIME_DIR",
                  os_directory_resolve(NULL, path, sizeof(path)));
    unsetenv("GPUIPC_RUNTIME_DIR");
    setenv("NVIDIA_DRA_LOCAL_IPC_DIR", "relative", 1);
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "NVIDIA_DRA_LOCAL_IPC_DIR",
                  os_directory_resolve(NULL, path, sizeof(path)));
    setenv("GPUIPC_RUNTIME_DIR", "/run/much/too/long", 1);
    check_status(GPUIPC_ERR_NAME_TOO_LONG, os_directory_resolve(NULL, path, 10));
}

/* sudo -E, su: XDG_RUNTIME_DIR is that of the user who came before. */
static void check_session_refused(const char *session, const char *made) {
    char path[256];
    struct stat found;
    os_listener *listener = NULL;
    os_connection *connection = NULL;
    cr_assert_eq(setenv("XDG_RUNTIME_DIR", session, 1), 0);
    check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, "belongs to user 65534",
                  os_directory_resolve(NULL, path, sizeof(path)));
    check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, "unset XDG_RUNTIME_DIR",
                  os_listener_open(NULL, "name", NULL, &listener));
    check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, session,
                  os_connection_open(NULL, "name", os_deadline_after(0), &connection));
    cr_assert_null(listener);
    cr_assert_null(connection);
    cr_assert_neq(lstat(made, &found), 0, "a directory was made in another user's");
}

Test(posix_directory, the_session_directory_of_another_user_is_not_used) {
    if (geteuid() != 0) {
        cr_skip_test("only root can give a directory away");
    }
    os_pair pair;
    char link[RUNTIME_DIRECTORY_MAX];
    char made[RUNTIME_DIRECTORY_MAX + 8];
    os_listener *listener;
    os_connection *connection;
    os_pair_name(&pair);
    (void)snprintf(link, sizeof(link), "%.30s.link", pair.path);
    (void)snprintf(made, sizeof(made), "%s/gpuipc", pair.path);
    cr_assert_eq(symlink(pair.path, link), 0);
    cr_assert_eq(unsetenv("GPUIPC_RUNTIME_DIR"), 0);
    cr_assert_eq(unsetenv("NVIDIA_DRA_LOCAL_IPC_DIR"), 0);
    cr_assert_eq(chown(pair.path, other_user, (gid_t)-1), 0);
    check_session_refused(pair.path, made);
    check_session_refused(link, made);
    cr_assert_eq(chown(pair.path, 0, (gid_t)-1), 0);
    check_ok(os_listener_open(NULL, pair.name, NULL, &listener)); /* by the link, of its own */
    check_ok(os_connection_open(NULL, pair.name, os_deadline_after(0), &connection));
    os_connection_destroy(connection);
    os_listener_destroy(listener);
    cr_assert_eq(rmdir(made), 0);
    cr_assert_eq(unlink(link), 0);
    os_pair_close(&pair);
}

Test(posix_directory, names_are_as_long_as_the_socket_address_allows) {
    os_pair pair;
    char name[200];
    os_listener *listener;
    os_connection *connection;
    os_pair_name(&pair);
    size_t room = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
    size_t longest = room - strlen(pair.path) - strlen("/") - strlen(".sock");
    memset(name, 'n', sizeof(name));
    name[longest] = '\0';
    check_ok(os_listener_open(&pair.directory, name, NULL, &listener));
    check_ok(os_connection_open(&pair.directory, name, os_deadline_after(0), &connection));
    os_connection_destroy(connection);
    os_listener_destroy(listener);
    name[longest] = 'n';
    name[longest + 1] = '\0';
    check_refused(GPUIPC_ERR_NAME_TOO_LONG, "108",
                  os_listener_open(&pair.directory, name, NULL, &listener));
    check_refused(GPUIPC_ERR_NAME_TOO_LONG, "107",
                  os_connection_open(&pair.directory, name, os_deadline_after(0), &connection));
    os_pair_close(&pair);
}

Test(posix_directory, abstract_names_need_no_directory) {
    leak_gate gate;
    leak_gate_begin(&gate);
    char name[200] = "@";
    os_listener *listener;
    os_listener *second = NULL;
    os_connection *connection;
    os_directory nowhere = {"/nonexistent/gpuipc", false};
    unique_name(name + 1);
    check_ok(os_listener_open(&nowhere, name, NULL, &listener));
    check_status(GPUIPC_ERR_NAME_IN_USE, os_listener_open(&nowhere, name, NULL, &second));
    check_ok(os_connection_open(NULL, name, os_deadline_after(0), &connection));
    os_connection_destroy(connection);
    os_listener_destroy(listener);
    check_status(GPUIPC_ERR_NOT_FOUND,
                 os_connection_open(NULL, name, os_deadline_after(0), &connection));
    /* sun_path without its first byte and without "gpuipc/" */
    size_t longest = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 2 - strlen("gpuipc/");
    memset(name + 1, 'n', sizeof(name) - 1);
    name[1 + longest] = '\0';
    check_ok(os_listener_open(NULL, name, NULL, &listener));
    os_listener_destroy(listener);
    name[1 + longest] = 'n';
    name[2 + longest] = '\0';
    check_refused(GPUIPC_ERR_NAME_TOO_LONG, "characters",
                  os_listener_open(NULL, name, NULL, &listener));
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

static void socket_path(const os_pair *pair, char *path, size_t capacity) {
    int length = snprintf(path, capacity, "%s/%s.sock", pair->path, pair->name);
    cr_assert(length > 0 && (size_t)length < capacity);
}

Test(posix_directory, a_file_that_is_no_socket_is_left_as_it_is) {
    os_pair pair;
    char path[200];
    struct stat before;
    struct stat after;
    os_pair_name(&pair);
    socket_path(&pair, path, sizeof(path));
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    cr_assert_eq(lstat(path, &before), 0);
    check_refused(GPUIPC_ERR_NAME_IN_USE, "no socket", listen_once(&pair, false));
    check_status(GPUIPC_ERR_NOT_FOUND, connect_once(&pair, false));
    cr_assert_eq(lstat(path, &after), 0);
    cr_assert_eq(before.st_ino, after.st_ino);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(symlink("/dev/null", path), 0);
    check_refused(GPUIPC_ERR_NAME_IN_USE, "no socket", listen_once(&pair, false));
    os_pair_close(&pair);
}

Test(posix_directory, another_programs_socket_keeps_its_name) {
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM};
    os_pair pair;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    os_pair_name(&pair);
    socket_path(&pair, address.sun_path, sizeof(address.sun_path));
    for (size_t i = 0; i < 2; i++) {
        int other = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);
        cr_assert_eq(bind(other, (struct sockaddr *)&address, sizeof(address)), 0);
        cr_assert(types[i] == SOCK_DGRAM || listen(other, 1) == 0);
        check_status(GPUIPC_ERR_NAME_IN_USE, listen_once(&pair, false));
        check_refused(GPUIPC_ERR_PROTOCOL, "another program", connect_once(&pair, false));
        close(other);
        cr_assert_eq(unlink(address.sun_path), 0);
    }
    os_pair_close(&pair);
}

Test(posix_directory, sockets_are_their_users_alone_or_their_groups) {
    os_pair pair;
    char path[200];
    struct stat made;
    os_pair_name(&pair);
    socket_path(&pair, path, sizeof(path));
    for (int shared = 0; shared < 2; shared++) {
        os_directory directory = {pair.path, shared};
        os_listener *listener;
        mode_t before = umask(0);
        check_ok(os_listener_open(&directory, pair.name, NULL, &listener));
        umask(before);
        cr_assert_eq(lstat(path, &made), 0);
        cr_assert(S_ISSOCK(made.st_mode));
        cr_assert_eq(made.st_mode & 07777, shared ? 0660 : 0600);
        os_listener_destroy(listener);
        cr_assert_neq(lstat(path, &made), 0, "the name was left behind");
    }
    os_pair_close(&pair);
}

Test(posix_directory, a_name_that_somebody_else_has_taken_is_not_removed) {
    os_pair pair;
    char path[200];
    struct stat found;
    os_listener *second;
    os_pair_listen(&pair);
    socket_path(&pair, path, sizeof(path));
    cr_assert_eq(unlink(path), 0);
    check_ok(os_listener_open(&pair.directory, pair.name, NULL, &second));
    os_listener_destroy(pair.listener);
    pair.listener = NULL;
    cr_assert_eq(lstat(path, &found), 0, "the second listener's name is gone");
    check_ok(connect_once(&pair, false));
    os_listener_destroy(second);
    os_pair_close(&pair);
}

typedef struct listening {
    const os_pair *pair;
    atomic_ullong thread;
    gpuipc_status status;
} listening;

static void listen_in_thread(void *argument) {
    listening *own = argument;
    atomic_store(&own->thread, thread_state_own_number());
    own->status = listen_once(own->pair, false);
}

Test(posix_directory, who_listens_waits_for_the_directorys_lock_but_not_for_ever) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_pair pair;
    os_thread *thread;
    os_pair_name(&pair);
    int lock = open(pair.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_eq(flock(lock, LOCK_EX), 0);
    check_refused(GPUIPC_ERR_TIMEOUT, "locked", listen_once(&pair, false));
    listening own = {.pair = &pair};
    check_ok(os_thread_start(listen_in_thread, &own, &thread));
    while (atomic_load(&own.thread) == 0) {
        os_sleep_ms(1);
    }
    cr_assert(thread_state_wait_asleep(atomic_load(&own.thread), SOON_MS));
    cr_assert_eq(flock(lock, LOCK_UN), 0);
    os_thread_join(thread);
    cr_assert_eq(own.status, GPUIPC_OK, "%s", gpuipc_status_name(own.status));
    close(lock);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/** Lets another user try to connect, and answers what came of it. */
static void connect_as_other(const os_pair *pair, const char *shared, char *line) {
    const char *const arguments[] = {"connect-as", "65534", pair->path, pair->name, shared, NULL};
    child_process *helper;
    check_ok(child_start("posix_helper", arguments, NULL, &helper));
    check_ok(child_read_line(helper, line, CHILD_LINE_MAX, SOON_MS));
    child_close_input(helper);
    check_ok(child_wait(helper, SOON_MS, NULL));
    child_destroy(helper);
}

Test(posix_directory, another_user_cannot_connect_unless_its_group_may) {
    char line[CHILD_LINE_MAX];
    if (geteuid() != 0) {
        cr_skip_test("only root can become another user");
    }
    os_pair pair;
    os_pair_name(&pair);
    pair.directory.shared = true;
    check_ok(os_listener_open(&pair.directory, pair.name, NULL, &pair.listener));
    connect_as_other(&pair, "own", line);
    cr_assert(strncmp(line, "GPUIPC_ERR_UNSAFE_DIRECTORY", 27) == 0, "%s", line);
    connect_as_other(&pair, "shared", line);
    cr_assert(strncmp(line, "GPUIPC_ERR_ACCESS_DENIED", 24) == 0, "%s", line);
    /* The directory admits its group, the socket does not yet. */
    cr_assert_eq(chown(pair.path, (uid_t)-1, 65534), 0);
    cr_assert_eq(chmod(pair.path, 0770), 0);
    connect_as_other(&pair, "shared", line);
    cr_assert(strncmp(line, "GPUIPC_ERR_ACCESS_DENIED", 24) == 0, "%s", line);
    char path[200];
    socket_path(&pair, path, sizeof(path));
    cr_assert_eq(chown(path, (uid_t)-1, 65534), 0);
    connect_as_other(&pair, "shared", line);
    cr_assert_str_eq(line, "GPUIPC_OK");
    /* And the listener knows that it was another user. */
    os_peer peer;
    check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
    check_ok(os_connection_get_peer(pair.server, &peer));
    cr_assert_not(peer.same_user);
    cr_assert_str_eq(peer.user, "65534");
    os_peer_close(&peer);
    os_pair_close(&pair);
}

/* ---- a directory that is exchanged ------------------------------------------------------------- */

/* A runtime directory in "real", which is exchanged for a link to "foreign" again and again. */
typedef struct exchange {
    os_pair pair;
    os_pair real; /**< its path is that of the directory that is exchanged */
    char link[RUNTIME_DIRECTORY_MAX];
    char foreign[RUNTIME_DIRECTORY_MAX];
    os_thread *thread;
    atomic_bool is_over;
    atomic_ullong count;
    atomic_ullong failed; /**< the thread cannot fail the test */
} exchange;

static void exchange_go_on(void *argument) {
    exchange *self = argument;
    while (!atomic_load(&self->is_over)) {
        const bool failed =
            renameat2(AT_FDCWD, self->real.path, AT_FDCWD, self->link, RENAME_EXCHANGE) != 0;
        atomic_fetch_add(failed ? &self->failed : &self->count, 1u);
    }
}

static void exchange_prepare(exchange *self) {
    os_pair_name(&self->pair);
    self->real = self->pair;
    (void)snprintf(self->real.path, sizeof(self->real.path), "%.30s/real", self->pair.path);
    (void)snprintf(self->link, sizeof(self->link), "%.30s/link", self->pair.path);
    (void)snprintf(self->foreign, sizeof(self->foreign), "%.30s/foreign", self->pair.path);
    cr_assert_eq(mkdir(self->real.path, 0700), 0);
    cr_assert_eq(mkdir(self->foreign, 0700), 0);
    cr_assert_eq(chmod(self->foreign, 0777), 0); /* which the check would refuse */
    cr_assert_eq(symlink(self->foreign, self->link), 0);
}

static void exchange_begin(exchange *self) {
    exchange_prepare(self);
    check_ok(os_thread_start(exchange_go_on, self, &self->thread));
    while (atomic_load(&self->count) + atomic_load(&self->failed) == 0) {
        os_sleep_ms(1);
    }
}

/* Nobody exchanges them any more. */
static void exchange_remove(exchange *self) {
    (void)rmdir(self->foreign);
    (void)unlink(self->real.path); /* one of the two is the link */
    (void)unlink(self->link);
    (void)rmdir(self->real.path);
    (void)rmdir(self->link);
    os_pair_close(&self->pair);
}

static void exchange_end(exchange *self) {
    atomic_store(&self->is_over, true);
    os_thread_join(self->thread);
    cr_assert_eq(atomic_load(&self->failed), 0, "so many exchanges failed, and %llu did not",
                 (unsigned long long)atomic_load(&self->count));
    exchange_remove(self);
}

static unsigned exchange_count_foreign(const exchange *self) {
    unsigned count = 0;
    DIR *all = opendir(self->foreign);
    cr_assert_not_null(all);
    for (const struct dirent *one = readdir(all); one != NULL; one = readdir(all)) {
        count += one->d_name[0] != '.';
    }
    closedir(all);
    return count;
}

/* What was checked is what is bound. Who listens has looked at the directory when he waits for its lock. */
Test(posix_directory, what_is_exchanged_after_it_was_checked_is_not_bound_in) {
    static exchange all;
    os_thread *thread;
    exchange_prepare(&all);
    int lock = open(all.real.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_eq(flock(lock, LOCK_EX), 0);
    listening own = {.pair = &all.real};
    check_ok(os_thread_start(listen_in_thread, &own, &thread));
    while (atomic_load(&own.thread) == 0) {
        os_sleep_ms(1);
    }
    cr_assert(thread_state_wait_asleep(atomic_load(&own.thread), SOON_MS));
    cr_assert_eq(renameat2(AT_FDCWD, all.real.path, AT_FDCWD, all.link, RENAME_EXCHANGE), 0);
    cr_assert_eq(flock(lock, LOCK_UN), 0);
    os_thread_join(thread);
    cr_assert_eq(own.status, GPUIPC_OK, "%s", gpuipc_status_name(own.status));
    cr_assert_eq(exchange_count_foreign(&all), 0);
    close(lock);
    exchange_remove(&all);
}

/* Each time the name is in the directory that is this user's, or it is refused. */
Test(posix_directory, nothing_is_bound_in_a_directory_that_is_exchanged_meanwhile,
     .timeout = MANY_TIMES_S) {
    static exchange all;
    const uint64_t times = form_choose(2000, 100000);
    unsigned bound = 0;
    exchange_begin(&all);
    for (uint64_t i = 0; i < times; i++) {
        os_directory directory = {all.real.path, false};
        os_listener *listener;
        gpuipc_status status = os_listener_open(&directory, all.real.name, NULL, &listener);
        cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_UNSAFE_DIRECTORY, "%s",
                  gpuipc_error_text());
        cr_assert_eq(exchange_count_foreign(&all), 0, "bound elsewhere after %llu",
                     (unsigned long long)i);
        if (status == GPUIPC_OK) {
            bound++;
            os_listener_destroy(listener);
        }
    }
    cr_assert_gt(bound, 0);
    exchange_end(&all);
}

typedef struct usurper {
    char name[200];
    char link[200];
    char victim[200];
    atomic_bool is_over;
    atomic_ullong placed; /**< links, where the name is or was */
} usurper;

static void usurp_go_on(void *argument) {
    usurper *self = argument;
    while (!atomic_load(&self->is_over)) {
        if (symlink(self->victim, self->link) == 0) {
            atomic_fetch_add(&self->placed, rename(self->link, self->name) == 0 ? 1u : 0u);
        }
    }
}

/* One of a group that shares the directory puts a link where the socket was just made: what it leads to keeps its
 * rights. */
Test(posix_directory, a_link_in_the_place_of_a_new_socket_changes_no_other_file,
     .timeout = MANY_TIMES_S) {
    static usurper other;
    struct stat after;
    os_thread *thread;
    os_pair pair;
    os_pair_name(&pair);
    cr_assert_eq(chmod(pair.path, 0770), 0);
    socket_path(&pair, other.name, sizeof(other.name));
    (void)snprintf(other.link, sizeof(other.link), "%s/link", pair.path);
    (void)snprintf(other.victim, sizeof(other.victim), "%s/victim", pair.path);
    close(open(other.victim, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    check_ok(os_thread_start(usurp_go_on, &other, &thread));
    const os_deadline begun = os_deadline_after(SOON_MS); /* on a busy machine it begins late */
    while (atomic_load(&other.placed) == 0 && !os_deadline_passed(begun)) {
        os_sleep_ms(1);
    }
    for (uint64_t i = 0; i < form_choose(3000, 100000); i++) {
        gpuipc_status status = listen_once(&pair, true);
        cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_NAME_IN_USE ||
                      status == GPUIPC_ERR_UNSAFE_DIRECTORY || status == GPUIPC_ERR_NOT_FOUND,
                  "%s", gpuipc_error_text());
        cr_assert_eq(stat(other.victim, &after), 0);
        cr_assert_eq(after.st_mode & 07777u, 0600, "changed after %llu", (unsigned long long)i);
        (void)unlink(other.name);
    }
    atomic_store(&other.is_over, true);
    os_thread_join(thread);
    cr_assert_gt(atomic_load(&other.placed), 0);
    os_pair_close(&pair);
}

/* A socket of the same name waits where the link leads; nobody may come there. */
Test(posix_directory, nobody_connects_into_a_directory_that_is_exchanged_meanwhile,
     .timeout = MANY_TIMES_S) {
    static exchange all;
    const uint64_t times = form_choose(10000, 200000);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    exchange_begin(&all);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.60s/%.30s.sock", all.foreign,
                   all.real.name);
    int trap = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    cr_assert_eq(bind(trap, (struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(listen(trap, 8), 0);
    for (uint64_t i = 0; i < times; i++) {
        gpuipc_status status = connect_once(&all.real, false);
        cr_assert(status == GPUIPC_ERR_NOT_FOUND || status == GPUIPC_ERR_UNSAFE_DIRECTORY,
                  "%s after %llu: %s", gpuipc_status_name(status), (unsigned long long)i,
                  gpuipc_error_text());
        cr_assert_lt(accept(trap, NULL, NULL), 0, "somebody came after %llu",
                     (unsigned long long)i);
    }
    close(trap);
    (void)unlink(address.sun_path);
    exchange_end(&all);
}

Test(posix_directory, without_a_proc_names_are_made_and_reached_all_the_same) {
    char line[CHILD_LINE_MAX];
    os_pair pair;
    child_process *helper;
    os_pair_name(&pair);
    const char *const arguments[] = {"no-proc", pair.path, pair.name, NULL};
    check_ok(child_start("posix_helper", arguments, NULL, &helper));
    check_ok(child_read_line(helper, line, CHILD_LINE_MAX, SOON_MS));
    if (strcmp(line, "no namespace") == 0) {
        check_ok(child_wait(helper, SOON_MS, NULL));
        child_destroy(helper);
        os_pair_close(&pair);
        cr_skip_test("a /proc can be hidden only in a mount namespace of one's own");
    }
    cr_assert_str_eq(line, "GPUIPC_OK");
    check_ok(connect_once(&pair, false)); /* from where there is one */
    child_close_input(helper);
    check_ok(child_read_line(helper, line, CHILD_LINE_MAX, SOON_MS));
    cr_assert_str_eq(line, "GPUIPC_OK");
    check_ok(child_wait(helper, SOON_MS, NULL));
    child_destroy(helper);
    os_pair_close(&pair);
}
