/* SPDX-License-Identifier: MIT */
/** @file The calling thread's error record, and the names and sentences of the statuses. */
#include "base/status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The longest code, and the longest name of a status. */
#define CODE_SIZE 112
#define NAME_SIZE 64

_Static_assert(sizeof(gpuipc_error) + CODE_SIZE + NAME_SIZE < STATUS_TEXT_SIZE,
               "a record leaves room for what to do");

/* Behind the last group of statuses. */
#define GROUPS_END 120

GPUIPC_THREAD_LOCAL status_of_thread status_own = {.call = ""};

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

gpuipc_group gpuipc_status_group(gpuipc_status status) {
    static const gpuipc_group groups[] = {GPUIPC_GROUP_TICKET, GPUIPC_GROUP_PEER,
                                          GPUIPC_GROUP_WAITING, GPUIPC_GROUP_MACHINE,
                                          GPUIPC_GROUP_CALL};
    const int number = (int)status;
    if (number >= GROUPS_END || number < 0) {
        return GPUIPC_GROUP_UNKNOWN;
    }
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        if (number >= (int)groups[i]) {
            return groups[i];
        }
    }
    return GPUIPC_GROUP_OK;
}

const gpuipc_error *gpuipc_error_get(void) {
    return &status_own.error;
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

/* ", cuMemCreate: CUresult 2": the code that the record has; nothing where it has none. */
static void code_text(const gpuipc_error *error, char *room, size_t capacity) {
    static const char *const origins[] = {
        [GPUIPC_NATIVE_OS] = "system error", [GPUIPC_NATIVE_CUDA] = "CUresult"};
    room[0] = '\0';
    if (error->native_origin != GPUIPC_NATIVE_NONE) {
        (void)snprintf(room, capacity, ", %s: %s %" PRId64, error->native_call,
                       origins[error->native_origin], error->native_code);
    }
}

const char *gpuipc_error_text(void) {
    const gpuipc_error *error = &status_own.error;
    const char *remedy = gpuipc_status_message(error->status);
    char code[CODE_SIZE];
    if (error->status == GPUIPC_OK) {
        return remedy;
    }
    code_text(error, code, sizeof(code));
    const int length =
        snprintf(status_own.text, sizeof(status_own.text), "%s: %s (%s%s)", error->operation,
                 error->sentence, gpuipc_status_name(error->status), code);
    if (strcmp(error->sentence, remedy) != 0) {
        (void)snprintf(status_own.text + length, sizeof(status_own.text) - (size_t)length,
                       "; in general: %s", remedy);
    }
    return status_own.text;
}

void status_enter(const char *call) {
    status_own.call = call;
}

const char *status_call(void) {
    return status_own.call;
}

static void error_record(gpuipc_status status, gpuipc_native_origin origin, int64_t code,
                         const char *native_call, const char *format, va_list arguments) {
    /* Made aside and copied: an argument may be a text of the record that is being replaced. */
    gpuipc_error error = {.status = status, .native_origin = origin, .native_code = code};
    text_copy(error.native_call, sizeof(error.native_call), native_call);
    text_copy(error.operation, sizeof(error.operation), status_own.call);
    int wanted = vsnprintf(error.sentence, sizeof(error.sentence), format, arguments);
    if (wanted < 0) {
        text_copy(error.sentence, sizeof(error.sentence), gpuipc_status_message(status));
    } else if ((size_t)wanted >= sizeof(error.sentence)) {
        text_trim_character(error.sentence, sizeof(error.sentence) - 1);
    }
    status_own.error = error;
}

gpuipc_status status_fail(gpuipc_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    error_record(status, GPUIPC_NATIVE_NONE, 0, "", format, arguments);
    va_end(arguments);
    return status;
}

gpuipc_status status_fail_os(gpuipc_status status, int64_t code, const char *native_call,
                             const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    error_record(status, GPUIPC_NATIVE_OS, code, native_call, format, arguments);
    va_end(arguments);
    return status;
}

gpuipc_status status_fail_cuda(gpuipc_status status, int64_t code, const char *native_call,
                               const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    error_record(status, GPUIPC_NATIVE_CUDA, code, native_call, format, arguments);
    va_end(arguments);
    return status;
}

gpuipc_status status_bad_timeout(int timeout_ms) {
    return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                       "timeout_ms is %d; 0 tries once, and -1 waits for ever", timeout_ms);
}

gpuipc_status status_out_of_memory(uint64_t bytes) {
    return status_fail(GPUIPC_ERR_OUT_OF_MEMORY,
                       "the process has not %" PRIu64 " bytes of host memory for this", bytes);
}

void status_add(const char *more) {
    size_t used = strlen(status_own.error.sentence);
    text_copy(status_own.error.sentence + used, sizeof(status_own.error.sentence) - used, more);
}

gpuipc_status status_change(gpuipc_status status) {
    status_own.error.status = status;
    return status;
}

gpuipc_status status_again(const gpuipc_error *kept) {
    status_own.error = *kept;
    text_copy(status_own.error.operation, sizeof(status_own.error.operation), status_own.call);
    return kept->status;
}

gpuipc_error status_save(void) {
    return status_own.error;
}

const char *status_path(const char *path, char room[STATUS_PATH_MAX]) {
    const size_t length = strlen(path);
    if (length < STATUS_PATH_MAX) {
        return path;
    }
    const char *end = path + length - (STATUS_PATH_MAX - sizeof("..."));
    while (((unsigned char)*end & 0xC0u) == 0x80u) { /* UTF-8: no letter begins here */
        end++;
    }
    (void)snprintf(room, STATUS_PATH_MAX, "...%s", end);
    return room;
}

void status_restore(const gpuipc_error *saved) {
    status_own.error = *saved;
}
