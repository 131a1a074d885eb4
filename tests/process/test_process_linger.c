/* SPDX-License-Identifier: MIT */
/**
 * @file A peer that sends a socket whose last close() waits: what takes it in answers at once, and
 * other threads notice nothing.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"
#include "marks.h"
#include "os.h"
#include "posix_system.h"
#include "process_case.h"
#include "raw_handle.h"
#include "raw_packet.h"

#define AT_ONCE_NS UINT64_C(1000000000) /* the socket lingers five times as long */

static process_case at;
static gpuipc_buffer *buffer;
static raw_peer *raw;
static intptr_t other_end;

TestSuite(linger, .timeout = 100);

/* A packet whose one handle is such a socket, or contains it, and of which we keep no copy, is on its way. */
static void send_packet_with(intptr_t handle) {
    raw_packet packet;
    cr_assert(raw_packet_make(buffer, &packet));
    raw_packet_replace_handle(&packet, handle);
    cr_assert_neq(packet.handles[0], RAW_HANDLE_NONE);
    raw = raw_connect(at.directory, at.name);
    cr_assert_neq(raw, NULL);
    cr_assert(raw_packet_send(&packet, raw));
    raw_packet_close(&packet);
}

static void send_packet(void) {
    send_packet_with(raw_handle_open_lingering(&other_end));
}

static void begin(void) {
    intptr_t lingering = raw_handle_open_lingering(&other_end);
    if (lingering == RAW_HANDLE_NONE) {
        cr_skip_test("no loopback network");
    }
    raw_handle_close(other_end); /* which ends the lingering: its data is refused */
    raw_handle_close(lingering);
    process_case_begin(&at, NULL);
    buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
}

static void end(void) {
    if (raw != NULL) {
        raw_close(raw);
    }
    raw_handle_close(other_end);
    check_ok(gpuipc_buffer_release(buffer));
    process_case_end(&at);
}

/* Another thread, which opens listeners of another name again and again. */
typedef struct bystander {
    atomic_bool is_over;
    atomic_uint rounds;
    uint64_t longest_ns;
    gpuipc_status status;
    os_thread *thread;
} bystander;

static void open_listeners(void *argument) {
    bystander *self = argument;
    char name[UNIQUE_NAME_MAX];
    gpuipc_listener *listener;
    unique_name(name);
    while (!atomic_load(&self->is_over) && self->status == GPUIPC_OK) {
        const uint64_t start = os_clock_ns();
        self->status = gpuipc_listener_open(at.context, name, NULL, &listener);
        if (self->status == GPUIPC_OK) {
            self->status = gpuipc_listener_close(listener);
        }
        const uint64_t took = os_clock_ns() - start;
        self->longest_ns = took > self->longest_ns ? took : self->longest_ns;
        atomic_fetch_add(&self->rounds, 1);
    }
}

static void bystander_start(bystander *self) {
    *self = (bystander){.status = GPUIPC_OK};
    check_ok(os_thread_start(open_listeners, self, &self->thread));
    while (atomic_load(&self->rounds) == 0) {
        os_sleep_ms(1);
    }
}

static void bystander_end(bystander *self) {
    atomic_store(&self->is_over, true);
    os_thread_join(self->thread);
    check_ok(self->status);
    cr_assert_lt(self->longest_ns, AT_ONCE_NS, "another thread's listener took %llu ns",
                 (unsigned long long)self->longest_ns);
}

static void check_receive(intptr_t (*put_into)(intptr_t handle)) {
    begin();
    if (put_into == NULL) {
        send_packet();
    } else {
        send_packet_with(put_into(raw_handle_open_lingering(&other_end)));
    }
    gpuipc_connection *connection = process_case_accept(&at);
    gpuipc_buffer *opened;
    size_t count = 1;
    bystander other;
    bystander_start(&other);
    const uint64_t start = os_clock_ns();
    check_status(GPUIPC_ERR_NOT_GPU_MEMORY,
                 process_case_receive(connection, &opened, &count, NULL, PATIENCE_MS));
    const uint64_t took = os_clock_ns() - start;
    bystander_end(&other);
    cr_assert_lt(took, AT_ONCE_NS, "receive took %llu ns", (unsigned long long)took);
    check_ok(gpuipc_connection_close(connection));
    end();
}

