/* SPDX-License-Identifier: MIT */
/** @file The places that a server has for its clients, in all and for each user, and the time that it may spend on
 *  the slow ones of each. Guarded by the mutex of the server's shares. */
#ifndef GPUIPC_PLACES_H
#define GPUIPC_PLACES_H

#include "os.h"

typedef struct places_user places_user;

typedef struct places {
    uint32_t most;
    uint32_t most_of_user;
    uint32_t count;     /**< that are taken */
    places_user *users; /**< that have one, or had until lately */
} places;

/** The clients of one user. */
struct places_user {
    places_user *next;
    uint32_t count;
    uint64_t second_ns; /**< when the second began that the next member is about */
    uint64_t waited_ns; /**< for his clients, in that second */
    char name[sizeof(((os_peer *)0)->user)];
};

/** A place of a user; *out_user is NULL when there is none left. ERR_OUT_OF_MEMORY */
gpuipc_status places_take(places *self, const char *user, uint64_t now_ns, places_user **out_user);
void places_give_back(places *self, places_user *user);
/** Forgets the users. */
void places_end(places *self);

/** How long a client of this user may still be waited for. */
int places_patience_ms(places_user *user, uint64_t now_ns);
/** Waits for one of them have taken so long. */
void places_spend(places_user *user, uint64_t ns);

#endif
