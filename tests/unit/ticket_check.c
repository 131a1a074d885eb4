/* SPDX-License-Identifier: MIT */
/** @file See ticket_check.h. */
#include "ticket_check.h"

gpuipc_ticket ticket_with_check(gpuipc_ticket of) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < sizeof(of.bytes); i++) {
        if (i >= 12 && i < 16) {
            continue;
        }
        crc ^= of.bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 1) != 0 ? (crc >> 1) ^ 0xEDB88320u : crc >> 1;
        }
    }
    for (unsigned i = 0; i < 4; i++) {
        of.bytes[12 + i] = (uint8_t)(~crc >> (8 * i));
    }
    return of;
}
