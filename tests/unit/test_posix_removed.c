/* SPDX-License-Identifier: MIT */
/** @file Names in the runtime directory that another program removes while their listener lives, as a logout and cleaners
 *  of old files do. */
#include "core_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ticket/ticket.h"

#define PATH_ROOM (RUNTIME_DIRECTORY_MAX + 64)

typedef struct removed_case {
    char parent[PATH_ROOM]; /* is made again by no call */
    char path[PATH_ROOM];   /* the runtime directory in it */
    gpuipc_context *context;
    gpuipc_server *server;
    gpuipc_buffer *buffer;
    gpuipc_ticket ticket;
} removed_case;

static removed_case at;
static atomic_int warnings;
static char last_warning[512];

static void note_warning(void *user_data, gpuipc_log_level level, const char *sentence) {
    (void)user_data;
    if (level == GPUIPC_LOG_WARNING) {
        (void)snprintf(last_warning, sizeof(last_warning), "%s", sentence);
        atomic_fetch_add(&warnings, 1);
    }
}

static gpuipc_buffer *make_buffer(void) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    gpuipc_buffer *made;
    check_ok(gpuipc_buffer_create(at.context, &config, &made));
    return made;
}

static void start(void) {
    core_start();
    gpuipc_context_config config = core_context_config();
    atomic_store(&warnings, 0);
    (void)snprintf(at.parent, sizeof(at.parent), "%s/parent", core_directory);
    (void)snprintf(at.path, sizeof(at.path), "%.70s/run", at.parent);
    cr_assert_eq(mkdir(at.parent, 0700), 0);
    config.runtime_directory = at.path;
    config.log = note_warning;
    check_ok(gpuipc_context_create(&config, &at.context));
    at.buffer = make_buffer();
}

static void start_server(void) {
    check_ok(gpuipc_server_create(at.context, NULL, &at.server));
    check_ok(gpuipc_buffer_share(at.server, at.buffer, NULL, &at.ticket));
}

static void finish(void) {
    check_ok(gpuipc_buffer_release(at.buffer));
    check_ok(gpuipc_server_destroy(at.server));
    check_ok(gpuipc_context_destroy(at.context));
    (void)rmdir(at.path);
    (void)rmdir(at.parent);
    core_finish();
}

TestSuite(posix_removed, .init = start, .fini = finish, .timeout = 60);

/* @return how many names there were */
static int remove_names(void) {
    int count = 0;
    DIR *all = opendir(at.path);
    cr_assert_not_null(all);
    for (const struct dirent *one = readdir(all); one != NULL; one = readdir(all)) {
        if (one->d_name[0] != '.') {
            cr_assert_eq(unlinkat(dirfd(all), one->d_name, 0), 0);
            count++;
        }
    }
    closedir(all);
    return count;
}

static void remove_directory(void) {
    (void)remove_names();
    cr_assert_eq(rmdir(at.path), 0);
}

static gpuipc_status share_again(void) {
    gpuipc_ticket made;
    return gpuipc_buffer_share(at.server, at.buffer, NULL, &made);
}

static gpuipc_status connect_to(const char *name) {
    gpuipc_connection *connection;
    gpuipc_status status = gpuipc_connection_open(at.context, name, NULL, 0, &connection);
    if (status == GPUIPC_OK) {
        check_ok(gpuipc_connection_close(connection));
    }
    return status;
}

/* As a process that opens a ticket does. */
static gpuipc_status connect_to_server(void) {
    char name[TICKET_ENDPOINT_SIZE];
    ticket decoded;
    check_ok(ticket_decode(&at.ticket, &decoded));
    ticket_endpoint(decoded.server_id, name);
    return connect_to(name);
}

static void await_name(gpuipc_status (*try_once)(void)) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (try_once() != GPUIPC_OK && !os_deadline_passed(deadline)) {
        os_sleep_ms(10);
    }
    check_ok(try_once());
}

/* ---- servers ------------------------------------------------------------------------------------ */

