/* SPDX-License-Identifier: MIT */
/** @file See run.h. */
#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "brief.h"
#include "doctor.h"
#include "pair.h"
#include "peer.h"
#include "produce.h"
#include "program.h"
#include "refuse.h"
#include "report.h"
#include "role.h"
#include "transports.h"
#include "watchdog.h"
#include "wrap.h"

/* When a short run has shared enough of the larger sizes. */
#define SHARE_SECONDS 2.0

bool run_can_reach(report *into, const char *what, const session *at, uint32_t owner, uint32_t peer,
                   bool *out_can) {
    status_enter(__func__);
    char line[ROLE_LINE_MAX];
    char id[64];
    const driver *drv = &at->driver;
    gpuipc_device_info info;
    CUdevice owner_ordinal = 0;
    CUdevice peer_ordinal = 0;
    int can = 1;
    (void)snprintf(id, sizeof(id), "%s/%u-%u", what, owner, peer);
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
        (void)snprintf(line, sizeof(line), "device %u -> device %u: %s", owner, peer,
                       gpuipc_error_get()->sentence);
        report_add_check(into, id, REPORT_FAIL, line);
        return false;
    }
    *out_can = info.can_share && can;
    if (!info.can_share) {
        (void)snprintf(line, sizeof(line), "device %u -> device %u: %s", owner, peer, info.why_not);
    } else if (!can) {
        (void)snprintf(line, sizeof(line),
                       "device %u -> device %u: device %u cannot reach memory of device %u (no P2P "
                       "between them)",
                       owner, peer, peer, owner);
    }
    if (!*out_can) {
        report_add_check(into, id, REPORT_SKIP, line);
    }
    return true;
}

bool run_is_chosen(uint32_t chosen, uint32_t device) {
    return chosen == DEVICE_ANY || chosen == device;
}

unsigned run_pair_count(const options *wanted, const session *at) {
    const unsigned count = at->info.device_count;
    return (wanted->device == DEVICE_ANY ? count : 1) * (wanted->peer == DEVICE_ANY ? count : 1);
}

static bool is_short(const options *wanted) {
    return wanted->command == COMMAND_RUN && wanted->size_count == 0 && wanted->duration_s == 0 &&
           wanted->demand_count == 0 && !wanted->measure && !wanted->is_full;
}

bool run_is_late(const options *wanted, double seconds) {
    return is_short(wanted) &&
           (double)(os_clock_ns() - wanted->report->started_ns) / 1e9 >= seconds;
}

bool run_has_device(const session *at, const char *option, uint32_t device) {
    if (device == DEVICE_ANY || device < at->info.device_count) {
        return true;
    }
    wrap_complain("%s=%u: there are %u devices, numbered from 0", option, device,
                  at->info.device_count);
    return false;
}

bool run_again(const options *wanted) {
    report *into = wanted->report;
    const double seconds = (double)(os_clock_ns() - into->started_ns) / 1e9;
    if (program_is_interrupted() || seconds >= (double)wanted->duration_s) {
        return false;
    }
    into->round++;
    into->ways_tried = 0;
    report_progress(into, "round %u, %.0f of %u seconds", into->round, seconds, wanted->duration_s);
    return true;
}

int run_summarize(const options *wanted, const session *at, const tally *total) {
    const report *into = wanted->report;
    const char *on = at->info.is_emulated ? " on the emulated driver, no GPU was used" : "";
    if (wanted->duration_s > 0) {
        report_say(into, "rounds: %u, in %.1f seconds\n", into->round,
                   (double)(os_clock_ns() - into->started_ns) / 1e9);
    }
    if (program_is_interrupted()) { /* not all was tried, so nothing has passed */
        report_say(into, "until then%s: %u passed, %u failed, %u skipped\n", on, total->passed,
                   total->failed, total->skipped);
        return EXIT_FAIL;
    }
    if (total->passed + total->failed == 0) {
        report_say(into, "nothing to test%s: %u skipped%s\n", on, total->skipped,
                   wanted->only_count > 0 && total->skipped == 0
                       ? "; there is no such check here (--only)"
                       : "");
        return EXIT_NOTHING;
    }
    report_say(into, "%s%s: %u passed, %u failed, %u skipped\n",
               total->failed == 0 ? "passed" : "FAILED", on, total->passed, total->failed,
               total->skipped);
    return total->failed == 0 ? EXIT_PASS : EXIT_FAIL;
}

