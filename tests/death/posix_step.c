/* SPDX-License-Identifier: MIT */
/** @file See step.h. */
#include "step.h"

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

void step_die(void) {
    (void)kill(getpid(), SIGKILL);
    (void)pause(); /* another thread may have to deliver it */
}

void step_pause(void) {
    (void)poll(NULL, 0, 1);
}

void step_stop(void) {
    static const char line[] = "stops\n";
    if (write(STDOUT_FILENO, line, sizeof(line) - 1) < 0) {
        step_die(); /* who would hear of it is gone */
    }
    (void)raise(SIGSTOP);
}
