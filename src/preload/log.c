/* SPDX-License-Identifier: MIT */
/** @file See log.h. */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOG_VARIABLE   "GPUIPC_PRELOAD_LOG"
#define STATS_VARIABLE "GPUIPC_PRELOAD_STATS"

static atomic_ullong counts[LOG_COUNTER_COUNT];

static const char *const texts[] = {
#define LOG_TEXT(counter, text) text,
    LOG_COUNTER_LIST(LOG_TEXT)
#undef LOG_TEXT
};

void log_count(log_counter counter) {
    atomic_fetch_add_explicit(&counts[counter], 1, memory_order_relaxed);
}

static struct {
    pthread_once_t once;
    int file; /* -1: none */
} log_to = {PTHREAD_ONCE_INIT, -1};

/* One write, so that lines of several threads and processes stay whole. errno is the caller's. */
static void write_line(int file, const char *format, va_list arguments) {
    char line[768];
    struct timespec now;
    struct tm parts;
    const int error = errno;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t length = strftime(line, sizeof(line), "%FT%T", &parts);
    length +=
        (size_t)snprintf(line + length, sizeof(line) - length,
                         ".%03ldZ %ld gpuipc-preload: ", now.tv_nsec / 1000000, (long)getpid());
    const int written = vsnprintf(line + length, sizeof(line) - length - 1, format, arguments);
    if (written > 0) {
        length += (size_t)written;
    }
    if (length > sizeof(line) - 2) {
        length = sizeof(line) - 2;
    }
    line[length++] = '\n';
    if (write(file, line, length) < 0) {
        errno = error; /* there is nobody to tell */
    }
    errno = error;
}

GPUIPC_PRINTF(1, 2) static void write_error(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    write_line(STDERR_FILENO, format, arguments);
    va_end(arguments);
}

/* The file stays open, closed on exec; several processes append to one. A program that only runs fast would not say that
 * nothing is written. */
static void open_file(void) {
    const char *path = secure_getenv(LOG_VARIABLE);
    const int error = errno;
    if (path == NULL || path[0] == '\0') {
        return;
    }
    log_to.file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_to.file < 0) {
        char text[128];
        write_error("%s=%.400s cannot be written: %s; warnings go to standard error", LOG_VARIABLE,
                    path, strerror_r(errno, text, sizeof(text)));
    }
    errno = error;
}

void log_line(const char *format, ...) {
    pthread_once(&log_to.once, open_file);
    if (log_to.file >= 0) {
        va_list arguments;
        va_start(arguments, format);
        write_line(log_to.file, format, arguments);
        va_end(arguments);
    }
}

void log_warning(const char *format, ...) {
    va_list arguments;
    pthread_once(&log_to.once, open_file);
    va_start(arguments, format);
    write_line(log_to.file >= 0 ? log_to.file : STDERR_FILENO, format, arguments);
    va_end(arguments);
}

/* The counters, when a process ends in which there is something to tell. */
__attribute__((destructor)) static void write_counters(void) {
    const char *wanted = secure_getenv(STATS_VARIABLE);
    if (wanted == NULL || strcmp(wanted, "1") != 0 ||
        atomic_load(&counts[COUNT_LOOK_UPS]) + atomic_load(&counts[COUNT_WHOLE]) +
                atomic_load(&counts[COUNT_PIECES]) + atomic_load(&counts[COUNT_PASSED]) ==
            0) {
        return;
    }
    for (size_t i = 0; i < LOG_COUNTER_COUNT; i++) {
        log_warning("%s: %llu", texts[i], atomic_load(&counts[i]));
    }
}
