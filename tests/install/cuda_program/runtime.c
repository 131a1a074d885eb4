/* SPDX-License-Identifier: MIT */
/** @file Memory written and read again by the CUDA Runtime API alone. Exit code 0: the word came back. */
#include <stddef.h>
#include <stdio.h>

/* As in cuda_runtime_api.h, which no machine without the toolkit has. */
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2
};
int cudaMalloc(void **address, size_t bytes);
int cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind);
int cudaFree(void *address);
const char *cudaGetErrorName(int error);
int cudaGetLastError(void);

int main(void) {
    void *memory;
    unsigned word = 1337;
    unsigned found = 0;
    if (cudaMalloc(&memory, sizeof word) != 0 ||
        cudaMemcpy(memory, &word, sizeof word, cudaMemcpyHostToDevice) != 0 ||
        cudaMemcpy(&found, memory, sizeof found, cudaMemcpyDeviceToHost) != 0 ||
        cudaFree(memory) != 0) {
        fprintf(stderr, "%s\n", cudaGetErrorName(cudaGetLastError()));
        return 1;
    }
    printf("the runtime: %u\n", found);
    return found == word ? 0 : 1;
}
