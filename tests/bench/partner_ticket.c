/* SPDX-License-Identifier: MIT */
/** @file The opener's side of row_ticket.c. */
#include "helper.h"
#include "pair.h"
#include "partner.h"
#include "system.h"

#define AGAIN 1000u

static gpuipc_buffer *open_ticket(partner *self, const gpuipc_ticket *ticket, uint32_t device) {
    const gpuipc_open_config config = {.struct_size = sizeof(config),
                                       .device = GPUIPC_DEVICE(device)};
    gpuipc_buffer *buffer = NULL;
    bench_check(gpuipc_buffer_open(self->context, ticket, &config, &buffer), "gpuipc_buffer_open");
    return buffer;
}

/* ticket TEXT DEVICE VALUE: answers nanoseconds from the ticket's text to the memory */
void partner_ticket(partner *self, const partner_words *words) {
    gpuipc_ticket ticket;
    const uint32_t device = (uint32_t)partner_number(words, 1);
    const uint64_t begin = os_clock_ns();
    bench_check(gpuipc_ticket_from_text(words->word[0], &ticket), "gpuipc_ticket_from_text");
    gpuipc_buffer *buffer = open_ticket(self, &ticket, device);
    const uint64_t took = os_clock_ns() - begin;
    partner_verify_buffer(buffer, (uint32_t)partner_number(words, 2), device);
    bench_check(gpuipc_buffer_release(buffer), "releasing");
    helper_say("%llu", (unsigned long long)took);
}

/* explicitly NAME DEVICE VALUE: answers nanoseconds from connecting to the memory */
void partner_explicitly(partner *self, const partner_words *words) {
    gpuipc_connection *connection = NULL;
    const uint32_t device = (uint32_t)partner_number(words, 1);
    helper_say("ready");
    const uint64_t begin = os_clock_ns();
    bench_check(
        gpuipc_connection_open(self->context, words->word[0], NULL, PATIENCE_MS, &connection),
        "a connection");
    gpuipc_buffer *buffer = partner_receive_one(connection, device);
    const uint64_t took = os_clock_ns() - begin;
    partner_verify_buffer(buffer, (uint32_t)partner_number(words, 2), device);
    bench_check(gpuipc_buffer_release(buffer), "releasing");
    bench_check(gpuipc_connection_close(connection), "a connection");
    helper_say("%llu", (unsigned long long)took);
}

/* again TEXT DEVICE VALUE ROUNDS: opens it, then again and again; answers for each round picoseconds for one opening
 * and one release, and how many calls of the driver it was, and at last whether system calls were forbidden */
void partner_again(partner *self, const partner_words *words) {
    static gpuipc_buffer *buffers[AGAIN];
    gpuipc_ticket ticket;
    const uint32_t device = (uint32_t)partner_number(words, 1);
    const uint64_t rounds = partner_number(words, 3);
    bool is_forbidden = false;
    bench_check(gpuipc_ticket_from_text(words->word[0], &ticket), "gpuipc_ticket_from_text");
    gpuipc_buffer *first = open_ticket(self, &ticket, device);
    for (uint64_t i = 0; i <= rounds; i++) { /* the first one warms up */
        const uint64_t calls = bench_driver_calls(NULL);
        is_forbidden = i > 0 && system_calls_forbid();
        const uint64_t begin = os_clock_ns();
        for (uint32_t j = 0; j < AGAIN; j++) {
            buffers[j] = open_ticket(self, &ticket, device);
        }
        const uint64_t middle = os_clock_ns();
        for (uint32_t j = 0; j < AGAIN; j++) {
            bench_check(gpuipc_buffer_release(buffers[j]), "releasing");
        }
        const uint64_t end = os_clock_ns();
        system_calls_allow();
        if (i > 0) {
            helper_say("%llu %llu %llu %d", (unsigned long long)(middle - begin),
                       (unsigned long long)(end - middle),
                       (unsigned long long)(bench_driver_calls(NULL) - calls), (int)is_forbidden);
        }
    }
    partner_verify_buffer(first, (uint32_t)partner_number(words, 2), device);
    bench_check(gpuipc_buffer_release(first), "releasing");
}
