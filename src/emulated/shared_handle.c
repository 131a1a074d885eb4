/* SPDX-License-Identifier: MIT */
/** @file See shared_handle.h. */
#include "shared_handle.h"

#include <string.h>

#include "base/little_endian.h"

/*   0  magic (4 bytes)   4  kind (4)     8  process (4)   12  number (4)
 *  16  id (16)          32  offset (8)  40  bytes (8)     48  zero (16)
 * Of memory of a pool the last 16 are left as they were, and not looked at: measured on an H200. */
#define MAGIC UINT32_C(0x63706967) /* "gipc" */

void shared_handle_encode(const shared_handle *from, void *bytes) {
    uint8_t *at = bytes;
    little_endian_put(at, 4, MAGIC);
    little_endian_put(at + 4, 4, (uint64_t)from->kind);
    little_endian_put(at + 8, 4, from->name.process);
    little_endian_put(at + 12, 4, from->name.number);
    memcpy(at + 16, from->id, 16);
    little_endian_put(at + 32, 8, from->offset);
    little_endian_put(at + 40, 8, from->bytes);
    if (from->kind != SHARED_HANDLE_POOLED) {
        memset(at + 48, 0, 16);
    }
}

bool shared_handle_decode(const void *bytes, shared_handle_kind kind, shared_handle *out) {
    static const uint8_t zero[16];
    const uint8_t *at = bytes;
    if (little_endian_get(at, 4) != MAGIC || little_endian_get(at + 4, 4) != (uint64_t)kind ||
        (kind != SHARED_HANDLE_POOLED && memcmp(at + 48, zero, sizeof(zero)) != 0)) {
        return false;
    }
    out->kind = kind;
    out->name.process = (uint32_t)little_endian_get(at + 8, 4);
    out->name.number = (uint32_t)little_endian_get(at + 12, 4);
    memcpy(out->id, at + 16, 16);
    out->offset = little_endian_get(at + 32, 8);
    out->bytes = little_endian_get(at + 40, 8);
    return true;
}
