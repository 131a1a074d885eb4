/* SPDX-License-Identifier: MIT */
/** @file Handles that the library owns, and the register that keeps one from having two owners. */
#include "win32.h"

#include <stdlib.h>
#include <string.h>

#define WORD_BITS    64u
#define GROWTH_WORDS 16u

/* One bit per handle number. On Windows a number can come from another process: whoever sends a
 * handle puts it into this process and says what its number is (win32_packet.c). A number that is
 * the library's already would then be closed twice, the second time as somebody else's. */
static struct {
    os_static_mutex mutex;
    uint64_t *words;
    size_t count;
} handle_register;

static size_t register_index(intptr_t value) {
    return (size_t)value / 4; /* winnt.h and "Handles and Objects": multiples of four */
}

static bool register_has(intptr_t value) {
    size_t index = register_index(value);
    size_t word = index / WORD_BITS;
    return word < handle_register.count &&
           (handle_register.words[word] >> (index % WORD_BITS) & 1) != 0;
}

/** With the register locked. */
static gpuipc_status register_add(intptr_t value) {
    size_t index = register_index(value);
    size_t word = index / WORD_BITS;
    if (word >= handle_register.count) {
        size_t count = word + GROWTH_WORDS;
        uint64_t *words = realloc(handle_register.words, count * sizeof(*words));
        if (words == NULL) {
            return status_out_of_memory(count * sizeof(*words));
        }
        memset(words + handle_register.count, 0, (count - handle_register.count) * sizeof(*words));
        handle_register.words = words;
        handle_register.count = count;
    }
    handle_register.words[word] |= UINT64_C(1) << (index % WORD_BITS);
    return GPUIPC_OK;
}

/** With the register locked. @return whether it was registered */
static bool register_remove(intptr_t value) {
    if (value <= 0 || !register_has(value)) {
        return false;
    }
    size_t index = register_index(value);
    handle_register.words[index / WORD_BITS] &= ~(UINT64_C(1) << (index % WORD_BITS));
    return true;
}

/* learn.microsoft.com, "Interprocess Communication Between 32-bit and 64-bit Applications": of a
 * handle 32 bits are significant. Negative numbers are pseudo-handles (GetCurrentProcess() is -1)
 * or the kernel's own; the two lowest bits are for the program, the system ignores them. */
bool win32_handle_is_possible(intptr_t value) {
    return value > 0 && value <= INT32_MAX && value % 4 == 0;
}

bool win32_handle_is_open(intptr_t value) {
    DWORD flags;
    return win32_handle_is_possible(value) && GetHandleInformation((HANDLE)value, &flags);
}

HANDLE win32_handle_native(os_handle handle) {
    return (HANDLE)handle.value;
}

bool os_handle_is_valid(os_handle handle) {
    return handle.value > 0 && handle.value <= INT32_MAX;
}

gpuipc_status win32_handle_add(HANDLE handle, const char *call, os_handle *out_handle) {
    if (handle == NULL || handle == INVALID_HANDLE_VALUE) {
        return win32_fail(GetLastError(), call, "no handle could be made");
    }
    os_static_mutex_lock(&handle_register.mutex);
    gpuipc_status status = register_add((intptr_t)handle);
    os_static_mutex_unlock(&handle_register.mutex);
    if (status != GPUIPC_OK) {
        CloseHandle(handle);
        return status;
    }
    *out_handle = (os_handle){(intptr_t)handle};
    return GPUIPC_OK;
}

/** With the register locked: whether a message may say that this number is a handle for us. */
static gpuipc_status claim_check(uint64_t value) {
    if (value > INT32_MAX || !win32_handle_is_possible((intptr_t)value)) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "the peer sent 0x%llx, which is no handle's number",
                           (unsigned long long)value);
    }
    if (register_has((intptr_t)value)) {
        return status_fail(GPUIPC_ERR_PROTOCOL,
                           "the peer sent 0x%llx, which is a handle of this process already",
                           (unsigned long long)value);
    }
    /* A program that the peer's handle is inherited by would keep it, and one that is protected could
     * not be closed. */
    if (!SetHandleInformation((HANDLE)(uintptr_t)value,
                              HANDLE_FLAG_INHERIT | HANDLE_FLAG_PROTECT_FROM_CLOSE, 0)) {
        return win32_fail_as(GPUIPC_ERR_PROTOCOL, GetLastError(), "SetHandleInformation",
                             "the peer sent 0x%llx, which is not open in this process",
                             (unsigned long long)value);
    }
    return GPUIPC_OK;
}

