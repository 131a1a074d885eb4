/* SPDX-License-Identifier: MIT */
/** @file What CreateProcessW wants besides the program's path: one text of all arguments, and one
 *  block of all variables. win32_command.c, for win32_child.c. */
#ifndef GPUIPC_TEST_WIN32_COMMAND_H
#define GPUIPC_TEST_WIN32_COMMAND_H

#include <wchar.h>

/** The program's path and its arguments (UTF-8, ends with NULL; NULL: none), so that the program's
 *  main gets them as they are. For free(); NULL: no memory, or an argument is not UTF-8. */
wchar_t *win32_command_line(const wchar_t *path, const char *const *arguments);

/** This process's variables with the changes (as child_start takes them), and @p last whatever the
 *  changes say. For free(); NULL as above. */
wchar_t *win32_environment_block(const char *const *changes, const char *last);

#endif
