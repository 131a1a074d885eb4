/* SPDX-License-Identifier: MIT */
/**
 * @file The kernels of posix_kernel_camera.c and posix_kernel_model.c, as text that the CUDA driver compiles, and what
 * launches them. gpuipc launches no kernels, so this asks the driver by itself. Exit code 77: there is none that does.
 */
#ifndef EXAMPLES_POSIX_KERNEL_H
#define EXAMPLES_POSIX_KERNEL_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One block each, so that a barrier orders what its threads do with what the first of them awaits and stores. The acquire and
 * the release are at the scope of the system, since the other side is another GPU, or a host. PTX ISA 6.0, and Volta. */
static const char kernels[] =
    ".version 6.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    /* Fills a slot, and says to one reader that it is ready. */
    ".visible .entry fill(.param .u64 slot, .param .u32 count, .param .u32 word,\n"
    "                     .param .u64 ready, .param .u64 value)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b32 %i, %n, %w, %step;\n"
    "    .reg .b64 %slot, %at, %value;\n"
    "    ld.param.u64 %slot, [slot];\n"
    "    ld.param.u32 %n, [count];\n"
    "    ld.param.u32 %w, [word];\n"
    "    mov.u32 %i, %tid.x;\n"
    "    mov.u32 %step, %ntid.x;\n"
    "next:\n"
    "    setp.ge.u32 %p, %i, %n;\n"
    "    @%p bra filled;\n"
    "    mul.wide.u32 %at, %i, 4;\n"
    "    add.u64 %at, %slot, %at;\n"
    "    st.u32 [%at], %w;\n"
    "    add.u32 %i, %i, %step;\n"
    "    bra next;\n"
    "filled:\n"
    "    bar.sync 0;\n" /* all have written */
    "    mov.u32 %i, %tid.x;\n"
    "    setp.ne.u32 %p, %i, 0;\n"
    "    @%p bra done;\n"
    "    ld.param.u64 %at, [ready];\n"
    "    ld.param.u64 %value, [value];\n"
    "    st.release.sys.u64 [%at], %value;\n"
    "done:\n"
    "    ret;\n"
    "}\n"
    /* Awaits a slot, counts the words that are wrong, and gives it back. A word that equals the value that is awaited: the
     * writer has ended, and there are no contents. */
    ".visible .entry check(.param .u64 slot, .param .u32 count, .param .u32 word,\n"
    "                      .param .u64 ready, .param .u64 awaited,\n"
    "                      .param .u64 returned, .param .u64 value, .param .u64 wrong)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b32 %i, %n, %w, %got, %step;\n"
    "    .reg .b64 %slot, %at, %now, %value, %wrong;\n"
    "    ld.param.u64 %slot, [slot];\n"
    "    ld.param.u32 %n, [count];\n"
    "    ld.param.u32 %w, [word];\n"
    "    ld.param.u64 %wrong, [wrong];\n"
    "    mov.u32 %i, %tid.x;\n"
    "    mov.u32 %step, %ntid.x;\n"
    "    setp.ne.u32 %p, %i, 0;\n"
    "    @%p bra present;\n"
    "    ld.param.u64 %at, [ready];\n"
    "    ld.param.u64 %value, [awaited];\n"
    "again:\n"
    "    ld.acquire.sys.u64 %now, [%at];\n"
    "    sub.s64 %now, %now, %value;\n"
    "    setp.lt.s64 %p, %now, 0;\n"
    "    @%p bra again;\n"
    "    setp.ne.s64 %p, %now, 0;\n"
    "    @%p bra present;\n"
    "    atom.global.add.u32 %got, [%wrong], 1;\n"
    "present:\n"
    "    bar.sync 0;\n" /* nobody reads before that */
    "next:\n"
    "    setp.ge.u32 %p, %i, %n;\n"
    "    @%p bra read;\n"
    "    mul.wide.u32 %at, %i, 4;\n"
    "    add.u64 %at, %slot, %at;\n"
    "    ld.u32 %got, [%at];\n"
    "    add.u32 %i, %i, %step;\n"
    "    setp.eq.u32 %p, %got, %w;\n"
    "    @%p bra next;\n"
    "    atom.global.add.u32 %got, [%wrong], 1;\n"
    "    bra next;\n"
    "read:\n"
    "    bar.sync 0;\n" /* all have read */
    "    mov.u32 %i, %tid.x;\n"
    "    setp.ne.u32 %p, %i, 0;\n"
    "    @%p bra done;\n"
    "    ld.param.u64 %at, [returned];\n"
    "    ld.param.u64 %value, [value];\n"
    "    st.release.sys.u64 [%at], %value;\n"
    "done:\n"
    "    ret;\n"
    "}\n";

/* As cuda.h has them. */
typedef struct CUfunc_st *kernel;
typedef int (*launch_function)(kernel function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z,
                               unsigned shared_bytes, void *stream, void **parameters,
                               void **extra);
static launch_function launch;

static void kernel_must(int result, const char *what) {
    if (result != 0) {
        fprintf(stderr, "%s: CUDA error %d\n", what, result);
        exit(1);
    }
}

static void find_function(void *library, const char *name, void *out_function) {
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        fprintf(stderr, "the CUDA driver has no %s\n", name);
        exit(77);
    }
    memcpy(out_function, &symbol, sizeof symbol);
}

/** Compiles the kernels for a device, whose primary context is this thread's from now on: gpuipc uses the same one. */
static kernel kernel_load(int device, const char *name) {
    int (*init)(unsigned), (*retain)(void **, int), (*set_current)(void *);
    int (*load)(void **, const void *), (*get_function)(kernel *, void *, const char *);
    void *context, *module;
    kernel found;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "there is no CUDA driver here\n");
        exit(77);
    }
    find_function(library, "cuInit", &init);
    find_function(library, "cuDevicePrimaryCtxRetain", &retain);
    find_function(library, "cuCtxSetCurrent", &set_current);
    find_function(library, "cuModuleLoadData", &load);
    find_function(library, "cuModuleGetFunction", &get_function);
    find_function(library, "cuLaunchKernel", &launch);
    kernel_must(init(0), "cuInit");
    kernel_must(retain(&context, device), "cuDevicePrimaryCtxRetain");
    kernel_must(set_current(context), "cuCtxSetCurrent");
    const int result = load(&module, kernels);
    if (result == 221) { /* CUDA_ERROR_JIT_COMPILER_NOT_FOUND */
        fprintf(stderr, "this driver compiles no kernels: the emulated one has no GPU\n");
        exit(77);
    }
    kernel_must(result, "cuModuleLoadData");
    kernel_must(get_function(&found, module, name), "cuModuleGetFunction");
    return found;
}

/** In the default stream: one block. */
static void kernel_launch(kernel function, void **parameters) {
    kernel_must(launch(function, 1, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL), "cuLaunchKernel");
}

#endif
