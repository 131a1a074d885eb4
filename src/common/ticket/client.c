/* SPDX-License-Identifier: MIT */
/** @file See client.h. */
#include "ticket/client.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "memory/registry.h"
#include "message/peer.h"
#include "ticket/ticket_name.h"

/* Guesses at secrets that a connection has. */
#define WRONG_SECRETS_MAX 8u
/* How long the others wait for the server when it can neither accept nor refuse who comes. */
#define ACCEPT_PAUSE_MS 10
/* How many may take their time to read that they are refused. */
#define REFUSED_MAX 16u

/* How long the others wait for one client that reads a long reply: for the reply, for each of its packets, and in all. */
#define REPLY_MS      200
#define PACKET_MS     5
#define REPLY_MOST_MS 1000

struct client {
    list_link link;         /* in one of the table's lists */
    connection *connection; /* NULL: it is refused, or has ended */
    os_connection *refused; /* NULL: it is served, or has ended */
    holder *by;
    unsigned wrong_secrets;
};

static client *client_of(list_link *at) {
    return LIST_ITEM(at, client, link);
}

/* ---- the end of a client ------------------------------------------------------------------- */

static void end_served(client_table *self, client *of) {
    os_poller_remove_connection(self->poller, of->connection->os);
    quota_return(&of->connection->charge); /* a watch may need what it leaves */
    share_leave(self->shares, of->by);
    connection_leave(of->connection);
    connection_unreference(of->connection);
    of->connection = NULL;
    registry_sweep_some(self->context,
                        false); /* what was released and only exported to this client */
}

static void end_client(client_table *self, client *of) {
    if (of->connection != NULL) {
        end_served(self, of);
    } else {
        os_poller_remove_connection(self->poller, of->refused);
        os_connection_destroy(of->refused);
        of->refused = NULL;
    }
    list_remove(&of->link);
    list_append(&self->ended, &of->link);
}

void client_table_tidy(client_table *self) {
    client *of;
    while ((of = client_of(list_take(&self->ended))) != NULL) {
        free(of);
    }
}

/* The parent's conversations go on: nothing is told to anybody. */
static void forget_all(client_table *self) {
    client *of;
    while ((of = client_of(list_take(&self->served))) != NULL) {
        connection_unreference(of->connection);
        holder_abandon(of->by);
        free(of);
    }
    while ((of = client_of(list_take(&self->refused))) != NULL) {
        os_connection_destroy(of->refused);
        free(of);
    }
}

void client_table_clear(client_table *self, bool forked) {
    client_table_tidy(self);
    if (forked) {
        forget_all(self);
        return;
    }
    while (self->served.first != NULL) {
        end_client(self, client_of(self->served.first));
    }
    while (self->refused.first != NULL) {
        end_client(self, client_of(self->refused.first));
    }
    client_table_tidy(self);
}

/* ---- who is let in ------------------------------------------------------------------------- */

/* Why a client is not let in. */
typedef struct refusal {
    wire_busy why;
    uint32_t limit;
} refusal;

static gpuipc_status busy(client_table *self, const os_peer *peer, refusal *out_refusal) {
    out_refusal->limit = share_limit(self->shares, &out_refusal->why);
    const bool is_of_user = out_refusal->why == WIRE_BUSY_USER;
    return status_fail(
        GPUIPC_ERR_SERVER_BUSY,
        "process %" PRIu64 " of user %s would be one more than the %u connections %s "
        "that %s admits",
        peer->process_id, peer->user, out_refusal->limit, is_of_user ? "of a user" : "of all users",
        is_of_user ? "max_connections_per_user" : "max_connections");
}

/* As many as a 32-bit number can say. */
static refusal short_of_handles(void) {
    os_limits limits;
    os_limits_get(&limits);
    return (refusal){WIRE_BUSY_HANDLES,
                     limits.handles < UINT32_MAX ? (uint32_t)limits.handles : UINT32_MAX};
}

static gpuipc_status watch_client(client_table *self, client *of, os_connection *os,
                                  linked_list *list) {
    gpuipc_status status = os_poller_add_connection(self->poller, os, of);
    if (status == GPUIPC_OK) {
        list_append(list, &of->link);
    }
    return status;
}

