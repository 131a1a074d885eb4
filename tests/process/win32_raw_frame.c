/* SPDX-License-Identifier: MIT */
/** @file See win32_raw_frame.h. */
#include "win32_raw_frame.h"

#include <string.h>

static const unsigned char magic[4] = {'G', 'I', 'P', 'E'};

static void put(unsigned char *at, size_t size, uint64_t value) {
    for (size_t i = 0; i < size; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

static uint64_t get(const unsigned char *at, size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

size_t raw_frame_encode(const raw_frame *self, unsigned char *out) {
    size_t whole = RAW_ENVELOPE_END + 8 * self->count + self->size;
    if (self->count > RAW_FRAME_HANDLES_MAX || self->size > RAW_FRAME_BYTES_MAX ||
        whole > RAW_FRAME_BYTES_MAX) {
        return 0;
    }
    memcpy(out + RAW_ENVELOPE_MAGIC, magic, sizeof(magic));
    put(out + RAW_ENVELOPE_VERSION, 2, 1);
    put(out + RAW_ENVELOPE_FLAGS, 2, self->flags);
    put(out + RAW_ENVELOPE_HANDLES, 4, self->count);
    put(out + RAW_ENVELOPE_BYTES, 4, self->size);
    put(out + RAW_ENVELOPE_NUMBER, 8, self->number);
    for (size_t i = 0; i < self->count; i++) {
        put(out + RAW_ENVELOPE_END + 8 * i, 8, self->values[i]);
    }
    if (self->size > 0) {
        memcpy(out + RAW_ENVELOPE_END + 8 * self->count, self->bytes, self->size);
    }
    return whole;
}

bool raw_frame_decode(const unsigned char *in, size_t size, raw_frame *out_frame) {
    if (size < RAW_ENVELOPE_END || memcmp(in, magic, sizeof(magic)) != 0) {
        return false;
    }
    raw_frame found = {.flags = (uint32_t)get(in + RAW_ENVELOPE_FLAGS, 2),
                       .number = get(in + RAW_ENVELOPE_NUMBER, 8),
                       .count = (size_t)get(in + RAW_ENVELOPE_HANDLES, 4),
                       .size = (size_t)get(in + RAW_ENVELOPE_BYTES, 4)};
    if (found.count > RAW_FRAME_HANDLES_MAX ||
        size != RAW_ENVELOPE_END + 8 * found.count + found.size) {
        return false;
    }
    for (size_t i = 0; i < found.count; i++) {
        found.values[i] = get(in + RAW_ENVELOPE_END + 8 * i, 8);
    }
    found.bytes = in + RAW_ENVELOPE_END + 8 * found.count;
    *out_frame = found;
    return true;
}