Test(linger, receive_answers_at_once) {
    check_receive(NULL);
}

Test(linger, receive_answers_at_once_where_it_lies_in_a_socket) {
    check_receive(raw_handle_put_into_socket);
}

Test(linger, receive_answers_at_once_where_it_lies_in_a_listening_socket) {
    check_receive(raw_handle_put_into_listener);
}

static intptr_t put_into_two(intptr_t handle) {
    return raw_handle_put_into_socket(raw_handle_put_into_socket(handle));
}

Test(linger, receive_answers_at_once_where_it_lies_in_a_socket_in_a_socket) {
    check_receive(put_into_two);
}

/* A packet that nobody received goes with the connection. */
Test(linger, closing_the_connection_answers_at_once) {
    begin();
    send_packet();
    gpuipc_connection *connection = process_case_accept(&at);
    bystander other;
    bystander_start(&other);
    const uint64_t start = os_clock_ns();
    check_ok(gpuipc_connection_close(connection));
    const uint64_t took = os_clock_ns() - start;
    bystander_end(&other);
    cr_assert_lt(took, AT_ONCE_NS, "close took %llu ns", (unsigned long long)took);
    end();
}

static int refuse(void *user_data, const gpuipc_peer_info *peer) {
    (void)user_data;
    (void)peer;
    return 0;
}

/* Nobody has let the peer in, and it has sent something all the same. */
Test(linger, refusing_a_peer_answers_at_once) {
    const gpuipc_endpoint_config config = {.struct_size = sizeof(config), .policy = refuse};
    gpuipc_connection *connection;
    begin();
    check_ok(gpuipc_listener_close(at.listener));
    check_ok(gpuipc_listener_open(at.context, at.name, &config, &at.listener));
    send_packet();
    bystander other;
    bystander_start(&other);
    const uint64_t start = os_clock_ns();
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(at.listener, 100, &connection));
    const uint64_t took = os_clock_ns() - start;
    bystander_end(&other);
    cr_assert_lt(took, AT_ONCE_NS, "accept took %llu ns", (unsigned long long)took);
    end();
}

/* The peer was not even accepted. */
Test(linger, closing_the_listener_answers_at_once) {
    begin();
    send_packet();
    bystander other;
    bystander_start(&other);
    const uint64_t start = os_clock_ns();
    check_ok(gpuipc_listener_close(at.listener));
    const uint64_t took = os_clock_ns() - start;
    bystander_end(&other);
    at.listener = NULL;
    cr_assert_lt(took, AT_ONCE_NS, "close took %llu ns", (unsigned long long)took);
    end();
}

/* ---- at the limit ----------------------------------------------------------------------------- */

/* No number is free: what comes does not fit, and would be closed by the kernel where it is received. */
static rlim_t leave_no_room(void) {
    struct rlimit limit;
    const int lowest = dup(0);
    cr_assert_geq(lowest, 0);
    cr_assert_eq(close(lowest), 0);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = (rlim_t)lowest;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

static void leave_room(rlim_t before) {
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = before;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void check_at_the_limit(bool receives) {
    gpuipc_buffer *opened;
    size_t count = 1;
    gpuipc_status received = GPUIPC_OK;
    begin();
    send_packet();
    gpuipc_connection *connection = process_case_accept(&at);
    const rlim_t before = leave_no_room();
    const uint64_t start = os_clock_ns();
    if (receives) {
        received = process_case_receive(connection, &opened, &count, NULL, PATIENCE_MS);
    }
    const gpuipc_status closed = gpuipc_connection_close(connection);
    const uint64_t took = os_clock_ns() - start;
    leave_room(before);
    check_status(receives ? GPUIPC_ERR_TOO_MANY_HANDLES : GPUIPC_OK, received);
    check_ok(closed);
    cr_assert_lt(took, AT_ONCE_NS, "it took %llu ns", (unsigned long long)took);
    end();
}

Test(linger, receive_answers_at_once_at_the_limit_of_descriptors) {
    check_at_the_limit(true);
}

Test(linger, closing_answers_at_once_at_the_limit_of_descriptors) {
    check_at_the_limit(false);
}
