/* SPDX-License-Identifier: MIT */
/** @file See ticket_name.h. */
#include "ticket/ticket_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "message/peer.h"
#include "ticket/server_link.h"
#include "ticket/ticket_request.h"

/* Endpoints have other names, so that none is taken for a channel. */
#define PREFIX "channel-"
/* Who waits for an answer looks so often whether the context is still there: no link of its is what he waits on. */
#define LOOK_MS 20

typedef char padded_name[GPUIPC_NAME_MAX]; /* filled up with zeroes, as on the wire */

_Static_assert(sizeof(padded_name) == sizeof(((wire_request *)0)->ticket), "a name fits");

struct ticket_name {
    table_link in_all;
    list_link of_server;
    server *server;
    os_name *os; /* NULL: its server has ended */
    gpuipc_ticket ticket;
    padded_name name;
};

/* A process that looks for its own name must not ask itself: nobody may be there to answer. */
static struct {
    os_static_mutex mutex; /* also of the servers' lists */
    hash_table names;
} all;

static void pad(const char *name, padded_name out_padded) {
    memset(out_padded, 0, sizeof(padded_name));
    for (size_t i = 0; name[i] != '\0'; i++) {
        out_padded[i] = name[i];
    }
}

static uint64_t hash_of(const padded_name name) {
    return hash_bytes(0, (const uint8_t *)name, sizeof(padded_name));
}

gpuipc_status ticket_name_check(const char *name) {
    if (name != NULL && name[0] == '@') {
        return status_fail(GPUIPC_ERR_NAME_INVALID,
                           "a channel's name is in the runtime directory: no '@' stands before it");
    }
    return peer_check_name(name);
}

/* ---- names of this process --------------------------------------------------------------------- */

static void log_sentence(void *user_data, const char *sentence) {
    context_log(user_data, GPUIPC_LOG_INFO, "%s", sentence);
}

static void endpoint_of(const char *name, char *endpoint, size_t capacity) {
    (void)snprintf(endpoint, capacity, PREFIX "%s", name);
}

/* Unless the server has ended meanwhile. */
static bool put_in(ticket_name *self) {
    server *of = self->server;
    os_static_mutex_lock(&all.mutex);
    const bool is_over = atomic_load(&of->is_over);
    if (!is_over) {
        table_add(&all.names, &self->in_all, hash_of(self->name));
        list_append(&of->names, &self->of_server);
    }
    os_static_mutex_unlock(&all.mutex);
    return !is_over;
}

gpuipc_status ticket_name_add(server *of, const char *name, const gpuipc_ticket *bytes,
                              ticket_name **out_name) {
    const os_directory directory = context_directory(of->context);
    const os_log log = {.write = log_sentence, .user_data = of->context};
    char endpoint[sizeof(PREFIX) + GPUIPC_NAME_MAX];
    ticket_name *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    made->server = of;
    made->ticket = *bytes;
    pad(name, made->name);
    endpoint_of(name, endpoint, sizeof(endpoint));
    gpuipc_status status =
        os_listener_add_name(of->listener, &directory, endpoint, &log, &made->os);
    if (status == GPUIPC_OK && put_in(made)) {
        *out_name = made;
        return GPUIPC_OK;
    }
    os_name_close(made->os);
    free(made);
    return atomic_load(&of->is_over)
               ? status_fail(GPUIPC_ERR_RELEASED, "the server was destroyed meanwhile")
               : status;
}

void ticket_name_remove(ticket_name *self) {
    if (self == NULL) {
        return;
    }
    const gpuipc_error why = status_save();
    os_static_mutex_lock(&all.mutex);
    table_remove(&all.names, &self->in_all);
    list_remove(&self->of_server);
    if (all.names.count == 0) {
        table_clear(&all.names);
    }
    os_static_mutex_unlock(&all.mutex);
    os_name_close(self->os);
    free(self);
    status_restore(&why);
}

void ticket_names_end(server *of) {
    os_static_mutex_lock(&all.mutex);
    for (list_link *link; (link = list_take(&of->names)) != NULL;) {
        ticket_name *self = LIST_ITEM(link, ticket_name, of_server);
        os_name_close(self->os);
        self->os = NULL;
    }
    os_static_mutex_unlock(&all.mutex);
}