/* What the system, the driver and the devices are. */
static void describe(report *into, const session *at) {
    char text[ROLE_LINE_MAX];
    session_describe(at, text, sizeof(text));
    into->driver = at->info;
    (void)snprintf(into->why_emulated, sizeof(into->why_emulated), "%s", at->why_emulated);
    platform_ask(&into->platform, at, &into->facts);
    report_say(into, "%s\nplatform", text);
    for (platform_fact i = 0; i < PLATFORM_COUNT; i++) {
        report_say(into, "%s%s: %s", i == 0 ? ": " : "; ", platform_label(i),
                   platform_text(&into->platform, i));
    }
    report_say(into, "\n");
    for (uint32_t i = 0; i < at->info.device_count; i++) {
        gpuipc_device_info info;
        char uuid[REPORT_UUID_MAX];
        if (session_device(at, i, &info) == GPUIPC_OK) {
            report_add_device(into, &info);
            if (into->is_brief) {
                continue;
            }
            report_say(into, "device %u: %s; %s; %" PRIu64 " MiB; compute %d.%d\n", i, info.name,
                       report_uuid(&info, uuid), info.memory_bytes >> 20, info.compute_major,
                       info.compute_minor);
        }
    }
    if (into->is_brief) {
        brief_devices(into);
    }
}

int run_begin(const options *wanted, session *out_session) {
    os_directory_sweep(NULL, ARGUMENTS_NAME_BEGINS); /* of runs that were killed */
    watchdog_expect("starting the driver and looking at its devices", wanted->timeout_ms);
    int code = session_open(wanted, out_session);
    if (code != EXIT_PASS) {
        (void)snprintf(wanted->report->error, sizeof(wanted->report->error), "driver \"%s\": %s",
                       wanted->driver, gpuipc_error_text());
        return code;
    }
    watchdog_rest();
    describe(wanted->report, out_session);
    if (!run_has_device(out_session, "--device", wanted->device) ||
        !run_has_device(out_session, "--peer", wanted->peer)) {
        run_end(wanted, out_session);
        return EXIT_USAGE;
    }
    return EXIT_PASS;
}

void run_end(const options *wanted, session *at) {
    watchdog_expect("ending the use of the driver", wanted->timeout_ms);
    session_close(at);
}

bool run_is_wanted(const options *wanted, const char *id) {
    for (size_t i = 0; i < wanted->only_count; i++) {
        const size_t length = strlen(wanted->only[i]);
        const size_t id_length = strlen(id);
        /* The id up to a slash of it, or one that has this one up to a slash. */
        const size_t shorter = length < id_length ? length : id_length;
        const char next = length < id_length ? id[shorter] : wanted->only[i][shorter];
        if (strncmp(wanted->only[i], id, shorter) == 0 && (next == '/' || next == '\0')) {
            return true;
        }
    }
    return wanted->only_count == 0;
}

/* Pairs that have the same sizes. */
typedef struct batch {
    pair pairs[PAIRS_MAX];
    size_t count;
    options chosen; /* with their sizes */
} batch;

static void run_batch(batch *self, const session *at, tally *total) {
    const options *chosen = &self->chosen;
    const unsigned cases = (unsigned)chosen->size_count + (chosen->bench_copy ? 1 : 0);
    pair_run_all(chosen, at->choice, self->pairs, self->count, cases, total);
    self->count = 0;
}

static bool has_sizes(const batch *self, const uint64_t *sizes, size_t count) {
    return self->chosen.size_count == count &&
           memcmp(self->chosen.sizes, sizes, count * sizeof(*sizes)) == 0;
}

/* The sizes that are wanted of a pair. @return how many */
static size_t pair_sizes(const options *wanted, const session *at, const pair *of,
                         uint64_t *out_sizes) {
    uint64_t sizes[SIZES_MAX];
    const size_t size_count = produce_sizes(wanted, at->info.is_emulated, sizes);
    size_t count = 0;
    for (size_t i = 0; i < size_count; i++) {
        char id[64];
        (void)snprintf(id, sizeof(id), "share/%u-%u/%" PRIu64, of->owner, of->user, sizes[i]);
        if (run_is_wanted(wanted, id)) {
            out_sizes[count++] = sizes[i];
        }
    }
    return count;
}

static void add_pair(batch *into, const options *wanted, const session *at, const pair *added,
                     tally *total) {
    uint64_t sizes[SIZES_MAX];
    const size_t count = pair_sizes(wanted, at, added, sizes);
    bool can = false;
    if (count == 0) {
        return;
    }
    if (!run_can_reach(wanted->report, "share", at, added->owner, added->user, &can)) {
        total->failed++;
    } else if (!can) {
        total->skipped++;
    } else {
        if (into->count == PAIRS_MAX || (into->count > 0 && !has_sizes(into, sizes, count))) {
            run_batch(into, at, total);
        }
        memcpy(into->chosen.sizes, sizes, count * sizeof(*sizes));
        into->chosen.size_count = count;
        into->pairs[into->count++] = *added;
    }
}

static void run_pairs(const options *wanted, const session *at, tally *total) {
    batch next = {.chosen = *wanted};
    if (is_short(wanted)) {
        next.chosen.until_ns = wanted->report->started_ns + (uint64_t)(SHARE_SECONDS * 1e9);
    }
    for (uint32_t owner = 0; owner < at->info.device_count; owner++) {
        for (uint32_t user = 0; user < at->info.device_count; user++) {
            if (run_is_chosen(wanted->device, owner) && run_is_chosen(wanted->peer, user) &&
                !program_is_interrupted()) {
                add_pair(&next, wanted, at, &(pair){.owner = owner, .user = user}, total);
            }
        }
    }
    run_batch(&next, at, total);
}

