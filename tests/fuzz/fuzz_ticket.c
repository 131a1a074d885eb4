/* SPDX-License-Identifier: MIT */
/**
 * @file The 64 bytes of a ticket. Few inputs have the right check; so the same bytes are also taken for the fields of a
 * ticket, which is encoded and decoded.
 */
#include <stdbool.h>
#include <string.h>

#include "fuzz.h"
#include "ticket/ticket.h"

/* From the bytes that somebody sent. */
static void check_bytes(const uint8_t *data, size_t size) {
    gpuipc_ticket bytes;
    gpuipc_ticket again;
    ticket record;
    if (gpuipc_ticket_from_bytes(data, size, &bytes) != GPUIPC_OK) {
        return;
    }
    FUZZ_CHECK(size == GPUIPC_TICKET_BYTES && ticket_decode(&bytes, &record) == GPUIPC_OK);
    ticket_encode(&record, &again);
    fuzz_check_same(again.bytes, data, size, data, size);
}

static bool is_same(const ticket *a, const ticket *b) {
    return memcmp(a->server_id, b->server_id, sizeof(a->server_id)) == 0 && a->share == b->share &&
           ticket_secret_is(a->secret, b->secret) && a->offset == b->offset &&
           a->bytes == b->bytes && a->boot == b->boot && a->user == b->user;
}

static void check_narrow(const gpuipc_ticket *whole, const ticket *record, uint64_t offset,
                         uint64_t bytes) {
    gpuipc_ticket part;
    ticket narrowed;
    const bool fits = bytes > 0 && offset <= record->bytes && bytes <= record->bytes - offset;
    FUZZ_CHECK((gpuipc_ticket_narrow(whole, offset, bytes, &part) == GPUIPC_OK) == fits);
    if (fits) {
        FUZZ_CHECK(ticket_decode(&part, &narrowed) == GPUIPC_OK);
        FUZZ_CHECK(narrowed.offset == record->offset + offset && narrowed.bytes == bytes);
    }
}

/* From the fields: whatever stands for something comes back as it was, also through its text. */
static void check_fields(const ticket *record, uint64_t offset, uint64_t bytes) {
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_ticket encoded;
    gpuipc_ticket read;
    ticket decoded;
    const bool stands =
        record->share != 0 && record->bytes > 0 && record->bytes <= UINT64_MAX - record->offset;
    ticket_encode(record, &encoded);
    FUZZ_CHECK((ticket_decode(&encoded, &decoded) == GPUIPC_OK) == stands);
    if (stands) {
        FUZZ_CHECK(is_same(&decoded, record));
        FUZZ_CHECK(gpuipc_ticket_to_text(&encoded, text) == GPUIPC_OK);
        FUZZ_CHECK(strlen(text) == GPUIPC_TICKET_TEXT_SIZE - 1);
        FUZZ_CHECK(gpuipc_ticket_from_text(text, &read) == GPUIPC_OK);
        FUZZ_CHECK(memcmp(&read, &encoded, sizeof(read)) == 0);
        check_narrow(&encoded, record, offset, bytes);
    }
}

/* The next bytes of the input. */
static void take(const uint8_t **at, void *out, size_t bytes) {
    memcpy(out, *at, bytes);
    *at += bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *at = data;
    ticket record;
    uint32_t offset;
    uint32_t bytes;
    check_bytes(data, size);
    if (size < GPUIPC_TICKET_BYTES) {
        return 0;
    }
    take(&at, &record.boot, sizeof(record.boot));
    at += 2;
    take(&at, &record.user, sizeof(record.user));
    take(&at, &record.share, sizeof(record.share));
    take(&at, &offset, sizeof(offset));
    take(&at, record.server_id, sizeof(record.server_id));
    take(&at, record.secret, sizeof(record.secret));
    take(&at, &record.offset, sizeof(record.offset));
    take(&at, &record.bytes, sizeof(record.bytes));
    memcpy(&bytes, record.secret, sizeof(bytes));
    check_fields(&record, offset, bytes);
    return 0;
}
