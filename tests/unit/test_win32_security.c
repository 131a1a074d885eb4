/* SPDX-License-Identifier: MIT */
/** @file Who runs a process, and the rights of what the library makes, as the system reads them. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "win32.h"

#include <aclapi.h>
#include <sddl.h>
#include <winternl.h>

TestSuite(win32_security, .timeout = 60);

#define OWNER_AND_DACL (OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION)

typedef union any_sid {
    SID sid;
    unsigned char bytes[SECURITY_MAX_SID_SIZE];
} any_sid;

/** One entry of a DACL. */
typedef struct entry {
    BYTE type;
    ACCESS_MASK rights;
    PSID who;
} entry;

static void own_sid(any_sid *out) {
    union {
        TOKEN_USER user;
        unsigned char bytes[sizeof(TOKEN_USER) + SECURITY_MAX_SID_SIZE];
    } room;
    HANDLE token;
    DWORD size;
    cr_assert(OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token));
    cr_assert(GetTokenInformation(token, TokenUser, &room, sizeof(room), &size));
    cr_assert(CopySid(sizeof(*out), out, room.user.User.Sid));
    CloseHandle(token);
}

/** The descriptor says: this owner, and a protected DACL of exactly these entries, none of which is
 *  inherited by anything. Generic rights count as what they stand for with @p mapping, or as they
 *  are. */
static void check_descriptor(PSECURITY_DESCRIPTOR descriptor, const GENERIC_MAPPING *mapping,
                             PSID owner, const entry *entries, size_t count) {
    SECURITY_DESCRIPTOR_CONTROL control;
    DWORD revision;
    PSID found_owner;
    BOOL defaulted;
    BOOL present;
    ACL *list;
    cr_assert(IsValidSecurityDescriptor(descriptor));
    cr_assert(GetSecurityDescriptorControl(descriptor, &control, &revision));
    cr_assert(control & SE_DACL_PROTECTED, "control 0x%x", control);
    cr_assert(GetSecurityDescriptorOwner(descriptor, &found_owner, &defaulted));
    cr_assert_not_null(found_owner);
    cr_assert(EqualSid(found_owner, owner));
    cr_assert(GetSecurityDescriptorDacl(descriptor, &present, &list, &defaulted));
    cr_assert(present);
    cr_assert_not_null(list, "no DACL: everybody is admitted");
    cr_assert_eq(list->AceCount, count);
    for (size_t i = 0; i < count; i++) {
        void *at;
        cr_assert(GetAce(list, (DWORD)i, &at));
        ACCESS_ALLOWED_ACE *found = at; /* the one that denies has the same layout: winnt.h */
        DWORD rights = found->Mask;
        GENERIC_MAPPING map;
        if (mapping != NULL) {
            map = *mapping;
            MapGenericMask(&rights, &map);
        }
        cr_assert_eq(found->Header.AceType, entries[i].type);
        cr_assert_eq(found->Header.AceFlags, 0);
        cr_assert_eq(rights, entries[i].rights, "0x%lx, not 0x%lx", rights, entries[i].rights);
        cr_assert(EqualSid(&found->SidStart, entries[i].who));
    }
}

static const GENERIC_MAPPING section_mapping = {SECTION_MAP_READ, SECTION_MAP_WRITE,
                                                SECTION_MAP_EXECUTE, SECTION_ALL_ACCESS};
static const GENERIC_MAPPING pipe_mapping = {FILE_GENERIC_READ, FILE_GENERIC_WRITE,
                                             FILE_GENERIC_EXECUTE, FILE_ALL_ACCESS};

/** What an object that was made has, as its owner reads it. */
static void check_object(HANDLE object, const GENERIC_MAPPING *mapping, PSID owner,
                         const entry *entries, size_t count) {
    union {
        void *align;
        unsigned char bytes[1024];
    } room;
    DWORD needed;
    cr_assert(
        GetKernelObjectSecurity(object, OWNER_AND_DACL, room.bytes, sizeof(room.bytes), &needed));
    check_descriptor(room.bytes, mapping, owner, entries, count);

    PSECURITY_DESCRIPTOR descriptor;
    cr_assert_eq(GetSecurityInfo(object, SE_KERNEL_OBJECT, OWNER_AND_DACL, NULL, NULL, NULL, NULL,
                                 &descriptor),
                 ERROR_SUCCESS);
    check_descriptor(descriptor, mapping, owner, entries, count);
    LocalFree(descriptor);
}

