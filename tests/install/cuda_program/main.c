/* SPDX-License-Identifier: MIT */
/** @file Memory written and read again by the CUDA Driver API alone. Exit code 0: the word came back. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* As in cuda.h, which no machine without the toolkit has. */
typedef struct CUctx_st *CUcontext;
int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetName(char *name, int length, int device);
int cuDevicePrimaryCtxRetain(CUcontext *context, int device);
int cuCtxSetCurrent(CUcontext context);
int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
int cuMemFree_v2(uint64_t address);

int main(void) {
    char name[64] = "";
    CUcontext context;
    uint64_t memory;
    int device;
    unsigned word = 1337;
    unsigned found = 0;
    if (cuInit(0) != 0 || cuDeviceGet(&device, 0) != 0 ||
        cuDeviceGetName(name, sizeof name, device) != 0 ||
        cuDevicePrimaryCtxRetain(&context, device) != 0 || cuCtxSetCurrent(context) != 0 ||
        cuMemAlloc_v2(&memory, sizeof word) != 0 ||
        cuMemcpyHtoD_v2(memory, &word, sizeof word) != 0 ||
        cuMemcpyDtoH_v2(&found, memory, sizeof found) != 0 || cuMemFree_v2(memory) != 0) {
        fprintf(stderr, "a call failed\n");
        return 1;
    }
    printf("%s: %u\n", name, found);
    return found == word ? 0 : 1;
}
