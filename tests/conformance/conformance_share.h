/* SPDX-License-Identifier: MIT */
/**
 * @file What a conformance test shares with its helper beside VMM memory: records of 64 bytes, and a
 * page of host memory that both have registered, whose first words order the work of their streams.
 */
#ifndef GPUIPC_TEST_CONFORMANCE_SHARE_H
#define GPUIPC_TEST_CONFORMANCE_SHARE_H

#include "conformance_process.h"

/** Sends a command that is answered with "RESULT RECORD", asserts that it worked and takes the 64
 *  bytes of the record. */
void helper_make(helper *process, void *record, const char *format, ...) GPUIPC_PRINTF(3, 4);
/** Sends a command that is answered with a CUresult. @return it */
CUresult helper_do(helper *process, const char *format, ...) GPUIPC_PRINTF(2, 3);
/** A word of the helper's memory number @p number. */
uint32_t helper_peek(helper *process, unsigned number, size_t offset);
/** Has the helper make a pool; takes its handle. */
os_handle helper_pool(helper *process, int device);

/** Skips where the device has no pools. */
void need_pools(void);
/** Skips where the device cannot export pools through this system's handles. */
void need_shareable_pools(void);
/** Skips where it has no stream memory operations. */
void need_words(void);
/** Skips where it has no events for other processes. */
void need_ipc_events(void);

/** A page of shared memory, registered here. */
#define PAGE ((size_t)4096)
typedef struct shared_page {
    os_handle handle;
    void *host;
    CUdeviceptr device;
} shared_page;

shared_page page_make(void);
void page_undo(shared_page *page);
/** Registers it in the helper too. */
void page_share(const shared_page *page, helper *process);
/** The 64-bit word with that number. */
uint64_t page_load(const shared_page *page, unsigned number);
void page_store(const shared_page *page, unsigned number, uint64_t value);
/** Its address for a stream. */
CUdeviceptr page_word(const shared_page *page, unsigned number);

#endif
