/* SPDX-License-Identifier: MIT */
/** @file What single calls of the library cost in C, for handover_calls.py, which compiles this against the package's own
 *  headers and library. All times are in nanoseconds a call, of @p rounds calls in a row. */
#include <gpuipc/gpuipc.h>
#include <gpuipc/gpuipc_dlpack.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static gpuipc_context *context;
static gpuipc_buffer *buffer;

/* A context, and a buffer that others open by a ticket. */
gpuipc_status calls_share(int on_host, gpuipc_ticket *out_ticket) {
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    gpuipc_share_config share = GPUIPC_SHARE_CONFIG_INIT;
    gpuipc_server *server = NULL;
    config.bytes = 1 << 20;
    config.device = GPUIPC_DEVICE(0);
    config.transport = on_host ? GPUIPC_TRANSPORT_HOST : GPUIPC_TRANSPORT_DEFAULT;
    share.flags = GPUIPC_SEND_READY;
    gpuipc_status status = gpuipc_context_create(NULL, &context);
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_create(context, &config, &buffer);
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_server_create(context, NULL, &server);
    }
    return status == GPUIPC_OK ? gpuipc_buffer_share(server, buffer, &share, out_ticket) : status;
}

gpuipc_status calls_open(const gpuipc_ticket *ticket, uint32_t device) {
    gpuipc_open_config config = GPUIPC_OPEN_CONFIG_INIT;
    config.device = GPUIPC_DEVICE(device);
    gpuipc_status status = gpuipc_context_create(NULL, &context);
    return status == GPUIPC_OK ? gpuipc_buffer_open(context, ticket, &config, &buffer) : status;
}

static double time_lending(int rounds, int is_ready) {
    gpuipc_mark loans[256];
    const double begin = now();
    for (int i = 0; i < rounds && i < 256; i++) {
        const gpuipc_status status = is_ready ? gpuipc_buffer_lend_ready(buffer, &loans[i])
                                              : gpuipc_buffer_lend(buffer, NULL, &loans[i]);
        if (status != GPUIPC_OK) {
            return -1;
        }
    }
    const double taken = now() - begin;
    for (int i = 0; i < rounds; i++) {
        if (gpuipc_buffer_cancel_loan(buffer, &loans[i]) != GPUIPC_OK) {
            return -1;
        }
    }
    return taken / rounds;
}

double calls_time_lend(int rounds) {
    return time_lending(rounds, 0);
}

double calls_time_lend_ready(int rounds) {
    return time_lending(rounds, 1);
}

/* With what it takes to know the memory, and to give it up. */
double calls_time_open(const gpuipc_ticket *ticket, uint32_t device, int rounds) {
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    gpuipc_open_config config = GPUIPC_OPEN_CONFIG_INIT;
    config.device = GPUIPC_DEVICE(device);
    config.flags = GPUIPC_RECEIVE_DEFERRED;
    config.info = &info;
    const double begin = now();
    for (int i = 0; i < rounds; i++) {
        gpuipc_buffer *opened;
        if (gpuipc_buffer_open(context, ticket, &config, &opened) != GPUIPC_OK ||
            gpuipc_buffer_drop(opened) != GPUIPC_OK) {
            return -1;
        }
    }
    return (now() - begin) / rounds;
}

double calls_time_clock(int rounds) {
    const double begin = now();
    for (int i = 0; i < rounds; i++) {
        (void)now();
    }
    return (now() - begin) / rounds;
}

double calls_time_dlpack(int rounds) {
    const gpuipc_range range = {.bytes = 1 << 20,
                                .element_type = GPUIPC_ELEMENT_TYPE(GPUIPC_ELEMENT_INT, 32, 1),
                                .dimensions = 1,
                                .shape = {1 << 18},
                                .strides = {1}};
    const double begin = now();
    for (int i = 0; i < rounds; i++) {
        gpuipc_dlpack_versioned *tensor;
        if (gpuipc_dlpack_make_versioned(buffer, &range, &tensor) != GPUIPC_OK) {
            return -1;
        }
        tensor->deleter(tensor);
    }
    return (now() - begin) / rounds;
}
