/* SPDX-License-Identifier: MIT */
/** @file Contents between two processes, one of which may end in the midst of them. */
#include <criterion/criterion.h>
#include <string.h>

#include "check.h"
#include "contents/contents_pace.h"
#include "copy/staging.h"
#include "marks.h"
#include "message/wire.h"
#include "os.h"
#include "partner.h"
#include "raw_peer.h"

static process_case at;
static partner other;
static gpuipc_connection *connection;

TestSuite(contents, .timeout = 100);

#define MIB UINT64_C(1048576)
/* Of 1 MiB pieces: more than there are slots in the ring, and a rest. */
#define MANY (6 * MIB + 48)

static const gpuipc_transport ways[] = {GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_HOST};

/* @param environment of the partner; NULL: this one's */
static void begin(const char *const *environment) {
    process_case_begin(&at, NULL);
    partner_start(&other, &at, NULL, environment);
    partner_do(&other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    connection = process_case_accept(&at);
}

/* The partner is gone, or ends here. */
static void end(void) {
    if (other.process != NULL) {
        partner_end(&other);
    }
    check_ok(gpuipc_connection_close(connection));
    process_case_end(&at);
}

static gpuipc_contents contents_of(gpuipc_buffer *buffer, uint64_t bytes, gpuipc_transport way) {
    return (gpuipc_contents){
        .struct_size = sizeof(gpuipc_contents), .buffer = buffer, .bytes = bytes, .transport = way};
}

static gpuipc_status send_all(gpuipc_buffer *buffer, uint64_t bytes, gpuipc_transport way) {
    const gpuipc_contents contents = contents_of(buffer, bytes, way);
    return gpuipc_connection_send_contents(connection, &contents, PATIENCE_MS);
}

static gpuipc_status receive_all(gpuipc_buffer *buffer, uint64_t bytes) {
    const gpuipc_contents contents = contents_of(buffer, bytes, GPUIPC_TRANSPORT_DEFAULT);
    return gpuipc_connection_receive_contents(connection, &contents, PATIENCE_MS);
}

static void partner_sends(uint64_t bytes, gpuipc_transport way) {
    partner_do(&other, "GPUIPC_OK", "contents_send 0 0 %llu %d %d", (unsigned long long)bytes,
               (int)way, PATIENCE_MS);
}

static int is_lost(gpuipc_buffer *buffer) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_buffer_get_info(buffer, &info));
    return info.is_lost;
}

/* The default stream goes on: what is put on it now comes to pass. */
static void check_stream_goes_on(void) {
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, 4096, 0, 1, 0);
    uint32_t word = 0;
    check_ok(gpuipc_buffer_fill_async(buffer, 0, 4096, 4711, 4, NULL));
    check_ok(gpuipc_buffer_read(buffer, 0, &word, sizeof(word)));
    cr_assert_eq(word, 4711);
    check_ok(gpuipc_buffer_release(buffer));
}

Test(contents, go_both_ways_in_every_size) {
    static const uint64_t sizes[] = {64, 4096 + 16, MIB, MANY, 40 * MIB + 16};
    begin(NULL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) * 2; i++) {
        const uint64_t bytes = sizes[i / 2];
        const unsigned seed = (unsigned)i * 10;
        gpuipc_buffer *mine = process_case_buffer(&at, 0, bytes, 0, seed, 65536);
        partner_do(&other, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)bytes);

        check_ok(send_all(mine, bytes, ways[i % 2]));
        partner_do(&other, "GPUIPC_OK", "contents_receive 0 0 %llu 0 %d", (unsigned long long)bytes,
                   PATIENCE_MS);
        partner_do(&other, "GPUIPC_OK", "check %u 65536", seed);

        partner_do(&other, "GPUIPC_OK", "fill %u 65536", seed + 1);
        partner_sends(bytes, ways[i % 2]);
        check_ok(receive_all(mine, bytes));
        check_ok(marks_check(mine, seed + 1, 65536));
        cr_assert_eq(is_lost(mine), 0);
        partner_do(&other, "GPUIPC_OK", "release");
        check_ok(gpuipc_buffer_release(mine));
    }
    end();
}

