/* SPDX-License-Identifier: MIT */
/** @file What a raw peer does beyond raw_peer.h, to break the rules of Windows' envelope. */
#ifndef GPUIPC_TEST_WIN32_RAW_PEER_H
#define GPUIPC_TEST_WIN32_RAW_PEER_H

#include "raw_peer.h"
#include "win32_raw_frame.h"

/** Puts handles into the process at the other end, and makes the frame of the next packet that brings
 *  them. With the first ones goes the ledger. False when it cannot. */
bool raw_peer_export(raw_peer *to, const void *bytes, size_t size, const intptr_t *handles,
                     size_t count, raw_frame *out_frame);

/** Sends one message of the pipe, as it is. */
bool raw_peer_write(raw_peer *to, const void *message, size_t size);

/** How many packets with handles the other end says that it has taken. */
uint64_t raw_peer_taken(const raw_peer *of);

#endif
