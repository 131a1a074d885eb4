/* SPDX-License-Identifier: MIT */
/** @file See drop_ends.h. */
#include "drop_ends.h"

#include <criterion/criterion.h>

bool drop_exists(CUdeviceptr at) {
    CUdeviceptr base = 0;
    size_t bytes = 0;
    return core_driver()->cuMemGetAddressRange(&base, &bytes, at) == CUDA_SUCCESS;
}

void drop_check_ends(CUdeviceptr at) {
    const os_deadline deadline = os_deadline_after(SOON_MS);
    while (drop_exists(at)) {
        cr_assert_not(os_deadline_passed(deadline), "what was dropped is not unmapped");
        os_sleep_ms(1);
    }
}
