/* SPDX-License-Identifier: MIT */
/** @file A descriptor in an event loop: poll(2). */
#include "native_ready.h"

#include <poll.h>

bool native_is_ready(intptr_t native, int timeout_ms) {
    struct pollfd entry = {.fd = (int)native, .events = POLLIN};
    return poll(&entry, 1, timeout_ms) == 1 && (entry.revents & POLLIN) != 0;
}
