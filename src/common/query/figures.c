/* SPDX-License-Identifier: MIT */
/** @file See figures.h. */
#include "query/figures.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FIRST_LINE "gpuipc figures 1\n"

/* Far above any hardware, and far below what overflows when figures are added: bytes of a copy, bytes per
 * second, nanoseconds. */
#define BYTES_MAX     (UINT64_C(1) << 40)
#define BANDWIDTH_MAX (UINT64_C(1) << 50)
#define LATENCY_MAX   UINT64_C(1000000000)

/* Two UUIDs, a version and a transport. */
#define FILE_NAME_MAX 128

static void write_uuid(const gpuipc_uuid *uuid, char text[33]) {
    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", uuid->bytes[i]);
    }
}

static void write_name(const context *ctx, const figures_key *key, char name[FILE_NAME_MAX]) {
    char owner[33];
    char user[33];
    write_uuid(&key->owner, owner);
    write_uuid(&key->user, user);
    (void)snprintf(name, FILE_NAME_MAX, "%s-%s-%d-%s.txt", owner, user, ctx->driver.version,
                   gpuipc_transport_name(key->transport));
}

size_t figures_write_text(const gpuipc_measurement *measured, char text[FIGURES_TEXT_MAX]) {
    int length = snprintf(text, FIGURES_TEXT_MAX,
                          FIRST_LINE "bytes %" PRIu64 "\none_way %" PRIu64 "\nboth_ways %" PRIu64
                                     "\nlatency %" PRIu64 "\n",
                          measured->bytes, measured->one_way_bytes_per_second,
                          measured->both_ways_bytes_per_second, measured->latency_ns);
    return (size_t)length; /* four numbers of 20 digits at most: it fits */
}

/* A number behind "word ", in digits, and the end of its line. */
static bool take(const char **at, const char *word, uint64_t least, uint64_t most, uint64_t *out) {
    const size_t length = strlen(word);
    uint64_t value = 0;
    if (strncmp(*at, word, length) != 0) {
        return false;
    }
    for (*at += length; **at >= '0' && **at <= '9'; (*at)++) {
        value = value * 10 + (uint64_t)(**at - '0');
        if (value > most) {
            return false;
        }
    }
    if (*(*at)++ != '\n' || value < least) {
        return false;
    }
    *out = value;
    return true;
}

bool figures_read_text(const char *text, size_t length, gpuipc_measurement *out_measured) {
    gpuipc_measurement measured = {.struct_size = sizeof(measured)};
    char given[FIGURES_TEXT_MAX];
    char again[FIGURES_TEXT_MAX];
    const char *at = given;
    if (length >= sizeof(given)) {
        return false;
    }
    memcpy(given, text, length);
    given[length] = '\0';
    if (strncmp(at, FIRST_LINE, sizeof(FIRST_LINE) - 1) != 0) {
        return false;
    }
    at += sizeof(FIRST_LINE) - 1;
    if (!take(&at, "bytes ", 1, BYTES_MAX, &measured.bytes) ||
        !take(&at, "one_way ", 1, BANDWIDTH_MAX, &measured.one_way_bytes_per_second) ||
        !take(&at, "both_ways ", 0, BANDWIDTH_MAX, &measured.both_ways_bytes_per_second) ||
        !take(&at, "latency ", 1, LATENCY_MAX, &measured.latency_ns)) {
        return false;
    }
    /* Other spellings of the same numbers, and anything behind them, were not written here. */
    if (figures_write_text(&measured, again) != length || memcmp(again, given, length) != 0) {
        return false;
    }
    *out_measured = measured;
    return true;
}

bool figures_load(const context *ctx, const figures_key *key, gpuipc_measurement *out_measured) {
    char name[FILE_NAME_MAX];
    char text[FIGURES_TEXT_MAX];
    size_t length = 0;
    if (ctx->cache_directory == NULL) {
        return false;
    }
    write_name(ctx, key, name);
    gpuipc_error saved = status_save();
    gpuipc_status status = os_file_read(ctx->cache_directory, name, text, sizeof(text), &length);
    status_restore(&saved);
    return status == GPUIPC_OK && figures_read_text(text, length, out_measured);
}

void figures_store(const context *ctx, const figures_key *key, const gpuipc_measurement *measured) {
    char name[FILE_NAME_MAX];
    char text[FIGURES_TEXT_MAX];
    if (ctx->cache_directory == NULL) {
        return;
    }
    write_name(ctx, key, name);
    const size_t length = figures_write_text(measured, text);
    gpuipc_error saved = status_save();
    if (os_file_replace(ctx->cache_directory, name, text, length) != GPUIPC_OK) {
        context_log(ctx, GPUIPC_LOG_WARNING, "the measurement is not kept for other programs: %s",
                    gpuipc_error_get()->sentence);
    }
    status_restore(&saved);
}

void figures_apply(const gpuipc_measurement *measured, gpuipc_transport_info *info) {
    info->bandwidth_source = GPUIPC_FIGURE_MEASURED;
    info->latency_source = GPUIPC_FIGURE_MEASURED;
    info->bandwidth_bytes_per_second = measured->one_way_bytes_per_second;
    info->latency_ns = measured->latency_ns;
}
