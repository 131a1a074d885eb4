/* SPDX-License-Identifier: MIT */
/** @file Sizes as people write and read them. */
#ifndef GPUIPC_SELFTEST_QUANTITY_H
#define GPUIPC_SELFTEST_QUANTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Reads "4096", "64K", "64M", "1G", with "iB" or without. False when it is none or too large. */
bool quantity_read_bytes(const char *text, uint64_t *out_bytes);

/** Reads the number at the beginning of a text, behind blanks, and moves on behind it. False when there
 *  is none, or it has more than 64 bits. */
bool quantity_take_number(const char **text, uint64_t *out_number);

/** Room for what quantity_bytes writes. */
#define QUANTITY_MAX 32

/** A size in the largest unit that divides it: "64 MiB". @return text */
const char *quantity_bytes(uint64_t bytes, char text[QUANTITY_MAX]);

/** A change of size, with its sign: "+64 KiB", "0 B". @return text */
const char *quantity_change(int64_t bytes, char text[QUANTITY_MAX]);

#endif
