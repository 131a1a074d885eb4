/* SPDX-License-Identifier: MIT */
/** @file See conformance_range.h. */
#include "conformance_range.h"

#include <unistd.h>

uint64_t range_close(int number) {
    const off_t end = lseek(number, 0, SEEK_END);
    const int result = close(number);
    return result == 0 && end > 0 ? (uint64_t)end : 0;
}
