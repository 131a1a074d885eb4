/* SPDX-License-Identifier: MIT */
/** @file See dma_buf.h. */
#include "dma_buf.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

const bool dma_buf_is_there = true;

/* Without the right to read it cannot be mapped either (mmap(2), EACCES), and the seal forbids to write. */
static int open_to_nobody(int memory) {
    char path[64];
    if (fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
        return -1;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
    return open(path, O_WRONLY | O_CLOEXEC);
}

CUresult dma_buf_create(uint64_t bytes, int *out_number) {
    int number = -1;
    os_limits limits;
    os_limits_get(&limits);
    if (bytes > limits.file_bytes) {
        return CUDA_ERROR_OPERATING_SYSTEM; /* setrlimit(2), RLIMIT_FSIZE: ftruncate() would be SIGXFSZ */
    }
    const int memory = memfd_create("gpuipc-emulated-dma-buf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (ftruncate(memory, (off_t)bytes) == 0) {
        number = open_to_nobody(memory);
    }
    close(memory);
    if (number < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *out_number = number;
    return CUDA_SUCCESS;
}
