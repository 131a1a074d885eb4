/* SPDX-License-Identifier: MIT */
/** @file See output.h. */
#include "output.h"

#include <io.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>
#include <windows.h>

#include "os.h"
#include "win32_words.h"

/* Behind the target's path. */
#define BESIDE_UNITS 24

struct output {
    FILE *file;
    wchar_t *target;
    wchar_t *beside;  /* NULL: the target itself is written */
    bool is_in_place; /* the target is a plain file, and may become shorter */
};

static void destroy(output *self) {
    free(self->target);
    free(self->beside);
    free(self);
}

/* What is there already, or that nothing is. GetFileType: of a console, a pipe or NUL it is no file.
 *  @return 0, or the system's code */
static DWORD look(const wchar_t *path, bool *out_is_plain) {
    const HANDLE there =
        CreateFileW(path, GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                    NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    const DWORD code = there == INVALID_HANDLE_VALUE ? GetLastError() : 0;
    *out_is_plain = true;
    if (code == 0) {
        *out_is_plain = GetFileType(there) == FILE_TYPE_DISK;
        (void)CloseHandle(there);
    }
    return code == ERROR_FILE_NOT_FOUND ? 0 : code;
}

static DWORD open_beside(output *self) {
    const size_t length = wcslen(self->target);
    uint64_t random = 0;
    self->beside = malloc((length + BESIDE_UNITS) * sizeof(*self->beside));
    if (self->beside == NULL || os_random(&random, sizeof(random)) != GPUIPC_OK) {
        return ERROR_NOT_ENOUGH_MEMORY;
    }
    (void)swprintf(self->beside, length + BESIDE_UNITS, L"%ls.%016llx", self->target,
                   (unsigned long long)random);
    SetLastError(ERROR_WRITE_FAULT);
    self->file = _wfopen(self->beside, L"wb");
    return self->file != NULL ? 0 : GetLastError();
}

/* The directory may not be written: a file that is there already may be all the same. It is not emptied yet.
 *  @return 0, or the system's code: of the file beside */
static DWORD open_plain(output *self) {
    const DWORD code = open_beside(self);
    if (code == 0) {
        return 0;
    }
    free(self->beside);
    self->beside = NULL;
    self->file = _wfopen(self->target, L"r+b");
    self->is_in_place = self->file != NULL;
    return self->is_in_place ? 0 : code;
}

/* @return 0, or the system's code */
static DWORD open_target(output *self) {
    bool is_plain;
    const DWORD code = look(self->target, &is_plain);
    if (code != 0 || is_plain) {
        return code != 0 ? code : open_plain(self);
    }
    SetLastError(ERROR_WRITE_FAULT);
    self->file = _wfopen(self->target, L"wb");
    return self->file != NULL ? 0 : GetLastError();
}

static void say_why(DWORD code, char why[OUTPUT_WHY_MAX]) {
    wchar_t wide[OUTPUT_WHY_MAX / 3];
    char *text = NULL;
    const DWORD length = FormatMessageW(
        FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS | FORMAT_MESSAGE_MAX_WIDTH_MASK,
        NULL, code, 0, wide, (DWORD)(sizeof(wide) / sizeof(*wide)), NULL);
    if (length > 0 && words_narrow(wide, &text) == GPUIPC_OK) {
        (void)snprintf(why, OUTPUT_WHY_MAX, "%s", text);
    } else {
        (void)snprintf(why, OUTPUT_WHY_MAX, "code %lu", (unsigned long)code);
    }
    free(text);
}

output *output_open(const char *path, char why[OUTPUT_WHY_MAX]) {
    DWORD code = ERROR_NOT_ENOUGH_MEMORY;
    output *self = calloc(1, sizeof(*self));
    if (self != NULL) {
        code =
            words_widen(path, &self->target) == GPUIPC_OK ? open_target(self) : ERROR_INVALID_NAME;
        if (code == 0) {
            return self;
        }
        destroy(self);
    }
    say_why(code, why);
    return NULL;
}

FILE *output_file(const output *self) {
    return self->file;
}

/* What was there may have been longer. */
static bool cut(FILE *file) {
    const __int64 size = _ftelli64(file);
    return size >= 0 && fflush(file) == 0 && _chsize_s(_fileno(file), size) == 0;
}

/* learn.microsoft.com, MoveFileExW: rename() of C does not replace here. Nor does this replace what another program has
 *  open, or what is mounted in a container: that is written in place.
 *  @return 0, or the system's code: of the moving, where the target cannot be written either */
static DWORD put_there(const output *self) {
    if (MoveFileExW(self->beside, self->target, MOVEFILE_REPLACE_EXISTING)) {
        return 0;
    }
    const DWORD code = GetLastError();
    return CopyFileW(self->beside, self->target, FALSE) ? 0 : code;
}

bool output_end(output *self, bool is_good, char why[OUTPUT_WHY_MAX]) {
    DWORD code = 0;
    is_good = is_good && (!self->is_in_place || cut(self->file));
    is_good = fclose(self->file) == 0 && is_good;
    if (is_good && self->beside != NULL) {
        code = put_there(self);
    }
    if (code != 0) {
        say_why(code, why);
    }
    if (self->beside != NULL) {
        (void)DeleteFileW(self->beside); /* of what was moved there is none */
    }
    destroy(self);
    return is_good && code == 0;
}

bool output_check(const char *path, char why[OUTPUT_WHY_MAX]) {
    output *self = output_open(path, why);
    if (self == NULL) {
        return false;
    }
    (void)output_end(self, false, why);
    return true;
}
