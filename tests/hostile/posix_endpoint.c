/* SPDX-License-Identifier: MIT */
/** @file Runtime directories that are not this user's alone, and names under which something else is: what listens and what
 *  connects there is refused, and an honest process in a directory as it should be is served. */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "form.h"
#include "honest.h"
#include "hostile.h"
#include "posix_system.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))
#define SHORT_ROUNDS 2
#define FULL_ROUNDS  1000
#define NOBODY       65534u
#define PATH_BYTES   (RUNTIME_DIRECTORY_MAX + 32)

/* What a case has made. */
typedef struct squat {
    char directory[PATH_BYTES]; /**< the runtime directory of the context */
    char path[PATH_BYTES];      /**< of the socket of the name */
    char beside[PATH_BYTES];
    int fd; /**< -1: none */
} squat;

typedef struct endpoint_case {
    const char *name;
    const char *rule;
    void (*make)(squat *self);
    gpuipc_status listening;
    gpuipc_status connecting;
    bool needs_root;
} endpoint_case;

/* ---- directories ----------------------------------------------------------------------------- */

static void make_link(squat *self) {
    cr_assert_eq(rename(self->directory, self->beside), 0);
    cr_assert_eq(symlink(self->beside, self->directory), 0);
}

static void make_file(squat *self) {
    cr_assert_eq(rmdir(self->directory), 0);
    FILE *file = fopen(self->directory, "w");
    cr_assert_neq(file, NULL);
    cr_assert_eq(fclose(file), 0);
}

static void make_writable_by_all(squat *self) {
    cr_assert_eq(chmod(self->directory, 0777), 0);
}

static void make_writable_by_group(squat *self) {
    cr_assert_eq(chmod(self->directory, 0720), 0);
}

static void make_readable_by_all(squat *self) {
    cr_assert_eq(chmod(self->directory, 0755), 0);
}

static void make_another_users(squat *self) {
    cr_assert_eq(chown(self->directory, NOBODY, NOBODY), 0);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void squat_file(squat *self) {
    FILE *file = fopen(self->path, "w");
    cr_assert_neq(file, NULL);
    cr_assert_eq(fclose(file), 0);
}

static void squat_link_to_nothing(squat *self) {
    cr_assert_eq(symlink("/nonexistent/socket", self->path), 0);
}

static void squat_pipe(squat *self) {
    cr_assert_eq(mkfifo(self->path, 0600), 0);
}

static void squat_directory(squat *self) {
    cr_assert_eq(mkdir(self->path, 0700), 0);
}

static int bind_at(const char *path, int type, bool listens) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert(!listens || listen(fd, 1) == 0);
    return fd;
}

static void squat_stale_socket(squat *self) {
    close(bind_at(self->path, SOCK_SEQPACKET, true));
}

static void squat_living_socket(squat *self) {
    self->fd = bind_at(self->path, SOCK_SEQPACKET, true);
}

static void squat_stream(squat *self) {
    self->fd = bind_at(self->path, SOCK_STREAM, true);
}

static void squat_datagrams(squat *self) {
    self->fd = bind_at(self->path, SOCK_DGRAM, false);
}

/* Not of who owns the directory. */
static void squat_by_another_user(squat *self) {
    squat_living_socket(self);
    cr_assert_eq(chown(self->path, NOBODY, NOBODY), 0);
}

static void squat_link_to_socket(squat *self) {
    self->fd = bind_at(self->beside, SOCK_SEQPACKET, true);
    cr_assert_eq(symlink(self->beside, self->path), 0);
}

#define UNSAFE(called, how, root)                                                                  \
    {                                                                                              \
        .name = (called), .rule = "SECURITY.md: a directory that others could enter or change",    \
        .make = (how), .listening = GPUIPC_ERR_UNSAFE_DIRECTORY,                                   \
        .connecting = GPUIPC_ERR_UNSAFE_DIRECTORY, .needs_root = (root)                            \
    }
#define NAME(called, how, listens, connects)                                                       \
    {                                                                                              \
        .name = (called), .rule = "gpuipc_listener_open: a name that is taken", .make = (how),     \
        .listening = (listens), .connecting = (connects)                                           \
    }

