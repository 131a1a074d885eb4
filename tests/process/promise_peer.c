/* SPDX-License-Identifier: MIT */
/** @file See promise_peer.h: what is shared with the other process, and how that comes to be as it is. */
#include "promise_peer.h"

#include <stdatomic.h>
#include <stdio.h>

#include "check.h"
#include "partner.h"
#include "promise_world.h"

/* What a busy machine may add. */
#define BUSY_MS 5000

static process_case at;
static partner other;
static promise_state state;

promise_world world;

const char *promise_state_name(void) {
    static const char *const names[] = {"the peer silent", "the peer slow", "the peer stopped",
                                        "the peer dead"};
    return names[state];
}

bool promise_is_dead(void) {
    return state == PROMISE_DEAD;
}

/* ---- what the other one does -------------------------------------------------------------------- */

static os_thread *slowing;
static atomic_bool slowing_ends;

/* One part in ten of the time it runs. */
static void slow_down(void *unused) {
    (void)unused;
    while (!atomic_load(&slowing_ends)) {
        child_stop(other.process);
        os_sleep_ms(9);
        child_continue(other.process);
        os_sleep_ms(1);
    }
}

static void bring_into_state(void) {
    if (state == PROMISE_STOPPED) {
        child_stop(other.process);
    } else if (state == PROMISE_DEAD) {
        partner_kill(&other);
    } else if (state == PROMISE_SLOW) {
        atomic_store(&slowing_ends, false);
        check_ok(os_thread_start(slow_down, NULL, &slowing));
    }
}

/* ---- what is shared ----------------------------------------------------------------------------- */

/* The text of a ticket that the other one has just said. */
static gpuipc_ticket heard_ticket(void) {
    char text[CHILD_LINE_MAX] = "";
    gpuipc_ticket made;
    (void)sscanf(other.answer, "GPUIPC_OK %511s", text);
    check_ok(gpuipc_ticket_from_text(text, &made));
    return made;
}

static void say_ticket(const char *command, const gpuipc_ticket *of, const char *more) {
    char text[GPUIPC_TICKET_TEXT_SIZE];
    check_ok(gpuipc_ticket_to_text(of, text));
    partner_do(&other, "GPUIPC_OK", "%s %s%s", command, text, more);
}

/* Buffers of the other one, with contents that are never ready, and marks and loans behind the same work. */
static void import_buffers(void) {
    gpuipc_incoming in = {.struct_size = sizeof(in),
                          .buffers = world.imported,
                          .buffer_capacity = PROMISE_ITEMS + 1,
                          .flags = GPUIPC_RECEIVE_DEFERRED};
    partner_do(&other, "GPUIPC_OK", "create %d %llu 0 0", PROMISE_ITEMS + 1,
               (unsigned long long)MEBIBYTES_2);
    partner_do(&other, "GPUIPC_OK", "serve");
    partner_do(&other, "GPUIPC_OK", "share 0 0 0");
    world.their_ticket = heard_ticket();
    partner_do(&other, "GPUIPC_OK", "channel 16 %s", world.their_channel_name);
    world.their_channel = heard_ticket();
    partner_do(&other, "GPUIPC_OK", "gate");
    partner_do(&other, "GPUIPC_OK", "hand %u %d", (unsigned)GPUIPC_SEND_ASYNC, PATIENCE_MS);
    check_ok(gpuipc_connection_receive(world.connection, &in, PATIENCE_MS));
    cr_assert_eq(in.buffer_count, PROMISE_ITEMS + 1);
    world.mark = partner_mark(&other, "mark");
    for (int i = 0; i < PROMISE_ITEMS; i++) {
        world.to_take[i] = partner_mark(&other, "lend");
        world.to_return[i] = partner_mark(&other, "lend");
        world.to_return_async[i] = partner_mark(&other, "lend");
        world.to_drop[i] = partner_mark(&other, "lend");
        check_ok(gpuipc_buffer_take_loan(world.imported[0], &world.to_return[i]));
        check_ok(gpuipc_buffer_take_loan(world.imported[0], &world.to_return_async[i]));
        check_ok(gpuipc_buffer_take_loan(world.imported[0], &world.to_drop[i]));
    }
}

/* A buffer of this process, which the other one has open in each way that there is. */
static void lend(void) {
    const gpuipc_channel_config one_slot = {.struct_size = sizeof(one_slot),
                                            .buffer = world.own,
                                            .slots = 1,
                                            .slot_bytes = MEBIBYTES_2};
    gpuipc_ticket of;
    const gpuipc_outgoing out = {
        .struct_size = sizeof(out), .buffers = &world.own, .buffer_count = 1};
    check_ok(gpuipc_connection_send(world.connection, &out, PATIENCE_MS));
    partner_do(&other, "GPUIPC_OK", "receive 0 0 0 %d", PATIENCE_MS);
    check_ok(gpuipc_buffer_lend_ready(world.own, &world.loan));
    check_ok(gpuipc_buffer_share(world.server, world.own, NULL, &world.ticket));
    say_ticket("ticket", &world.ticket, "");
    check_ok(gpuipc_channel_create(world.server, &one_slot, &world.channel, &of));
    say_ticket("subscribe", &of, " 0 1");
    check_ok(gpuipc_channel_create(world.server, &one_slot, &world.free_channel, &of));
}

