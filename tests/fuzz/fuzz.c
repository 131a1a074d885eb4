/* SPDX-License-Identifier: MIT */
/** @file See fuzz.h. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_fail(const char *file, int line, const char *condition) {
    fprintf(stderr, "fuzz check failed: %s:%d: %s\n", file, line, condition);
    exit(1); /* which libFuzzer takes for a finding, and keeps the input */
}

static const char *planted(void) {
    static const char *what;
    if (what == NULL) {
        const char *given = getenv("GPUIPC_FUZZ_PLANTED");
        what = given == NULL ? "" : given;
    }
    return what;
}

bool fuzz_is_planted(const char *mistake) {
    return strcmp(planted(), mistake) == 0;
}

void fuzz_check_same(const void *encoded, const void *bytes, size_t size, const uint8_t *data,
                     size_t data_size) {
    const char *mistake = planted();
    if (strcmp(mistake, "overread") == 0) {
        const volatile uint8_t *behind = data + data_size;
        (void)*behind;
    }
    if (strcmp(mistake, "difference") == 0) {
        const uint8_t wrong = (uint8_t)(((const uint8_t *)encoded)[size - 1] ^ 1u);
        FUZZ_CHECK(wrong == ((const uint8_t *)bytes)[size - 1]);
    }
    FUZZ_CHECK(memcmp(encoded, bytes, size) == 0);
}
