/* SPDX-License-Identifier: MIT */
/** @file See conversation.h. */
#include "conversation.h"

#include <string.h>

#define BYTES  65536u
#define FRAMES 4u
#define SLOTS  2u

/* A call as its talker makes it: ends the side by the label "over" when it fails. */
#define TRY(self, call)                                                                            \
    do {                                                                                           \
        do {                                                                                       \
            (self)->begin(self);                                                                   \
            (self)->status = (call);                                                               \
        } while ((self)->again(self, #call));                                                      \
        if ((self)->status != GPUIPC_OK) {                                                         \
            goto over;                                                                             \
        }                                                                                          \
    } while (0)

/* What gives back: it cannot fail, and the side goes on whatever it answers. */
#define GIVE_BACK(self, call)                                                                      \
    do {                                                                                           \
        (self)->begin(self);                                                                       \
        (self)->status = (call);                                                                   \
        (void)(self)->again(self, #call);                                                          \
    } while (0)

static gpuipc_status make_buffer(talker *self, gpuipc_buffer **out_buffer) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = BYTES};
    return gpuipc_buffer_create(self->context, &config, out_buffer);
}

static gpuipc_status send(talker *self, gpuipc_connection *to, gpuipc_buffer *const *buffer,
                          const void *bytes, size_t size) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = bytes,
                                     .bytes_size = size,
                                     .buffers = buffer,
                                     .buffer_count = buffer != NULL};
    return gpuipc_connection_send(to, &message, self->timeout_ms);
}

static gpuipc_status receive(talker *self, gpuipc_connection *from, gpuipc_buffer **out_buffer,
                             void *bytes, size_t capacity) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes = bytes,
                               .bytes_capacity = capacity,
                               .buffers = out_buffer,
                               .buffer_capacity = out_buffer != NULL};
    return gpuipc_connection_receive(from, &message, self->timeout_ms);
}

/* ---- messages with buffers ---------------------------------------------------------------------- */

static bool listener_plays(talker *self) {
    gpuipc_listener *listener = NULL;
    gpuipc_connection *peer = NULL;
    gpuipc_buffer *own = NULL;
    gpuipc_buffer *got = NULL;
    bool is_done = false;
    TRY(self, make_buffer(self, &own));
    TRY(self, gpuipc_listener_open(self->context, self->name, NULL, &listener));
    self->say(self, "listening");
    TRY(self, gpuipc_listener_accept(listener, self->timeout_ms, &peer));
    TRY(self, receive(self, peer, &got, NULL, 0));
    TRY(self, gpuipc_buffer_release(got));
    got = NULL;
    TRY(self, send(self, peer, &own, NULL, 0));
    TRY(self, gpuipc_buffer_await_returns(own, self->timeout_ms));
    TRY(self, send(self, peer, NULL, "over", 4));
    is_done = true;
over:
    GIVE_BACK(self, gpuipc_buffer_release(got));
    GIVE_BACK(self, gpuipc_connection_close(peer));
    GIVE_BACK(self, gpuipc_listener_close(listener));
    GIVE_BACK(self, gpuipc_buffer_release(own));
    return is_done;
}

static bool connector_plays(talker *self) {
    gpuipc_connection *peer = NULL;
    gpuipc_buffer *own = NULL;
    gpuipc_buffer *got = NULL;
    char line[128];
    bool is_done = false;
    TRY(self, make_buffer(self, &own));
    (void)self->hear(self, line, sizeof(line));
    TRY(self, gpuipc_connection_open(self->context, self->name, NULL, self->timeout_ms, &peer));
    TRY(self, send(self, peer, &own, NULL, 0));
    TRY(self, gpuipc_buffer_await_returns(own, self->timeout_ms));
    TRY(self, receive(self, peer, &got, NULL, 0));
    TRY(self, gpuipc_buffer_release(got));
    got = NULL;
    TRY(self, receive(self, peer, NULL, line, sizeof(line)));
    is_done = true;
over:
    GIVE_BACK(self, gpuipc_buffer_release(got));
    GIVE_BACK(self, gpuipc_connection_close(peer));
    GIVE_BACK(self, gpuipc_buffer_release(own));
    return is_done;
}

