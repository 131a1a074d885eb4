/* SPDX-License-Identifier: MIT */
/**
 * @file Kernels, which nothing here can run. A program that nvcc has built hands its images in before main, by
 * functions of crt/host_runtime.h, and goes through two more where it has <<<>>>. All images are taken, none is looked
 * at, and a launch answers what a GPU answers for which the program has no code.
 */
#include "current.h"

GPUIPC_EXPORTED void **__cudaRegisterFatBinary(void *image);
GPUIPC_EXPORTED void __cudaRegisterFatBinaryEnd(void **handle);
GPUIPC_EXPORTED void __cudaUnregisterFatBinary(void **handle);
GPUIPC_EXPORTED void __cudaRegisterFunction(void **handle, const char *function, char *device_name,
                                            const char *name, int thread_limit, void *thread_id,
                                            void *block_id, void *block_size, void *grid_size,
                                            int *warp_size);
GPUIPC_EXPORTED void __cudaRegisterVar(void **handle, char *variable, char *device_address,
                                       const char *name, int is_extern, size_t bytes,
                                       int is_constant, int is_global);
GPUIPC_EXPORTED unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                     struct CUstream_st *stream);
GPUIPC_EXPORTED cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block,
                                                       size_t *shared_bytes, void *stream);

/* What is between the brackets, until the launch asks for it: in the same thread, at once. */
typedef struct configuration {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    cudaStream_t stream;
} configuration;

static GPUIPC_THREAD_LOCAL configuration pushed;
static GPUIPC_THREAD_LOCAL bool is_pushed;

/* Handles are only given back; one serves all. */
static void *image_handle;

GPUIPC_EXPORTED void **__cudaRegisterFatBinary(void *image) {
    (void)image;
    return &image_handle;
}

GPUIPC_EXPORTED void __cudaRegisterFatBinaryEnd(void **handle) {
    (void)handle;
}

GPUIPC_EXPORTED void __cudaUnregisterFatBinary(void **handle) {
    (void)handle;
}

GPUIPC_EXPORTED void __cudaRegisterFunction(void **handle, const char *function, char *device_name,
                                            const char *name, int thread_limit, void *thread_id,
                                            void *block_id, void *block_size, void *grid_size,
                                            int *warp_size) {
    (void)handle, (void)function, (void)device_name, (void)name, (void)thread_limit;
    (void)thread_id, (void)block_id, (void)block_size, (void)grid_size, (void)warp_size;
}

GPUIPC_EXPORTED void __cudaRegisterVar(void **handle, char *variable, char *device_address,
                                       const char *name, int is_extern, size_t bytes,
                                       int is_constant, int is_global) {
    (void)handle, (void)variable, (void)device_address, (void)name, (void)is_extern;
    (void)bytes, (void)is_constant, (void)is_global;
}

GPUIPC_EXPORTED unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                     struct CUstream_st *stream) {
    pushed = (configuration){grid, block, shared_bytes, stream};
    is_pushed = true;
    return 0;
}

GPUIPC_EXPORTED cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block,
                                                       size_t *shared_bytes, void *stream) {
    if (!is_pushed) {
        return current_fail(cudaErrorMissingConfiguration);
    }
    is_pushed = false;
    *grid = pushed.grid;
    *block = pushed.block;
    *shared_bytes = pushed.shared_bytes;
    *(cudaStream_t *)stream = pushed.stream;
    return cudaSuccess;
}

GPUIPC_EXPORTED cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block,
                                             void **arguments, size_t shared_bytes,
                                             cudaStream_t stream) {
    (void)grid, (void)block, (void)arguments, (void)shared_bytes, (void)stream;
    if (!current_begin()) {
        return current_refused();
    }
    return current_fail(function == NULL ? cudaErrorInvalidDeviceFunction
                                         : cudaErrorNoKernelImageForDevice);
}
