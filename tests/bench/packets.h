/* SPDX-License-Identifier: MIT */
/** @file Packets of gpuipc: the linker puts these counters around os_connection_send() and _receive(). */
#ifndef GPUIPC_BENCH_PACKETS_H
#define GPUIPC_BENCH_PACKETS_H

#include <stdint.h>

/** How many this process has sent. */
uint64_t packets_sent(void);
/** When the one that this process received last had come, on the machine's clock. */
uint64_t packets_came_ns(void);

#endif
