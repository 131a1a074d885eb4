/* SPDX-License-Identifier: MIT */
/** @file A handle in an event loop. */
#include "native_ready.h"

#include <windows.h>

bool native_is_ready(intptr_t native, int timeout_ms) {
    return WaitForSingleObject((HANDLE)native, (DWORD)timeout_ms) == WAIT_OBJECT_0;
}
