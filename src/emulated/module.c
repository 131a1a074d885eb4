/* SPDX-License-Identifier: MIT */
/**
 * @file The entry points of modules and kernels. No image is for this device, and there is no compiler to make one: loading
 * says which of the two it is. So no module and no function ever exists, and the other calls know none.
 */
#include <stdio.h>
#include <string.h>

#include "context.h"
#include "entry.h"

/* ELF, and NVIDIA's fat binaries: the image itself, and what nvcc puts around it (fatbinary_section.h). */
static const unsigned char elf[4] = {0x7f, 'E', 'L', 'F'};
static const unsigned char fat_binary[4] = {0x50, 0xed, 0x55, 0xba};
static const unsigned char fat_wrapper[4] = {0xb1, 0x43, 0x62, 0x46};

/* PTX is text: directives, comments, white space (PTX ISA, "Source Format"). */
static bool begins_like_text(const unsigned char *start) {
    return start[0] == '.' || start[0] == '/' || start[0] == '\n' || start[0] == '\r' ||
           start[0] == '\t' || start[0] == ' ';
}

/* @param start its first four bytes */
static CUresult refuse_image(const unsigned char *start) {
    if (memcmp(start, elf, sizeof(elf)) == 0 ||
        memcmp(start, fat_binary, sizeof(fat_binary)) == 0 ||
        memcmp(start, fat_wrapper, sizeof(fat_wrapper)) == 0) {
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    return begins_like_text(start) ? CUDA_ERROR_JIT_COMPILER_NOT_FOUND : CUDA_ERROR_INVALID_IMAGE;
}

/* A text may be shorter than four bytes, and no byte behind its end is looked at. */
static CUresult refuse(const void *out, const void *image) {
    const unsigned char *const bytes = image;
    unsigned char start[4] = {0, 0, 0, 0};
    if (out == NULL || image == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < sizeof(start) && (i == 0 || start[i - 1] != '\0'); i++) {
        start[i] = bytes[i];
    }
    return refuse_image(start);
}

static CUresult refuse_file(const void *out, const char *name) {
    unsigned char start[4] = {0, 0, 0, 0};
    if (out == NULL || name == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    FILE *const file = fopen(name, "rb");
    if (file == NULL) {
        return CUDA_ERROR_FILE_NOT_FOUND;
    }
    const size_t count = fread(start, 1, sizeof(start), file);
    fclose(file);
    return count == 0 ? CUDA_ERROR_INVALID_IMAGE : refuse_image(start);
}

/* For calls that need a context. */
static CUresult in_context(CUresult refusal) {
    context *ctx;
    const CUresult result = context_current(&ctx);
    return result == CUDA_SUCCESS ? refusal : result;
}

GPUIPC_EXPORTED CUresult cuModuleLoad(CUmodule *out, const char *file) {
    const CUresult refused = ENTER(cuModuleLoad);
    return refused != CUDA_SUCCESS ? refused : entry_leave(in_context(refuse_file(out, file)));
}

GPUIPC_EXPORTED CUresult cuModuleLoadData(CUmodule *out, const void *image) {
    const CUresult refused = ENTER(cuModuleLoadData);
    return refused != CUDA_SUCCESS ? refused : entry_leave(in_context(refuse(out, image)));
}

GPUIPC_EXPORTED CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned int count,
                                            CUjit_option *options, void **values) {
    (void)count, (void)options, (void)values;
    const CUresult refused = ENTER(cuModuleLoadDataEx);
    return refused != CUDA_SUCCESS ? refused : entry_leave(in_context(refuse(out, image)));
}

GPUIPC_EXPORTED CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image) {
    const CUresult refused = ENTER(cuModuleLoadFatBinary);
    return refused != CUDA_SUCCESS ? refused : entry_leave(in_context(refuse(out, image)));
}

/* A library is loaded for all contexts, and needs none. */
GPUIPC_EXPORTED CUresult cuLibraryLoadData(CUlibrary *out, const void *code,
                                           CUjit_option *jit_options, void **jit_values,
                                           unsigned int jit_count, CUlibraryOption *options,
                                           void **values, unsigned int count) {
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    const CUresult refused = ENTER(cuLibraryLoadData);
    return refused != CUDA_SUCCESS ? refused : entry_leave(refuse(out, code));
}

GPUIPC_EXPORTED CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *file,
                                               CUjit_option *jit_options, void **jit_values,
                                               unsigned int jit_count, CUlibraryOption *options,
                                               void **values, unsigned int count) {
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    const CUresult refused = ENTER(cuLibraryLoadFromFile);
    return refused != CUDA_SUCCESS ? refused : entry_leave(refuse_file(out, file));
}

GPUIPC_EXPORTED CUresult cuModuleUnload(CUmodule module) {
    (void)module;
    const CUresult refused = ENTER(cuModuleUnload);
    return refused != CUDA_SUCCESS ? refused : entry_leave(in_context(CUDA_ERROR_INVALID_HANDLE));
}

GPUIPC_EXPORTED CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    (void)out, (void)module, (void)name;
    const CUresult refused = ENTER(cuModuleGetFunction);
    return refused != CUDA_SUCCESS ? refused : entry_leave(in_context(CUDA_ERROR_INVALID_HANDLE));
}

GPUIPC_EXPORTED CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                                              const char *name) {
    (void)address, (void)bytes, (void)module, (void)name;
    const CUresult refused = ENTER(cuModuleGetGlobal_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(in_context(CUDA_ERROR_INVALID_HANDLE));
}

GPUIPC_EXPORTED CUresult cuLibraryUnload(CUlibrary library) {
    (void)library;
    const CUresult refused = ENTER(cuLibraryUnload);
    return refused != CUDA_SUCCESS ? refused : entry_leave(CUDA_ERROR_INVALID_HANDLE);
}

GPUIPC_EXPORTED CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name) {
    (void)out, (void)library, (void)name;
    const CUresult refused = ENTER(cuLibraryGetKernel);
    return refused != CUDA_SUCCESS ? refused : entry_leave(CUDA_ERROR_INVALID_HANDLE);
}

GPUIPC_EXPORTED CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x,
                                        unsigned int grid_y, unsigned int grid_z,
                                        unsigned int block_x, unsigned int block_y,
                                        unsigned int block_z, unsigned int shared_bytes,
                                        CUstream stream, void **parameters, void **extra) {
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
    (void)block_z, (void)shared_bytes, (void)stream, (void)parameters, (void)extra;
    const CUresult refused = ENTER(cuLaunchKernel);
    return refused != CUDA_SUCCESS ? refused : entry_leave(in_context(CUDA_ERROR_INVALID_HANDLE));
}
