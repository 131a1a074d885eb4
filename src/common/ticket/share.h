/* SPDX-License-Identifier: MIT */
/**
 * @file The shares of a server: what each ticket stands for, what it admits, and who has it open. What has expired or
 * was revoked is remembered for a while, without its buffer, so that it can be told from what never was. Any thread.
 */
#ifndef GPUIPC_SHARE_H
#define GPUIPC_SHARE_H

#include "base/table.h"
#include "ticket/expiry.h"
#include "ticket/holder.h"
#include "ticket/offer.h"
#include "ticket/ticket.h"

typedef struct share share;

typedef struct share_table {
    os_mutex mutex;    /**< also of the holders; held for moments only, and over no driver call */
    hash_table shares; /**< by number */
    uint32_t next_id;
    expiry_heap dated;   /**< those that expire */
    linked_list buried;  /**< those that nobody opens any more, the oldest first */
    linked_list left;    /**< clients whose connection has ended */
    size_t left_to_look; /**< so many of them since a process has ended */
    os_poller *woken;    /**< when the process of one of them ends; NULL: nobody is */
    uint64_t
        confirm_ns; /**< so long a one-shot share waits for those who got it to say that they have it open */
    places places; /**< of the clients */
    known_processes processes;
} share_table;

/** What a share admits. */
typedef struct share_limits {
    uint64_t expires_ms;    /**< from now on; 0: never */
    uint32_t max_processes; /**< other than this one; 0: any number */
    bool is_one_shot;       /**< so many are all it is for */
} share_limits;

/** Gives all buffers up. Nothing that is in it is opened any more. */
void share_table_clear(share_table *self);
/** @param forked in a child: no driver call, no lock; the clients have not left */
void share_table_destroy(share_table *self, bool forked);

/** Enters an offer, whose reference passes on success.
 *  @param out_share its number, from 1 on, and its secret
 *  @param out_is_next it is the one that expires next: share_next_expiry() says something new */
gpuipc_status share_add(share_table *self, offer *of, const share_limits *limits, ticket *out_share,
                        bool *out_is_next);

/** What a ticket stands for, for this process itself, which neither counts nor is listed. *out_offer: a reference, when
 *  GRANTED. */
wire_answer share_find(share_table *self, const ticket *wanted, offer **out_offer);

/** A share that a client may open. */
typedef struct share_grant {
    share *of;
    offer *offer;       /**< a reference */
    hold *noted;        /**< that it is on its way */
    admitted *admitted; /**< that it counts as one process more; NULL: it does not */
} share_grant;

/** Whether a client may open what a ticket stands for. *out_answer GRANTED: share_settle() must follow, before another
 *  client asks. ERR_OUT_OF_MEMORY */
gpuipc_status share_ask(share_table *self, const ticket *wanted, holder *by,
                        wire_answer *out_answer, share_grant *out_grant);

/** It has left, or it came to nothing. The error record stays.
 *  @param at of the hand-over, whose reference on its page passes; no page: it has not left */
void share_settle(share_table *self, share_grant *grant, bool has_left, const point *at);

/** A client has open what a ticket gave it: a one-shot share ends with the last of those that it is for. */
void share_confirm(share_table *self, const ticket *of, const holder *by);

/** A client has come. *out_holder is NULL when there are too many of them; share_leave() must follow else.
 *  @param peer stays there until then  ERR_OUT_OF_MEMORY */
gpuipc_status share_enter(share_table *self, const os_peer *peer, holder **out_holder);

/** Why share_enter() had no place: too many of all users, or of one. @return the limit */
uint32_t share_limit(share_table *self, wire_busy *out_of);

/** The client's connection has ended. It keeps its place for as long as it has something open. */
void share_leave(share_table *self, holder *by);

/** Whether any client is there, or has something open. */
bool share_has_clients(share_table *self);

/** 0: a client may be waited for that takes a long reply. Else after how many milliseconds one of its user may. */
uint32_t share_pause_ms(share_table *self, holder *by);
/** So long it has been waited for. */
void share_spend(share_table *self, holder *by, uint64_t ns);

/** A process has ended: share_sweep() looks for what it had, in many rounds if it was much. */
void share_notice_end(share_table *self);

/** Gives up what has expired, and forgets who is gone, some at a time. In every round of the server. */
void share_sweep(share_table *self);

/** In a child: what was offered is given up, without a driver call, unless a thread of the parent's was in the table. */
void share_abandon(share_table *self, const ticket *of);

/** When share_sweep() will have something to give up. */
os_deadline share_next_expiry(share_table *self);

/** ERR_TICKET_UNKNOWN, ERR_TICKET_REVOKED */
gpuipc_status share_revoke(share_table *self, const ticket *of);

/** As gpuipc_server_holders(). ERR_TICKET_UNKNOWN, ERR_TOO_SMALL */
gpuipc_status share_holders(share_table *self, const ticket *of, gpuipc_holder *holders,
                            size_t capacity, size_t *out_count);

#endif
