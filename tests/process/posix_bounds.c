/* SPDX-License-Identifier: MIT */
/** @file What a flood of clients leaves of this process's memory, which Linux says page by page. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "message/wire.h"
#include "process_case.h"
#include "raw_peer.h"
#include "ticket/ticket.h"

/* More than a user may have at once. */
#define CLIENTS        160u
#define MOST_OF_A_USER 128u
/* One packet of a client's: what a later version appends to a request is read, and skipped. */
#define REQUEST_BYTES 130000u
/* Of some 20 MB that they fill. */
#define LEFT_AT_MOST (UINT64_C(4) << 20)

static uint8_t packet[OS_PACKET_BYTES_MAX];

static uint64_t resident_bytes(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%*u %lu", &pages), 1);
    (void)fclose(file);
    return pages * os_page_bytes();
}

/* For a ticket that the server has not given out. */
static void make_request(const gpuipc_ticket *given) {
    const wire_header header = {
        .kind = WIRE_REQUEST, .total_bytes = REQUEST_BYTES, .bytes = REQUEST_BYTES};
    wire_request request = {.wish = WIRE_OPEN};
    gpuipc_ticket bytes;
    ticket wanted;
    check_ok(ticket_decode(given, &wanted));
    wanted.share += 1000;
    ticket_encode(&wanted, &bytes);
    memcpy(request.ticket, bytes.bytes, sizeof(request.ticket));
    wire_encode_header(&header, packet);
    wire_encode_request(&request, packet + WIRE_HEADER_BYTES);
}

static void flood(const process_case *at, const char *name) {
    static raw_peer *clients[CLIENTS];
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = raw_connect(at->directory, name);
        cr_assert_not_null(clients[i]);
        (void)raw_send(clients[i], packet, WIRE_HEADER_BYTES + REQUEST_BYTES, NULL, 0);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        uint8_t reply[256];
        size_t none = 0;
        cr_assert_gt(raw_receive(clients[i], reply, sizeof(reply), NULL, &none, PATIENCE_MS), 0);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        raw_close(clients[i]);
    }
}

Test(bounds, a_flood_of_clients_leaves_no_memory) {
    const gpuipc_server_config config = {.struct_size = sizeof(config),
                                         .flags = GPUIPC_SERVER_THREAD,
                                         .max_connections_per_user = MOST_OF_A_USER};
    process_case at;
    gpuipc_server *server;
    gpuipc_ticket given;
    ticket decoded;
    char name[TICKET_ENDPOINT_SIZE];
    process_case_begin(&at, NULL);
    check_ok(gpuipc_server_create(at.context, &config, &server));
    gpuipc_buffer *shared = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(gpuipc_buffer_share(server, shared, NULL, &given));
    check_ok(ticket_decode(&given, &decoded));
    ticket_endpoint(decoded.server_id, name);
    make_request(&given);
    const uint64_t before = resident_bytes();
    for (int i = 0; i < 3; i++) {
        flood(&at, name);
    }
    check_ok(gpuipc_server_destroy(server));
    const uint64_t after = resident_bytes();
    cr_assert_leq(after, before + LEFT_AT_MOST, "%llu bytes before, %llu after",
                  (unsigned long long)before, (unsigned long long)after);
    check_ok(gpuipc_buffer_release(shared));
    process_case_end(&at);
}
