/* SPDX-License-Identifier: MIT */
/** @file What this process has open and mapped, as ntdll.dll tells it. */
#include "resource_list.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <windows.h>
#include <winternl.h>

#include <psapi.h>

#include "os.h"

/** The kinds of object that the library or a test can own. The system's own libraries keep handles of
 *  others to themselves, and open them when they first need them: keys of the registry, thread pools
 *  with their completion ports and timers, directories of names, ports to system services. So does
 *  libgcc with a semaphore, when a thread-local variable is first used (emutls.c, gthr-win32.c). */
static const wchar_t *const counted_types[] = {L"Event",   L"File",    L"Job",    L"Mutant",
                                               L"Process", L"Section", L"Thread", L"Token"};

/** So many numbers in a row that are not open are the end. The system gives out the lowest free number
 *  or one that was in use before, so gaps are what was closed again. */
#define GAP_MAX 128u

/** The end is not before this number. What a process inherits keeps the number that it has in the parent,
 *  however high that is (learn.microsoft.com, "Handle Inheritance"). */
static uintptr_t highest_standard_handle(void) {
    static const DWORD names[] = {STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
    uintptr_t highest = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        HANDLE handle = GetStdHandle(names[i]);
        if (handle != INVALID_HANDLE_VALUE && (uintptr_t)handle > highest) {
            highest = (uintptr_t)handle;
        }
    }
    return highest;
}

/** The name of its type, which can be asked of any handle. (Asking for the name of the object itself
 *  waits for ever when it is a pipe that somebody reads from.) False when it is not open. */
static bool handle_type(uintptr_t value, wchar_t *type, size_t capacity) {
    union {
        PUBLIC_OBJECT_TYPE_INFORMATION information;
        char room[1024];
    } answer;
    DWORD flags;
    if (!GetHandleInformation((HANDLE)value, &flags)) { /* the cheapest of all questions */
        return false;
    }
    NTSTATUS status =
        NtQueryObject((HANDLE)value, ObjectTypeInformation, &answer, sizeof(answer), NULL);
    size_t units = answer.information.TypeName.Length / sizeof(wchar_t);
    if (status < 0 || units >= capacity) {
        return false;
    }
    memcpy(type, answer.information.TypeName.Buffer, units * sizeof(wchar_t));
    type[units] = L'\0';
    return true;
}

static bool type_is_counted(const wchar_t *type) {
    for (size_t i = 0; i < sizeof(counted_types) / sizeof(counted_types[0]); i++) {
        if (wcscmp(counted_types[i], type) == 0) {
            return true;
        }
    }
    return false;
}

static void CALLBACK never_called(void *context, BOOLEAN timed_out) {
    (void)context;
    (void)timed_out;
}

/* The system's thread that waits for others' objects (RegisterWaitForSingleObject) has events of its own, which go when
 * nothing is waited for any more: from now on something is. Where that cannot be, a test sees the events. */
static void keep_waiting_thread(void) {
    static HANDLE never;
    static HANDLE wait;
    if (never == NULL && (never = CreateEventW(NULL, TRUE, FALSE, NULL)) != NULL) {
        (void)RegisterWaitForSingleObject(&wait, never, never_called, NULL, INFINITE,
                                          WT_EXECUTEONLYONCE);
    }
}

/* Number by number. NtQuerySystemInformation has a list of all handles of all processes, but asking for
 * it ends Wine's server, and everything that runs, when there is a process that has none yet, as a new
 * one has for a moment (measured under Wine 8: enum_handles of server/handle.c). */
bool resource_list_handles(resource_list *out_list) {
    resource_list list = {0};
    unsigned char byte;
    /* The generator of random numbers opens its device when it is first used. */
    (void)os_random(&byte, sizeof(byte));
    keep_waiting_thread();
    bool complete = true;
    uintptr_t last = highest_standard_handle();
    for (uintptr_t value = 4; complete && (value <= last || value - last <= 4 * GAP_MAX);
         value += 4) {
        wchar_t type[64];
        char line[128];
        if (handle_type(value, type, 64)) {
            last = value > last ? value : last;
            if (type_is_counted(type)) {
                snprintf(line, sizeof(line), "handle %" PRIuPTR ": %ls", value, type);
                complete = resource_list_add(&list, line);
            }
        }
    }
    if (!complete) {
        resource_list_free(&list);
        return false;
    }
    *out_list = list;
    return true;
}

/** Whether memory that is mapped comes from no file. */
static bool mapping_has_no_name(void *address) {
    wchar_t name[MAX_PATH];
    return GetMappedFileNameW(GetCurrentProcess(), address, name, MAX_PATH) == 0 &&
           GetLastError() == ERROR_FILE_INVALID;
}

bool resource_list_mappings(resource_list *out_list) {
    resource_list list = {0};
    MEMORY_BASIC_INFORMATION part;
    char *at = NULL;
    bool complete = true;
    while (complete && VirtualQuery(at, &part, sizeof(part)) == sizeof(part)) {
        char *begin = part.BaseAddress;
        at = begin + part.RegionSize;
        if (part.Type != MEM_MAPPED || part.AllocationBase != begin) {
            continue;
        }
        /* A mapping is as many parts as it has pieces with different rights. */
        while (VirtualQuery(at, &part, sizeof(part)) == sizeof(part) &&
               part.AllocationBase == begin) {
            at += part.RegionSize;
        }
        if (mapping_has_no_name(begin)) {
            char line[128];
            snprintf(line, sizeof(line), "mapping %08" PRIxPTR "-%08" PRIxPTR, (uintptr_t)begin,
                     (uintptr_t)at);
            complete = resource_list_add(&list, line);
        }
    }
    if (!complete) {
        resource_list_free(&list);
        return false;
    }
    *out_list = list;
    return true;
}