/* The first of that name for which a server will do. */
static bool find(const char *name, bool (*will_do)(const server *of, const void *key),
                 const void *key, gpuipc_ticket *out_ticket) {
    padded_name wanted;
    bool found = false;
    pad(name, wanted);
    os_static_mutex_lock(&all.mutex);
    for (table_link *at = table_find(&all.names, hash_of(wanted)); at != NULL && !found;
         at = table_find_next(at)) {
        const ticket_name *one = TABLE_ITEM(at, ticket_name, in_all);
        found = one->os != NULL && memcmp(one->name, wanted, sizeof(wanted)) == 0 &&
                !object_is_forked(&one->server->object) && will_do(one->server, key);
        if (found) {
            *out_ticket = one->ticket;
        }
    }
    os_static_mutex_unlock(&all.mutex);
    return found;
}

static bool has_number(const server *of, const void *key) {
    return memcmp(of->id, key, sizeof(of->id)) == 0;
}

bool ticket_name_find(const uint8_t server_id[16], const char *name, gpuipc_ticket *out_ticket) {
    return find(name, has_number, server_id, out_ticket);
}

static bool is_in_directory(const server *of, const void *key) {
    return strcmp(of->context->runtime_directory, key) == 0;
}

/* ---- names of other processes ------------------------------------------------------------------ */

static gpuipc_status nobody(const char *name) {
    return status_fail(GPUIPC_ERR_NOT_FOUND, "nobody has a channel of the name \"%s\"", name);
}

/* The receive mutex is held. */
static gpuipc_status take_answer(connection *from, const char *name, gpuipc_ticket *out_ticket) {
    const incoming *in = &from->in;
    wire_reply reply;
    gpuipc_status status = wire_decode_reply(in->bytes, in->byte_count, &reply);
    if (status == GPUIPC_OK && reply.answer == WIRE_UNKNOWN) {
        status = nobody(name);
    } else if (status == GPUIPC_OK && reply.answer != WIRE_GRANTED) {
        status = ticket_reply_status(&reply);
    } else if (status == GPUIPC_OK &&
               (in->buffer_count != 0 || reply.attachment_bytes != sizeof(out_ticket->bytes))) {
        status = status_fail(GPUIPC_ERR_PROTOCOL, "who has the name answers with no ticket");
    }
    if (status == GPUIPC_OK) {
        memcpy(out_ticket->bytes, in->bytes + WIRE_REPLY_BYTES, sizeof(out_ticket->bytes));
    }
    connection_clear_message(from, true);
    return status;
}

/* The receive mutex is held. */
static gpuipc_status await_answer(connection *whom, os_deadline deadline) {
    for (;;) {
        const os_deadline look = os_deadline_inherit(os_deadline_after(LOOK_MS), deadline);
        gpuipc_status status = connection_receive_whole(
            whom, WIRE_REPLY, false, look.at_ns < deadline.at_ns ? look : deadline);
        if (status != GPUIPC_ERR_TIMEOUT || os_deadline_passed(deadline)) {
            return status;
        }
        if (atomic_load(&whom->context->is_over)) {
            return status_fail(GPUIPC_ERR_RELEASED, "the context was destroyed meanwhile");
        }
    }
}

static gpuipc_status ask(connection *whom, const char *name, os_deadline deadline,
                         gpuipc_ticket *out_ticket) {
    const wire_request wish = {.wish = WIRE_NAME};
    gpuipc_ticket in_its_place;
    pad(name, (char *)in_its_place.bytes);
    gpuipc_status status = ticket_request_send(whom, &in_its_place, &wish, deadline);
    if (status != GPUIPC_OK && status != GPUIPC_ERR_PEER_CLOSED) { /* which may have said why */
        return status;
    }
    os_mutex_lock(&whom->receive_mutex);
    status = await_answer(whom, deadline);
    if (status == GPUIPC_OK) {
        status = take_answer(whom, name, out_ticket);
    }
    connection_unlock_receiving(whom);
    return status;
}

gpuipc_status ticket_name_ask(context *ctx, const char *name, const gpuipc_endpoint_config *how,
                              os_deadline deadline, gpuipc_ticket *out_ticket) {
    char endpoint[sizeof(PREFIX) + GPUIPC_NAME_MAX];
    os_connection *os;
    connection *whom;
    if (find(name, is_in_directory, ctx->runtime_directory, out_ticket)) {
        return GPUIPC_OK;
    }
    endpoint_of(name, endpoint, sizeof(endpoint));
    gpuipc_status status = server_link_endpoint(ctx, endpoint, deadline, &os);
    if (status == GPUIPC_OK) {
        status = connection_adopt(ctx, os, how, &whom);
    }
    if (status != GPUIPC_OK) {
        return status == GPUIPC_ERR_NOT_FOUND ? nobody(name) : status;
    }
    status = ask(whom, name, deadline, out_ticket);
    const gpuipc_error why = status_save();
    connection_unreference(whom);
    status_restore(&why);
    return status == GPUIPC_ERR_PEER_CLOSED ? nobody(name) : status;
}