Test(posix_removed, a_server_makes_its_name_again_when_it_shares) {
    start_server();
    check_ok(connect_to_server());
    cr_assert_eq(remove_names(), 1);
    check_ok(share_again());
    check_ok(connect_to_server());
    cr_assert_eq(remove_names(), 1);
}

Test(posix_removed, a_server_makes_its_directory_again_when_it_shares) {
    struct stat found;
    start_server();
    remove_directory();
    check_ok(share_again());
    check_ok(connect_to_server());
    cr_assert_eq(stat(at.path, &found), 0);
    cr_assert_eq(found.st_mode & 07777, 0700);
}

Test(posix_removed, a_server_with_a_thread_makes_its_name_again_by_itself) {
    start_server();
    remove_directory();
    await_name(connect_to_server);
}

/* Without clients a ticket would be of no use to any process. */
Test(posix_removed, a_share_without_a_way_to_the_server_fails_with_the_reason) {
    char moved[PATH_ROOM + 8];
    start_server();
    remove_directory();
    (void)snprintf(moved, sizeof(moved), "%s.gone", at.parent);
    cr_assert_eq(rename(at.parent, moved), 0);
    check_refused(GPUIPC_ERR_NOT_FOUND, "cannot be made", share_again());
    check_refused(GPUIPC_ERR_NOT_FOUND, "another program removed", share_again());
    cr_assert(strstr(gpuipc_error_get()->sentence, at.path) != NULL, "%s",
              gpuipc_error_get()->sentence);
    cr_assert_eq(atomic_load(&warnings), 1);
    cr_assert(strstr(last_warning, "no new client can connect") != NULL, "%s", last_warning);
    cr_assert_eq(rename(moved, at.parent), 0);
    check_ok(share_again());
    check_ok(connect_to_server());
}

/* Tickets reach processes that are connected. */
Test(posix_removed, a_share_for_connected_clients_goes_on) {
    char name[TICKET_ENDPOINT_SIZE];
    char moved[PATH_ROOM + 8];
    ticket decoded;
    gpuipc_connection *client;
    start_server();
    check_ok(ticket_decode(&at.ticket, &decoded));
    ticket_endpoint(decoded.server_id, name);
    check_ok(gpuipc_connection_open(at.context, name, NULL, 0, &client));
    remove_directory();
    (void)snprintf(moved, sizeof(moved), "%s.gone", at.parent);
    cr_assert_eq(rename(at.parent, moved), 0);
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (share_again() != GPUIPC_OK && !os_deadline_passed(deadline)) {
        os_sleep_ms(1); /* the server has not let the client in yet */
    }
    check_ok(share_again());
    cr_assert_eq(atomic_load(&warnings), 1);
    check_ok(gpuipc_connection_close(client));
    cr_assert_eq(rename(moved, at.parent), 0);
}

Test(posix_removed, a_directory_that_is_unsafe_by_now_is_not_used) {
    char moved[PATH_ROOM + 8];
    start_server();
    remove_directory();
    cr_assert_eq(mkdir(at.path, 0700), 0);
    cr_assert_eq(chmod(at.path, 0777), 0);
    check_refused(GPUIPC_ERR_NOT_FOUND, "mode 0777", share_again());
    cr_assert_eq(chmod(at.path, 0700), 0);
    (void)snprintf(moved, sizeof(moved), "%s.moved", at.path);
    cr_assert_eq(rename(at.path, moved), 0);
    cr_assert_eq(symlink(moved, at.path), 0);
    check_refused(GPUIPC_ERR_NOT_FOUND, "symbolic link", share_again());
    cr_assert_eq(unlink(at.path), 0);
    cr_assert_eq(rename(moved, at.path), 0);
    check_ok(share_again());
    check_ok(connect_to_server());
}

static int count_descriptors(void) {
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    cr_assert_not_null(all);
    while (readdir(all) != NULL) {
        count++;
    }
    closedir(all);
    return count;
}