Test(contents, one_byte_goes) {
    begin(NULL);
    gpuipc_buffer *mine = process_case_buffer(&at, 0, 4096, 0, 1, 0);
    partner_do(&other, "GPUIPC_OK", "create 1 4096 0 0");
    for (uint32_t i = 0; i < 2; i++) {
        const uint8_t zero = 0;
        uint8_t found[3] = {0, 0, 0};
        partner_do(&other, "GPUIPC_OK", "paint %u 4096", 0x01010101u * (i + 5));
        check_ok(gpuipc_buffer_fill_async(mine, 0, 4096, zero, 1, NULL));
        partner_do(&other, "GPUIPC_OK", "contents_send 0 77 1 %d %d", (int)ways[i], PATIENCE_MS);
        const gpuipc_contents contents = {
            .struct_size = sizeof(contents), .buffer = mine, .offset = 1, .bytes = 1};
        check_ok(gpuipc_connection_receive_contents(connection, &contents, PATIENCE_MS));
        check_ok(gpuipc_buffer_read(mine, 0, found, sizeof(found)));
        cr_assert(found[0] == 0 && found[1] == i + 5 && found[2] == 0);
    }
    check_ok(gpuipc_buffer_release(mine));
    end();
}

/* Both calls return at once; the contents come when they are there. */
Test(contents, that_come_late_are_seen_by_the_stream) {
    begin(NULL);
    gpuipc_buffer *mine = process_case_buffer(&at, 0, MANY, 0, 1, 0);
    gpuipc_buffer *seen = process_case_buffer(&at, 0, MANY, 0, 1, 0);
    partner_do(&other, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MANY);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t words[2] = {0, 0};
        partner_do(&other, "GPUIPC_OK", "gate");
        partner_do(&other, "GPUIPC_OK", "paint %u %llu", i + 7, (unsigned long long)MANY);
        partner_sends(MANY, ways[i]);
        partner_do(&other, "GPUIPC_OK", "paint 99 %llu", (unsigned long long)MANY);
        check_ok(receive_all(mine, MANY));
        check_ok(gpuipc_buffer_copy_async(seen, 0, mine, 0, MANY, NULL));
        partner_do(&other, "GPUIPC_OK", "open");
        check_ok(gpuipc_buffer_read(seen, 0, &words[0], 4));
        check_ok(gpuipc_buffer_read(seen, MANY - 4, &words[1], 4));
        cr_assert(words[0] == i + 7 && words[1] == i + 7);
        partner_do(&other, "GPUIPC_OK", "painted 99"); /* in its own order */
    }
    check_ok(gpuipc_buffer_release(seen));
    check_ok(gpuipc_buffer_release(mine));
    end();
}

Test(contents, of_another_size_are_dropped_on_both_sides) {
    begin(NULL);
    gpuipc_buffer *mine = process_case_buffer(&at, 0, MANY, 0, 3, 65536);
    partner_do(&other, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MANY);
    for (uint32_t i = 0; i < 2; i++) {
        partner_sends(MANY, ways[i]);
        check_status(GPUIPC_ERR_SIZE_MISMATCH, receive_all(mine, MANY - 1));
        partner_do(&other, "GPUIPC_OK", "synchronize");
        check_ok(send_all(mine, MANY, ways[i]));
        partner_do(&other, "GPUIPC_ERR_SIZE_MISMATCH", "contents_receive 0 0 64 0 %d", PATIENCE_MS);
        check_stream_goes_on();
        check_ok(send_all(mine, MANY, ways[i]));
        partner_do(&other, "GPUIPC_OK", "contents_receive 0 0 %llu 0 %d", (unsigned long long)MANY,
                   PATIENCE_MS);
        partner_do(&other, "GPUIPC_OK", "check 3 65536");
    }
    check_ok(gpuipc_buffer_release(mine));
    end();
}

