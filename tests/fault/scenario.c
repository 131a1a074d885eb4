/* SPDX-License-Identifier: MIT */
/** @file See scenario.h. */
#include "scenario.h"

#include <stdatomic.h>
#include <string.h>

#include "base/status.h"
#include "cuda/context.h"
#include "graphs.h"
#include "named_calls.h"
#include "os.h"
#include "scenario_parts.h"
#include "sync/deferred.h"

/* Windows shares no pools. */
#define HAS_POOLS (os_shareable_handle_type != CU_MEM_HANDLE_TYPE_WIN32)

static gpuipc_status cuda(CUresult result) {
    return result == CUDA_SUCCESS ? GPUIPC_OK : GPUIPC_ERR_CUDA;
}

gpuipc_status scenario_make_context(scenario_state *state, gpuipc_context **out_context) {
    const gpuipc_context_config config = {
        .struct_size = sizeof(config),
        .driver = "emulated",
        .runtime_directory = state->directory,
        /* what fails there is nobody's failure: unit.keep_alive */
        .flags = GPUIPC_CONTEXT_NO_KEEP_ALIVE};
    return gpuipc_context_create(&config, out_context);
}

gpuipc_status scenario_make_buffer(scenario_state *state, gpuipc_buffer **out_buffer) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .bytes = SCENARIO_SEGMENTS * state->unit,
                                         .segment_bytes = state->unit};
    return gpuipc_buffer_create(state->context, &config, out_buffer);
}

static gpuipc_status make_memory(scenario_state *state, gpuipc_transport transport,
                                 gpuipc_buffer **out_buffer) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = transport, .bytes = 65536};
    return gpuipc_buffer_create(state->context, &config, out_buffer);
}

/* ---- prepare ----------------------------------------------------------------------------- */

static gpuipc_status prepare_nothing(scenario_state *state) {
    (void)state;
    return GPUIPC_OK;
}

gpuipc_status scenario_prepare_context(scenario_state *state) {
    gpuipc_device_info info = {.struct_size = sizeof(info)};
    gpuipc_status status = scenario_make_context(state, &state->context);
    if (status == GPUIPC_OK) {
        status = gpuipc_device_get_info(state->context, 0, &info);
        state->unit = info.granularity_bytes;
    }
    return status;
}

gpuipc_status scenario_prepare_buffer(scenario_state *state) {
    gpuipc_status status = scenario_prepare_context(state);
    return status == GPUIPC_OK ? scenario_make_buffer(state, &state->buffer) : status;
}

/* Two buffers, and a stream of the program's own. */
gpuipc_status scenario_prepare_data(scenario_state *state) {
    gpuipc_status status;
    const driver *drv = &state->driver;
    TRY(scenario_prepare_buffer(state))
    TRY(scenario_make_buffer(state, &state->other))
    TRY(driver_open("emulated", &state->driver))
    TRY(cuda(drv->cuDevicePrimaryCtxRetain(&state->cuda_context, 0)))
    TRY(cuda(drv->cuCtxPushCurrent(state->cuda_context)))
    TRY(cuda(drv->cuStreamCreate(&state->stream, CU_STREAM_NON_BLOCKING)))
give_back: /* scenario_end does */
    return status;
}

/* What streams tell by that they have passed is made once in a context. */
static gpuipc_status prepare_loan(scenario_state *state) {
    gpuipc_mark made;
    gpuipc_status status;
    TRY(scenario_prepare_data(state))
    TRY(gpuipc_buffer_mark(state->buffer, state->stream, &made))
    TRY(cuda(state->driver.cuStreamSynchronize(state->stream)))
give_back: /* scenario_end does */
    return status;
}

