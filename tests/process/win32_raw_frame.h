/* SPDX-License-Identifier: MIT */
/** @file A message of the pipe: an envelope and a packet, to be spoiled. win32_raw_frame.c */
#ifndef GPUIPC_TEST_WIN32_RAW_FRAME_H
#define GPUIPC_TEST_WIN32_RAW_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Where the parts of an envelope begin: docs/wire-format.md. */
enum {
    RAW_ENVELOPE_MAGIC = 0,
    RAW_ENVELOPE_VERSION = 4,
    RAW_ENVELOPE_FLAGS = 6,
    RAW_ENVELOPE_HANDLES = 8,
    RAW_ENVELOPE_BYTES = 12,
    RAW_ENVELOPE_NUMBER = 16,
    RAW_ENVELOPE_END = 24
};

#define RAW_ENVELOPE_LEDGER 1 /**< flag: the first handle is the ledger's */

/** More than there may be. */
#define RAW_FRAME_HANDLES_MAX 300
#define RAW_FRAME_BYTES_MAX   (1u << 18)

typedef struct raw_frame {
    uint32_t flags;
    uint64_t number;
    size_t count;
    uint64_t values[RAW_FRAME_HANDLES_MAX]; /**< numbers of handles at the receiver */
    const void *bytes;
    size_t size;
} raw_frame;

/** Writes it to @p out, which has room for RAW_FRAME_BYTES_MAX. @return its size; 0: too long */
size_t raw_frame_encode(const raw_frame *self, unsigned char *out);

/** Reads it. The bytes stay where they are. False when it is no whole frame. */
bool raw_frame_decode(const unsigned char *in, size_t size, raw_frame *out_frame);

#endif