Test(contents, and_messages_wait_for_their_own_call) {
    begin(NULL);
    gpuipc_buffer *mine = process_case_buffer(&at, 0, MANY, 0, 3, 0);
    size_t none = 0;
    partner_do(&other, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MANY);
    partner_do(&other, "GPUIPC_OK", "fill 8 65536");
    for (uint32_t i = 0; i < 2; i++) {
        gpuipc_buffer *opened[1];
        size_t count = 1;
        partner_do(&other, "GPUIPC_OK", "send 5 0 %d", PATIENCE_MS);
        partner_sends(MANY, ways[i]);
        check_status(GPUIPC_ERR_OTHER_KIND, receive_all(mine, MANY));
        check_ok(process_case_receive(connection, opened, &count, NULL, PATIENCE_MS));
        check_ok(gpuipc_buffer_release(opened[0]));
        check_status(GPUIPC_ERR_OTHER_KIND,
                     process_case_receive(connection, NULL, &none, NULL, PATIENCE_MS));
        check_ok(receive_all(mine, MANY));
        check_ok(marks_check(mine, 8, 65536));
    }
    check_ok(gpuipc_buffer_release(mine));
    end();
}

/* ---- ends --------------------------------------------------------------------------------- */

static void kill_sender_before(gpuipc_transport way) {
    begin(NULL);
    gpuipc_buffer *mine = process_case_buffer(&at, 0, MANY, 0, 3, 0);
    partner_do(&other, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MANY);
    partner_do(&other, "GPUIPC_OK", "gate");
    partner_sends(MANY, way);
    check_ok(receive_all(mine, MANY));
    cr_assert_eq(is_lost(mine), 0);
    partner_kill(&other);
    check_stream_goes_on();
    cr_assert_eq(is_lost(mine), 1);
    check_status(GPUIPC_ERR_PEER_CLOSED, receive_all(mine, MANY));
    check_ok(gpuipc_buffer_release(mine));
    end();
}

Test(contents, out_of_memory_of_a_sender_that_is_killed) {
    kill_sender_before(GPUIPC_TRANSPORT_VMM);
}

Test(contents, through_the_ring_of_a_sender_that_is_killed) {
    kill_sender_before(GPUIPC_TRANSPORT_HOST);
}

static const char *const slow[] = {"GPUIPC_EMULATED_MACHINE=stream-delay-ms=30", NULL};

/* Some pieces have come, others have not. */
Test(contents, through_the_ring_of_a_sender_that_is_killed_in_the_midst) {
    begin(slow);
    if (process_case_is_emulated(&at)) {
        gpuipc_buffer *mine = process_case_buffer(&at, 0, 2 * MANY, 0, 3, 0);
        partner_do(&other, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)(2 * MANY));
        partner_sends(2 * MANY, GPUIPC_TRANSPORT_HOST);
        check_ok(receive_all(mine, 2 * MANY));
        partner_kill(&other);
        check_stream_goes_on();
        cr_assert_eq(is_lost(mine), 1);
        check_ok(gpuipc_buffer_release(mine));
    }
    end();
}

/* The sender may not fill a slot before it is empty. */
Test(contents, for_a_receiver_that_is_slow) {
    begin(slow);
    gpuipc_buffer *mine = process_case_buffer(&at, 0, MANY, 0, 3, 65536);
    partner_do(&other, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MANY);
    for (int i = 0; i < 2; i++) {
        check_ok(send_all(mine, MANY, ways[i]));
        partner_do(&other, "GPUIPC_OK", "contents_receive 0 0 %llu 0 %d", (unsigned long long)MANY,
                   PATIENCE_MS);
        partner_do(&other, "GPUIPC_OK", "check 3 65536");
    }
    check_ok(gpuipc_buffer_release(mine));
    end();
}

