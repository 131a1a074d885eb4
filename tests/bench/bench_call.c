/* SPDX-License-Identifier: MIT */
/** @file See bench_call.h. */
#include "bench_call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulated.h"

#define DEVICES_MAX 64

driver bench_driver;

void bench_driver_open(void) {
    const char *choice = os_environment("GPUIPC_CUDA_DRIVER");
    bench_check(driver_open(choice == NULL || choice[0] == '\0' ? "auto" : choice, &bench_driver),
                "the driver");
}

void bench_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fputc('\n', stderr);
    exit(1);
}

void bench_check(gpuipc_status status, const char *what) {
    if (status != GPUIPC_OK) {
        bench_fail("%s: %s, %s", what, gpuipc_status_name(status), gpuipc_error_get()->sentence);
    }
}

void bench_check_cuda(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        bench_fail("%s: CUresult %d", what, (int)result);
    }
}

uint64_t bench_driver_calls(const char *name) {
    gpuipc_emulated_calls_fn count = NULL;
    void *symbol = os_library_symbol(bench_driver.library, GPUIPC_EMULATED_CALLS);
    if (symbol == NULL) {
        return 0;
    }
    memcpy(&count, &symbol, sizeof(count));
    return count(name);
}

/* The sizes behind a word that begins lines such as "mapping 0x800000000023 size 2097152". */
static uint64_t sum_sizes(const char *text, const char *kind) {
    uint64_t sum = 0;
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *size = strstr(line, " size ");
        if (strncmp(line, kind, strlen(kind)) == 0 && size != NULL) {
            sum += strtoull(size + strlen(" size "), NULL, 10);
        }
    }
    return sum;
}

/* What this process has of the driver. NULL: it does not tell. */
static char *list_live(void) {
    gpuipc_emulated_list_live_fn list = NULL;
    void *symbol = os_library_symbol(bench_driver.library, GPUIPC_EMULATED_LIST_LIVE);
    if (symbol == NULL) {
        return NULL;
    }
    memcpy(&list, &symbol, sizeof(list));
    const size_t size = list(NULL, 0) + 1;
    char *text = malloc(size);
    if (text == NULL) {
        bench_fail("no memory for a list of %zu bytes", size);
    }
    (void)list(text, size);
    return text;
}

bool bench_address_space(uint64_t *out_reserved, uint64_t *out_mapped) {
    char *text = list_live();
    if (text == NULL) {
        return false;
    }
    *out_reserved = sum_sizes(text, "reservation ");
    *out_mapped = sum_sizes(text, "mapping ");
    free(text);
    return true;
}

void bench_check_nothing_kept(void) {
    char *text = list_live();
    if (text == NULL) {
        return;
    }
    if (sum_sizes(text, "allocation ") + sum_sizes(text, "reservation ") != 0) {
        bench_fail("memory is left where nothing should be kept:\n%s", text);
    }
    free(text);
}

void bench_enter(int ordinal) {
    static CUcontext retained[DEVICES_MAX]; /* until the program ends */
    if (ordinal < 0 || ordinal >= DEVICES_MAX) {
        bench_fail("there is no device %d", ordinal);
    }
    if (retained[ordinal] == NULL) {
        bench_check_cuda(bench_driver.cuDevicePrimaryCtxRetain(&retained[ordinal], ordinal),
                         "a context");
    }
    bench_check_cuda(bench_driver.cuCtxSetCurrent(retained[ordinal]), "a context");
}
