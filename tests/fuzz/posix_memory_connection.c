/* SPDX-License-Identifier: MIT */
/** @file See memory_os.h. In the place of posix_connection.c and posix_packet.c, and as they do. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "memory_os.h"
#include "posix.h"

typedef struct memory_packet {
    struct memory_packet *next;
    size_t size;
    size_t fd_count;
    memory_flaw flaw;
    int fds[OS_PACKET_HANDLES_MAX];
    uint8_t bytes[];
} memory_packet;

/* struct os_connection is posix.h's: of its kind there is none here. */
typedef struct memory_connection {
    struct memory_connection *other; /* NULL: it is closed */
    memory_packet *first;
    memory_packet *last;
    size_t count;
    bool is_interrupted; /* by this side */
    bool is_shut;        /* the other side sees that this one is closed */
    bool takes_no_more;  /* what the other side sends fails */
    const memory_process *peer;
} memory_connection;

static memory_connection *of(os_connection *connection) {
    return (memory_connection *)(void *)connection;
}

static const memory_connection *of_const(const os_connection *connection) {
    return (const memory_connection *)(const void *)connection;
}

/* ---- packets ----------------------------------------------------------------------------------- */

static void packet_destroy(memory_packet *self) {
    for (size_t i = 0; i < self->fd_count; i++) {
        close(self->fds[i]);
    }
    free(self);
}

static memory_packet *packet_new(const void *bytes, size_t size) {
    memory_packet *self = malloc(sizeof(*self) + size);
    if (self != NULL) {
        self->next = NULL;
        self->size = size;
        self->fd_count = 0;
        self->flaw = MEMORY_WHOLE;
        memcpy(self->bytes, bytes, size);
    }
    return self;
}

/* False: there are too many, or it is none. */
static bool packet_add_fd(memory_packet *self, int fd) {
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy >= 0) {
        self->fds[self->fd_count++] = copy;
    }
    return copy >= 0;
}

static void put(memory_connection *at, memory_packet *packet) {
    if (at->last == NULL) {
        at->first = packet;
    } else {
        at->last->next = packet;
    }
    at->last = packet;
    at->count++;
}

static memory_packet *take(memory_connection *at) {
    memory_packet *packet = at->first;
    if (packet != NULL) {
        at->first = packet->next;
        at->last = at->first == NULL ? NULL : at->last;
        at->count--;
    }
    return packet;
}

/* The planted mistake: what nobody has received stays open. */
static void drain(memory_connection *self) {
    memory_packet *packet;
    while ((packet = take(self)) != NULL) {
        packet->fd_count = fuzz_is_planted("descriptor") ? 0 : packet->fd_count;
        packet_destroy(packet);
    }
}

static bool is_over(const memory_connection *self) {
    return self->other == NULL || self->other->is_shut;
}

static bool has_no_taker(const memory_connection *self) {
    return self->other == NULL || self->other->takes_no_more;
}

/* ---- the two ends ------------------------------------------------------------------------------ */

bool memory_pair(const memory_process *as, os_connection **out_own, os_connection **out_hostile) {
    memory_connection *own = calloc(1, sizeof(*own));
    memory_connection *hostile = calloc(1, sizeof(*hostile));
    if (own == NULL || hostile == NULL) {
        free(own);
        free(hostile);
        return false;
    }
    own->other = hostile;
    own->peer = as;
    hostile->other = own;
    *out_own = (os_connection *)(void *)own;
    *out_hostile = (os_connection *)(void *)hostile;
    return true;
}

void memory_close(os_connection *end) {
    memory_connection *self = of(end);
    drain(self);
    if (self->other != NULL) {
        self->other->other = NULL;
    }
    free(self);
}

bool memory_send(os_connection *end, const void *bytes, size_t size, const int *fds, size_t count,
                 memory_flaw flaw) {
    memory_connection *self = of(end);
    if (has_no_taker(self) || self->other->count >= MEMORY_PACKETS_MAX) {
        return false;
    }
    memory_packet *packet = packet_new(bytes, size);
    if (packet == NULL) {
        return false;
    }
    packet->flaw = flaw;
    for (size_t i = 0; i < count && i < OS_PACKET_HANDLES_MAX; i++) {
        (void)packet_add_fd(packet, fds[i]); /* what is none does not come */
    }
    put(self->other, packet);
    return true;
}

bool memory_receive(os_connection *end, void *bytes, size_t capacity, size_t *out_size, int *fds,
                    size_t *out_count) {
    memory_packet *packet = take(of(end));
    if (packet == NULL) {
        return false;
    }
    *out_size = packet->size < capacity ? packet->size : capacity;
    *out_count = packet->fd_count;
    memcpy(bytes, packet->bytes, *out_size);
    memcpy(fds, packet->fds, packet->fd_count * sizeof(*fds));
    packet->fd_count = 0;
    packet_destroy(packet);
    return true;
}

bool memory_is_ready(const os_connection *connection) {
    const memory_connection *self = of_const(connection);
    return self->first != NULL || self->is_interrupted || is_over(self);
}

/* ---- os.h -------------------------------------------------------------------------------------- */

static gpuipc_status usable(const memory_connection *self) {
    return self->is_interrupted
               ? status_fail(GPUIPC_ERR_RELEASED, "another thread closed the connection meanwhile")
               : GPUIPC_OK;
}

static gpuipc_status over(void) {
    return status_fail(GPUIPC_ERR_PEER_CLOSED, "the other end is closed");
}

