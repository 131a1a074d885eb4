/* SPDX-License-Identifier: MIT */
/** @file This program as a whole: where it begins and how it is ended. main() is in posix_program.c
 *  and win32_program.c. */
#ifndef GPUIPC_SELFTEST_PROGRAM_H
#define GPUIPC_SELFTEST_PROGRAM_H

#include <stdbool.h>

/** The program itself: main.c.
 *  @param arguments as main() has them, in UTF-8 */
int program_run(int count, char **arguments);

/** How many characters a line of the terminal has that standard output is; 0: it is none. Where it must be told first,
 *  it is made to understand ECMA-48. */
unsigned program_columns(void);

/** The same of the error stream. */
unsigned program_error_columns(void);

/** From now on the first Ctrl-C, or wish to end it, is only noted; the second one ends the program as before. */
void program_watch_interrupt(void);
bool program_is_interrupted(void);

/** Ends this process at once, without any clean-up, its own or a library's: what hangs in the driver
 *  would hang that as well. */
_Noreturn void program_end_now(int exit_code);

#endif
