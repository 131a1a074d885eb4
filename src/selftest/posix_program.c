/* SPDX-License-Identifier: MIT */
/** @file See program.h. */
#include "program.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

void program_end_now(int exit_code) {
    _Exit(exit_code);
}

unsigned program_columns(void) {
    struct winsize size;
    if (!isatty(STDOUT_FILENO)) {
        return 0;
    }
    /* ioctl_tty(2): 0 columns are not known; then it is what terminals have had since the VT100. */
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

int main(int count, char **arguments) {
    return program_run(count, arguments);
}
