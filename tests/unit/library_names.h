/* SPDX-License-Identifier: MIT */
/** @file Libraries as the systems name them, for test_os_library.c. */
#ifndef GPUIPC_TEST_LIBRARY_NAMES_H
#define GPUIPC_TEST_LIBRARY_NAMES_H

/** One that every system of this kind has, with a cos() in it. */
extern const char system_library[];

/** An absolute path where nothing is. */
extern const char absent_library_path[];

/** Paths that are none, or depend on where the program stands; NULL is the last. */
extern const char *const relative_library_paths[];

/** A name under which os_library_open_system finds a file that is no library.
 *  @param path of such a file, for systems whose loader takes a path for a name */
const char *broken_system_library(const char *path);

/** A name under which it finds nothing; @p path: of no file. */
const char *absent_system_library(const char *path);

#endif
