/* SPDX-License-Identifier: MIT */
/** @file See channel.h: a program that reads frames and compares every word of them. */
#include "channel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pattern.h"
#include "role.h"

typedef struct reader {
    role role;
    uint32_t index; /* which it is: channel.h */
    uint32_t device;
    CUstream stream; /* GPUIPC_NO_STREAM: it uses frames on the host */
    gpuipc_subscription *subscription;
    gpuipc_buffer *slots; /* NULL before the first frame; kept, so that it is found once */
    gpuipc_buffer *own;   /* what frames that are timed are copied into; NULL before the first */
    uint32_t *words;      /* a frame's, on the host */
    uint64_t bytes;       /* of a frame; 0 before the first */
    uint64_t count;       /* frames that were compared */
    uint64_t missed;
    uint64_t sequence; /* of the last; 0 before the first */
    uint32_t last;     /* its number, of those that were timed */
} reader;

static bool wants_all(const reader *self) {
    return self->index != READER_NEWEST_STREAM && self->index != READER_NEWEST_HOST;
}

static bool is_on_host(uint32_t index) {
    return index == READER_ALL_HOST || index == READER_NEWEST_HOST;
}

/* ---- beginning and end ------------------------------------------------------------------------- */

static bool check_cuda(reader *self, CUresult result, const char *call, const char *what) {
    status_enter(__func__);
    return role_check(&self->role, driver_status(&self->role.session.driver, result, call, what),
                      what);
}

/* Its device's context stays current until end(). */
static bool make_stream(reader *self) {
    session *at = &self->role.session;
    self->stream = GPUIPC_NO_STREAM;
    if (is_on_host(self->index)) {
        return true;
    }
    if (!role_check(&self->role, session_enter(at, self->device), "entering a device's context")) {
        return false;
    }
    return check_cuda(self, at->driver.cuStreamCreate(&self->stream, CU_STREAM_NON_BLOCKING),
                      "cuStreamCreate", "making a stream");
}

static bool subscribe(reader *self) {
    const gpuipc_subscription_config config = {.struct_size = sizeof(config),
                                               .device = GPUIPC_DEVICE(self->device),
                                               .timeout_ms = self->role.options->timeout_ms,
                                               .delivery = wants_all(self) ? GPUIPC_DELIVERY_ALL
                                                                           : GPUIPC_DELIVERY_NEWEST,
                                               .max_held = CHANNEL_VICTIM_HOLDS};
    gpuipc_ticket ticket;
    role_step(&self->role, "opening the channel");
    return role_check(&self->role, gpuipc_ticket_from_text(self->role.options->ticket, &ticket),
                      "reading the ticket") &&
           role_check(&self->role,
                      gpuipc_subscription_open(self->role.session.context, &ticket, &config,
                                               &self->subscription),
                      "opening the channel") &&
           make_stream(self);
}

/* What is still in the stream uses the frames. */
static bool end(reader *self) {
    session *at = &self->role.session;
    bool good = true;
    if (self->stream != NULL && self->stream != GPUIPC_NO_STREAM) {
        CUresult result = at->driver.cuStreamSynchronize(self->stream);
        result = result != CUDA_SUCCESS ? result : at->driver.cuStreamDestroy(self->stream);
        good = check_cuda(self, result, "cuStreamDestroy", "ending the stream");
        session_leave(at);
    }
    (void)gpuipc_buffer_release(self->own);
    (void)gpuipc_buffer_release(self->slots);
    good = role_check(&self->role, gpuipc_subscription_close(self->subscription),
                      "closing the channel") &&
           good;
    free(self->words);
    return good;
}

/* ---- a frame ----------------------------------------------------------------------------------- */

/* Room for its words, when the first one says how many they are. */
static bool begin_frames(reader *self, const gpuipc_frame *frame) {
    uint64_t offset;
    if (self->slots != NULL) {
        return frame->bytes == self->bytes ||
               role_fail(&self->role, "a frame of %" PRIu64 " bytes came behind one of %" PRIu64,
                         frame->bytes, self->bytes);
    }
    self->bytes = frame->bytes;
    self->words = malloc((size_t)frame->bytes);
    if (self->words == NULL) {
        return role_fail(&self->role, "there is no memory for the words of a frame");
    }
    return role_check(
        &self->role,
        gpuipc_buffer_find(self->role.session.context, frame->address, &self->slots, &offset),
        "finding the slots");
}

/* Its sequence number follows the last one, and who wants every frame misses none. */
static bool check_place(reader *self, const gpuipc_frame *frame, channel_header *out_header) {
    if (frame->header_bytes != sizeof(*out_header)) {
        return role_fail(&self->role, "a header of %zu bytes came", frame->header_bytes);
    }
    memcpy(out_header, frame->header, sizeof(*out_header));
    if (self->sequence != 0 && frame->sequence != self->sequence + 1 + frame->missed) {
        return role_fail(&self->role,
                         "frame %" PRIu64 " came behind %" PRIu64 ", and says that %" PRIu64
                         " were missed",
                         frame->sequence, self->sequence, frame->missed);
    }
    self->missed += frame->missed;
    self->sequence = frame->sequence;
    return self->missed == 0 || !wants_all(self) ||
           role_fail(&self->role, "%" PRIu64 " frames were lost", self->missed);
}

