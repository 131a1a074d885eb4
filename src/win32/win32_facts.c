/* SPDX-License-Identifier: MIT */
/** @file What can be seen of the system around this process. Most of what a Linux process has to know has no counterpart
 *  here: no limit of handles, no namespaces, no device files. */
#include "win32.h"

#include <stdio.h>
#include <string.h>
#include <winternl.h>

typedef NTSTATUS(WINAPI *rtl_get_version)(OSVERSIONINFOW *);

/* learn.microsoft.com, GetVersionExW: it tells what a program's manifest admits; RtlGetVersion the truth. */
static void find_system(os_facts *facts) {
    OSVERSIONINFOW version = {.dwOSVersionInfoSize = sizeof(version)};
    rtl_get_version ask = NULL;
    const HMODULE library = GetModuleHandleW(L"ntdll.dll");
    const FARPROC found = library != NULL ? GetProcAddress(library, "RtlGetVersion") : NULL;
    memcpy(&ask, &found, sizeof(ask));
    if (ask != NULL && ask(&version) >= 0) {
        (void)snprintf(facts->system, sizeof(facts->system), "Windows %lu.%lu.%lu",
                       version.dwMajorVersion, version.dwMinorVersion, version.dwBuildNumber);
    }
}

/* Where Windows shows the files of a container to its host: kubernetes.io, "HostProcess containers". */
static void find_container(os_facts *facts) {
    const char *place = os_environment("CONTAINER_SANDBOX_MOUNT_POINT");
    if (place != NULL && place[0] != '\0') {
        (void)snprintf(facts->container, sizeof(facts->container),
                       "CONTAINER_SANDBOX_MOUNT_POINT=%.100s", place);
    }
}

void os_facts_find(const char *runtime_directory, os_facts *out_facts) {
    os_facts facts = {.is_wsl = OS_NO, .ptrace_scope = -1, .seccomp = -1};
    DWORD handles = 0;
    gpuipc_error why = status_save();
    (void)runtime_directory;
    find_system(&facts);
    find_container(&facts);
    if (win32_process_user(GetCurrentProcess(), facts.user, sizeof(facts.user)) != GPUIPC_OK) {
        facts.user[0] = '\0';
    }
    status_restore(&why);
    facts.handle_limit = facts.handle_limit_hard = facts.locked_limit = OS_NO_NUMBER;
    facts.address_limit = OS_NO_NUMBER;
    facts.handles_open =
        GetProcessHandleCount(GetCurrentProcess(), &handles) ? handles : OS_NO_NUMBER;
    *out_facts = facts;
}

/* The system shows neither without rights. */
os_pci os_pci_find(unsigned domain, unsigned bus, unsigned slot) {
    (void)domain;
    (void)bus;
    (void)slot;
    return (os_pci){.bar1_bytes = 0};
}

/* The driver's library is in the system's directory, and no link. */
bool os_path_real(const char *path, char *real, size_t capacity) {
    const int length = snprintf(real, capacity, "%s", path);
    return length > 0 && (size_t)length < capacity;
}