/** As text the descriptor is the same as one that says nothing but @p wanted. */
static void check_text(PSECURITY_DESCRIPTOR descriptor, const wchar_t *wanted) {
    const SECURITY_INFORMATION all =
        OWNER_AND_DACL | GROUP_SECURITY_INFORMATION | SACL_SECURITY_INFORMATION;
    PSECURITY_DESCRIPTOR parsed;
    wchar_t *normal; /* some SIDs have names of two letters */
    wchar_t *found;
    cr_assert(ConvertStringSecurityDescriptorToSecurityDescriptorW(wanted, SDDL_REVISION_1, &parsed,
                                                                   NULL));
    cr_assert(ConvertSecurityDescriptorToStringSecurityDescriptorW(parsed, SDDL_REVISION_1, all,
                                                                   &normal, NULL));
    cr_assert(ConvertSecurityDescriptorToStringSecurityDescriptorW(descriptor, SDDL_REVISION_1, all,
                                                                   &found, NULL));
    cr_assert_eq(wcscmp(found, normal), 0, "%ls, not %ls", found, normal);
    LocalFree(parsed);
    LocalFree(normal);
    LocalFree(found);
}

Test(win32_security, the_own_user_is_the_tokens) {
    leak_gate gate;
    leak_gate_begin(&gate);
    any_sid own;
    PSID sid;
    wchar_t wide[WIN32_SID_TEXT_MAX];
    const char *user;
    const char *again;
    char process_user[WIN32_SID_TEXT_MAX];
    own_sid(&own);
    check_ok(win32_own_user(&user));
    check_ok(win32_wide(user, wide, WIN32_SID_TEXT_MAX));
    cr_assert(ConvertStringSidToSidW(wide, &sid), "\"%s\" is no SID", user);
    cr_assert(EqualSid(sid, &own));
    LocalFree(sid);
    check_ok(win32_own_user(&again));
    cr_assert_eq(again, user);
    check_ok(win32_process_user(GetCurrentProcess(), process_user, sizeof(process_user)));
    cr_assert_str_eq(process_user, user);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_security, the_longest_sid_has_room) {
    any_sid longest;
    char text[WIN32_SID_TEXT_MAX];
    memset(&longest, 0xff, sizeof(longest));
    longest.sid.Revision = SID_REVISION;
    longest.sid.SubAuthorityCount = SID_MAX_SUB_AUTHORITIES;
    /* Wine 8 has the right text only for authorities of 31 bits; the longest of Windows,
     * "0xffffffffffff", is four characters longer than 2147483647. */
    longest.sid.IdentifierAuthority = (SID_IDENTIFIER_AUTHORITY){{0, 0, 0x7f, 0xff, 0xff, 0xff}};
    check_ok(win32_sid_text(&longest, text, sizeof(text)));
    cr_assert_eq(strlen(text), 4 + 10 + 15 * 11, "%s", text);
    cr_assert_leq(strlen(text) + 4, WIN32_SID_TEXT_MAX - 1);
    cr_assert_geq(sizeof(((os_peer *)NULL)->user), WIN32_SID_TEXT_MAX);
}

Test(win32_security, too_little_room_is_said_and_not_written_to) {
    char small[8] = "before";
    check_refused(GPUIPC_ERR_NAME_TOO_LONG, "longer",
                  win32_process_user(GetCurrentProcess(), small, sizeof(small)));
    cr_assert_str_eq(small, "before");
}

static void check_is_not_told(HANDLE process) {
    char user[WIN32_SID_TEXT_MAX] = "before";
    DWORD level = 77;
    check_refused(GPUIPC_ERR_OS, "a process does not tell",
                  win32_process_user(process, user, sizeof(user)));
    check_refused(GPUIPC_ERR_OS, "a process does not tell",
                  win32_process_integrity(process, &level));
    cr_assert_str_eq(user, "before");
    cr_assert_eq(level, 77);
}

Test(win32_security, what_is_no_process_has_no_user) {
    leak_gate gate;
    leak_gate_begin(&gate);
    HANDLE event = CreateEventW(NULL, TRUE, FALSE, NULL);
    cr_assert_not_null(event);
    check_is_not_told(event);
    check_is_not_told(NULL);
    CloseHandle(event);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_security, a_handle_without_the_right_does_not_tell_the_user) {
    if (GetProcAddress(GetModuleHandleW(L"ntdll.dll"), "wine_get_version") != NULL) {
        cr_skip_test("Wine does not look at a handle's rights when it opens a process's token");
    }
    HANDLE deaf = OpenProcess(SYNCHRONIZE, FALSE, GetCurrentProcessId());
    cr_assert_not_null(deaf);
    check_is_not_told(deaf);
    CloseHandle(deaf);
}

