/* SPDX-License-Identifier: MIT */
/** @file Entries of @errors that want a limit of descriptors (getrlimit(2), RLIMIT_NOFILE), a directory that others may enter,
 *  or a socket of another program. See test_errors.c. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core_fixture.h"
#include "ticket_check.h"

TestSuite(posix_errors, .init = core_start, .fini = core_finish, .timeout = 60);

/* ---- no descriptor left ------------------------------------------------------------------------ */

static struct rlimit before;

static void open_no_more(void) {
    int first_free = 0;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    while (fcntl(first_free, F_GETFD) >= 0) {
        first_free++;
    }
    const struct rlimit none = {.rlim_cur = (rlim_t)first_free, .rlim_max = before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
}

static void open_again(void) {
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
}

Test(posix_errors, what_makes_a_descriptor_names_the_limit) {
    intptr_t handle = -1;
    gpuipc_native_dmabuf dmabuf = GPUIPC_NATIVE_DMABUF_INIT;
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    open_no_more();
    check_status(GPUIPC_ERR_TOO_MANY_HANDLES,
                 gpuipc_listener_get_wait_handle(pair.listener, &handle));
    check_status(GPUIPC_ERR_TOO_MANY_HANDLES,
                 gpuipc_connection_get_wait_handle(pair.client, &handle));
    check_status(GPUIPC_ERR_TOO_MANY_HANDLES, gpuipc_buffer_get_returns_wait_handle(own, &handle));
    check_status(GPUIPC_ERR_TOO_MANY_HANDLES,
                 gpuipc_native_export_dmabuf(own, 0, core_unit, &dmabuf));
    open_again();
    cr_assert_eq(handle, -1);
    check_ok(gpuipc_connection_get_wait_handle(pair.client, &handle)); /* nothing has broken */
    core_pair_close(&pair);
    check_ok(gpuipc_buffer_release(own));
}

/* ---- runtime directories ----------------------------------------------------------------------- */

/* As of another server of this user on this machine. */
static gpuipc_ticket of_another_server(void) {
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    gpuipc_server *server;
    gpuipc_ticket made;
    check_ok(gpuipc_server_create(core_context, NULL, &server));
    check_ok(gpuipc_buffer_share(server, own, NULL, &made));
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(own));
    made.bytes[20]++; /* of the server's number */
    return ticket_with_check(made);
}

Test(posix_errors, a_directory_that_others_may_enter) {
    const gpuipc_ticket elsewhere = of_another_server();
    gpuipc_server *server = NULL;
    gpuipc_buffer *opened = NULL;
    gpuipc_subscription *reader = NULL;
    cr_assert_eq(chmod(core_directory, 0755), 0);
    check_status(GPUIPC_ERR_UNSAFE_DIRECTORY, gpuipc_server_create(core_context, NULL, &server));
    check_status(GPUIPC_ERR_UNSAFE_DIRECTORY,
                 gpuipc_buffer_open(core_context, &elsewhere, NULL, &opened));
    check_status(GPUIPC_ERR_UNSAFE_DIRECTORY,
                 gpuipc_subscription_open(core_context, &elsewhere, NULL, &reader));
    check_status(GPUIPC_ERR_UNSAFE_DIRECTORY,
                 gpuipc_subscription_open_named(core_context, "name", NULL, &reader));
    cr_assert(server == NULL && opened == NULL && reader == NULL);
    cr_assert_eq(chmod(core_directory, 0700), 0);
}

Test(posix_errors, a_directory_that_this_user_may_not_enter) {
    gpuipc_server *server = NULL;
    if (geteuid() != 0) {
        cr_skip_test("only root can become another user");
    }
    cr_assert_eq(seteuid(65534), 0);
    const gpuipc_status status = gpuipc_server_create(core_context, NULL, &server);
    cr_assert_eq(seteuid(0), 0);
    check_status(GPUIPC_ERR_ACCESS_DENIED, status);
    cr_assert_null(server);
}

/* man 7 unix: 108 characters, with the end. */
Test(posix_errors, a_directory_with_a_path_too_long_for_a_socket) {
    char path[RUNTIME_DIRECTORY_MAX + 120];
    gpuipc_context_config config = core_context_config();
    gpuipc_context *context;
    gpuipc_server *server = NULL;
    const int length = snprintf(path, sizeof(path), "%s/", core_directory);
    memset(path + length, 'd', 100);
    path[length + 100] = '\0';
    config.runtime_directory = path;
    cr_assert_eq(mkdir(path, 0700), 0);
    check_ok(gpuipc_context_create(&config, &context));
    check_status(GPUIPC_ERR_NAME_TOO_LONG, gpuipc_server_create(context, NULL, &server));
    cr_assert_null(server);
    check_ok(gpuipc_context_destroy(context));
    cr_assert_eq(rmdir(path), 0);
}

Test(posix_errors, a_directory_that_another_process_keeps_locked) {
    gpuipc_listener *listener = NULL;
    gpuipc_server *server;
    gpuipc_server *another = NULL;
    gpuipc_channel *channel = NULL;
    gpuipc_ticket of;
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = core_buffer(core_unit, 0),
                                          .slots = 1,
                                          .slot_bytes = 4096,
                                          .name = "name"};
    check_ok(gpuipc_server_create(core_context, NULL, &server));
    const int lock = open(core_directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_eq(flock(lock, LOCK_EX), 0);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_open(core_context, "name", NULL, &listener));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_server_create(core_context, NULL, &another));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_channel_create(server, &config, &channel, &of));
    cr_assert(listener == NULL && another == NULL && channel == NULL);
    close(lock);
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(config.buffer));
}

Test(posix_errors, a_name_that_is_another_programs) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    gpuipc_connection *made = NULL;
    const int another = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_lt(
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/name.sock", core_directory),
        (int)sizeof(address.sun_path));
    cr_assert_eq(bind(another, (const struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(listen(another, 1), 0);
    check_status(GPUIPC_ERR_PROTOCOL, gpuipc_connection_open(core_context, "name", NULL, 0, &made));
    cr_assert_null(made);
    close(another);
    cr_assert_eq(unlink(address.sun_path), 0);
}
