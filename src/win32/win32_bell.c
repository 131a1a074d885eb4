/* SPDX-License-Identifier: MIT */
/** @file Bells: events with a random name, since WaitOnAddress() reaches no other process. */
#include "win32.h"

#define NAME_UNITS 64

/* "Global": the two may be in different sessions. Events may be made there by anybody (learn.microsoft.com, Kernel object
 * namespaces: only file mappings and symbolic links need a privilege). */
static void name_of(const uint8_t name[16], wchar_t text[NAME_UNITS]) {
    static const wchar_t prefix[] = L"Global\\gpuipc-bell-";
    static const wchar_t hex[] = L"0123456789abcdef";
    _Static_assert(sizeof(prefix) / sizeof(prefix[0]) + 32 <= NAME_UNITS, "the name fits");
    wchar_t *at = text;
    for (const wchar_t *from = prefix; *from != L'\0'; from++) {
        *at++ = *from;
    }
    for (int i = 0; i < 16; i++) {
        *at++ = hex[name[i] >> 4];
        *at++ = hex[name[i] & 15];
    }
    *at = L'\0';
}

gpuipc_status os_bell_make(const uint8_t name[16], os_bell *out_bell) {
    wchar_t text[NAME_UNITS];
    const SECURITY_ATTRIBUTES *owner_only;
    gpuipc_status status = win32_owner_only(&owner_only);
    if (status != GPUIPC_OK) {
        return status;
    }
    name_of(name, text);
    HANDLE event = CreateEventW((SECURITY_ATTRIBUTES *)(uintptr_t)owner_only, FALSE, FALSE, text);
    const DWORD code = GetLastError();
    if (event == NULL) {
        return win32_fail(code, "CreateEventW", "there is no event to sleep at");
    }
    if (code == ERROR_ALREADY_EXISTS) { /* nobody can have guessed it */
        CloseHandle(event);
        return win32_fail(code, "CreateEventW", "the random name of an event is taken");
    }
    return win32_handle_add(event, "CreateEventW", &out_bell->event);
}

gpuipc_status os_bell_find(const uint8_t name[16], os_bell *out_bell) {
    wchar_t text[NAME_UNITS];
    name_of(name, text);
    HANDLE event = OpenEventW(SYNCHRONIZE | EVENT_MODIFY_STATE, FALSE, text);
    if (event == NULL) {
        return win32_fail(GetLastError(), "OpenEventW", "the event to sleep at is not there");
    }
    return win32_handle_add(event, "OpenEventW", &out_bell->event);
}

gpuipc_status os_bell_copy(const os_bell *bell, os_bell *out_bell) {
    return os_handle_duplicate(bell->event, &out_bell->event);
}

void os_bell_close(os_bell *bell) {
    os_handle_close(&bell->event);
}

void os_bell_wait(const os_bell *bell, const atomic_uint_least64_t *word, unsigned milliseconds) {
    if (atomic_load(word) == 1) {
        (void)WaitForSingleObject(win32_handle_native(bell->event), milliseconds);
    }
}

void os_bell_ring(const os_bell *bell, const atomic_uint_least64_t *word) {
    (void)word;
    (void)SetEvent(win32_handle_native(bell->event));
}