gpuipc_status win32_handle_claim(const uint64_t *values, size_t count, os_handle *out_handles) {
    gpuipc_status status = GPUIPC_OK;
    size_t claimed = 0;
    os_static_mutex_lock(&handle_register.mutex);
    while (claimed < count && status == GPUIPC_OK) {
        status = claim_check(values[claimed]);
        if (status == GPUIPC_OK) {
            status = register_add((intptr_t)values[claimed]);
        }
        claimed += status == GPUIPC_OK;
    }
    for (size_t i = 0; i < claimed; i++) {
        if (status == GPUIPC_OK) {
            out_handles[i] = (os_handle){(intptr_t)values[i]};
        } else {
            register_remove((intptr_t)values[i]);
        }
    }
    os_static_mutex_unlock(&handle_register.mutex);
    return status;
}

gpuipc_status os_handle_adopt(intptr_t native, os_handle *out_handle) {
    if (!win32_handle_is_possible(native)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%lld is no handle's number",
                           (long long)native);
    }
    if (!SetHandleInformation((HANDLE)native, HANDLE_FLAG_INHERIT, 0)) {
        return win32_fail_as(GPUIPC_ERR_INVALID_ARGUMENT, GetLastError(), "SetHandleInformation",
                             "handle %lld cannot be adopted", (long long)native);
    }
    os_static_mutex_lock(&handle_register.mutex);
    gpuipc_status status = register_add(native);
    os_static_mutex_unlock(&handle_register.mutex);
    if (status == GPUIPC_OK) {
        *out_handle = (os_handle){native};
    }
    return status;
}

gpuipc_status os_handle_adopt_exported(const void *written, os_handle *out_handle) {
    /* cuda.h at CU_MEM_HANDLE_TYPE_WIN32: the handle is an NT HANDLE. */
    HANDLE handle;
    memcpy(&handle, written, sizeof(handle));
    gpuipc_status status = os_handle_adopt((intptr_t)handle, out_handle);
    if (status != GPUIPC_OK && win32_handle_is_open((intptr_t)handle)) {
        CloseHandle(handle); /* the driver made it for this call, so nobody else could */
    }
    return status;
}

intptr_t os_handle_give_up(os_handle *handle) {
    intptr_t native = handle->value;
    os_static_mutex_lock(&handle_register.mutex);
    register_remove(native);
    os_static_mutex_unlock(&handle_register.mutex);
    *handle = OS_HANDLE_NONE;
    return native;
}

gpuipc_status os_handle_duplicate_native(intptr_t native, os_handle *out_handle) {
    HANDLE copy;
    /* Asked first: a pseudo-handle can be duplicated, and would become a handle to this process. */
    if (!win32_handle_is_possible(native)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "%lld is no handle's number",
                           (long long)native);
    }
    if (!DuplicateHandle(GetCurrentProcess(), (HANDLE)native, GetCurrentProcess(), &copy, 0, FALSE,
                         DUPLICATE_SAME_ACCESS)) {
        DWORD code = GetLastError();
        return code == ERROR_INVALID_HANDLE
                   ? win32_fail_as(GPUIPC_ERR_INVALID_ARGUMENT, code, "DuplicateHandle",
                                   "handle %lld is not open", (long long)native)
                   : win32_fail(code, "DuplicateHandle", "handle %lld cannot be duplicated",
                                (long long)native);
    }
    return win32_handle_add(copy, "DuplicateHandle", out_handle);
}

gpuipc_status os_handle_duplicate(os_handle handle, os_handle *out_handle) {
    return os_handle_duplicate_native(handle.value, out_handle);
}

/* Closed with the register unlocked: what a peer sent can be a handle whose close takes as long as
 * some other machine likes, and nobody else is to wait for that. */
void os_handle_close(os_handle *handle) {
    os_static_mutex_lock(&handle_register.mutex);
    bool ours = register_remove(handle->value);
    os_static_mutex_unlock(&handle_register.mutex);
    if (ours) {
        CloseHandle((HANDLE)handle->value);
    }
    *handle = OS_HANDLE_NONE;
}
