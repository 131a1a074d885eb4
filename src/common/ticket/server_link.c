/* SPDX-License-Identifier: MIT */
/** @file See server_link.h. */
#include "ticket/server_link.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "memory/buffer.h"
#include "message/connection.h"
#include "message/peer.h"
#include "ticket/ticket_cache.h"
#include "ticket/ticket_request.h"

/* A server may end between two requests, and be found gone only by the next connection. */
#define TRIES 2
/* A process that was killed loses its connections before it has ended, and lets others in until its listener is closed. It
 * is given so long to be seen gone before it is called busy; on a loaded machine up to 65 ms were measured. */
#define DYING_MS 500
/* A server answers in less, and to be woken takes about as long. */
#define LOOK_US 200u
/* How many links are looked at each time whether their servers are there. */
#define LOOKS 2

typedef struct server_link {
    uint8_t server_id[16];
    connection *connection; /* NULL while it is made */
    bool is_busy;           /* somebody asks over it */
    bool is_closed;         /* whoever asks over it ends it */
    table_link by_server;
    list_link in_turn; /* or in a list of those that end */
} server_link;

static server_link *link_of(list_link *at) {
    return LIST_ITEM(at, server_link, in_turn);
}

static gpuipc_status begin_links(context *ctx) {
    ctx->links->seed = ctx->seed;
    return os_condition_init(&ctx->links->is_free);
}

static void end_links(context *ctx, bool is_forked) {
    (void)is_forked;
    table_clear(&ctx->links->by_server);
    os_condition_destroy(&ctx->links->is_free);
}

const context_part server_links_part = {CONTEXT_PART(links, server_links), .begin = begin_links,
                                        .end = end_links};

/* ---- one at a time ------------------------------------------------------------------------- */

static uint64_t hash_of(const server_links *self, const uint8_t server_id[16]) {
    return hash_bytes(self->seed, server_id, 16);
}

/* The mutex is held. */
static server_link *find(const server_links *self, const uint8_t server_id[16]) {
    server_link *found = NULL;
    for (table_link *at = table_find(&self->by_server, hash_of(self, server_id));
         at != NULL && found == NULL; at = table_find_next(at)) {
        server_link *one = TABLE_ITEM(at, server_link, by_server);
        found = memcmp(one->server_id, server_id, 16) == 0 ? one : NULL;
    }
    return found;
}

/* The mutex is held. */
static gpuipc_status add(server_links *to, const uint8_t server_id[16], server_link **out_link) {
    server_link *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    memcpy(self->server_id, server_id, sizeof(self->server_id));
    table_add(&to->by_server, &self->by_server, hash_of(to, server_id));
    list_append(&to->in_turn, &self->in_turn);
    *out_link = self;
    return GPUIPC_OK;
}

/* Out of the links, into those that end. The mutex is held. */
static void take_out(server_links *of, server_link *self, linked_list *ending) {
    table_remove(&of->by_server, &self->by_server);
    list_remove(&self->in_turn);
    list_append(ending, &self->in_turn);
}

static gpuipc_status context_is_over(void) {
    return status_fail(GPUIPC_ERR_RELEASED, "the context was destroyed meanwhile");
}

/* The error record stays. */
static void end_all(linked_list *ending) {
    const gpuipc_error why = status_save();
    server_link *at;
    while ((at = link_of(list_take(ending))) != NULL) {
        connection_unreference(at->connection);
        free(at);
    }
    status_restore(&why);
}

/* Nobody else notices that a server is gone to which nobody has a question any more: a few are looked at in turn, and
 * those whose servers have ended come to their end. */
static void look_at_some(server_links *self) {
    linked_list ending = {0};
    os_mutex_lock(&self->mutex);
    for (size_t i = 0; i < LOOKS && i < self->in_turn.count; i++) {
        server_link *at = link_of(list_turn(&self->in_turn));
        if (!at->is_busy && os_connection_has_ended(at->connection->os)) {
            take_out(self, at, &ending);
        }
    }
    os_mutex_unlock(&self->mutex);
    end_all(&ending);
}

/* The link to a server, for this thread alone; one without a connection is new. */
static gpuipc_status take(context *ctx, const uint8_t server_id[16], os_deadline deadline,
                          server_link **out_link) {
    server_links *links = ctx->links;
    server_link *self = NULL;
    gpuipc_status status = GPUIPC_OK;
    os_mutex_lock(&links->mutex);
    while (!links->is_over && (self = find(links, server_id)) != NULL && self->is_busy &&
           status == GPUIPC_OK) {
        if (!os_condition_wait(&links->is_free, &links->mutex, deadline)) {
            status =
                status_fail(GPUIPC_ERR_TIMEOUT,
                            "other threads were asking the same server until the time ran out");
        }
    }
    if (status == GPUIPC_OK && links->is_over) {
        status = context_is_over();
    }
    if (status == GPUIPC_OK && self == NULL) {
        status = add(links, server_id, &self);
    }
    if (status == GPUIPC_OK) {
        self->is_busy = true;
        *out_link = self;
    }
    os_mutex_unlock(&links->mutex);
    return status;
}

