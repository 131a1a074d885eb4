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

#define BOOT_KEY       L"Software\\gpuipc\\boot"
#define BOOT_ID_DIGITS 32
#define HANDLES_MAX    16711680u

uint32_t os_fork_generation(void) {
    return 0;
}

gpuipc_status os_fork_watch(void) {
    return GPUIPC_OK;
}

/* learn.microsoft.com, Windows developer notes. Of ntdll.dll; no header of the SDK has it. */
BOOLEAN NTAPI RtlDllShutdownInProgress(void);

bool os_other_threads_have_ended(void) {
    return RtlDllShutdownInProgress() != 0;
}

/* learn.microsoft.com, ExitProcess: all of the threads except the calling one end before the libraries are told, so no
 * thread of ours is under way when the driver ends; it may have held a lock, so that nothing may be done any more. */
void os_at_exit(void (*run)(void)) {
    (void)run;
}

static int hex_digit(wchar_t digit) {
    static const wchar_t digits[] = L"0123456789abcdef";
    const wchar_t *found = digit != L'\0' ? wcschr(digits, digit) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

/** What stands in a key's class: two digits for each byte. */
static bool id_decode(const wchar_t text[BOOT_ID_DIGITS + 1], DWORD length, uint8_t id[16]) {
    if (length != BOOT_ID_DIGITS) {
        return false;
    }
    for (size_t i = 0; i < BOOT_ID_DIGITS / 2; i++) {
        int high = hex_digit(text[2 * i]);
        int low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        id[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static LSTATUS boot_key_make(HKEY *out_key) {
    static const wchar_t digits[] = L"0123456789abcdef";
    uint8_t random[BOOT_ID_DIGITS / 2];
    wchar_t text[BOOT_ID_DIGITS + 1];
    if (os_random(random, sizeof(random)) != GPUIPC_OK) {
        return ERROR_GEN_FAILURE;
    }
    for (size_t i = 0; i < sizeof(random); i++) {
        text[2 * i] = digits[random[i] >> 4];
        text[2 * i + 1] = digits[random[i] & 15];
    }
    text[BOOT_ID_DIGITS] = L'\0';
    return RegCreateKeyExW(HKEY_CURRENT_USER, BOOT_KEY, 0, text, REG_OPTION_VOLATILE,
                           KEY_QUERY_VALUE, NULL, out_key, NULL);
}

/* learn.microsoft.com, RegCreateKeyExW: a volatile key is kept in memory and gone with the user's hive, at
 * the latest when the machine goes down; its class is given when it is made, and ignored when it is there
 * already. So of two processes that are first at once, both read what one of them has written, and none
 * reads half of it. Opened first, because Wine 8 gives the class anew. */
void os_boot_id(uint8_t id[16]) {
    HKEY key;
    wchar_t text[BOOT_ID_DIGITS + 1];
    DWORD length = BOOT_ID_DIGITS + 1;
    uint8_t found[16] = {0};
    gpuipc_error why = status_save();
    LSTATUS code = RegOpenKeyExW(HKEY_CURRENT_USER, BOOT_KEY, 0, KEY_QUERY_VALUE, &key);
    if (code == ERROR_FILE_NOT_FOUND) {
        code = boot_key_make(&key);
    }
    if (code == ERROR_SUCCESS) {
        if (RegQueryInfoKeyW(key, text, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                             NULL) != ERROR_SUCCESS ||
            !id_decode(text, length, found)) {
            memset(found, 0, sizeof(found));
        }
        RegCloseKey(key);
    }
    status_restore(&why);
    memcpy(id, found, sizeof(found));
}

/* "Pushing the Limits of Windows: Handles" (M. Russinovich): 16,711,680 for each process. Views of memory have no
 * number of their own. */
void os_limits_get(os_limits *out_limits) {
    SYSTEM_INFO system;
    GetSystemInfo(&system);
    *out_limits = (os_limits){.handles = HANDLES_MAX,
                              .mappings = UINT64_MAX,
                              .addresses = (uintptr_t)system.lpMaximumApplicationAddress -
                                           (uintptr_t)system.lpMinimumApplicationAddress,
                              .file_bytes = UINT64_MAX};
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
