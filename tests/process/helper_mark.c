/* SPDX-License-Identifier: MIT */
/** @file The helper's commands about marks and loans, all of its first buffer and on its default stream. */
#include <stdio.h>
#include <string.h>

#include "helper.h"
#include "helper_commands.h"

static void say(gpuipc_status status, const gpuipc_mark *made) {
    char text[2 * sizeof(*made) + 1];
    if (status != GPUIPC_OK) {
        helper_say_status(status);
        return;
    }
    for (size_t i = 0; i < sizeof(*made); i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", made->bytes[i]);
    }
    helper_say("GPUIPC_OK %s", text);
}

static gpuipc_mark read_mark(const char *arguments) {
    gpuipc_mark read = {{0}};
    for (size_t i = 0; i < sizeof(read); i++) {
        unsigned byte = 0;
        (void)sscanf(arguments + 1 + 2 * i, "%2x", &byte);
        read.bytes[i] = (uint8_t)byte;
    }
    return read;
}

/* mark: says its bytes */
static void make_mark(helper_state *self, const char *arguments) {
    gpuipc_mark made;
    (void)arguments;
    const gpuipc_status status = gpuipc_buffer_mark(self->buffers[0], NULL, &made);
    say(status, &made);
}

/* lend: says its bytes */
static void lend(helper_state *self, const char *arguments) {
    gpuipc_mark made;
    (void)arguments;
    const gpuipc_status status = gpuipc_buffer_lend(self->buffers[0], NULL, &made);
    say(status, &made);
}

/* take BYTES */
static void take(helper_state *self, const char *arguments) {
    const gpuipc_mark loan = read_mark(arguments);
    helper_say_status(gpuipc_buffer_take_loan(self->buffers[0], &loan));
}

/* give BYTES: back, at once */
static void give(helper_state *self, const char *arguments) {
    const gpuipc_mark loan = read_mark(arguments);
    helper_say_status(gpuipc_buffer_return_loan(self->buffers[0], &loan));
}

/* give_async BYTES: back, on the stream */
static void give_async(helper_state *self, const char *arguments) {
    const gpuipc_mark loan = read_mark(arguments);
    helper_say_status(gpuipc_buffer_return_loan_async(self->buffers[0], &loan, NULL));
}

const helper_command helper_mark_commands[] = {
    {"mark", make_mark},        {"lend", lend}, {"take", take}, {"give", give},
    {"give_async", give_async}, {NULL, NULL}};