Test(posix_removed, a_name_made_again_leaves_nothing_behind) {
    start_server();
    const int before = count_descriptors();
    for (int i = 0; i < 20; i++) {
        remove_directory();
        check_ok(share_again());
    }
    cr_assert_leq(count_descriptors(), before);
    check_ok(gpuipc_server_destroy(at.server));
    at.server = NULL;
    cr_assert_eq(remove_names(), 0);
}

/* By --wrap. */
int __real_dup3(int from, int to, int flags);
int __wrap_dup3(int from, int to, int flags);
static atomic_int dup3_failures; /* of the next calls */

int __wrap_dup3(int from, int to, int flags) {
    if (atomic_load(&dup3_failures) > 0) {
        atomic_fetch_sub(&dup3_failures, 1);
        errno = EMFILE;
        return -1;
    }
    return __real_dup3(from, to, flags);
}

Test(posix_removed, a_socket_that_cannot_be_exchanged_leaves_no_name_and_no_descriptor) {
    start_server();
    const int before = count_descriptors();
    remove_directory();
    atomic_store(&dup3_failures, INT_MAX);
    check_status(GPUIPC_ERR_TOO_MANY_HANDLES, share_again());
    cr_assert_leq(count_descriptors(), before);
    cr_assert_eq(remove_names(), 0);
    atomic_store(&dup3_failures, 0);
    check_ok(share_again());
    check_ok(connect_to_server());
}

/* As another process of a shared directory can. Less than a listener waits for it when it is opened (2 s). */
#define NOT_LOCKED_MS 1500u

static int lock_directory(void) {
    const int directory = open(at.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_geq(directory, 0);
    cr_assert_eq(flock(directory, LOCK_EX), 0);
    return directory;
}

static uint64_t milliseconds_since(uint64_t begun_ns) {
    return (os_clock_ns() - begun_ns) / 1000000u;
}

Test(posix_removed, a_locked_directory_does_not_keep_a_server_waiting) {
    const gpuipc_server_config polled = {.struct_size = sizeof(polled)};
    check_ok(gpuipc_server_create(at.context, &polled, &at.server));
    cr_assert_eq(remove_names(), 1);
    const int locked = lock_directory();
    const uint64_t begun_ns = os_clock_ns();
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_server_poll(at.server, 1100));
    cr_assert_lt(milliseconds_since(begun_ns), 1100 + NOT_LOCKED_MS);
    cr_assert(strstr(last_warning, "kept the runtime directory locked") != NULL, "%s",
              last_warning);
    close(locked);
}

/* Its timeout holds also where the name is to be made again. */
Test(posix_removed, a_locked_directory_does_not_keep_a_listener_waiting) {
    gpuipc_listener *listener;
    gpuipc_connection *accepted = NULL;
    check_ok(gpuipc_listener_open(at.context, "name", NULL, &listener));
    cr_assert_eq(remove_names(), 1);
    const int locked = lock_directory();
    const uint64_t begun_ns = os_clock_ns();
    check_refused(GPUIPC_ERR_NOT_FOUND, "kept the runtime directory locked",
                  gpuipc_listener_accept(listener, 0, &accepted));
    cr_assert_lt(milliseconds_since(begun_ns), NOT_LOCKED_MS);
    close(locked);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 0, &accepted));
    check_ok(gpuipc_listener_close(listener));
    cr_assert_eq(remove_names(), 0);
}

/* ---- channels ----------------------------------------------------------------------------------- */

static gpuipc_status make_channel(const char *name, gpuipc_channel **out_channel) {
    gpuipc_ticket unused;
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = at.buffer,
                                          .slots = 2,
                                          .slot_bytes = 4096,
                                          .name = name};
    return gpuipc_channel_create(at.server, &config, out_channel, &unused);
}

static gpuipc_status connect_to_channel(void) {
    return connect_to("channel-frames");
}