/* What it is to the shares, for a client that is entered there already. */
static gpuipc_status serve_as(client_table *self, client *of, os_connection *os,
                              const os_peer *peer) {
    gpuipc_status status = watch_client(self, of, os, &self->served);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = connection_new(self->context, os, peer, &of->connection);
    if (status != GPUIPC_OK) {
        list_remove(&of->link);
        os_poller_remove_connection(self->poller, os);
        return status;
    }
    of->connection->is_served = true;
    of->by->peer = &of->connection->peer;
    return GPUIPC_OK;
}

/* On success it has taken over all. ERR_SERVER_BUSY, ERR_LIMIT: there is no place left, or no handle for it */
static gpuipc_status serve_from_now(client_table *self, os_connection *os, const os_peer *peer,
                                    refusal *out_refusal, client **out_client) {
    client *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    gpuipc_status status = share_enter(self->shares, peer, &made->by);
    if (status == GPUIPC_OK && made->by == NULL) {
        status = busy(self, peer, out_refusal);
    } else if (status == GPUIPC_OK && (status = serve_as(self, made, os, peer)) != GPUIPC_OK) {
        share_leave(self->shares, made->by);
    }
    if (status != GPUIPC_OK) {
        free(made);
        return status;
    }
    *out_client = made;
    return GPUIPC_OK;
}

static void say_busy(os_connection *os, const refusal *why) {
    const wire_header header = {
        .kind = WIRE_REPLY, .total_bytes = WIRE_REPLY_BYTES, .bytes = WIRE_REPLY_BYTES};
    const wire_reply reply = {
        .answer = WIRE_BUSY, .flags = (uint16_t)why->why, .attachment_bytes = why->limit};
    uint8_t packet[WIRE_HEADER_BYTES + WIRE_REPLY_BYTES];
    wire_encode_header(&header, packet);
    wire_encode_reply(&reply, packet + WIRE_HEADER_BYTES);
    (void)os_connection_send(os, packet, sizeof(packet), NULL, 0, os_deadline_after(0));
}

/* Takes in what it has asked, or that it has gone. */
static bool has_asked(os_connection *os) {
    uint8_t bytes[WIRE_HEADER_BYTES + WIRE_REQUEST_BYTES];
    os_handle handles[OS_PACKET_HANDLES_MAX];
    size_t size;
    size_t count = 0;
    const gpuipc_status status = os_connection_receive(os, bytes, sizeof(bytes), &size, handles,
                                                       &count, os_deadline_after(0));
    while (status == GPUIPC_OK && count > 0) {
        os_handle_close(&handles[--count]);
    }
    return status != GPUIPC_ERR_TIMEOUT;
}

/* It stays until it has asked, or goes by itself: to close a connection with something unread in it takes
 * away what the other end has not read (Linux: its next receive fails with ECONNRESET). Mostly it has asked by now. */
static void refuse(client_table *self, os_connection *os, const refusal *told) {
    const gpuipc_error why = status_save();
    client *made = NULL;
    say_busy(os, told);
    if (has_asked(os) || (made = calloc(1, sizeof(*made))) == NULL ||
        watch_client(self, made, os, &self->refused) != GPUIPC_OK) {
        free(made);
        os_connection_destroy(os);
    } else {
        made->refused = os;
    }
    if (self->refused.count > REFUSED_MAX) {
        end_client(self, client_of(self->refused.first));
    }
    status_restore(&why);
}

