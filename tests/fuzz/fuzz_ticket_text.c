/* SPDX-License-Identifier: MIT */
/** @file A ticket as text. Every ticket has one text. */
#include <stdlib.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char again[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_ticket read;
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    if (gpuipc_ticket_from_text(text, &read) == GPUIPC_OK) {
        FUZZ_CHECK(gpuipc_ticket_to_text(&read, again) == GPUIPC_OK);
        fuzz_check_same(again, text, strlen(text) + 1, data, size);
    }
    free(text);
    return 0;
}
