/* SPDX-License-Identifier: MIT */
/** @file See partner.h. */
#include "partner.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

#define FLAGS_MAX 4

void partner_start(partner *self, const process_case *in, const char *const *flags,
                   const char *const *environment) {
    const char *arguments[FLAGS_MAX + 2] = {in->directory};
    *self = (partner){0};
    for (size_t i = 0; flags != NULL && flags[i] != NULL; i++) {
        cr_assert_lt(i, FLAGS_MAX);
        arguments[i + 1] = flags[i];
    }
    check_ok(child_start("process_helper", arguments, environment, &self->process));
    partner_hear(self, "GPUIPC_OK");
}

static void tell(partner *self, const char *format, va_list arguments) {
    char line[256];
    (void)vsnprintf(line, sizeof(line), format, arguments);
    check_ok(child_write_line(self->process, line));
}

void partner_tell(partner *self, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tell(self, format, arguments);
    va_end(arguments);
}

void partner_hear(partner *self, const char *expected) {
    check_ok(child_read_line(self->process, self->answer, sizeof(self->answer), PATIENCE_MS));
    cr_assert_eq(strncmp(self->answer, expected, strlen(expected)), 0,
                 "the partner said \"%s\", not \"%s...\"", self->answer, expected);
}

void partner_do(partner *self, const char *expected, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tell(self, format, arguments);
    va_end(arguments);
    check_ok(child_read_line(self->process, self->answer, sizeof(self->answer), PATIENCE_MS));
    cr_assert_eq(strncmp(self->answer, expected, strlen(expected)), 0,
                 "to \"%s\" the partner said \"%s\", not \"%s...\"", format, self->answer,
                 expected);
}

gpuipc_mark partner_mark(partner *self, const char *command) {
    const size_t text = strlen("GPUIPC_OK ");
    gpuipc_mark made;
    partner_do(self, "GPUIPC_OK ", "%s", command);
    for (size_t i = 0; i < sizeof(made); i++) {
        unsigned byte;
        cr_assert_eq(sscanf(self->answer + text + 2 * i, "%2x", &byte), 1);
        made.bytes[i] = (uint8_t)byte;
    }
    return made;
}

void partner_do_mark(partner *self, const char *expected, const char *command,
                     const gpuipc_mark *of) {
    char text[2 * sizeof(*of) + 1];
    for (size_t i = 0; i < sizeof(*of); i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", of->bytes[i]);
    }
    partner_do(self, expected, "%s %s", command, text);
}

void partner_kill(partner *self) {
    child_kill(self->process);
    check_ok(child_wait(self->process, PATIENCE_MS, NULL));
    child_destroy(self->process);
    self->process = NULL;
}

void partner_end(partner *self) {
    child_end end;
    child_close_input(self->process);
    check_ok(child_wait(self->process, PATIENCE_MS, &end));
    cr_assert(end.exited, "the partner was ended by signal or exception 0x%x", (unsigned)end.code);
    cr_assert_eq(end.code, 0, "the partner ended with exit code %d", end.code);
    child_destroy(self->process);
    self->process = NULL;
}
