/* SPDX-License-Identifier: MIT */
/** @file A handle of 64 bytes as a line of hexadecimal digits. */
#ifndef GPUIPC_TEST_RUNTIME_HANDLE_H
#define GPUIPC_TEST_RUNTIME_HANDLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/** How many words the memory has that goes to the other process. */
#define RUNTIME_WORDS 50000

/** @param text has room for 2 * size + 1 */
static inline void handle_write(char *text, const void *handle, size_t size) {
    for (size_t i = 0; i < size; i++) {
        snprintf(text + 2 * i, 3, "%02x", ((const unsigned char *)handle)[i]);
    }
}

static inline void handle_read(const char *text, void *handle, size_t size) {
    for (size_t i = 0; i < size; i++) {
        const char digits[3] = {text[2 * i], text[2 * i] == '\0' ? '\0' : text[2 * i + 1], '\0'};
        ((unsigned char *)handle)[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
}

#endif