static gpuipc_status prepare_own_memory(scenario_state *state) {
    const driver *drv = &state->driver;
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes =
                                    (CUmemAllocationHandleType)os_shareable_handle_type,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    const void *rights;
    gpuipc_status status;
    TRY(scenario_prepare_context(state))
    TRY(os_handle_attributes(&rights))
    prop.win32HandleMetaData = (void *)(uintptr_t)rights;
    TRY(driver_open("emulated", &state->driver))
    TRY(cuda(drv->cuMemAddressReserve(&state->own_address, 2 * state->unit, 0, 0, 0)))
    for (size_t i = 0; i < 2; i++) {
        CUmemGenericAllocationHandle *handle = &state->own_handles[i];
        TRY(cuda(drv->cuMemCreate(handle, state->unit, &prop, 0)))
        TRY(cuda(drv->cuMemMap(state->own_address + i * state->unit, state->unit, 0, *handle, 0)))
    }
    TRY(cuda(drv->cuMemSetAccess(state->own_address, 2 * state->unit, &access, 1)))
give_back: /* scenario_end does */
    return status;
}

/* What a context keeps from its first use on is made. */
static gpuipc_status prepare_pool(scenario_state *state) {
    gpuipc_buffer *made;
    gpuipc_status status = scenario_prepare_context(state);
    if (status == GPUIPC_OK && HAS_POOLS) {
        status = make_memory(state, GPUIPC_TRANSPORT_POOL, &made);
        if (status == GPUIPC_OK) {
            (void)gpuipc_buffer_release(made);
        }
    }
    return status;
}

/* The context keeps the access that a device was given. */
static gpuipc_status prepare_p2p(scenario_state *state) {
    gpuipc_buffer *made = NULL;
    gpuipc_status status;
    TRY(scenario_prepare_context(state))
    TRY(make_memory(state, GPUIPC_TRANSPORT_P2P, &made))
    TRY(gpuipc_buffer_set_access(made, 1, GPUIPC_ACCESS_READ_WRITE))
give_back:
    (void)gpuipc_buffer_release(made);
    return status;
}

/* Memory that only a copy carries. */
static gpuipc_status prepare_pinned(scenario_state *state) {
    gpuipc_status status;
    const driver *drv = &state->driver;
    TRY(scenario_prepare_context(state))
    TRY(driver_open("emulated", &state->driver))
    TRY(cuda(drv->cuDevicePrimaryCtxRetain(&state->cuda_context, 0)))
    TRY(cuda(drv->cuCtxPushCurrent(state->cuda_context)))
    TRY(cuda(drv->cuMemHostAlloc(&state->pinned, 65536, CU_MEMHOSTALLOC_PORTABLE)))
    TRY(gpuipc_buffer_wrap(state->context, (uint64_t)(uintptr_t)state->pinned, 65536,
                           &state->buffer))
give_back: /* scenario_end does */
    return status;
}

/* ---- run --------------------------------------------------------------------------------- */

static gpuipc_status run_context(scenario_state *state) {
    gpuipc_context *made;
    gpuipc_status status = scenario_make_context(state, &made);
    if (status == GPUIPC_OK) {
        (void)gpuipc_context_destroy(made);
    }
    return status;
}

/* From the driver's start to the last release. */
static gpuipc_status run_life(scenario_state *state) {
    gpuipc_buffer *made = NULL;
    uint32_t word = 7;
    gpuipc_status status;
    TRY(scenario_prepare_context(state))
    TRY(scenario_make_buffer(state, &made))
    TRY(gpuipc_buffer_write(made, 0, &word, sizeof(word)))
give_back:
    (void)gpuipc_buffer_release(made);
    (void)gpuipc_context_destroy(state->context);
    state->context = NULL;
    return status;
}

static gpuipc_status run_create(scenario_state *state) {
    gpuipc_buffer *made;
    gpuipc_status status = scenario_make_buffer(state, &made);
    if (status == GPUIPC_OK) {
        (void)gpuipc_buffer_release(made);
    }
    return status;
}

static gpuipc_status run_wrap(scenario_state *state) {
    gpuipc_buffer *made;
    gpuipc_status status =
        gpuipc_buffer_wrap(state->context, state->own_address + 16, state->unit, &made);
    if (status == GPUIPC_OK) {
        (void)gpuipc_buffer_release(made);
    }
    return status;
}

/* Both ends of a conversation. A wait is never needed, because both are in this thread. */
typedef struct ends {
    gpuipc_listener *listener;
    gpuipc_connection *client;
    gpuipc_connection *server;
} ends;

