/* SPDX-License-Identifier: MIT */
/** @file See quantity.h. */
#include "quantity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char unit_letters[] = "KMGT";

bool quantity_take_number(const char **text, uint64_t *out_number) {
    const char *start = *text + strspn(*text, " ");
    char *end = NULL;
    if (start[0] < '0' || start[0] > '9') {
        return false; /* strtoull would take a sign */
    }
    errno = 0;
    unsigned long long number = strtoull(start, &end, 10);
    if (errno != 0) {
        return false;
    }
    *text = end;
    *out_number = number;
    return true;
}

bool quantity_read_bytes(const char *text, uint64_t *out_bytes) {
    uint64_t number;
    unsigned shift = 0;
    if (text[0] == ' ' || !quantity_take_number(&text, &number)) {
        return false;
    }
    const char *unit = text[0] == '\0' ? NULL : strchr(unit_letters, text[0]);
    if (unit != NULL) {
        shift = 10 * (unsigned)(unit - unit_letters + 1);
        text += strcmp(text + 1, "iB") == 0 ? 3 : 1;
    }
    if (text[0] != '\0' || number > UINT64_MAX >> shift) {
        return false;
    }
    *out_bytes = number << shift;
    return true;
}

const char *quantity_bytes(uint64_t bytes, char text[QUANTITY_MAX]) {
    unsigned unit = 0;
    while (unit < sizeof(unit_letters) - 1 && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    if (unit == 0) {
        (void)snprintf(text, QUANTITY_MAX, "%" PRIu64 " B", bytes);
    } else {
        (void)snprintf(text, QUANTITY_MAX, "%" PRIu64 " %ciB", bytes, unit_letters[unit - 1]);
    }
    return text;
}

const char *quantity_change(int64_t bytes, char text[QUANTITY_MAX]) {
    char size[QUANTITY_MAX];
    uint64_t magnitude = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
    (void)snprintf(text, QUANTITY_MAX, "%s%.20s",
                   bytes < 0   ? "-"
                   : bytes > 0 ? "+"
                               : "",
                   quantity_bytes(magnitude, size));
    return text;
}
