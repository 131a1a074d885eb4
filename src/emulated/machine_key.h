/* SPDX-License-Identifier: MIT */
/** @file The keys of a machine's description, one by one; machine.h lists them. */
#ifndef GPUIPC_EMULATED_MACHINE_KEY_H
#define GPUIPC_EMULATED_MACHINE_KEY_H

#include "machine.h"

/** Reads one pair into *out; false, and no change, for an unknown key or a wrong value. */
bool machine_read_key(const char *key, const char *value, machine *out);

/** Digits from *text on; false when there is none or the value passes @p limit. */
bool machine_take_number(const char **text, uint64_t limit, uint64_t *out);

#endif
