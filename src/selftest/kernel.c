/* SPDX-License-Identifier: MIT */
/** @file See kernel.h. */
#include "kernel.h"

#define BLOCK_THREADS 256u
#define GRID_BLOCKS   1024u

/* Text that the driver compiles for the device that it finds: for every GPU since Maxwell (sm_50),
 * in a version that every supported driver reads (PTX ISA 6.0: CUDA 9). A loop whose stride is the
 * whole grid, so any number of words will do. */
static const char text[] = ".version 6.0\n"
                           ".target sm_50\n"
                           ".address_size 64\n"
                           ".visible .entry transform(.param .u64 words, .param .u64 count)\n"
                           "{\n"
                           "    .reg .pred %done;\n"
                           "    .reg .b32 %word, %low, %thread, %block, %width, %grid;\n"
                           "    .reg .b64 %index, %stride, %end, %base, %offset, %at;\n"
                           "    ld.param.u64 %base, [words];\n"
                           "    ld.param.u64 %end, [count];\n"
                           "    cvta.to.global.u64 %base, %base;\n"
                           "    mov.u32 %block, %ctaid.x;\n"
                           "    mov.u32 %width, %ntid.x;\n"
                           "    mov.u32 %thread, %tid.x;\n"
                           "    mov.u32 %grid, %nctaid.x;\n"
                           "    mul.wide.u32 %index, %block, %width;\n"
                           "    cvt.u64.u32 %offset, %thread;\n"
                           "    add.u64 %index, %index, %offset;\n"
                           "    mul.wide.u32 %stride, %grid, %width;\n"
                           "next:\n"
                           "    setp.ge.u64 %done, %index, %end;\n"
                           "    @%done bra finish;\n"
                           "    shl.b64 %offset, %index, 2;\n"
                           "    add.u64 %at, %base, %offset;\n"
                           "    ld.global.u32 %word, [%at];\n"
                           "    cvt.u32.u64 %low, %index;\n"
                           "    mad.lo.u32 %word, %word, 5, %low;\n"
                           "    st.global.u32 [%at], %word;\n"
                           "    add.u64 %index, %index, %stride;\n"
                           "    bra next;\n"
                           "finish:\n"
                           "    ret;\n"
                           "}\n";

static gpuipc_status launch(const driver *drv, CUmodule module, uint64_t address, uint64_t words) {
    CUdeviceptr base = address;
    uint64_t count = words;
    void *parameters[] = {&base, &count};
    CUfunction function;
    gpuipc_status status =
        driver_status(drv, drv->cuModuleGetFunction(&function, module, "transform"),
                      "cuModuleGetFunction", "looking for the kernel");
    if (status == GPUIPC_OK) {
        status = driver_status(drv,
                               drv->cuLaunchKernel(function, GRID_BLOCKS, 1, 1, BLOCK_THREADS, 1, 1,
                                                   0, NULL, parameters, NULL),
                               "cuLaunchKernel", "starting the kernel");
    }
    if (status == GPUIPC_OK) {
        status = driver_status(drv, drv->cuCtxSynchronize(), "cuCtxSynchronize",
                               "running the kernel on the shared memory");
    }
    return status;
}

gpuipc_status kernel_transform(session *on, uint32_t device, uint64_t address, uint64_t words) {
    status_enter(__func__);
    const driver *drv = &on->driver;
    CUmodule module;
    gpuipc_status status = session_enter(on, device);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = driver_status(drv, drv->cuModuleLoadData(&module, text), "cuModuleLoadData",
                           "compiling the kernel");
    if (status == GPUIPC_OK) {
        status = launch(drv, module, address, words);
        (void)drv->cuModuleUnload(module); /* after a failed kernel it fails as well */
    }
    session_leave(on);
    return status;
}
