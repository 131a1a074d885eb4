/* SPDX-License-Identifier: MIT */
/** @file A buffer that was sent and received, both ends in this process, for tests of what streams do with it. */
#ifndef GPUIPC_TEST_OPENED_CASE_H
#define GPUIPC_TEST_OPENED_CASE_H

#include "stream_gate.h"

extern core_pair opened_case_pair;
extern gpuipc_buffer *opened_case_sent;
extern gpuipc_buffer
    *opened_case_opened;            /**< what came; the test may release it and set this to NULL */
extern CUstream opened_case_stream; /**< of device 0; the end waits for it */

/** @param flags of the stream */
void opened_case_begin(unsigned flags);
/** For TestSuite. */
void opened_case_finish(void);

#endif
