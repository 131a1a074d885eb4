/* SPDX-License-Identifier: MIT */
/** @file Roles in which the process reaches its limit of descriptors. */
#include "posix_helper.h"

#include <dirent.h>
#include <fcntl.h>
#include <gpuipc/gpuipc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "helper.h"
#include "os.h"
#include "posix_filter.h"

/** From now on this process can open @p room descriptors more. A number is free when nothing is
 *  behind it; some that were inherited may lie higher than others that are free. */
static bool limit_lower(unsigned room) {
    struct rlimit limit;
    rlim_t number = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return false;
    }
    for (unsigned free_below = 0; number < limit.rlim_cur; number++) {
        free_below += fcntl((int)number, F_GETFD) < 0;
        if (free_below > room) {
            break;
        }
    }
    limit.rlim_cur = number;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static bool limit_raise(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return false;
    }
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static int open_count(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory != NULL && readdir(directory) != NULL) {
        count++;
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return count;
}

/** The same where opendir() has no descriptor: those below the hard limit that something is behind. */
static int open_count_at_limit(void) {
    enum {
        NUMBERS = 1024
    };
    int count = 0;
    for (int number = 0; number < NUMBERS; number++) {
        count += fcntl(number, F_GETFD) >= 0;
    }
    return count;
}

static void say_received(os_connection *connection) {
    char bytes[16];
    size_t size = 0;
    size_t count = 0;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    gpuipc_status status = os_connection_receive(connection, bytes, sizeof(bytes), &size, handles,
                                                 &count, os_deadline_after(20000));
    helper_say("%s %zu", gpuipc_status_name(status), count);
    for (size_t i = 0; i < count; i++) {
        os_handle_close(&handles[i]);
    }
}

/** limit-receive DIRECTORY NAME: "receive N": receives with room for N descriptors and says how it
 *  went and how many were left open by that; "end". */
int role_limit_receive(char **arguments) {
    os_directory directory = {arguments[0], false};
    os_connection *connection;
    gpuipc_status status =
        os_connection_open(&directory, arguments[1], os_deadline_after(20000), &connection);
    helper_say_status(status);
    if (status != GPUIPC_OK) {
        return 1;
    }
    char line[64];
    while (helper_hear(line, sizeof(line)) && line[0] == 'r') {
        int before = open_count();
        if (!limit_lower((unsigned)strtoul(line + sizeof("receive"), NULL, 10))) {
            return 1;
        }
        say_received(connection);
        if (!limit_raise()) {
            return 1;
        }
        helper_say("left %d", open_count() - before);
    }
    os_connection_destroy(connection);
    return 0;
}

/** seccomp(2): a descriptor can always be duplicated, or so it seems: fcntl(F_DUPFD_CLOEXEC) answers
 *  0 and does nothing. Our receive finds with it whether the process is at its limit. */
static bool duplicates_pretend(void) {
    struct sock_filter filter[] = {
        LOAD(offsetof(struct seccomp_data, nr)),
        UNLESS(SYS_fcntl, 3),
        LOAD(ARGUMENT(1)),
        UNLESS(F_DUPFD_CLOEXEC, 1),
        ANSWER(0),
        ALLOW,
    };
    return posix_filter_install(filter, sizeof(filter) / sizeof(filter[0]));
}

/** limit-cut DIRECTORY NAME: receives a list that is cut, and not by the limit as far as can be
 *  seen: as when a security module refuses a descriptor. */
int role_limit_cut(char **arguments) {
    os_directory directory = {arguments[0], false};
    os_connection *connection;
    gpuipc_status status =
        os_connection_open(&directory, arguments[1], os_deadline_after(20000), &connection);
    helper_say_status(status);
    if (status != GPUIPC_OK) {
        return 1;
    }
    helper_await("receive");
    int before = open_count() - 1; /* what the pretended duplicate closes is our input */
    if (!limit_lower(3)) {
        return 1;
    }
    if (!duplicates_pretend()) {
        helper_say("no seccomp");
        return 0;
    }
    say_received(connection);
    if (!limit_raise()) {
        return 1;
    }
    helper_say("left %d", open_count() - before);
    os_connection_destroy(connection);
    return 0;
}

static long processor_ms(void) {
    return (long)(clock() / (CLOCKS_PER_SEC / 1000));
}