/* ---- tickets -------------------------------------------------------------------------------------- */

/* One that one process may open once, and one for any number. */
#define SHARES 2
static const uint32_t share_flags[SHARES] = {GPUIPC_SHARE_ONE_SHOT, 0};

static bool server_plays(talker *self) {
    gpuipc_server *server = NULL;
    gpuipc_buffer *own = NULL;
    gpuipc_ticket ticket;
    gpuipc_holder holders[4];
    size_t count = 0;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    char line[128];
    bool is_done = false;
    TRY(self, make_buffer(self, &own));
    TRY(self, gpuipc_server_create(self->context, NULL, &server));
    for (int i = 0; i < SHARES; i++) {
        const gpuipc_share_config how = {.struct_size = sizeof(how), .flags = share_flags[i]};
        TRY(self, gpuipc_buffer_share(server, own, &how, &ticket));
        TRY(self, gpuipc_ticket_to_text(&ticket, text));
        self->say(self, text);
        (void)self->hear(self, line, sizeof(line)); /* opened */
        self->say(self, "release");
        TRY(self, gpuipc_buffer_await_returns(own, self->timeout_ms));
    }
    TRY(self, gpuipc_server_holders(server, &ticket, holders, 4, &count));
    TRY(self, gpuipc_server_revoke(server, &ticket));
    is_done = true;
over:
    GIVE_BACK(self, gpuipc_server_destroy(server));
    GIVE_BACK(self, gpuipc_buffer_release(own));
    return is_done;
}

static gpuipc_status open_ticket(talker *self, const gpuipc_ticket *ticket,
                                 gpuipc_buffer **out_buffer) {
    const gpuipc_open_config config = {.struct_size = sizeof(config),
                                       .timeout_ms = self->timeout_ms};
    return gpuipc_buffer_open(self->context, ticket, &config, out_buffer);
}

static bool opener_plays(talker *self) {
    gpuipc_buffer *opened = NULL;
    gpuipc_ticket ticket;
    uint32_t word;
    char line[128];
    bool is_done = false;
    for (int i = 0; i < SHARES; i++) {
        if (!self->hear(self, line, sizeof(line))) {
            return false;
        }
        TRY(self, gpuipc_ticket_from_text(line, &ticket));
        TRY(self, open_ticket(self, &ticket, &opened));
        self->say(self, "opened");
        TRY(self, gpuipc_buffer_read(opened, 0, &word, sizeof(word)));
        (void)self->hear(self, line, sizeof(line)); /* release */
        TRY(self, gpuipc_buffer_release(opened));
        opened = NULL;
    }
    is_done = true;
over:
    GIVE_BACK(self, gpuipc_buffer_release(opened));
    return is_done;
}

/* ---- contents ------------------------------------------------------------------------------------- */

/* Out of the sender's memory, and through host memory. */
#define WAYS 2
static const gpuipc_transport ways[WAYS] = {GPUIPC_TRANSPORT_DEFAULT, GPUIPC_TRANSPORT_HOST};

static gpuipc_status send_contents(talker *self, gpuipc_connection *to, gpuipc_buffer *of,
                                   gpuipc_transport way) {
    const gpuipc_contents contents = {
        .struct_size = sizeof(contents), .buffer = of, .bytes = BYTES, .transport = way};
    return gpuipc_connection_send_contents(to, &contents, self->timeout_ms);
}

static gpuipc_status receive_contents(talker *self, gpuipc_connection *from, gpuipc_buffer *into) {
    const gpuipc_contents contents = {
        .struct_size = sizeof(contents), .buffer = into, .bytes = BYTES};
    return gpuipc_connection_receive_contents(from, &contents, self->timeout_ms);
}