static gpuipc_status ends_open(scenario_state *state, ends *both) {
    gpuipc_status status;
    TRY(gpuipc_listener_open(state->context, "name", NULL, &both->listener))
    TRY(gpuipc_connection_open(state->context, "name", NULL, 0, &both->client))
    TRY(gpuipc_listener_accept(both->listener, 0, &both->server))
give_back: /* ends_close does */
    return status;
}

static void ends_close(ends *both) {
    (void)gpuipc_connection_close(both->client);
    (void)gpuipc_connection_close(both->server);
    (void)gpuipc_listener_close(both->listener);
}

gpuipc_status scenario_send(gpuipc_connection *to, gpuipc_buffer *buffer, gpuipc_stream stream) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = "text",
                                     .bytes_size = 4,
                                     .buffers = &buffer,
                                     .buffer_count = 1,
                                     .stream = stream};
    return gpuipc_connection_send(to, &message, 0);
}

gpuipc_status scenario_receive(gpuipc_connection *from, uint32_t flags,
                               gpuipc_buffer **out_buffer) {
    char bytes[4];
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes = bytes,
                               .bytes_capacity = sizeof(bytes),
                               .buffers = out_buffer,
                               .buffer_capacity = 1,
                               .flags = flags};
    return gpuipc_connection_receive(from, &message, 0);
}

static gpuipc_status run_share(scenario_state *state) {
    ends both = {NULL, NULL, NULL};
    gpuipc_buffer *opened = NULL;
    uint32_t word;
    gpuipc_status status;
    TRY(ends_open(state, &both))
    TRY(scenario_send(both.client, state->buffer, NULL))
    TRY(scenario_receive(both.server, 0, &opened))
    TRY(gpuipc_buffer_read(opened, 0, &word, sizeof(word)))
give_back:
    (void)gpuipc_buffer_release(opened);
    ends_close(&both);
    return status;
}

/* Memory of a transport: made, sent to this process, used, and given back. */
static gpuipc_status run_memory(scenario_state *state, gpuipc_transport transport) {
    ends both = {NULL, NULL, NULL};
    gpuipc_buffer *made = NULL;
    gpuipc_buffer *opened = NULL;
    uint32_t word = 7;
    gpuipc_status status;
    TRY(make_memory(state, transport, &made))
    TRY(ends_open(state, &both))
    TRY(scenario_send(both.client, made, NULL))
    TRY(scenario_receive(both.server, 0, &opened))
    TRY(gpuipc_buffer_write(opened, 0, &word, sizeof(word)))
give_back:
    (void)gpuipc_buffer_release(opened);
    (void)gpuipc_buffer_release(made);
    ends_close(&both);
    return status;
}

static gpuipc_status run_legacy(scenario_state *state) {
    return run_memory(state, GPUIPC_TRANSPORT_LEGACY);
}

static gpuipc_status run_host(scenario_state *state) {
    return run_memory(state, GPUIPC_TRANSPORT_HOST);
}

static gpuipc_status run_pool(scenario_state *state) {
    return HAS_POOLS ? run_memory(state, GPUIPC_TRANSPORT_POOL) : GPUIPC_OK;
}

static gpuipc_status run_staged(scenario_state *state) {
    ends both = {NULL, NULL, NULL};
    gpuipc_buffer *opened = NULL;
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = "text",
                                     .bytes_size = 4,
                                     .buffers = &state->buffer,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_STAGED};
    gpuipc_status status;
    TRY(ends_open(state, &both))
    TRY(gpuipc_connection_send(both.client, &message, 0))
    TRY(scenario_receive(both.server, 0, &opened))
give_back:
    (void)gpuipc_buffer_release(opened);
    ends_close(&both);
    return status;
}

static gpuipc_status run_p2p(scenario_state *state) {
    gpuipc_buffer *made = NULL;
    gpuipc_status status;
    TRY(make_memory(state, GPUIPC_TRANSPORT_P2P, &made))
    TRY(gpuipc_buffer_set_access(made, 1, GPUIPC_ACCESS_READ_WRITE))
give_back:
    (void)gpuipc_buffer_release(made);
    return status;
}

