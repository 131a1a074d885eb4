/* SPDX-License-Identifier: MIT */
/** @file See session.h: the honest program. What its calls answer is anything that their headers list (named_calls.h has
 *  looked at the record); what they give is looked at here. */
#include <stdio.h>
#include <string.h>

#include "channel/subscription.h"
#include "fuzz.h"
#include "session.h"
#include "sync/mark.h"

/* How long a call waits, of time that passes at once. */
static int timeout_of(uint8_t choice) {
    static const int timeouts[] = {0, 20, 1000, 0};
    return timeouts[choice % 4];
}

/* What must not fail, whatever the peer does: what is made without it, and what gives back. */
static bool is_ok(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        (void)fprintf(stderr, "%s\n", gpuipc_error_text());
    }
    return status == GPUIPC_OK;
}
#define MUST(call) FUZZ_CHECK(is_ok(call))

/* ---- what there is at first -------------------------------------------------------------------- */

static gpuipc_buffer *own_buffer(void) {
    honest *self = &now.program;
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = self->transport, .bytes = SESSION_BYTES};
    if (self->own == NULL) {
        MUST(gpuipc_buffer_create(self->context, &config, &self->own));
    }
    return self->own;
}

static void listen(void) {
    honest *self = &now.program;
    if (self->listener == NULL) {
        MUST(gpuipc_listener_open(self->context, SESSION_NAME, NULL, &self->listener));
    }
}

/* A reply with so much attached takes several packets. */
static void share(uint32_t flags, uint32_t max_processes, uint64_t expires_ms, size_t attached) {
    static const uint8_t attachment[OS_PACKET_BYTES_MAX + 1] = "attached";
    honest *self = &now.program;
    const gpuipc_share_config config = {.struct_size = sizeof(config),
                                        .flags = flags,
                                        .max_processes = max_processes,
                                        .expires_ms = expires_ms,
                                        .attachment = attached == 0 ? NULL : attachment,
                                        .attachment_bytes = attached};
    if (self->ticket_count < SESSION_TICKETS) {
        MUST(gpuipc_buffer_share(self->server, own_buffer(), &config,
                                 &self->tickets[self->ticket_count]));
        self->ticket_count++;
    }
}

static void make_channel(void) {
    honest *self = &now.program;
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = own_buffer(),
                                          .slots = SESSION_SLOTS,
                                          .slot_bytes = SESSION_SLOT_BYTES,
                                          .header_bytes = SESSION_HEADER,
                                          .max_readers = 2,
                                          .full = GPUIPC_FULL_DROP,
                                          .drop_after_ms = 10,
                                          .name = SESSION_CHANNEL_NAME};
    MUST(gpuipc_channel_create(self->server, &config, &self->channel, &self->channel_ticket));
}

static void serve(void) {
    honest *self = &now.program;
    const gpuipc_server_config config = {
        .struct_size = sizeof(config), .max_connections = 3, .max_connections_per_user = 2};
    if (self->server == NULL) {
        MUST(gpuipc_server_create(self->context, &config, &self->server));
        share(0, 0, 0, 0);
    }
}

static void hear_log(void *user_data, gpuipc_log_level level, const char *sentence) {
    (void)user_data;
    (void)level;
    FUZZ_CHECK(sentence[0] != '\0');
}

void honest_begin(const char *runtime_directory) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .driver = "emulated",
                                          .runtime_directory = runtime_directory,
                                          .max_buffers_per_message = SESSION_BUFFERS_MAX,
                                          .max_handles_per_message = SESSION_HANDLES_MAX,
                                          .log = hear_log};
    now.program = (honest){.context = NULL};
    MUST(gpuipc_context_create(&config, &now.program.context));
}

static void accept_one(int timeout_ms) {
    honest *self = &now.program;
    listen();
    for (unsigned i = 0; i < SESSION_CONNECTIONS; i++) {
        if (self->connections[i] == NULL) {
            (void)gpuipc_listener_accept(self->listener, timeout_ms, &self->connections[i]);
            return;
        }
    }
}