static gpuipc_status send_now(const memory_connection *self, const void *bytes, size_t size,
                              const os_handle *handles, size_t count) {
    memory_packet *packet = packet_new(bytes, size);
    if (packet == NULL) {
        return status_out_of_memory(size);
    }
    for (size_t i = 0; i < count; i++) {
        if (!packet_add_fd(packet, (int)handles[i].value)) {
            packet_destroy(packet);
            return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "one of the handles is not open");
        }
    }
    put(self->other, packet);
    return GPUIPC_OK;
}

gpuipc_status os_connection_send(os_connection *connection, const void *bytes, size_t size,
                                 const os_handle *handles, size_t count, os_deadline deadline) {
    const memory_connection *self = of_const(connection);
    if (size == 0 || size > OS_PACKET_BYTES_MAX || count > OS_PACKET_HANDLES_MAX) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "that is no packet");
    }
    for (;;) {
        gpuipc_status status = usable(self);
        if (status != GPUIPC_OK) {
            return status;
        }
        if (has_no_taker(self)) {
            return over();
        }
        if (self->other->count < MEMORY_PACKETS_MAX) {
            return send_now(self, bytes, size, handles, count);
        }
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT,
                               "the peer did not take its packets before the time ran out");
        }
        memory_wait(deadline.at_ns);
    }
}

/* The rules of packet_judge() in posix_packet.c. */
static gpuipc_status judge(const memory_packet *packet, size_t capacity) {
    if (packet->flaw == MEMORY_AT_LIMIT) {
        return status_fail(GPUIPC_ERR_TOO_MANY_HANDLES,
                           "this process has no descriptor left for the handles of a packet");
    }
    if (packet->flaw == MEMORY_CUT) {
        return status_fail(GPUIPC_ERR_HANDLE_COUNT, "the handles of a packet came cut short");
    }
    return packet->size == 0 || packet->size > capacity
               ? status_fail(GPUIPC_ERR_PROTOCOL, "the peer sent a packet of %zu bytes",
                             packet->size)
               : GPUIPC_OK;
}

/* The descriptors become the library's. */
static gpuipc_status deliver(memory_packet *packet, void *bytes, size_t capacity, size_t *out_size,
                             os_handle *handles, size_t *out_count) {
    gpuipc_status status = judge(packet, capacity);
    posix_register_lock();
    for (size_t i = 0; i < packet->fd_count && status == GPUIPC_OK; i++) {
        status = posix_register_record(packet->fds[i]);
        handles[i] = (os_handle){packet->fds[i]};
    }
    posix_register_unlock();
    if (status == GPUIPC_OK) {
        memcpy(bytes, packet->bytes, packet->size);
        *out_size = packet->size;
        *out_count = packet->fd_count;
        packet->fd_count = 0;
    }
    packet_destroy(packet);
    return status;
}

gpuipc_status os_connection_receive(os_connection *connection, void *bytes, size_t capacity,
                                    size_t *out_size, os_handle *handles, size_t *out_count,
                                    os_deadline deadline) {
    memory_connection *self = of(connection);
    for (;;) {
        gpuipc_status status = usable(self);
        if (status != GPUIPC_OK) {
            return status;
        }
        if (self->first != NULL) {
            return deliver(take(self), bytes, capacity, out_size, handles, out_count);
        }
        if (is_over(self)) {
            return over();
        }
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT, "no packet came before the time ran out");
        }
        memory_wait(deadline.at_ns);
    }
}

gpuipc_status os_connection_take_rest(os_connection *connection, void *bytes, size_t capacity,
                                      size_t *out_size, os_handle *handles, size_t *out_count) {
    memory_packet *packet = take(of(connection));
    return packet == NULL ? over() : deliver(packet, bytes, capacity, out_size, handles, out_count);
}

gpuipc_status os_connection_get_peer(os_connection *connection, os_peer *out_peer) {
    const memory_process *as = of_const(connection)->peer;
    os_peer peer = {.process_id = as->process_id, .same_user = as->is_same_user};
    posix_register_lock();
    const int process = fcntl(as->lives, F_DUPFD_CLOEXEC, 0);
    const gpuipc_status status = posix_register_add(process, "fcntl");
    posix_register_unlock();
    if (status != GPUIPC_OK) {
        return status;
    }
    peer.process = (os_handle){process};
    if (as->is_same_user) {
        os_own_user(peer.user, sizeof(peer.user));
    } else {
        (void)snprintf(peer.user, sizeof(peer.user), "4000");
    }
    *out_peer = peer;
    return GPUIPC_OK;
}

void os_connection_set_look(os_connection *connection, uint32_t microseconds) {
    (void)connection;
    (void)microseconds;
}

bool os_connection_is_read(os_connection *connection) {
    const memory_connection *other = of_const(connection)->other;
    return other == NULL || other->first == NULL;
}

bool os_connection_has_ended(os_connection *connection) {
    const memory_connection *self = of_const(connection);
    return is_over(self) && !self->is_interrupted;
}

void os_connection_stop(os_connection *connection) {
    memory_connection *self = of(connection);
    self->is_interrupted = true;
    self->takes_no_more = true;
}

void os_connection_interrupt(os_connection *connection) {
    os_connection_stop(connection);
    of(connection)->is_shut = true;
}

bool os_connection_end(os_connection *connection, bool *out_peer_closed) {
    os_connection_interrupt(connection);
    *out_peer_closed = false;
    return true;
}

void os_connection_destroy(os_connection *connection) {
    memory_close(connection);
}
