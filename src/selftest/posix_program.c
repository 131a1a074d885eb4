/* SPDX-License-Identifier: MIT */
/** @file See program.h. */
#include "program.h"

#include <stdlib.h>

void program_end_now(int exit_code) {
    _Exit(exit_code);
}

int main(int count, char **arguments) {
    return program_run(count, arguments);
}
