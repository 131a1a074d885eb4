/* SPDX-License-Identifier: MIT */
/** @file See system.h; prctl(2), PR_SET_SYSCALL_USER_DISPATCH (Linux 5.11). */
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "system.h"

static volatile char dispatch = SYSCALL_DISPATCH_FILTER_ALLOW;

static void refuse_call(int number, siginfo_t *info, void *context) {
    char sentence[96];
    (void)number;
    (void)context;
    dispatch = SYSCALL_DISPATCH_FILTER_ALLOW;
    const int length = snprintf(sentence, sizeof(sentence),
                                "system call %d where there must be none\n", info->si_syscall);
    (void)!write(STDERR_FILENO, sentence, (size_t)length);
    _exit(1);
}

bool system_calls_forbid(void) {
    struct sigaction action = {.sa_sigaction = refuse_call, .sa_flags = SA_SIGINFO};
    (void)sigemptyset(&action.sa_mask);
    if (sigaction(SIGSYS, &action, NULL) != 0 ||
        prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0L, 0L, &dispatch) != 0) {
        return false;
    }
    dispatch = SYSCALL_DISPATCH_FILTER_BLOCK;
    return true;
}

void system_calls_allow(void) {
    dispatch = SYSCALL_DISPATCH_FILTER_ALLOW;
}
