/* SPDX-License-Identifier: MIT */
/** @file Who a peer is: it becomes another user or another program after it has connected, or its number is given to another
 *  process; and one user who takes all places that he may have at a server leaves the other half. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "hostile.h"
#include "os.h"
#include "posix_raw_socket.h"
#include "posix_system.h"
#include "ticket/ticket.h"

#define OTHER_USER 65534u /* "nobody", and its group; no such account is needed */
#define PLACES     8u     /* of one user, at a server that has twice as many */
/* The kernel counts on from the number that is written: somebody else may be faster. */
#define TRIES 50

TestSuite(users, .timeout = HOSTILE_TEST_S);

static int is_running(gpuipc_connection *connection, uint64_t *out_process) {
    gpuipc_peer_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_connection_get_peer(connection, &info));
    cr_assert_eq(info.same_user, 1);
    *out_process = info.process_id;
    return info.is_running;
}

/* Who it was when it connected is what counts: socket(7), SO_PEERCRED. */
Test(users, it_becomes_another_user_after_it_has_connected) {
    process_case at;
    partner other;
    uint64_t number = 0;
    if (!system_is_root()) {
        cr_skip_test("only root can become another user");
    }
    process_case_begin(&at, NULL);
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "create 1 4096 0 0");
    partner_do(&other, "GPUIPC_OK", "half %s", at.name);
    gpuipc_connection *connection = process_case_accept(&at);
    partner_do(&other, "GPUIPC_OK", "user %u", OTHER_USER);
    cr_assert_eq(is_running(connection, &number), 1);
    cr_assert_eq(number, child_process_id(other.process));
    size_t count = 0;
    check_status(GPUIPC_ERR_TIMEOUT,
                 process_case_receive(connection, NULL, &count, NULL, HOSTILE_SHORT_MS));
    partner_kill(&other);
    check_status(GPUIPC_ERR_PEER_CLOSED,
                 process_case_receive(connection, NULL, &count, NULL, PATIENCE_MS));
    check_ok(gpuipc_connection_close(connection));
    process_case_end(&at);
}

/* ---- a process whose end of a connection another one has ------------------------------------- */

typedef struct orphan {
    gpuipc_connection *connection;
    pid_t number;  /* of the process that connected, and has ended */
    int its_input; /* of the process that has the socket now: it ends when this is closed */
} orphan;

/* Holds what it has inherited until the pipe is closed; _exit: this is a copy of a test. */
static void hold(int ends[2]) {
    char byte;
    close(ends[1]);
    (void)!read(ends[0], &byte, 1);
    _exit(0);
}

static void make_orphan(const process_case *at, orphan *out) {
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    out->number = fork();
    if (out->number == 0) {
        const bool connected = raw_connect(at->directory, at->name) != NULL;
        if (connected && fork() == 0) {
            hold(ends);
        }
        _exit(connected ? 0 : 1);
    }
    int status = 1;
    out->connection = process_case_accept(at);
    cr_assert_eq(waitpid(out->number, &status, 0), out->number);
    cr_assert_eq(status, 0);
    close(ends[0]);
    out->its_input = ends[1];
}

/* The next process has this number: proc(5), /proc/sys/kernel/ns_last_pid. False when it cannot be written. */
static bool want_number(pid_t number) {
    char text[32];
    const int length = snprintf(text, sizeof(text), "%d", (int)number - 1);
    int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    const bool written = fd >= 0 && write(fd, text, (size_t)length) == length;
    if (fd >= 0) {
        close(fd);
    }
    return written;
}

/* @return 0: it could not be had */
static pid_t start_with_number(pid_t number, int *out_input) {
    for (int i = 0; i < TRIES; i++) {
        int ends[2];
        cr_assert_eq(pipe(ends), 0);
        const pid_t made = want_number(number) ? fork() : -1;
        if (made == 0) {
            hold(ends);
        }
        close(ends[0]);
        if (made == number) {
            *out_input = ends[1];
            return made;
        }
        close(ends[1]);
        if (made < 0) {
            return 0;
        }
        (void)waitpid(made, NULL, 0);
    }
    return 0;
}

/* The number is another process's by now, and nobody is taken for who had it: pidfd_open(2). */
Test(users, its_number_is_given_to_another_process) {
    process_case at;
    orphan gone;
    uint64_t number = 0;
    int input = -1;
    process_case_begin(&at, NULL);
    make_orphan(&at, &gone);
    const pid_t heir = start_with_number(gone.number, &input);
    if (heir != 0) {
        cr_assert_eq(is_running(gone.connection, &number), 0);
        cr_assert_eq(number, (uint64_t)gone.number);
        close(input);
        cr_assert_eq(waitpid(heir, NULL, 0), heir);
    }
    close(gone.its_input);
    size_t count = 0;
    check_status(GPUIPC_ERR_PEER_CLOSED,
                 process_case_receive(gone.connection, NULL, &count, NULL, PATIENCE_MS));
    check_ok(gpuipc_connection_close(gone.connection));
    process_case_end(&at);
    if (heir == 0) {
        cr_skip_test(
            "no process can be given a certain number here (/proc/sys/kernel/ns_last_pid)");
    }
}

