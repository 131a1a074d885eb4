/* SPDX-License-Identifier: MIT */
/** @file See stock.h. */
#include "stock.h"

#include "bench_call.h"
#include "os.h"

#define MOMENT_MS 20u

uint32_t stock_room(uint32_t device, uint64_t bytes) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    bench_enter((int)device);
    bench_check_cuda(bench_driver.cuMemGetInfo(&free_bytes, &total_bytes), "free memory");
    const uint64_t room = free_bytes / 4 * 3 / bytes;
    return room < 1 ? 1 : room < STOCK_MAX ? (uint32_t)room : STOCK_MAX;
}

void *stock_take(stock *self, uint32_t ahead, stock_make *make, void *of, uint32_t value) {
    if (self->next == self->count) {
        self->count = ahead < 1 ? 1 : ahead < STOCK_MAX ? ahead : STOCK_MAX;
        self->next = 0;
        for (uint32_t i = 0; i < self->count; i++) {
            self->made[i] = make(of, value + i);
        }
        if (self->count > 1 && !bench_driver.is_emulated) { /* which clears at once */
            os_sleep_ms(MOMENT_MS);
        }
    }
    return self->made[self->next++];
}

void stock_settle(stock *self, stock_end *end, void *of) {
    if (self->next < self->count) {
        return;
    }
    for (uint32_t i = 0; i < self->count; i++) {
        end(of, self->made[i]);
    }
    self->count = self->next = 0;
}
