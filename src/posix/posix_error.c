/* SPDX-License-Identifier: MIT */
/** @file errno turned into statuses and sentences. */
#include "posix.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "os_situation.h"

static os_situation error_situation(int code) {
    switch (code) {
    case EMFILE:
    case ENFILE:
        return OS_SITUATION_NO_HANDLE_LEFT;
    case ETOOMANYREFS: /* man 7 unix: more descriptors in flight than RLIMIT_NOFILE of the user */
        return OS_SITUATION_HANDLES_IN_FLIGHT;
    case ENOMEM:
    case ENOBUFS:
        return OS_SITUATION_NO_MEMORY;
    case EPIPE:
    case ECONNRESET:
        return OS_SITUATION_PEER_GONE;
    default:
        return OS_SITUATION_OTHER;
    }
}

gpuipc_status posix_error_status(int code) {
    return os_situation_status(error_situation(code));
}

static void error_record(gpuipc_status status, int code, const char *call, const char *format,
                         va_list arguments) {
    gpuipc_error layout;
    char sentence[sizeof(layout.sentence)];
    char words[96];
    if (vsnprintf(sentence, sizeof(sentence), format, arguments) < 0) {
        sentence[0] = '\0';
    }
    /* The GNU form, which may answer a text of its own instead of filling the room. */
    const char *text = strerror_r(code, words, sizeof(words));
    status_fail_os(status, code, call, "%s: %s", sentence, text);
}

gpuipc_status posix_fail(int code, const char *call, const char *format, ...) {
    gpuipc_status status = posix_error_status(code);
    va_list arguments;
    va_start(arguments, format);
    error_record(status, code, call, format, arguments);
    va_end(arguments);
    return status;
}

gpuipc_status posix_file_size_check(uint64_t bytes, const char *call) {
    os_limits limits;
    os_limits_get(&limits);
    if (bytes <= limits.file_bytes) {
        return GPUIPC_OK;
    }
    return posix_fail(EFBIG, call,
                      "%" PRIu64
                      " bytes are more than this process may have in a file or in shared "
                      "memory, %" PRIu64 " (RLIMIT_FSIZE, ulimit -f)",
                      bytes, limits.file_bytes);
}

gpuipc_status posix_fail_as(gpuipc_status status, int code, const char *call, const char *format,
                            ...) {
    va_list arguments;
    va_start(arguments, format);
    error_record(status, code, call, format, arguments);
    va_end(arguments);
    return status;
}
