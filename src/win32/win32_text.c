/* SPDX-License-Identifier: MIT */
/** @file Text: UTF-8 in gpuipc, UTF-16 in Windows. */
#include "win32.h"

gpuipc_status win32_wide(const char *text, wchar_t *wide, size_t capacity) {
    /* Asked for the size first: a call that finds too little room has written to it already. */
    int needed = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    if (needed <= 0) {
        return win32_fail_as(GPUIPC_ERR_INVALID_ARGUMENT, GetLastError(), "MultiByteToWideChar",
                             "a text is no UTF-8");
    }
    if ((size_t)needed > capacity) {
        return status_fail(GPUIPC_ERR_NAME_TOO_LONG,
                           "a text has %d units of UTF-16, more than the %zu there is room for",
                           needed - 1, capacity == 0 ? 0 : capacity - 1);
    }
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, wide, needed) != needed) {
        return win32_fail(GetLastError(), "MultiByteToWideChar", "a text cannot be read");
    }
    return GPUIPC_OK;
}

bool win32_narrow(const wchar_t *wide, char *text, size_t capacity) {
    /* Half a surrogate pair becomes U+FFFD: WC_ERR_INVALID_CHARS is not asked for
     * (learn.microsoft.com, WideCharToMultiByte). */
    int needed = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
    return needed > 0 && (size_t)needed <= capacity &&
           WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, needed, NULL, NULL) == needed;
}