/** limit-accept DIRECTORY NAME: accepts with no descriptor left, then with enough. */
int role_limit_accept(char **arguments) {
    enum {
        WAIT_MS = 500
    };
    os_directory directory = {arguments[0], false};
    os_listener *listener;
    os_connection *connection;
    gpuipc_status status = os_listener_open(&directory, arguments[1], NULL, &listener);
    helper_say_status(status);
    if (status != GPUIPC_OK) {
        return 1;
    }
    helper_await("accept");
    if (!limit_lower(0)) {
        return 1;
    }
    long before = processor_ms();
    uint64_t start = os_clock_ns();
    status = os_listener_accept(listener, os_deadline_after(WAIT_MS), &connection);
    bool waited = os_clock_ns() - start >= WAIT_MS * UINT64_C(1000000);
    long used = processor_ms() - before;
    if (!limit_raise()) {
        return 1;
    }
    helper_say("%s", gpuipc_status_name(status));
    /* A loop that spins uses all of the time; tries 20 ms apart use next to nothing. */
    helper_say("%s, %s", waited ? "waited" : "gave up early", used < WAIT_MS / 2 ? "idle" : "busy");
    status = os_listener_accept(listener, os_deadline_after(20000), &connection);
    helper_say_status(status);
    if (status == GPUIPC_OK) {
        os_connection_destroy(connection);
    }
    os_listener_destroy(listener);
    return 0;
}

/** One client at the limit: told of, not accepted, refused, and not told of any more. */
static void say_refused(os_poller *poller, os_listener *listener) {
    void *tag = NULL;
    size_t before = 0;
    size_t after = 0;
    os_connection *connection;
    gpuipc_status status = os_poller_wait(poller, os_deadline_after(20000), &tag, 1, &before);
    gpuipc_status accepted = os_listener_accept(listener, os_deadline_after(0), &connection);
    os_listener_refuse(listener);
    status = status ? status : os_poller_wait(poller, os_deadline_after(0), &tag, 1, &after);
    helper_say("%s %zu %s %zu", gpuipc_status_name(status), before, gpuipc_status_name(accepted),
               after);
}

/** limit-refuse DIRECTORY NAME: "refuse": refuses a client with no descriptor left; the end of the input:
 *  accepts one with enough. */
int role_limit_refuse(char **arguments) {
    os_directory directory = {arguments[0], false};
    os_listener *listener;
    os_poller *poller;
    os_connection *connection;
    char line[64];
    gpuipc_status status = os_listener_open(&directory, arguments[1], NULL, &listener);
    status = status ? status : os_poller_create(&poller);
    status = status ? status : os_poller_add_listener(poller, listener, listener);
    helper_say_status(status);
    if (status != GPUIPC_OK || !limit_lower(0)) {
        return 1;
    }
    int before = open_count_at_limit();
    while (helper_hear(line, sizeof(line))) {
        say_refused(poller, listener);
    }
    if (!limit_raise()) {
        return 1;
    }
    helper_say("left %d", open_count_at_limit() - before);
    status = os_listener_accept(listener, os_deadline_after(20000), &connection);
    helper_say_status(status);
    if (status == GPUIPC_OK) {
        os_connection_destroy(connection);
    }
    os_listener_destroy(listener);
    os_poller_destroy(poller);
    return 0;
}

/** limit-peer DIRECTORY NAME: accepts with just one descriptor left, which the connection takes, and
 *  says whether the peer is known to run. */
int role_limit_peer(char **arguments) {
    const gpuipc_context_config config = {
        .struct_size = sizeof(config), .driver = "emulated", .runtime_directory = arguments[0]};
    gpuipc_peer_info peer = {.struct_size = sizeof(peer)};
    gpuipc_context *context = NULL;
    gpuipc_listener *listener = NULL;
    gpuipc_connection *connection = NULL;
    gpuipc_status status = gpuipc_context_create(&config, &context);
    status = status ? status : gpuipc_listener_open(context, arguments[1], NULL, &listener);
    helper_say_status(status);
    if (status != GPUIPC_OK) {
        return 1;
    }
    helper_await("accept");
    if (!limit_lower(1)) {
        return 1;
    }
    status = gpuipc_listener_accept(listener, 20000, &connection);
    if (!limit_raise()) {
        return 1;
    }
    helper_say_status(status);
    if (status == GPUIPC_OK) {
        status = gpuipc_connection_get_peer(connection, &peer);
        helper_say("%s %llu %d %d", gpuipc_status_name(status), (unsigned long long)peer.process_id,
                   peer.same_user, peer.is_running);
    }
    (void)gpuipc_connection_close(connection);
    (void)gpuipc_listener_close(listener);
    return gpuipc_context_destroy(context) == GPUIPC_OK ? 0 : 1;
}

