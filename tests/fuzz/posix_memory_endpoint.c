/* SPDX-License-Identifier: MIT */
/** @file See memory_os.h. In the place of posix_endpoint.c and posix_poller.c, and as they do. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "memory_os.h"
#include "posix.h"

#define NAME_BYTES 128
/* How many clients wait that nobody has accepted. */
#define BACKLOG 8u
/* What a poller has. */
#define WAITED_MAX  64u
#define WATCHES_MAX 64u

struct os_listener {
    os_listener *next; /* of all */
    char name[NAME_BYTES];
    bool is_over;
    size_t count;
    os_connection *waiting[BACKLOG];
};

struct os_name {
    os_name *next; /* of all */
    char name[NAME_BYTES];
    os_listener *of;
};

static os_listener *listeners;
static os_name *names;

const memory_process *(*memory_listens)(const char *name);
void (*memory_accepts)(os_connection *end);

/* ---- names ------------------------------------------------------------------------------------- */

static os_listener *listener_at(const char *name) {
    for (os_listener *at = listeners; at != NULL; at = at->next) {
        if (!at->is_over && strcmp(at->name, name) == 0) {
            return at;
        }
    }
    for (const os_name *at = names; at != NULL; at = at->next) {
        if (!at->of->is_over && strcmp(at->name, name) == 0) {
            return at->of;
        }
    }
    return NULL;
}

static gpuipc_status name_keep(char kept[NAME_BYTES], const char *name) {
    const size_t size = strlen(name) + 1;
    if (size > NAME_BYTES) {
        return status_fail(GPUIPC_ERR_NAME_TOO_LONG, "the name has %zu characters", size - 1);
    }
    if (listener_at(name) != NULL) {
        return status_fail(GPUIPC_ERR_NAME_IN_USE, "a process listens at %s", name);
    }
    memcpy(kept, name, size);
    return GPUIPC_OK;
}

gpuipc_status os_listener_open(const os_directory *directory, const char *name, const os_log *log,
                               os_listener **out_listener) {
    (void)directory;
    (void)log;
    os_listener *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    const gpuipc_status status = name_keep(self->name, name);
    if (status != GPUIPC_OK) {
        free(self);
        return status;
    }
    self->next = listeners;
    listeners = self;
    *out_listener = self;
    return GPUIPC_OK;
}

gpuipc_status os_listener_renew(os_listener *listener, int wait_ms) {
    (void)listener;
    (void)wait_ms;
    return GPUIPC_OK;
}

gpuipc_status os_listener_add_name(os_listener *listener, const os_directory *directory,
                                   const char *name, const os_log *log, os_name **out_name) {
    (void)directory;
    (void)log;
    os_name *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    const gpuipc_status status = name_keep(self->name, name);
    if (status != GPUIPC_OK) {
        free(self);
        return status;
    }
    self->of = listener;
    self->next = names;
    names = self;
    *out_name = self;
    return GPUIPC_OK;
}

void os_name_close(os_name *name) {
    os_name **at = &names;
    while (name != NULL && *at != name) {
        at = &(*at)->next;
    }
    if (name != NULL) {
        *at = name->next;
        free(name);
    }
}

void os_directory_sweep(const os_directory *directory, const char *prefix) {
    (void)directory;
    (void)prefix;
}

/* ---- connecting -------------------------------------------------------------------------------- */

os_connection *memory_connect(const char *name, const memory_process *as) {
    os_listener *to = listener_at(name);
    os_connection *own;
    os_connection *hostile;
    if (to == NULL || to->count == BACKLOG || !memory_pair(as, &own, &hostile)) {
        return NULL;
    }
    to->waiting[to->count++] = own;
    return hostile;
}

static gpuipc_status dial(const char *name, os_connection **out_connection) {
    const memory_process *as = memory_listens(name);
    os_connection *hostile;
    if (as == NULL) {
        return status_fail(GPUIPC_ERR_NOT_FOUND, "nobody listens at %s", name);
    }
    if (!memory_pair(as, out_connection, &hostile)) {
        return status_out_of_memory(sizeof(void *));
    }
    memory_accepts(hostile);
    return GPUIPC_OK;
}

gpuipc_status os_connection_open(const os_directory *directory, const char *name,
                                 os_deadline deadline, os_connection **out_connection) {
    unsigned pause = 0;
    (void)directory;
    for (;;) {
        const gpuipc_status status = dial(name, out_connection);
        if (status != GPUIPC_ERR_NOT_FOUND || os_deadline_passed(deadline)) {
            return status;
        }
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
}

static gpuipc_status interrupted(void) {
    return status_fail(GPUIPC_ERR_RELEASED, "another thread closed the listener meanwhile");
}

static os_connection *take_first(os_listener *self) {
    os_connection *first = self->waiting[0];
    self->count--;
    memmove(self->waiting, self->waiting + 1, self->count * sizeof(*self->waiting));
    return first;
}

gpuipc_status os_listener_accept(os_listener *listener, os_deadline deadline,
                                 os_connection **out_connection) {
    for (;;) {
        if (listener->is_over) {
            return interrupted();
        }
        if (listener->count > 0) {
            *out_connection = take_first(listener);
            return GPUIPC_OK;
        }
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT, "nobody connected before the time ran out");
        }
        memory_wait(deadline.at_ns);
    }
}

