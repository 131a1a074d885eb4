/* SPDX-License-Identifier: MIT */
/** @file See core_fixture.h. */
#include "core_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulated.h"
#include "leak_gate.h"
#include "thread_state.h"

gpuipc_context *core_context;
char core_directory[RUNTIME_DIRECTORY_MAX];
bool core_is_emulated;
uint32_t core_device_count;
uint64_t core_unit;

static leak_gate gate;
static driver own_driver;
static bool has_own_driver;
static int entered_device = -1;

static const char *driver_choice(void) {
    const char *choice = os_environment("GPUIPC_CUDA_DRIVER");
    return choice == NULL || choice[0] == '\0' ? "auto" : choice;
}

void core_start_without_context(void) {
    cr_assert(runtime_directory_make(core_directory));
    core_is_emulated = strcmp(driver_choice(), "emulated") == 0;
    leak_gate_begin(&gate);
}

gpuipc_context_config core_context_config(void) {
    return (gpuipc_context_config){.struct_size = sizeof(gpuipc_context_config),
                                   .runtime_directory = core_directory};
}

gpuipc_context *core_context_new(void) {
    const gpuipc_context_config config = core_context_config();
    gpuipc_context *made = NULL;
    gpuipc_status status = gpuipc_context_create(&config, &made);
    if (strcmp(driver_choice(), "auto") == 0 &&
        (status == GPUIPC_ERR_NO_DRIVER || status == GPUIPC_ERR_NO_DEVICE)) {
        cr_skip_test("no CUDA driver, or no GPU that it could use");
    }
    check_ok(status);
    return made;
}

static void note_what_it_has(void) {
    gpuipc_context_info info = {.struct_size = sizeof(info)};
    gpuipc_device_info device = {.struct_size = sizeof(device)};
    check_ok(gpuipc_context_get_info(core_context, &info));
    check_ok(gpuipc_device_get_info(core_context, 0, &device));
    core_is_emulated = info.is_emulated == 1;
    core_device_count = info.device_count;
    core_unit = device.granularity_bytes;
}

void core_open_context(const gpuipc_context_config *config) {
    check_ok(gpuipc_context_create(config, &core_context));
    note_what_it_has();
}

void core_start(void) {
    core_start_without_context();
    core_context = core_context_new();
    note_what_it_has();
}

/* Ends the test as failed: Criterion ignores an assertion that fails in a .fini, but not this. */
static void fail_in_finish(const char *what) {
    fprintf(stderr, "after the test: %s\n", what);
    core_crash();
}

void core_finish(void) {
    CUcontext popped;
    if (entered_device >= 0) {
        (void)own_driver.cuCtxPopCurrent(&popped);
        (void)own_driver.cuDevicePrimaryCtxRelease(entered_device);
    }
    if (core_context != NULL && gpuipc_context_destroy(core_context) != GPUIPC_OK) {
        fail_in_finish(gpuipc_error_get()->sentence);
    }
    runtime_directory_remove(core_directory);
    /* A real driver opens descriptors of its own whenever it likes, so only the emulated one is
     * behind the gate; what the library leaves behind is the same on both. */
    const int leaks = core_is_emulated ? leak_gate_await(&gate, SOON_MS) : leak_gate_end(&gate);
    if (core_is_emulated && leaks != 0) {
        fail_in_finish(gate.text);
    }
}

void core_need_devices(uint32_t count) {
    if (core_device_count < count) {
        cr_skip_test("needs %u devices, this machine has %u", count, core_device_count);
    }
}

void core_need_emulated(void) {
    if (!core_is_emulated) {
        cr_skip_test("needs the emulated driver: failures on demand, machines of other kinds");
    }
}

const driver *core_driver(void) {
    if (!has_own_driver) {
        check_ok(driver_open(driver_choice(), &own_driver));
        has_own_driver = true;
    }
    return &own_driver;
}

void core_enter_device(int ordinal) {
    const driver *drv = core_driver();
    CUcontext primary;
    if (entered_device == ordinal) {
        return;
    }
    cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&primary, ordinal), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxPushCurrent(primary), CUDA_SUCCESS);
    entered_device = ordinal;
}

void core_set_failures(const char *text) {
    void *symbol = os_library_symbol(core_driver()->library, GPUIPC_EMULATED_SET_FAIL);
    gpuipc_emulated_fail_fn set_fail;
    cr_assert_not_null(symbol);
    memcpy(&set_fail, &symbol, sizeof(set_fail));
    cr_assert_eq(set_fail(text), 0, "%s", text);
}

uint64_t core_calls(const char *name) {
    void *symbol = os_library_symbol(core_driver()->library, GPUIPC_EMULATED_CALLS);
    gpuipc_emulated_calls_fn get_calls;
    cr_assert_not_null(symbol);
    memcpy(&get_calls, &symbol, sizeof(get_calls));
    return get_calls(name);
}

void core_set_stream_delay(unsigned milliseconds) {
    void *symbol = os_library_symbol(core_driver()->library, GPUIPC_EMULATED_SET_DELAY);
    gpuipc_emulated_delay_fn set_delay;
    cr_assert_not_null(symbol);
    memcpy(&set_delay, &symbol, sizeof(set_delay));
    set_delay(milliseconds);
}

/* ---- a stream that is being captured ------------------------------------------------------- */

static struct {
    CUstream stream; /* NULL: none is */
    CUstream made;   /* for the legacy stream: a blocking one, which makes that unusable */
} captured;

static void find_entry(const char *name, void *function) {
    void *symbol = os_library_symbol(core_driver()->library, name);
    cr_assert_not_null(symbol, "%s", name);
    memcpy(function, &symbol, sizeof(symbol));
}

