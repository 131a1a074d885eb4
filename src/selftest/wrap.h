/* SPDX-License-Identifier: MIT */
/** @file Lines for people, broken between words where a terminal is narrower: on standard output, of one thread of the
 *  program, and on the error stream. */
#ifndef GPUIPC_SELFTEST_WRAP_H
#define GPUIPC_SELFTEST_WRAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/compiler.h"

/** How lines are from now on. Unless it is called they are as they come.
 *  @param columns of the terminal; 0: none, so that nothing is broken
 *  @param is_ascii what is not ASCII becomes "?", one for each character */
void wrap_begin(unsigned columns, bool is_ascii);

/** Prints up to the last newline; what is behind it waits for the rest of its line. */
void wrap_say(const char *format, ...) GPUIPC_PRINTF(1, 2);

/** The same, of a list that va_start() has begun. */
void wrap_say_list(const char *format, va_list arguments) GPUIPC_PRINTF(1, 0);

/** Prints what waits for the rest of its line. To be called before the program ends, and before others print. */
void wrap_end(void);

/** Whether all of what was printed until now could be written. */
bool wrap_is_written(void);

/** A line on the error stream, without its newline, behind the program's name. Any thread may. */
void wrap_complain(const char *format, ...) GPUIPC_PRINTF(1, 2);

/** The same, of a list that va_start() has begun. */
void wrap_complain_list(const char *format, va_list arguments) GPUIPC_PRINTF(1, 0);

/** A line without its newline, broken as the others, into any stream. Further lines of it begin below the last column of the first
 *  one, or a little further in where that leaves too little room. A word that is too long stays whole. */
void wrap_print(FILE *into, const char *line, unsigned columns);

#endif
