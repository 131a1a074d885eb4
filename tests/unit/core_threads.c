/* SPDX-License-Identifier: MIT */
/**
 * @file Many threads on one context at once: buffers made, held and given up, one buffer that all use
 * while it goes, connections in both directions with marks and loans, and tickets that all open. A plain program, so
 * that it runs under ThreadSanitizer. Exit code 0: every answer was one that may be, and every word was right.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <gpuipc/gpuipc.h>

#include "memory/buffer.h"
#include "ticket/server_link.h"
#include "unique.h"

#define THREADS 4
#define ROUNDS  40
#define SOON_MS 60000

static gpuipc_context *shared_context;
static gpuipc_buffer *shared; /* all threads use it; one of them gives it up */
static atomic_uint given_up;
static char directory[RUNTIME_DIRECTORY_MAX];

static void fail(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", what, gpuipc_error_get()->operation,
            gpuipc_error_get()->sentence);
    exit(1);
}

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != GPUIPC_OK) {                                                                 \
            fail(#call);                                                                           \
        }                                                                                          \
    } while (0)

/* Memory of one transport after the other; Windows shares no pools. */
static gpuipc_transport pick(uint32_t value) {
    static const gpuipc_transport each[] = {GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_LEGACY,
                                            GPUIPC_TRANSPORT_HOST, GPUIPC_TRANSPORT_POOL};
    return each[value % (os_shareable_handle_type == 1 ? 4 : 3)];
}

static gpuipc_buffer *make(uint32_t value) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = pick(value), .bytes = 4096};
    gpuipc_buffer *made;
    CHECK(gpuipc_buffer_create(shared_context, &config, &made));
    CHECK(gpuipc_buffer_set_access(made, 1, GPUIPC_ACCESS_DEFAULT)); /* which is counted */
    CHECK(gpuipc_buffer_fill_async(made, 0, 4096, value, 4, NULL));
    return made;
}

/* At once, behind all work of its devices, or behind that of the default stream. */
static void give_up(gpuipc_buffer *of, uint32_t value) {
    switch (value % 3) {
    case 0:
        CHECK(gpuipc_buffer_release(of));
        break;
    case 1:
        CHECK(gpuipc_buffer_drop(of));
        break;
    default:
        CHECK(gpuipc_buffer_release_async(of, NULL));
        break;
    }
}

static void check_word(gpuipc_buffer *of, uint32_t expected) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    uint32_t word = 0;
    CHECK(gpuipc_buffer_get_info(of, &info));
    CHECK(gpuipc_buffer_read(of, info.bytes - sizeof(word), &word, sizeof(word)));
    if (word != expected) {
        fprintf(stderr, "%08x, not %08x\n", (unsigned)word, (unsigned)expected);
        exit(1);
    }
}

/* Whatever the others do with it meanwhile, the answer is one of two. */
static void use_shared(uint32_t round) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    gpuipc_status status = gpuipc_buffer_retain(shared);
    if (status == GPUIPC_OK) {
        CHECK(gpuipc_buffer_get_info(shared, &info));
        check_word(shared, 4711);
        CHECK(gpuipc_buffer_release(shared));
    } else if (status != GPUIPC_ERR_RELEASED) {
        fail("gpuipc_buffer_retain");
    }
    if (round == ROUNDS / 2 && atomic_fetch_add(&given_up, 1) == 0) {
        CHECK(gpuipc_buffer_release(shared)); /* the one hold that main() took */
    }
}

typedef struct direction {
    gpuipc_connection *from;
    gpuipc_connection *to;
} direction;

/* Of the two that take it and take it back at the same time, one is told that it was late. */
static bool check_race(gpuipc_status status, gpuipc_status late, const char *what) {
    if (status != GPUIPC_OK && status != late) {
        fail(what);
    }
    return status == GPUIPC_OK;
}

/* Returned on a stream, at once, behind work, or with the buffer. */
static void borrow(gpuipc_buffer *opened, const gpuipc_mark *loan, uint32_t value) {
    const bool is_taken =
        check_race(gpuipc_buffer_take_loan(opened, loan), GPUIPC_ERR_RELEASED, "taking a loan");
    if (is_taken && value % 4 == 0) {
        CHECK(gpuipc_buffer_return_loan_async(opened, loan, NULL));
    } else if (is_taken && value % 4 == 1) {
        CHECK(gpuipc_buffer_return_loan(opened, loan));
    } else if (is_taken && value % 4 == 2) {
        CHECK(gpuipc_buffer_drop_loan(opened, loan));
    }
}

static void receive_all(void *argument) {
    const direction *way = argument;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        gpuipc_buffer *opened;
        gpuipc_mark mark;
        gpuipc_incoming message = {.struct_size = sizeof(message),
                                   .bytes = &mark,
                                   .bytes_capacity = sizeof(mark),
                                   .buffers = &opened,
                                   .buffer_capacity = 1};
        CHECK(gpuipc_connection_receive(way->to, &message, SOON_MS));
        CHECK(gpuipc_buffer_await_mark_async(opened, &mark, NULL));
        CHECK(gpuipc_buffer_await_mark(opened, &mark, SOON_MS));
        borrow(opened, &mark, i);
        check_word(opened, i);
        give_up(opened, i);
    }
}

