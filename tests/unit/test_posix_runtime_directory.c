/* SPDX-License-Identifier: MIT */
/** @file Runtime directories that other users could enter, and abstract names, seen from the public
 *  functions. */
#include "core_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ticket/ticket.h"

TestSuite(posix_runtime_directory, .init = core_start, .fini = core_finish, .timeout = 60);

static gpuipc_context *context_in(const char *path, uint32_t flags) {
    gpuipc_context_config config = core_context_config();
    gpuipc_context *made = NULL;
    config.runtime_directory = path;
    config.flags = flags;
    check_ok(gpuipc_context_create(&config, &made));
    return made;
}

/* Nobody listens or connects in this directory. */
static void check_directory_refused(gpuipc_status expected, gpuipc_context *context) {
    gpuipc_listener *listener = NULL;
    gpuipc_connection *connection = NULL;
    check_status(expected, gpuipc_listener_open(context, "name", NULL, &listener));
    check_status(expected, gpuipc_connection_open(context, "name", NULL, 0, &connection));
    cr_assert_null(listener);
    cr_assert_null(connection);
}

Test(posix_runtime_directory, a_directory_open_to_others_is_unsafe) {
    static const mode_t modes[] = {0755, 0777, 0710, 0701, 0720, 0702, 0704};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        cr_assert_eq(chmod(core_directory, modes[i]), 0);
        check_directory_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, core_context);
        cr_assert(strstr(gpuipc_error_get()->sentence, core_directory) != NULL);
        cr_assert(strstr(gpuipc_error_get()->sentence, "export GPUIPC_RUNTIME_DIR=") != NULL);
    }
    cr_assert_eq(chmod(core_directory, 0700), 0);
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    core_pair_close(&pair);
}

Test(posix_runtime_directory, a_link_or_a_file_is_no_directory) {
    char path[RUNTIME_DIRECTORY_MAX + 8];
    (void)snprintf(path, sizeof(path), "%s/link", core_directory);
    cr_assert_eq(symlink(core_directory, path), 0);
    gpuipc_context *context = context_in(path, 0);
    check_directory_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, context);
    cr_assert_eq(unlink(path), 0);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fclose(file), 0);
    check_directory_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, context);
    check_ok(gpuipc_context_destroy(context));
}

Test(posix_runtime_directory, a_group_may_share_one_where_that_is_asked_for) {
    gpuipc_context *shared = context_in(core_directory, GPUIPC_CONTEXT_SHARED_DIRECTORY);
    core_pair pair;
    cr_assert_eq(chmod(core_directory, 0770), 0);
    check_directory_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, core_context);
    core_pair_open(&pair, shared, shared);
    core_pair_close(&pair);
    cr_assert_eq(chmod(core_directory, 0775), 0);
    check_directory_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, shared);
    check_ok(gpuipc_context_destroy(shared));
}

Test(posix_runtime_directory, a_missing_one_is_made) {
    char path[RUNTIME_DIRECTORY_MAX + 8];
    struct stat made;
    (void)snprintf(path, sizeof(path), "%s/new", core_directory);
    gpuipc_context *context = context_in(path, 0);
    gpuipc_connection *connection = NULL;
    check_status(GPUIPC_ERR_NOT_FOUND,
                 gpuipc_connection_open(context, "name", NULL, 0, &connection));
    cr_assert_eq(access(path, F_OK), -1); /* who only looks makes nothing */
    core_pair pair;
    core_pair_open(&pair, context, context);
    cr_assert_eq(stat(path, &made), 0);
    cr_assert_eq(made.st_mode & 07777u, 0700);
    core_pair_close(&pair);
    check_ok(gpuipc_context_destroy(context));
    cr_assert_eq(rmdir(path), 0, "something was left in it");
}

Test(posix_runtime_directory, one_that_cannot_be_made_names_variable_and_command) {
    gpuipc_context *context = context_in("/nowhere/at/all", 0);
    gpuipc_listener *listener = NULL;
    check_refused(GPUIPC_ERR_OS, "export GPUIPC_RUNTIME_DIR=",
                  gpuipc_listener_open(context, "name", NULL, &listener));
    cr_assert(strstr(gpuipc_error_get()->sentence, "XDG_RUNTIME_DIR") != NULL);
    check_ok(gpuipc_context_destroy(context));
}

Test(posix_runtime_directory, a_path_that_is_too_long_for_a_socket) {
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/", core_directory);
    memset(path + strlen(path), 'x', 100);
    path[strlen(core_directory) + 101] = '\0';
    gpuipc_context *context = context_in(path, 0);
    check_directory_refused(GPUIPC_ERR_NAME_TOO_LONG, context);
    check_ok(gpuipc_context_destroy(context));
}

