/* SPDX-License-Identifier: MIT */
/**
 * @file A program of the CUDA runtime, linked with -lcudart_static: usage: preload_runtime [child HANDLE SIZE].
 * It allocates, asks, frees, and shares memory with itself as another process.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(call)                                                                                 \
    do {                                                                                           \
        const cudaError_t answer_ = (call);                                                        \
        if (answer_ != cudaSuccess) {                                                              \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                          \
                    cudaGetErrorString(answer_));                                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void fill(void *address, size_t bytes, int seed) {
    unsigned char *data = malloc(bytes);
    CHECK(data != NULL);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)(i * 31 + (size_t)seed);
    }
    MUST(cudaMemcpy(address, data, bytes, cudaMemcpyHostToDevice));
    MUST(cudaDeviceSynchronize());
    free(data);
}

static void verify(const void *address, size_t bytes, int seed) {
    unsigned char *data = malloc(bytes);
    CHECK(data != NULL);
    MUST(cudaMemcpy(data, address, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes; i++) {
        CHECK(data[i] == (unsigned char)(i * 31 + (size_t)seed));
    }
    free(data);
}

static void run_child(const char *text, size_t bytes) {
    cudaIpcMemHandle_t handle;
    void *opened;
    for (size_t i = 0; i < sizeof(handle); i++) {
        const char digits[] = {text[2 * i], text[2 * i + 1], '\0'};
        ((unsigned char *)&handle)[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    MUST(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess));
    verify(opened, bytes, 1);
    fill(opened, bytes, 2);
    MUST(cudaIpcCloseMemHandle(opened));
}

static void share(const char *program, void *address, size_t bytes) {
    cudaIpcMemHandle_t handle;
    char text[2 * sizeof(handle) + 1];
    char size[32];
    int status;
    fill(address, bytes, 1);
    MUST(cudaIpcGetMemHandle(&handle, address));
    for (size_t i = 0; i < sizeof(handle); i++) {
        snprintf(text + 2 * i, 3, "%02x", ((unsigned char *)&handle)[i]);
    }
    snprintf(size, sizeof(size), "%zu", bytes);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl(program, program, "child", text, size, (char *)NULL);
        _exit(127);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    verify(address, bytes, 2);
}

static void check_one(void *address, size_t bytes) {
    struct cudaPointerAttributes about;
    MUST(cudaPointerGetAttributes(&about, address));
    CHECK(about.type == cudaMemoryTypeDevice && about.device == 0 &&
          about.devicePointer == address);
    MUST(cudaMemset(address, 7, bytes));
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {1, 100, 1 << 20, 2 << 20, 40 << 20};
    void *made[sizeof(sizes) / sizeof(sizes[0])];
    size_t pitch;
    struct cudaPitchedPtr cube;
    void *rows;
    if (argc == 4) {
        run_child(argv[2], strtoul(argv[3], NULL, 10));
        return 0;
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        MUST(cudaMalloc(&made[i], sizes[i]));
        check_one(made[i], sizes[i]);
    }
    MUST(cudaMallocPitch(&rows, &pitch, 1000, 300));
    MUST(cudaMemset2D(rows, pitch, 1, 1000, 300));
    MUST(cudaMalloc3D(&cube, (struct cudaExtent){100, 100, 100}));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        share(argv[0], made[i], sizes[i]);
        MUST(cudaFree(made[i]));
    }
    MUST(cudaFree(rows));
    MUST(cudaFree(cube.ptr));
    CHECK(cudaFree((void *)12345) != cudaSuccess);
    MUST(cudaDeviceReset());
    MUST(cudaMalloc(&made[0], 100));
    MUST(cudaFree(made[0]));
    printf("the runtime's memory: well\n");
    return 0;
}