/* Received with its handles, and sent on. */
static gpuipc_status run_relay(scenario_state *state) {
    ends both = {NULL, NULL, NULL};
    gpuipc_buffer *second = NULL;
    gpuipc_buffer *third = NULL;
    gpuipc_status status;
    TRY(ends_open(state, &both))
    TRY(scenario_send(both.client, state->buffer, state->stream))
    TRY(scenario_receive(both.server, GPUIPC_RECEIVE_KEEP_HANDLES, &second))
    TRY(scenario_send(both.server, second, NULL))
    TRY(scenario_receive(both.client, 0, &third))
give_back:
    (void)gpuipc_buffer_release(second);
    (void)gpuipc_buffer_release(third);
    ends_close(&both);
    return status;
}

/* The handles are the caller's, and are closed when nothing fails any more. */
static gpuipc_status run_native(scenario_state *state) {
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    gpuipc_buffer *opened = NULL;
    gpuipc_status status;
    TRY(gpuipc_native_export(state->buffer, state->segments, SCENARIO_SEGMENTS, &layout,
                             &state->segment_count))
    TRY(gpuipc_native_import(state->context, state->segments, state->segment_count, &layout,
                             GPUIPC_DEVICE(1), GPUIPC_ACCESS_READ, &opened))
give_back:
    (void)gpuipc_buffer_release(opened);
    return status;
}

/* Of buffers that end with it: what a buffer records of the work on it stays as long as the buffer. Each stream is waited for
 * before the next one has work, so that the number of events does not depend on time. */
static gpuipc_status run_data(scenario_state *state) {
    gpuipc_buffer *buffer = NULL;
    gpuipc_buffer *other = NULL;
    gpuipc_status status;
    uint32_t word = 7;
    TRY(scenario_make_buffer(state, &buffer))
    TRY(scenario_make_buffer(state, &other))
    TRY(gpuipc_buffer_fill_async(buffer, 0, 64, 1, 1, NULL))
    TRY(gpuipc_buffer_write(buffer, 0, &word, sizeof(word)))
    TRY(gpuipc_buffer_fill_async(buffer, 0, 64, 1, 2, state->stream))
    TRY(gpuipc_buffer_fill_async(buffer, 0, 64, 1, 4, state->stream))
    TRY(gpuipc_buffer_copy_async(other, 0, buffer, 0, 64, state->stream))
    TRY(gpuipc_buffer_read(other, 0, &word, sizeof(word)))
    TRY(gpuipc_buffer_copy_async(other, 64, buffer, 0, 64, NULL))
    TRY(gpuipc_buffer_read(other, 64, &word, sizeof(word)))
give_back:
    (void)gpuipc_buffer_release(other);
    (void)gpuipc_buffer_release(buffer);
    return status;
}

static gpuipc_status run_access(scenario_state *state) {
    gpuipc_status status;
    TRY(gpuipc_buffer_set_access(state->buffer, 0, GPUIPC_ACCESS_READ))
    TRY(gpuipc_buffer_set_access(state->buffer, 1, GPUIPC_ACCESS_READ_WRITE))
    TRY(gpuipc_buffer_set_access(state->buffer, 0, GPUIPC_ACCESS_DEFAULT))
give_back: /* nothing was made */
    return status;
}

/* Given out and taken back, while a stream makes the contents. */
static gpuipc_status run_ticket(scenario_state *state) {
    const gpuipc_server_config polled = {.struct_size = sizeof(polled)};
    const gpuipc_share_config config = {.struct_size = sizeof(config),
                                        .flags = GPUIPC_SEND_ASYNC,
                                        .attachment = "text",
                                        .attachment_bytes = 4,
                                        .stream = state->stream};
    gpuipc_server *server = NULL;
    gpuipc_ticket ticket;
    gpuipc_status status;
    TRY(gpuipc_server_create(state->context, &polled, &server))
    TRY(gpuipc_buffer_share(server, state->buffer, &config, &ticket))
    TRY(gpuipc_server_revoke(server, &ticket))
give_back:
    (void)gpuipc_server_destroy(server);
    return status;
}

