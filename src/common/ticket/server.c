/* SPDX-License-Identifier: MIT */
/** @file See server.h; the public functions of servers. */
#include "ticket/server.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/struct_size.h"
#include "ticket/ticket_name.h"

#define DEFAULT_CONNECTIONS          4096u
#define DEFAULT_CONNECTIONS_PER_USER 1024u
/* So long those who got a one-shot ticket have to say that it is open, or to ask again. */
#define CONFIRM_NS UINT64_C(10000000000)
/* How many that are ready are looked after before the poller is asked again. */
#define READY_MAX 64

/* A process that opens its own ticket asks the server by a call: the thread that would have to answer may be the
 * one that asks. The table refers to its servers without keeping them. */
static struct {
    os_static_mutex mutex;
    hash_table servers;
} all;

/* Its number is made of random numbers, by this process itself. */
static uint64_t hash_of(const uint8_t id[16]) {
    return hash_bytes(0, id, 16);
}

static void put_in(server *self) {
    os_static_mutex_lock(&all.mutex);
    table_add(&all.servers, &self->in_all, hash_of(self->id));
    os_static_mutex_unlock(&all.mutex);
}

static void take_out(server *self) {
    os_static_mutex_lock(&all.mutex);
    table_remove(&all.servers, &self->in_all);
    if (all.servers.count == 0) {
        table_clear(&all.servers);
    }
    os_static_mutex_unlock(&all.mutex);
}

server *server_find(const uint8_t id[16]) {
    server *found = NULL;
    os_static_mutex_lock(&all.mutex);
    for (table_link *at = table_find(&all.servers, hash_of(id)); at != NULL && found == NULL;
         at = table_find_next(at)) {
        server *one = TABLE_ITEM(at, server, in_all);
        if (memcmp(one->id, id, sizeof(one->id)) == 0 && !object_is_forked(&one->object)) {
            object_reference(&one->object);
            found = one;
        }
    }
    os_static_mutex_unlock(&all.mutex);
    return found;
}

/* ---- serving ------------------------------------------------------------------------------- */

/* Somebody has ended, and not all of his is taken away yet. It is looked at in steps, each once, so this ends. */
static bool is_taking_away(server *self) {
    return self->exports_to_look > 0 || share_next_expiry(&self->shares).at_ns == 0;
}

/* The deadline, or when something expires or is to be looked at, if that is earlier; at once while there is something to
 * take away. */
static os_deadline until_expiry(server *self, os_deadline deadline) {
    os_deadline next = share_next_expiry(&self->shares);
    if (is_taking_away(self)) {
        next.at_ns = 0;
    } else if (self->next_renewal.at_ns < next.at_ns) {
        next = self->next_renewal;
    }
    return next.at_ns < deadline.at_ns ? os_deadline_inherit(next, deadline) : deadline;
}

typedef struct ready {
    void *tags[READY_MAX];
    size_t count;
} ready;

/* Nobody is ready when it fails. */
static gpuipc_status await_ready(server *self, os_deadline deadline, ready *out_found) {
    out_found->count = 0;
    return os_poller_wait(self->poller, until_expiry(self, deadline), out_found->tags, READY_MAX,
                          &out_found->count);
}

static gpuipc_status renew_names(server *self, int wait_ms) {
    const gpuipc_status status = os_listener_renew(self->listener, wait_ms);
    if (status == GPUIPC_OK) {
        atomic_store(&self->is_nameless, false);
    } else if (status != GPUIPC_ERR_RELEASED && !atomic_exchange(&self->is_nameless, true)) {
        context_log(self->context, GPUIPC_LOG_WARNING, "server: no new client can connect: %s",
                    gpuipc_error_get()->sentence);
    }
    return status;
}

gpuipc_status server_renew_names(server *self) {
    const gpuipc_status status = renew_names(self, OS_NAMES_WAIT_MS);
    if (status == GPUIPC_ERR_RELEASED) {
        return status_fail(GPUIPC_ERR_RELEASED, "the server was destroyed meanwhile");
    }
    return status != GPUIPC_OK && share_has_clients(&self->shares) ? GPUIPC_OK : status;
}

