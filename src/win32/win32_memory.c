/* SPDX-License-Identifier: MIT */
/** @file Shared memory of a fixed size: sections that the paging file backs. And pages of the process's own. */
#include "win32.h"

#include <inttypes.h>
#include <string.h>
#include <winternl.h>

/* Of ntdll.dll, which exports it in every version; no header of the SDK has it. The layout and what
 * the attributes mean: SEC_... of winnt.h, as they were given when the section was made, and
 * SEC_FILE for those that a file backs. */
typedef struct section_information {
    void *base_address;
    ULONG attributes;
    LARGE_INTEGER size;
} section_information;
_Static_assert(sizeof(section_information) == 24, "SECTION_BASIC_INFORMATION");
_Static_assert(offsetof(section_information, size) == 16, "SECTION_BASIC_INFORMATION.MaximumSize");

#define SECTION_BASIC_INFORMATION_CLASS 0

NTSTATUS NTAPI NtQuerySection(HANDLE section, int information_class, void *information,
                              SIZE_T information_size, SIZE_T *out_size);

static NTSTATUS section_query(os_handle handle, section_information *out) {
    return NtQuerySection(win32_handle_native(handle), SECTION_BASIC_INFORMATION_CLASS, out,
                          sizeof(*out), NULL);
}

/** @p debug_name is not used: a section's name is how other processes open it, so that one who
 *  guesses it could be there first; and there is no other place for words. */
gpuipc_status os_memory_create(const char *debug_name, uint64_t bytes, os_handle *out_handle) {
    (void)debug_name;
    if (bytes == 0 || bytes > INT64_MAX) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "shared memory cannot have %" PRIu64 " bytes", bytes);
    }
    const SECURITY_ATTRIBUTES *owner_only;
    gpuipc_status status = win32_owner_only(&owner_only);
    if (status != GPUIPC_OK) {
        return status;
    }
    /* SEC_COMMIT: all of it can be touched at once, by either side, without a fault that only the
     * other one could prevent. So the system promises memory or room in the paging file for all of
     * it now, and takes either when a page is touched (learn.microsoft.com, CreateFileMappingW). */
    HANDLE section = CreateFileMappingW(
        INVALID_HANDLE_VALUE, (SECURITY_ATTRIBUTES *)(uintptr_t)owner_only,
        PAGE_READWRITE | SEC_COMMIT, (DWORD)(bytes >> 32), (DWORD)(bytes & UINT32_MAX), NULL);
    if (section == NULL) {
        return win32_fail(GetLastError(), "CreateFileMappingW",
                          "no shared memory of %" PRIu64 " bytes", bytes);
    }
    return win32_handle_add(section, "CreateFileMappingW", out_handle);
}

/** What kind of object it is, for the sentence. Asking for the type waits for nothing; asking for the
 *  name of a pipe could wait for ever. */
static void type_name(os_handle handle, char *text, size_t capacity) {
    union {
        PUBLIC_OBJECT_TYPE_INFORMATION type;
        wchar_t room[512];
    } answer;
    wchar_t name[64] = L"?"; /* the longest are of the order of "WaitCompletionPacket" */
    if (NtQueryObject(win32_handle_native(handle), ObjectTypeInformation, &answer, sizeof(answer),
                      NULL) >= 0) {
        size_t units = answer.type.TypeName.Length / sizeof(wchar_t);
        if (units < sizeof(name) / sizeof(name[0])) {
            memcpy(name, answer.type.TypeName.Buffer, units * sizeof(wchar_t));
            name[units] = L'\0';
        }
    }
    if (!win32_narrow(name, text, capacity)) {
        text[0] = '\0';
    }
}

static gpuipc_status inspect_failed(os_handle handle, NTSTATUS code) {
    char type[64];
    type_name(handle, type, sizeof(type));
    return win32_fail_as(GPUIPC_ERR_PROTOCOL, RtlNtStatusToDosError(code), "NtQuerySection",
                         "the handle is no shared memory that can be looked at (its kind is %s)",
                         type);
}

