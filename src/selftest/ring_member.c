/* SPDX-License-Identifier: MIT */
/**
 * @file See ring.h: one program of the ring. It listens under its own index, accepts the program before it
 * and connects to the one behind it. Over each transport it offers its memory to the one before, and writes
 * into the memory of the one behind.
 */
#include "ring.h"

#include <inttypes.h>
#include <stdio.h>

#include "pattern.h"
#include "ring_inside.h"
#include "role.h"

typedef struct member {
    role role; /* its connection is whichever of the two is being talked to */
    gpuipc_connection *before;
    gpuipc_connection *behind;
    uint32_t index;
    uint32_t count;
    uint32_t device;
    uint32_t device_before;
    uint64_t bytes;
    unsigned failed;
} member;

/* What a member writes, so that its neighbours' is told apart from it. */
static pattern pattern_of(uint32_t index) {
    return index % 2 == 0 ? pattern_producer : pattern_consumer;
}

static bool meet(member *self) {
    char own[GPUIPC_NAME_MAX + 1];
    char next[GPUIPC_NAME_MAX + 1];
    gpuipc_listener *listener;
    gpuipc_context *context = self->role.session.context;
    int patience_ms = self->role.options->timeout_ms;
    (void)snprintf(own, sizeof(own), "%s-%u", self->role.options->name, self->index);
    (void)snprintf(next, sizeof(next), "%s-%u", self->role.options->name,
                   (self->index + 1) % self->count);
    role_step(&self->role, "meeting the neighbours");
    if (!role_check(&self->role, gpuipc_listener_open(context, own, NULL, &listener),
                    "listening")) {
        return false;
    }
    bool good =
        role_check(&self->role,
                   gpuipc_connection_open(context, next, NULL, patience_ms, &self->behind),
                   "connecting to the next member") &&
        role_check(&self->role, gpuipc_listener_accept(listener, patience_ms, &self->before),
                   "waiting for the member before");
    (void)gpuipc_listener_close(listener);
    return good;
}

/* The memory that a line is about: "ring/vmm/1" is that of member 1, into which the one before it writes. */
static void note_id(const member *self, gpuipc_transport transport) {
    role_note(&self->role, "id ring/%s/%" PRIu32, gpuipc_transport_name(transport), self->index);
}

/* Offers memory to the one before, or says that there is none. */
static bool offer(member *self, gpuipc_transport transport, gpuipc_buffer **out_buffer) {
    gpuipc_transport_pair pair = {.struct_size = sizeof(pair),
                                  .owner = self->device,
                                  .user = self->device_before,
                                  .connection = self->before};
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                   .device = GPUIPC_DEVICE(self->device),
                                   .bytes = self->bytes,
                                   .transport = transport};
    gpuipc_context *context = self->role.session.context;
    self->role.connection = self->before;
    role_step(&self->role, "offering memory over %s", gpuipc_transport_name(transport));
    if (!role_check(&self->role, gpuipc_transport_query(context, transport, &pair, &info),
                    "asking for a transport")) {
        return false;
    }
    if (!info.available) {
        note_id(self, transport);
        printf(ROLE_SKIP "ring of %u over %s: member %u (device %u) -> member %u (device %u): %s\n",
               self->count, gpuipc_transport_name(transport),
               (self->index + self->count - 1) % self->count, self->device_before, self->index,
               self->device, info.sentence);
        fflush(stdout);
        *out_buffer = NULL;
        return role_say(&self->role, NULL, "skip");
    }
    gpuipc_buffer *buffer;
    if (!role_check(&self->role, gpuipc_buffer_create(context, &config, &buffer),
                    "making memory")) {
        return false;
    }
    *out_buffer = buffer;
    return role_check(&self->role, pattern_fill(buffer, self->bytes, pattern_transformed),
                      "filling the memory") &&
           role_say(&self->role, buffer, "memory");
}