Test(posix_runtime_directory, a_relative_path_is_refused) {
    static const char *const paths[] = {"here", "./here", "", "~/here"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        gpuipc_context_config config = core_context_config();
        gpuipc_context *made = NULL;
        config.runtime_directory = paths[i];
        check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "no absolute path",
                      gpuipc_context_create(&config, &made));
        cr_assert_null(made);
    }
}

Test(posix_runtime_directory, an_abstract_name_needs_none) {
    char unique[UNIQUE_NAME_MAX];
    char name[UNIQUE_NAME_MAX + 1];
    gpuipc_context *context = context_in("/nowhere/at/all", 0);
    gpuipc_listener *listener;
    gpuipc_listener *second = NULL;
    gpuipc_connection *client = NULL;
    gpuipc_connection *server;
    unique_name(unique);
    (void)snprintf(name, sizeof(name), "@%s", unique);
    check_status(GPUIPC_ERR_NOT_FOUND, gpuipc_connection_open(context, name, NULL, 0, &client));
    check_ok(gpuipc_listener_open(context, name, NULL, &listener));
    check_status(GPUIPC_ERR_NAME_IN_USE, gpuipc_listener_open(context, name, NULL, &second));
    check_ok(gpuipc_connection_open(context, name, NULL, SOON_MS, &client));
    check_ok(gpuipc_listener_accept(listener, SOON_MS, &server));
    check_ok(core_send(client, NULL, 0));
    check_ok(core_receive(server, NULL, 0));
    check_ok(gpuipc_connection_close(client));
    check_ok(gpuipc_connection_close(server));
    check_ok(gpuipc_listener_close(listener));
    check_ok(gpuipc_context_destroy(context));
}

static void write_log(void *user_data, gpuipc_log_level level, const char *sentence) {
    char *text = user_data;
    if (level == GPUIPC_LOG_INFO) {
        (void)snprintf(text, 256, "%s", sentence);
    }
}

/* The socket of a process that died: its file is there, and nobody behind it. */
Test(posix_runtime_directory, a_dead_process_is_replaced_and_the_log_told) {
    char text[256] = "";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    gpuipc_context_config config = core_context_config();
    gpuipc_context *context;
    gpuipc_listener *listener;
    config.log = write_log;
    config.log_user_data = text;
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/dead.sock", core_directory);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(close(fd), 0);
    check_ok(gpuipc_context_create(&config, &context));
    check_ok(gpuipc_listener_open(context, "dead", NULL, &listener));
    cr_assert(strstr(text, "dead.sock") != NULL, "%s", text);
    check_ok(gpuipc_listener_close(listener));
    check_ok(gpuipc_context_destroy(context));
}

static void path_of(char path[RUNTIME_DIRECTORY_MAX + 64], const char *file) {
    (void)snprintf(path, RUNTIME_DIRECTORY_MAX + 64, "%s/%s", core_directory, file);
}

/* ---- a directory that goes meanwhile -------------------------------------------------------- */

static gpuipc_status listener_make(gpuipc_context *context) {
    gpuipc_listener *listener = NULL;
    return gpuipc_listener_open(context, "name", NULL, &listener);
}

static gpuipc_status server_make(gpuipc_context *context) {
    gpuipc_server *server = NULL;
    return gpuipc_server_create(context, NULL, &server);
}

typedef struct late_call {
    gpuipc_status (*make)(gpuipc_context *context);
    gpuipc_context *context;
    gpuipc_status status;
    gpuipc_error error;
} late_call;

static void late_call_make(void *data) {
    late_call *call = data;
    call->status = call->make(call->context);
    call->error = *gpuipc_error_get();
}

