/* SPDX-License-Identifier: MIT */
/** @file A file of measurements in the user's cache directory. */
#include "fuzz.h"
#include "query/figures.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char again[FIGURES_TEXT_MAX];
    gpuipc_measurement measured;
    if (figures_read_text((const char *)data, size, &measured)) {
        FUZZ_CHECK(measured.bytes > 0 && measured.one_way_bytes_per_second > 0 &&
                   measured.latency_ns > 0);
        FUZZ_CHECK(figures_write_text(&measured, again) == size);
        fuzz_check_same(again, data, size, data, size);
    }
    return 0;
}
