/* SPDX-License-Identifier: MIT */
/** @file What the tests of the emulated driver share: the process's driver, and memory in it. */
#ifndef GPUIPC_TEST_EMULATED_H
#define GPUIPC_TEST_EMULATED_H

#include "check.h"
#include "driver.h"
#include "emulated.h"

#define GRANULE ((size_t)2 << 20)

/** The driver, after emulated_start. */
extern driver drv;
extern gpuipc_emulated_live_fn get_live;
extern gpuipc_emulated_list_live_fn list_live;
extern gpuipc_emulated_fail_fn set_fail;
extern gpuipc_emulated_calls_fn get_calls;
extern gpuipc_emulated_delay_fn set_delay;

#define check_result(expected, call)                                                               \
    do {                                                                                           \
        CUresult result_got = (call);                                                              \
        cr_assert_eq(result_got, (expected), "%s answered %d, not %d", #call, (int)result_got,     \
                     (int)(expected));                                                             \
    } while (0)

#define check_success(call) check_result(CUDA_SUCCESS, call)

/** Sets a variable of this process, or removes it for NULL. */
void environment_set(const char *name, const char *value);

/** Loads the driver on the machine described (NULL: the default one) without cuInit, and fills the
 *  functions above. */
os_library *emulated_load(const char *machine);
/** The same, with cuInit and the table, and makes the primary context of device 0 current. */
void emulated_start(const char *machine);
/** A symbol of the driver, copied into a function pointer; fails the test if there is none. */
void emulated_symbol(os_library *library, const char *name, void *function);
/** What cuInit answers on this machine. */
CUresult emulated_init(const char *machine);

/** Makes the primary context of a device current, on top of what was. */
CUcontext context_use(int device);

/** How memory is made that can be exported. */
CUmemAllocationProp shareable_on(int device);
CUmemGenericAllocationHandle memory_create(int device, size_t bytes);
/** Reserves a range and maps a handle into it, without access. */
CUdeviceptr memory_map(CUmemGenericAllocationHandle handle, size_t bytes);
CUresult memory_allow(CUdeviceptr address, size_t bytes, int device, CUmemAccess_flags flags);
/** memory_create, memory_map and access for its own device; the handle is released. */
CUdeviceptr memory_make(int device, size_t bytes);
/** Unmaps and frees the range. */
void memory_unmake(CUdeviceptr address, size_t bytes);

/** One word, there when the call returns. */
void word_write(CUdeviceptr address, uint32_t word);
uint32_t word_read(CUdeviceptr address);

#endif
