/* SPDX-License-Identifier: MIT */
/** @file The three streams that a program is given, or not. Also of gpuipc-bench. */
#ifndef GPUIPC_SELFTEST_STANDARD_STREAMS_H
#define GPUIPC_SELFTEST_STANDARD_STREAMS_H

/** To be called before anything is opened. What is printed to a stream that was closed goes nowhere then, and not into the next
 *  file or socket. Printing there fails still. */
void standard_streams_occupy(void);

#endif
