/* SPDX-License-Identifier: MIT */
/** @file This process: its number, its environment, and random bytes. Windows has no fork(). */
#include "win32.h"

#include <bcrypt.h>
#include <stdlib.h>
#include <string.h>
#include <winternl.h>

/** The longest name of a variable that gpuipc asks for, with its end. */
#define VARIABLE_NAME_MAX 128
/** The first try; few variables are longer. */
#define VARIABLE_USUAL_MAX 256

uint32_t os_fork_generation(void) {
    return 0;
}

gpuipc_status os_fork_watch(void) {
    return GPUIPC_OK;
}

uint64_t os_process_id(void) {
    return GetCurrentProcessId();
}

/** A value that a variable had when somebody asked. Kept for ever, as the C library of Linux keeps
 *  what setenv(3) gave it, because nobody says when he has read it; but once only, so that what is
 *  kept is no more than the different values there were. */
typedef struct kept_text {
    struct kept_text *next;
    char text[];
} kept_text;

static os_static_mutex kept_mutex;
static kept_text *kept_head;

/** NULL without memory for it. */
static const char *text_keep(const char *text, size_t size) {
    os_static_mutex_lock(&kept_mutex);
    kept_text *entry = kept_head;
    while (entry != NULL && strcmp(entry->text, text) != 0) {
        entry = entry->next;
    }
    if (entry == NULL) {
        entry = malloc(sizeof(*entry) + size);
        if (entry != NULL) {
            memcpy(entry->text, text, size);
            entry->next = kept_head;
            kept_head = entry;
        }
    }
    os_static_mutex_unlock(&kept_mutex);
    return entry == NULL ? NULL : entry->text;
}

static const char *wide_keep(const wchar_t *wide) {
    size_t capacity = 3 * wcslen(wide) + 1; /* a unit of UTF-16 has at most three bytes in UTF-8 */
    char *text = malloc(capacity);
    if (text == NULL) {
        return NULL;
    }
    const char *kept =
        win32_narrow(wide, text, capacity) ? text_keep(text, strlen(text) + 1) : NULL;
    free(text);
    return kept;
}

/** What GetEnvironmentVariableW has. The caller frees it; NULL: there is none, or no memory. */
static wchar_t *variable_read(const wchar_t *name) {
    wchar_t *value = NULL;
    DWORD capacity = VARIABLE_USUAL_MAX;
    for (;;) {
        wchar_t *larger = realloc(value, capacity * sizeof(*value));
        if (larger == NULL) {
            break;
        }
        value = larger;
        SetLastError(ERROR_SUCCESS); /* an empty variable answers 0 as well, and sets no code */
        DWORD length = GetEnvironmentVariableW(name, value, capacity);
        if (length == 0 && GetLastError() != ERROR_SUCCESS) {
            break;
        }
        if (length < capacity) {
            value[length] = L'\0';
            return value;
        }
        capacity = length; /* with its end; it may have grown again until the next try */
    }
    free(value);
    return NULL;
}

/* The system's own environment: getenv() would have the C library's copy of it, in the character
 * set of the day, and each C library in the process has another. There are no set-uid programs. */
const char *os_environment(const char *name) {
    wchar_t wide[VARIABLE_NAME_MAX];
    if (win32_wide(name, wide, VARIABLE_NAME_MAX) != GPUIPC_OK) {
        return NULL;
    }
    wchar_t *value = variable_read(wide);
    if (value == NULL) {
        return NULL;
    }
    const char *text = wide_keep(value);
    free(value);
    return text;
}

bool os_is_wsl(void) {
    return false;
}

gpuipc_status os_random(void *bytes, size_t size) {
    unsigned char *at = bytes;
    while (size > 0) {
        ULONG part = size > MAXLONG ? MAXLONG : (ULONG)size;
        NTSTATUS result = BCryptGenRandom(NULL, at, part, BCRYPT_USE_SYSTEM_PREFERRED_RNG);
        if (result < 0) {
            return win32_fail(RtlNtStatusToDosError(result), "BCryptGenRandom",
                              "the system gives no random bytes");
        }
        at += part;
        size -= part;
    }
    return GPUIPC_OK;
}
