/* SPDX-License-Identifier: MIT */
/** @file See win32_words.h. */
#include "win32_words.h"

#include <stdlib.h>
#include <windows.h>

#include "base/status.h"

gpuipc_status words_widen(const char *text, wchar_t **out_wide) {
    int units = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    if (units == 0) {
        return status_fail_os(GPUIPC_ERR_INVALID_ARGUMENT, GetLastError(), "MultiByteToWideChar",
                              "an argument is not UTF-8");
    }
    wchar_t *wide = malloc((size_t)units * sizeof(*wide));
    if (wide == NULL) {
        return status_out_of_memory((size_t)units * sizeof(*wide));
    }
    MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, wide, units);
    *out_wide = wide;
    return GPUIPC_OK;
}

gpuipc_status words_narrow(const wchar_t *wide, char **out_text) {
    int bytes = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
    char *text = malloc((size_t)bytes);
    if (text == NULL) {
        return status_out_of_memory((size_t)bytes);
    }
    WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, bytes, NULL, NULL);
    *out_text = text;
    return GPUIPC_OK;
}

/* A line that is being written. What does not fit is only counted. */
typedef struct line {
    wchar_t *units;
    size_t count;
} line;

static void put(line *self, wchar_t unit, size_t times) {
    for (; times > 0; times--) {
        if (self->count < WORDS_LINE_MAX) {
            self->units[self->count] = unit;
        }
        self->count++;
    }
}

static void put_text(line *self, const wchar_t *text) {
    for (; *text != L'\0'; text++) {
        put(self, *text, 1);
    }
}

/* A blank and the argument in quotes. A backslash stands for itself unless a quote follows the run of
 * them that it is in: then each is doubled, and a quote of the argument's gets one of its own
 * (learn.microsoft.com, "Parsing C command-line arguments"). */
static void put_argument(line *self, const wchar_t *argument) {
    size_t backslashes = 0;
    put_text(self, L" \"");
    for (; *argument != L'\0'; argument++) {
        if (*argument == L'"') {
            put(self, L'\\', backslashes + 1);
        }
        backslashes = *argument == L'\\' ? backslashes + 1 : 0;
        put(self, *argument, 1);
    }
    put(self, L'\\', backslashes);
    put(self, L'"', 1);
}

static gpuipc_status put_arguments(line *self, const char *const *arguments) {
    for (size_t i = 0; arguments[i] != NULL; i++) {
        wchar_t *wide;
        gpuipc_status status = words_widen(arguments[i], &wide);
        if (status != GPUIPC_OK) {
            return status;
        }
        put_argument(self, wide);
        free(wide);
    }
    return GPUIPC_OK;
}

gpuipc_status words_join(const wchar_t *path, const char *const *arguments, wchar_t **out_line) {
    line self = {malloc(WORDS_LINE_MAX * sizeof(wchar_t)), 0};
    if (self.units == NULL) {
        return status_out_of_memory(WORDS_LINE_MAX * sizeof(wchar_t));
    }
    /* In a program's own name a backslash is never special, and a quote is not possible. */
    put(&self, L'"', 1);
    put_text(&self, path);
    put(&self, L'"', 1);
    gpuipc_status status = put_arguments(&self, arguments);
    put(&self, L'\0', 1);
    if (status == GPUIPC_OK && self.count > WORDS_LINE_MAX) {
        status = status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "the arguments are too long together");
    }
    if (status != GPUIPC_OK) {
        free(self.units);
        return status;
    }
    *out_line = self.units;
    return GPUIPC_OK;
}
