/* SPDX-License-Identifier: MIT */
/** @file See lease.h. */
#include "lease.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "connection.h"
#include "lease_ask.h"
#include "opening.h"
#include "peer.h"

#define OPERATION "gpuipc_buffer_open"
/* A server may end between two requests, and be found gone only by the next connection. */
#define TRIES 2
/* How many leases are looked at each time whether their servers are there. */
#define LOOKS 2

struct lease {
    uint8_t server_id[16];
    connection *connection; /* NULL while it is made */
    bool is_busy;           /* somebody asks over it */
    bool is_closed;         /* whoever asks over it ends it */
    lease *next;
};

gpuipc_status lease_table_init(lease_table *self) {
    gpuipc_status status = os_mutex_init(&self->mutex);
    if (status == GPUIPC_OK && (status = os_condition_init(&self->is_free)) != GPUIPC_OK) {
        os_mutex_destroy(&self->mutex);
    }
    return status;
}

void lease_table_end(context *ctx, bool forked) {
    (void)forked;
    os_condition_destroy(&ctx->leases.is_free);
    os_mutex_destroy(&ctx->leases.mutex);
}

/* ---- one at a time ------------------------------------------------------------------------- */

/* The mutex is held. */
static lease *find(const lease_table *table, const uint8_t server_id[16]) {
    lease *found = table->first;
    while (found != NULL && memcmp(found->server_id, server_id, sizeof(found->server_id)) != 0) {
        found = found->next;
    }
    return found;
}

/* The mutex is held. */
static gpuipc_status add(lease_table *table, const uint8_t server_id[16], lease **out_lease) {
    lease *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory("lease", sizeof(*self));
    }
    memcpy(self->server_id, server_id, sizeof(self->server_id));
    self->next = table->first;
    table->first = self;
    *out_lease = self;
    return GPUIPC_OK;
}

static gpuipc_status context_is_over(void) {
    return status_fail(GPUIPC_ERR_RELEASED, OPERATION, "the context was destroyed meanwhile");
}

/* Nobody else notices that a server is gone to which nobody has a question any more: a few are looked at in turn, and
 * those whose servers have ended come out. The mutex is held. */
static lease *take_ended(lease_table *table) {
    const lease *first_kept = NULL;
    lease *ended = NULL;
    for (int i = 0; i < LOOKS && table->first != NULL && table->first != first_kept; i++) {
        lease *at = table->first;
        table->first = at->next;
        if (!at->is_busy && os_connection_has_ended(at->connection->os)) {
            at->next = ended;
            ended = at;
            continue;
        }
        lease **last = &table->first;
        while (*last != NULL) {
            last = &(*last)->next;
        }
        at->next = NULL;
        *last = at;
        first_kept = first_kept == NULL ? at : first_kept;
    }
    return ended;
}

static void end_all(lease *ending) {
    while (ending != NULL) {
        lease *next = ending->next;
        connection_unreference(ending->connection);
        free(ending);
        ending = next;
    }
}

/* The lease on a server, for this thread alone; one without a connection is new. */
static gpuipc_status take(context *ctx, const uint8_t server_id[16], os_deadline deadline,
                          lease **out_lease) {
    lease_table *table = &ctx->leases;
    lease *self = NULL;
    gpuipc_status status = GPUIPC_OK;
    os_mutex_lock(&table->mutex);
    lease *ended = take_ended(table);
    while (!table->is_over && (self = find(table, server_id)) != NULL && self->is_busy &&
           status == GPUIPC_OK) {
        if (!os_condition_wait(&table->is_free, &table->mutex, deadline)) {
            status =
                status_fail(GPUIPC_ERR_TIMEOUT, OPERATION,
                            "other threads were asking the same server until the time ran out");
        }
    }
    if (status == GPUIPC_OK && table->is_over) {
        status = context_is_over();
    }
    if (status == GPUIPC_OK && self == NULL) {
        status = add(table, server_id, &self);
    }
    if (status == GPUIPC_OK) {
        self->is_busy = true;
        *out_lease = self;
    }
    os_mutex_unlock(&table->mutex);
    const gpuipc_error why = status_save();
    end_all(ended);
    status_restore(&why);
    return status;
}

