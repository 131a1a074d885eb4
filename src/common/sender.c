/* SPDX-License-Identifier: MIT */
/** @file See sender.h. */
#include "sender.h"

#include <stdlib.h>

bool sender_has_ended(const sender *self) {
    return self->peer != NULL && os_peer_is_running(self->peer) == 0;
}

void sender_end(sender *self, bool forked) {
    for (uint32_t i = 0; i < self->pool_count; i++) {
        counted_give(self->context, self->pools[i], forked);
    }
    free(self->pools);
    self->pools = NULL;
    self->pool_count = 0;
}
