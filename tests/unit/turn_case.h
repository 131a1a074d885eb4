/* SPDX-License-Identifier: MIT */
/** @file A channel of turns of this process, for tests: its streams, its readers, and what a test says of a turn. */
#ifndef GPUIPC_TEST_TURN_CASE_H
#define GPUIPC_TEST_TURN_CASE_H

#include "channel_case.h"
#include "graphs.h"
#include "stream_gate.h"

#define TURN_CASE_READERS 3

extern CUstream turn_case_makes;
extern CUstream turn_case_uses[TURN_CASE_READERS];
extern gpuipc_subscription *turn_case_readers[TURN_CASE_READERS];
extern gpuipc_buffer *turn_case_seen;
void turn_case_make(void);
void turn_case_start(void);
void turn_case_finish(void);
gpuipc_frame turn_case_loan(void);
gpuipc_frame turn_case_take(int reader);
void turn_case_fill(const gpuipc_frame *frame, uint32_t value);
void turn_case_write(uint32_t value);
void turn_case_read(int reader);
void turn_case_check_seen(int reader, uint32_t value);
void turn_case_open_readers(int count);
void turn_case_close_reader(int reader);
void turn_case_capture_begin(CUstream stream);
captured turn_case_capture_end(CUstream stream);
captured turn_case_capture_write(uint32_t value);
captured turn_case_capture_read(int reader);
void turn_case_launch(const captured *graph, CUstream stream);
gpuipc_reader_info turn_case_info_of(int place);

#endif