/* A receiver that is killed, or goes, before it has looked or after it has begun. */
static void end_receiver(gpuipc_transport way, bool begins, bool is_killed) {
    begin(begins ? slow : NULL);
    gpuipc_buffer *mine = process_case_buffer(&at, 0, MANY, 0, 3, 65536);
    check_ok(send_all(mine, MANY, way));
    if (begins) {
        partner_do(&other, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MANY);
        partner_do(&other, "GPUIPC_OK", "contents_receive 0 0 %llu 0 %d", (unsigned long long)MANY,
                   PATIENCE_MS);
    }
    if (is_killed) {
        partner_kill(&other);
    } else {
        partner_do(&other, "GPUIPC_OK", "disconnect");
    }
    check_stream_goes_on();
    check_ok(marks_check(mine, 3, 65536));
    cr_assert_eq(is_lost(mine), 0);
    if (begins && !is_killed) {
        partner_do(&other, "GPUIPC_OK", "check 3 65536");
    }
    check_ok(gpuipc_buffer_release(mine));
    end();
}

Test(contents, for_a_receiver_that_never_looks) {
    for (int i = 0; i < 4; i++) {
        end_receiver(ways[i % 2], false, i >= 2);
    }
}

Test(contents, for_a_receiver_that_goes_in_the_midst) {
    for (int i = 0; i < 4; i++) {
        end_receiver(ways[i % 2], true, i >= 2);
    }
}

/* As many as go while nobody receives; what comes next keeps to its time-out, also when the receiver has died. */
static void check_full_streams(gpuipc_transport way) {
    unsigned sent = 0;
    gpuipc_status status;
    begin(NULL);
    gpuipc_buffer *mine = process_case_buffer(&at, 0, MIB, 0, 3, 65536);
    const gpuipc_contents contents = contents_of(mine, 4096, way);
    while ((status = gpuipc_connection_send_contents(connection, &contents, 20)) == GPUIPC_OK) {
        sent++;
        cr_assert_lt(sent, 1000);
    }
    check_status(GPUIPC_ERR_TIMEOUT, status);
    cr_assert_geq(sent, 64);
    partner_kill(&other);
    check_status(GPUIPC_ERR_PEER_CLOSED, send_all(mine, 4096, way));
    check_stream_goes_on();
    check_ok(gpuipc_buffer_release(mine));
    end();
}

Test(contents, until_the_streams_are_full) {
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        check_full_streams(ways[i]);
    }
}

/* ---- a sender that keeps to no rule ------------------------------------------------------- */

static raw_peer *raw;

static void begin_raw(void) {
    process_case_begin(&at, NULL);
    raw = raw_connect(at.directory, at.name);
    cr_assert_not_null(raw);
    connection = process_case_accept(&at);
}

static void end_raw(void) {
    raw_close(raw);
    check_ok(gpuipc_connection_close(connection));
    process_case_end(&at);
}

/* Shared memory of a size, as a page or slots. */
static bool send_memory(const void *packet, size_t size, uint64_t bytes) {
    os_handle handle;
    check_ok(os_memory_create("test", bytes, &handle));
    const intptr_t native = handle.value;
    const bool sent = raw_send(raw, packet, size, &native, 1);
    os_handle_close(&handle);
    return sent;
}

static size_t encode_ring(uint8_t *packet) {
    const wire_header header = {.kind = WIRE_RING};
    wire_encode_header(&header, packet);
    return WIRE_HEADER_BYTES;
}

static bool send_ring(uint64_t bytes) {
    uint8_t packet[WIRE_HEADER_BYTES];
    return send_memory(packet, encode_ring(packet), bytes);
}

