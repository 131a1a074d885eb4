/* SPDX-License-Identifier: MIT */
/**
 * @file Whether the program at the other end of a connection goes on. The system's handle of a process outlives execve(2),
 * after which it is another program's. So each of the two locks a byte of memory that they share: the first page of points
 * or words of each direction (docs/adr/0025). The system releases the lock when the program ends.
 */
#ifndef GPUIPC_LIFELINE_H
#define GPUIPC_LIFELINE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/quota.h"
#include "os.h"

/** The number of the byte that it locks. */
typedef enum lifeline_side {
    LIFELINE_SENDER, /**< of the page */
    LIFELINE_RECEIVER,
    LIFELINE_SIDES
} lifeline_side;

/** Where the word of the page is in which both sides state what they do. */
#define LIFELINE_WORD 13311u
/** Its bits, shifted by the number of the side. */
#define LIFELINE_HOLDS 0x1u /**< it has locked its byte */
#define LIFELINE_LEFT  0x4u /**< it has given that up, and its program goes on */

/** All zero: there is none. One lock of the owner's guards it. */
typedef struct lifeline {
    atomic_uint_least64_t *words; /**< the page; NULL: there is none */
    os_handle memory;             /**< while it is open, the byte is locked */
    lifeline_side side;           /**< of this process */
    quota_charge charge;
    unsigned
        slowness; /**< grows with each look that took long, and becomes less with each other one */
    bool is_given_up; /**< looks took long; there is no other one then */
} lifeline;

/** Takes over the handle of a page that both have, and locks this side's byte. The handle is closed where that fails, where
 *  there is one already, and where the account is half used: the handle of the process tells the end then. Keeps the error
 *  record. A peer can make the lock take long, by many locks of its own on the page.
 *  @param of the other side's account */
void lifeline_begin(lifeline *self, os_handle *memory, lifeline_side side, quota *of);
/** This side gives it up. The other side relies on the handle of the process from then on. @param forked in a child */
void lifeline_end(lifeline *self, bool forked);

/** Whether the other side's program is known to have ended. A system call, whose time grows with the number of locks that the
 *  peer has on the page. This side gives the lifeline up after three calls in about a hundred that took longer than 1 ms. */
bool lifeline_has_ended(lifeline *self);

#endif
