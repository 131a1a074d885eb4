/* SPDX-License-Identifier: MIT */
/** @file See shortage_case.h. */
#include "shortage_case.h"

#include <string.h>

#include "../fault/allocation.h"
#include "core_fixture.h"
#include "emulated.h"
#include "thread_state.h"

/* ---- one call of the driver that fails ----------------------------------------------------------- */

static uint64_t thread;
static uint64_t calls;
static uint64_t fails_at; /* of this thread's calls; 0: none */
static int fails_with;

/* What gives back is not denied: what a driver does not take back stays (fault.driver). */
static bool is_giving_back(const char *name) {
    static const char *const names[] = {"cuMemRelease",
                                        "cuMemUnmap",
                                        "cuMemAddressFree",
                                        "cuMemFree",
                                        "cuMemFreeAsync",
                                        "cuMemFreeHost",
                                        "cuMemHostUnregister",
                                        "cuMemPoolDestroy",
                                        "cuDevicePrimaryCtxRelease",
                                        "cuCtxPopCurrent",
                                        "cuCtxDisablePeerAccess",
                                        "cuThreadExchangeStreamCaptureMode",
                                        "cuStreamDestroy",
                                        "cuEventDestroy",
                                        "cuIpcCloseMemHandle"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static int judge(const char *name) {
    if (thread_state_own_number() != thread || is_giving_back(name)) {
        return 0;
    }
    return ++calls == fails_at ? fails_with : 0;
}

static void set_judge(gpuipc_emulated_judge wanted) {
    gpuipc_emulated_judge_fn set;
    void *symbol = os_library_symbol(core_driver()->library, GPUIPC_EMULATED_SET_JUDGE);
    cr_assert_not_null(symbol);
    memcpy(&set, &symbol, sizeof(set));
    set(wanted);
}

/* ---- each in turn -------------------------------------------------------------------------------- */

static void check_told(gpuipc_status status, const char *what, uint64_t number) {
    const gpuipc_error *error = gpuipc_error_get();
    if (status != GPUIPC_OK) {
        cr_assert_eq(error->status, status, "%s %llu: %s", what, (unsigned long long)number,
                     gpuipc_status_name(status));
        cr_assert_neq(error->sentence[0], '\0', "%s %llu", what, (unsigned long long)number);
        cr_assert_neq(error->operation[0], '\0', "%s %llu", what, (unsigned long long)number);
    }
}

static void begin(const shortage_operation *what) {
    if (what->begin != NULL) {
        what->begin();
    }
}

static void end(const shortage_operation *what) {
    if (what->end != NULL) {
        what->end();
    }
}

static void works(const shortage_operation *what) {
    begin(what);
    check_ok(what->run());
    end(what);
}

/* @return whether there were so many allocations */
static bool without_memory(const shortage_operation *what, uint64_t number, unsigned *refused) {
    int64_t live;
    begin(what);
    allocation_watch(number);
    const gpuipc_status status = what->run();
    const uint64_t made = allocation_unwatch(&live);
    check_told(status, "without allocation", number);
    cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_OUT_OF_MEMORY, "allocation %llu: %s: %s",
              (unsigned long long)number, gpuipc_status_name(status), gpuipc_error_get()->sentence);
    *refused += status != GPUIPC_OK;
    end(what);
    return made >= number;
}

/* @return whether there were so many calls */
static bool without_driver(const shortage_operation *what, uint64_t number, unsigned *refused) {
    begin(what);
    thread = thread_state_own_number();
    calls = 0;
    fails_at = number;
    fails_with = number % 2 == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
    set_judge(judge);
    const gpuipc_status status = what->run();
    set_judge(NULL);
    check_told(status, "without call", number);
    *refused += status != GPUIPC_OK;
    end(what);
    return calls >= number;
}

void shortage_of_memory(const shortage_operation *what) {
    unsigned refused = 0;
    works(what);
    for (uint64_t number = 1; without_memory(what, number, &refused); number++) {
    }
    works(what);
    cr_assert_gt(refused, 0);
}

static void of_driver(const shortage_operation *what) {
    unsigned refused = 0;
    for (uint64_t number = 1; without_driver(what, number, &refused); number++) {
    }
    works(what);
    cr_assert_gt(refused, 0);
}

void shortage_in_turn(const shortage_operation *what) {
    shortage_of_memory(what);
    of_driver(what);
}