Test(win32_security, the_least_right_to_a_process_suffices) {
    char user[WIN32_SID_TEXT_MAX];
    const char *own;
    DWORD level;
    DWORD own_level;
    HANDLE process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, FALSE, GetCurrentProcessId());
    cr_assert_not_null(process);
    check_ok(win32_own_user(&own));
    check_ok(win32_process_user(process, user, sizeof(user)));
    cr_assert_str_eq(user, own);
    check_ok(win32_process_integrity(process, &level));
    check_ok(win32_process_integrity(GetCurrentProcess(), &own_level));
    cr_assert_eq(level, own_level);
    CloseHandle(process);
}

Test(win32_security, the_integrity_level_is_the_tokens) {
    union {
        TOKEN_MANDATORY_LABEL label;
        unsigned char bytes[sizeof(TOKEN_MANDATORY_LABEL) + SECURITY_MAX_SID_SIZE];
    } room;
    HANDLE token;
    DWORD size;
    DWORD level = 77;
    char found[WIN32_SID_TEXT_MAX];
    char wanted[WIN32_SID_TEXT_MAX];
    cr_assert(OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token));
    cr_assert(GetTokenInformation(token, TokenIntegrityLevel, &room, sizeof(room), &size));
    CloseHandle(token);
    check_ok(win32_process_integrity(GetCurrentProcess(), &level));
    check_ok(win32_sid_text(room.label.Label.Sid, found, sizeof(found)));
    snprintf(wanted, sizeof(wanted), "S-1-16-%lu", level);
    cr_assert_str_eq(found, wanted);
}

static void check_attributes(const SECURITY_ATTRIBUTES *attributes, const char *format,
                             const entry *entries, size_t count) {
    any_sid own;
    const char *user;
    char text[512];
    wchar_t wide[512];
    SECURITY_DESCRIPTOR_CONTROL control;
    DWORD revision;
    own_sid(&own);
    check_ok(win32_own_user(&user));
    cr_assert_eq(attributes->nLength, sizeof(*attributes));
    cr_assert_eq(attributes->bInheritHandle, FALSE);
    cr_assert(GetSecurityDescriptorControl(attributes->lpSecurityDescriptor, &control, &revision));
    cr_assert_eq(control, SE_SELF_RELATIVE | SE_DACL_PRESENT | SE_DACL_PROTECTED, "0x%x", control);
    check_descriptor(attributes->lpSecurityDescriptor, NULL, &own, entries, count);
    snprintf(text, sizeof(text), format, user, user);
    check_ok(win32_wide(text, wide, 512));
    check_text(attributes->lpSecurityDescriptor, wide);
}

Test(win32_security, the_descriptors_say_what_they_should) {
    any_sid own;
    const SECURITY_ATTRIBUTES *object;
    own_sid(&own);
    const entry entries[] = {{ACCESS_ALLOWED_ACE_TYPE, GENERIC_ALL, &own}};
    check_ok(win32_owner_only(&object));
    check_attributes(object, "O:%sD:P(A;;GA;;;%s)", entries, 1);
}