/* One that the system has connected. The connection is taken over, whatever comes of it. */
static gpuipc_status admit(client_table *self, os_connection *os, client **out_client) {
    os_peer peer;
    refusal why = {WIRE_BUSY_POLICY, 0};
    gpuipc_status status = os_connection_get_peer(os, &peer);
    if (status != GPUIPC_OK) {
        os_connection_destroy(os);
        return status;
    }
    status = peer_check(&peer, &self->admission);
    if (status == GPUIPC_OK) {
        status = serve_from_now(self, os, &peer, &why, out_client);
    }
    if (status == GPUIPC_OK) {
        return GPUIPC_OK;
    }
    if (status == GPUIPC_ERR_LIMIT) {
        why = short_of_handles();
        status = status_change(GPUIPC_ERR_SERVER_BUSY);
    }
    /* A client that is not told that the policy refuses it tries again, and looks for long whether this process ends. */
    if (status == GPUIPC_ERR_SERVER_BUSY || status == GPUIPC_ERR_ACCESS_DENIED) {
        refuse(self, os, &why);
    } else {
        os_connection_destroy(os);
    }
    os_peer_close(&peer);
    return status;
}

/* One that could not be accepted stays at the listener, which then is ready all the time: either it is sent away, or
 * nobody can be, for now. */
static void send_away(os_listener *listener, gpuipc_status why_not) {
    const gpuipc_error why = status_save();
    if (why_not != GPUIPC_ERR_TOO_MANY_HANDLES || !os_listener_refuse(listener)) {
        os_sleep_ms(ACCEPT_PAUSE_MS);
    }
    status_restore(&why);
}

/* Who connects asks at once, so that his request is mostly there by now. */
void client_accept(client_table *self, os_listener *listener) {
    os_connection *os;
    client *let_in = NULL;
    gpuipc_status status = os_listener_accept(listener, os_deadline_after(0), &os);
    if (status == GPUIPC_ERR_TIMEOUT) {
        return; /* it has gone again */
    }
    if (status == GPUIPC_OK) {
        (void)admit(self, os, &let_in); /* why somebody is not let in stands in the log below */
    } else {
        send_away(listener, status);
    }
    if (let_in != NULL) {
        client_serve(self, let_in);
    } else {
        context_log_peer(self->context, "server: refused a connection: %s",
                         gpuipc_error_get()->sentence);
    }
}

/* ---- what is answered ---------------------------------------------------------------------- */

static void log_failure(const client_table *self, const char *what) {
    context_log_peer(self->context, "server: %s: %s", what, gpuipc_error_get()->sentence);
}

/* @param attached NULL: nothing is */
static gpuipc_status send_reply(client *of, const wire_reply *reply,
                                const gpuipc_ticket *attached) {
    const letter as = {.kind = WIRE_REPLY};
    uint8_t bytes[WIRE_REPLY_BYTES + sizeof(attached->bytes)];
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message),
        .bytes = bytes,
        .bytes_size = WIRE_REPLY_BYTES + (attached == NULL ? 0 : sizeof(attached->bytes))};
    wire_encode_reply(reply, bytes);
    if (attached != NULL) {
        memcpy(bytes + WIRE_REPLY_BYTES, attached->bytes, sizeof(attached->bytes));
    }
    return connection_send_message(of->connection, &message, &as, 0);
}

static gpuipc_status send_answer(client *of, wire_answer answer) {
    const wire_reply reply = {.answer = (uint16_t)answer};
    return send_reply(of, &reply, NULL);
}

static gpuipc_status send_later(client *of, uint32_t later_ms) {
    const wire_reply reply = {
        .answer = WIRE_BUSY, .flags = WIRE_BUSY_LATER, .attachment_bytes = later_ms};
    return send_reply(of, &reply, NULL);
}

static size_t bytes_of_reply(const offer *of, const ticket *wanted) {
    return offer_withholds(of, wanted->offset, wanted->bytes) ? WIRE_REPLY_BYTES : of->reply_bytes;
}

static bool takes_many_packets(const offer *of, const ticket *wanted) {
    return bytes_of_reply(of, wanted) > OS_PACKET_BYTES_MAX / 2 ||
           of->of->segment_count > OS_PACKET_HANDLES_MAX;
}

static int time_of_reply_ms(const offer *of, const ticket *wanted) {
    const uint64_t packets = bytes_of_reply(of, wanted) / OS_PACKET_BYTES_MAX +
                             of->of->segment_count / OS_PACKET_HANDLES_MAX + 1;
    return packets < (REPLY_MOST_MS - REPLY_MS) / PACKET_MS ? REPLY_MS + PACKET_MS * (int)packets
                                                            : REPLY_MOST_MS;
}