/* A buffer stays until the stream has passed that contents come on: gpuipc_connection_receive_contents(). */
static void pass_stream(talker *self, gpuipc_buffer *own) {
    uint32_t word;
    self->part(self);
    if (own != NULL) {
        self->status = gpuipc_buffer_read(own, 0, &word, sizeof(word));
    }
}

static bool contents_listener_plays(talker *self) {
    gpuipc_listener *listener = NULL;
    gpuipc_connection *peer = NULL;
    gpuipc_buffer *own = NULL;
    uint32_t word;
    bool is_done = false;
    TRY(self, make_buffer(self, &own));
    TRY(self, gpuipc_listener_open(self->context, self->name, NULL, &listener));
    self->say(self, "listening");
    TRY(self, gpuipc_listener_accept(listener, self->timeout_ms, &peer));
    for (int i = 0; i < WAYS; i++) {
        TRY(self, receive_contents(self, peer, own));
        TRY(self, send_contents(self, peer, own, ways[i]));
    }
    TRY(self, receive(self, peer, NULL, &word, sizeof(word)));
    is_done = true;
over:
    GIVE_BACK(self, gpuipc_connection_close(peer));
    GIVE_BACK(self, gpuipc_listener_close(listener));
    pass_stream(self, own);
    GIVE_BACK(self, gpuipc_buffer_release(own));
    return is_done;
}

static bool contents_connector_plays(talker *self) {
    gpuipc_connection *peer = NULL;
    gpuipc_buffer *own = NULL;
    char line[128];
    bool is_done = false;
    TRY(self, make_buffer(self, &own));
    (void)self->hear(self, line, sizeof(line));
    TRY(self, gpuipc_connection_open(self->context, self->name, NULL, self->timeout_ms, &peer));
    for (int i = 0; i < WAYS; i++) {
        TRY(self, send_contents(self, peer, own, ways[i]));
        TRY(self, receive_contents(self, peer, own));
    }
    TRY(self, send(self, peer, NULL, "over", 4));
    is_done = true;
over:
    GIVE_BACK(self, gpuipc_connection_close(peer));
    pass_stream(self, own);
    GIVE_BACK(self, gpuipc_buffer_release(own));
    return is_done;
}

/* ---- marks and loans ------------------------------------------------------------------------------ */

static bool lender_plays(talker *self) {
    gpuipc_listener *listener = NULL;
    gpuipc_connection *peer = NULL;
    gpuipc_buffer *own = NULL;
    gpuipc_mark marks[2];
    bool is_done = false;
    TRY(self, make_buffer(self, &own));
    TRY(self, gpuipc_listener_open(self->context, self->name, NULL, &listener));
    self->say(self, "listening");
    TRY(self, gpuipc_listener_accept(listener, self->timeout_ms, &peer));
    TRY(self, send(self, peer, &own, NULL, 0));
    TRY(self, gpuipc_buffer_mark(own, NULL, &marks[0]));
    TRY(self, gpuipc_buffer_lend(own, NULL, &marks[1]));
    TRY(self, send(self, peer, NULL, marks, sizeof(marks)));
    TRY(self, gpuipc_buffer_await_loan(own, &marks[1], self->timeout_ms));
    TRY(self, gpuipc_buffer_await_returns(own, self->timeout_ms));
    is_done = true;
over:
    GIVE_BACK(self, gpuipc_connection_close(peer));
    GIVE_BACK(self, gpuipc_listener_close(listener));
    GIVE_BACK(self, gpuipc_buffer_release(own));
    return is_done;
}

