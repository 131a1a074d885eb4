/* SPDX-License-Identifier: MIT */
/** @file What the tests of imports stand on: a context without keep-alives, whose driver calls are counted. */
#ifndef GPUIPC_TEST_IMPORT_CASE_H
#define GPUIPC_TEST_IMPORT_CASE_H

#include "core_fixture.h"
#include "cuda/context.h"

/** Both ends in this process. */
extern core_pair import_pair;

/** core_context, without keep-alives, whose mappings would be counted as well. Skips the test where calls are not
 *  counted. @param cached as max_cached_imports */
void import_case_begin(uint32_t cached);
/** For TestSuite: .fini, behind core_start_without_context as .init. */
void import_case_end(void);

/** Inside core_context. */
context *import_case_context(void);

/** What the driver was asked to do since the last time, or since core_set_failures(). */
void import_case_calls(uint64_t imports, uint64_t maps, uint64_t unmaps, uint64_t releases);

/** How a buffer is received. */
typedef struct import_how {
    uint32_t device; /**< as gpuipc_incoming::device */
    gpuipc_access access;
    uint32_t flags;
} import_how;

gpuipc_status import_case_receive(gpuipc_connection *from, import_how wanted,
                                  gpuipc_buffer **out_buffer);
gpuipc_buffer *import_case_hand_over(gpuipc_buffer *own, import_how wanted);
void import_case_drop(gpuipc_buffer *one);

#endif
