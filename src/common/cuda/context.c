/* SPDX-License-Identifier: MIT */
/** @file See context.h. */
#include "cuda/context.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

gpuipc_status context_acquire(gpuipc_context *handle, context **out_context) {
    object *base;
    gpuipc_status status = object_acquire(OBJECT_CONTEXT, handle, &base);
    if (status == GPUIPC_OK) {
        *out_context = (context *)base;
    }
    return status;
}

void context_unreference(context *self) {
    if (self != NULL) {
        object_unreference(&self->object);
    }
}

os_deadline context_interruptible(const context *self, os_deadline deadline,
                                  os_interrupt *interrupt) {
    *interrupt = (os_interrupt){.wakes = &self->wakes, .seen = atomic_load(&self->wakes_answered)};
    if (self->is_interruptible) {
        os_signal_forget();
        deadline.interrupt = interrupt;
    }
    return deadline;
}

os_deadline time_limit_deadline(time_limit *self) {
    if (!self->has_begun) {
        self->deadline = context_interruptible(self->context, os_deadline_after(self->timeout_ms),
                                               &self->interrupt);
        self->has_begun = true;
    }
    return self->deadline;
}

/* Whoever waits at a time is woken by the same wakes, and who begins later by none of them. */
static void note_answered(context *self, unsigned wakes) {
    unsigned answered = atomic_load(&self->wakes_answered);
    while (answered - wakes > UINT_MAX / 2 &&
           !atomic_compare_exchange_weak(&self->wakes_answered, &answered, wakes)) {
    }
}

gpuipc_status context_answer_interrupted(context *self, gpuipc_status status) {
    if (status != GPUIPC_ERR_TIMEOUT && status != GPUIPC_ERR_NOT_FOUND) {
        return status;
    }
    note_answered(self, atomic_load(&self->wakes));
    return status_fail(GPUIPC_ERR_INTERRUPTED,
                       "a signal handler ran while it waited, or gpuipc_context_wake() was called");
}

gpuipc_status gpuipc_context_wake(gpuipc_context *handle) {
    status_enter(__func__);
    context *self;
    gpuipc_status status = context_acquire(handle, &self);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (self->is_interruptible) {
        atomic_fetch_add(&self->wakes, 1u);
    } else {
        status = status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                             "the context was made without GPUIPC_CONTEXT_INTERRUPTIBLE");
    }
    context_unreference(self);
    return status;
}

os_directory context_directory(const context *self) {
    /* NULL: each call finds it again, and has the reason for its own record. */
    return (os_directory){.path = self->directory_is_refused ? NULL : self->runtime_directory,
                          .shared = self->shared_directory};
}

/* CUDA programming guide, "CUDA Environment Variables": 1 to 32 connections from the host to each device. */
bool context_has_one_connection(void) {
    const char *value = os_environment("CUDA_DEVICE_MAX_CONNECTIONS");
    return value != NULL && strcmp(value, "1") == 0;
}

static void write_log(const context *self, gpuipc_log_level level, const char *format,
                      va_list arguments) {
    char sentence[512];
    (void)vsnprintf(sentence, sizeof(sentence), format, arguments);
    /* A callback that calls the library all the same changes nothing of this call. */
    const char *const call = status_call();
    const gpuipc_error why = status_save();
    self->config.log(self->config.log_user_data, level, sentence);
    status_restore(&why);
    status_enter(call);
}

void context_log(const context *self, gpuipc_log_level level, const char *format, ...) {
    va_list arguments;
    if (self->config.log != NULL) {
        va_start(arguments, format);
        write_log(self, level, format, arguments);
        va_end(arguments);
    }
}

static void log_left_out(const context *self, uint64_t count) {
    if (count > 0) {
        context_log(self, GPUIPC_LOG_WARNING,
                    "left out %" PRIu64 " sentences about other processes; %u are said in a second",
                    count, LOG_RATE_MOST);
    }
}

void context_log_peer(context *self, const char *format, ...) {
    va_list arguments;
    uint64_t left_out;
    if (self->config.log == NULL) {
        return;
    }
    const bool is_said = log_rate_admit(&self->peer_log, os_clock_ns(), &left_out);
    log_left_out(self, left_out);
    if (is_said) {
        va_start(arguments, format);
        write_log(self, GPUIPC_LOG_WARNING, format, arguments);
        va_end(arguments);
    }
}

void context_log_settle(context *self) {
    log_left_out(self, log_rate_settle(&self->peer_log));
}