static bool borrower_plays(talker *self) {
    gpuipc_connection *peer = NULL;
    gpuipc_buffer *got = NULL;
    gpuipc_mark marks[2];
    char line[128];
    bool is_done = false;
    (void)self->hear(self, line, sizeof(line));
    TRY(self, gpuipc_connection_open(self->context, self->name, NULL, self->timeout_ms, &peer));
    TRY(self, receive(self, peer, &got, NULL, 0));
    TRY(self, receive(self, peer, NULL, marks, sizeof(marks)));
    TRY(self, gpuipc_buffer_await_mark(got, &marks[0], self->timeout_ms));
    TRY(self, gpuipc_buffer_take_loan(got, &marks[1]));
    TRY(self, gpuipc_buffer_return_loan_async(got, &marks[1], NULL));
    is_done = true;
over:
    GIVE_BACK(self, gpuipc_buffer_release(got));
    GIVE_BACK(self, gpuipc_connection_close(peer));
    return is_done;
}

/* ---- channels ------------------------------------------------------------------------------------- */

static bool writer_plays(talker *self) {
    gpuipc_server *server = NULL;
    gpuipc_channel *channel = NULL;
    gpuipc_buffer *slots = NULL;
    gpuipc_channel_config config = GPUIPC_CHANNEL_CONFIG_INIT;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_ticket ticket;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    char line[128];
    bool is_done = false;
    config.slots = SLOTS;
    config.slot_bytes = BYTES / SLOTS;
    TRY(self, make_buffer(self, &slots));
    config.buffer = slots;
    TRY(self, gpuipc_server_create(self->context, NULL, &server));
    TRY(self, gpuipc_channel_create(server, &config, &channel, &ticket));
    TRY(self, gpuipc_ticket_to_text(&ticket, text));
    self->say(self, text);
    (void)self->hear(self, line, sizeof(line)); /* subscribed */
    for (uint32_t i = 0; i < FRAMES; i++) {
        TRY(self, gpuipc_channel_loan(channel, NULL, self->timeout_ms, &frame));
        TRY(self, gpuipc_channel_publish(channel, &frame, NULL));
    }
    (void)self->hear(self, line, sizeof(line)); /* all taken */
    is_done = true;
over:
    GIVE_BACK(self, gpuipc_channel_destroy(channel));
    GIVE_BACK(self, gpuipc_server_destroy(server));
    GIVE_BACK(self, gpuipc_buffer_release(slots));
    return is_done;
}

static gpuipc_status subscribe(talker *self, const gpuipc_ticket *ticket,
                               gpuipc_subscription **out_subscription) {
    const gpuipc_subscription_config config = {.struct_size = sizeof(config),
                                               .timeout_ms = self->timeout_ms};
    return gpuipc_subscription_open(self->context, ticket, &config, out_subscription);
}

static bool reader_plays(talker *self) {
    gpuipc_subscription *subscription = NULL;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_ticket ticket;
    char line[128];
    bool is_done = false;
    if (!self->hear(self, line, sizeof(line))) {
        return false;
    }
    TRY(self, gpuipc_ticket_from_text(line, &ticket));
    TRY(self, subscribe(self, &ticket, &subscription));
    self->say(self, "subscribed");
    for (uint32_t i = 0; i < FRAMES; i++) {
        TRY(self, gpuipc_subscription_take(subscription, NULL, self->timeout_ms, &frame));
        TRY(self, gpuipc_subscription_give_back(subscription, &frame, NULL));
    }
    self->say(self, "all taken");
    is_done = true;
over:
    GIVE_BACK(self, gpuipc_subscription_close(subscription));
    return is_done;
}

const struct conversation_entry conversation_sides[CONVERSATION_SIDES] = {
    [SIDE_LISTENER] = {"listener", listener_plays},
    [SIDE_CONNECTOR] = {"connector", connector_plays},
    [SIDE_SERVER] = {"server", server_plays},
    [SIDE_OPENER] = {"opener", opener_plays},
    [SIDE_CONTENTS_LISTENER] = {"listener of contents", contents_listener_plays},
    [SIDE_CONTENTS_CONNECTOR] = {"connector of contents", contents_connector_plays},
    [SIDE_LENDER] = {"lender", lender_plays},
    [SIDE_BORROWER] = {"borrower", borrower_plays},
    [SIDE_WRITER] = {"writer", writer_plays},
    [SIDE_READER] = {"reader", reader_plays}};