Test(posix_removed, a_channels_name_is_made_again_with_its_servers) {
    gpuipc_channel *channel;
    start_server();
    check_ok(make_channel("frames", &channel));
    remove_directory();
    check_ok(share_again());
    check_ok(connect_to_server());
    check_ok(connect_to_channel());
    check_ok(gpuipc_channel_destroy(channel));
    check_status(GPUIPC_ERR_NOT_FOUND, connect_to_channel());
    check_ok(connect_to_server());
}

Test(posix_removed, a_channels_name_alone_is_made_again) {
    char path[PATH_ROOM + 32];
    gpuipc_channel *channel;
    start_server();
    check_ok(make_channel("frames", &channel));
    (void)snprintf(path, sizeof(path), "%s/channel-frames.sock", at.path);
    cr_assert_eq(unlink(path), 0);
    check_status(GPUIPC_ERR_NOT_FOUND, connect_to_channel());
    check_ok(share_again());
    check_ok(connect_to_channel());
    cr_assert_eq(unlink(path), 0);
    await_name(connect_to_channel);
    check_ok(gpuipc_channel_destroy(channel));
}

Test(posix_removed, a_channels_name_that_another_has_taken_stays_that_ones) {
    gpuipc_channel *channel;
    gpuipc_listener *other;
    gpuipc_connection *client;
    gpuipc_connection *taken;
    start_server();
    check_ok(make_channel("frames", &channel));
    (void)remove_names();
    check_ok(gpuipc_listener_open(at.context, "channel-frames", NULL, &other));
    check_ok(share_again());
    check_ok(connect_to_server());
    check_ok(gpuipc_channel_destroy(channel));
    check_ok(gpuipc_connection_open(at.context, "channel-frames", NULL, SOON_MS, &client));
    check_ok(gpuipc_listener_accept(other, SOON_MS, &taken));
    check_ok(gpuipc_connection_close(client));
    check_ok(gpuipc_connection_close(taken));
    check_ok(gpuipc_listener_close(other));
}

Test(posix_removed, a_channel_is_made_where_the_servers_name_was_removed) {
    gpuipc_channel *channel;
    start_server();
    cr_assert_eq(remove_names(), 1);
    check_ok(make_channel("frames", &channel));
    check_ok(connect_to_channel());
    check_ok(connect_to_server());
    check_ok(gpuipc_channel_destroy(channel));
}

Test(posix_removed, a_channel_without_a_way_to_its_server_fails_with_the_reason) {
    gpuipc_channel *channel = NULL;
    start_server();
    remove_directory();
    cr_assert_eq(rmdir(at.parent), 0);
    check_refused(GPUIPC_ERR_NOT_FOUND, "another program removed", make_channel(NULL, &channel));
    check_refused(GPUIPC_ERR_NOT_FOUND, "another program removed",
                  make_channel("frames", &channel));
    cr_assert_null(channel);
}

Test(posix_removed, a_channels_name_is_not_made_in_an_unsafe_directory) {
    char moved[PATH_ROOM + 8];
    gpuipc_channel *channel = NULL;
    start_server();
    cr_assert_eq(chmod(at.path, 0777), 0);
    check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, "mode 0777", make_channel("frames", &channel));
    cr_assert_eq(chmod(at.path, 0700), 0);
    (void)snprintf(moved, sizeof(moved), "%s.moved", at.path);
    cr_assert_eq(rename(at.path, moved), 0);
    cr_assert_eq(symlink(moved, at.path), 0);
    check_refused(GPUIPC_ERR_UNSAFE_DIRECTORY, "symbolic link", make_channel("frames", &channel));
    cr_assert_null(channel);
    cr_assert_eq(unlink(at.path), 0);
    cr_assert_eq(rename(moved, at.path), 0);
    check_ok(make_channel("frames", &channel));
    check_ok(gpuipc_channel_destroy(channel));
}

/* By --wrap. */
int __real_linkat(int from, const char *name, int to, const char *second, int flags);
int __wrap_linkat(int from, const char *name, int to, const char *second, int flags);
static atomic_int linkat_failures; /* of the next calls */