static const endpoint_case cases[] = {
    UNSAFE("a link in place of the directory", make_link, false),
    UNSAFE("a file in place of the directory", make_file, false),
    UNSAFE("a directory that all may write", make_writable_by_all, false),
    UNSAFE("a directory that its group may write", make_writable_by_group, false),
    UNSAFE("a directory that all may enter", make_readable_by_all, false),
    UNSAFE("a directory of another user's", make_another_users, true),
    NAME("a file under the name", squat_file, GPUIPC_ERR_NAME_IN_USE, GPUIPC_ERR_NOT_FOUND),
    NAME("a link to nothing under the name", squat_link_to_nothing, GPUIPC_ERR_NAME_IN_USE,
         GPUIPC_ERR_NOT_FOUND),
    NAME("a link to a socket under the name", squat_link_to_socket, GPUIPC_ERR_NAME_IN_USE,
         GPUIPC_OK),
    NAME("a pipe under the name", squat_pipe, GPUIPC_ERR_NAME_IN_USE, GPUIPC_ERR_NOT_FOUND),
    NAME("a directory under the name", squat_directory, GPUIPC_ERR_NAME_IN_USE,
         GPUIPC_ERR_NOT_FOUND),
    NAME("a socket that nobody listens at any more", squat_stale_socket, GPUIPC_OK,
         GPUIPC_ERR_NOT_FOUND),
    NAME("a socket that somebody listens at", squat_living_socket, GPUIPC_ERR_NAME_IN_USE,
         GPUIPC_OK),
    NAME("a stream under the name", squat_stream, GPUIPC_ERR_NAME_IN_USE, GPUIPC_ERR_PROTOCOL),
    NAME("a socket of datagrams under the name", squat_datagrams, GPUIPC_ERR_NAME_IN_USE,
         GPUIPC_ERR_PROTOCOL),
    {.name = "a socket that another user owns",
     .rule = "gpuipc_listener_open: a name that is taken",
     .make = squat_by_another_user,
     .listening = GPUIPC_ERR_NAME_IN_USE,
     .connecting =
         GPUIPC_OK, /* it is the process that is asked who it is, and that is of this user */
     .needs_root = true}};

/* ---- rounds ---------------------------------------------------------------------------------- */

static void undo(squat *self) {
    if (self->fd >= 0) {
        close(self->fd);
    }
    (void)(unlink(self->path) == 0 || rmdir(self->path) == 0);
    (void)unlink(self->directory); /* a link or a file */
    runtime_directory_remove(self->directory);
    (void)unlink(self->beside);
    runtime_directory_remove(self->beside);
}

static void expect(const endpoint_case *of, const char *call, gpuipc_status expected,
                   gpuipc_status got) {
    cr_assert_eq(got, expected, "\"%s\" (%s): %s answers %s (%s), not %s", of->name, of->rule, call,
                 gpuipc_status_name(got), got == GPUIPC_OK ? "" : gpuipc_error_get()->sentence,
                 gpuipc_status_name(expected));
}

static void one_round(const endpoint_case *of) {
    squat made = {.fd = -1};
    char directory[RUNTIME_DIRECTORY_MAX];
    gpuipc_context *context = NULL;
    gpuipc_listener *listener = NULL;
    gpuipc_connection *connection = NULL;
    cr_assert(runtime_directory_make(directory));
    (void)snprintf(made.directory, sizeof(made.directory), "%s", directory);
    (void)snprintf(made.path, sizeof(made.path), "%s/name.sock", directory);
    (void)snprintf(made.beside, sizeof(made.beside), "%s-beside", directory);
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = made.directory};
    check_ok(gpuipc_context_create(&config, &context));
    of->make(&made);
    expect(of, "gpuipc_connection_open", of->connecting,
           gpuipc_connection_open(context, "name", NULL, 0, &connection));
    expect(of, "gpuipc_listener_open", of->listening,
           gpuipc_listener_open(context, "name", NULL, &listener));
    check_ok(gpuipc_connection_close(connection));
    check_ok(gpuipc_listener_close(listener));
    check_ok(gpuipc_context_destroy(context));
    undo(&made);
}

static void check_case(hostile_ground *on, const endpoint_case *of) {
    leak_gate gate;
    const uint64_t rounds = form_choose(SHORT_ROUNDS, FULL_ROUNDS);
    leak_gate_begin(&gate);
    for (uint64_t round = 0; round < rounds; round++) {
        honest_is_served(&on->honest, &on->at, on->buffer, &on->honest.before);
        one_round(of);
        honest_is_served(&on->honest, &on->at, on->buffer, &on->honest.beside);
    }
    process_case_settle(&on->at);
    cr_assert_eq(leak_gate_end(&gate), 0, "\"%s\": %s", of->name, gate.text);
}

Test(endpoint, directories_and_names, .timeout = HOSTILE_TEST_S) {
    hostile_ground on;
    hostile_begin(&on);
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (cases[i].needs_root && !system_is_root()) {
            (void)fprintf(stderr, "left out, since only root can make it: %s\n", cases[i].name);
            continue;
        }
        check_case(&on, &cases[i]);
    }
    honest_judge(&on.honest, "endpoints");
    hostile_end_all(&on);
}