/* Its channel, with frames that can be taken. */
static void read_channel(void) {
    const gpuipc_subscription_config config = {.struct_size = sizeof(config),
                                               .max_held = PROMISE_ITEMS};
    check_ok(gpuipc_subscription_open_named(world.context, world.their_channel_name, &config,
                                            &world.reader));
    partner_do(&other, "GPUIPC_OK", "publish-frames 1 %d", PROMISE_ITEMS);
}

static void make_own(void) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = at.directory};
    const gpuipc_context_config wakes = {.struct_size = sizeof(wakes),
                                         .runtime_directory = at.directory,
                                         .flags = GPUIPC_CONTEXT_INTERRUPTIBLE};
    const gpuipc_buffer_config bytes = {.struct_size = sizeof(bytes), .bytes = MEBIBYTES_2};
    const gpuipc_server_config without_thread = {.struct_size = sizeof(without_thread)};
    char name[UNIQUE_NAME_MAX];
    check_ok(gpuipc_context_create(&config, &world.context));
    check_ok(gpuipc_context_create(&wakes, &world.interruptible));
    check_ok(gpuipc_buffer_create(world.context, &bytes, &world.own));
    check_ok(gpuipc_server_create(world.context, NULL, &world.server));
    check_ok(gpuipc_server_create(world.context, &without_thread, &world.polled));
    unique_name(name);
    check_ok(gpuipc_listener_open(world.context, name, NULL, &world.listener));
    partner_do(&other, "GPUIPC_OK", "connect %s %d", name, PATIENCE_MS);
    check_ok(gpuipc_listener_accept(world.listener, PATIENCE_MS, &world.connection));
    unique_name(world.spare_name);
    check_ok(gpuipc_listener_open(world.context, world.spare_name, NULL, &world.spare));
}

void promise_begin(promise_state wanted) {
    world = (promise_world){0};
    state = wanted;
    process_case_begin(&at, NULL);
    partner_start(&other, &at, NULL, NULL);
    unique_name(world.their_name);
    unique_name(world.their_channel_name);
    unique_name(world.nobody);
    make_own();
    partner_do(&other, "GPUIPC_OK", "listen %s", world.their_name);
    import_buffers();
    lend();
    read_channel();
    bring_into_state();
}

void promise_fill(void) {
    static const char bytes[4096];
    static const size_t sizes[] = {sizeof(bytes), 1};
    gpuipc_outgoing out = {.struct_size = sizeof(out), .bytes = bytes};
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        out.bytes_size = sizes[i]; /* to the last byte: a pipe still takes a small one */
        while (gpuipc_connection_send(world.connection, &out, 0) == GPUIPC_OK) {
        }
    }
    check_ok(gpuipc_channel_loan(world.channel, GPUIPC_NO_STREAM, PATIENCE_MS, &frame));
    check_ok(gpuipc_channel_publish(world.channel, &frame, GPUIPC_NO_STREAM));
}

/* One that lives ends by itself: on Windows its server may just have put the handles of an answer into this process that
 * nobody waits for any more, and takes them back; one that is killed there leaves them (win32_ledger.c). */
static void end_state(void) {
    if (state == PROMISE_SLOW) {
        atomic_store(&slowing_ends, true);
        os_thread_join(slowing);
    }
    if (state == PROMISE_STOPPED) {
        partner_kill(&other);
    } else if (state != PROMISE_DEAD) {
        partner_end(&other);
    }
}

/* What ends an object says of itself how long that takes, in milliseconds. There is one try. */
#define END_WITHIN(promised_ms, function, object)                                                  \
    do {                                                                                           \
        gpuipc_status ended;                                                                       \
        MEASURE(ended, function(object));                                                          \
        check_ok(ended);                                                                           \
        cr_assert_lt(promise_took_ns, ((promised_ms) + BUSY_MS) * UINT64_C(1000000),               \
                     "%s took %llu ms, %s", #function,                                             \
                     (unsigned long long)(promise_took_ns / 1000000), promise_state_name());       \
    } while (0)

void promise_end(void) {
    END_WITHIN(20, gpuipc_subscription_close, world.reader);
    END_WITHIN(20, gpuipc_channel_destroy, world.channel);
    END_WITHIN(20, gpuipc_channel_destroy, world.free_channel);
    for (int i = 0; i <= PROMISE_ITEMS; i++) {
        END_WITHIN(0, gpuipc_buffer_release, world.imported[i]);
    }
    END_WITHIN(1000, gpuipc_server_destroy, world.server);
    END_WITHIN(1000, gpuipc_server_destroy, world.polled);
    END_WITHIN(1000, gpuipc_connection_close, world.connection);
    end_state();
    check_ok(gpuipc_listener_close(world.listener));
    check_ok(gpuipc_listener_close(world.spare));
    check_ok(gpuipc_buffer_await_returns(world.own, PATIENCE_MS));
    check_ok(gpuipc_buffer_release(world.own));
    check_ok(gpuipc_context_destroy(world.interruptible));
    check_ok(gpuipc_context_destroy(world.context));
    process_case_end(&at);
}
