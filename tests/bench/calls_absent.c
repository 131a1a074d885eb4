/* SPDX-License-Identifier: MIT */
/** @file See system.h: for Windows, and for sanitizers, which make system calls of their own. */
#include "system.h"

bool system_calls_forbid(void) {
    return false;
}

void system_calls_allow(void) {
}
