/* SPDX-License-Identifier: MIT */
/**
 * @file Limits for other processes: the handles, mappings, addresses and memory of this process that it uses for others are
 * counted for each user (docs/adr/0022). A user may have half of what the operating system allows this process. A charge
 * ends with what it was made for, also when the connection has ended before. Connections of this process with itself are
 * not counted. Any thread; one lock, held briefly.
 */
#ifndef GPUIPC_QUOTA_H
#define GPUIPC_QUOTA_H

#include <stdbool.h>

#include "os.h"

typedef enum quota_kind {
    QUOTA_HANDLES, /**< descriptors, HANDLEs */
    QUOTA_MAPPINGS, /**< ranges of addresses, each of which the system counts (Linux: vm.max_map_count) */
    QUOTA_ADDRESSES, /**< their bytes */
    QUOTA_MEMORY,    /**< bytes that are kept here for what the other one does */
    QUOTA_KINDS
} quota_kind;

/** So much of each kind. */
typedef struct quota_amount {
    uint64_t of[QUOTA_KINDS];
} quota_amount;

/** The account of one user. */
typedef struct quota quota;

/** What something was charged with. All zero: with nothing. */
typedef struct quota_charge {
    quota *of; /**< a reference */
    quota_amount amount;
} quota_charge;

/** The account of the user of a process, with a reference for the caller. *out_quota NULL: it is this process, and nothing
 *  is counted. ERR_OUT_OF_MEMORY */
gpuipc_status quota_open(const os_peer *peer, quota **out_quota);
/** NULL does nothing. */
void quota_unreference(quota *self);

/** Charges an amount, or nothing. Called before the thing is made.
 *  @param self NULL: nothing is counted  @param charge the amount is added to it; of the same account, or of none
 *  ERR_LIMIT: the details name the user, the kind and the limit */
gpuipc_status quota_take(quota *self, const quota_amount *wanted, quota_charge *charge);
/** The same for what the connection can do without: only where the account is at most half used afterwards, so that
 *  clients come first. @return whether it is taken; there is no error record otherwise */
bool quota_take_spare(quota *self, const quota_amount *wanted, quota_charge *charge);
/** Gives all of it back, after it has ended. */
void quota_return(quota_charge *charge);
/** Gives back so much of it. */
void quota_return_some(quota_charge *charge, const quota_amount *amount);

/** For the tests: what the system lets this process have, in place of what it says; and this process itself is counted.
 *  For accounts that are opened from then on. NULL: as before */
void quota_pretend(const quota_amount *totals);

#endif
