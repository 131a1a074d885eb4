/* SPDX-License-Identifier: MIT */
/** @file Whole sessions with a hostile peer, over the operating system's layer in memory: see session.h. After each there is
 *  nothing left of it: no descriptor, no mapping, no object of the driver's, no memory. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "allocated.h"
#include "base/quota.h"
#include "driver.h"
#include "fuzz.h"
#include "leak_gate.h"
#include "session.h"
#include "unique.h"

#define DESCRIPTORS 256
/* Tables that grow by doubling have so much more in the end than at first. */
#define GROWTH_BYTES (INT64_C(1) << 20)

static char directory[RUNTIME_DIRECTORY_MAX];
static gpuipc_context *context_of_all; /* which keeps the driver */
static gpuipc_buffer *memory_of_all;
static leak_gate gate;
static struct pollfd open_before[DESCRIPTORS];
static long mapped;

/* ---- what is left ------------------------------------------------------------------------------ */

/* The library's own mappings: the linker has these called in the place of mmap() and munmap(). */
void *__real_mmap(void *at, size_t bytes, int rights, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int rights, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t bytes);

void *__wrap_mmap(void *at, size_t bytes, int rights, int flags, int fd, off_t offset) {
    void *made = __real_mmap(at, bytes, rights, flags, fd, offset);
    mapped += made != MAP_FAILED;
    return made;
}

int __wrap_munmap(void *at, size_t bytes) {
    mapped--;
    return __real_munmap(at, bytes);
}

/* poll(2): POLLNVAL says that a descriptor is not open. */
static void look_at_descriptors(struct pollfd entries[DESCRIPTORS]) {
    for (int i = 0; i < DESCRIPTORS; i++) {
        entries[i] = (struct pollfd){.fd = i};
    }
    FUZZ_CHECK(poll(entries, DESCRIPTORS, 0) >= 0);
}

/* To ask the driver for all its functions takes longer than a session: it is done once. */
gpuipc_status __real_driver_open(const char *choice, driver *out_driver);
gpuipc_status __wrap_driver_open(const char *choice, driver *out_driver);

static driver drv;

gpuipc_status __wrap_driver_open(const char *choice, driver *out_driver) {
    gpuipc_status status = GPUIPC_OK;
    if (drv.library == NULL) {
        status = __real_driver_open(choice, &drv);
    }
    *out_driver = drv;
    return status;
}

void session_driver_settle(void) {
    CUcontext of_device;
    FUZZ_CHECK(drv.cuDevicePrimaryCtxRetain(&of_device, 0) == CUDA_SUCCESS);
    FUZZ_CHECK(drv.cuCtxPushCurrent(of_device) == CUDA_SUCCESS);
    FUZZ_CHECK(drv.cuStreamSynchronize(NULL) == CUDA_SUCCESS);
    FUZZ_CHECK(drv.cuCtxPopCurrent(&of_device) == CUDA_SUCCESS);
    FUZZ_CHECK(drv.cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
}

static bool is_left(int fd, const struct pollfd *after) {
    char path[32];
    char target[128] = "";
    if ((after->revents & POLLNVAL) != 0 || (open_before[fd].revents & POLLNVAL) == 0) {
        return false;
    }
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    (void)!readlink(path, target, sizeof(target) - 1);
    (void)fprintf(stderr, "left behind: descriptor %d, %s\n", fd, target);
    return true;
}

static void check_descriptors(void) {
    static struct pollfd open_now[DESCRIPTORS];
    look_at_descriptors(open_now);
    for (int i = 0; i < DESCRIPTORS; i++) {
        FUZZ_CHECK(!is_left(i, &open_now[i]));
    }
}

static void check_driver(void) {
    gpuipc_emulated_live live;
    gate.get_live(&live);
    FUZZ_CHECK(memcmp(&live, &gate.live, sizeof(live)) == 0);
}

/* AddressSanitizer counts by itself. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static uint64_t allocated(void) {
    return __sanitizer_get_current_allocated_bytes != NULL
               ? __sanitizer_get_current_allocated_bytes()
               : allocated_bytes();
}

/* ---- once -------------------------------------------------------------------------------------- */

static void finish(void) {
    FUZZ_CHECK(gpuipc_buffer_release(memory_of_all) == GPUIPC_OK &&
               gpuipc_context_destroy(context_of_all) == GPUIPC_OK);
    runtime_directory_remove(directory);
}

static void play(const uint8_t *data, size_t size);

/* What the library and the driver make once is there before anything is counted. */
static void start(void) {
    static const uint8_t all_there_is_at_first[] = {0x07, 0x47, 0x87, 0xC7};
    const gpuipc_context_config config = {
        .struct_size = sizeof(config), .driver = "emulated", .runtime_directory = directory};
    const gpuipc_buffer_config memory = {.struct_size = sizeof(memory), .bytes = SESSION_BYTES};
    FUZZ_CHECK(runtime_directory_make(directory) && atexit(finish) == 0);
    FUZZ_CHECK(gpuipc_context_create(&config, &context_of_all) == GPUIPC_OK);
    FUZZ_CHECK(gpuipc_buffer_create(context_of_all, &memory, &memory_of_all) == GPUIPC_OK);
    hostile_prepare(memory_of_all);
    for (size_t i = 0; i < sizeof(all_there_is_at_first); i++) {
        play(&all_there_is_at_first[i], 1);
    }
    leak_gate_begin(&gate);
    mapped = 0;
}

/* ---- a session --------------------------------------------------------------------------------- */

/* The first byte: what there is already (bits 0 to 2), who ends first, how much others may take here, who the peer is, and
 * what kind of memory the program shares (bits 6 and 7). */
static void play(const uint8_t *data, size_t size) {
    static const quota_amount little = {{[QUOTA_HANDLES] = 96,
                                         [QUOTA_MAPPINGS] = 48,
                                         [QUOTA_ADDRESSES] = UINT64_C(1) << 30,
                                         [QUOTA_MEMORY] = UINT64_C(1) << 20}};
    static const gpuipc_transport of_own[] = {GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_POOL,
                                              GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_HOST};
    now.input = (script){.data = data, .size = size};
    const uint8_t with = script_byte(&now.input);
    memory_begin();
    quota_pretend((with & 0x10u) != 0 ? &little : NULL);
    hostile_begin((with & 0x20u) == 0);
    honest_begin(directory);
    honest_starts(with & 7u, of_own[with >> 6]);
    memory_meanwhile = session_meanwhile;
    session_play();
    memory_meanwhile = NULL;
    /* What a living process may have open of memory that ends with its owner stays to the end of this one. */
    if ((with & 8u) != 0 || with >> 6 != 0) {
        hostile_leaves(with >> 6 != 0);
    }
    honest_end_all();
    hostile_end_all();
}

/* libFuzzer opens and allocates as well, between two sessions. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int64_t grown;
    if (context_of_all == NULL) {
        start();
    }
    const uint64_t allocated_before = allocated();
    look_at_descriptors(open_before);
    play(data, size);
    check_descriptors();
    check_driver();
    FUZZ_CHECK(mapped == 0);
    grown += (int64_t)(allocated() - allocated_before);
    FUZZ_CHECK(grown <= GROWTH_BYTES);
    return 0;
}