/* A part is lent, and returned on a stream; another is taken back. No stream waits: what looks after that is freed by a
 * thread of its own. */
static gpuipc_status run_loan(scenario_state *state) {
    ends both = {NULL, NULL, NULL};
    gpuipc_buffer *opened = NULL;
    gpuipc_mark loans[2];
    gpuipc_loan_state states[2];
    gpuipc_status status;
    TRY(ends_open(state, &both))
    TRY(scenario_send(both.client, state->buffer, NULL))
    TRY(scenario_receive(both.server, 0, &opened))
    TRY(gpuipc_buffer_lend(state->buffer, state->stream, &loans[0]))
    TRY(gpuipc_buffer_lend(state->buffer, state->stream, &loans[1]))
    TRY(gpuipc_buffer_take_loan(opened, &loans[0]))
    TRY(gpuipc_buffer_await_mark(opened, &loans[0], 10000))
    TRY(gpuipc_buffer_return_loan_async(opened, &loans[0], state->stream))
    TRY(gpuipc_buffer_await_loan(state->buffer, &loans[0], 10000))
    TRY(gpuipc_buffer_await_loan_async(state->buffer, &loans[0], state->stream, 0))
    TRY(gpuipc_buffer_cancel_loan(state->buffer, &loans[1]))
    TRY(gpuipc_buffer_get_loan_states(state->buffer, loans, 2, states))
give_back:
    while (state->driver.cuStreamQuery(state->stream) == CUDA_ERROR_NOT_READY) {
    }
    (void)gpuipc_buffer_release(opened);
    ends_close(&both);
    return status;
}

/* One frame on streams and one without, over one slot: what the host waits for has passed on the streams as well, so
 * that each run makes the same calls. */
static gpuipc_status pass_frames(scenario_state *state, gpuipc_channel *channel,
                                 gpuipc_subscription *reader) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    gpuipc_reader_info info;
    size_t count;
    intptr_t native;
    gpuipc_status status;
    TRY(gpuipc_channel_loan(channel, state->stream, 10000, &frame))
    TRY(gpuipc_channel_publish(channel, &frame, state->stream))
    TRY(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 10000, &came))
    TRY(gpuipc_subscription_give_back(reader, &came, state->stream))
    TRY(gpuipc_channel_loan(channel, GPUIPC_NO_STREAM, 10000, &frame))
    frame.header = "text";
    frame.header_bytes = 4;
    TRY(gpuipc_channel_publish(channel, &frame, GPUIPC_NO_STREAM))
    TRY(gpuipc_subscription_get_wait_handle(reader, &native))
    TRY(gpuipc_subscription_take(reader, state->stream, 10000, &came))
    TRY(gpuipc_subscription_give_back(reader, &came, GPUIPC_NO_STREAM))
    TRY(gpuipc_channel_readers(channel, &info, 1, &count))
give_back: /* nothing was made */
    return status;
}

static gpuipc_status pass_turn(scenario_state *state, gpuipc_channel *channel,
                               gpuipc_subscription *reader) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status;
    TRY(gpuipc_channel_loan(channel, state->stream, 0, &frame))
    TRY(gpuipc_channel_publish(channel, &frame, state->stream))
    TRY(gpuipc_subscription_take(reader, state->stream, 0, &frame))
    TRY(gpuipc_subscription_give_back(reader, &frame, state->stream))
    TRY(gpuipc_subscription_check(reader))
give_back:
    return status;
}

/* On a stream, and in a graph of that stream. */
static gpuipc_status pass_turns(scenario_state *state, gpuipc_channel *channel,
                                gpuipc_subscription *reader) {
    captured graph = {NULL, NULL};
    gpuipc_status status;
    TRY(pass_turn(state, channel, reader))
    TRY(cuda(state->driver.cuStreamSynchronize(state->stream)))
    if (!graphs_find(&state->driver) ||
        !graphs_begin(state->stream, CU_STREAM_CAPTURE_MODE_GLOBAL)) {
        return GPUIPC_ERR_CUDA;
    }
    status = pass_turn(state, channel, reader);
    /* what fails once is tried again, so that nothing is left of it */
    if (!graphs_end(state->stream, &graph) && !graphs_end(state->stream, &graph)) {
        return status == GPUIPC_OK ? GPUIPC_ERR_CUDA : status;
    }
    if (status == GPUIPC_OK && !graphs_launch(&graph, state->stream)) {
        status = GPUIPC_ERR_CUDA;
    }
    while (state->driver.cuStreamQuery(state->stream) == CUDA_ERROR_NOT_READY) {
    }
    (void)(graphs_destroy(&graph) || graphs_destroy(&graph));
give_back:
    return status;
}

