/* SPDX-License-Identifier: MIT */
/** @file Addresses of the host that stand for memory of a device: posix_host_room.c, win32_host_room.c. */
#ifndef GPUIPC_EMULATED_HOST_ROOM_H
#define GPUIPC_EMULATED_HOST_ROOM_H

#include <stdbool.h>
#include <stdint.h>

/** Keeps the host's memory out of a range, and lets host code that follows an address of it fault.
 *  @param base, size multiples of 2 MiB @return false: something of the host is there, or it has no such addresses */
bool host_room_take(uint64_t base, uint64_t size);

void host_room_give(uint64_t base, uint64_t size);

#endif