/* What it connected with another program has, which knows nothing of it: garbage ends the connection, as ever. */
Test(users, it_becomes_another_program) {
    process_case at;
    int status = 1;
    process_case_begin(&at, NULL);
    const pid_t child = fork();
    if (child == 0) {
        raw_peer *raw = raw_connect(at.directory, at.name);
        if (raw != NULL && dup2(raw_socket(raw), STDOUT_FILENO) == STDOUT_FILENO) {
            (void)execl("/bin/echo", "echo", "no packet", (char *)NULL);
        }
        _exit(1);
    }
    gpuipc_connection *connection = process_case_accept(&at);
    size_t count = 0;
    check_status(GPUIPC_ERR_PROTOCOL,
                 process_case_receive(connection, NULL, &count, NULL, PATIENCE_MS));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN,
                 process_case_receive(connection, NULL, &count, NULL, PATIENCE_MS));
    cr_assert_eq(waitpid(child, &status, 0), child);
    check_ok(gpuipc_connection_close(connection));
    process_case_end(&at);
}

/* ---- fairness -------------------------------------------------------------------------------- */

static int admit_all(void *user_data, const gpuipc_peer_info *peer) {
    (void)user_data;
    (void)peer;
    return 1;
}

typedef struct crowd {
    char endpoint[TICKET_ENDPOINT_SIZE];
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_server *server;
    raw_peer *peers[4 * PLACES];
} crowd;

static void begin_crowd(crowd *self, const process_case *at, gpuipc_buffer *buffer) {
    const gpuipc_server_config config = {.struct_size = sizeof(config),
                                         .flags = GPUIPC_SERVER_THREAD,
                                         .max_connections = 2 * PLACES,
                                         .max_connections_per_user = PLACES,
                                         .policy = admit_all};
    gpuipc_ticket made;
    ticket decoded;
    memset(self, 0, sizeof(*self));
    check_ok(gpuipc_server_create(at->context, &config, &self->server));
    check_ok(gpuipc_buffer_share(self->server, buffer, NULL, &made));
    check_ok(gpuipc_ticket_to_text(&made, self->text));
    check_ok(ticket_decode(&made, &decoded));
    ticket_endpoint(decoded.server_id, self->endpoint);
    for (size_t i = 0; i < sizeof(self->peers) / sizeof(*self->peers); i++) {
        self->peers[i] = raw_connect(at->directory, self->endpoint);
        cr_assert_neq(self->peers[i], NULL);
    }
}

static void end_crowd(crowd *self) {
    for (size_t i = 0; i < sizeof(self->peers) / sizeof(*self->peers); i++) {
        raw_close(self->peers[i]);
    }
    check_ok(gpuipc_server_destroy(self->server));
}

/* Four times as many connections as he may have, and another user has his places all the same. */
Test(users, one_user_takes_no_more_than_half_of_a_server) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .flags = GPUIPC_CONTEXT_SHARED_DIRECTORY};
    process_case at;
    partner same;
    partner others[PLACES];
    static crowd flood;
    if (!system_is_root()) {
        cr_skip_test("only root can start a process of another user");
    }
    process_case_begin(&at, &config);
    cr_assert(system_share_directory(at.directory, OTHER_USER));
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    partner_start(&same, &at, (const char *const[]){"shared", "admit", NULL}, NULL);
    for (size_t i = 0; i < PLACES; i++) {
        partner_start(&others[i], &at, (const char *const[]){"shared", "admit", NULL}, NULL);
        partner_do(&others[i], "GPUIPC_OK", "create 1 4096 0 0");
        partner_do(&others[i], "GPUIPC_OK", "release");
        partner_do(&others[i], "GPUIPC_OK", "user %u", OTHER_USER);
    }
    begin_crowd(&flood, &at, buffer);
    partner_do(&same, "GPUIPC_ERR_SERVER_BUSY", "ticket %s", flood.text);
    for (size_t i = 0; i < PLACES; i++) {
        partner_do(&others[i], "GPUIPC_OK", "ticket %s", flood.text);
        partner_do(&others[i], "GPUIPC_OK", "check 1 0");
    }
    for (size_t i = 0; i < PLACES; i++) {
        partner_end(&others[i]);
    }
    partner_end(&same);
    end_crowd(&flood);
    check_ok(gpuipc_buffer_release(buffer));
    process_case_end(&at);
}
