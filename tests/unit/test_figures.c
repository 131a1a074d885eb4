/* SPDX-License-Identifier: MIT */
/** @file Measurements kept in files: what is written is read, and nothing else is believed. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "query/figures.h"
#include "transport_machine.h"

TestSuite(figures, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

static const gpuipc_measurement some = {.struct_size = sizeof(some),
                                        .bytes = 268435456,
                                        .one_way_bytes_per_second = UINT64_C(395123456789),
                                        .both_ways_bytes_per_second = UINT64_C(740123456789),
                                        .latency_ns = 2345};

static const char text_of_some[] = "gpuipc figures 1\n"
                                   "bytes 268435456\n"
                                   "one_way 395123456789\n"
                                   "both_ways 740123456789\n"
                                   "latency 2345\n";

Test(figures, the_text_is_fixed) {
    char text[FIGURES_TEXT_MAX];
    const size_t length = figures_write_text(&some, text);
    cr_assert_eq(length, sizeof(text_of_some) - 1);
    cr_assert_str_eq(text, text_of_some);
    gpuipc_measurement read;
    cr_assert(figures_read_text(text, length, &read));
    cr_assert_eq(memcmp(&read, &some, sizeof(read)), 0);
}

Test(figures, the_largest_numbers_fit) {
    const gpuipc_measurement largest = {.bytes = UINT64_MAX,
                                        .one_way_bytes_per_second = UINT64_MAX,
                                        .both_ways_bytes_per_second = UINT64_MAX,
                                        .latency_ns = UINT64_MAX};
    char text[FIGURES_TEXT_MAX];
    gpuipc_measurement read;
    const size_t length = figures_write_text(&largest, text);
    cr_assert_eq(length, strlen(text));
    cr_assert_not(figures_read_text(text, length, &read));
}

Test(figures, every_other_text_is_no_measurement) {
    static const char *const wrong[] = {
        "",
        "gpuipc figures 1\n",
        "gpuipc figures 2\nbytes 1\none_way 1\nboth_ways 0\nlatency 1\n",
        "gpuipc figures 1\nbytes 1\none_way 1\nboth_ways 0\nlatency 1",
        "gpuipc figures 1\nbytes 1\none_way 1\nboth_ways 0\nlatency 1\n\n",
        "gpuipc figures 1\nbytes 1\none_way 1\nboth_ways 0\nlatency 0\n",
        "gpuipc figures 1\nbytes 0\none_way 1\nboth_ways 0\nlatency 1\n",
        "gpuipc figures 1\nbytes 1\none_way 0\nboth_ways 0\nlatency 1\n",
        "gpuipc figures 1\nbytes 1\none_way -1\nboth_ways 0\nlatency 1\n",
        "gpuipc figures 1\nbytes 1\none_way 01\nboth_ways 0\nlatency 1\n",
        "gpuipc figures 1\nbytes 1\none_way  1\nboth_ways 0\nlatency 1\n",
        "gpuipc figures 1\nbytes 1\none_way 1.5\nboth_ways 0\nlatency 1\n",
        "gpuipc figures 1\nbytes 1\none_way\nboth_ways 0\nlatency 1\n",
        "gpuipc figures 1\nbytes 1\nboth_ways 0\none_way 1\nlatency 1\n",
        "gpuipc figures 1\nbytes 1\none_way 99999999999999999999\nboth_ways 0\nlatency 1\n",
        "gpuipc figures 1\nbytes 1\none_way 1125899906842625\nboth_ways 0\nlatency 1\n",
        "gpuipc figures 1\nbytes 1\none_way 1\nboth_ways 0\nlatency 1000000001\n",
    };
    gpuipc_measurement read;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_assert_not(figures_read_text(wrong[i], strlen(wrong[i]), &read), "%s", wrong[i]);
    }
    for (size_t length = 0; length < sizeof(text_of_some) - 1; length++) {
        cr_assert_not(figures_read_text(text_of_some, length, &read), "%zu bytes", length);
    }
    cr_assert_not(figures_read_text(text_of_some, sizeof(text_of_some), &read), "a zero behind it");
    char flipped[sizeof(text_of_some)];
    for (size_t i = 0; i < sizeof(text_of_some) - 1; i++) {
        memcpy(flipped, text_of_some, sizeof(flipped));
        flipped[i] ^= 0x40;
        cr_assert_not(figures_read_text(flipped, sizeof(flipped) - 1, &read), "byte %zu", i);
    }
}

/* A context that keeps measurements, as one on a real driver does. */
static context *keeping(gpuipc_context *made) {
    context *ctx;
    check_ok(context_acquire(made, &ctx));
    cr_assert_null(ctx->cache_directory, "the emulated driver has a cache");
    machine_keep(made, core_directory);
    return ctx;
}

static figures_key key_of(const context *ctx, gpuipc_transport which, uint32_t owner,
                          uint32_t user) {
    return (figures_key){which, ctx->devices[owner].info.uuid, ctx->devices[user].info.uuid};
}

