/* SPDX-License-Identifier: MIT */
/** @file See peer_resident.h. */
#include "peer_resident.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The gate is a word of 64 bits, so that a round's word stands at its number times four from 4 on. */
#define SEEN_AT(round) (((uint64_t)(round) + 1) * sizeof(uint32_t))
#define SEEN_BYTES     SEEN_AT(RESIDENT_ROUNDS + 1)

static bool check_cuda(resident *self, CUresult result, const char *call, const char *what) {
    status_enter(__func__);
    return role_check(self->role, driver_status(&self->role->session.driver, result, call, what),
                      what);
}

static bool read_mark(resident *self, const char *text, gpuipc_mark *out_mark) {
    for (size_t i = 0; i < sizeof(out_mark->bytes); i++) {
        unsigned byte;
        /* "%2x" would also take blanks and a sign. */
        if (strspn(text + 2 * i, "0123456789abcdef") < 2 ||
            sscanf(text + 2 * i, "%2x", &byte) != 1) {
            return role_fail(self->role, "the other end said \"%.60s\" where a mark was expected",
                             text);
        }
        out_mark->bytes[i] = (uint8_t)byte;
    }
    return true;
}

/* A stream that no other stream of the device waits for. */
static bool make_stream(resident *self) {
    session *at = &self->role->session;
    if (!role_check(self->role, session_enter(at, self->device), "entering a device's context")) {
        return false;
    }
    const bool made =
        check_cuda(self, at->driver.cuStreamCreate(&self->stream, CU_STREAM_NON_BLOCKING),
                   "cuStreamCreate", "making a stream");
    session_leave(at);
    return made;
}

/* A driver whose streams wait for no words has no gate: then the rounds run while they are queued. */
static bool close_gate(resident *self) {
    session *at = &self->role->session;
    self->is_closed =
        at->driver.has_word &&
        check_cuda(self,
                   at->driver.cuStreamWaitValue64(self->stream, gpuipc_buffer_address(self->seen),
                                                  1, CU_STREAM_WAIT_VALUE_GEQ),
                   "cuStreamWaitValue64", "letting a stream wait");
    return self->is_closed || !at->driver.has_word;
}

bool resident_begin(resident *self, role *at, gpuipc_buffer *own, gpuipc_buffer *theirs,
                    gpuipc_buffer *kept, uint64_t offset, bool is_gated) {
    static const uint8_t none[SEEN_BYTES];
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    *self = (resident){.role = at, .own = own, .theirs = theirs, .kept = kept, .offset = offset};
    if (!role_check(at, gpuipc_buffer_get_info(own, &info), "describing the memory")) {
        return false;
    }
    self->device = info.device < at->session.info.device_count ? info.device : 0;
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .device = GPUIPC_DEVICE(self->device),
                                         .bytes = SEEN_BYTES,
                                         .transport = GPUIPC_TRANSPORT_LEGACY};
    return role_check(at, gpuipc_buffer_create(at->session.context, &config, &self->seen),
                      "making memory for what is seen") &&
           role_check(at, gpuipc_buffer_write(self->seen, 0, none, sizeof(none)),
                      "clearing memory") &&
           make_stream(self) && (!is_gated || close_gate(self));
}

bool resident_store(resident *self, uint32_t round, char text[RESIDENT_MARK_MAX]) {
    gpuipc_mark mark;
    if (!role_check(self->role,
                    gpuipc_buffer_fill_async(self->own, self->offset, sizeof(round), round,
                                             sizeof(round), self->stream),
                    "letting a stream store a word") ||
        !role_check(self->role, gpuipc_buffer_mark(self->own, self->stream, &mark),
                    "letting a stream make a mark")) {
        return false;
    }
    for (size_t i = 0; i < sizeof(mark.bytes); i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", mark.bytes[i]);
    }
    return true;
}

bool resident_await(resident *self, uint32_t round, const char *text) {
    gpuipc_mark mark;
    return read_mark(self, text, &mark) &&
           role_check(self->role, gpuipc_buffer_await_mark_async(self->theirs, &mark, self->stream),
                      "letting a stream wait for a mark") &&
           role_check(self->role,
                      gpuipc_buffer_copy_async(self->seen, SEEN_AT(round), self->theirs,
                                               self->offset, sizeof(round), self->stream),
                      "letting a stream look at a word");
}

/* By the driver: gpuipc_buffer_write() waits for the copies into this memory, which wait for the gate. */
bool resident_open(resident *self) {
    static const uint64_t open = 1;
    session *at = &self->role->session;
    if (!self->is_closed) {
        return true;
    }
    self->is_closed = false;
    if (!role_check(self->role, session_enter(at, self->device), "entering a device's context")) {
        return false;
    }
    const bool is_open = check_cuda(
        self, at->driver.cuMemcpyHtoD(gpuipc_buffer_address(self->seen), &open, sizeof(open)),
        "cuMemcpyHtoD", "unblocking the stream");
    session_leave(at);
    return is_open;
}

bool resident_verify(resident *self, const char *text) {
    uint32_t words[RESIDENT_ROUNDS + 1] = {0};
    gpuipc_mark mark;
    if (text != NULL &&
        (!read_mark(self, text, &mark) ||
         !role_check(self->role,
                     gpuipc_buffer_await_mark(self->theirs, &mark, self->role->options->timeout_ms),
                     "waiting for the other end's last word"))) {
        return false;
    }
    if (!check_cuda(self, self->role->session.driver.cuStreamSynchronize(self->stream),
                    "cuStreamSynchronize", "waiting for the stream")) {
        return false;
    }
    self->is_idle = true;
    if (!role_check(self->role, gpuipc_buffer_read(self->seen, SEEN_AT(0), words, sizeof(words)),
                    "reading what was seen")) {
        return false;
    }
    for (uint32_t round = 1; round <= RESIDENT_ROUNDS; round++) {
        if (words[round] != round) {
            return role_fail(self->role, "in round %" PRIu32 " of %d the stream saw word %" PRIu32,
                             round, RESIDENT_ROUNDS, words[round]);
        }
    }
    return true;
}

/* A stream that still waits is left to the end of the process: to destroy it, or what it uses, may wait as long. */
void resident_end(resident *self) {
    if (self->stream == NULL || self->is_idle) {
        if (self->stream != NULL) {
            (void)self->role->session.driver.cuStreamDestroy(self->stream);
        }
        (void)gpuipc_buffer_release(self->seen);
        (void)gpuipc_buffer_release(self->kept);
    } else if (self->is_closed) {
        (void)resident_open(self);
    }
}