static bool give_back(reader *self, const gpuipc_frame *frame) {
    return role_check(&self->role,
                      gpuipc_subscription_give_back(self->subscription, frame, self->stream),
                      "giving a frame back");
}

/* All its words to the host: in the order of the stream, or now. It is given back. */
static bool fetch(reader *self, const gpuipc_frame *frame) {
    session *at = &self->role.session;
    const uint64_t offset = frame->address - gpuipc_buffer_address(self->slots);
    if (self->stream == GPUIPC_NO_STREAM) {
        return role_check(&self->role,
                          gpuipc_buffer_read(self->slots, offset, self->words, frame->bytes),
                          "reading a frame") &&
               give_back(self, frame);
    }
    CUresult result = at->driver.cuMemcpyDtoHAsync(self->words, frame->address,
                                                   (size_t)frame->bytes, self->stream);
    const bool good =
        check_cuda(self, result, "cuMemcpyDtoHAsync", "reading a frame") && give_back(self, frame);
    result = at->driver.cuStreamSynchronize(self->stream); /* the words are written until then */
    return good && check_cuda(self, result, "cuStreamSynchronize", "reading a frame");
}

static bool compare(reader *self, uint32_t number) {
    pattern_result result = {0};
    pattern_compare(self->words, number, self->bytes / sizeof(uint32_t), pattern_producer, &result);
    return result.wrong == 0 ||
           role_fail(&self->role,
                     "%" PRIu64 " words of frame %" PRIu32 " are wrong; word %" PRIu64
                     " is 0x%08" PRIx32 ", not 0x%08" PRIx32,
                     result.wrong, number, result.first - number, result.found, result.expected);
}

/* Into memory of this one's device, as a model does with a camera's frame. Only the last is compared, at the end. */
static bool copy_timed(reader *self, const gpuipc_frame *frame, uint32_t number) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(self->device), .bytes = self->bytes};
    const uint64_t offset = frame->address - gpuipc_buffer_address(self->slots);
    if (self->own == NULL &&
        !role_check(&self->role,
                    gpuipc_buffer_create(self->role.session.context, &config, &self->own),
                    "making memory to copy into")) {
        return false;
    }
    self->last = number;
    return role_check(&self->role,
                      gpuipc_buffer_copy_async(self->own, 0, self->slots, offset, self->bytes,
                                               self->stream),
                      "copying a frame") &&
           give_back(self, frame);
}

static bool check_last_timed(reader *self) {
    const session *at = &self->role.session;
    if (self->own == NULL) {
        return true;
    }
    return check_cuda(self, at->driver.cuStreamSynchronize(self->stream), "cuStreamSynchronize",
                      "copying a frame") &&
           role_check(&self->role, gpuipc_buffer_read(self->own, 0, self->words, self->bytes),
                      "reading the copy") &&
           compare(self, self->last);
}

/* ---- all of them ------------------------------------------------------------------------------- */

/* The victim has taken what it may, and waits for its end. */
static bool await_end(reader *self) {
    printf(CHANNEL_SAYS_HOLDS "\n");
    fflush(stdout);
    os_sleep_ms((unsigned)self->role.options->timeout_ms);
    return role_fail(&self->role, "nobody killed it in time");
}

/* One frame. *out_more: there may be another */
static bool step(reader *self, bool *out_more) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    channel_header header;
    const gpuipc_status status = gpuipc_subscription_take(self->subscription, self->stream,
                                                          self->role.options->timeout_ms, &frame);
    *out_more = status != GPUIPC_ERR_PEER_CLOSED;
    if (status == GPUIPC_ERR_PEER_CLOSED) {
        return self->count > 0 || role_fail(&self->role, "the channel ended without a frame");
    }
    if (!role_check(&self->role, status, "taking a frame") || !check_place(self, &frame, &header) ||
        !begin_frames(self, &frame)) {
        return false;
    }
    if (header.is_timed != 0) {
        *out_more = self->index == READER_ALL_STREAM;
        return *out_more ? copy_timed(self, &frame, header.number) : give_back(self, &frame);
    }
    if (self->index == READER_VICTIM && header.number > CHANNEL_HOLD_FROM) {
        return await_end(self);
    }
    if (self->index == READER_VICTIM && header.number == CHANNEL_HOLD_FROM) {
        return true;
    }
    self->count++;
    return fetch(self, &frame) && compare(self, header.number);
}

static bool read_all(reader *self) {
    bool more = true;
    bool good = true;
    printf(CHANNEL_SAYS_OPEN "\n");
    role_step(&self->role, "reading frames");
    while (good && more) {
        good = step(self, &more);
    }
    return good && check_last_timed(self);
}

int channel_reader(const options *wanted) {
    reader self = {.index = wanted->index};
    int code = role_begin(&self.role, wanted, "writer");
    if (code != EXIT_PASS) {
        return code;
    }
    self.device = wanted->peer;
    bool good = subscribe(&self) && read_all(&self);
    good = end(&self) && good;
    if (good) {
        printf(CHANNEL_SAYS_READ " %" PRIu64 " %" PRIu64 "\n", self.count, self.missed);
    } else {
        printf(CHANNEL_SAYS_FAILED " %s\n", self.role.failure);
    }
    fflush(stdout);
    role_end(&self.role);
    return good ? EXIT_PASS : EXIT_FAIL;
}
