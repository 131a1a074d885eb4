/* SPDX-License-Identifier: MIT */
/** @file The helper's commands about streams, ready points and returns. Its streams can be held back by a
 *  gate: a word that the default stream of device 0 waits for. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"
#include "emulated.h"
#include "helper.h"
#include "helper_commands.h"

/* How long anything may take that ought to be quick. */
#define PATIENCE_MS 60000

static driver drv;
static bool has_driver;
static _Atomic uint64_t *gate;

static bool enter_device(void) {
    CUcontext primary;
    const char *choice = os_environment("GPUIPC_CUDA_DRIVER");
    if (has_driver) {
        return true;
    }
    has_driver =
        driver_open(choice == NULL || choice[0] == '\0' ? "auto" : choice, &drv) == GPUIPC_OK &&
        drv.cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS &&
        drv.cuCtxSetCurrent(primary) == CUDA_SUCCESS;
    return has_driver;
}

const driver *helper_point_driver(void) {
    return enter_device() ? &drv : NULL;
}

static bool make_gate(void) {
    void *memory;
    if (gate == NULL && drv.has_word && drv.has_pinned &&
        drv.cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS) {
        gate = memory;
    }
    return gate != NULL;
}

void helper_point_end(void) {
    if (gate != NULL) {
        atomic_store(gate, 1); /* what waits behind it goes on */
        (void)drv.cuStreamSynchronize(NULL);
        (void)drv.cuMemFreeHost((void *)gate);
    }
    if (has_driver) {
        (void)drv.cuCtxSetCurrent(NULL);
        (void)drv.cuDevicePrimaryCtxRelease(0);
    }
}

/* Of the emulated driver; elsewhere nothing is late on purpose. */
static void set_stream_delay(unsigned milliseconds) {
    void *symbol =
        enter_device() ? os_library_symbol(drv.library, GPUIPC_EMULATED_SET_DELAY) : NULL;
    gpuipc_emulated_delay_fn set_delay;
    if (symbol != NULL) {
        memcpy(&set_delay, &symbol, sizeof(set_delay));
        set_delay(milliseconds);
    }
}

/* gate: what the default stream is given from now on waits for "open" */
static void close_gate(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    CUdeviceptr address;
    if (!enter_device() || !make_gate()) {
        helper_say("there are no 64-bit stream memory operations");
        return;
    }
    atomic_store(gate, 0);
    CUresult result = drv.cuMemHostGetDevicePointer(&address, (void *)gate, 0);
    if (result == CUDA_SUCCESS) {
        result = drv.cuStreamWaitValue64(NULL, address, 1, CU_STREAM_WAIT_VALUE_GEQ);
    }
    helper_say(result == CUDA_SUCCESS ? "GPUIPC_OK" : "CUresult %d", (int)result);
}

/* open */
static void open_gate(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    atomic_store(gate, 1);
    helper_say("GPUIPC_OK");
}

/* paint VALUE BYTES: the first so many bytes of buffer i with VALUE * (i + 1), on the default stream */
static void paint(helper_state *self, const char *arguments) {
    uint32_t value = 0;
    uint64_t bytes = 0;
    gpuipc_status status = GPUIPC_OK;
    (void)sscanf(arguments, " %" SCNu32 " %" SCNu64, &value, &bytes);
    for (size_t i = 0; i < self->buffer_count && status == GPUIPC_OK; i++) {
        status = gpuipc_buffer_fill_async(self->buffers[i], 0, bytes, value * (uint32_t)(i + 1), 4,
                                          NULL);
    }
    helper_say_status(status);
}

/* hand FLAGS TIMEOUT: sends all buffers with these flags */
static void hand(helper_state *self, const char *arguments) {
    int timeout_ms = 0;
    gpuipc_outgoing message = {.struct_size = sizeof(message),
                               .buffers = self->buffers,
                               .buffer_count = self->buffer_count};
    (void)sscanf(arguments, " %" SCNu32 " %d", &message.flags, &timeout_ms);
    helper_say_status(gpuipc_connection_send(self->connection, &message, timeout_ms));
}

/* return INDEX: on the default stream */
static void give_back(helper_state *self, const char *arguments) {
    size_t index = 0;
    (void)sscanf(arguments, " %zu", &index);
    helper_say_status(index < self->buffer_count
                          ? gpuipc_buffer_return_async(self->buffers[index], NULL)
                          : GPUIPC_ERR_OUT_OF_RANGE);
}

