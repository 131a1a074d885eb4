/* SPDX-License-Identifier: MIT */
/** @file Trials of transports: data that does not arrive is noticed, and every call of the driver fails in
 *  turn: there is always a reason, and nothing is left behind. */
#include <stdio.h>
#include <string.h>

#include "leak_gate.h"
#include "query/transport_probe.h"
#include "transport_machine.h"

TestSuite(transport_probe, .init = core_start_without_context, .fini = core_finish, .timeout = 100);

static const gpuipc_transport every[] = {GPUIPC_TRANSPORT_VMM,    GPUIPC_TRANSPORT_POOL,
                                         GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_P2P,
                                         GPUIPC_TRANSPORT_HOST,   GPUIPC_TRANSPORT_FABRIC};
#define EVERY (sizeof(every) / sizeof(every[0]))

static transport_answer probe_once(gpuipc_context *handle, gpuipc_transport which, uint32_t owner,
                                   uint32_t user) {
    transport_answer answer = {.reason = GPUIPC_REASON_NONE};
    context *ctx;
    check_ok(context_acquire(handle, &ctx));
    check_ok(transport_probe(ctx, which, owner, user, &answer));
    context_unreference(ctx);
    return answer;
}

/* To free memory waits for the devices, so a trial leaves it for calls that may. */
static void end_what_is_deferred(gpuipc_context *handle) {
    context *ctx;
    check_ok(context_acquire(handle, &ctx));
    (void)deferred_run(ctx->deferred);
    cr_assert(deferred_is_empty(ctx->deferred));
    context_unreference(ctx);
}

/* ---- patterns ----------------------------------------------------------------------------- */

#define WORDS (2 * PROBE_STRIPE_BYTES / sizeof(uint32_t))

Test(transport_probe, a_pattern_is_compared_word_by_word) {
    static uint32_t words[WORDS];
    for (size_t i = 0; i < WORDS; i++) {
        words[i] = probe_pattern_word(i, 7);
    }
    cr_assert_eq(probe_pattern_compare(words, WORDS, 0, 7), WORDS);
    cr_assert_eq(probe_pattern_compare(words, WORDS, 0, 8), 0, "another seed");
    cr_assert_eq(probe_pattern_compare(words, WORDS, WORDS, 7), 0, "another place");
    cr_assert_eq(probe_pattern_compare(words + 5, WORDS - 5, 5, 7), WORDS - 5);
    for (size_t i = 0; i < WORDS; i += WORDS / 7) {
        for (unsigned bit = 0; bit < 32; bit += 8) {
            words[i] ^= UINT32_C(1) << bit;
            cr_assert_eq(probe_pattern_compare(words, WORDS, 0, 7), i);
            words[i] ^= UINT32_C(1) << bit;
        }
    }
    words[WORDS - 1]++;
    cr_assert_eq(probe_pattern_compare(words, WORDS, 0, 7), WORDS - 1);
}

Test(transport_probe, no_two_stripes_and_no_two_seeds_have_one_word) {
    for (uint64_t i = 0; i < 64; i++) {
        const uint64_t position = i * PROBE_STRIPE_BYTES / sizeof(uint32_t);
        cr_assert_neq(probe_pattern_word(position, 1), probe_pattern_word(position, 2));
        for (uint64_t j = 0; j < i; j++) {
            cr_assert_neq(probe_pattern_word(position, 1),
                          probe_pattern_word(j * PROBE_STRIPE_BYTES / sizeof(uint32_t), 1));
        }
    }
}

/* ---- a driver that delivers other data than was written ----------------------------------- */

static struct {
    CUresult (*fill)(CUdeviceptr address, unsigned int value, size_t count, CUstream stream);
    unsigned calls;
    unsigned wrong; /* the fill that goes wrong, from 1 */
    bool is_lost;   /* it does nothing at all; else one word is another */
} broken;

static CUresult fill_wrongly(CUdeviceptr address, unsigned int value, size_t count,
                             CUstream stream) {
    if (++broken.calls != broken.wrong) {
        return broken.fill(address, value, count, stream);
    }
    if (broken.is_lost) {
        return CUDA_SUCCESS;
    }
    CUresult result = broken.fill(address, value, count, stream);
    return result != CUDA_SUCCESS ? result : broken.fill(address + 4, ~value, 1, stream);
}

static void break_fill(gpuipc_context *handle, unsigned wrong, bool is_lost) {
    context *ctx;
    check_ok(context_acquire(handle, &ctx));
    broken.fill = ctx->driver.cuMemsetD32Async;
    broken.calls = 0;
    broken.wrong = wrong;
    broken.is_lost = is_lost;
    ctx->driver.cuMemsetD32Async = fill_wrongly;
    context_unreference(ctx);
}

#define STRIPES (PROBE_BYTES / PROBE_STRIPE_BYTES)