static CUstream make_blocking_stream(void) {
    const driver *drv = core_driver();
    CUcontext primary;
    CUcontext popped;
    CUstream made;
    cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxPushCurrent(primary), CUDA_SUCCESS);
    cr_assert_eq(drv->cuStreamCreate(&made, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    cr_assert_eq(drv->cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    return made;
}

static void end_capture(void) {
    CUresult (*end)(CUstream, void **);
    CUresult (*destroy)(void *);
    void *graph = NULL;
    find_entry("cuStreamEndCapture", &end);
    find_entry("cuGraphDestroy", &destroy);
    cr_assert_eq(end(captured.stream, &graph), CUDA_SUCCESS, "the capture was made invalid");
    cr_assert_eq(destroy(graph), CUDA_SUCCESS);
    if (captured.made != NULL) {
        cr_assert_eq(core_driver()->cuStreamDestroy(captured.made), CUDA_SUCCESS);
    }
    captured.stream = captured.made = NULL;
}

void core_set_captured(bool captures, CUstream stream) {
    CUresult (*begin)(CUstream, CUstreamCaptureMode);
    if (captured.stream != NULL) {
        end_capture();
    }
    if (captures) {
        find_entry("cuStreamBeginCapture_v2", &begin);
        const bool is_legacy = stream == NULL || stream == CU_STREAM_LEGACY;
        captured.made = is_legacy ? make_blocking_stream() : NULL;
        captured.stream = is_legacy ? captured.made : stream;
        cr_assert_eq(begin(captured.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    }
}

static void wait_in_call(void *argument) {
    core_waiter *self = argument;
    os_mutex_lock(&self->mutex);
    self->number = thread_state_own_number();
    self->is_started = true;
    os_condition_signal_all(&self->started);
    os_mutex_unlock(&self->mutex);
    self->status = self->call(self->argument);
}

void core_waiter_begin(core_waiter *self, gpuipc_status (*call)(void *argument), void *argument) {
    *self = (core_waiter){.call = call, .argument = argument};
    check_ok(os_condition_init(&self->started));
    check_ok(os_thread_start(wait_in_call, self, &self->thread));
    os_mutex_lock(&self->mutex);
    while (!self->is_started) {
        cr_assert(os_condition_wait(&self->started, &self->mutex, os_deadline_after(SOON_MS)));
    }
    os_mutex_unlock(&self->mutex);
}

void core_waiter_start(core_waiter *self, gpuipc_status (*call)(void *argument), void *argument) {
    core_waiter_begin(self, call, argument);
    cr_assert(thread_state_wait_asleep(self->number, SOON_MS));
}

gpuipc_status core_waiter_end(core_waiter *self) {
    os_thread_join(self->thread);
    os_condition_destroy(&self->started);
    return self->status;
}

gpuipc_buffer *core_buffer(uint64_t bytes, uint64_t segment_bytes) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .bytes = bytes, .segment_bytes = segment_bytes};
    gpuipc_buffer *made = NULL;
    check_ok(gpuipc_buffer_create(core_context, &config, &made));
    return made;
}

gpuipc_buffer_info core_info(gpuipc_buffer *buffer) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_buffer_get_info(buffer, &info));
    return info;
}

static uint32_t *pattern_make(uint64_t bytes, uint32_t seed) {
    uint32_t *words = malloc(bytes);
    cr_assert_not_null(words);
    for (uint32_t i = 0; i < bytes / sizeof(*words); i++) {
        words[i] = (i * 2 + 1337 + seed) ^ 0xDEADBEEF;
    }
    return words;
}

void core_write_pattern(gpuipc_buffer *buffer, uint32_t seed) {
    const uint64_t bytes = core_info(buffer).bytes & ~UINT64_C(3);
    uint32_t *words = pattern_make(bytes, seed);
    check_ok(gpuipc_buffer_write(buffer, 0, words, bytes));
    free(words);
}

void core_check_pattern(gpuipc_buffer *buffer, uint32_t seed) {
    const uint64_t bytes = core_info(buffer).bytes & ~UINT64_C(3);
    uint32_t *wanted = pattern_make(bytes, seed);
    uint32_t *words = malloc(bytes);
    cr_assert_not_null(words);
    check_ok(gpuipc_buffer_read(buffer, 0, words, bytes));
    cr_assert_eq(memcmp(words, wanted, bytes), 0, "the pattern of seed %u is not there", seed);
    free(words);
    free(wanted);
}

void core_pair_open(core_pair *pair, gpuipc_context *server, gpuipc_context *client) {
    unique_name(pair->name);
    check_ok(gpuipc_listener_open(server, pair->name, NULL, &pair->listener));
    check_ok(gpuipc_connection_open(client, pair->name, NULL, SOON_MS, &pair->client));
    check_ok(gpuipc_listener_accept(pair->listener, SOON_MS, &pair->server));
}

void core_pair_close(core_pair *pair) {
    check_ok(gpuipc_connection_close(pair->client));
    check_ok(gpuipc_connection_close(pair->server));
    check_ok(gpuipc_listener_close(pair->listener));
    *pair = (core_pair){.listener = NULL};
}

gpuipc_status core_send(gpuipc_connection *connection, gpuipc_buffer *const *buffers,
                        size_t count) {
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .buffers = buffers, .buffer_count = count};
    return gpuipc_connection_send(connection, &message, SOON_MS);
}

gpuipc_status core_receive(gpuipc_connection *connection, gpuipc_buffer **buffers, size_t count) {
    gpuipc_incoming message = {
        .struct_size = sizeof(message), .buffers = buffers, .buffer_capacity = count};
    gpuipc_status status = gpuipc_connection_receive(connection, &message, SOON_MS);
    if (status == GPUIPC_OK) {
        cr_assert_eq(message.buffer_count, count);
        cr_assert_eq(message.bytes_size, 0);
    }
    return status;
}
