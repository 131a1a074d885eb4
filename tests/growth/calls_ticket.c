/* SPDX-License-Identifier: MIT */
/** @file See growth.h: calls about servers, tickets and channels. */
#include <stdatomic.h>

#include "growth.h"

/* ---- servers ------------------------------------------------------------------------------------------ */

static void create_server(unsigned i) {
    MUST(gpuipc_server_create(world.context, NULL, &growth_items[i].server));
}

static void destroy_server(unsigned i) {
    MUST(gpuipc_server_destroy(growth_items[i].server));
}

static void poll_nothing(unsigned i) {
    (void)i;
    const gpuipc_status status = gpuipc_server_poll(world.server, 0);
    if (status != GPUIPC_ERR_TIMEOUT) {
        MUST(status);
    }
}

/* The other process asks once more for each line. */
static void let_ask(unsigned i) {
    (void)i;
    MUST(child_write_line(world.peer, "ask"));
}

static void answer(unsigned i) {
    (void)i;
    MUST(gpuipc_server_poll(world.server, GROWTH_SOON_MS));
}

static void hear_answer(unsigned i) {
    (void)i;
    growth_hear(world.peer, "asked", true);
}

static void get_server_wait_handle(unsigned i) {
    intptr_t handle = 0;
    (void)i;
    MUST(gpuipc_server_get_wait_handle(world.server, &handle));
}

static void share(unsigned i) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .flags = GPUIPC_SEND_READY};
    MUST(gpuipc_buffer_share(world.server, world.own, &config, &growth_items[i].ticket));
}

static void revoke(unsigned i) {
    MUST(gpuipc_server_revoke(world.server, &growth_items[i].ticket));
}

static void holders_of_new(unsigned i) {
    gpuipc_holder holders[4];
    size_t count = 0;
    MUST(gpuipc_server_holders(world.server, &growth_items[i].ticket, holders, 4, &count));
}

/* ---- tickets -------------------------------------------------------------------------------------------- */

static void open_own(unsigned i) {
    MUST(gpuipc_buffer_open(world.context, &world.ticket, NULL, &growth_items[i].buffer));
}

/* A part that is not open, behind those of the population. */
static void open_of_peer(unsigned i) {
    const gpuipc_open_config config = {.struct_size = sizeof(config), .timeout_ms = GROWTH_SOON_MS};
    gpuipc_ticket part;
    MUST(gpuipc_ticket_narrow(&world.peer_ticket, GROWTH_BYTES / 2 + i, 64, &part));
    MUST(gpuipc_buffer_open(world.context, &part, &config, &growth_items[i].buffer));
}

/* One that is open since the row was prepared. */
static void open_again(unsigned i) {
    gpuipc_ticket part;
    MUST(gpuipc_ticket_narrow(&world.peer_ticket, GROWTH_BYTES / 2 + i, 64, &part));
    MUST(gpuipc_buffer_open(world.context, &part, NULL, &growth_items[i].again));
}

static void release(unsigned i) {
    MUST(gpuipc_buffer_release(growth_items[i].buffer));
}

static void release_again(unsigned i) {
    MUST(gpuipc_buffer_release(growth_items[i].again));
    release(i);
}

static char text[GPUIPC_TICKET_TEXT_SIZE];

static void to_text(unsigned i) {
    (void)i;
    MUST(gpuipc_ticket_to_text(&world.ticket, text));
}

static void from_text(unsigned i) {
    MUST(gpuipc_ticket_from_text(text, &growth_items[i % GROWTH_ITEMS].ticket));
}

static void from_bytes(unsigned i) {
    MUST(gpuipc_ticket_from_bytes(world.ticket.bytes, sizeof(world.ticket.bytes),
                                  &growth_items[i % GROWTH_ITEMS].ticket));
}

static void narrow(unsigned i) {
    MUST(gpuipc_ticket_narrow(&world.ticket, 0, 64, &growth_items[i % GROWTH_ITEMS].ticket));
}

/* ---- channels ------------------------------------------------------------------------------------------- */

