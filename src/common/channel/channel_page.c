/* SPDX-License-Identifier: MIT */
/** @file See channel_page.h: an offer that its writer takes back while its reader takes it. */
#include "channel/channel_page.h"

bool channel_still_stands(const point_page *page, uint32_t slot, uint64_t number) {
    GPUIPC_FULL_FENCE();
    return channel_read(page, channel_offered_at(number, CHANNEL_PLACE)) ==
           channel_place(number, slot);
}

bool channel_withdraw(const point_page *page, uint32_t slot, uint64_t number) {
    const uint32_t at = channel_offered_at(number, CHANNEL_PLACE);
    if (channel_read(page, at) == channel_place(number, slot)) {
        channel_write(page, at, 0); /* else a later frame is there */
    }
    GPUIPC_FULL_FENCE();
    return channel_said(page, slot) >> 2 != number;
}
