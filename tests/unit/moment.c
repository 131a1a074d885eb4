/* SPDX-License-Identifier: MIT */
/** @file See moment.h. */
#include "moment.h"

#include "base/object.h"
#include "base/status.h"
#include "channel/channel.h"
#include "check.h"
#include "os.h"
#include "sync/drop.h"
#include "sync/trail.h"
#include "sync/watch.h"
#include "thread_state.h"
#include "ticket/ticket_name.h"

static struct {
    moment where;
    uint64_t thread;
    unsigned left; /* calls until it comes */
    bool stays;
    bool has_come;
    gpuipc_status (*what)(void);
} wanted;

static void set(moment where, unsigned nth, bool stays, gpuipc_status (*what)(void)) {
    wanted.what = what;
    wanted.thread = thread_state_own_number();
    wanted.left = nth;
    wanted.stays = stays;
    wanted.has_come = false;
    wanted.where = where;
}

void moment_at(moment where, unsigned nth, gpuipc_status (*what)(void)) {
    set(where, nth, false, what);
}

void moment_at_all(moment where, unsigned nth, gpuipc_status (*what)(void)) {
    set(where, nth, true, what);
}

void moment_over(void) {
    wanted.where = MOMENT_NONE;
    cr_assert(wanted.has_come);
}

/* Calls of the test's own are no part of the call that it is in. */
static gpuipc_status come(moment where) {
    if (wanted.where != where || thread_state_own_number() != wanted.thread) {
        return GPUIPC_OK;
    }
    if (wanted.left > 1) {
        wanted.left--;
        return GPUIPC_OK;
    }
    const char *call = status_call();
    wanted.where = MOMENT_NONE;
    wanted.has_come = true;
    const gpuipc_status status = wanted.what();
    if (wanted.stays) {
        wanted.where = where;
    }
    status_enter(call);
    return status;
}

#define WRAP(where, name, parameters, values)                                                      \
    gpuipc_status __real_##name parameters;                                                        \
    gpuipc_status __wrap_##name parameters;                                                        \
    gpuipc_status __wrap_##name parameters {                                                       \
        const gpuipc_status status = come(where);                                                  \
        return status == GPUIPC_OK ? __real_##name values : status;                                \
    }

/* clang-format off */
WRAP(MOMENT_ASK, ticket_name_ask, (context *ctx, const char *name, const gpuipc_endpoint_config *how, os_deadline deadline, gpuipc_ticket *out),
     (ctx, name, how, deadline, out))
WRAP(MOMENT_ATTRIBUTES, os_handle_attributes, (const void **out), (out))
WRAP(MOMENT_AWAIT, point_await, (const point_word *words, size_t count, const atomic_bool *interrupted, os_deadline deadline),
     (words, count, interrupted, deadline))
WRAP(MOMENT_BELL, os_bell_make, (const uint8_t name[16], os_bell *out), (name, out))
WRAP(MOMENT_FORK, os_fork_watch, (void), ())
WRAP(MOMENT_HOLD, object_add_hold, (object_kind kind, const void *handle), (kind, handle))
WRAP(MOMENT_LIBRARY, os_library_open_path, (const char *path, os_library **out), (path, out))
WRAP(MOMENT_LISTENER, os_poller_add_listener, (os_poller *self, os_listener *listener, void *tag), (self, listener, tag))
WRAP(MOMENT_MAP, os_memory_map, (os_handle handle, uint64_t bytes, bool writable, void **out), (handle, bytes, writable, out))
WRAP(MOMENT_MEMORY, os_memory_create, (const char *name, uint64_t bytes, os_handle *out), (name, bytes, out))
WRAP(MOMENT_PASSING, drop_passing_new, (struct context *ctx, struct drop_passing **out), (ctx, out))
WRAP(MOMENT_PUBLISH, object_publish, (object *self, void **out), (self, out))
WRAP(MOMENT_SEND, os_connection_send, (os_connection *self, const void *bytes, size_t size, const os_handle *handles, size_t count, os_deadline deadline),
     (self, bytes, size, handles, count, deadline))
WRAP(MOMENT_TRAIL, trail_new, (struct context *ctx, trail **out), (ctx, out))
WRAP(MOMENT_TURN, turn_begin, (const turn_end *of, gpuipc_stream stream), (of, stream))
WRAP(MOMENT_WATCH_SLOT, watch_add_slot, (struct context *ctx, const point_word *word, uint32_t slot), (ctx, word, slot))
WRAP(MOMENT_WATCH_BACK, watch_add_return, (struct context *ctx, import_record *of), (ctx, of))
WRAP(MOMENT_WRITE, trail_turn_write, (const trail_turn *self, const point_word *words, size_t count), (self, words, count))
/* clang-format on */

#define WRAP_OFFER(where, name)                                                                    \
    bool __real_##name(const point_page *page, uint32_t slot, uint64_t number);                    \
    bool __wrap_##name(const point_page *page, uint32_t slot, uint64_t number);                    \
    bool __wrap_##name(const point_page *page, uint32_t slot, uint64_t number) {                   \
        return come(where) == GPUIPC_OK && __real_##name(page, slot, number);                      \
    }

WRAP_OFFER(MOMENT_CLAIM, channel_still_stands)
WRAP_OFFER(MOMENT_WITHDRAW, channel_withdraw)

uint64_t __real_channel_list_held(const channel *self, const channel_reader *of);
uint64_t __wrap_channel_list_held(const channel *self, const channel_reader *of);
uint64_t __wrap_channel_list_held(const channel *self, const channel_reader *of) {
    (void)come(MOMENT_LIST_HELD);
    return __real_channel_list_held(self, of);
}

bool __real_os_mutex_try_lock(os_mutex *mutex);
bool __wrap_os_mutex_try_lock(os_mutex *mutex);
bool __wrap_os_mutex_try_lock(os_mutex *mutex) {
    return come(MOMENT_TRY_LOCK) == GPUIPC_OK && __real_os_mutex_try_lock(mutex);
}

bool __real_os_connection_end(os_connection *self, bool *out_peer_closed);
bool __wrap_os_connection_end(os_connection *self, bool *out_peer_closed);
bool __wrap_os_connection_end(os_connection *self, bool *out_peer_closed) {
    const bool is_over = __real_os_connection_end(self, out_peer_closed);
    *out_peer_closed |= come(MOMENT_END) != GPUIPC_OK;
    return is_over;
}
