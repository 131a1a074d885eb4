/* SPDX-License-Identifier: MIT */
/** @file Who is let in, and how often: the places of a server for its clients, in all and for each user, with the time
 *  that it may spend on slow ones; and the processes that a share with a limit has admitted. Guarded by the mutex of
 *  the server's shares. */
#ifndef GPUIPC_ADMISSION_H
#define GPUIPC_ADMISSION_H

#include "base/quota.h"
#include "base/table.h"
#include "os.h"

/* ---- places of clients --------------------------------------------------------------------- */

typedef struct places_user places_user;

typedef struct places {
    uint32_t most;
    uint32_t most_of_user;
    uint32_t count;    /**< that are taken */
    linked_list users; /**< that have one, or had until lately */
} places;

/** The clients of one user. */
struct places_user {
    list_link link;
    uint32_t count;
    uint64_t second_ns; /**< when the second began that the next member is about */
    uint64_t
        waited_ns; /**< for this user's clients, in that second; more than it allows: owed by the next */
    char name[sizeof(((os_peer *)0)->user)];
};

/** A place of a user; *out_user is NULL when there is none left. ERR_OUT_OF_MEMORY */
gpuipc_status places_take(places *self, const char *user, uint64_t now_ns, places_user **out_user);
void places_return(places *self, places_user *user);
/** Forgets the users. */
void places_destroy(places *self);

/** 0: a client of this user may be waited for. Else after how many milliseconds the next one may. */
uint32_t places_pause_ms(places_user *user, uint64_t now_ns);
/** Waits for one of them have taken so long. After places_pause_ms(). */
void places_spend(places_user *user, uint64_t ns);

/* ---- known processes ------------------------------------------------------------------------ */

/** A process that counts, known also after its connection has ended: by its number together with the system's handle,
 *  so that another process that gets the number is told from it. */
typedef struct known_process known_process;

/** One whose end was seen leaves both. All zero is empty. */
typedef struct known_processes {
    hash_table by_number;
    linked_list in_turn; /**< the one that was not looked at for the longest time first */
} known_processes;

/** The process at the other end of a connection, with a reference for the caller, who gives it up when the
 *  connection is over at the latest. @param of charged with a handle of its own, where it is the first time.
 *  ERR_LIMIT, ERR_OUT_OF_MEMORY, ERR_TOO_MANY_HANDLES */
gpuipc_status known_process_get(known_processes *self, const os_peer *peer, quota *of,
                                known_process **out_process);
/** Looks at a few in turn. Of those that have ended, the handles are closed, and shares keep no more than their number. */
void known_processes_sweep(known_processes *self);
/** NULL does nothing. @param forked in a child */
void known_process_unreference(known_process *self, bool forked);
/** Of none any more. */
void known_processes_destroy(known_processes *self);

/* ---- what a share admits ---------------------------------------------------------------------- */

typedef struct admission admission;

/** One that a share has admitted, until its end is seen. */
typedef struct admitted {
    table_link by_process;
    list_link of_process; /**< of all shares that have admitted it */
    admission *in;
    known_process *process; /**< a reference */
    bool is_confirmed;      /**< it has said that it has it open */
} admitted;

/** The processes that a share has admitted; this one is never among them. */
struct admission {
    hash_table entries;
    uint32_t ended;     /**< processes that were admitted and have ended: without an entry */
    uint32_t confirmed; /**< of all */
};

gpuipc_status admission_new(admission **out_admission);

/** How many processes it has admitted. */
uint32_t admission_count(const admission *self);
/** NULL: it has not. */
admitted *admission_find(const admission *self, const known_process *process);
/** One that is not there yet. *out_entry: for admission_remove()  ERR_OUT_OF_MEMORY */
gpuipc_status admission_add(admission *self, known_process *process, admitted **out_entry);
/** Its opening came to nothing, and is not confirmed. The caller has had a reference on the process since admission_add(). */
void admission_remove(admission *self, admitted *entry);

/** NULL does nothing. @param forked in a child */
void admission_destroy(admission *self, bool forked);

#endif
