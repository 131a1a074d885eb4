/* SPDX-License-Identifier: MIT */
/** @file Numbers in bytes that several processes read, little-endian on every machine, and records of such numbers,
 *  whose fields are a list, written once. */
#ifndef GPUIPC_LITTLE_ENDIAN_H
#define GPUIPC_LITTLE_ENDIAN_H

#include <stdint.h>
#include <string.h>

static inline void little_endian_put(uint8_t *at, unsigned bytes, uint64_t value) {
    for (unsigned i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline uint64_t little_endian_get(const uint8_t *at, unsigned bytes) {
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

/** A list of fields, FIELDS(NUMBER, BYTES), has a NUMBER(position, bits, member) for each number of a record and a
 *  BYTES(position, member) for each array of bytes. FIELDS_PUT and FIELDS_GET go through it with a uint8_t *at, where the
 *  bytes are, and the record of that name. */
#define FIELDS_PUT(FIELDS) FIELDS(FIELD_PUT_NUMBER, FIELD_PUT_BYTES)
#define FIELDS_GET(FIELDS) FIELDS(FIELD_GET_NUMBER, FIELD_GET_BYTES)
#define FIELD_PUT_NUMBER(position, bits, member)                                                   \
    little_endian_put(at + (position), (bits) / 8, (uint64_t)record->member);
#define FIELD_PUT_BYTES(position, member)                                                          \
    memcpy(at + (position), record->member, sizeof(record->member));
#define FIELD_GET_NUMBER(position, bits, member)                                                   \
    record->member = (uint##bits##_t)little_endian_get(at + (position), (bits) / 8);
#define FIELD_GET_BYTES(position, member)                                                          \
    memcpy(record->member, at + (position), sizeof(record->member));

#endif
