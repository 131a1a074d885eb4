/* SPDX-License-Identifier: MIT */
/**
 * @file Every call of the driver fails once, in turn, with several codes: the failure is told, nothing
 * is left behind, and the next time it works.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "emulated.h"
#include "leak_gate.h"
#include "scenario.h"

TestSuite(fault_driver, .timeout = 300);

static const int codes[] = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN,
                            CUDA_ERROR_OPERATING_SYSTEM};
#define CODES (sizeof(codes) / sizeof(codes[0]))

/* CODES_PER_CALL (CMakeLists.txt): with how many of them each call fails; the calls take turns. */
_Static_assert(CODES_PER_CALL >= 1 && CODES_PER_CALL <= CODES, "there are no more codes");

/* Every entry point by name, in the order in which the loader looks for them. */
static const struct {
    const char *name;
    const char *group;
} entry_points[] = {
#define ENTRY(group, name, suffix, version, parameters) {#name, #group},
    CUDA_API_LIST(ENTRY)
#undef ENTRY
};
#define ENTRY_POINTS (sizeof(entry_points) / sizeof(entry_points[0]))

/* ---- failures that are not told, and why ------------------------------------------------- */

static bool is_always(uint64_t number) {
    (void)number;
    return true;
}

static bool is_even(uint64_t number) {
    return number % 2 == 0;
}

/* For each device: two versions that must be known, then three abilities, and on Windows the driver
 * model besides. */
static bool is_ability(uint64_t number) {
    const uint64_t asked = os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32 ? 6 : 5;
    return (number - 1) % asked >= 2;
}

static bool is_optional_entry_point(uint64_t number) {
    return strcmp(entry_points[(number - 1) % ENTRY_POINTS].group, "core") != 0;
}

static const struct {
    const char *name;
    bool (*is_ignored)(uint64_t number); /* of this function's calls in a run, from 1 */
    bool leaks; /* the driver refused to take something back, so it is still there afterwards */
    const char *reason;
} ignored[] = {
    {"cuMemRelease", is_always, true,
     "gives up a handle that is known to be good; there is no way to try again"},
    {"cuMemUnmap", is_always, true, "likewise, of a mapping of our own"},
    {"cuMemAddressFree", is_always, true, "likewise, of a range of our own"},
    {"cuDevicePrimaryCtxRelease", is_always, true,
     "the context object is ending; CUDA releases it at the process's end as well"},
    {"cuDevicePrimaryCtxGetState", is_always, false,
     "a device of which the driver does not say whether it is in use is waited for"},
    {"cuCtxPopCurrent", is_always, false,
     "undoes a push of this very call, whose result is what counts"},
    {"cuThreadExchangeStreamCaptureMode", is_even, false,
     "the second of each pair puts the caller's mode back, after the call's result is known"},
    {"cuDeviceGetAttribute", is_ability, false,
     "an attribute that a driver does not know means that the device has not the ability"},
    {"cuMemFree", is_always, false, /* but of a pool */
     "gives back what is known to be good, and goes with its context in the end"},
    {"cuMemPoolDestroy", is_always, true, "gives up a pool that is known to be good"},
    {"cuMemHostUnregister", is_always, false, "likewise, of host memory of our own"},
    {"cuCtxDisablePeerAccess", is_always, false, "likewise, of access that we enabled"},
    {"cuStreamDestroy", is_always, false, "likewise, of a stream of our own"},
    {"cuEventDestroy", is_always, false, "likewise, of an event of our own"},
    {"cuStreamGetId", is_always, false, "a stream without a number is taken for another one"},
    {"cuEventQuery", is_always, false,
     "a stream of which the driver does not say whether it has passed has not: it is asked again"},
    {"cuGetProcAddress", is_optional_entry_point, false,
     "an entry point outside the group core is an ability that may be missing"},
};

/* Which times a device's context is entered only to give something back: that it cannot be entered is
 * not told either. Nor is it that a channel cannot ask an event: it asks again. */
