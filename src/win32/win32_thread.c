/* SPDX-License-Identifier: MIT */
/** @file Mutexes, conditions and threads. There is no fork(), over which static mutexes would have
 *  to be held. */
#include "win32.h"

#include <process.h>
#include <stdlib.h>

_Static_assert(sizeof(SRWLOCK) <= sizeof(os_mutex), "os_mutex is too small");
_Static_assert(sizeof(CONDITION_VARIABLE) <= sizeof(os_condition), "os_condition is too small");
_Static_assert(_Alignof(SRWLOCK) <= _Alignof(os_mutex), "os_mutex is aligned too little");
_Static_assert(_Alignof(CONDITION_VARIABLE) <= _Alignof(os_condition), "os_condition likewise");

/* SRWLOCK_INIT, which may stand in place of InitializeSRWLock, is a pointer that is NULL (winnt.h,
 * RTL_SRWLOCK_INIT): zero bytes are its start. learn.microsoft.com, Slim Reader/Writer Locks: nothing has to be
 * destroyed. */
static SRWLOCK *lock_of(os_mutex *mutex) {
    return (SRWLOCK *)(void *)mutex;
}

static CONDITION_VARIABLE *variable_of(os_condition *condition) {
    return (CONDITION_VARIABLE *)(void *)condition;
}

void os_mutex_lock(os_mutex *mutex) {
    AcquireSRWLockExclusive(lock_of(mutex));
}

bool os_mutex_try_lock(os_mutex *mutex) {
    return TryAcquireSRWLockExclusive(lock_of(mutex)) != 0;
}

void os_mutex_unlock(os_mutex *mutex) {
    ReleaseSRWLockExclusive(lock_of(mutex));
}

void os_static_mutex_lock(os_static_mutex *mutex) {
    os_mutex_lock(&mutex->mutex);
}

void os_static_mutex_unlock(os_static_mutex *mutex) {
    os_mutex_unlock(&mutex->mutex);
}

gpuipc_status os_condition_init(os_condition *condition) {
    InitializeConditionVariable(variable_of(condition));
    return GPUIPC_OK;
}

/* learn.microsoft.com, Condition Variables: nothing has to be destroyed. */
void os_condition_destroy(os_condition *condition) {
    (void)condition;
}

void os_condition_signal_all(os_condition *condition) {
    WakeAllConditionVariable(variable_of(condition));
}

bool os_condition_wait(os_condition *condition, os_mutex *mutex, os_deadline deadline) {
    if (SleepConditionVariableSRW(variable_of(condition), lock_of(mutex), win32_left_ms(deadline),
                                  0)) {
        return true;
    }
    /* ERROR_TIMEOUT is the only way left to fail. Windows counts in ticks and may be early, and the
     * longest deadlines are further away than it can count. Then the caller is told that it was
     * woken for no reason, and looks at what it waits for: to sleep again here would be to miss a
     * signal that came when the time was out and the mutex not yet taken. */
    if (GetLastError() != ERROR_TIMEOUT) {
        abort();
    }
    return !os_deadline_passed(deadline);
}

struct os_thread {
    HANDLE thread;
    void (*run)(void *argument);
    void *argument;
};

static unsigned __stdcall thread_main(void *argument) {
    os_thread *thread = argument;
    thread->run(thread->argument);
    return 0;
}

gpuipc_status os_thread_start(void (*run)(void *argument), void *argument, os_thread **out_thread) {
    os_thread *thread = malloc(sizeof(*thread));
    if (thread == NULL) {
        return status_out_of_memory(sizeof(*thread));
    }
    thread->run = run;
    thread->argument = argument;
    /* Not CreateThread: with that one the C library may end the process when it finds no memory for
     * what it keeps of a thread (learn.microsoft.com, CreateThread). This one leaves the system's
     * code in _doserrno, and none when it was the one without memory. */
    _doserrno = ERROR_SUCCESS;
    thread->thread = (HANDLE)_beginthreadex(NULL, 0, thread_main, thread, 0, NULL);
    if (thread->thread == NULL) {
        DWORD code = _doserrno != ERROR_SUCCESS ? (DWORD)_doserrno : ERROR_NOT_ENOUGH_MEMORY;
        free(thread);
        return win32_fail(code, "_beginthreadex", "no thread can be started");
    }
    *out_thread = thread;
    return GPUIPC_OK;
}

void os_thread_join(os_thread *thread) {
    /* The handle is ours and has all rights, so this has no failure left; a broken rule is a bug that
     * must not go on unseen. */
    if (WaitForSingleObject(thread->thread, INFINITE) != WAIT_OBJECT_0) {
        abort();
    }
    CloseHandle(thread->thread);
    free(thread);
}

/* Windows has no fork(). */
void os_thread_forget(os_thread *thread) {
    (void)thread;
}
