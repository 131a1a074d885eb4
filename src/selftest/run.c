/* SPDX-License-Identifier: MIT */
/** @file See run.h. */
#include "run.h"

#include <stdio.h>

#include "pair.h"
#include "produce.h"
#include "role.h"
#include "watchdog.h"

/* Can a program on device @p peer use memory of device @p owner? If not, a line says why. */
static bool can_reach(const session *at, uint32_t owner, uint32_t peer, bool *out_can) {
    status_enter(__func__);
    const driver *drv = &at->driver;
    gpuipc_device_info info;
    CUdevice owner_ordinal = 0;
    CUdevice peer_ordinal = 0;
    int can = 1;
    gpuipc_status status = session_device(at, owner, &info);
    if (status == GPUIPC_OK && info.can_share && owner != peer && drv->has_p2p) {
        CUresult result = drv->cuDeviceGet(&owner_ordinal, (int)owner);
        result = result != CUDA_SUCCESS ? result : drv->cuDeviceGet(&peer_ordinal, (int)peer);
        result = result != CUDA_SUCCESS
                     ? result
                     : drv->cuDeviceCanAccessPeer(&can, peer_ordinal, owner_ordinal);
        status = driver_status(drv, result, "cuDeviceCanAccessPeer",
                               "asking whether one device reaches another");
    }
    if (status != GPUIPC_OK) {
        printf(ROLE_FAIL "device %u -> device %u: %s\n", owner, peer, gpuipc_error_get()->sentence);
        return false;
    }
    *out_can = info.can_share && can;
    if (!info.can_share) {
        printf(ROLE_SKIP "device %u -> device %u: %s\n", owner, peer, info.why_not);
    } else if (!can) {
        printf(ROLE_SKIP "device %u -> device %u: device %u cannot reach memory of device %u (no "
                         "P2P between them)\n",
               owner, peer, peer, owner);
    }
    return true;
}

static void run_pair(const options *wanted, const session *at, uint32_t owner, uint32_t peer,
                     tally *total) {
    uint64_t sizes[SIZES_MAX];
    unsigned cases = (unsigned)produce_sizes(wanted, at->info.is_emulated, sizes);
    bool can = false;
    if (!can_reach(at, owner, peer, &can)) {
        total->failed++;
    } else if (!can) {
        total->skipped++;
    } else {
        pair_run(wanted, at->choice, owner, peer, cases + (wanted->bench_copy ? 1 : 0), total);
    }
    fflush(stdout);
}

bool run_is_chosen(uint32_t chosen, uint32_t device) {
    return chosen == DEVICE_ANY || chosen == device;
}

static bool has_device(const session *at, const char *option, uint32_t device) {
    if (device == DEVICE_ANY || device < at->info.device_count) {
        return true;
    }
    fprintf(stderr, "gpuipc-selftest: %s=%u: there are %u devices, numbered from 0\n", option,
            device, at->info.device_count);
    return false;
}

static int summarize(const session *at, const tally *total) {
    const char *on = at->info.is_emulated ? " on the emulated driver, no GPU was used" : "";
    if (total->passed + total->failed == 0) {
        printf("nothing to test%s: %u skipped\n", on, total->skipped);
        return EXIT_NOTHING;
    }
    printf("hand-over: from the producer's call of send until the buffer was open in the consumer, "
           "once each%s\n",
           at->info.is_emulated ? " (emulated)" : "");
    printf("%s%s: %u passed, %u failed, %u skipped\n", total->failed == 0 ? "passed" : "FAILED", on,
           total->passed, total->failed, total->skipped);
    return total->failed == 0 ? EXIT_PASS : EXIT_FAIL;
}

int run_begin(const options *wanted, session *out_session) {
    char text[ROLE_LINE_MAX];
    watchdog_expect("starting the driver and looking at its devices", wanted->timeout_ms);
    int code = session_open(wanted, out_session);
    if (code != EXIT_PASS) {
        return code;
    }
    watchdog_rest();
    session_describe(out_session, text, sizeof(text));
    printf("%s\n", text);
    fflush(stdout);
    if (!has_device(out_session, "--device", wanted->device) ||
        !has_device(out_session, "--peer", wanted->peer)) {
        run_end(wanted, out_session);
        return EXIT_USAGE;
    }
    return EXIT_PASS;
}

void run_end(const options *wanted, session *at) {
    watchdog_expect("ending the use of the driver", wanted->timeout_ms);
    session_close(at);
}

int run(const options *wanted) {
    session at;
    tally total = {0};
    int code = run_begin(wanted, &at);
    if (code != EXIT_PASS) {
        return code;
    }
    for (uint32_t owner = 0; owner < at.info.device_count; owner++) {
        for (uint32_t peer = 0; peer < at.info.device_count; peer++) {
            if (run_is_chosen(wanted->device, owner) && run_is_chosen(wanted->peer, peer)) {
                run_pair(wanted, &at, owner, peer, &total);
            }
        }
    }
    code = summarize(&at, &total);
    run_end(wanted, &at);
    return code;
}
