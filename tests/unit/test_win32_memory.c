/* SPDX-License-Identifier: MIT */
/** @file Shared memory: handles that are none, and what a section forbids. */
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "unique.h"
#include "win32.h"

#include <winternl.h>

TestSuite(win32_memory, .timeout = 60);

enum {
    MEMORY_BYTES = 65536
};

/** A function of ntdll.dll that no header has. */
static FARPROC native(const char *name) {
    return GetProcAddress(GetModuleHandleW(L"ntdll.dll"), name);
}

/** A file that goes with its last handle. */
static HANDLE file_make(void) {
    static const char bytes[MEMORY_BYTES] = "file";
    char name[UNIQUE_NAME_MAX];
    wchar_t path[MAX_PATH + 1 + UNIQUE_NAME_MAX];
    DWORD written;
    DWORD length = GetTempPathW(MAX_PATH + 1, path); /* ends with a backslash */
    cr_assert(length > 0 && length <= MAX_PATH);
    unique_name(name);
    check_ok(win32_wide(name, path + length, UNIQUE_NAME_MAX));
    HANDLE file = CreateFileW(path, GENERIC_READ | GENERIC_WRITE, 0, NULL, CREATE_NEW,
                              FILE_FLAG_DELETE_ON_CLOSE, NULL);
    cr_assert_neq(file, INVALID_HANDLE_VALUE, "%lu", GetLastError());
    cr_assert(WriteFile(file, bytes, sizeof(bytes), &written, NULL));
    return file;
}

static HANDLE own_program_open(void) {
    wchar_t path[MAX_PATH];
    cr_assert_lt(GetModuleFileNameW(NULL, path, MAX_PATH), MAX_PATH);
    return CreateFileW(path, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
}

/** A section of a file; the file's handle is closed. */
static HANDLE section_of(HANDLE file, DWORD protection) {
    cr_assert_neq(file, INVALID_HANDLE_VALUE);
    HANDLE section = CreateFileMappingW(file, NULL, protection, 0, 0, NULL);
    CloseHandle(file);
    return section;
}

static HANDLE section_reserved(void) {
    return CreateFileMappingW(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE | SEC_RESERVE, 0,
                              MEMORY_BYTES, NULL);
}

/** One that is mapped at the same address in every process. Not in winnt.h: SEC_BASED. */
static HANDLE section_based(void) {
    typedef NTSTATUS(NTAPI * create_function)(HANDLE *, ACCESS_MASK, const OBJECT_ATTRIBUTES *,
                                              const LARGE_INTEGER *, ULONG, ULONG, HANDLE);
    const ULONG based = 0x200000;
    LARGE_INTEGER size = {.QuadPart = MEMORY_BYTES};
    HANDLE section = NULL;
    create_function create;
    FARPROC found = native("NtCreateSection");
    cr_assert_not_null(found);
    memcpy(&create, &found, sizeof(create));
    NTSTATUS status =
        create(&section, SECTION_ALL_ACCESS, NULL, &size, PAGE_READWRITE, SEC_COMMIT | based, NULL);
    return status < 0 ? NULL : section;
}

/** Memory of ours with fewer rights in its handle. */
static HANDLE section_with(DWORD rights) {
    os_handle handle;
    HANDLE weaker;
    check_ok(os_memory_create("rights", MEMORY_BYTES, &handle));
    cr_assert(DuplicateHandle(GetCurrentProcess(), win32_handle_native(handle), GetCurrentProcess(),
                              &weaker, rights, FALSE, 0));
    os_handle_close(&handle);
    return weaker;
}

static HANDLE pipe_end(void) {
    HANDLE read;
    HANDLE write;
    cr_assert(CreatePipe(&read, &write, NULL, 0));
    CloseHandle(write);
    return read;
}

static HANDLE token_open(void) {
    HANDLE token;
    cr_assert(OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token));
    return token;
}

/** @return a handle that is no memory of os_memory_create's, the @p kind -th, with a word of the
 *  sentence that refuses it; NULL: there are no more kinds */