/* In a context of its own: what graphs had captured stays until that ends. */
static gpuipc_status run_turns(scenario_state *state) {
    const gpuipc_server_config polled = {.struct_size = sizeof(polled)};
    gpuipc_channel_config config = {
        .struct_size = sizeof(config), .slots = 1, .slot_bytes = state->unit, .turns = 1};
    gpuipc_context *within = NULL;
    gpuipc_server *server = NULL;
    gpuipc_channel *channel = NULL;
    gpuipc_subscription *reader = NULL;
    gpuipc_ticket ticket;
    gpuipc_status status;
    TRY(scenario_make_context(state, &within))
    TRY(gpuipc_buffer_create(
        within,
        &(gpuipc_buffer_config){.struct_size = sizeof(gpuipc_buffer_config), .bytes = state->unit},
        &config.buffer))
    TRY(gpuipc_server_create(within, &polled, &server))
    TRY(gpuipc_channel_create(server, &config, &channel, &ticket))
    TRY(gpuipc_subscription_open(within, &ticket, NULL, &reader))
    TRY(pass_turns(state, channel, reader))
give_back:
    (void)gpuipc_subscription_close(reader);
    (void)gpuipc_channel_destroy(channel);
    (void)gpuipc_server_destroy(server);
    (void)gpuipc_buffer_release(config.buffer);
    (void)gpuipc_context_destroy(within);
    return status;
}

static bool is_stored(const gpuipc_word *word) {
    return atomic_load((_Atomic uint64_t *)(uintptr_t)word->address) == word->value;
}

/* One frame from kernel to kernel. Both have run when the calls come that say so, and the second need not wait: else a
 * thread would ask for it, now and then. */
static gpuipc_status pass_frame_by_kernels(scenario_state *state, gpuipc_channel *channel,
                                           gpuipc_subscription *reader) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    gpuipc_word ready = {0, 0};
    gpuipc_word awaited;
    gpuipc_word returned;
    size_t count = 0;
    gpuipc_status status;
    TRY(gpuipc_channel_loan(channel, state->stream, 10000, &frame))
    TRY(gpuipc_channel_publish_by_kernel(channel, &frame, state->stream, &ready, 1, &count))
    atomic_store((_Atomic uint64_t *)(uintptr_t)ready.address, ready.value);
    TRY(gpuipc_channel_kernel_launched(channel, &frame, state->stream))
    TRY(gpuipc_subscription_take_for_kernel(reader, state->stream, 10000, &came, &awaited,
                                            &returned))
    atomic_store((_Atomic uint64_t *)(uintptr_t)returned.address, returned.value);
    TRY(gpuipc_subscription_kernel_launched(reader, &came, state->stream))
    TRY(is_stored(&ready) && is_stored(&returned) ? GPUIPC_OK : GPUIPC_ERR_WRONG_DATA)
give_back: /* nothing was made */
    return status;
}

/* @param pass what is done with it */
static gpuipc_status with_channel(scenario_state *state,
                                  gpuipc_status (*pass)(scenario_state *state,
                                                        gpuipc_channel *channel,
                                                        gpuipc_subscription *reader)) {
    const gpuipc_server_config polled = {.struct_size = sizeof(polled)};
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = state->buffer,
                                          .slots = 1,
                                          .slot_bytes = state->unit,
                                          .header_bytes = 8,
                                          .name = "frames"};
    gpuipc_server *server = NULL;
    gpuipc_channel *channel = NULL;
    gpuipc_subscription *reader = NULL;
    gpuipc_ticket ticket;
    gpuipc_status status;
    TRY(gpuipc_server_create(state->context, &polled, &server))
    TRY(gpuipc_channel_create(server, &config, &channel, &ticket))
    TRY(gpuipc_subscription_open_named(state->context, "frames", NULL, &reader))
    TRY(pass(state, channel, reader))