static const struct {
    const char *name; /* of the scenario */
    uint64_t number;
} releases[] = {
    {"channel", 3}, {"channel", 4}, {"kernels", 3}, {"host", 5},   {"host", 6},
    {"legacy", 5},  {"pool", 5},    {"staged", 4},  {"staged", 6}, {"p2p", 4},
};

static bool is_release(const scenario *what, const char *name, uint64_t number) {
    if (strcmp(name, "cuThreadExchangeStreamCaptureMode") == 0) {
        number = number / 2 + 1; /* the first of each pair; the second is ignored anyway */
    } else if (strcmp(name, "cuCtxPushCurrent") != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof(releases) / sizeof(releases[0]); i++) {
        if (strcmp(releases[i].name, what->name) == 0 && releases[i].number == number) {
            return true;
        }
    }
    return false;
}

/* The row for a call, or NULL. */
static const char *find_ignored(const scenario *what, const char *name, uint64_t number, int code,
                                bool *out_leaks) {
    *out_leaks = false;
    if (strcmp(what->name, "data") == 0 && strcmp(name, "cuPointerGetAttribute") == 0 &&
        code == CUDA_ERROR_INVALID_VALUE) {
        return "it is the answer for memory that a device does not reach: the copy goes another way";
    }
    if ((strcmp(what->name, "channel") == 0 || strcmp(what->name, "data") == 0) &&
        strcmp(name, "cuEventRecord") == 0) {
        return "what it was to stand behind is on the stream, which is waited for instead";
    }
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        if (strcmp(ignored[i].name, name) == 0 && ignored[i].is_ignored(number)) {
            *out_leaks = ignored[i].leaks ||
                         (strcmp(name, "cuMemFree") == 0 && strcmp(what->name, "pool") == 0);
            return ignored[i].reason;
        }
    }
    if (!is_release(what, name, number)) {
        return NULL;
    }
    *out_leaks = strcmp(what->name, "pool") == 0; /* whose memory is in no context */
    return "it is entered to give something back, which goes with the context in the end";
}

/* ---- the emulated driver's own functions ------------------------------------------------- */

static driver drv;
static gpuipc_emulated_fail_fn set_fail;
static gpuipc_emulated_calls_fn get_calls;

static void load(void) {
    void *symbol;
    check_ok(driver_open("emulated", &drv));
    symbol = os_library_symbol(drv.library, GPUIPC_EMULATED_SET_FAIL);
    cr_assert_not_null(symbol);
    memcpy(&set_fail, &symbol, sizeof(set_fail));
    symbol = os_library_symbol(drv.library, GPUIPC_EMULATED_CALLS);
    cr_assert_not_null(symbol);
    memcpy(&get_calls, &symbol, sizeof(get_calls));
}

/* One run in which the rule holds, from a fresh context on. */
static gpuipc_status run(const scenario *what, const char *rule, const char *name,
                         uint64_t *out_calls) {
    scenario_state state;
    CUcontext stale;
    check_ok(scenario_begin(what, &state));
    cr_assert_eq(set_fail(rule), 0, "%s", rule);
    gpuipc_status status = what->run(&state);
    const uint64_t calls = get_calls(name);
    cr_assert_eq(set_fail(""), 0);
    /* where popping a context failed, it is still on this thread's stack */
    if (strncmp(rule, "cuCtxPopCurrent", 15) == 0) {
        (void)drv.cuCtxPopCurrent(&stale);
    }
    scenario_end(&state);
    if (out_calls != NULL) {
        *out_calls = calls;
    }
    return status;
}

/* ---- the test ---------------------------------------------------------------------------- */

static void check_is_told(const char *rule, gpuipc_status status, int code, bool has_native_code) {
    const gpuipc_error *error = gpuipc_error_get();
    cr_assert_neq(status, GPUIPC_OK, "%s went unnoticed", rule);
    cr_assert_eq(error->status, status, "%s: the record has %s, the answer was %s", rule,
                 gpuipc_status_name(error->status), gpuipc_status_name(status));
    cr_assert(error->operation[0] != '\0' && error->sentence[0] != '\0', "%s", rule);
    if (has_native_code) {
        cr_assert_eq(error->native_origin, GPUIPC_NATIVE_CUDA, "%s: no native code", rule);
        cr_assert_eq(error->native_code, code, "%s: native code %lld", rule,
                     (long long)error->native_code);
    }
}