/* In every round, once a second: old tickets and names of channels are to work again as well. Clients do not wait
 * for the directory's lock, which another process of a shared directory can keep. */
static void renew_in_time(server *self) {
    if (os_deadline_passed(self->next_renewal)) {
        (void)renew_names(self, 0);
        self->next_renewal = os_deadline_after(OS_RENEW_MS);
    }
}

/* One request of each client, so that no client keeps the others waiting. The serving mutex is held.
 * @return how many were served */
static size_t look_after(server *self, const ready *found) {
    size_t served = 0;
    for (size_t i = 0; i < found->count && !atomic_load(&self->is_over); i++) {
        void *tag = found->tags[i];
        if (tag == OS_POLLER_WOKEN) { /* maybe by the end of a process */
            share_notice_end(&self->shares);
            self->exports_to_look = SIZE_MAX;
            continue;
        }
        if (tag == self) {
            client_accept(&self->clients, self->listener);
        } else {
            client_serve(&self->clients, tag);
        }
        served++;
    }
    client_table_tidy(&self->clients);
    renew_in_time(self);
    share_sweep(&self->shares);
    export_look_on(self->context, &self->exports_to_look);
    return served;
}

/* Its reference is the thread's own. A forked child does not have that thread, and gives the reference up unless the thread
 * was serving somebody. */
static void run(void *argument) {
    server *self = argument;
    unsigned pause = 0;
    status_thread_scope()->serving = self;
    while (!atomic_load(&self->is_over)) {
        ready found;
        gpuipc_status status = await_ready(self, os_deadline_after(-1), &found);
        os_mutex_lock(&self->serving);
        (void)look_after(self, &found);
        os_mutex_unlock(&self->serving);
        if (status == GPUIPC_OK) {
            pause = 0;
            continue;
        }
        /* No memory, say: it may pass. */
        context_log(self->context, GPUIPC_LOG_WARNING, "server: cannot wait for clients: %s",
                    gpuipc_error_get()->sentence);
        os_sleep_ms(os_backoff_next(&pause, os_deadline_after(-1)));
    }
    object_unreference(&self->object);
}

/* ---- making and ending --------------------------------------------------------------------- */

static void destroy(object *base) {
    server *self = (server *)base;
    const bool forked = object_is_forked(base);
    take_out(self);
    share_table_destroy(&self->shares, forked);
    client_table_clear(&self->clients, forked);
    places_destroy(&self->shares.places);
    known_processes_destroy(&self->shares.processes);
    os_poller_destroy(self->poller);
    os_listener_destroy(self->listener);
    context_unreference(self->context);
    free(self);
}

static void log_sentence(void *user_data, const char *sentence) {
    context_log(user_data, GPUIPC_LOG_INFO, "server: %s", sentence);
}

static gpuipc_status listen(server *self) {
    const os_directory directory = context_directory(self->context);
    const os_log log = {.write = log_sentence, .user_data = self->context};
    char name[TICKET_ENDPOINT_SIZE];
    gpuipc_status status = os_random(self->id, sizeof(self->id));
    if (status != GPUIPC_OK) {
        return status;
    }
    ticket_endpoint(self->id, name);
    if ((status = os_listener_open(&directory, name, &log, &self->listener)) != GPUIPC_OK) {
        return status;
    }
    self->next_renewal = os_deadline_after(OS_RENEW_MS);
    /* A server that was killed has left its name, which is random, so that nobody wants it again, nor replaces it. */
    os_directory_sweep(&directory, TICKET_ENDPOINT_PREFIX);
    if ((status = os_poller_create(&self->poller)) != GPUIPC_OK) {
        goto destroy_listener;
    }
    if ((status = os_poller_add_listener(self->poller, self->listener, self)) != GPUIPC_OK) {
        goto destroy_poller;
    }
    return GPUIPC_OK;

destroy_poller:
    os_poller_destroy(self->poller);
destroy_listener:
    os_listener_destroy(self->listener);
    return status;
}