int __wrap_linkat(int from, const char *name, int to, const char *second, int flags) {
    if (atomic_load(&linkat_failures) > 0) {
        atomic_fetch_sub(&linkat_failures, 1);
        errno = ENOSPC;
        return -1;
    }
    return __real_linkat(from, name, to, second, flags);
}

Test(posix_removed, a_channels_name_that_could_not_be_made_is_tried_again) {
    gpuipc_channel *channel;
    start_server();
    check_ok(make_channel("frames", &channel));
    (void)remove_names();
    atomic_store(&linkat_failures, 1);
    check_ok(share_again());
    check_ok(share_again());
    check_ok(connect_to_channel());
    check_ok(gpuipc_channel_destroy(channel));
    check_status(GPUIPC_ERR_NOT_FOUND, connect_to_channel());
}

/* ---- listeners ---------------------------------------------------------------------------------- */

typedef struct acceptor {
    gpuipc_listener *listener;
    gpuipc_connection *accepted;
} acceptor;

static gpuipc_status accept_call(void *argument) {
    acceptor *self = argument;
    return gpuipc_listener_accept(self->listener, -1, &self->accepted);
}

Test(posix_removed, a_listener_that_waits_makes_its_name_again) {
    acceptor self = {NULL, NULL};
    core_waiter waiter;
    gpuipc_connection *client;
    check_ok(gpuipc_listener_open(at.context, "name", NULL, &self.listener));
    core_waiter_start(&waiter, accept_call, &self);
    remove_directory();
    check_ok(gpuipc_connection_open(at.context, "name", NULL, SOON_MS, &client));
    check_ok(core_waiter_end(&waiter));
    check_ok(gpuipc_connection_close(self.accepted));
    check_ok(gpuipc_connection_close(client));
    check_ok(gpuipc_listener_close(self.listener));
    cr_assert_eq(remove_names(), 0);
}

Test(posix_removed, a_listener_without_its_directory_says_so_when_the_time_is_over) {
    gpuipc_listener *listener;
    gpuipc_connection *accepted = NULL;
    check_ok(gpuipc_listener_open(at.context, "name", NULL, &listener));
    remove_directory();
    cr_assert_eq(rmdir(at.parent), 0);
    check_refused(GPUIPC_ERR_NOT_FOUND, "another program removed",
                  gpuipc_listener_accept(listener, 50, &accepted));
    cr_assert_eq(mkdir(at.parent, 0700), 0);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 0, &accepted));
    check_ok(gpuipc_listener_close(listener));
    cr_assert_eq(remove_names(), 0);
}

/* The cause may pass between two tries of one call. */
Test(posix_removed, a_listener_that_makes_its_name_at_the_second_try_has_no_connection_yet) {
    gpuipc_listener *listener;
    gpuipc_connection *accepted = NULL;
    check_ok(gpuipc_listener_open(at.context, "name", NULL, &listener));
    cr_assert_eq(remove_names(), 1);
    atomic_store(&dup3_failures, 1);
    check_status(GPUIPC_ERR_TOO_MANY_HANDLES, gpuipc_listener_accept(listener, 0, &accepted));
    check_refused(GPUIPC_ERR_TIMEOUT, "no client connected",
                  gpuipc_listener_accept(listener, 0, &accepted));
    cr_assert_null(accepted);
    check_ok(gpuipc_listener_close(listener));
    cr_assert_eq(remove_names(), 0);
}

