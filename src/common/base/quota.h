/* SPDX-License-Identifier: MIT */
/**
 * @file What other processes may take of this one: handles, mappings, addresses and memory are counted for each process
 * that it speaks with and for each user, and have an end (docs/adr/0022). A user may have half of what the system lets
 * this process have, and each process of his a quarter. What a process has here stays counted until it is given back,
 * also after its connections have ended. This process itself is not counted. Any thread; one lock, held for moments.
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

/** What one other process has here, and may have. */
typedef struct quota quota;

/** What something was charged with. All zero: with nothing. */
typedef struct quota_charge {
    quota *of; /**< a reference */
    quota_amount amount;
} quota_charge;

/** The account of a process, with a reference for the caller. *out_quota NULL: it is this process, and nothing is
 *  counted. A process whose number is not known has one for each connection. ERR_OUT_OF_MEMORY */
gpuipc_status quota_open(const os_peer *peer, quota **out_quota);
/** NULL does nothing. */
void quota_unreference(quota *self);

/** Takes so much more, of the process and of its user, or nothing. Before it is made.
 *  @param self NULL: nothing is counted  @param charge what it is added to, of the same account or of none
 *  ERR_LIMIT, whose sentence says of what there is no more, and whose */
gpuipc_status quota_take(quota *self, const quota_amount *wanted, quota_charge *charge);
/** The same for what the connection can do without: only where no account is more than half used afterwards, so that clients
 *  come first. @return whether it is taken; there is no error record otherwise */
bool quota_take_spare(quota *self, const quota_amount *wanted, quota_charge *charge);
/** Gives all of it back, after it has ended. */
void quota_return(quota_charge *charge);
/** Gives back so much of it. */
void quota_return_some(quota_charge *charge, const quota_amount *amount);

/** For the tests: what the system lets this process have, in place of what it says; and this process itself is counted.
 *  For accounts that are opened from then on. NULL: as before */
void quota_pretend(const quota_amount *totals);

#endif