give_back:
    (void)gpuipc_subscription_close(reader);
    (void)gpuipc_channel_destroy(channel);
    (void)gpuipc_server_destroy(server);
    return status;
}

static gpuipc_status run_channel(scenario_state *state) {
    return with_channel(state, pass_frames);
}

static gpuipc_status run_kernels(scenario_state *state) {
    return with_channel(state, pass_frame_by_kernels);
}

const scenario scenarios[] = {
    {"context", prepare_nothing, run_context},
    {"create", scenario_prepare_context, run_create},
    {"life", prepare_nothing, run_life},
    {"wrap", prepare_own_memory, run_wrap},
    {"share", scenario_prepare_buffer, run_share},
    {"relay", scenario_prepare_data, run_relay},
    {"native", scenario_prepare_buffer, run_native},
    {"data", scenario_prepare_data, run_data},
    {"access", scenario_prepare_buffer, run_access},
    {"legacy", scenario_prepare_context, run_legacy},
    {"host", scenario_prepare_context, run_host},
    {"pool", prepare_pool, run_pool},
    {"staged", prepare_pinned, run_staged},
    {"p2p", prepare_p2p, run_p2p},
    {"ticket", scenario_prepare_data, run_ticket},
    {"loan", prepare_loan, run_loan},
    {"channel", prepare_loan, run_channel},
    {"turns", prepare_loan, run_turns},
    {"kernels", prepare_loan, run_kernels},
};
const size_t scenario_count = sizeof(scenarios) / sizeof(scenarios[0]);

const scenario *scenario_find(const char *name) {
    for (size_t i = 0; i < scenario_count; i++) {
        if (strcmp(scenarios[i].name, name) == 0) {
            return &scenarios[i];
        }
    }
    return NULL;
}

gpuipc_status scenario_begin(const scenario *self, scenario_state *state) {
    *state = (scenario_state){.context = NULL};
    if (!runtime_directory_make(state->directory)) {
        return GPUIPC_ERR_OS;
    }
    return self->prepare(state);
}

void scenario_settle(const scenario_state *state) {
    const gpuipc_error why = status_save();
    context *ctx;
    if (context_acquire(state->context, &ctx) == GPUIPC_OK) {
        (void)deferred_work_off(ctx);
        context_unreference(ctx);
    }
    status_restore(&why);
}

void scenario_end(scenario_state *state) {
    const driver *drv = &state->driver;
    CUcontext popped;
    for (size_t i = 0; i < state->segment_count; i++) {
        os_handle handle = OS_HANDLE_NONE;
        if (os_handle_adopt(state->segments[i].handle.value, &handle) == GPUIPC_OK) {
            os_handle_close(&handle);
        }
    }
    (void)gpuipc_connection_close(state->client);
    (void)gpuipc_connection_close(state->connection);
    (void)gpuipc_listener_close(state->listener);
    (void)gpuipc_server_destroy(state->server);
    (void)gpuipc_buffer_release(state->buffer);
    (void)gpuipc_buffer_release(state->other);
    if (state->stream != NULL) {
        (void)drv->cuStreamDestroy(state->stream);
    }
    if (state->pinned != NULL) {
        (void)drv->cuMemFreeHost(state->pinned);
    }
    if (state->cuda_context != NULL) {
        (void)drv->cuCtxPopCurrent(&popped);
        (void)drv->cuDevicePrimaryCtxRelease(0);
    }
    for (size_t i = 0; i < 2; i++) {
        if (state->own_handles[i] != 0) {
            (void)drv->cuMemUnmap(state->own_address + i * state->unit, state->unit);
            (void)drv->cuMemRelease(state->own_handles[i]);
        }
    }
    if (state->own_address != 0) {
        (void)drv->cuMemAddressFree(state->own_address, 2 * state->unit);
    }
    (void)gpuipc_context_destroy(state->context);
    runtime_directory_remove(state->directory);
}