/* A client that came before is not lost, and the event loop is told of those that come afterwards. */
Test(posix_removed, a_listener_keeps_earlier_clients_and_its_wait_handle) {
    gpuipc_listener *listener;
    gpuipc_connection *early;
    gpuipc_connection *late;
    gpuipc_connection *accepted;
    intptr_t handle;
    check_ok(gpuipc_listener_open(at.context, "name", NULL, &listener));
    check_ok(gpuipc_listener_get_wait_handle(listener, &handle));
    check_ok(gpuipc_connection_open(at.context, "name", NULL, SOON_MS, &early));
    remove_directory();
    check_ok(gpuipc_listener_accept(listener, 0, &accepted));
    check_ok(core_send(early, NULL, 0));
    check_ok(core_receive(accepted, NULL, 0));
    check_ok(gpuipc_connection_close(accepted));
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 0, &accepted));
    struct pollfd waited = {.fd = (int)handle, .events = POLLIN};
    cr_assert_eq(poll(&waited, 1, 0), 0);
    check_ok(gpuipc_connection_open(at.context, "name", NULL, 0, &late));
    cr_assert_eq(poll(&waited, 1, SOON_MS), 1);
    check_ok(gpuipc_listener_accept(listener, 0, &accepted));
    check_ok(gpuipc_connection_close(accepted));
    check_ok(gpuipc_connection_close(early));
    check_ok(gpuipc_connection_close(late));
    check_ok(gpuipc_listener_close(listener));
}

/* @return a child with a copy of each descriptor, which dies with this process. No handler of fork(2) runs, so that the
 * library does not close them. */
static pid_t keep_copies(void) {
    const pid_t parent = getpid();
    const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent) {
            pause();
        }
        _exit(0);
    }
    cr_assert_gt(child, 0);
    return child;
}

/* The former socket lives on in the child. */
Test(posix_removed, a_wait_handle_is_quiet_while_a_child_has_the_former_socket) {
    gpuipc_listener *listener;
    gpuipc_connection *client;
    gpuipc_connection *accepted;
    intptr_t handle;
    int state;
    check_ok(gpuipc_listener_open(at.context, "name", NULL, &listener));
    check_ok(gpuipc_listener_get_wait_handle(listener, &handle));
    const pid_t child = keep_copies();
    cr_assert_eq(remove_names(), 1);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 0, &accepted));
    struct pollfd waited = {.fd = (int)handle, .events = POLLIN};
    cr_assert_eq(poll(&waited, 1, 0), 0);
    check_ok(gpuipc_connection_open(at.context, "name", NULL, 0, &client));
    cr_assert_eq(poll(&waited, 1, SOON_MS), 1);
    check_ok(gpuipc_listener_accept(listener, 0, &accepted));
    cr_assert_eq(kill(child, SIGKILL), 0);
    cr_assert_eq(waitpid(child, &state, 0), child);
    check_ok(gpuipc_connection_close(accepted));
    check_ok(gpuipc_connection_close(client));
    check_ok(gpuipc_listener_close(listener));
}

/* The listener is as before: it waits for clients of the socket that it has. */
Test(posix_removed, a_wait_handle_works_after_an_exchange_that_failed) {
    gpuipc_listener *listener;
    gpuipc_connection *early;
    gpuipc_connection *accepted;
    intptr_t handle;
    check_ok(gpuipc_listener_open(at.context, "name", NULL, &listener));
    check_ok(gpuipc_listener_get_wait_handle(listener, &handle));
    char path[PATH_ROOM + 16];
    char kept[PATH_ROOM + 16];
    (void)snprintf(path, sizeof(path), "%s/name.sock", at.path);
    (void)snprintf(kept, sizeof(kept), "%s/kept.sock", at.path);
    cr_assert_eq(rename(path, kept), 0);
    atomic_store(&dup3_failures, 1);
    check_status(GPUIPC_ERR_TOO_MANY_HANDLES, gpuipc_listener_accept(listener, 0, &accepted));
    check_ok(gpuipc_connection_open(at.context, "kept", NULL, 0, &early));
    struct pollfd waited = {.fd = (int)handle, .events = POLLIN};
    cr_assert_eq(poll(&waited, 1, SOON_MS), 1);
    check_ok(gpuipc_listener_accept(listener, 0, &accepted));
    check_ok(gpuipc_connection_close(accepted));
    check_ok(gpuipc_connection_close(early));
    check_ok(gpuipc_listener_close(listener));
    (void)remove_names();
}