/* Of what most sessions need first the input says it with one byte. */
void honest_starts(uint8_t with, gpuipc_transport of_own) {
    now.program.transport = of_own;
    if ((with & 1u) != 0) {
        listen();
        hostile_connects(&now.input);
        accept_one(0);
    }
    if ((with & 2u) != 0) {
        serve();
        share(GPUIPC_SHARE_ONE_SHOT, 1, 1000, 9);
        hostile_connects_to_server(&now.input);
        (void)gpuipc_server_poll(now.program.server, 0);
    }
    if ((with & 4u) != 0) {
        serve();
        make_channel();
    }
}

static void end_connections(void) {
    honest *self = &now.program;
    for (unsigned i = 0; i < SESSION_CONNECTIONS; i++) {
        MUST(gpuipc_connection_close(self->connections[i]));
    }
    MUST(gpuipc_listener_close(self->listener));
}

void honest_end_all(void) {
    honest *self = &now.program;
    MUST(gpuipc_subscription_close(self->reader));
    for (unsigned i = 0; i < SESSION_BUFFERS; i++) {
        MUST(gpuipc_buffer_release(self->opened[i]));
    }
    end_connections();
    MUST(gpuipc_channel_destroy(self->channel));
    MUST(gpuipc_server_destroy(self->server));
    MUST(gpuipc_buffer_release(self->own));
    MUST(gpuipc_context_destroy(self->context));
}

/* ---- connections ------------------------------------------------------------------------------- */

static gpuipc_connection *choose(uint8_t which) {
    return now.program.connections[which % SESSION_CONNECTIONS];
}

void honest_accepts(script *from) {
    accept_one(timeout_of(script_byte(from)));
}

void honest_opens_connection(script *from) {
    honest *self = &now.program;
    const uint8_t how = script_byte(from);
    gpuipc_connection **to = &self->connections[how % SESSION_CONNECTIONS];
    if (*to == NULL) {
        (void)gpuipc_connection_open(self->context, SESSION_HOSTILE_NAME, NULL,
                                     timeout_of(how >> 1), to);
    }
}

static gpuipc_buffer **free_place(void) {
    for (unsigned i = 0; i < SESSION_BUFFERS; i++) {
        if (now.program.opened[i] == NULL) {
            return &now.program.opened[i];
        }
    }
    return NULL;
}

/* A buffer that is open has its bytes, and they can be read. */
static void check_opened(gpuipc_buffer *opened) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    uint8_t bytes[16];
    MUST(gpuipc_buffer_get_info(opened, &info));
    FUZZ_CHECK(info.bytes > 0 && info.address != 0);
    (void)gpuipc_buffer_read(opened, info.bytes > sizeof(bytes) ? info.bytes - sizeof(bytes) : 0,
                             bytes, info.bytes > sizeof(bytes) ? sizeof(bytes) : info.bytes);
}

static void keep(gpuipc_buffer *opened, bool is_looked_at) {
    gpuipc_buffer **place = free_place();
    if (is_looked_at) {
        check_opened(opened);
    }
    if (place != NULL) {
        *place = opened;
    } else {
        MUST(gpuipc_buffer_release(opened));
    }
}

/* What the peer promises and does not keep is waited for by no stream: who waits on the host has a deadline. */
void honest_receives(script *from) {
    static uint8_t bytes[SESSION_MESSAGE_MAX];
    static const uint32_t flags[] = {0, GPUIPC_RECEIVE_DEFERRED, GPUIPC_RECEIVE_KEEP_HANDLES,
                                     GPUIPC_RECEIVE_DEFERRED | GPUIPC_RECEIVE_KEEP_HANDLES};
    const uint8_t how = script_byte(from);
    gpuipc_buffer *opened[SESSION_BUFFERS_MAX];
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes = bytes,
                               .bytes_capacity = (how & 0x20u) != 0 ? 3 : sizeof(bytes),
                               .buffers = opened,
                               .buffer_capacity = (how & 0x40u) != 0 ? 0 : SESSION_BUFFERS_MAX,
                               .flags = flags[how >> 1 & 3u]};
    gpuipc_connection *connection = choose(how);
    if (connection == NULL ||
        gpuipc_connection_receive(connection, &message, timeout_of(how >> 3)) != GPUIPC_OK) {
        return;
    }
    FUZZ_CHECK(message.bytes_size <= message.bytes_capacity &&
               message.buffer_count <= message.buffer_capacity);
    for (size_t i = 0; i < message.buffer_count; i++) {
        keep(opened[i], message.flags == 0);
    }
}