static HANDLE impostor(size_t kind, const char **word) {
    static const char *const words[] = {"Event",    "Mutant",    "Semaphore",    "File",
                                        "File",     "File",      "Job",          "Process",
                                        "Token",    "a file's",  "a file's",     "a program",
                                        "reserved", "looked at", "another kind", "only be read"};
    *word = kind < sizeof(words) / sizeof(words[0]) ? words[kind] : "";
    switch (kind) {
    case 0:
        return CreateEventW(NULL, TRUE, FALSE, NULL);
    case 1:
        return CreateMutexW(NULL, FALSE, NULL);
    case 2:
        return CreateSemaphoreW(NULL, 0, 1, NULL);
    case 3:
        return file_make();
    case 4:
        return CreateFileW(L"NUL", GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING, 0, NULL);
    case 5:
        return pipe_end();
    case 6:
        return CreateJobObjectW(NULL, NULL);
    case 7:
        return OpenProcess(PROCESS_ALL_ACCESS, FALSE, GetCurrentProcessId());
    case 8:
        return token_open();
    case 9:
        return section_of(file_make(), PAGE_READWRITE);
    case 10:
        return section_of(own_program_open(), PAGE_READONLY);
    case 11:
        return section_of(own_program_open(), PAGE_READONLY | SEC_IMAGE);
    case 12:
        return section_reserved();
    case 13:
        return section_with(SECTION_MAP_READ | SECTION_MAP_WRITE);
    case 14:
        return section_based();
    case 15:
        return section_with(SECTION_QUERY | SECTION_MAP_READ);
    default:
        return NULL;
    }
}

Test(win32_memory, what_is_no_memory_of_ours_is_refused) {
    enum {
        KINDS = 16
    };
    leak_gate gate;
    leak_gate_begin(&gate);
    const char *word;
    for (size_t kind = 0; kind < KINDS; kind++) {
        os_handle handle;
        uint64_t bytes = 77;
        HANDLE made = impostor(kind, &word);
        cr_assert(made != NULL && made != INVALID_HANDLE_VALUE, "%zu: %lu", kind, GetLastError());
        check_ok(os_handle_adopt((intptr_t)made, &handle));
        check_refused(GPUIPC_ERR_PROTOCOL, word, os_memory_inspect(handle, &bytes));
        cr_assert_eq(bytes, 77);
        os_handle_close(&handle);
    }
    cr_assert_null(impostor(KINDS, &word));
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_memory, what_is_no_handle_is_refused) {
    /* Nothing, the pseudo-handles of this process and thread, closed, and no number of a handle. */
    os_handle closed;
    check_ok(os_memory_create("closed", MEMORY_BYTES, &closed));
    const intptr_t values[] = {0, -1, -2, closed.value, 0x7ffffffc, INTPTR_MAX, INTPTR_MIN};
    os_handle_close(&closed);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        uint64_t bytes = 77;
        void *address = &bytes;
        check_status(GPUIPC_ERR_PROTOCOL, os_memory_inspect((os_handle){values[i]}, &bytes));
        cr_assert_eq(bytes, 77);
        check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                     os_memory_map((os_handle){values[i]}, 1, false, &address));
        cr_assert_eq(address, (void *)&bytes);
    }
}

Test(win32_memory, says_its_size_in_whole_pages) {
    static const uint64_t sizes[][2] = {{1, 4096},
                                        {4095, 4096},
                                        {4096, 4096},
                                        {4097, 8192},
                                        {(2u << 20) + 1, (2u << 20) + 4096},
                                        {UINT64_C(5) << 30, UINT64_C(5) << 30}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        os_handle handle;
        uint64_t bytes = 0;
        gpuipc_status status = os_memory_create("size", sizes[i][0], &handle);
        if (status == GPUIPC_ERR_OUT_OF_MEMORY && sizes[i][0] > UINT32_MAX) {
            continue; /* a machine that cannot promise so much */
        }
        cr_assert_eq(status, GPUIPC_OK, "%s", gpuipc_error_get()->sentence);
        check_ok(os_memory_inspect(handle, &bytes));
        cr_assert_eq(bytes, sizes[i][1]);
        os_handle_close(&handle);
    }
}

