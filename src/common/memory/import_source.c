/* SPDX-License-Identifier: MIT */
/** @file See import_source.h. */
#include "memory/import_source.h"

#include <stdlib.h>

#include "sync/point_peer.h"

bool import_source_has_ended(const import_source *self) {
    return self->other_end != NULL && point_peer_is_running(self->other_end) == 0;
}

void import_source_release(import_source *self, bool forked) {
    for (uint32_t i = 0; i < self->pool_count; i++) {
        driver_reference_release(self->context, self->pools[i], forked);
    }
    free(self->pools);
    self->pools = NULL;
    self->pool_count = 0;
}