static void create_channel(unsigned i) {
    const gpuipc_channel_config config = {
        .struct_size = sizeof(config), .buffer = world.arena, .slots = 1, .slot_bytes = 4096};
    MUST(gpuipc_channel_create(world.server, &config, &growth_items[i].channel,
                               &growth_items[i].ticket));
}

static void destroy_channel(unsigned i) {
    MUST(gpuipc_channel_destroy(growth_items[i].channel));
}

static void loan(unsigned i) {
    growth_items[i].frame = (gpuipc_frame)GPUIPC_FRAME_INIT;
    MUST(gpuipc_channel_loan(world.channel, GPUIPC_NO_STREAM, 0, &growth_items[i].frame));
}

static void discard(unsigned i) {
    MUST(gpuipc_channel_discard(world.channel, &growth_items[i].frame));
}

static void publish(unsigned i) {
    MUST(gpuipc_channel_publish(world.channel, &growth_items[i].frame, GPUIPC_NO_STREAM));
}

static void readers(unsigned i) {
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    size_t count = 0;
    (void)i;
    MUST(gpuipc_channel_readers(world.read, infos, GPUIPC_CHANNEL_READERS_MAX, &count));
}

static void open_subscription(unsigned i) {
    MUST(gpuipc_subscription_open(world.context, &world.read_ticket, NULL,
                                  &growth_items[i].subscription));
}

static void open_named(unsigned i) {
    MUST(gpuipc_subscription_open_named(world.context, world.read_name, NULL,
                                        &growth_items[i].subscription));
}

static void close_subscription(unsigned i) {
    MUST(gpuipc_subscription_close(growth_items[i].subscription));
}

static void publish_to_reader(unsigned i) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    (void)i;
    MUST(gpuipc_channel_loan(world.read, GPUIPC_NO_STREAM, GROWTH_SOON_MS, &frame));
    MUST(gpuipc_channel_publish(world.read, &frame, GPUIPC_NO_STREAM));
}

static void take(unsigned i) {
    growth_items[i].frame = (gpuipc_frame)GPUIPC_FRAME_INIT;
    MUST(gpuipc_subscription_take(world.reader, GPUIPC_NO_STREAM, GROWTH_SOON_MS,
                                  &growth_items[i].frame));
}

static void publish_and_take(unsigned i) {
    publish_to_reader(i);
    take(i);
}

static void give_back(unsigned i) {
    MUST(gpuipc_subscription_give_back(world.reader, &growth_items[i].frame, GPUIPC_NO_STREAM));
}

static void get_subscription_wait_handle(unsigned i) {
    intptr_t handle = 0;
    (void)i;
    MUST(gpuipc_subscription_get_wait_handle(world.reader, &handle));
}

static void check_subscription(unsigned i) {
    (void)i;
    MUST(gpuipc_subscription_check(world.reader));
}

/* A kernel for nobody has nothing to store. */
static void publish_by_kernel(unsigned i) {
    size_t count = 0;
    MUST(gpuipc_channel_publish_by_kernel(world.channel, &growth_items[i].frame, NULL, NULL, 0,
                                          &count));
}

static void loan_and_publish_by_kernel(unsigned i) {
    loan(i);
    publish_by_kernel(i);
}

static void say_written(unsigned i) {
    MUST(gpuipc_channel_kernel_launched(world.channel, &growth_items[i].frame, NULL));
}

static void say_written_and_wait(unsigned i) {
    say_written(i);
    growth_synchronize();
}

static void wait_for_stream(unsigned i) {
    (void)i;
    growth_synchronize();
}

static void take_for_kernel(unsigned i) {
    gpuipc_word ready;
    growth_items[i].frame = (gpuipc_frame)GPUIPC_FRAME_INIT;
    MUST(gpuipc_subscription_take_for_kernel(world.reader, NULL, GROWTH_SOON_MS,
                                             &growth_items[i].frame, &ready,
                                             &growth_items[i].returned));
}

static void publish_and_take_for_kernel(unsigned i) {
    publish_to_reader(i);
    take_for_kernel(i);
}

