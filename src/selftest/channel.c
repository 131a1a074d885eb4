/* SPDX-License-Identifier: MIT */
/** @file See channel.h: the program that starts the writers. */
#include "channel.h"

#include <inttypes.h>
#include <stdio.h>

#include "crew.h"
#include "program.h"
#include "quantity.h"
#include "report.h"
#include "run.h"

/* A camera's frame; the emulated driver's memory is the host's. */
#define BYTES          (UINT64_C(8) << 20)
#define BYTES_EMULATED (UINT64_C(256) << 10)
/* What a context takes beside the slots, the contents and a reader's copy. */
#define SPARE_BYTES (UINT64_C(16) << 20)

/* Whether there is room; a line says why not, or that it could not be asked. */
static bool has_room(report *into, session *at, uint32_t device, uint64_t bytes, const char *id,
                     const char *title, tally *total) {
    char line[ROLE_LINE_MAX];
    char free_text[QUANTITY_MAX];
    uint64_t free_bytes = 0;
    if (session_free_memory(at, device, &free_bytes) != GPUIPC_OK) {
        (void)snprintf(line, sizeof(line), "%s: %s", title, gpuipc_error_get()->sentence);
        report_add_check(into, id, REPORT_FAIL, line);
        total->failed++;
        return false;
    }
    if (bytes > free_bytes / (CHANNEL_SLOTS + 2) ||
        bytes * (CHANNEL_SLOTS + 2) + SPARE_BYTES > free_bytes) {
        (void)snprintf(line, sizeof(line), "%s: device %u has %s of memory free, for %d frames",
                       title, device, quantity_bytes(free_bytes >> 20 << 20, free_text),
                       CHANNEL_SLOTS + 2);
        report_add_check(into, id, REPORT_SKIP, line);
        total->skipped++;
        return false;
    }
    return true;
}

/* Which of all cases of a round is next. */
typedef struct progress {
    unsigned number;
    unsigned all;
} progress;

static void run_case(const options *wanted, session *at, uint32_t owner, uint32_t peer,
                     uint64_t bytes, progress *where, tally *total) {
    crew_member writer = {.name = "writer"};
    crew_part whole = {.cases = 1, .number = ++where->number, .all = where->all};
    char id[64];
    char size[QUANTITY_MAX];
    char name[ARGUMENT_LENGTH];
    (void)snprintf(whole.title, sizeof(whole.title), "channel, device %u -> device %u, %s", owner,
                   peer, quantity_bytes(bytes, size));
    (void)snprintf(id, sizeof(id), "channel/%u-%u/%" PRIu64, owner, peer, bytes);
    if (!has_room(wanted->report, at, owner, bytes, id, whole.title, total) ||
        (peer != owner && !has_room(wanted->report, at, peer, bytes, id, whole.title, total))) {
        return;
    }
    arguments_begin(&writer.words, "channel-writer", arguments_unique_name(name), at->choice,
                    wanted);
    arguments_add_number(&writer.words, "--device", owner);
    arguments_add_number(&writer.words, "--peer", peer);
    arguments_add_number(&writer.words, "--size", bytes);
    (void)crew_run(wanted, &whole, 1, &writer, 1, total);
}

static unsigned cases_of_pair(const options *wanted) {
    return wanted->size_count == 0 ? 1 : (unsigned)wanted->size_count;
}

static void run_pair(const options *wanted, session *at, uint32_t owner, uint32_t peer,
                     progress *where, tally *total) {
    const uint64_t usual = at->info.is_emulated ? BYTES_EMULATED : BYTES;
    bool can = false;
    if (!run_can_reach(wanted->report, "channel", at, owner, peer, &can)) {
        total->failed++;
    } else if (!can) {
        total->skipped++;
    } else if (wanted->size_count == 0) {
        run_case(wanted, at, owner, peer, usual, where, total);
    }
    for (size_t i = 0; can && i < wanted->size_count; i++) {
        run_case(wanted, at, owner, peer, wanted->sizes[i], where, total);
    }
    where->number += can ? 0 : cases_of_pair(wanted);
}

static void run_pairs(const options *wanted, session *at, tally *total) {
    progress where = {.all = run_pair_count(wanted, at) * cases_of_pair(wanted)};
    for (uint32_t owner = 0; owner < at->info.device_count; owner++) {
        for (uint32_t peer = 0; peer < at->info.device_count; peer++) {
            if (run_is_chosen(wanted->device, owner) && run_is_chosen(wanted->peer, peer) &&
                !program_is_interrupted()) {
                run_pair(wanted, at, owner, peer, &where, total);
            }
        }
    }
}

int channel(const options *wanted) {
    session at;
    tally total = {0};
    int code = run_begin(wanted, &at);
    if (code != EXIT_PASS) {
        return code;
    }
    do {
        run_pairs(wanted, &at, &total);
    } while (run_again(wanted));
    code = run_summarize(wanted, &at, &total);
    run_end(wanted, &at);
    return code;
}
