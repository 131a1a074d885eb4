/* SPDX-License-Identifier: MIT */
#include "form.h"

#include <stdlib.h>
#include <string.h>

bool form_is_full(void) {
    const char *form = getenv("GPUIPC_TEST_FORM");
    return form != NULL && strcmp(form, "full") == 0;
}

uint64_t form_choose(uint64_t in_short, uint64_t in_full) {
    return form_is_full() ? in_full : in_short;
}
