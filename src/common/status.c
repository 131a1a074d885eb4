/* SPDX-License-Identifier: MIT */
/** @file The calling thread's error record, and the names and sentences of the statuses. */
#include "status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Fixed room in each thread: an error path must not be able to fail for want of memory. */
static GPUIPC_THREAD_LOCAL gpuipc_error thread_error;

const char *gpuipc_status_name(gpuipc_status status) {
    switch (status) {
#define STATUS_NAME(code, value, sentence)                                                         \
    case GPUIPC_##code:                                                                            \
        return "GPUIPC_" #code;
        GPUIPC_STATUS_LIST(STATUS_NAME)
#undef STATUS_NAME
    case GPUIPC_STATUS_FORCE_INT32:
        break;
    }
    return "GPUIPC_UNKNOWN_STATUS";
}

const char *gpuipc_status_message(gpuipc_status status) {
    switch (status) {
#define STATUS_SENTENCE(code, value, sentence)                                                     \
    case GPUIPC_##code:                                                                            \
        return sentence;
        GPUIPC_STATUS_LIST(STATUS_SENTENCE)
#undef STATUS_SENTENCE
    case GPUIPC_STATUS_FORCE_INT32:
        break;
    }
    return "this is no status of this library; it may come from a newer one";
}

const gpuipc_error *gpuipc_error_get(void) {
    return &thread_error;
}

/** Cuts a text that filled its room, so that no part of a UTF-8 character is left at its end: a
 *  continuation byte is 10xxxxxx, a first byte 11xxxxxx (RFC 3629). */
static void text_trim_character(char *text, size_t length) {
    size_t start = length;
    while (start > 0 && length - start < 4 && ((unsigned char)text[start - 1] & 0xC0u) == 0x80u) {
        start--;
    }
    if (start == 0 || ((unsigned char)text[start - 1] & 0xC0u) != 0xC0u) {
        return;
    }
    unsigned char first = (unsigned char)text[start - 1];
    size_t wanted = first >= 0xF0u ? 4 : first >= 0xE0u ? 3 : 2;
    if (length - (start - 1) < wanted) {
        text[start - 1] = '\0';
    }
}

static void text_copy(char *room, size_t capacity, const char *text) {
    size_t length = strlen(text);
    if (length < capacity) {
        memcpy(room, text, length + 1);
        return;
    }
    memcpy(room, text, capacity - 1);
    room[capacity - 1] = '\0';
    text_trim_character(room, capacity - 1);
}

static gpuipc_status error_record(gpuipc_status status, gpuipc_native_origin origin, int64_t code,
                                  const char *operation, const char *format, va_list arguments) {
    /* Made aside and copied: an argument may be a text of the record that is being replaced. */
    gpuipc_error error = {.status = status, .native_origin = origin, .native_code = code};
    text_copy(error.operation, sizeof(error.operation), operation);
    int wanted = vsnprintf(error.sentence, sizeof(error.sentence), format, arguments);
    if (wanted < 0) {
        text_copy(error.sentence, sizeof(error.sentence), gpuipc_status_message(status));
    } else if ((size_t)wanted >= sizeof(error.sentence)) {
        text_trim_character(error.sentence, sizeof(error.sentence) - 1);
    }
    thread_error = error;
    return status;
}

gpuipc_status status_fail(gpuipc_status status, const char *operation, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    error_record(status, GPUIPC_NATIVE_NONE, 0, operation, format, arguments);
    va_end(arguments);
    return status;
}

gpuipc_status status_fail_os(gpuipc_status status, int64_t code, const char *operation,
                             const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    error_record(status, GPUIPC_NATIVE_OS, code, operation, format, arguments);
    va_end(arguments);
    return status;
}

gpuipc_status status_fail_cuda(gpuipc_status status, int64_t code, const char *operation,
                               const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    error_record(status, GPUIPC_NATIVE_CUDA, code, operation, format, arguments);
    va_end(arguments);
    return status;
}

gpuipc_status status_out_of_memory(const char *operation, uint64_t bytes) {
    return status_fail(GPUIPC_ERR_OUT_OF_MEMORY, operation,
                       "the process has not %" PRIu64 " bytes of host memory for this", bytes);
}

void status_add(const char *more) {
    size_t used = strlen(thread_error.sentence);
    text_copy(thread_error.sentence + used, sizeof(thread_error.sentence) - used, more);
}

gpuipc_status status_change(gpuipc_status status) {
    thread_error.status = status;
    return status;
}

gpuipc_error status_save(void) {
    return thread_error;
}

void status_restore(const gpuipc_error *saved) {
    thread_error = *saved;
}