/** Why a section with these attributes is none that os_memory_create made. */
static const char *attributes_words(ULONG attributes) {
    if ((attributes & SEC_IMAGE) != 0) {
        return "a program, which is no plain memory";
    }
    if ((attributes & SEC_FILE) != 0) {
        return "a file's, which reading can fail for when the file is out of reach";
    }
    if ((attributes & SEC_RESERVE) != 0) {
        return "reserved only, so that touching it can fail";
    }
    return "of another kind than gpuipc makes";
}

/** Whether the handle may map it to read and to write; what it may not even be asked, it may not. */
static bool may_write(os_handle handle) {
    const ACCESS_MASK wanted = SECTION_MAP_READ | SECTION_MAP_WRITE;
    PUBLIC_OBJECT_BASIC_INFORMATION known;
    return NtQueryObject(win32_handle_native(handle), ObjectBasicInformation, &known, sizeof(known),
                         NULL) >= 0 &&
           (known.GrantedAccess & wanted) == wanted;
}

gpuipc_status os_memory_inspect(os_handle handle, uint64_t *out_bytes) {
    section_information information;
    NTSTATUS code = section_query(handle, &information);
    if (code < 0) {
        return inspect_failed(handle, code);
    }
    if (information.attributes != SEC_COMMIT) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "the handle is memory %s (attributes 0x%lx)",
                           attributes_words(information.attributes), information.attributes);
    }
    if (!may_write(handle)) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "the handle is memory that may only be read");
    }
    *out_bytes = (uint64_t)information.size.QuadPart;
    return GPUIPC_OK;
}

gpuipc_status os_memory_map(os_handle handle, uint64_t bytes, bool writable, void **out_address) {
    section_information information;
    NTSTATUS code = section_query(handle, &information);
    if (code < 0) {
        return win32_fail_as(GPUIPC_ERR_INVALID_ARGUMENT, RtlNtStatusToDosError(code),
                             "NtQuerySection", "the handle is no memory that can be mapped");
    }
    /* Zero bytes would map all of it, and for too many the system says ERROR_ACCESS_DENIED. */
    if (bytes == 0 || bytes > (uint64_t)information.size.QuadPart) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "%" PRIu64 " bytes cannot be mapped of memory that has %" PRId64, bytes,
                           (int64_t)information.size.QuadPart);
    }
    DWORD rights = writable ? FILE_MAP_READ | FILE_MAP_WRITE : FILE_MAP_READ;
    void *address = MapViewOfFile(win32_handle_native(handle), rights, 0, 0, (SIZE_T)bytes);
    if (address == NULL) {
        return win32_fail(GetLastError(), "MapViewOfFile", "%" PRIu64 " bytes cannot be mapped",
                          bytes);
    }
    *out_address = address;
    return GPUIPC_OK;
}

/* Nothing replaces a program in its process here: the handle of the process tells all. */
gpuipc_status os_memory_lock(os_handle handle, uint64_t byte) {
    (void)handle;
    (void)byte;
    return status_fail(GPUIPC_ERR_NOT_SUPPORTED, "memory is not locked on Windows");
}

int os_memory_is_locked(os_handle handle, uint64_t byte) {
    (void)handle;
    (void)byte;
    return -1;
}

gpuipc_status os_pages_allocate(size_t bytes, void **out_pages) {
    void *pages = VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    if (pages == NULL) {
        return win32_fail_as(GPUIPC_ERR_OUT_OF_MEMORY, GetLastError(), "VirtualAlloc",
                             "no memory of %zu bytes", bytes);
    }
    *out_pages = pages;
    return GPUIPC_OK;
}

void os_pages_free(void *pages, size_t bytes) {
    (void)bytes;
    if (pages != NULL) {
        (void)VirtualFree(pages, 0, MEM_RELEASE);
    }
}

/** The system knows by the address how long the mapping is. */
void os_memory_unmap(void *address, uint64_t bytes) {
    (void)bytes;
    if (address != NULL) {
        UnmapViewOfFile(address);
    }
}

uint64_t os_page_bytes(void) {
    SYSTEM_INFO system;
    GetSystemInfo(&system);
    return system.dwPageSize;
}
