/* SPDX-License-Identifier: MIT */
/**
 * @file Who has something of a server open. A holder is a client, known by the page of points that it got; what
 * it has is known by the points of the hand-overs: one that is released, or whose process is gone, is over. That
 * is noticed when somebody looks.
 *
 * All of it is guarded by one mutex, that of the server's shares.
 */
#ifndef GPUIPC_HOLDER_H
#define GPUIPC_HOLDER_H

#include "base/table.h"
#include "sync/point.h"
#include "ticket/admission.h"

typedef struct hold hold;
typedef struct hold_list hold_list;
typedef struct holder holder;
typedef struct holding holding;

/** One client of a server, from its connection until it has nothing open any more. */
struct holder {
    places *places;
    places_user *place;      /**< that it has until it is over */
    const os_peer *peer;     /**< while it is connected */
    quota *quota;            /**< the account of its user, a reference; or NULL */
    quota_charge charge;     /**< for its hand-overs, and the watch */
    os_process_watch *watch; /**< for the end of its process, while it is in a row; or NULL */
    known_process
        *process;        /**< a reference; NULL until it matters, and after the connection's end */
    point_page *page;    /**< of the first hand-over, a reference; NULL before that */
    linked_list holds;   /**< the newest first */
    hold *next_look;     /**< NULL: the first */
    hash_table holdings; /**< by their shares */
    list_link in_row; /**< of those whose connection has ended, but who still have something open */
};

/** What one client has of one share, at least one hand-over. */
struct holding {
    holder *by;
    hold_list *of;
    linked_list holds; /**< the oldest first */
    hold *next_look;   /**< NULL: the first */
    list_link in_list; /**< the share's */
    table_link by_list;
};

/** One hand-over. */
struct hold {
    holding *in;
    bool is_on_its_way; /**< the point is not known yet */
    point at;           /**< with a reference on its page */
    uint64_t since_ms;  /**< since 1970 */
    list_link link;     /**< in the holding */
    list_link in_by;    /**< of the same holder */
};

/** Those of one share. All zero is empty. */
struct hold_list {
    linked_list holdings;
    uint32_t count; /**< of the hand-overs */
};

/** A client that has come. *out_holder is NULL when there is no place left for it. ERR_OUT_OF_MEMORY
 *  @param peer stays there until holder_leave()  @param left who else may be over by now */
gpuipc_status holder_new(places *of, const os_peer *peer, linked_list *left, holder **out_holder);

/** Its connection ends. What it still has open keeps it, in the row; else it is over.
 *  @param woken when its process ends, so that somebody sweeps; NULL: nobody is */
void holder_leave(holder *self, linked_list *row, os_poller *woken);

/** The same in a forked child, after all that it had open is forgotten. */
void holder_abandon(holder *self);

/** Looks at a few hand-overs of those in a row, at others each time. */
void holder_sweep(linked_list *row);
/** The same, at more, since processes have ended. @return how many holders it has come to the end of */
size_t holder_sweep_ended(linked_list *row);

/** Whether it may have one hand-over more, for which there is room then: hold_begin() or holder_return_room() follows. */
bool holder_take_room(holder *self);
void holder_return_room(holder *self);

/** NULL: no memory. */
hold *hold_new(void);
/** One that was not begun. */
void hold_destroy(hold *self);
/** Notes a hand-over that is about to leave. @param self of hold_new(), taken over */
void hold_begin(hold *self, hold_list *of, holder *by);
/** It has left. @param at takes over the reference on its page; no page: it has not left */
void hold_settle(hold *self, const point *at);

/** Forgets all of a share. @param forked in a child */
void hold_list_clear(hold_list *self, bool forked);

/** Who has a share open. Who has nothing of it open any more is not listed; of the hand-overs of one with many, what is
 *  over between others may count for a while. @param out_holders room for @p capacity, which may be too little
 *  @return how many there are */
size_t hold_list_describe(hold_list *self, gpuipc_holder *out_holders, size_t capacity);

#endif