/* A client that waits for one reply has room for one packet of it. Only during a long reply is a client waited for. A reply
 * that has begun has time to end, which counts for its user: later replies wait for that (share_pause_ms()). */
static gpuipc_status send_offer(client_table *self, client *of, const ticket *wanted,
                                offer *granted, point *out_point) {
    if (!takes_many_packets(granted, wanted)) {
        return offer_send(granted, of->connection, wanted->offset, wanted->bytes, 0, out_point);
    }
    const uint64_t begun_ns = os_clock_ns();
    gpuipc_status status = offer_send(granted, of->connection, wanted->offset, wanted->bytes,
                                      time_of_reply_ms(granted, wanted), out_point);
    share_spend(self->shares, of->by, os_clock_ns() - begun_ns);
    return status;
}

/* Sends what was granted, and notes the hand-over. The page of a reader goes before the reply. Where nothing of it could leave, the client is told. What has
 * left in part may be open there as well. */
static gpuipc_status send_grant(client_table *self, client *of, const ticket *wanted,
                                share_grant *grant, point_page *page) {
    connection *to = of->connection;
    point at = {NULL, 0, 0};
    gpuipc_status status = GPUIPC_OK;
    if (page != NULL) {
        status = connection_send_page(to, WIRE_CHANNEL, page, os_deadline_after(0));
    }
    if (status == GPUIPC_OK) {
        status = send_offer(self, of, wanted, grant->offer, &at);
    }
    const gpuipc_error why = status_save();
    if (page != NULL) {
        if (status != GPUIPC_OK) {
            grant->offer->channel->detach(grant->offer->channel, page);
        }
        point_page_unreference(page, false);
    }
    share_settle(self->shares, grant, status == GPUIPC_OK, &at);
    status_restore(&why);
    if (status == GPUIPC_OK || status == GPUIPC_ERR_TIMEOUT || status == GPUIPC_ERR_PEER_CLOSED ||
        connection_check(to) != GPUIPC_OK) {
        return status;
    }
    log_failure(self, "could not hand a buffer over");
    return send_answer(of, WIRE_FAILED);
}

/* What is asked for, if it is a request of this protocol. */
static gpuipc_status read_request(client *of, wire_request *out_request) {
    connection *from = of->connection;
    wire_request request;
    os_mutex_lock(&from->receive_mutex);
    gpuipc_status status =
        connection_receive_whole(from, WIRE_REQUEST, false, os_deadline_after(0));
    if (status == GPUIPC_OK) {
        status = wire_decode_request(from->in.bytes, from->in.byte_count, &request);
        connection_clear_message(from, false);
    }
    connection_unlock_receiving(from);
    if (status != GPUIPC_OK) {
        return status;
    }
    *out_request = request;
    return GPUIPC_OK;
}

/* Replies that nobody reads hold descriptors of this process's user in flight, of which he may have so many. Who has got
 * none yet, as most clients when they ask, need not be looked at. */
static gpuipc_status check_has_read(const client *of) {
    return of->connection->next_out == 0 || os_connection_is_read(of->connection->os)
               ? GPUIPC_OK
               : status_fail(GPUIPC_ERR_TOO_MANY_IN_FLIGHT,
                             "a client asks again before it has read what it was answered");
}

/* Whether what was granted is of the kind that was asked for; a reader of a channel is taken in. */
static gpuipc_status grant_wish(const client *of, const wire_request *request, const offer *offered,
                                wire_answer *out_answer, point_page **out_page) {
    if ((request->wish == WIRE_SUBSCRIBE) != (offered->channel != NULL)) {
        *out_answer = WIRE_OTHER;
        return GPUIPC_OK;
    }
    return offered->channel == NULL
               ? GPUIPC_OK
               : offered->channel->attach(offered->channel, request, of->connection->other_end,
                                          out_answer, out_page);
}