/* Of the pairs that can share, the last one of two devices; else a device with itself. */
static bool find_pair(const report *from, uint32_t *out_owner, uint32_t *out_user) {
    bool found = false;
    for (size_t i = 0; i < from->check_count; i++) {
        uint32_t owner;
        uint32_t user;
        const report_check *one = &from->checks[i];
        if (one->status == REPORT_PASS &&
            sscanf(one->id, "share/%" SCNu32 "-%" SCNu32, &owner, &user) == 2 &&
            (!found || owner != user)) {
            *out_owner = owner;
            *out_user = user;
            found = true;
        }
    }
    return found;
}

static void refuse(report *into, const session *at, uint32_t device, int timeout_ms) {
    char line[ROLE_LINE_MAX];
    char id[64];
    watchdog_expect("trying wrong input", timeout_ms);
    const char *why = refuse_check(at->context, device);
    watchdog_rest();
    (void)snprintf(id, sizeof(id), "refused/%u", device);
    (void)snprintf(line, sizeof(line), "wrong input, device %u: %s", device,
                   why != NULL
                       ? why
                       : "damaged and revoked tickets and an unknown name were refused, and "
                         "the right ticket taken");
    report_add_check(into, id, why == NULL ? REPORT_PASS : REPORT_FAIL, line);
}

/* What is the same for all pairs that can share is tried with one of them. */
static void run_once(const options *wanted, const session *at, tally *total) {
    report *into = wanted->report;
    const unsigned passed = report_count(into, REPORT_PASS);
    const unsigned failed = report_count(into, REPORT_FAIL);
    uint32_t owner = wanted->device == DEVICE_ANY ? 0 : wanted->device;
    uint32_t user = wanted->peer == DEVICE_ANY ? owner : wanted->peer;
    if (program_is_interrupted() || total->failed > 0 ||
        (run_is_wanted(wanted, "share") && !find_pair(into, &owner, &user))) {
        return;
    }
    if (run_is_wanted(wanted, "peer")) {
        if (!into->is_brief) {
            report_say(into, "memory of device %u used by device %u, between two programs:\n",
                       owner, user);
        }
        peer_run(wanted, at, owner, user);
    }
    if (run_is_wanted(wanted, "refused") && !program_is_interrupted()) {
        refuse(into, at, owner, wanted->timeout_ms);
    }
    total->passed += report_count(into, REPORT_PASS) - passed;
    total->failed += report_count(into, REPORT_FAIL) - failed;
}

/* In this very program, so only where the cases have shown that it can be survived; unless something is demanded. */
static void run_ways(const options *wanted, const session *at, tally *total) {
    const unsigned failed = report_count(wanted->report, REPORT_FAIL);
    if (!run_is_wanted(wanted, "transports") && wanted->demand_count == 0) {
        return;
    }
    if (program_is_interrupted()) {
        return;
    }
    if (total->failed > 0 && wanted->demand_count == 0) {
        report_say(wanted->report, "transports: not tried, since a case failed; gpuipc-selftest "
                                   "doctor says what is in the way\n");
        return;
    }
    const unsigned passed = report_count(wanted->report, REPORT_PASS);
    const unsigned skipped = report_count(wanted->report, REPORT_SKIP);
    transports_each(wanted, at);
    total->passed += report_count(wanted->report, REPORT_PASS) - passed;
    total->failed += report_count(wanted->report, REPORT_FAIL) - failed;
    total->skipped += report_count(wanted->report, REPORT_SKIP) - skipped;
}

int run(const options *wanted) {
    session at;
    tally total = {0};
    report *into = wanted->report;
    into->is_brief = brief_is_wanted(wanted);
    int code = run_begin(wanted, &at);
    if (code != EXIT_PASS) {
        return code;
    }
    do {
        run_pairs(wanted, &at, &total);
    } while (run_again(wanted));
    if (into->is_brief) {
        brief_shared(into);
    }
    run_once(wanted, &at, &total);
    if (into->is_brief) {
        brief_once(into);
    }
    run_ways(wanted, &at, &total);
    report_say_rest(into);
    doctor_look(wanted);
    doctor_print_count(into);
    if (into->is_brief) {
        report_say(into, "each case, device and transport: gpuipc-selftest --verbose\n");
    }
    if (total.passed + total.failed > 0 && !(into->is_brief && at.info.is_emulated)) {
        report_say(wanted->report,
                   "hand-over: from the producer's call of send until the buffer was open in the "
                   "consumer, once each%s\n",
                   at.info.is_emulated ? " (emulated)" : "");
    }
    if (total.passed + total.failed == 0 && !run_is_wanted(wanted, "share") &&
        !program_is_interrupted()) {
        code = EXIT_PASS; /* which ways there are was all that was asked for, as by the command */
    } else {
        code = run_summarize(wanted, &at, &total);
    }
    run_end(wanted, &at);
    return code;
}