/* The next one's turn, or, when it is of no more use, its end. */
static void give(context *ctx, lease *self, bool is_usable) {
    lease_table *table = &ctx->leases;
    connection *ended = NULL;
    os_mutex_lock(&table->mutex);
    self->is_busy = false;
    if (!is_usable || self->is_closed) {
        lease **link = &table->first;
        while (*link != self) {
            link = &(*link)->next;
        }
        *link = self->next;
        ended = self->connection;
        free(self);
    }
    os_condition_signal_all(&table->is_free);
    os_mutex_unlock(&table->mutex);
    const gpuipc_error why = status_save();
    connection_unreference(ended);
    status_restore(&why);
}

void lease_close_all(context *ctx, bool forked) {
    lease_table *table = &ctx->leases;
    lease *ending = NULL;
    if (!forked) {
        os_mutex_lock(&table->mutex);
    } else if (!os_mutex_try_lock(&table->mutex)) {
        return; /* another thread of the parent's was in it */
    }
    table->is_over = true;
    for (lease **link = &table->first, *at; (at = *link) != NULL;) {
        if (at->is_busy) {
            at->is_closed = true;
            if (at->connection != NULL && !forked) {
                atomic_store(&at->connection->closed, true);
                os_connection_interrupt(at->connection->os);
            }
            link = &at->next;
        } else {
            *link = at->next;
            at->next = ending;
            ending = at;
        }
    }
    if (!forked) {
        os_condition_signal_all(&table->is_free);
    }
    os_mutex_unlock(&table->mutex);
    end_all(ending);
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* Nobody answers to the server's name. */
static gpuipc_status explain(const context *ctx, const ticket *decoded) {
    const uint16_t boot = ticket_boot();
    const uint32_t user = ticket_user();
    /* first, since on Windows each user has his own name for the machine's start */
    if (decoded->user != 0 && user != 0 && decoded->user != user && !ctx->shared_directory) {
        return status_fail(GPUIPC_ERR_TICKET_OTHER_USER, OPERATION,
                           "nobody answers to it in this user's directory, %s",
                           ctx->runtime_directory);
    }
    if (decoded->boot != 0 && boot != 0 && decoded->boot != boot) {
        return status_fail(GPUIPC_ERR_TICKET_OTHER_BOOT, OPERATION,
                           "nobody answers to it here, and it names another start of the machine");
    }
    return status_fail(GPUIPC_ERR_EXPORTER_GONE, OPERATION,
                       "nobody answers to it any more in %s (a process that looks for its names "
                       "elsewhere needs the same GPUIPC_RUNTIME_DIR)",
                       ctx->runtime_directory);
}

/* Whether there is somebody is known at once; that he has no time yet may pass. */
static gpuipc_status open_endpoint(context *ctx, const ticket *decoded, os_deadline deadline,
                                   os_connection **out_os) {
    const os_directory directory = context_directory(ctx);
    char name[TICKET_ENDPOINT_SIZE];
    unsigned pause = 0;
    gpuipc_status status;
    ticket_endpoint(decoded->server_id, name);
    while ((status = os_connection_open(&directory, name, os_deadline_after(0), out_os)) ==
               GPUIPC_ERR_TIMEOUT &&
           !os_deadline_passed(deadline)) {
        if (atomic_load(&ctx->is_over)) {
            return context_is_over();
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
    return status == GPUIPC_ERR_NOT_FOUND ? explain(ctx, decoded) : status;
}

static gpuipc_status connect_to(context *ctx, const ticket *decoded, os_deadline deadline,
                                connection **out_connection) {
    os_connection *os;
    os_peer peer;
    gpuipc_status status = open_endpoint(ctx, decoded, deadline, &os);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = os_connection_get_peer(os, &peer);
    if (status != GPUIPC_OK) {
        goto destroy_os;
    }
    status = connection_new(ctx, os, &peer, out_connection);
    if (status != GPUIPC_OK) {
        goto close_peer;
    }
    return GPUIPC_OK;

close_peer:
    os_peer_close(&peer);
destroy_os:
    os_connection_destroy(os);
    return status;
}

/* Gives a new lease its connection. */
static gpuipc_status begin(context *ctx, lease *self, const ticket *decoded, os_deadline deadline) {
    connection *made;
    gpuipc_status status = connect_to(ctx, decoded, deadline, &made);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_mutex_lock(&ctx->leases.mutex);
    self->connection = made;
    status = self->is_closed ? context_is_over() : GPUIPC_OK;
    os_mutex_unlock(&ctx->leases.mutex);
    return status;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* What has come is found by its ticket from now on, before the next one has his turn. */
static gpuipc_status note(const lease *self, const gpuipc_ticket *bytes,
                          const gpuipc_open_config *config, const lease_given *came) {
    buffer *opened;
    gpuipc_status status = buffer_acquire(came->buffer, OPERATION, &opened);
    if (status == GPUIPC_OK) {
        status = opening_add(opened, bytes, config, &self->connection->peer, came->attachment,
                             came->attachment_bytes, true);
        buffer_drop(opened);
    }
    if (status != GPUIPC_OK) {
        free(came->attachment);
        buffer_release_later(came->buffer);
    }
    return status;
}

/* A new one gets its connection; and whoever asks looks whom he asks. */
static gpuipc_status prepare(context *ctx, lease *self, const ticket *decoded,
                             const gpuipc_open_config *config, os_deadline deadline) {
    const gpuipc_endpoint_config whom = {.struct_size = sizeof(whom),
                                         .policy = config->policy,
                                         .policy_user_data = config->policy_user_data};
    gpuipc_status status = GPUIPC_OK;
    if (self->connection == NULL) {
        status = begin(ctx, self, decoded, deadline);
    }
    return status == GPUIPC_OK ? peer_check(&self->connection->peer, &whom, OPERATION) : status;
}

static gpuipc_status ask_once(context *ctx, const gpuipc_ticket *bytes, const ticket *decoded,
                              const gpuipc_open_config *config, os_deadline deadline,
                              buffer **out_found, gpuipc_buffer **out_opened) {
    lease *self;
    lease_given came = {.buffer = NULL};
    gpuipc_status status = take(ctx, decoded->server_id, deadline, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    bool is_usable = self->connection != NULL; /* for others, whose policy let it in */
    *out_found = opening_find(ctx, bytes, config);
    if (*out_found == NULL) {
        status = prepare(ctx, self, decoded, config, deadline);
        if (status == GPUIPC_OK &&
            (status = lease_ask(self->connection, bytes, config, deadline, &came, &is_usable)) ==
                GPUIPC_OK &&
            (status = note(self, bytes, config, &came)) == GPUIPC_OK) {
            *out_opened = came.buffer;
        }
    }
    give(ctx, self, is_usable);
    return status;
}

gpuipc_status lease_request(context *ctx, const gpuipc_ticket *bytes, const ticket *decoded,
                            const gpuipc_open_config *config, os_deadline deadline,
                            buffer **out_found, gpuipc_buffer **out_opened) {
    gpuipc_status status = GPUIPC_ERR_PEER_CLOSED;
    for (int i = 0; i < TRIES && status == GPUIPC_ERR_PEER_CLOSED; i++) {
        status = ask_once(ctx, bytes, decoded, config, deadline, out_found, out_opened);
    }
    if (status == GPUIPC_ERR_PEER_CLOSED) {
        /* It listens, and closes what it has just let in. */
        status = status_fail(GPUIPC_ERR_SERVER_BUSY, OPERATION, "the server closes the connection");
    }
    return status;
}
