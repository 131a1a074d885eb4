/* SPDX-License-Identifier: MIT */
/** @file See program.h. */
#include "program.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

void program_end_now(int exit_code) {
    _Exit(exit_code);
}

static volatile sig_atomic_t is_interrupted;

static void note_interrupt(int signal) {
    (void)signal;
    is_interrupted = 1;
}

/* Programs that are started have the default again: execve(2). */
void program_watch_interrupt(void) {
    struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = (int)SA_RESETHAND};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool program_is_interrupted(void) {
    return is_interrupted != 0;
}

static unsigned columns_of(int descriptor) {
    struct winsize size;
    if (!isatty(descriptor)) {
        return 0;
    }
    /* ioctl_tty(2): 0 columns are not known; then it is what terminals have had since the VT100. */
    return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

unsigned program_columns(void) {
    return columns_of(STDOUT_FILENO);
}

unsigned program_error_columns(void) {
    return columns_of(STDERR_FILENO);
}

int main(int count, char **arguments) {
    return program_run(count, arguments);
}
