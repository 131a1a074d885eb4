/* SPDX-License-Identifier: MIT */
/** @file See win32_job.h. */
#include "win32_job.h"

#include <stdlib.h>
#include <string.h>
#include <tlhelp32.h>

#include "base/status.h"
#include "child.h"

static gpuipc_status failed(const char *operation) {
    DWORD code = GetLastError();
    return status_fail_os(GPUIPC_ERR_OS, code, operation,
                          "starting this program again: Windows error %lu", code);
}

gpuipc_status job_make(HANDLE *out_job) {
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits;
    memset(&limits, 0, sizeof(limits));
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    HANDLE job = CreateJobObjectW(NULL, NULL);
    if (job == NULL) {
        return failed("CreateJobObjectW");
    }
    if (!SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof(limits))) {
        gpuipc_status status = failed("SetInformationJobObject");
        CloseHandle(job);
        return status;
    }
    *out_job = job;
    return GPUIPC_OK;
}

gpuipc_status job_start_make(HANDLE *handles, size_t count, HANDLE *job,
                             LPPROC_THREAD_ATTRIBUTE_LIST *out_start) {
    SIZE_T size = 0;
    (void)InitializeProcThreadAttributeList(NULL, 2, 0, &size); /* says the size */
    LPPROC_THREAD_ATTRIBUTE_LIST start = malloc(size);
    if (start == NULL) {
        return status_out_of_memory(size);
    }
    gpuipc_status status;
    if (!InitializeProcThreadAttributeList(start, 2, 0, &size)) {
        status = failed("InitializeProcThreadAttributeList");
        goto free_start;
    }
    if (!UpdateProcThreadAttribute(start, 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, handles,
                                   count * sizeof(*handles), NULL, NULL) ||
        !UpdateProcThreadAttribute(start, 0, PROC_THREAD_ATTRIBUTE_JOB_LIST, job, sizeof(*job),
                                   NULL, NULL)) {
        status = failed("UpdateProcThreadAttribute");
        goto delete_start;
    }
    *out_start = start;
    return GPUIPC_OK;

delete_start:
    DeleteProcThreadAttributeList(start);
free_start:
    free(start);
    return status;
}

void job_start_free(LPPROC_THREAD_ATTRIBUTE_LIST start) {
    DeleteProcThreadAttributeList(start);
    free(start);
}

/* Which process made this one. It may be long gone. 0: unknown */
static DWORD parent_number(void) {
    PROCESSENTRY32W entry;
    DWORD number = 0;
    HANDLE list = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
    if (list == INVALID_HANDLE_VALUE) {
        return 0;
    }
    entry.dwSize = sizeof(entry);
    for (BOOL more = Process32FirstW(list, &entry); more; more = Process32NextW(list, &entry)) {
        if (entry.th32ProcessID == GetCurrentProcessId()) {
            number = entry.th32ParentProcessID;
            break;
        }
    }
    CloseHandle(list);
    return number;
}

static bool started_at(HANDLE process, uint64_t *out_time) {
    FILETIME started;
    FILETIME unused[3];
    if (!GetProcessTimes(process, &started, &unused[0], &unused[1], &unused[2])) {
        return false;
    }
    *out_time = (uint64_t)started.dwHighDateTime << 32 | started.dwLowDateTime;
    return true;
}

/* A process that lives and was there before this one: not a later one that got the number. */
static bool lived_before(DWORD number) {
    uint64_t parent_started;
    uint64_t own_started;
    HANDLE parent = OpenProcess(SYNCHRONIZE | PROCESS_QUERY_LIMITED_INFORMATION, FALSE, number);
    if (parent == NULL) {
        return false;
    }
    bool good = WaitForSingleObject(parent, 0) == WAIT_TIMEOUT &&
                started_at(parent, &parent_started) &&
                started_at(GetCurrentProcess(), &own_started) && parent_started <= own_started;
    CloseHandle(parent);
    return good;
}

bool child_bind_to(uint64_t process_id) {
    BOOL is_in_job = FALSE;
    /* The job does it, from before this process ran. */
    return IsProcessInJob(GetCurrentProcess(), NULL, &is_in_job) && is_in_job &&
           parent_number() == process_id && lived_before((DWORD)process_id);
}