static gpuipc_status make(context *ctx, const gpuipc_server_config *config, server **out_server) {
    server *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    self->context = ctx;
    self->boot = ticket_boot();
    self->user = ticket_user();
    self->has_thread = (config->flags & GPUIPC_SERVER_THREAD) != 0;
    atomic_init(&self->is_over, false);
    atomic_init(&self->is_nameless, false);
    self->shares.confirm_ns = CONFIRM_NS;
    self->shares.places =
        (places){.most = config->max_connections, .most_of_user = config->max_connections_per_user};
    gpuipc_status status = listen(self);
    if (status != GPUIPC_OK) {
        free(self);
        return status;
    }
    self->shares.woken = self->poller;
    self->clients = (client_table){.context = ctx,
                                   .poller = self->poller,
                                   .shares = &self->shares,
                                   .server_id = self->id,
                                   .admission = {.struct_size = sizeof(self->clients.admission),
                                                 .policy = config->policy,
                                                 .policy_user_data = config->policy_user_data}};
    object_init(&self->object, OBJECT_SERVER, destroy);
    object_reference(&ctx->object);
    *out_server = self;
    return GPUIPC_OK;
}

/* From now on its tickets are answered. */
static gpuipc_status start(server *self, void **out_handle) {
    gpuipc_status status = GPUIPC_OK;
    if (self->has_thread) {
        object_reference(&self->object);
        status = os_thread_start(run, self, &self->thread);
        if (status != GPUIPC_OK) {
            object_unreference(&self->object);
        }
    }
    if (status == GPUIPC_OK) {
        put_in(self);
        status = object_publish(&self->object, out_handle);
    }
    return status;
}

/* Nobody is answered any more; the thread that just serves somebody is waited for. */
static void end(server *self) {
    const gpuipc_error why = status_save();
    take_out(self);
    atomic_store(&self->is_over, true);
    ticket_names_end(self);
    os_poller_wake(self->poller);
    if (self->thread != NULL) {
        os_thread_join(self->thread);
        self->thread = NULL;
    }
    os_mutex_lock(&self->serving);
    os_listener_interrupt(self->listener);
    client_table_clear(&self->clients, false);
    os_mutex_unlock(&self->serving);
    share_table_clear(&self->shares);
    status_restore(&why);
}

/* In a child. What a thread of the parent's was in the midst of is left alone. */
static void forget_thread(server *self) {
    if (self->thread != NULL && os_mutex_try_lock(&self->serving)) {
        os_mutex_unlock(&self->serving);
        os_thread_forget(self->thread);
        self->thread = NULL;
        object_unreference(&self->object);
    }
}

static gpuipc_status read_config(const gpuipc_server_config *config,
                                 gpuipc_server_config *out_known) {
    gpuipc_server_config known = {.flags = GPUIPC_SERVER_THREAD};
    if (config != NULL) {
        gpuipc_status status = struct_size_read(
            config, STRUCT_SIZE_UP_TO(gpuipc_server_config, reserved), &known, sizeof(known));
        if (status != GPUIPC_OK) {
            return status;
        }
    }
    if ((known.flags & ~GPUIPC_SERVER_THREAD) != 0 || known.reserved != 0) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "flags (0x%x) has bits that this library does not know, or reserved is "
                           "not 0",
                           known.flags);
    }
    if (known.max_connections == 0) {
        known.max_connections = DEFAULT_CONNECTIONS;
    }
    if (known.max_connections_per_user == 0) {
        known.max_connections_per_user = DEFAULT_CONNECTIONS_PER_USER;
    }
    *out_known = known;
    return GPUIPC_OK;
}

gpuipc_status gpuipc_server_create(gpuipc_context *handle, const gpuipc_server_config *config,
                                   gpuipc_server **out_server) {
    status_enter(__func__);
    gpuipc_server_config known = {0};
    context *ctx;
    server *self = NULL;
    void *made;
    gpuipc_status status;
    if (out_server == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_server is NULL");
    }
    if ((status = read_config(config, &known)) != GPUIPC_OK ||
        (status = context_acquire(handle, &ctx)) != GPUIPC_OK) {
        return status;
    }
    status = make(ctx, &known, &self);
    if (status == GPUIPC_OK) {
        status = start(self, &made);
        if (status == GPUIPC_OK) {
            *out_server = made;
        } else {
            end(self);
            object_unreference(&self->object);
        }
    }
    context_unreference(ctx);
    return status;
}

