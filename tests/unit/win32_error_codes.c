/* SPDX-License-Identifier: MIT */
/** @file The values of GetLastError(). */
#include "error_codes.h"

#include <stdio.h>
#include <string.h>

#include "win32.h"

#define CODE(code, situation)                                                                      \
    { code, OS_SITUATION_##situation, #code }

const error_code error_codes[] = {
    CODE(ERROR_TOO_MANY_OPEN_FILES, NO_HANDLE_LEFT),
    CODE(ERROR_NOT_ENOUGH_MEMORY, NO_MEMORY),
    CODE(ERROR_OUTOFMEMORY, NO_MEMORY),
    CODE(ERROR_NO_SYSTEM_RESOURCES, NO_MEMORY),
    CODE(ERROR_COMMITMENT_LIMIT, NO_MEMORY),
    CODE(ERROR_NOT_ENOUGH_QUOTA, NO_MEMORY),
    CODE(ERROR_BROKEN_PIPE, PEER_GONE),
    CODE(ERROR_NO_DATA, PEER_GONE),
    CODE(ERROR_PIPE_NOT_CONNECTED, PEER_GONE),
    /* What only the call can tell. */
    CODE(ERROR_FILE_NOT_FOUND, OTHER),
    CODE(ERROR_ACCESS_DENIED, OTHER),
    CODE(ERROR_ALREADY_EXISTS, OTHER),
    CODE(ERROR_INVALID_HANDLE, OTHER),
    CODE(ERROR_INVALID_PARAMETER, OTHER),
    CODE(ERROR_PIPE_BUSY, OTHER),
    CODE(ERROR_TIMEOUT, OTHER),
    /* No code at all. */
    CODE(ERROR_SUCCESS, OTHER),
    CODE(0xFFFFFFFF, OTHER),
    CODE(123456, OTHER),
};
const size_t error_code_count = sizeof(error_codes) / sizeof(error_codes[0]);

const bool error_codes_are_posix = false;

gpuipc_status error_code_status(int64_t code) {
    return win32_error_status((DWORD)code);
}

gpuipc_status error_code_fail(int64_t code, const char *operation, const char *sentence) {
    return win32_fail((DWORD)code, operation, "%s", sentence);
}

gpuipc_status error_code_fail_as(gpuipc_status status, int64_t code, const char *operation,
                                 const char *sentence) {
    return win32_fail_as(status, (DWORD)code, operation, "%s", sentence);
}

void error_code_words(int64_t code, char *text, size_t capacity) {
    wchar_t wide[1024] = L"";
    FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, (DWORD)code, 0,
                   wide, 1024, NULL);
    if (WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, (int)capacity, NULL, NULL) <= 1) {
        snprintf(text, capacity, "unknown error %lu", (unsigned long)code);
    }
    text[strcspn(text, "\r\n")] = '\0';
    size_t length = strlen(text);
    if (length > 0 && text[length - 1] == '.') {
        text[length - 1] = '\0';
    }
}