Test(win32_memory, more_than_there_can_be_is_refused) {
    os_handle handle = {77};
    leak_gate gate;
    leak_gate_begin(&gate);
    cr_assert_neq(os_memory_create("all", INT64_MAX, &handle), GPUIPC_OK);
    cr_assert(strstr(gpuipc_error_get()->sentence, "9223372036854775807 bytes") != NULL, "%s",
              gpuipc_error_get()->sentence);
    cr_assert_eq(handle.value, 77);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/* The system writes for us, and answers where an own write would be a crash. */
static DWORD write_from_file(HANDLE file, void *address) {
    DWORD read;
    cr_assert_neq(SetFilePointer(file, 0, NULL, FILE_BEGIN), INVALID_SET_FILE_POINTER);
    return ReadFile(file, address, 1, &read, NULL) ? 0 : GetLastError();
}

Test(win32_memory, memory_mapped_for_reading_takes_no_bytes) {
    os_handle handle;
    void *address;
    HANDLE file = file_make();
    check_ok(os_memory_create("read", MEMORY_BYTES, &handle));
    check_ok(os_memory_map(handle, MEMORY_BYTES, false, &address));
    cr_assert_eq(write_from_file(file, address), ERROR_NOACCESS);
    os_memory_unmap(address, MEMORY_BYTES);
    check_ok(os_memory_map(handle, MEMORY_BYTES, true, &address));
    cr_assert_eq(write_from_file(file, address), 0);
    cr_assert_eq(*(char *)address, 'f');
    os_memory_unmap(address, MEMORY_BYTES);
    os_handle_close(&handle);
    CloseHandle(file);
}

Test(win32_memory, a_handle_for_reading_is_refused_and_cannot_be_mapped_for_writing) {
    os_handle handle;
    uint64_t bytes = 77;
    void *address = &bytes;
    leak_gate gate;
    leak_gate_begin(&gate);
    check_ok(os_handle_adopt((intptr_t)section_with(SECTION_QUERY | SECTION_MAP_READ), &handle));
    check_refused(GPUIPC_ERR_PROTOCOL, "may only be read", os_memory_inspect(handle, &bytes));
    cr_assert_eq(bytes, 77);
    check_refused(GPUIPC_ERR_OS, "cannot be mapped",
                  os_memory_map(handle, MEMORY_BYTES, true, &address));
    cr_assert_eq(gpuipc_error_get()->native_code, ERROR_ACCESS_DENIED);
    cr_assert_eq(address, (void *)&bytes);
    check_ok(os_memory_map(handle, MEMORY_BYTES, false, &address));
    os_memory_unmap(address, MEMORY_BYTES);
    os_handle_close(&handle);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_memory, a_section_cannot_change_its_size) {
    typedef NTSTATUS(NTAPI * extend_function)(HANDLE, LARGE_INTEGER *);
    os_handle handle;
    uint64_t bytes;
    extend_function extend;
    LARGE_INTEGER more = {.QuadPart = 2 * MEMORY_BYTES};
    LARGE_INTEGER less = {.QuadPart = 4096};
    FARPROC found = native("NtExtendSection");
    if (found == NULL) {
        cr_skip_test("this ntdll.dll has no NtExtendSection; Wine 8 lacks it");
    }
    memcpy(&extend, &found, sizeof(extend));
    check_ok(os_memory_create("fixed", MEMORY_BYTES, &handle));
    cr_assert_lt(extend(win32_handle_native(handle), &more), 0);
    cr_assert_lt(extend(win32_handle_native(handle), &less), 0);
    check_ok(os_memory_inspect(handle, &bytes));
    cr_assert_eq(bytes, MEMORY_BYTES);
    os_handle_close(&handle);
}

/* learn.microsoft.com, VirtualFree: not for memory that is mapped. */
Test(win32_memory, pages_cannot_be_taken_out_of_it) {
    os_handle handle;
    void *address;
    void *theirs;
    check_ok(os_memory_create("whole", MEMORY_BYTES, &handle));
    check_ok(os_memory_map(handle, MEMORY_BYTES, true, &address));
    check_ok(os_memory_map(handle, MEMORY_BYTES, true, &theirs));
    memset(address, 0xA5, MEMORY_BYTES);
    cr_assert_not(VirtualFree(theirs, MEMORY_BYTES, MEM_DECOMMIT));
    cr_assert_not(VirtualFree(theirs, 0, MEM_RELEASE));
    cr_assert_eq(((unsigned char *)address)[MEMORY_BYTES - 1], 0xA5);
    os_memory_unmap(theirs, MEMORY_BYTES);
    os_memory_unmap(address, MEMORY_BYTES);
    os_handle_close(&handle);
}