/** limit-make DIRECTORY NAME: everything that makes a handle, with no descriptor left. */
int role_limit_make(char **arguments) {
    os_directory directory = {arguments[0], false};
    os_handle first;
    os_handle second;
    os_listener *listener;
    os_connection *connection;
    os_poller *poller;
    if (os_memory_create("first", 4096, &first) != GPUIPC_OK || !limit_lower(0)) {
        return 1;
    }
    static const uint8_t none[16];
    uint8_t id[16] = {1};
    os_boot_id(id);
    bool is_unknown = memcmp(id, none, sizeof(id)) == 0;
    gpuipc_status answers[] = {
        os_memory_create("no", 4096, &second),
        os_handle_duplicate(first, &second),
        os_handle_duplicate_native(STDIN_FILENO, &second),
        os_listener_open(&directory, arguments[1], NULL, &listener),
        os_connection_open(&directory, arguments[1], os_deadline_after(0), &connection),
        os_poller_create(&poller),
    };
    /* Room for the socket, none for the directory or the spare one; for the epoll, none for what wakes. */
    if (!limit_raise() || !limit_lower(1)) {
        return 1;
    }
    gpuipc_status listening = os_listener_open(&directory, arguments[1], NULL, &listener);
    gpuipc_status connecting =
        os_connection_open(&directory, arguments[1], os_deadline_after(0), &connection);
    gpuipc_status polling = os_poller_create(&poller);
    /* Room for both sockets of a listener. */
    if (!limit_raise() || !limit_lower(2)) {
        return 1;
    }
    gpuipc_status publishing = os_listener_open(&directory, arguments[1], NULL, &listener);
    if (!limit_raise()) {
        return 1;
    }
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        helper_say("%s", gpuipc_status_name(answers[i]));
    }
    helper_say("%s", gpuipc_status_name(listening));
    helper_say("%s", gpuipc_status_name(connecting));
    helper_say("%s", gpuipc_status_name(polling));
    helper_say("%s", gpuipc_status_name(publishing));
    helper_say("boot id %s", is_unknown ? "unknown" : "known");
    os_handle_close(&first);
    return 0;
}

/** Sends handles in packets until the system or the socket takes no more. */
static gpuipc_status send_until_refused(os_connection *connection, os_handle handle) {
    os_handle handles[16];
    for (size_t i = 0; i < 16; i++) {
        handles[i] = handle;
    }
    for (int i = 0; i < 1000; i++) {
        gpuipc_status status =
            os_connection_send(connection, "x", 1, handles, 16, os_deadline_after(0));
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    return GPUIPC_OK;
}

/** in-flight: an ordinary user with a limit of 64 descriptors sends and nobody receives. */
int role_in_flight(char **arguments) {
    (void)arguments;
    struct rlimit limit = {64, 64};
    char path[] = "/tmp/gpuipc-test-XXXXXX";
    if ((geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) || mkdtemp(path) == NULL ||
        setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 1;
    }
    helper_begin();
    os_directory directory = {path, false};
    os_listener *listener = NULL;
    os_connection *client = NULL;
    os_connection *server = NULL;
    os_handle handle = OS_HANDLE_NONE;
    gpuipc_status status = os_listener_open(&directory, "flight", NULL, &listener);
    status = status ? status
                    : os_connection_open(&directory, "flight", os_deadline_after(20000), &client);
    status = status ? status : os_listener_accept(listener, os_deadline_after(20000), &server);
    status = status ? status : os_memory_create("flight", 4096, &handle);
    helper_say_status(status);
    if (status == GPUIPC_OK) {
        helper_say("%s", gpuipc_status_name(send_until_refused(client, handle)));
        say_received(server); /* makes room, so that the next is taken: nothing is broken */
        helper_say("%s", gpuipc_status_name(os_connection_send(client, "x", 1, &handle, 1,
                                                               os_deadline_after(20000))));
        os_handle_close(&handle);
        os_connection_destroy(server);
        os_connection_destroy(client);
    }
    if (listener != NULL) {
        os_listener_destroy(listener);
    }
    rmdir(path);
    return 0;
}