/* The next one's turn, or, when it is of no more use, its end. */
static void give(context *ctx, server_link *self, bool is_usable) {
    server_links *links = ctx->links;
    linked_list ending = {0};
    os_mutex_lock(&links->mutex);
    self->is_busy = false;
    if (!is_usable || self->is_closed) {
        take_out(links, self, &ending);
    }
    os_condition_signal_all(&links->is_free);
    os_mutex_unlock(&links->mutex);
    end_all(&ending);
}

void server_links_close(context *ctx, bool forked) {
    server_links *links = ctx->links;
    linked_list ending = {0};
    if (!forked) {
        os_mutex_lock(&links->mutex);
    } else if (!os_mutex_try_lock(&links->mutex)) {
        return; /* another thread of the parent's was in it */
    }
    links->is_over = true;
    for (list_link *link = links->in_turn.first, *next; link != NULL; link = next) {
        server_link *at = link_of(link);
        next = link->next;
        if (!at->is_busy) {
            take_out(links, at, &ending);
            continue;
        }
        at->is_closed = true;
        if (at->connection != NULL && !forked) {
            /* Who asks settles it: a page that has come and is thrown away unread could not be returned any more. */
            atomic_store(&at->connection->ended, true);
            os_connection_stop(at->connection->os);
        }
    }
    if (!forked) {
        os_condition_signal_all(&links->is_free);
    }
    os_mutex_unlock(&links->mutex);
    end_all(&ending);
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* Nobody answers to the server's name. */
static gpuipc_status explain(const context *ctx, const ticket *decoded) {
    char room[STATUS_PATH_MAX];
    const uint16_t boot = ticket_boot();
    const uint32_t user = ticket_user();
    /* first, since on Windows each user has his own name for the machine's start */
    if (decoded->user != 0 && user != 0 && decoded->user != user && !ctx->shared_directory) {
        return status_fail(GPUIPC_ERR_TICKET_OTHER_USER,
                           "nobody answers to it in this user's directory, %s",
                           ctx->runtime_directory);
    }
    if (decoded->boot != 0 && boot != 0 && decoded->boot != boot) {
        return status_fail(GPUIPC_ERR_TICKET_OTHER_BOOT,
                           "nobody answers to it here, and it names another start of the machine");
    }
    return status_fail(GPUIPC_ERR_EXPORTER_GONE,
                       "no server answers to it in %s: it has ended, or a logout or a cleaner "
                       "removed its socket there, which it makes again within a second or when it "
                       "shares next, or it has another GPUIPC_RUNTIME_DIR",
                       status_path(ctx->runtime_directory, room));
}

gpuipc_status server_link_endpoint(context *ctx, const char *name, os_deadline deadline,
                                   os_connection **out_os) {
    const os_directory directory = context_directory(ctx);
    unsigned pause = 0;
    gpuipc_status status;
    while ((status = os_connection_open(&directory, name, os_deadline_after(0), out_os)) ==
               GPUIPC_ERR_TIMEOUT &&
           !os_deadline_passed(deadline)) {
        if (atomic_load(&ctx->is_over)) {
            return context_is_over();
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
    return status;
}

static gpuipc_status open_endpoint(context *ctx, const ticket *decoded, os_deadline deadline,
                                   os_connection **out_os) {
    char name[TICKET_ENDPOINT_SIZE];
    ticket_endpoint(decoded->server_id, name);
    const gpuipc_status status = server_link_endpoint(ctx, name, deadline, out_os);
    return status == GPUIPC_ERR_NOT_FOUND ? explain(ctx, decoded) : status;
}

static gpuipc_status connect_to(context *ctx, const ticket *decoded, os_deadline deadline,
                                connection **out_connection) {
    os_connection *os;
    gpuipc_status status = open_endpoint(ctx, decoded, deadline, &os);
    if (status == GPUIPC_OK) {
        status = connection_adopt(ctx, os, NULL, out_connection);
    }
    if (status == GPUIPC_OK) {
        os_connection_set_look(os, LOOK_US);
    }
    return status;
}

/* Gives a new link its connection. */
static gpuipc_status begin(context *ctx, server_link *self, const ticket *decoded,
                           os_deadline deadline) {
    connection *made;
    gpuipc_status status = connect_to(ctx, decoded, deadline, &made);
    if (status != GPUIPC_OK) {
        return status;
    }
    os_mutex_lock(&ctx->links->mutex);
    self->connection = made;
    status = self->is_closed ? context_is_over() : GPUIPC_OK;
    os_mutex_unlock(&ctx->links->mutex);
    return status;
}

/* ---- opening ------------------------------------------------------------------------------- */

/* A new one gets its connection; and whoever asks looks whom he asks. */
static gpuipc_status prepare(context *ctx, server_link *self, const ticket *decoded,
                             const gpuipc_open_config *config, os_deadline deadline) {
    const gpuipc_endpoint_config whom = {.struct_size = sizeof(whom),
                                         .policy = config->policy,
                                         .policy_user_data = config->policy_user_data};
    gpuipc_status status = GPUIPC_OK;
    if (self->connection == NULL) {
        status = begin(ctx, self, decoded, deadline);
    }
    return status == GPUIPC_OK ? peer_check(&self->connection->peer, &whom) : status;
}

static os_deadline earlier(os_deadline one, os_deadline other) {
    return one.at_ns < other.at_ns ? one : other;
}

/* The connection has ended without an answer: either its process ends, or it goes on and closes what it lets in. */
static gpuipc_status tell_end(point_peer *peer, os_deadline until) {
    unsigned pause = 0;
    int is_running;
    while ((is_running = point_peer_is_running(peer)) != 0 && !os_deadline_passed(until)) {
        os_sleep_ms(os_backoff_next(&pause, until));
    }
    return is_running == 0 ? status_fail(GPUIPC_ERR_EXPORTER_GONE, "the server's process has ended")
                           : GPUIPC_ERR_PEER_CLOSED;
}

/* What is asked of a server, and what has come. */
typedef struct question {
    const gpuipc_ticket *bytes;
    const ticket *decoded;
    const gpuipc_open_config *config;
    const wire_request *wish;
    os_deadline deadline;
    ticket_given came; /* its buffer is held */
    point_page *page;  /* of a subscription */
    bool is_cut;       /* the connection ended within the reply */
} question;

/* The ticket finds the buffer from now on, before another thread asks over the link. */
static gpuipc_status note(const server_link *self, question *what) {
    ticket_given *came = &what->came;
    gpuipc_status status = ticket_cache_add(came->buffer, what->bytes, what->config,
                                            &self->connection->peer, came, true);
    if (status != GPUIPC_OK) {
        free(came->attachment);
        buffer_release_later(came->buffer);
        *came = (ticket_given){.buffer = NULL};
    }
    return status;
}

/* Of a channel nothing is found by its ticket: each subscription has its own page. */
static gpuipc_status take_channel(const server_link *self, question *what) {
    os_handle handle;
    connection *from = self->connection;
    gpuipc_status status = connection_take_channel_page(from, &handle);
    free(what->came.attachment);
    what->came.attachment = NULL;
    if (status == GPUIPC_OK) {
        status = point_page_open(from->context, from->other_end, handle, &what->page);
        os_handle_close(&handle);
    }
    if (status != GPUIPC_OK) {
        buffer_release_later(what->came.buffer);
        what->came.buffer = NULL;
    }
    return status;
}

/* Other links are looked at while the server answers, which takes as long as to end one. */
static gpuipc_status ask(context *ctx, server_link *self, question *what, bool *out_is_usable) {
    connection *over = self->connection;
    const bool subscribes = what->wish->wish == WIRE_SUBSCRIBE;
    gpuipc_status status = ticket_request_send(over, what->bytes, what->wish, what->deadline);
    over->awaits_channel = subscribes;
    *out_is_usable = false;
    if (status == GPUIPC_OK || status == GPUIPC_ERR_PEER_CLOSED) { /* which may have said why */
        look_at_some(ctx->links);
        status = ticket_request_receive(over, what->config, what->decoded->bytes, what->deadline,
                                        &what->came, out_is_usable);
    }
    if (status == GPUIPC_OK) {
        buffer_hold(what->came.buffer);
        status = subscribes ? take_channel(self, what) : note(self, what);
    }
    if (status == GPUIPC_OK && what->came.is_one_shot) {
        ticket_request_confirm(over, what->bytes);
    }
    what->is_cut = over->is_cut;
    os_handle_close(&over->channel_page); /* of a reply that did not come */
    over->awaits_channel = false;
    return status;
}

static gpuipc_status ask_once(context *ctx, question *what, bool is_last) {
    server_link *self;
    const os_deadline deadline = what->deadline;
    gpuipc_status status = take(ctx, what->decoded->server_id, deadline, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    bool is_usable = self->connection != NULL; /* for others, whose policy let it in */
    if (what->wish->wish == WIRE_OPEN) {
        what->came.buffer = ticket_cache_find(ctx, what->bytes, what->config);
    }
    if (what->came.buffer == NULL) {
        status = prepare(ctx, self, what->decoded, what->config, deadline);
        if (status == GPUIPC_OK) {
            status = ask(ctx, self, what, &is_usable);
        }
        if (status == GPUIPC_ERR_PEER_CLOSED && self->connection != NULL) {
            /* It may have ended with its server alone, which a new one finds out at once. */
            const os_deadline until =
                is_last ? earlier(deadline, os_deadline_after(DYING_MS)) : (os_deadline){0};
            status = tell_end(self->connection->other_end, until);
        }
    }
    give(ctx, self, is_usable);
    return status;
}

static gpuipc_status ask_in_tries(context *ctx, question *what) {
    gpuipc_status status = GPUIPC_ERR_PEER_CLOSED;
    what->came = (ticket_given){.buffer = NULL};
    what->is_cut = false;
    for (int i = 1; i <= TRIES && status == GPUIPC_ERR_PEER_CLOSED; i++) {
        status = ask_once(ctx, what, i == TRIES);
    }
    return status;
}

/* The server has no time for a long reply now. Other threads use the link meanwhile. The record has the failure where the
 * server's time comes too late for this call. */
static gpuipc_status await_time(const context *ctx, const question *what) {
    const int later_ms = what->came.later_ms < INT_MAX ? (int)what->came.later_ms : INT_MAX;
    const os_deadline again = os_deadline_inherit(os_deadline_after(later_ms), what->deadline);
    unsigned pause = 0;
    if (again.at_ns >= what->deadline.at_ns) {
        return GPUIPC_ERR_SERVER_BUSY;
    }
    while (!os_deadline_passed(again)) {
        if (atomic_load(&ctx->is_over)) {
            return context_is_over();
        }
        os_sleep_ms(os_backoff_next(&pause, again));
    }
    return os_deadline_passed(what->deadline)
               ? status_fail(GPUIPC_ERR_TIMEOUT, "the wait for the server was interrupted")
               : GPUIPC_OK;
}

static gpuipc_status ask_server(context *ctx, question *what) {
    gpuipc_status status = ask_in_tries(ctx, what);
    while (status == GPUIPC_ERR_SERVER_BUSY && what->came.later_ms != 0 &&
           (status = await_time(ctx, what)) == GPUIPC_OK) {
        status = ask_in_tries(ctx, what);
    }
    if (status == GPUIPC_ERR_RELEASED) { /* the link was closed, which the user did not know of */
        status = context_is_over();
    }
    if (status == GPUIPC_ERR_PEER_CLOSED && what->is_cut) {
        return status_fail(GPUIPC_ERR_SERVER_BUSY,
                           "the server closed the connection within its reply: this process did "
                           "not read the reply within a second, or the server is ending");
    }
    if (status == GPUIPC_ERR_PEER_CLOSED) {
        /* It listens, and closes what it has just let in. */
        status =
            status_fail(GPUIPC_ERR_SERVER_BUSY,
                        "the server closes the connection at once: its process can open no more "
                        "descriptors or handles (raise its limit, ulimit -n), or it is ending");
    }
    return status;
}

gpuipc_status server_link_open(context *ctx, const gpuipc_ticket *bytes, const ticket *decoded,
                               const gpuipc_open_config *config, os_deadline deadline,
                               buffer **out_opened) {
    const wire_request wish = {.wish = WIRE_OPEN};
    question what = {
        .bytes = bytes, .decoded = decoded, .config = config, .wish = &wish, .deadline = deadline};
    gpuipc_status status = ask_server(ctx, &what);
    if (status == GPUIPC_OK) {
        *out_opened = what.came.buffer;
    }
    return status;
}

gpuipc_status server_link_subscribe(context *ctx, const gpuipc_ticket *bytes, const ticket *decoded,
                                    const gpuipc_open_config *config, const wire_request *wish,
                                    os_deadline deadline, buffer **out_opened,
                                    point_page **out_page) {
    question what = {
        .bytes = bytes, .decoded = decoded, .config = config, .wish = wish, .deadline = deadline};
    gpuipc_status status = ask_server(ctx, &what);
    if (status == GPUIPC_OK) {
        *out_opened = what.came.buffer;
        *out_page = what.page;
    }
    return status;
}
