/* SPDX-License-Identifier: MIT */
/** @file See places.h. */
#include "places.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"

#define SECOND_NS UINT64_C(1000000000)
/* How much of each second the clients of one user may keep the server waiting. */
#define PATIENCE_NS UINT64_C(200000000)

static bool is_of_no_use(const places_user *user, uint64_t now_ns) {
    return user->count == 0 && now_ns - user->second_ns >= SECOND_NS;
}

/* Those who have gone are forgotten on the way; but not before their second is over, which else would begin anew
 * with each that comes. */
static places_user *find(places *self, const char *name, uint64_t now_ns) {
    places_user *found = NULL;
    for (places_user **at = &self->users; *at != NULL;) {
        places_user *one = *at;
        if (strcmp(one->name, name) == 0) {
            found = one;
        } else if (is_of_no_use(one, now_ns)) {
            *at = one->next;
            free(one);
            continue;
        }
        at = &one->next;
    }
    return found;
}

gpuipc_status places_take(places *self, const char *user, uint64_t now_ns, places_user **out_user) {
    places_user *found = find(self, user, now_ns);
    *out_user = NULL;
    if (self->count >= self->most || (found != NULL && found->count >= self->most_of_user)) {
        return GPUIPC_OK;
    }
    if (found == NULL) {
        found = calloc(1, sizeof(*found));
        if (found == NULL) {
            return status_out_of_memory("places_take", sizeof(*found));
        }
        memcpy(found->name, user, strlen(user) + 1);
        found->next = self->users;
        self->users = found;
    }
    self->count++;
    found->count++;
    *out_user = found;
    return GPUIPC_OK;
}

void places_give_back(places *self, places_user *user) {
    self->count--;
    user->count--;
}

void places_end(places *self) {
    while (self->users != NULL) {
        places_user *next = self->users->next;
        free(self->users);
        self->users = next;
    }
}

int places_patience_ms(places_user *user, uint64_t now_ns) {
    if (now_ns - user->second_ns >= SECOND_NS) {
        user->second_ns = now_ns;
        user->waited_ns = 0;
    }
    return user->waited_ns >= PATIENCE_NS ? 0 : (int)((PATIENCE_NS - user->waited_ns) / 1000000u);
}

void places_spend(places_user *user, uint64_t ns) {
    user->waited_ns += ns;
}