/* Of what is no server, the caller finds out. */
static bool is_served_here(gpuipc_server *handle) {
    object *base;
    if (status_thread_scope()->serving == NULL ||
        object_acquire(OBJECT_SERVER, handle, &base) != GPUIPC_OK) {
        return false;
    }
    const bool is_here = (const server *)base == status_thread_scope()->serving;
    object_unreference(base);
    return is_here;
}

gpuipc_status gpuipc_server_destroy(gpuipc_server *handle) {
    status_enter(__func__);
    object *last = NULL;
    if (handle == NULL) {
        return GPUIPC_OK;
    }
    if (is_served_here(handle)) {
        return status_fail(GPUIPC_ERR_BUSY, "the calling thread is just serving it");
    }
    gpuipc_status status = object_remove_hold(OBJECT_SERVER, handle, &last);
    if (last != NULL && object_is_forked(last)) {
        forget_thread((server *)last);
    } else if (last != NULL) {
        end((server *)last);
    }
    object_unreference(last);
    return status;
}

/* ---- the program's own loop ---------------------------------------------------------------- */

gpuipc_status server_acquire(gpuipc_server *handle, server **out_server) {
    object *base;
    gpuipc_status status = object_acquire(OBJECT_SERVER, handle, &base);
    if (status == GPUIPC_OK) {
        *out_server = (server *)base;
    }
    return status;
}

static gpuipc_status check_polled(const server *self) {
    return self->has_thread ? status_fail(GPUIPC_ERR_BUSY, "the server has a thread of its own")
                            : GPUIPC_OK;
}

/* The serving mutex is held. What only wakes the poller is not what the caller waits for. */
static gpuipc_status poll(server *self, os_deadline deadline) {
    const void *const outer = status_thread_scope()->serving;
    ready found;
    size_t count = 0;
    gpuipc_status status = GPUIPC_OK;
    status_thread_scope()->serving = self;
    /* also before the first: whoever polled before may have taken the one wake of its end */
    bool again = !atomic_load(&self->is_over);
    while (again) {
        status = await_ready(self, deadline, &found);
        count = look_after(self, &found);
        again = count == 0 && status == GPUIPC_OK && !atomic_load(&self->is_over) &&
                (!os_deadline_passed(deadline) || is_taking_away(self));
    }
    status_thread_scope()->serving = outer;
    if (status == GPUIPC_OK && atomic_load(&self->is_over)) {
        return status_fail(GPUIPC_ERR_RELEASED, "the server was destroyed meanwhile");
    }
    if (status == GPUIPC_OK && count == 0) {
        return status_fail(GPUIPC_ERR_TIMEOUT, "nobody has asked in time");
    }
    return status;
}

gpuipc_status server_poll(server *self, os_deadline deadline) {
    os_interrupt interrupt;
    gpuipc_status status = check_polled(self);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (!os_mutex_try_lock(&self->serving)) {
        return status_fail(GPUIPC_ERR_BUSY, "another thread is polling it");
    }
    status = poll(self, context_interruptible(self->context, deadline, &interrupt));
    status = context_answer(self->context, &interrupt, status);
    os_mutex_unlock(&self->serving);
    return status;
}

gpuipc_status gpuipc_server_poll(gpuipc_server *handle, int timeout_ms) {
    status_enter(__func__);
    if (timeout_ms < -1) {
        return status_bad_timeout(timeout_ms);
    }
    const os_deadline deadline = os_deadline_after(timeout_ms);
    server *self;
    gpuipc_status status = server_acquire(handle, &self);
    if (status == GPUIPC_OK) {
        status = server_poll(self, deadline);
        object_unreference(&self->object);
    }
    return status;
}

gpuipc_status gpuipc_server_get_wait_handle(gpuipc_server *handle, intptr_t *out_handle) {
    status_enter(__func__);
    server *self;
    if (out_handle == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "out_handle is NULL");
    }
    gpuipc_status status = server_acquire(handle, &self);
    if (status == GPUIPC_OK) {
        status = check_polled(self);
        if (status == GPUIPC_OK) {
            *out_handle = os_poller_native(self->poller);
        }
        object_unreference(&self->object);
    }
    return status;
}