static gpuipc_status answer_unknown(client *of) {
    gpuipc_status status = send_answer(of, WIRE_UNKNOWN);
    of->wrong_secrets++;
    return status == GPUIPC_OK && of->wrong_secrets >= WRONG_SECRETS_MAX
               ? status_fail(GPUIPC_ERR_TICKET_UNKNOWN,
                             "a client asked for %u tickets that there are not", of->wrong_secrets)
               : status;
}

static gpuipc_status answer(client_table *self, client *of, const wire_request *request,
                            const ticket *wanted) {
    static const point nothing_left = {NULL, 0, 0};
    share_grant grant;
    point_page *page = NULL;
    wire_answer found = WIRE_UNKNOWN;
    uint32_t later_ms = 0;
    gpuipc_status status = GPUIPC_OK;
    if (memcmp(wanted->server_id, self->server_id, sizeof(wanted->server_id)) == 0) {
        status = share_ask(self->shares, wanted, of->by, &found, &grant);
    }
    const bool is_granted = status == GPUIPC_OK && found == WIRE_GRANTED;
    if (is_granted && takes_many_packets(grant.offer, wanted)) {
        later_ms = share_pause_ms(self->shares, of->by);
    }
    if (is_granted && later_ms == 0) {
        status = grant_wish(of, request, grant.offer, &found, &page);
    }
    if (status != GPUIPC_OK) {
        log_failure(self, "could not look a ticket up");
        found = WIRE_FAILED;
    }
    if (found == WIRE_GRANTED && later_ms == 0) {
        return send_grant(self, of, wanted, &grant, page);
    }
    if (is_granted) {
        share_settle(self->shares, &grant, false, &nothing_left);
    }
    if (later_ms != 0) {
        return send_later(of, later_ms);
    }
    return found == WIRE_UNKNOWN ? answer_unknown(of) : send_answer(of, found);
}

/* Who is let in may know what stands under a name, which says no more than who has the name. */
static gpuipc_status answer_name(client_table *self, client *of, const wire_request *request) {
    char name[sizeof(request->ticket) + 1] = "";
    gpuipc_ticket found;
    memcpy(name, request->ticket, sizeof(request->ticket));
    for (size_t i = strlen(name); i < sizeof(request->ticket); i++) {
        if (name[i] != '\0') {
            return status_fail(GPUIPC_ERR_PROTOCOL,
                               "a client asked for a name with other bytes than 0 behind its end");
        }
    }
    const wire_reply reply = {.answer = WIRE_GRANTED, .attachment_bytes = sizeof(found.bytes)};
    return ticket_name_find(self->server_id, name, &found) ? send_reply(of, &reply, &found)
                                                           : answer_unknown(of);
}

/* The request's own answer. */
static gpuipc_status answer_wish(client_table *self, client *of, const wire_request *request) {
    ticket wanted;
    gpuipc_ticket bytes;
    if (request->wish == WIRE_NAME) {
        return answer_name(self, of, request);
    }
    memcpy(bytes.bytes, request->ticket, sizeof(bytes.bytes));
    gpuipc_status status = ticket_decode(&bytes, &wanted);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (request->wish == WIRE_CONFIRM) {
        share_confirm(self->shares, &wanted, of->by);
        return GPUIPC_OK;
    }
    return answer(self, of, request, &wanted);
}

void client_serve(client_table *self, client *of) {
    wire_request request;
    if (list_has(&self->ended, &of->link)) {
        return; /* the poller had found it before */
    }
    if (of->connection == NULL) {
        end_client(self, of); /* it has asked, or gone */
        return;
    }
    os_mutex_lock(&of->connection->send_mutex);
    gpuipc_status status = read_request(of, &request);
    const bool has_asked = status == GPUIPC_OK;
    if (has_asked) {
        status = check_has_read(of);
    }
    if (status == GPUIPC_OK) {
        status = answer_wish(self, of, &request);
    }
    os_mutex_unlock(&of->connection->send_mutex);
    if (status == GPUIPC_OK || (!has_asked && status == GPUIPC_ERR_TIMEOUT)) {
        return;
    }
    if (status != GPUIPC_ERR_PEER_CLOSED) {
        log_failure(self, "ended a connection");
    }
    end_client(self, of);
}