void honest_sends(script *from) {
    static const uint8_t bytes[3000] = "honest";
    const uint8_t how = script_byte(from);
    gpuipc_connection *connection = choose(how);
    gpuipc_buffer *const buffers[] = {own_buffer(), own_buffer()};
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = bytes,
                                     .bytes_size = (how & 8u) != 0 ? sizeof(bytes) : 7,
                                     .buffers = buffers,
                                     .buffer_count = how >> 1 & 3u ? (how >> 1 & 3u) - 1u : 0,
                                     .flags = (how & 0x40u) != 0 ? 0 : GPUIPC_SEND_READY};
    if (connection != NULL) {
        (void)gpuipc_connection_send(connection, &message, timeout_of(how >> 4));
    }
}

void honest_closes(script *from) {
    gpuipc_connection **which = &now.program.connections[script_byte(from) % SESSION_CONNECTIONS];
    MUST(gpuipc_connection_close(*which));
    *which = NULL;
}

/* ---- tickets ----------------------------------------------------------------------------------- */

void honest_polls(script *from) {
    const uint8_t how = script_byte(from);
    serve();
    for (unsigned i = 0; i <= how % 4; i++) {
        (void)gpuipc_server_poll(now.program.server, timeout_of(how >> 2));
    }
}

void honest_shares(script *from) {
    honest *self = &now.program;
    const uint8_t how = script_byte(from);
    serve();
    switch (how % 4) {
    case 0:
        share((how & 4u) != 0 ? GPUIPC_SHARE_ONE_SHOT : 0, how >> 4 & 3u, (how & 8u) != 0 ? 50 : 0,
              (how & 0x40u) != 0 ? OS_PACKET_BYTES_MAX + 1 : 9);
        break;
    case 1:
        (void)gpuipc_server_revoke(self->server, &self->tickets[how / 4 % self->ticket_count]);
        break;
    case 2:
        if (self->channel == NULL) {
            make_channel();
        }
        break;
    default:
        MUST(gpuipc_channel_destroy(self->channel));
        self->channel = NULL;
        break;
    }
}

/* What a ticket gives is what it stands for, whatever its server says. */
static void check_range(gpuipc_buffer *opened) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    MUST(gpuipc_buffer_get_info(opened, &info));
    FUZZ_CHECK(info.bytes == SESSION_BYTES);
}

/* The peer's, or one of its own server. */
void honest_opens_ticket(script *from) {
    const uint8_t how = script_byte(from);
    honest *self = &now.program;
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    gpuipc_ticket of_peer;
    gpuipc_buffer *opened = NULL;
    const gpuipc_open_config config = {.struct_size = sizeof(config),
                                       .flags = (how & 1u) != 0 ? GPUIPC_RECEIVE_DEFERRED : 0,
                                       .timeout_ms = 1 + timeout_of(how >> 1),
                                       .info = (how & 8u) != 0 ? &info : NULL};
    hostile_ticket(&of_peer);
    if ((how & 0x10u) != 0 && self->ticket_count > 0) {
        of_peer = self->tickets[(how >> 5) % self->ticket_count];
    }
    if (gpuipc_buffer_open(self->context, &of_peer, &config, &opened) == GPUIPC_OK) {
        check_range(opened);
        keep(opened, config.flags == 0);
    }
}

