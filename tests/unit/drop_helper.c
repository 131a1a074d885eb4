/* SPDX-License-Identifier: MIT */
/** @file A process that ends while something is dropped: drop_helper ROLE DIRECTORY.
 *  pending: a drop waits for work that is never done. handler: a handler of exit() drops, before the library's own
 *  and behind it. idle: what was dropped is gone, and the thread may still be there. */
#include <stdlib.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "driver.h"
#include "os.h"

static gpuipc_buffer *late[2];
static int failures;

static void drop_late(void) {
    for (int i = 0; i < 2; i++) {
        if (late[i] != NULL && gpuipc_buffer_drop(late[i]) != GPUIPC_OK) {
            _Exit(3);
        }
        late[i] = NULL;
    }
}

static void need(int ok) {
    failures += ok ? 0 : 1;
}

static gpuipc_buffer *make(gpuipc_context *ctx) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 1};
    gpuipc_buffer *made = NULL;
    need(gpuipc_buffer_create(ctx, &config, &made) == GPUIPC_OK);
    return made;
}

/* Nobody writes the word. */
static void hold_up(const driver *drv) {
    void *memory = NULL;
    CUdeviceptr address = 0;
    CUstream stream = NULL;
    CUcontext primary;
    need(drv->cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
    need(drv->cuCtxPushCurrent(primary) == CUDA_SUCCESS);
    need(drv->cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP) ==
         CUDA_SUCCESS);
    need(drv->cuMemHostGetDevicePointer(&address, memory, 0) == CUDA_SUCCESS);
    memset(memory, 0, 8);
    need(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    need(drv->cuStreamWaitValue64(stream, address, 1, 0) == CUDA_SUCCESS);
}

int main(int argc, char **argv) {
    driver drv;
    gpuipc_context *ctx = NULL;
    const char *choice = getenv("GPUIPC_CUDA_DRIVER");
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = argc > 2 ? argv[2] : NULL};
    if (argc < 3 || gpuipc_context_create(&config, &ctx) != GPUIPC_OK ||
        driver_open(choice != NULL && choice[0] != 0 ? choice : "auto", &drv) != GPUIPC_OK) {
        return 2;
    }
    if (strcmp(argv[1], "handler") == 0) {
        late[0] = make(ctx);
        need(atexit(drop_late) == 0); /* runs behind the library's */
    }
    if (strcmp(argv[1], "idle") != 0) {
        hold_up(&drv);
    }
    need(gpuipc_buffer_drop(make(ctx)) == GPUIPC_OK);
    if (strcmp(argv[1], "handler") == 0) {
        late[1] = make(ctx);
        need(atexit(drop_late) == 0); /* and before it */
    }
    return failures;
}
