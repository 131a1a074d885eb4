/* SPDX-License-Identifier: MIT */
/** @file See log_rate.h. */
#include "base/log_rate.h"

#define SECOND_NS UINT64_C(1000000000)

/* One of those that come at once begins the second, and tells. */
bool log_rate_admit(log_rate *self, uint64_t now_ns, uint64_t *out_left_out) {
    const uint64_t now = now_ns / SECOND_NS;
    uint64_t second = atomic_load(&self->second);
    *out_left_out = 0;
    if (now > second && atomic_compare_exchange_strong(&self->second, &second, now)) {
        atomic_store(&self->said, 0u);
        *out_left_out = log_rate_settle(self);
    }
    if (atomic_fetch_add(&self->said, 1u) < LOG_RATE_MOST) {
        return true;
    }
    atomic_fetch_add(&self->left_out, 1u);
    return false;
}

uint64_t log_rate_settle(log_rate *self) {
    return atomic_exchange(&self->left_out, 0u);
}