/* ---- channels ---------------------------------------------------------------------------------- */

void honest_publishes(script *from) {
    static const uint8_t header[SESSION_HEADER] = "written by us";
    honest *self = &now.program;
    const uint8_t how = script_byte(from);
    gpuipc_frame frame = {.struct_size = sizeof(frame)};
    if (self->channel == NULL || gpuipc_channel_loan(self->channel, GPUIPC_NO_STREAM,
                                                     timeout_of(how), &frame) != GPUIPC_OK) {
        return;
    }
    FUZZ_CHECK(frame.capacity == SESSION_SLOT_BYTES);
    frame.header = header;
    frame.header_bytes = sizeof(header);
    if ((how & 4u) != 0) {
        MUST(gpuipc_channel_discard(self->channel, &frame));
    } else {
        (void)gpuipc_channel_publish(self->channel, &frame, GPUIPC_NO_STREAM);
    }
}

void honest_subscribes(script *from) {
    honest *self = &now.program;
    const uint8_t how = script_byte(from);
    gpuipc_ticket of_peer;
    const gpuipc_subscription_config config = {.struct_size = sizeof(config),
                                               .timeout_ms = 1 + timeout_of(how),
                                               .delivery = (gpuipc_delivery)(how >> 2 & 1u),
                                               .max_held = how >> 3 & 3u};
    if (self->reader != NULL) {
        MUST(gpuipc_subscription_close(self->reader));
        self->reader = NULL;
        self->has_taken = false;
        return;
    }
    hostile_ticket(&of_peer);
    if ((how & 0x20u) != 0) {
        (void)gpuipc_subscription_open_named(self->context, SESSION_HOSTILE_NAME, &config,
                                             &self->reader);
    } else {
        (void)gpuipc_subscription_open(self->context, &of_peer, &config, &self->reader);
    }
}

/* A frame lies in the slots, whatever its writer says. */
static void check_frame(const gpuipc_frame *frame) {
    object *behind;
    FUZZ_CHECK(object_acquire(OBJECT_SUBSCRIPTION, now.program.reader, &behind) == GPUIPC_OK);
    const buffer *slots = ((const subscription *)behind)->buffer;
    const uint64_t at = frame->address - buffer_address(slots, 0);
    FUZZ_CHECK(frame->bytes <= frame->capacity && frame->capacity <= slots->bytes &&
               at <= slots->bytes - frame->capacity);
    object_unreference(behind);
}

void honest_takes(script *from) {
    honest *self = &now.program;
    const uint8_t how = script_byte(from);
    uint8_t header[GPUIPC_FRAME_HEADER_MAX];
    intptr_t handle;
    gpuipc_frame frame = {.struct_size = sizeof(frame)};
    if (self->reader == NULL) {
        return;
    }
    if (self->has_taken) {
        (void)gpuipc_subscription_give_back(self->reader, &self->taken, GPUIPC_NO_STREAM);
        self->has_taken = false;
    }
    if ((how & 4u) != 0) {
        (void)gpuipc_subscription_get_wait_handle(self->reader, &handle);
        (void)gpuipc_subscription_check(self->reader);
    }
    if (gpuipc_subscription_take(self->reader, GPUIPC_NO_STREAM, timeout_of(how), &frame) ==
        GPUIPC_OK) {
        check_frame(&frame);
        FUZZ_CHECK(frame.header_bytes <= sizeof(header));
        if (frame.header_bytes > 0) {
            memcpy(header, frame.header, frame.header_bytes);
        }
        self->taken = frame;
        self->has_taken = true;
    }
}

/* ---- buffers ----------------------------------------------------------------------------------- */