Test(figures, they_are_kept_by_pair_driver_and_transport) {
    gpuipc_context *made = machine_context("");
    context *ctx = keeping(made);
    const figures_key key = key_of(ctx, GPUIPC_TRANSPORT_VMM, 0, 1);
    const figures_key other_way = key_of(ctx, GPUIPC_TRANSPORT_VMM, 1, 0);
    const figures_key other_transport = key_of(ctx, GPUIPC_TRANSPORT_LEGACY, 0, 1);
    gpuipc_measurement read = {.struct_size = 0};
    cr_assert_not(figures_load(ctx, &key, &read));
    figures_store(ctx, &key, &some);
    cr_assert(figures_load(ctx, &key, &read));
    cr_assert_eq(memcmp(&read, &some, sizeof(read)), 0);
    cr_assert_not(figures_load(ctx, &other_way, &read));
    cr_assert_not(figures_load(ctx, &other_transport, &read));
    ctx->driver.version++;
    cr_assert_not(figures_load(ctx, &key, &read));
    ctx->driver.version--;
    gpuipc_measurement absurd = some; /* as somebody else may have written */
    absurd.latency_ns = UINT64_MAX;
    figures_store(ctx, &key, &absurd);
    cr_assert_not(figures_load(ctx, &key, &read));
    context_unreference(ctx);
    check_ok(gpuipc_context_destroy(made));
}

Test(figures, a_later_context_answers_with_them) {
    gpuipc_context *made = machine_context("");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    context *ctx = keeping(made);
    const figures_key key = key_of(ctx, GPUIPC_TRANSPORT_VMM, 0, 1);
    figures_store(ctx, &key, &some);
    const gpuipc_transport_info info = machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair);
    cr_assert_eq(info.bandwidth_source, GPUIPC_FIGURE_MEASURED);
    cr_assert_eq(info.latency_source, GPUIPC_FIGURE_MEASURED);
    cr_assert_eq(info.bandwidth_bytes_per_second, some.one_way_bytes_per_second);
    cr_assert_eq(info.latency_ns, some.latency_ns);
    context_unreference(ctx);
    check_ok(gpuipc_context_destroy(made));
}

Test(figures, of_a_device_that_is_not_seen_are_found_too) {
    gpuipc_context *made = machine_context("");
    context *ctx = keeping(made);
    gpuipc_transport_pair pair = machine_pair(GPUIPC_DEVICE_NONE, 1);
    memset(pair.owner_uuid.bytes, 0x5A, sizeof(pair.owner_uuid.bytes));
    const figures_key key = {GPUIPC_TRANSPORT_VMM, pair.owner_uuid, ctx->devices[1].info.uuid};
    figures_store(ctx, &key, &some);
    const gpuipc_transport_info info = machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair);
    cr_assert_eq(info.bandwidth_source, GPUIPC_FIGURE_MEASURED);
    context_unreference(ctx);
    check_ok(gpuipc_context_destroy(made));
}

static unsigned warnings;

static void count_warnings(void *user_data, gpuipc_log_level level, const char *sentence) {
    (void)user_data;
    (void)sentence;
    warnings += level == GPUIPC_LOG_WARNING;
}

Test(figures, a_place_that_cannot_be_written_is_told_to_the_log_alone) {
    gpuipc_context *made = machine_context("");
    context *ctx = keeping(made);
    const figures_key key = key_of(ctx, GPUIPC_TRANSPORT_VMM, 0, 1);
    gpuipc_measurement read;
    char below[RUNTIME_DIRECTORY_MAX + 16];
    check_ok(os_file_replace(core_directory, "file", "x", 1));
    (void)snprintf(below, sizeof(below), "%s/file/below", core_directory);
    machine_keep(made, below);
    ctx->config.log = count_warnings;
    check_status(GPUIPC_ERR_TIMEOUT, status_fail(GPUIPC_ERR_TIMEOUT, "earlier"));
    figures_store(ctx, &key, &some);
    cr_assert_eq(warnings, 1);
    cr_assert_not(figures_load(ctx, &key, &read));
    cr_assert_eq(gpuipc_error_get()->status, GPUIPC_ERR_TIMEOUT, "the record was overwritten");
    context_unreference(ctx);
    check_ok(gpuipc_context_destroy(made));
}

Test(figures, the_emulated_driver_writes_none) {
    gpuipc_context *made = machine_context("");
    const gpuipc_transport_pair pair = machine_pair(0, 1);
    gpuipc_measurement measured = {.struct_size = sizeof(measured)};
    context *ctx;
    core_environment_set("XDG_CACHE_HOME", core_directory);
    core_environment_set("LOCALAPPDATA", core_directory);
    gpuipc_context *other = core_context_new();
    check_ok(context_acquire(other, &ctx));
    cr_assert_null(ctx->cache_directory);
    context_unreference(ctx);
    check_ok(gpuipc_transport_measure(other, GPUIPC_TRANSPORT_VMM, &pair, &measured));
    /* Another context of the same process knows nothing of it. */
    cr_assert_eq(machine_ask(made, GPUIPC_TRANSPORT_VMM, &pair).bandwidth_source,
                 GPUIPC_FIGURE_ESTIMATED);
    check_ok(gpuipc_context_destroy(other));
    check_ok(gpuipc_context_destroy(made));
}
