/* SPDX-License-Identifier: MIT */
/** @file The values of errno. */
#include "error_codes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "posix.h"

#define CODE(code, situation)                                                                      \
    { code, OS_SITUATION_##situation, #code }

const error_code error_codes[] = {
    CODE(EMFILE, NO_HANDLE_LEFT),
    CODE(ENFILE, NO_HANDLE_LEFT),
    CODE(ETOOMANYREFS, HANDLES_IN_FLIGHT),
    CODE(ENOMEM, NO_MEMORY),
    CODE(ENOBUFS, NO_MEMORY),
    CODE(EPIPE, PEER_GONE),
    CODE(ECONNRESET, PEER_GONE),
    /* What only the call can tell. */
    CODE(ENOENT, OTHER),
    CODE(EACCES, OTHER),
    CODE(EEXIST, OTHER),
    CODE(EBADF, OTHER),
    CODE(EINVAL, OTHER),
    CODE(EAGAIN, OTHER),
    CODE(ETIMEDOUT, OTHER),
    /* No code at all. */
    CODE(0, OTHER),
    CODE(-1, OTHER),
    CODE(123456, OTHER),
};
const size_t error_code_count = sizeof(error_codes) / sizeof(error_codes[0]);

const bool error_codes_are_posix = true;

gpuipc_status error_code_status(int64_t code) {
    return posix_error_status((int)code);
}

gpuipc_status error_code_fail(int64_t code, const char *operation, const char *sentence) {
    return posix_fail((int)code, operation, "%s", sentence);
}

gpuipc_status error_code_fail_as(gpuipc_status status, int64_t code, const char *operation,
                                 const char *sentence) {
    return posix_fail_as(status, (int)code, operation, "%s", sentence);
}

void error_code_words(int64_t code, char *text, size_t capacity) {
    snprintf(text, capacity, "%s", strerror((int)code));
}
