/* SPDX-License-Identifier: MIT */
/**
 * @file An ordinary program, built with NVIDIA's header and linked with NVIDIA's library. It sends words to the device, has
 * a stream bring them back, and prints the device's name, what the memory is, and "verified". A call that fails: its name.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 100000

static void must(cudaError_t result, const char *call) {
    if (result != cudaSuccess) {
        printf("%s: %s\n", call, cudaGetErrorName(result));
        exit(1);
    }
}
#define MUST(call) must(call, #call)

int main(void) {
    static unsigned out[COUNT];
    struct cudaDeviceProp properties;
    struct cudaPointerAttributes attributes;
    unsigned *back, *memory;
    cudaStream_t stream;
    cudaEvent_t event;
    MUST(cudaSetDevice(0));
    MUST(cudaGetDeviceProperties(&properties, 0));
    MUST(cudaMalloc((void **)&memory, sizeof out));
    MUST(cudaMallocHost((void **)&back, sizeof out));
    MUST(cudaStreamCreate(&stream));
    MUST(cudaEventCreate(&event));
    for (unsigned i = 0; i < COUNT; i++) {
        out[i] = i * 3;
    }
    MUST(cudaMemcpy(memory, out, sizeof out, cudaMemcpyHostToDevice));
    MUST(cudaMemcpyAsync(back, memory, sizeof out, cudaMemcpyDeviceToHost, stream));
    MUST(cudaEventRecord(event, stream));
    MUST(cudaEventSynchronize(event));
    for (unsigned i = 0; i < COUNT; i++) {
        if (back[i] != i * 3) {
            printf("word %u is %u\n", i, back[i]);
            return 1;
        }
    }
    MUST(cudaPointerGetAttributes(&attributes, memory));
    MUST(cudaEventDestroy(event));
    MUST(cudaStreamDestroy(stream));
    MUST(cudaFreeHost(back));
    MUST(cudaFree(memory));
    printf("%s, compute %d.%d, type %d, device %d: verified\n", properties.name, properties.major,
           properties.minor, (int)attributes.type, attributes.device);
    return 0;
}
