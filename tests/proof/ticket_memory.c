/* SPDX-License-Identifier: MIT */
/**
 * @file The ticket's codec for Frama-C's Eva: whatever the 64 bytes, or the fields, there is no access beyond them, no
 * overflow of a signed number and nothing read that was not written. ci/prove runs it; it is never compiled.
 *
 * The reading of a text is proven in text_memory.c: that a character which was looked at is still the same when it is read
 * again is beyond Eva's domains.
 */
#include <__fc_builtin.h>
#include <stdarg.h>

#include "ticket/ticket.h"

#include "base/status.h"
#include "os.h"

/* The record of an error is no part of what is proven. */
gpuipc_status status_fail(gpuipc_status status, const char *format, ...) {
    (void)format;
    return status;
}
void status_enter(const char *call) {
    (void)call;
}

#include "../../src/common/ticket/ticket.c"

static ticket decoded;
static gpuipc_ticket encoded;

static void read_any_bytes(void) {
    static gpuipc_ticket bytes;
    Frama_C_make_unknown((char *)bytes.bytes, sizeof(bytes.bytes));
    (void)ticket_decode(&bytes, &decoded);
    (void)gpuipc_ticket_from_bytes(bytes.bytes, sizeof(bytes.bytes), &encoded);
    (void)gpuipc_ticket_narrow(&bytes, Frama_C_unsigned_long_long_interval(0, UINT64_MAX),
                               Frama_C_unsigned_long_long_interval(0, UINT64_MAX), &encoded);
}

static void write_any_fields(void) {
    static char text[GPUIPC_TICKET_TEXT_SIZE];
    static char name[TICKET_ENDPOINT_SIZE];
    static ticket record;
    Frama_C_make_unknown((char *)&record, sizeof(record));
    ticket_encode(&record, &encoded);
    (void)gpuipc_ticket_to_text(&encoded, text);
    ticket_endpoint(record.server_id, name);
}

/* Of another size than a ticket, nothing is read. */
static void read_other_size(void) {
    const uint8_t nothing[1] = {0};
    (void)gpuipc_ticket_from_bytes(
        nothing, Frama_C_unsigned_long_long_interval(0, GPUIPC_TICKET_BYTES - 1), &encoded);
    (void)gpuipc_ticket_from_bytes(
        nothing, Frama_C_unsigned_long_long_interval(GPUIPC_TICKET_BYTES + 1, UINT64_MAX),
        &encoded);
}

int main(void) {
    read_any_bytes();
    write_any_fields();
    read_other_size();
#ifdef PLANTED /* a byte too many */
    (void)crc_add(0, encoded.bytes, GPUIPC_TICKET_BYTES + 1);
#endif
    return 0;
}
