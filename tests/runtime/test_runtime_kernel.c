/* SPDX-License-Identifier: MIT */
/** @file What nvcc puts into a program that has kernels: it starts, and the launch is refused. */
#include "runtime.h"

TestSuite(kernel, .timeout = 60);

/* crt/host_runtime.h */
void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *function, char *device_name,
                            const char *name, int thread_limit, void *thread_id, void *block_id,
                            void *block_size, void *grid_size, int *warp_size);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream);

/* The function that nvcc makes of a kernel; its address is the kernel's name. */
static void stub(void) {
    dim3 grid = {0, 0, 0}, block = {0, 0, 0};
    size_t shared_bytes = 0;
    cudaStream_t stream = NULL;
    if (__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream) == cudaSuccess) {
        cr_assert_eq(grid.x, 2);
        cr_assert_eq(block.z, 3);
        cr_assert_eq(shared_bytes, 64);
        (void)cudaLaunchKernel((const void *)(uintptr_t)stub, grid, block, NULL, shared_bytes,
                               stream);
    }
}

Test(kernel, is_taken_and_not_run) {
    static char image[64], name[] = "stub";
    void **const handle = __cudaRegisterFatBinary(image);
    cr_assert_not_null(handle);
    __cudaRegisterFunction(handle, (const char *)(uintptr_t)stub, name, name, -1, NULL, NULL, NULL,
                           NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
    cr_assert_eq(__cudaPushCallConfiguration((dim3){2, 1, 1}, (dim3){1, 1, 3}, 64, NULL), 0);
    stub();
    cr_assert_eq(cudaGetLastError(), cudaErrorNoKernelImageForDevice);
    OK(cudaDeviceSynchronize());
    __cudaUnregisterFatBinary(handle);
}

Test(kernel, without_a_configuration) {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    RESULT(cudaErrorMissingConfiguration,
           __cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream));
}
