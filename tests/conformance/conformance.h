/* SPDX-License-Identifier: MIT */
/**
 * @file What every conformance test stands on: the driver, its primary contexts, an assertion that
 * names where an expectation comes from, and memory made with one call and undone with one.
 *
 * Every assertion begins with its source: "measured" is what a real driver answered (an H200, driver 580), "cuda.h" is the documentation of the call, "reading" neither of the two, only how
 * the documentation is understood. Where a real driver answers otherwise, the expectation is wrong, not the driver.
 */
#ifndef GPUIPC_TEST_CONFORMANCE_H
#define GPUIPC_TEST_CONFORMANCE_H

#include <criterion/criterion.h>

#include "driver.h"
#include "os.h"

/** The granularity of memory on a GPU, bytes; test_conformance_memory.c checks it. */
#define GRANULE ((size_t)2 << 20)

/** The driver under test: GPUIPC_CUDA_DRIVER chooses it, as everywhere. */
extern driver drv;
extern int device_count;

/** For TestSuite: opens the driver, retains device 0's primary context and makes it current. Skips
 *  the test when there is no driver or no device and none was asked for by name. */
void conformance_start(void);
/** Gives back what conformance_start and conformance_context took, and on the emulated driver, which
 *  can count, fails the test when anything else is left. */
void conformance_finish(void);

/** The primary context of a device, retained until conformance_finish. */
CUcontext conformance_context(int device);
/** Makes it current. */
void conformance_use(int device);
/** Skips the test, with the reason, where there are fewer devices. */
void conformance_need_devices(int count);
/** True where the measured values of a particular machine hold: its kind of GPU, on Linux, or the
 *  emulated machine when nothing else was described. */
bool conformance_is_measured_machine(void);

/** Writes the address of a call that gpuipc itself does not make to the pointer at @p function. */
void conformance_find(const char *symbol, void *function);

/** The name of a code, such as "CUDA_ERROR_INVALID_VALUE (1)". Four results are valid at a time. */
const char *conformance_code(CUresult code);

/** Asserts what a call answers. @p source begins with "measured", "cuda.h" or "reading". */
#define CHECK(source, expected, call)                                                              \
    do {                                                                                           \
        const CUresult answer_ = (call);                                                           \
        cr_assert_eq(answer_, (expected), "%s\n  %s\n  answered %s, expected %s", (source), #call, \
                     conformance_code(answer_), conformance_code(expected));                       \
    } while (0)

/** For steps that are not what the test is about. */
#define OK(call) CHECK("a step on the way", CUDA_SUCCESS, call)

/* ---- memory ------------------------------------------------------------------------------ */

/** An allocation, mapped at an address of its own. */
typedef struct memory {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t bytes;
} memory;

/** How handles of memory travel on this system, and on the other one. */
#define SYSTEM_TYPE ((CUmemAllocationHandleType)os_shareable_handle_type)
#define FOREIGN_TYPE                                                                               \
    ((CUmemAllocationHandleType)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR +                        \
                                 CU_MEM_HANDLE_TYPE_WIN32 - os_shareable_handle_type))

/** What the call wants for memory on a device, exportable if @p exportable. */
CUmemAllocationProp memory_properties(int device, bool exportable);
CUmemGenericAllocationHandle memory_create(int device, size_t bytes);
/** Reserves a range and maps the handle there, without access. */
CUdeviceptr memory_map(CUmemGenericAllocationHandle handle, size_t bytes);
/** Sets the access of one device. */
CUresult memory_access(CUdeviceptr address, size_t bytes, int device, CUmemAccess_flags flags);
/** Undoes memory_map. */
void memory_unmap(CUdeviceptr address, size_t bytes);
/** Exportable memory on a device, mapped, read and written by that device. */
memory memory_make(int device, size_t bytes);
void memory_undo(const memory *made);

/** The handle for another process. */
os_handle memory_export(CUmemGenericAllocationHandle handle);
/** Passes any handle to the import call. */
CUresult memory_import(os_handle shareable, CUmemGenericAllocationHandle *out_handle);

/** One 32-bit word by cuMemcpyDtoH, cuMemcpyHtoD. */
uint32_t word_read(CUdeviceptr address);
void word_write(CUdeviceptr address, uint32_t word);

/* ---- a stream that is busy --------------------------------------------------------------- */

/** Work that takes a while: long enough that a query right after it finds it unfinished. */
typedef struct busy_work {
    CUdeviceptr address;
    size_t bytes;
} busy_work;

/** Makes the memory that busy_submit fills. */
busy_work busy_start(void);
/** Puts the work on a stream; every byte is @p value when it is done. */
void busy_submit(const busy_work *work, CUstream stream, unsigned char value);
/** Waits for the device and frees the memory. */
void busy_end(const busy_work *work);

#endif
