/* SPDX-License-Identifier: MIT */
/** @file A word that streams of device 0 wait behind, so that a test says when their work is done. */
#ifndef GPUIPC_TEST_STREAM_GATE_H
#define GPUIPC_TEST_STREAM_GATE_H

#include "core_fixture.h"

/** Makes the primary context of device 0 current. Skips the test where streams cannot wait for a word. */
void stream_gate_make(void);
/** Before core_finish(). */
void stream_gate_end(void);

/** What is put on the stream from now on waits until stream_gate_open(). */
void stream_gate_close(CUstream stream);
void stream_gate_open(void);

/** A stream of device 0. */
CUstream stream_gate_stream(void);
void stream_gate_stream_end(CUstream stream);

void stream_gate_synchronize(CUstream stream);
/** It has something that it is not through with. */
void stream_gate_check_waits(CUstream stream);

#endif