static void say_launched(unsigned i) {
    MUST(gpuipc_subscription_kernel_launched(world.reader, &growth_items[i].frame, NULL));
}

/* In place of the kernel. */
static void store_returned(unsigned i) {
    const gpuipc_word *word = &growth_items[i].returned;
    atomic_store((_Atomic uint64_t *)(uintptr_t)word->address, word->value);
    growth_synchronize();
}

static const growth_call calls[] = {
    {"gpuipc_server_create", NULL, NULL, create_server, destroy_server, 4, NULL},
    {"gpuipc_server_destroy", "of another one", create_server, destroy_server, NULL, 4, NULL},
    {"gpuipc_server_poll", "nothing has come", NULL, poll_nothing, NULL, 0, NULL},
    {"gpuipc_server_poll", "a request of another process", let_ask, answer, hear_answer, 1, NULL},
    {"gpuipc_server_get_wait_handle", NULL, NULL, get_server_wait_handle, NULL, 0, NULL},
    {"gpuipc_buffer_share", NULL, NULL, share, revoke, 0, NULL},
    {"gpuipc_server_revoke", NULL, share, revoke, NULL, 0, NULL},
    {"gpuipc_server_holders", NULL, share, holders_of_new, revoke, 0, NULL},
    {"gpuipc_buffer_open", "a ticket of this process", NULL, open_own, release, 0, NULL},
    {"gpuipc_buffer_open", "a ticket of another process", NULL, open_of_peer, release, 0, NULL},
    {"gpuipc_buffer_open", "once more", open_of_peer, open_again, release_again, 0, NULL},
    {"gpuipc_ticket_to_text", NULL, NULL, to_text, NULL, 0, NULL},
    {"gpuipc_ticket_from_text", NULL, to_text, from_text, NULL, 0, NULL},
    {"gpuipc_ticket_from_bytes", NULL, NULL, from_bytes, NULL, 0, NULL},
    {"gpuipc_ticket_narrow", NULL, NULL, narrow, NULL, 0, NULL},
    {"gpuipc_channel_create", NULL, NULL, create_channel, destroy_channel, 0, NULL},
    {"gpuipc_channel_destroy", NULL, create_channel, destroy_channel, NULL, 0, NULL},
    {"gpuipc_channel_loan", NULL, NULL, loan, discard, 0, NULL},
    {"gpuipc_channel_discard", NULL, loan, discard, NULL, 0, NULL},
    {"gpuipc_channel_publish", NULL, loan, publish, NULL, 0, NULL},
    {"gpuipc_channel_readers", NULL, NULL, readers, NULL, 0, NULL},
    {"gpuipc_subscription_open", NULL, NULL, open_subscription, close_subscription, 0, NULL},
    {"gpuipc_subscription_open_named", NULL, NULL, open_named, close_subscription, 0, NULL},
    {"gpuipc_subscription_close", NULL, open_subscription, close_subscription, NULL, 0, NULL},
    {"gpuipc_subscription_take", NULL, publish_to_reader, take, give_back, 0, NULL},
    {"gpuipc_subscription_give_back", NULL, publish_and_take, give_back, NULL, 0, NULL},
    {"gpuipc_subscription_check", NULL, NULL, check_subscription, NULL, 0, NULL},
    {"gpuipc_channel_publish_by_kernel", NULL, loan, publish_by_kernel, say_written_and_wait, 0,
     NULL},
    {"gpuipc_channel_kernel_launched", NULL, loan_and_publish_by_kernel, say_written,
     wait_for_stream, 0, NULL},
    {"gpuipc_subscription_take_for_kernel", NULL, publish_to_reader, take_for_kernel, give_back, 0,
     NULL},
    {"gpuipc_subscription_kernel_launched", NULL, publish_and_take_for_kernel, say_launched,
     store_returned, 0, NULL},
    {"gpuipc_subscription_get_wait_handle", NULL, NULL, get_subscription_wait_handle, NULL, 0,
     NULL},
};

const growth_calls growth_ticket_calls = {calls, sizeof(calls) / sizeof(calls[0])};