/* Call number @p number of @p name fails with @p code. */
static void fail_once(const scenario *what, const char *name, uint64_t number, int code) {
    char rule[128];
    leak_gate gate;
    uint64_t calls = 0;
    bool leaks;
    const char *reason = find_ignored(what, name, number, code, &leaks);
    (void)snprintf(rule, sizeof(rule), "%s:%llu=%d", name, (unsigned long long)number, code);
    leak_gate_begin(&gate);
    gpuipc_status status = run(what, rule, name, &calls);
    cr_assert_geq(calls, number, "%s %s: the call was not made", what->name, rule);
    if (reason != NULL) {
        cr_assert_eq(status, GPUIPC_OK, "%s %s: %s, although: %s", what->name, rule,
                     gpuipc_status_name(status), reason);
    } else {
        check_is_told(rule, status, code, strcmp(name, "cuGetProcAddress") != 0);
    }
    const int left = leak_gate_end(&gate);
    cr_assert(leaks || left == 0, "%s %s:\n%s", what->name, rule, gate.text);
    cr_assert(!leaks || left > 0, "%s %s should have left something behind", what->name, rule);
    check_ok(run(what, "", name, NULL));
}

/* @return how many failures there were */
static size_t fail_every_call(const scenario *what, const char *name) {
    uint64_t count = 0;
    size_t failures = 0;
    check_ok(run(what, "", name, &count));
    for (uint64_t number = 1; number <= count; number++) {
        for (size_t i = 0; i < CODES_PER_CALL; i++, failures++) {
            fail_once(what, name, number, codes[(number + i) % CODES]);
        }
    }
    return failures;
}

static const scenario *start(const char *name) {
    const scenario *what = scenario_find(name);
    cr_assert_not_null(what);
    load();
    check_ok(run(what, "", "cuInit", NULL)); /* what is made once in a process is made */
    return what;
}

static void fail_everything(const char *name) {
    const scenario *what = start(name);
    size_t failures = fail_every_call(what, "cuGetProcAddress");
    for (size_t i = 0; i < ENTRY_POINTS; i++) {
        failures += fail_every_call(what, entry_points[i].name);
    }
    cr_assert_gt(failures, 0);
    fprintf(stderr, "fault.driver %s: %zu failures\n", name, failures);
}

Test(fault_driver, context) {
    fail_everything("context");
}

/* The only scenario in which a device's context is given back in the part under test. What else it
 * does, the others do as well. */
Test(fault_driver, life) {
    const scenario *what = start("life");
    cr_assert_eq(fail_every_call(what, "cuDevicePrimaryCtxRelease"), CODES_PER_CALL);
}

Test(fault_driver, create) {
    fail_everything("create");
}

Test(fault_driver, wrap) {
    fail_everything("wrap");
}

Test(fault_driver, share) {
    fail_everything("share");
}

Test(fault_driver, relay) {
    fail_everything("relay");
}

Test(fault_driver, native) {
    fail_everything("native");
}

Test(fault_driver, data) {
    fail_everything("data");
}

Test(fault_driver, access) {
    fail_everything("access");
}

Test(fault_driver, legacy) {
    fail_everything("legacy");
}

Test(fault_driver, host) {
    fail_everything("host");
}

Test(fault_driver, pool) {
    if (os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32) {
        cr_skip_test("Windows shares no pools");
    }
    fail_everything("pool");
}

Test(fault_driver, staged) {
    fail_everything("staged");
}

Test(fault_driver, p2p) {
    fail_everything("p2p");
}

Test(fault_driver, kernels) {
    fail_everything("kernels");
}

Test(fault_driver, channel) {
    fail_everything("channel");
}