Test(transport_probe, wrong_data_is_noticed_in_both_directions) {
    for (size_t i = 0; i < EVERY; i++) {
        /* Of zero-copy memory the first round is there to be overwritten. */
        const unsigned first = every[i] == GPUIPC_TRANSPORT_HOST ? 0 : (unsigned)STRIPES;
        for (unsigned step = 0; step < 4; step++) {
            gpuipc_context *made = machine_context("imex=1");
            const unsigned round = first + (step / 2) * (unsigned)STRIPES;
            if (probe_once(made, every[i], 0, 1).reason == GPUIPC_REASON_NONE) {
                break_fill(made, round + 1 + 3 * step, step % 2 == 0);
                const transport_answer answer = probe_once(made, every[i], 0, 1);
                cr_assert_eq(answer.reason, GPUIPC_REASON_WRONG_DATA, "%s, step %u: %s",
                             gpuipc_transport_name(every[i]), step, answer.particulars);
                cr_assert_eq(answer.proof, GPUIPC_PROOF_NONE);
                cr_assert_not_null(strstr(answer.particulars, "instead of"));
            }
            check_ok(gpuipc_context_destroy(made));
        }
    }
}

/* ---- every call fails --------------------------------------------------------------------- */

static const struct {
    const char *name;
    const char *group;
} entry_points[] = {
#define ENTRY(group, name, suffix, version, parameters) {#name, #group},
    CUDA_API_LIST(ENTRY)
#undef ENTRY
};
#define ENTRY_POINTS (sizeof(entry_points) / sizeof(entry_points[0]))

/* Calls that give something back. When the driver refuses, it is still there, and there is nothing to be
 * done about that. */
