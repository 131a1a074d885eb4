/* SPDX-License-Identifier: MIT */
/** @file The job that binds a child's life to that of the program that started it. win32_job.c, for
 *  win32_child.c; child_bind_to, which looks at it from inside, is there as well. */
#ifndef GPUIPC_SELFTEST_WIN32_JOB_H
#define GPUIPC_SELFTEST_WIN32_JOB_H

#include <windows.h>

#include <gpuipc/gpuipc_status.h>

/** A job whose processes end with its last handle. */
gpuipc_status job_make(HANDLE *out_job);

/** What a child starts with: the handles that it inherits, and no others, and the job, which it is in
 *  before its first instruction. Refers to what is given; for job_start_free(). */
gpuipc_status job_start_make(HANDLE *handles, size_t count, HANDLE *job,
                             LPPROC_THREAD_ATTRIBUTE_LIST *out_start);
void job_start_free(LPPROC_THREAD_ATTRIBUTE_LIST start);

#endif