/* Contents, with slots of a size unless that is 0. */
static bool send_record(const wire_contents *record, uint64_t number, uint64_t slots) {
    uint8_t
        packet[WIRE_HEADER_BYTES + WIRE_CONTENTS_BYTES + WIRE_BUFFER_BYTES + WIRE_SEGMENT_BYTES];
    const wire_header header = {.kind = WIRE_CONTENTS,
                                .number = number,
                                .total_bytes = WIRE_CONTENTS_BYTES,
                                .total_buffers = slots > 0,
                                .total_segments = slots > 0,
                                .bytes = WIRE_CONTENTS_BYTES,
                                .buffers = slots > 0,
                                .segments = slots > 0};
    const wire_buffer buffer = {.bytes = slots,
                                .segment_count = 1,
                                .memory = SEGMENT_MEMORY_HOST,
                                .handle_type = (uint16_t)os_shareable_handle_type,
                                .access = GPUIPC_ACCESS_READ_WRITE};
    const segment_record segment = {.bytes = slots, .naming = SEGMENT_NAMED_BY_HANDLE};
    uint8_t *into = packet + WIRE_HEADER_BYTES;
    wire_encode_header(&header, packet);
    wire_encode_contents(record, into);
    if (slots == 0) {
        return raw_send(raw, packet, WIRE_HEADER_BYTES + WIRE_CONTENTS_BYTES, NULL, 0);
    }
    wire_encode_buffer(&buffer, into + WIRE_CONTENTS_BYTES);
    wire_encode_segment(&segment, into + WIRE_CONTENTS_BYTES + WIRE_BUFFER_BYTES);
    return send_memory(packet, sizeof(packet), slots);
}

typedef struct bad_row {
    const char *what;
    gpuipc_status expected;
    wire_contents record;
    uint64_t page;  /* bytes; 0: no page comes before */
    uint64_t slots; /* bytes; 0: none come */
} bad_row;

#define PAGE  UINT64_C(106496)
#define SLOTS (32 * MIB)

static const bad_row bad_rows[] = {
    {"no way", GPUIPC_ERR_VERSION, {0, 0, 64, 0}, 0, 0},
    {"a later way", GPUIPC_ERR_VERSION, {6, 0, 64, 0}, 0, 0},
    {"no bytes", GPUIPC_ERR_PROTOCOL, {SEGMENT_MEMORY_HOST, 0, 0, 0}, PAGE, SLOTS},
    {"an offset", GPUIPC_ERR_PROTOCOL, {SEGMENT_MEMORY_HOST, 8, 64, 0}, PAGE, SLOTS},
    {"a range beyond 64 bits", GPUIPC_ERR_PROTOCOL, {SEGMENT_MEMORY_VMM, 64, UINT64_MAX, 0}, 0, 0},
    {"memory, but none came", GPUIPC_ERR_PROTOCOL, {SEGMENT_MEMORY_VMM, 0, 64, 0}, 0, 0},
    {"vmm, but host memory came", GPUIPC_ERR_PROTOCOL, {SEGMENT_MEMORY_VMM, 0, 64, 0}, 0, PAGE},
    {"no ring", GPUIPC_ERR_PROTOCOL, {SEGMENT_MEMORY_HOST, 0, 64, 0}, 0, 0},
    {"no words", GPUIPC_ERR_PROTOCOL, {SEGMENT_MEMORY_HOST, 0, 64, 0}, 0, SLOTS},
    {"no slots", GPUIPC_ERR_PROTOCOL, {SEGMENT_MEMORY_HOST, 0, 64, 0}, PAGE, 0},
    {"a page that is too large", GPUIPC_ERR_PROTOCOL, {SEGMENT_MEMORY_HOST, 0, 64, 0}, 2 * PAGE, 0},
    {"slots that are too small", GPUIPC_ERR_PROTOCOL, {SEGMENT_MEMORY_HOST, 0, 64, 0}, PAGE, PAGE},
    {"a later piece", GPUIPC_ERR_PROTOCOL, {SEGMENT_MEMORY_HOST, 0, 64, 1}, PAGE, SLOTS}};