void honest_uses_opened(script *from) {
    const uint8_t how = script_byte(from);
    gpuipc_buffer **of = &now.program.opened[how % SESSION_BUFFERS];
    if (*of == NULL) {
        return;
    }
    switch (how >> 3 & 7u) {
    case 0:
        (void)gpuipc_buffer_await_ready(*of, timeout_of(how >> 6));
        break;
    case 1:
        check_opened(*of);
        break;
    case 2:
        (void)gpuipc_buffer_return_async(*of, NULL);
        session_driver_settle();
        break;
    case 3:
        MUST(gpuipc_buffer_drop(*of));
        *of = NULL;
        break;
    default:
        MUST(gpuipc_buffer_release(*of));
        *of = NULL;
        break;
    }
}

void honest_uses_own(script *from) {
    honest *self = &now.program;
    const uint8_t how = script_byte(from);
    intptr_t handle;
    switch (how % 4) {
    case 0:
        (void)gpuipc_buffer_await_returns(own_buffer(), timeout_of(how >> 2));
        break;
    case 1:
        (void)gpuipc_buffer_get_returns_wait_handle(own_buffer(), &handle);
        break;
    default:
        MUST(gpuipc_buffer_release(self->own));
        self->own = NULL;
        break;
    }
}

void honest_asks(script *from) {
    honest *self = &now.program;
    const uint8_t how = script_byte(from);
    gpuipc_connection *connection = choose(how);
    gpuipc_peer_info peer = {.struct_size = sizeof(peer)};
    gpuipc_holder holders[4];
    gpuipc_reader_info readers[2];
    size_t count;
    intptr_t handle;
    if (connection != NULL) {
        (void)gpuipc_connection_get_peer(connection, &peer);
        (void)gpuipc_connection_get_wait_handle(connection, &handle);
    }
    if (self->ticket_count > 0) {
        (void)gpuipc_server_holders(self->server, &self->tickets[how % self->ticket_count], holders,
                                    4, &count);
    }
    if (self->channel != NULL) {
        (void)gpuipc_channel_readers(self->channel, readers, 2, &count);
    }
}

/* ---- marks and loans --------------------------------------------------------------------------- */

/* One of the peer's, by the words that its first page has. */
static void hear_mark(script *from) {
    const mark heard = {.slot =
                            (uint32_t)script_number(from, MARK_SLOTS) % (MARK_SLOTS + LOAN_SLOTS),
                        .exporter = (uint32_t)script_number(from, 1),
                        .value = (uint32_t)script_number(from, 1),
                        .secret = 0};
    mark_encode(&heard, &now.program.mark);
}

static void borrow(gpuipc_buffer *of, const gpuipc_mark *what, uint8_t how) {
    switch (how % 3) {
    case 0:
        (void)gpuipc_buffer_await_mark(of, what, timeout_of(how / 3));
        break;
    case 1:
        (void)gpuipc_buffer_take_loan(of, what);
        break;
    default:
        (void)(how / 3 % 2 == 0 ? gpuipc_buffer_return_loan(of, what)
                                : gpuipc_buffer_drop_loan(of, what));
        break;
    }
}

static void lend(gpuipc_buffer *of, gpuipc_mark *what, uint8_t how) {
    gpuipc_loan_state state;
    switch (how % 4) {
    case 0:
        (void)gpuipc_buffer_lend_ready(of, what);
        break;
    case 1:
        (void)gpuipc_buffer_get_loan_states(of, what, 1, &state);
        break;
    case 2:
        (void)gpuipc_buffer_await_loan(of, what, timeout_of(how / 4));
        break;
    default:
        (void)gpuipc_buffer_cancel_loan(of, what);
        break;
    }
}

void honest_marks(script *from) {
    honest *self = &now.program;
    const uint8_t how = script_byte(from);
    gpuipc_buffer *opened = self->opened[how >> 5];
    if ((how & 1u) != 0) {
        lend(own_buffer(), &self->mark, how >> 1 & 0xFu);
    } else if ((how & 2u) != 0) {
        hear_mark(from);
    } else if (opened != NULL) {
        borrow(opened, &self->mark, how >> 2 & 7u);
    }
}

/* ---- threads ----------------------------------------------------------------------------------- */

void honest_threads_run(script *from) {
    (void)from;
    memory_run_threads();
}