bool os_listener_refuse(os_listener *listener) {
    if (listener->count == 0) {
        return false;
    }
    memory_close(take_first(listener));
    return true;
}

void os_listener_interrupt(os_listener *listener) {
    listener->is_over = true;
}

void os_listener_destroy(os_listener *listener) {
    os_listener **at = &listeners;
    while (os_listener_refuse(listener)) {
    }
    while (*at != listener) {
        at = &(*at)->next;
    }
    *at = listener->next;
    free(listener);
}

/* ---- pollers ----------------------------------------------------------------------------------- */

typedef struct waited {
    os_listener *listener; /* or */
    os_connection *connection;
    void *tag;
} waited;

struct os_process_watch {
    os_poller *poller;
    os_peer of;
    bool is_told;
};

struct os_poller {
    waited item[WAITED_MAX];
    size_t count;
    os_process_watch *watches[WATCHES_MAX];
    size_t watch_count;
    bool is_woken;
    os_handle native; /* made when it is asked for; it is never ready */
};

gpuipc_status os_poller_create(os_poller **out_poller) {
    os_poller *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    self->native = OS_HANDLE_NONE;
    *out_poller = self;
    return GPUIPC_OK;
}

void os_poller_destroy(os_poller *poller) {
    if (poller != NULL) {
        posix_register_close((int)poller->native.value);
        free(poller);
    }
}

static gpuipc_status add(os_poller *to, waited one) {
    if (to->count == WAITED_MAX) {
        return status_fail(GPUIPC_ERR_TOO_MANY_HANDLES, "the poller has %u already", WAITED_MAX);
    }
    to->item[to->count++] = one;
    return GPUIPC_OK;
}

gpuipc_status os_poller_add_listener(os_poller *poller, os_listener *listener, void *tag) {
    return add(poller, (waited){.listener = listener, .tag = tag});
}

gpuipc_status os_poller_add_connection(os_poller *poller, os_connection *connection, void *tag) {
    return add(poller, (waited){.connection = connection, .tag = tag});
}

void os_poller_remove_connection(os_poller *poller, os_connection *connection) {
    for (size_t i = 0; i < poller->count; i++) {
        if (poller->item[i].connection == connection) {
            poller->count--;
            memmove(&poller->item[i], &poller->item[i + 1],
                    (poller->count - i) * sizeof(*poller->item));
            return;
        }
    }
}

static bool is_ready(const waited *one) {
    return one->connection != NULL ? memory_is_ready(one->connection)
                                   : one->listener->count > 0 || one->listener->is_over;
}

static bool has_process_ended(os_poller *self) {
    bool has_ended = false;
    for (size_t i = 0; i < self->watch_count; i++) {
        os_process_watch *one = self->watches[i];
        if (!one->is_told && os_peer_is_running(&one->of) == 0) {
            one->is_told = true;
            has_ended = true;
        }
    }
    return has_ended;
}

static size_t look(os_poller *self, void **tags, size_t capacity) {
    size_t found = 0;
    if (self->is_woken || has_process_ended(self)) {
        self->is_woken = false;
        tags[found++] = OS_POLLER_WOKEN;
    }
    for (size_t i = 0; i < self->count && found < capacity; i++) {
        if (is_ready(&self->item[i])) {
            tags[found++] = self->item[i].tag;
        }
    }
    return found;
}

gpuipc_status os_poller_wait(os_poller *poller, os_deadline deadline, void **tags, size_t capacity,
                             size_t *out_count) {
    for (;;) {
        const size_t found = look(poller, tags, capacity);
        if (found > 0 || os_deadline_passed(deadline)) {
            *out_count = found;
            return GPUIPC_OK;
        }
        memory_wait(deadline.at_ns);
    }
}

gpuipc_status os_poller_watch(os_poller *poller, const os_peer *peer,
                              os_process_watch **out_watch) {
    os_process_watch *self = calloc(1, sizeof(*self));
    if (self == NULL || poller->watch_count == WATCHES_MAX) {
        free(self);
        return status_out_of_memory(sizeof(*self));
    }
    *self = (os_process_watch){.poller = poller, .of = *peer};
    poller->watches[poller->watch_count++] = self;
    *out_watch = self;
    return GPUIPC_OK;
}

void os_process_watch_destroy(os_process_watch *watch) {
    if (watch == NULL) {
        return;
    }
    os_poller *of = watch->poller;
    for (size_t i = 0; i < of->watch_count; i++) {
        if (of->watches[i] == watch) {
            of->watches[i] = of->watches[--of->watch_count];
        }
    }
    free(watch);
}

void os_poller_wake(os_poller *poller) {
    poller->is_woken = true;
}

intptr_t os_poller_native(os_poller *poller) {
    if (!os_handle_is_valid(poller->native)) {
        posix_register_lock();
        const int fd = eventfd(0, EFD_CLOEXEC);
        if (posix_register_add(fd, "eventfd") == GPUIPC_OK) {
            poller->native = (os_handle){fd};
        }
        posix_register_unlock();
    }
    return poller->native.value;
}
