/* SPDX-License-Identifier: MIT */
/** @file A program's words: UTF-8 in this tool, and one text in UTF-16 towards the system.
 *  win32_words.c, for the other files of win32_*.c. */
#ifndef GPUIPC_SELFTEST_WIN32_WORDS_H
#define GPUIPC_SELFTEST_WIN32_WORDS_H

#include <wchar.h>

#include <gpuipc/gpuipc_status.h>

/** A command line may have this many units of 16 bits, with its end: learn.microsoft.com,
 *  CreateProcessW. So may a path that begins with \\?\. */
#define WORDS_LINE_MAX 32768

/** A copy in UTF-16, for free(). ERR_INVALID_ARGUMENT when it is not UTF-8. */
gpuipc_status words_widen(const char *text, wchar_t **out_wide);

/** A copy in UTF-8, for free(). What has none (half a surrogate pair) becomes U+FFFD. */
gpuipc_status words_narrow(const wchar_t *wide, char **out_text);

/** The command line of a program, for free(): its path and its arguments (up to a NULL), quoted so
 *  that it gets them as they are. */
gpuipc_status words_join(const wchar_t *path, const char *const *arguments, wchar_t **out_line);

#endif
