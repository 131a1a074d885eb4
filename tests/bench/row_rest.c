/* SPDX-License-Identifier: MIT */
/**
 * @file What a process does while nothing is asked of it: its threads and how often they wake up, with a server
 * that has shared something, beside a process that uses the driver alone.
 */
#include "bench_row.h"
#include "report.h"
#include "rest.h"

#define REST_MS  1000u
#define SETTLE   200u
#define QUICK_MS 20u

static gpuipc_buffer *share(bench_pair *pair, gpuipc_server *server, uint32_t device) {
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_ticket ticket;
    uint64_t took;
    gpuipc_buffer *buffer = pair_buffer(pair, 2 * MIB, device, 9);
    bench_check(gpuipc_buffer_share(server, buffer, NULL, &ticket), "gpuipc_buffer_share");
    bench_check(gpuipc_ticket_to_text(&ticket, text), "gpuipc_ticket_to_text");
    pair_tell(pair->partner, "ticket %s %u 9", text, (unsigned)device);
    pair_hear(pair->partner, &took, 1);
    return buffer;
}

void row_at_rest(bench_pair *pair, const bench_row *row) {
    rest own;
    rest plain;
    rest opener;
    gpuipc_server *server = NULL;
    const uint32_t milliseconds = pair->is_quick ? QUICK_MS : REST_MS;
    const uint32_t device = pair_device(pair, row->is_peer);
    const floor_plan plan = {1, 2 * MIB, 0};
    if (courier_why_not() != NULL || !rest_measure(0, &own)) {
        report_refusal(pair, row->name, "threads are counted on Linux only");
        return;
    }
    bench_check(gpuipc_server_create(pair->context, NULL, &server), "gpuipc_server_create");
    gpuipc_buffer *buffer = share(pair, server, device);
    (void)pair_floor(pair, &plan, device, 9, 1);
    os_sleep_ms(pair->is_quick ? QUICK_MS : SETTLE);
    (void)rest_measure(milliseconds, &own);
    pair_tell(pair->partner, "rest %u", (unsigned)milliseconds);
    rest_hear(pair->partner, &opener);
    pair_tell(pair->floor, "rest %u", (unsigned)milliseconds);
    rest_hear(pair->floor, &plain);
    bench_check(gpuipc_buffer_release(buffer), "releasing");
    bench_check(gpuipc_server_destroy(server), "gpuipc_server_destroy");
    bench_result found = result_make(pair, row->name, NULL, "");
    result_check_most(&found, "threads more than without gpuipc, sharer",
                      (double)own.threads - plain.threads, 1);
    result_check_most(&found, "likewise, opener", (double)opener.threads - plain.threads, 0);
    result_check_most(&found, "wake-ups more in the time, sharer",
                      (double)own.switches - (double)plain.switches, 0);
    result_check_most(&found, "likewise, opener", (double)opener.switches - (double)plain.switches,
                      0);
    result_note(&found, "threads without gpuipc", plain.threads);
    result_note(&found, "wake-ups without gpuipc", (double)plain.switches);
    result_note(&found, "milliseconds", milliseconds);
    report(&found);
}