static void send_all(const direction *way) {
    for (uint32_t i = 0; i < ROUNDS; i++) {
        gpuipc_buffer *own = make(i);
        gpuipc_mark mark; /* its word is in the pages of all threads */
        CHECK(gpuipc_buffer_mark(own, NULL, &mark));
        CHECK(gpuipc_buffer_lend(own, NULL, &mark));
        const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                         .bytes = &mark,
                                         .bytes_size = sizeof(mark),
                                         .buffers = &own,
                                         .buffer_count = 1};
        intptr_t native;
        CHECK(gpuipc_connection_send(way->from, &message, SOON_MS));
        if (i % 2 == 0) {
            (void)check_race(gpuipc_buffer_cancel_loan(own, &mark), GPUIPC_ERR_BUSY,
                             "taking a loan back");
        }
        CHECK(gpuipc_buffer_get_returns_wait_handle(own, &native));
        give_up(own, i / 3);
        use_shared(i);
    }
}

/* A conversation of its own: this thread sends one way, another receives it, and at the same time
 * the other way round. */
static void converse(void *argument) {
    char name[UNIQUE_NAME_MAX];
    gpuipc_listener *listener;
    direction there;
    os_thread *receivers[2];
    (void)argument;
    unique_name(name);
    CHECK(gpuipc_listener_open(shared_context, name, NULL, &listener));
    CHECK(gpuipc_connection_open(shared_context, name, NULL, SOON_MS, &there.from));
    CHECK(gpuipc_listener_accept(listener, SOON_MS, &there.to));
    direction back = {there.to, there.from};
    CHECK(os_thread_start(receive_all, &there, &receivers[0]));
    CHECK(os_thread_start(receive_all, &back, &receivers[1]));
    send_all(&there);
    send_all(&back);
    os_thread_join(receivers[0]);
    os_thread_join(receivers[1]);
    CHECK(gpuipc_connection_close(there.from));
    CHECK(gpuipc_connection_close(there.to));
    CHECK(gpuipc_listener_close(listener));
}

static gpuipc_ticket tickets[2];
static gpuipc_ticket parts[2]; /* of the same, so that nobody finds those opened without a lease */

/* Opens over the lease, as another process would, although the server is here. */
static gpuipc_buffer *open_leased(context *ctx, const gpuipc_ticket *of) {
    const gpuipc_open_config config = {.struct_size = sizeof(config)};
    ticket decoded;
    buffer *found = NULL;
    gpuipc_buffer *opened = NULL;
    CHECK(ticket_decode(of, &decoded));
    CHECK(server_link_open(ctx, of, &decoded, &config, os_deadline_after(SOON_MS), &found));
    CHECK(buffer_publish_held(found, &opened));
    return opened;
}

/* All threads open the same two, so that some find what others are just giving up. */
static void open_tickets(void *argument) {
    context *ctx;
    (void)argument;
    CHECK(context_acquire(shared_context, &ctx));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        gpuipc_buffer *own;
        CHECK(gpuipc_buffer_open(shared_context, &tickets[i % 2], NULL, &own));
        gpuipc_buffer *leased = open_leased(ctx, &parts[i % 3 == 0]);
        check_word(leased, 4716);
        CHECK(gpuipc_buffer_release(own));
        CHECK(gpuipc_buffer_release(leased));
    }
    context_unreference(ctx);
}

static void run_all(void (*call)(void *argument)) {
    os_thread *threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(os_thread_start(call, NULL, &threads[i]));
    }
    for (size_t i = 0; i < THREADS; i++) {
        os_thread_join(threads[i]);
    }
}

static void run_tickets(void) {
    gpuipc_server *server;
    gpuipc_buffer *offered = make(4716); /* vmm on both systems */
    CHECK(gpuipc_server_create(shared_context, NULL, &server));
    for (size_t i = 0; i < 2; i++) {
        CHECK(gpuipc_buffer_share(server, offered, NULL, &tickets[i]));
        CHECK(gpuipc_ticket_narrow(&tickets[i], 0, sizeof(uint32_t), &parts[i]));
    }
    run_all(open_tickets);
    CHECK(gpuipc_server_destroy(server));
    CHECK(gpuipc_buffer_release(offered));
}

int main(void) {
    if (!runtime_directory_make(directory)) {
        return 1;
    }
    const gpuipc_context_config config = {
        .struct_size = sizeof(config), .driver = "emulated", .runtime_directory = directory};
    CHECK(gpuipc_context_create(&config, &shared_context));
    shared = make(4711);
    run_all(converse);
    run_tickets();
    CHECK(gpuipc_context_destroy(shared_context));
    runtime_directory_remove(directory);
    if (gpuipc_buffer_release(shared) != GPUIPC_ERR_RELEASED) {
        fail("gpuipc_buffer_release");
    }
    return 0;
}