/* How often this process has it open. */
static int open_count(const char *path) {
    int count = 0;
    for (int fd = 0; fd < 256; fd++) {
        char link[64];
        char target[RUNTIME_DIRECTORY_MAX + 64];
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(link, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        count += strcmp(target, path) == 0 ? 1 : 0;
    }
    return count;
}

/* The call has it open and waits for its lock, which is held here: then it goes. */
static void check_removed_meanwhile(gpuipc_status (*make)(gpuipc_context *context)) {
    char path[RUNTIME_DIRECTORY_MAX + 64];
    path_of(path, "goes");
    os_thread *thread;
    late_call call = {.make = make, .context = context_in(path, 0)};
    cr_assert_eq(mkdir(path, 0700), 0);
    const int held = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_geq(held, 0);
    cr_assert_eq(flock(held, LOCK_EX), 0);
    check_ok(os_thread_start(late_call_make, &call, &thread));
    while (open_count(path) < 2) {
        os_sleep_ms(1);
    }
    cr_assert_eq(rmdir(path), 0);
    cr_assert_eq(close(held), 0);
    os_thread_join(thread);
    cr_assert_eq(call.status, GPUIPC_ERR_NOT_FOUND, "%s", call.error.sentence);
    cr_assert(strstr(call.error.sentence, "removed") != NULL, "%s", call.error.sentence);
    check_ok(gpuipc_context_destroy(call.context));
}

Test(posix_runtime_directory, one_that_is_removed_meanwhile_is_not_found) {
    check_removed_meanwhile(listener_make);
    check_removed_meanwhile(server_make);
}

/* ---- the session of another user -------------------------------------------------------------- */

Test(posix_runtime_directory, a_context_without_one_works_but_for_names) {
    gpuipc_context_config config = core_context_config();
    gpuipc_context *context;
    gpuipc_server *server = NULL;
    char path[RUNTIME_DIRECTORY_MAX + 64];
    if (geteuid() != 0) {
        cr_skip_test("only root can give a directory away");
    }
    path_of(path, "session");
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(chown(path, 65534, (gid_t)-1), 0);
    cr_assert_eq(unsetenv("GPUIPC_RUNTIME_DIR"), 0);
    cr_assert_eq(unsetenv("NVIDIA_DRA_LOCAL_IPC_DIR"), 0);
    cr_assert_eq(setenv("XDG_RUNTIME_DIR", path, 1), 0);
    config.runtime_directory = NULL;
    check_ok(gpuipc_context_create(&config, &context));
    check_directory_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, context);
    check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, "unset XDG_RUNTIME_DIR",
                  gpuipc_server_create(context, NULL, &server));
    cr_assert_eq(setenv("GPUIPC_RUNTIME_DIR", core_directory, 1), 0); /* as the sentence says */
    check_ok(gpuipc_server_create(context, NULL, &server));
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_context_destroy(context));
    cr_assert_eq(rmdir(path), 0);
}

/* ---- what killed servers have left ---------------------------------------------------------- */

#define DEAD 100

/* As a server makes it; nobody listens. */
static int bind_socket(const char *file) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int bound = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    cr_assert_geq(bound, 0);
    cr_assert_lt(
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", core_directory, file),
        (int)sizeof(address.sun_path));
    cr_assert_eq(bind(bound, (const struct sockaddr *)&address, sizeof(address)), 0);
    return bound;
}

static bool is_there(const char *file) {
    char path[RUNTIME_DIRECTORY_MAX + 64];
    struct stat found;
    path_of(path, file);
    return lstat(path, &found) == 0;
}

static int count_dead(void) {
    int count = 0;
    for (int i = 0; i < DEAD; i++) {
        char file[64];
        (void)snprintf(file, sizeof(file), "ticket-%032d.sock", i);
        count += is_there(file) ? 1 : 0;
    }
    return count;
}

static void check_server_answers(gpuipc_server *server) {
    gpuipc_buffer *shared = core_buffer(core_unit, 0);
    gpuipc_connection *connection = NULL;
    char name[TICKET_ENDPOINT_SIZE];
    gpuipc_ticket made;
    ticket decoded;
    check_ok(gpuipc_buffer_share(server, shared, NULL, &made));
    check_ok(ticket_decode(&made, &decoded));
    ticket_endpoint(decoded.server_id, name);
    check_ok(gpuipc_connection_open(core_context, name, NULL, 0, &connection));
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_buffer_release(shared));
}

Test(posix_runtime_directory, what_killed_servers_left_is_swept_and_nothing_else) {
    const int bound = bind_socket("ticket-bound.sock"); /* about to listen */
    char path[RUNTIME_DIRECTORY_MAX + 64];
    gpuipc_server *living = NULL;
    gpuipc_server *server = NULL;
    check_ok(gpuipc_server_create(core_context, NULL, &living));
    for (int i = 0; i < DEAD; i++) {
        char file[64];
        (void)snprintf(file, sizeof(file), "ticket-%032d.sock", i);
        cr_assert_eq(close(bind_socket(file)), 0);
    }
    cr_assert_eq(close(bind_socket("mine.sock")), 0);
    path_of(path, "ticket-note.sock");
    FILE *note = fopen(path, "w");
    cr_assert_not_null(note);
    cr_assert_eq(fclose(note), 0);
    check_ok(gpuipc_server_create(core_context, NULL, &server));
    const int left = count_dead();
    cr_assert(left < DEAD && left >= DEAD - 16, "%d are left", left); /* some of them at a time */
    for (int i = 0; i < 10000 && count_dead() > 0; i++) {
        check_ok(gpuipc_server_destroy(server));
        check_ok(gpuipc_server_create(core_context, NULL, &server));
    }
    cr_assert_eq(count_dead(), 0);
    cr_assert(is_there("ticket-bound.sock") && is_there("mine.sock") &&
              is_there("ticket-note.sock"));
    check_server_answers(living);
    check_ok(gpuipc_server_destroy(living));
    check_ok(gpuipc_server_destroy(server));
    cr_assert_eq(close(bound), 0);
    static const char *const files[] = {"ticket-bound.sock", "mine.sock", "ticket-note.sock"};
    for (size_t i = 0; i < 3; i++) {
        path_of(path, files[i]);
        cr_assert_eq(unlink(path), 0);
    }
}
