/* SPDX-License-Identifier: MIT */
/** @file The runtime directory: which one, and which are refused. Names that do not fit. */
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
#include "leak_gate.h"
#include "os_pair.h"
#include "posix.h"
#include "thread_state.h"

TestSuite(posix_directory, .timeout = 60);

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
