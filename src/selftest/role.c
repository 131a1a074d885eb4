/* SPDX-License-Identifier: MIT */
/** @file See role.h. */
#include "role.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "child.h"
#include "program.h"
#include "watchdog.h"
#include "wrap.h"

#define FAILED "failed"

/* How soon an interrupt ends a wait for somebody who has not come yet. */
#define PART_MS 200

/* A step waits for the other program a few times, each for the time-out at most. */
#define STEP_WAITS 5

int role_begin(role *self, const options *wanted, const char *other) {
    char text[ROLE_LINE_MAX];
    *self = (role){.options = wanted, .other = other, .receive_device = GPUIPC_DEVICE_OWNER};
    if (wanted->parent != 0 && !child_bind_to(wanted->parent)) {
        wrap_complain("the program that started this one is gone");
        return EXIT_FAIL;
    }
    watchdog_expect("starting the driver", STEP_WAITS * wanted->timeout_ms);
    int code = session_open(wanted, &self->session);
    if (code == EXIT_PASS) {
        session_describe(&self->session, text, sizeof(text));
        role_step(self, "%s", text);
    }
    return code;
}

void role_end(role *self) {
    (void)gpuipc_connection_close(self->connection);
    session_close(&self->session);
}

void role_step(const role *self, const char *format, ...) {
    char text[ROLE_LINE_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    wrap_say("%s%s\n", self->options->parent != 0 ? ROLE_STEP : "", text);
    watchdog_expect(text, STEP_WAITS * self->options->timeout_ms);
}

void role_note(const role *self, const char *format, ...) {
    va_list arguments;
    if (self->options->parent != 0) {
        va_start(arguments, format);
        (void)fputs(ROLE_NOTE, stdout);
        (void)vprintf(format, arguments);
        (void)fputc('\n', stdout);
        va_end(arguments);
    }
}

bool role_fail(role *self, const char *format, ...) {
    va_list arguments;
    if (self->failure[0] == '\0') {
        va_start(arguments, format);
        (void)vsnprintf(self->failure, sizeof(self->failure), format, arguments);
        va_end(arguments);
    }
    return false;
}

bool role_check(role *self, gpuipc_status status, const char *what) {
    if (status == GPUIPC_OK) {
        return true;
    }
    return role_fail(self, "%s: %s", what, gpuipc_error_text());
}

int role_part_ms(os_deadline deadline) {
    const int left_ms = os_deadline_left_ms(deadline);
    return left_ms < PART_MS ? left_ms : PART_MS;
}

bool role_waits_on(gpuipc_status status, os_deadline deadline) {
    return (status == GPUIPC_ERR_TIMEOUT || status == GPUIPC_ERR_NOT_FOUND) &&
           !os_deadline_passed(deadline) && !program_is_interrupted();
}

static gpuipc_status send_line(role *self, const char *line, gpuipc_buffer *buffer) {
    gpuipc_outgoing message = {.struct_size = sizeof(message),
                               .bytes = line,
                               .bytes_size = strlen(line),
                               .buffers = &buffer,
                               .buffer_count = buffer == NULL ? 0 : 1};
    return gpuipc_connection_send(self->connection, &message, self->options->timeout_ms);
}

bool role_say(role *self, gpuipc_buffer *buffer, const char *format, ...) {
    char line[ROLE_LINE_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    return role_check(self, send_line(self, line, buffer), "sending to the other program");
}

void role_say_failed(role *self) {
    char line[ROLE_LINE_MAX];
    if (self->connection != NULL) {
        (void)snprintf(line, sizeof(line), FAILED " %s", self->failure);
        (void)send_line(self, line, NULL); /* it may be the connection that failed */
    }
}

bool role_begins_with(const char *line, const char *word) {
    size_t length = strlen(word);
    return strncmp(line, word, length) == 0 && (line[length] == ' ' || line[length] == '\0');
}

const char *role_hear(role *self, const char *word, char line[ROLE_LINE_MAX],
                      gpuipc_buffer **out_buffer) {
    gpuipc_buffer *buffer = NULL;
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes = line,
                               .bytes_capacity = ROLE_LINE_MAX - 1,
                               .buffers = out_buffer == NULL ? NULL : &buffer,
                               .buffer_capacity = out_buffer == NULL ? 0 : 1,
                               .device = self->receive_device};
    gpuipc_status status =
        gpuipc_connection_receive(self->connection, &message, self->options->timeout_ms);
    self->heard_at_ns = os_clock_ns();
    if (!role_check(self, status, "waiting for the other program")) {
        return NULL;
    }
    line[message.bytes_size] = '\0';
    if (strncmp(line, FAILED " ", strlen(FAILED " ")) == 0) {
        role_fail(self, "%s: %s", self->other, line + strlen(FAILED " "));
        goto release;
    }
    if (word != NULL && !role_begins_with(line, word)) {
        role_fail(self, "the %s said \"%.60s\" where \"%s\" was expected", self->other, line, word);
        goto release;
    }
    if (out_buffer != NULL) {
        *out_buffer = buffer;
    }
    return line + (word == NULL ? 0 : strlen(word));

release:
    (void)gpuipc_buffer_release(buffer);
    return NULL;
}