static bool is_undoing(const char *name) {
    static const char *const undoing[] = {"cuMemRelease",     "cuMemUnmap",
                                          "cuMemAddressFree", "cuMemFree",
                                          "cuMemFreeAsync",   "cuMemPoolDestroy",
                                          "cuStreamDestroy",  "cuMemHostUnregister",
                                          "cuCtxPopCurrent",  "cuCtxDisablePeerAccess"};
    for (size_t i = 0; i < sizeof(undoing) / sizeof(undoing[0]); i++) {
        if (strcmp(name, undoing[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* One call of one function fails. @return whether it was made at all */
static bool fail_once(gpuipc_context *made, gpuipc_transport which, const char *name,
                      unsigned number, int code, uint32_t owner, uint32_t user) {
    const gpuipc_transport_pair pair = machine_pair(owner, user);
    char failure[80];
    leak_gate gate;
    /* Both devices are in use already, so that what the context keeps is no leak. */
    leak_gate_begin(&gate);
    (void)snprintf(failure, sizeof(failure), "%s:%u=%d", name, number, code);
    core_set_failures(failure);
    const transport_answer answer = probe_once(made, which, pair.owner, pair.user);
    const uint64_t calls = machine_calls(name);
    core_set_failures("");
    end_what_is_deferred(made);
    cr_assert(answer.reason == GPUIPC_REASON_NONE || answer.particulars[0] != '\0',
              "%s, %s: a refusal without particulars", gpuipc_transport_name(which), failure);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s, %s: %s", gpuipc_transport_name(which), failure,
                 gate.text);
    return calls >= number;
}

/* Calls at the end of a trial that make the context current in which something is given back: refused, they
 * leave it where it is, as those of is_undoing(). */
static unsigned undoing_calls(gpuipc_transport which, const char *name) {
    static const unsigned contexts[] = {0, 0, 1, 1, 1, 0, 0};
    if (strcmp(name, "cuCtxPushCurrent") == 0) {
        return contexts[which];
    }
    return strcmp(name, "cuThreadExchangeStreamCaptureMode") == 0 ? 2 * contexts[which] : 0;
}

/* Of fills there are many alike. */
#define CALLS_MAX 18

/* How often each function is called by a trial that nothing happens to, less what gives back. */
static bool count_calls(gpuipc_context *made, gpuipc_transport which, uint32_t owner, uint32_t user,
                        uint64_t calls[ENTRY_POINTS]) {
    core_set_failures(""); /* counts from here on */
    const bool works = probe_once(made, which, owner, user).reason == GPUIPC_REASON_NONE;
    for (size_t i = 0; i < ENTRY_POINTS; i++) {
        const char *name = entry_points[i].name;
        /* The emulated driver has no kernels. */
        const bool is_left_out = is_undoing(name) || strcmp(entry_points[i].group, "kernel") == 0;
        calls[i] = is_left_out ? 0 : machine_calls(name);
        calls[i] -= works ? undoing_calls(which, name) : 0;
    }
    return works;
}

static void fail_each(gpuipc_transport which, int code, uint32_t owner, uint32_t user) {
    gpuipc_context *made = machine_context("imex=1");
    uint64_t calls[ENTRY_POINTS];
    (void)probe_once(made, GPUIPC_TRANSPORT_HOST, 0, 1);
    const bool works = count_calls(made, which, owner, user, calls);
    for (size_t i = 0; i < ENTRY_POINTS; i++) {
        for (unsigned number = 1; number <= calls[i] && number < CALLS_MAX; number++) {
            const char *name = entry_points[i].name;
            cr_assert(fail_once(made, which, name, number, code, owner, user),
                      "%s was not called %u times", name, number);
        }
    }
    cr_assert_eq(probe_once(made, which, owner, user).reason == GPUIPC_REASON_NONE, works,
                 "%s does not work any more", gpuipc_transport_name(which));
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_probe, every_call_of_vmm_fails) {
    fail_each(GPUIPC_TRANSPORT_VMM, CUDA_ERROR_UNKNOWN, 0, 1);
}

Test(transport_probe, every_call_of_pool_fails) {
    fail_each(GPUIPC_TRANSPORT_POOL, CUDA_ERROR_INVALID_VALUE, 0, 1);
}

Test(transport_probe, every_call_of_legacy_fails) {
    fail_each(GPUIPC_TRANSPORT_LEGACY, CUDA_ERROR_OPERATING_SYSTEM, 1, 0);
}

Test(transport_probe, every_call_of_p2p_fails) {
    fail_each(GPUIPC_TRANSPORT_P2P, CUDA_ERROR_OUT_OF_MEMORY, 0, 1);
}

Test(transport_probe, every_call_of_host_fails) {
    fail_each(GPUIPC_TRANSPORT_HOST, CUDA_ERROR_NOT_SUPPORTED, 0, 1);
}

Test(transport_probe, every_call_of_fabric_fails) {
    fail_each(GPUIPC_TRANSPORT_FABRIC, CUDA_ERROR_UNKNOWN, 0, 1);
}

/* ---- what codes mean ---------------------------------------------------------------------- */

static void expect_code(gpuipc_transport which, const char *failure, gpuipc_reason expected) {
    gpuipc_context *made = machine_context("imex=1");
    core_set_failures(failure);
    const transport_answer answer = probe_once(made, which, 0, 1);
    core_set_failures("");
    cr_assert_eq(answer.reason, expected, "%s: %s (%s)", failure, gpuipc_reason_name(answer.reason),
                 answer.particulars);
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_probe, codes_have_reasons) {
    expect_code(GPUIPC_TRANSPORT_VMM, "cuMemCreate:1=2", GPUIPC_REASON_DEVICE_MEMORY);
    expect_code(GPUIPC_TRANSPORT_VMM, "cuMemCreate:1=801", GPUIPC_REASON_NOT_SUPPORTED);
    expect_code(GPUIPC_TRANSPORT_VMM, "cuMemCreate:1=999", GPUIPC_REASON_DRIVER_REFUSED);
    expect_code(GPUIPC_TRANSPORT_VMM, "cuMemExportToShareableHandle:1=304",
                GPUIPC_REASON_DRIVER_REFUSED);
    expect_code(GPUIPC_TRANSPORT_P2P, "cuCtxEnablePeerAccess:1=217", GPUIPC_REASON_NO_P2P);
    expect_code(GPUIPC_TRANSPORT_P2P, "cuDevicePrimaryCtxRetain:1=46", GPUIPC_REASON_COMPUTE_MODE);
    expect_code(GPUIPC_TRANSPORT_P2P, "cuDevicePrimaryCtxRetain:1=2", GPUIPC_REASON_DEVICE_MEMORY);
    expect_code(GPUIPC_TRANSPORT_HOST, "cuMemHostRegister:2=2", GPUIPC_REASON_DEVICE_MEMORY);
}

Test(transport_probe, no_imex_channel_is_what_not_permitted_means_for_fabric) {
    if (machine_is_windows()) {
        cr_skip_test("there are no fabric handles on Windows");
    }
    expect_code(GPUIPC_TRANSPORT_FABRIC, "cuMemCreate:1=800", GPUIPC_REASON_NO_IMEX_CHANNEL);
    expect_code(GPUIPC_TRANSPORT_VMM, "cuMemCreate:1=800", GPUIPC_REASON_DRIVER_REFUSED);
}

/* ---- drivers without some calls ----------------------------------------------------------- */

Test(transport_probe, a_driver_without_the_calls_is_too_old) {
    gpuipc_context *made = machine_context("imex=1");
    context *ctx;
    check_ok(context_acquire(made, &ctx));
    ctx->driver.has_vmm = ctx->driver.has_legacy = ctx->driver.has_pool = false;
    ctx->driver.has_pinned = false;
    for (size_t i = 0; i < EVERY; i++) {
        const gpuipc_reason expected = every[i] == GPUIPC_TRANSPORT_P2P ? GPUIPC_REASON_NONE
                                       : every[i] == GPUIPC_TRANSPORT_POOL && machine_is_windows()
                                           ? GPUIPC_REASON_OPERATING_SYSTEM
                                           : GPUIPC_REASON_DRIVER_TOO_OLD;
        cr_assert_eq(probe_once(made, every[i], 0, 1).reason, expected, "%s",
                     gpuipc_transport_name(every[i]));
    }
    ctx->driver.has_p2p = false;
    cr_assert_eq(probe_once(made, GPUIPC_TRANSPORT_P2P, 0, 1).reason, GPUIPC_REASON_DRIVER_TOO_OLD);
    cr_assert_eq(probe_once(made, GPUIPC_TRANSPORT_P2P, 0, 0).reason, GPUIPC_REASON_NONE);
    context_unreference(ctx);
    check_ok(gpuipc_context_destroy(made));
}

/* ---- what stops a trial ------------------------------------------------------------------------------ */

static CUresult name_nothing(CUresult error, const char **name) {
    (void)error;
    *name = NULL;
    return CUDA_SUCCESS;
}

static CUresult units_of_nothing(size_t *bytes, const CUmemAllocationProp *prop,
                                 CUmemAllocationGranularity_flags option) {
    (void)prop;
    (void)option;
    *bytes = 0;
    return CUDA_SUCCESS;
}

Test(transport_probe, the_first_refusal_stands) {
    gpuipc_context *made = machine_context("");
    context *ctx;
    check_ok(context_acquire(made, &ctx));
    probe self = probe_begin(ctx, 0, 1, PROBE_BYTES);
    cr_assert_not(probe_refuse(&self, GPUIPC_REASON_TCC, "first"));
    cr_assert_not(probe_refuse(&self, GPUIPC_REASON_NO_VMM, "second"));
    cr_assert_not(probe_done(&self, status_out_of_memory(1)));
    cr_assert_eq(self.answer.reason, GPUIPC_REASON_TCC);
    cr_assert_str_eq(self.answer.particulars, "first");
    check_ok(probe_failure(&self));
    context_unreference(ctx);
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_probe, the_first_failure_stands) {
    gpuipc_context *made = machine_context("");
    context *ctx;
    check_ok(context_acquire(made, &ctx));
    probe self = probe_begin(ctx, 0, 1, PROBE_BYTES);
    cr_assert_not(probe_done(&self, status_out_of_memory(1)));
    cr_assert_not(probe_done(&self, status_fail(GPUIPC_ERR_OS, "later")));
    cr_assert_not(probe_refuse(&self, GPUIPC_REASON_NO_VMM, "refused"));
    cr_assert_eq(self.answer.reason, GPUIPC_REASON_NONE);
    check_status(GPUIPC_ERR_OUT_OF_MEMORY, probe_failure(&self));
    context_unreference(ctx);
    check_ok(gpuipc_context_destroy(made));
}

/* Either end may be one. */
Test(transport_probe, a_slice_at_either_end_is_why) {
    gpuipc_context *made = machine_context("p2p=none");
    context *ctx;
    check_ok(context_acquire(made, &ctx));
    for (uint32_t slice = 0; slice < 2; slice++) {
        ctx->devices[slice].info.is_mig = 1;
        ctx->devices[1 - slice].info.is_mig = 0;
        cr_assert_eq(probe_once(made, GPUIPC_TRANSPORT_P2P, 0, 1).reason, GPUIPC_REASON_MIG);
    }
    ctx->devices[1].info.is_mig = 0;
    cr_assert_eq(probe_once(made, GPUIPC_TRANSPORT_P2P, 0, 1).reason, GPUIPC_REASON_NO_P2P);
    context_unreference(ctx);
    check_ok(gpuipc_context_destroy(made));
}

Test(transport_probe, a_driver_that_says_odd_things) {
    gpuipc_context *made = machine_context("");
    context *ctx;
    check_ok(context_acquire(made, &ctx));
    ctx->driver.cuMemGetAllocationGranularity = units_of_nothing;
    transport_answer answer = probe_once(made, GPUIPC_TRANSPORT_VMM, 0, 0);
    cr_assert_eq(answer.reason, GPUIPC_REASON_DRIVER_REFUSED);
    cr_assert_not_null(strstr(answer.particulars, "units of 0 bytes"));
    ctx->driver.cuGetErrorName = name_nothing;
    core_set_failures("cuMemAlloc:1=999");
    answer = probe_once(made, GPUIPC_TRANSPORT_P2P, 0, 0);
    core_set_failures("");
    cr_assert_not_null(strstr(answer.particulars, "a code that it does not name"));
    context_unreference(ctx);
    check_ok(gpuipc_context_destroy(made));
}
