/* SPDX-License-Identifier: MIT */
/** @file Windows' error codes turned into statuses and sentences. */
#include "win32.h"

#include <stdarg.h>
#include <stdio.h>

#include "os_situation.h"

/** Room for the system's words. A longer text is cut in the error record anyway. */
#define WORDS_MAX 512
/** UTF-8 has at most three bytes for a unit of UTF-16. */
#define WORDS_BYTES_MAX (3 * WORDS_MAX)

static os_situation error_situation(DWORD code) {
    switch (code) {
    case ERROR_TOO_MANY_OPEN_FILES:
        return OS_SITUATION_NO_HANDLE_LEFT;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY:
    case ERROR_NO_SYSTEM_RESOURCES: /* the kernel's own memory */
    case ERROR_COMMITMENT_LIMIT:    /* memory and paging file together */
    case ERROR_NOT_ENOUGH_QUOTA:    /* the process's share of either */
        return OS_SITUATION_NO_MEMORY;
    case ERROR_BROKEN_PIPE:        /* ReadFile: the other end is closed */
    case ERROR_NO_DATA:            /* WriteFile: the same */
    case ERROR_PIPE_NOT_CONNECTED: /* either, on the server's end after DisconnectNamedPipe */
        return OS_SITUATION_PEER_GONE;
    default:
        return OS_SITUATION_OTHER;
    }
}

gpuipc_status win32_error_status(DWORD code) {
    return os_situation_status(error_situation(code));
}

static bool ends_a_sentence(wchar_t character) {
    return character == L'.' || character == L' ' || character == L'\r' || character == L'\n';
}

/** The system's words, in the language it has for this thread, in one line and without the full
 *  stop. Fixed room: this runs when there is no memory left, too. */
static void error_words(DWORD code, char text[WORDS_BYTES_MAX]) {
    wchar_t wide[WORDS_MAX];
    /* IGNORE_INSERTS: the places for names in some texts stay as they are, since there are no names
     * to give; MAX_WIDTH_MASK: without the line breaks of the text (learn.microsoft.com,
     * FormatMessageW). */
    DWORD length = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS |
                                      FORMAT_MESSAGE_MAX_WIDTH_MASK,
                                  NULL, code, 0, wide, WORDS_MAX, NULL);
    while (length > 0 && ends_a_sentence(wide[length - 1])) {
        length--;
    }
    wide[length] = L'\0';
    if (length == 0 || !win32_narrow(wide, text, WORDS_BYTES_MAX)) {
        snprintf(text, WORDS_BYTES_MAX, "unknown error %lu", (unsigned long)code);
    }
}

static void error_record(gpuipc_status status, DWORD code, const char *call, const char *format,
                         va_list arguments) {
    gpuipc_error layout;
    char sentence[sizeof(layout.sentence)];
    char words[WORDS_BYTES_MAX];
    if (vsnprintf(sentence, sizeof(sentence), format, arguments) < 0) {
        sentence[0] = '\0';
    }
    error_words(code, words);
    status_fail_os(status, (int64_t)code, call, "%s: %s", sentence, words);
}

gpuipc_status win32_fail(DWORD code, const char *call, const char *format, ...) {
    gpuipc_status status = win32_error_status(code);
    va_list arguments;
    va_start(arguments, format);
    error_record(status, code, call, format, arguments);
    va_end(arguments);
    return status;
}

gpuipc_status win32_fail_as(gpuipc_status status, DWORD code, const char *call, const char *format,
                            ...) {
    va_list arguments;
    va_start(arguments, format);
    error_record(status, code, call, format, arguments);
    va_end(arguments);
    return status;
}