/* await TIMEOUT: until all its buffers have been returned */
static void await(helper_state *self, const char *arguments) {
    int timeout_ms = 0;
    gpuipc_status status = GPUIPC_OK;
    (void)sscanf(arguments, " %d", &timeout_ms);
    for (size_t i = 0; i < self->buffer_count && status == GPUIPC_OK; i++) {
        status = gpuipc_buffer_await_returns(self->buffers[i], timeout_ms);
    }
    helper_say_status(status);
}

/* await_async: the default stream waits for that */
static void await_async(helper_state *self, const char *arguments) {
    (void)arguments;
    gpuipc_status status = GPUIPC_OK;
    for (size_t i = 0; i < self->buffer_count && status == GPUIPC_OK; i++) {
        status = gpuipc_buffer_await_returns_async(self->buffers[i], NULL);
    }
    helper_say_status(status);
}

/* synchronize: waits for the default stream */
static void synchronize(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    CUresult result = enter_device() ? drv.cuStreamSynchronize(NULL) : CUDA_ERROR_NOT_INITIALIZED;
    helper_say(result == CUDA_SUCCESS ? "GPUIPC_OK" : "CUresult %d", (int)result);
}

/* painted VALUE: whether buffer i begins with VALUE * (i + 1) */
static void painted(helper_state *self, const char *arguments) {
    uint32_t value = 0;
    (void)sscanf(arguments, " %" SCNu32, &value);
    for (size_t i = 0; i < self->buffer_count; i++) {
        uint32_t found = 0;
        gpuipc_status status = gpuipc_buffer_read(self->buffers[i], 0, &found, sizeof(found));
        if (status != GPUIPC_OK) {
            helper_say_status(status);
            return;
        }
        if (found != value * (uint32_t)(i + 1)) {
            helper_say("buffer %zu has %" PRIu32, i, found);
            return;
        }
    }
    helper_say("GPUIPC_OK");
}

/* One tensor: when the last one has been returned, filled on the stream, and handed over. */
static gpuipc_status produce_one(const helper_state *self, gpuipc_buffer *buffer, uint64_t bytes,
                                 uint32_t value, uint32_t flags) {
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .buffers = &buffer, .buffer_count = 1, .flags = flags};
    gpuipc_status status = gpuipc_buffer_await_returns_async(buffer, NULL);
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_fill_async(buffer, 0, bytes, value, 4, NULL);
    }
    return status == GPUIPC_OK ? gpuipc_connection_send(self->connection, &message, PATIENCE_MS)
                               : status;
}

/* produce BYTES TRANSPORT FLAGS DELAY: nine tensors of the elements k and then nine of 2k, one after the
 * other in one buffer, sent with FLAGS; every piece of work is late by DELAY ms (emulated). Says what the
 * producer itself has of each after sharing it. */
static void produce(helper_state *self, const char *arguments) {
    gpuipc_buffer_config config = {.struct_size = sizeof(config)};
    unsigned transport = 0;
    uint32_t flags = 0;
    unsigned delay_ms = 0;
    uint32_t wrong = 0;
    gpuipc_buffer *buffer = NULL;
    (void)sscanf(arguments, " %" SCNu64 " %u %" SCNu32 " %u", &config.bytes, &transport, &flags,
                 &delay_ms);
    config.transport = (gpuipc_transport)transport;
    gpuipc_status status = gpuipc_buffer_create(self->context, &config, &buffer);
    set_stream_delay(delay_ms);
    for (uint32_t i = 0; i < 18 && status == GPUIPC_OK; i++) {
        const uint32_t value = i < 9 ? i + 1 : 2 * (i - 8);
        uint32_t found = 0;
        status = produce_one(self, buffer, config.bytes, value, flags);
        if (status == GPUIPC_OK) {
            status = gpuipc_buffer_read(buffer, config.bytes - 4, &found, sizeof(found));
        }
        wrong += found != value;
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_await_returns(buffer, PATIENCE_MS);
    }
    set_stream_delay(0);
    (void)gpuipc_buffer_release(buffer);
    if (status == GPUIPC_OK) {
        helper_say("GPUIPC_OK %" PRIu32 " wrong", wrong);
    } else {
        helper_say_status(status);
    }
}

const helper_command helper_point_commands[] = {
    {"gate", close_gate},         {"open", open_gate}, {"paint", paint},
    {"painted", painted},         {"hand", hand},      {"return", give_back},
    {"await_async", await_async}, {"await", await},    {"synchronize", synchronize},
    {"produce", produce},         {NULL, NULL}};