/* Fills the memory of the next member from memory of this one's device. */
static bool fill(member *self, gpuipc_buffer *theirs) {
    gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(self->device), .bytes = self->bytes};
    gpuipc_device_info info;
    gpuipc_buffer *source;
    uint32_t word;
    if (session_device(&self->role.session, self->device, &info) == GPUIPC_OK && !info.can_share) {
        config.transport = GPUIPC_TRANSPORT_LEGACY; /* there is memory of cuMemAlloc everywhere */
    }
    if (!role_check(&self->role, gpuipc_buffer_create(self->role.session.context, &config, &source),
                    "making memory to copy from")) {
        return false;
    }
    /* reading waits for the copy: both are in the default stream of this device */
    bool good =
        role_check(&self->role, pattern_fill(source, self->bytes, pattern_of(self->index)),
                   "filling memory") &&
        role_check(&self->role, gpuipc_buffer_copy_async(theirs, 0, source, 0, self->bytes, NULL),
                   "copying into the next member's memory") &&
        role_check(&self->role, gpuipc_buffer_read(theirs, 0, &word, sizeof(word)),
                   "reading the next member's memory");
    (void)gpuipc_buffer_release(source);
    return good;
}

static bool write_behind(member *self) {
    char line[ROLE_LINE_MAX];
    gpuipc_buffer *theirs = NULL;
    self->role.connection = self->behind;
    role_step(&self->role, "waiting for the next member's memory");
    if (role_hear(&self->role, NULL, line, &theirs) == NULL) {
        return false;
    }
    if (theirs == NULL) {
        return true; /* it has said why */
    }
    role_step(&self->role, "writing into the next member's memory");
    bool good = fill(self, theirs);
    (void)gpuipc_buffer_release(theirs);
    return good && role_say(&self->role, NULL, "written");
}

static bool verify(member *self, gpuipc_transport transport, gpuipc_buffer *buffer) {
    char line[ROLE_LINE_MAX];
    pattern_result result;
    uint32_t writer = (self->index + self->count - 1) % self->count;
    self->role.connection = self->before;
    role_step(&self->role, "verifying what the member before wrote");
    if (role_hear(&self->role, "written", line, NULL) == NULL ||
        !role_check(&self->role, pattern_verify(buffer, self->bytes, pattern_of(writer), &result),
                    "reading back")) {
        return false;
    }
    if (result.wrong > 0) {
        return role_fail(&self->role,
                         "%" PRIu64 " words are wrong; word %" PRIu64 " is 0x%08" PRIx32
                         ", not 0x%08" PRIx32,
                         result.wrong, result.first, result.found, result.expected);
    }
    note_id(self, transport);
    printf(ROLE_PASS "ring of %u over %s: member %u (device %u) wrote all %" PRIu64
                     " words into memory of member %u (device %u)\n",
           self->count, gpuipc_transport_name(transport), writer, self->device_before,
           self->bytes / sizeof(uint32_t), self->index, self->device);
    fflush(stdout);
    return true;
}

static bool go_round(member *self, gpuipc_transport transport) {
    gpuipc_buffer *own = NULL;
    bool good = offer(self, transport, &own) && write_behind(self) &&
                (own == NULL || verify(self, transport, own));
    (void)gpuipc_buffer_release(own);
    if (!good) {
        note_id(self, transport);
        printf(ROLE_FAIL "ring of %u over %s: member %u (device %u): %s\n", self->count,
               gpuipc_transport_name(transport), self->index, self->device, self->role.failure);
        fflush(stdout);
    }
    return good;
}

int ring_member(const options *wanted) {
    member self = {.index = wanted->index, .count = wanted->members};
    int code = role_begin(&self.role, wanted, "neighbour");
    if (code != EXIT_PASS) {
        return code;
    }
    uint32_t devices = self.role.session.info.device_count;
    self.device = self.index % devices;
    self.device_before = (self.index + self.count - 1) % self.count % devices;
    self.bytes = ring_bytes(wanted, self.role.session.info.is_emulated);
    self.role.receive_device = GPUIPC_DEVICE(self.device);
    bool good = meet(&self);
    if (!good) {
        role_note(&self.role, "id ring/meeting/%" PRIu32, self.index);
        printf(ROLE_FAIL "ring of %u: member %u: %s\n", self.count, self.index, self.role.failure);
    }
    for (gpuipc_transport way = GPUIPC_TRANSPORT_VMM;
         good && way <= (gpuipc_transport)GPUIPC_TRANSPORT_COUNT; way++) {
        good = way == GPUIPC_TRANSPORT_P2P || go_round(&self, way);
    }
    (void)gpuipc_connection_close(self.before);
    (void)gpuipc_connection_close(self.behind);
    self.role.connection = NULL;
    role_end(&self.role);
    return good ? EXIT_PASS : EXIT_FAIL;
}