Test(win32_security, shared_memory_admits_its_owner_only) {
    leak_gate gate;
    leak_gate_begin(&gate);
    any_sid own;
    os_handle memory;
    own_sid(&own);
    const entry entries[] = {{ACCESS_ALLOWED_ACE_TYPE, SECTION_ALL_ACCESS, &own}};
    check_ok(os_memory_create("rights", 4096, &memory));
    check_object(win32_handle_native(memory), &section_mapping, &own, entries, 1);
    os_handle_close(&memory);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_security, a_pipe_admits_its_owner_only) {
    leak_gate gate;
    leak_gate_begin(&gate);
    any_sid own;
    wchar_t name[64];
    const SECURITY_ATTRIBUTES *attributes;
    own_sid(&own);
    const entry entries[] = {{ACCESS_ALLOWED_ACE_TYPE, FILE_ALL_ACCESS, &own}};
    check_ok(win32_owner_only(&attributes));
    swprintf(name, 64, L"\\\\.\\pipe\\gpuipc-test-security-%lu", GetCurrentProcessId());
    HANDLE pipe = CreateNamedPipeW(name, PIPE_ACCESS_DUPLEX | FILE_FLAG_FIRST_PIPE_INSTANCE,
                                   PIPE_TYPE_MESSAGE | PIPE_REJECT_REMOTE_CLIENTS, 1, 4096, 4096, 0,
                                   (SECURITY_ATTRIBUTES *)(uintptr_t)attributes);
    cr_assert_neq(pipe, INVALID_HANDLE_VALUE, "%lu", GetLastError());
    check_object(pipe, &pipe_mapping, &own, entries, 1);
    CloseHandle(pipe);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

typedef NTSTATUS(NTAPI *nt_create_section)(HANDLE *section, ACCESS_MASK rights,
                                           const OBJECT_ATTRIBUTES *attributes,
                                           const LARGE_INTEGER *size, ULONG protection,
                                           ULONG allocation, HANDLE file);

/* The driver hands them to the system as they are; here it is done without the driver. */
Test(win32_security, the_drivers_attributes_make_an_object_of_the_owners_only) {
    any_sid own;
    const void *attributes;
    const void *again;
    const SECURITY_ATTRIBUTES *object;
    unsigned char bytes[48];
    OBJECT_ATTRIBUTES wanted = {.Length = 48};
    own_sid(&own);
    const entry entries[] = {{ACCESS_ALLOWED_ACE_TYPE, SECTION_ALL_ACCESS, &own}};
    check_ok(os_handle_attributes(&attributes));
    check_ok(os_handle_attributes(&again));
    cr_assert_eq(again, attributes);
    check_ok(win32_owner_only(&object));

    /* No name, no root, no flags: 48 bytes of which two fields are set, at 0 and at 32. */
    memset(bytes, 0, sizeof(bytes));
    bytes[0] = sizeof(bytes);
    memcpy(bytes + 32, &object->lpSecurityDescriptor, sizeof(void *));
    cr_assert_eq(memcmp(attributes, bytes, sizeof(bytes)), 0);
    wanted.SecurityDescriptor = object->lpSecurityDescriptor;
    cr_assert_eq(memcmp(attributes, &wanted, sizeof(wanted)), 0);

    HANDLE section = NULL;
    LARGE_INTEGER size = {.QuadPart = 4096};
    nt_create_section create;
    FARPROC found = GetProcAddress(GetModuleHandleW(L"ntdll.dll"), "NtCreateSection");
    cr_assert_not_null(found);
    memcpy(&create, &found, sizeof(create));
    NTSTATUS status =
        create(&section, SECTION_ALL_ACCESS, attributes, &size, PAGE_READWRITE, SEC_COMMIT, NULL);
    cr_assert_geq(status, 0, "0x%lx", (unsigned long)status);
    check_object(section, &section_mapping, &own, entries, 1);
    CloseHandle(section);
}

enum {
    THREADS = 8
};
typedef struct first_use {
    HANDLE gate;
    const char *user;
    const SECURITY_ATTRIBUTES *object;
    const void *native;
    bool failed;
} first_use;

static void use_first(void *argument) {
    first_use *use = argument;
    WaitForSingleObject(use->gate, INFINITE);
    use->failed = win32_owner_only(&use->object) != GPUIPC_OK ||
                  win32_own_user(&use->user) != GPUIPC_OK ||
                  os_handle_attributes(&use->native) != GPUIPC_OK;
}

/* Every case is a process of its own, so this is the first use in it. */
Test(win32_security, many_threads_use_it_first) {
    HANDLE gate = CreateEventW(NULL, TRUE, FALSE, NULL);
    os_thread *threads[THREADS];
    first_use uses[THREADS];
    cr_assert_not_null(gate);
    for (size_t i = 0; i < THREADS; i++) {
        uses[i] = (first_use){.gate = gate};
        check_ok(os_thread_start(use_first, &uses[i], &threads[i]));
    }
    SetEvent(gate);
    for (size_t i = 0; i < THREADS; i++) {
        os_thread_join(threads[i]);
        cr_assert_not(uses[i].failed);
        cr_assert_eq(uses[i].user, uses[0].user);
        cr_assert_eq(uses[i].object, uses[0].object);
        cr_assert_eq(uses[i].native, uses[0].native);
    }
    CloseHandle(gate);
}