Test(contents, that_break_the_rules_end_the_connection) {
    for (size_t i = 0; i < sizeof(bad_rows) / sizeof(bad_rows[0]); i++) {
        const bad_row *row = &bad_rows[i];
        begin_raw();
        gpuipc_buffer *mine = process_case_buffer(&at, 0, 64, 0, 3, 0);
        cr_assert(row->page == 0 || send_ring(row->page));
        (void)send_record(&row->record, 0, row->slots);
        const gpuipc_status status = receive_all(mine, 64);
        cr_assert_eq(status, row->expected, "%s: %s, %s", row->what, gpuipc_status_name(status),
                     gpuipc_error_get()->sentence);
        check_status(GPUIPC_ERR_CONNECTION_BROKEN, receive_all(mine, 64));
        check_ok(marks_check(mine, 3, 0));
        check_ok(gpuipc_buffer_release(mine));
        end_raw();
    }
}

Test(contents, a_second_ring_ends_the_connection) {
    const wire_contents record = {.memory = SEGMENT_MEMORY_HOST, .bytes = 64};
    for (int i = 0; i < 3; i++) {
        begin_raw();
        gpuipc_buffer *mine = process_case_buffer(&at, 0, 64, 0, 3, 0);
        cr_assert(send_ring(PAGE));
        if (i > 0) {
            cr_assert(send_record(&record, 0, SLOTS));
            check_status(GPUIPC_ERR_SIZE_MISMATCH, receive_all(mine, 32));
        }
        const wire_contents next = {.memory = SEGMENT_MEMORY_HOST, .bytes = 64, .number = 1};
        cr_assert(i == 2 ? send_record(&next, 1, SLOTS) : send_ring(PAGE));
        check_status(GPUIPC_ERR_PROTOCOL, receive_all(mine, 64));
        check_status(GPUIPC_ERR_CONNECTION_BROKEN, receive_all(mine, 64));
        check_ok(gpuipc_buffer_release(mine));
        end_raw();
    }
}

/* The words of a ring, which this side can write. */
static uint64_t *send_words(void) {
    uint8_t packet[WIRE_HEADER_BYTES];
    os_handle handle;
    void *words;
    check_ok(os_memory_create("test", PAGE, &handle));
    check_ok(os_memory_map(handle, PAGE, true, &words));
    const intptr_t native = handle.value;
    cr_assert(raw_send(raw, packet, encode_ring(packet), &native, 1));
    os_handle_close(&handle);
    return words;
}

static gpuipc_status receive_briefly(gpuipc_buffer *buffer, uint64_t bytes) {
    const gpuipc_contents contents = contents_of(buffer, bytes, GPUIPC_TRANSPORT_DEFAULT);
    return gpuipc_connection_receive_contents(connection, &contents, 20);
}

/* It says that contents come before it fills a slot. What is dropped, since its size is another, counts as well. */
Test(contents, of_a_sender_that_runs_ahead) {
    wire_contents record = {.memory = SEGMENT_MEMORY_HOST, .bytes = 64};
    begin_raw();
    gpuipc_buffer *mine = process_case_buffer(&at, 0, 64, 0, 3, 0);
    uint64_t *words = send_words();
    for (uint64_t n = 0; n < CONTENTS_PACE_MOST; n++, record.number++) {
        const bool is_dropped = n % 3 == 1;
        cr_assert(send_record(&record, n, n == 0 ? SLOTS : 0));
        check_status(is_dropped ? GPUIPC_ERR_SIZE_MISMATCH : GPUIPC_OK,
                     receive_briefly(mine, is_dropped ? 32 : 64));
    }
    cr_assert(send_record(&record, record.number, 0));
    check_status(GPUIPC_ERR_TIMEOUT, receive_briefly(mine, 32));
    check_status(GPUIPC_ERR_TIMEOUT, receive_briefly(mine, 64));
    for (size_t slot = 0; slot < STAGING_SLOTS; slot++) {
        words[slot * 2] = CONTENTS_PACE_MOST + 1; /* filled (contents_lane.h), for all contents */
    }
    check_ok(receive_all(mine, 64));
    check_stream_goes_on();
    os_memory_unmap(words, PAGE);
    check_ok(gpuipc_buffer_release(mine));
    end_raw();
}
