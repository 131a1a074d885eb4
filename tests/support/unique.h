/* SPDX-License-Identifier: MIT */
/** @file Names and runtime directories that no other test, run or user has. */
#ifndef GPUIPC_TEST_UNIQUE_H
#define GPUIPC_TEST_UNIQUE_H

#include <stdbool.h>
#include <stddef.h>

/** Room for what unique_name writes. */
#define UNIQUE_NAME_MAX 48

/** A name for a listener: process, counter and random bits; allowed as a gpuipc name. */
void unique_name(char name[UNIQUE_NAME_MAX]);

/** Room for a runtime directory's path: short, so that those of sockets in it are within their limit
 *  (man 7 unix), and enough for where a Windows user's temporary files are. */
#define RUNTIME_DIRECTORY_MAX 96

/** Makes an empty directory that this user alone may enter. False when it cannot be made. */
bool runtime_directory_make(char path[RUNTIME_DIRECTORY_MAX]);

/** How many files are in it. */
size_t runtime_directory_count(const char *path);

/** Removes it and the files in it (a test has no directories in it). */
void runtime_directory_remove(const char *path);

#endif
