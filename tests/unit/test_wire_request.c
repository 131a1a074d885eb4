/* SPDX-License-Identifier: MIT */
/** @file Requests to a server and its replies: frozen bytes, and the refusal of everything else. */
#include <criterion/criterion.h>
#include <string.h>

#include "check.h"
#include "message/wire.h"

Test(wire, a_request_is_the_frozen_bytes) {
    uint8_t frozen[WIRE_REQUEST_BYTES] = {1};
    wire_request wanted = {.wish = WIRE_OPEN};
    uint8_t made[WIRE_REQUEST_BYTES + 1] = {0};
    wire_request found = {0};
    for (uint8_t i = 0; i < sizeof(wanted.ticket); i++) {
        wanted.ticket[i] = (uint8_t)(0x40 + i);
        frozen[8 + i] = (uint8_t)(0x40 + i);
    }
    wire_encode_request(&wanted, made);
    cr_assert_eq(memcmp(made, frozen, sizeof(frozen)), 0);
    check_ok(wire_decode_request(made, sizeof(made), &found)); /* a newer minor has more */
    cr_assert(found.wish == WIRE_OPEN &&
              memcmp(found.ticket, wanted.ticket, sizeof(found.ticket)) == 0);
    for (size_t size = 0; size < WIRE_REQUEST_BYTES; size++) {
        check_status(GPUIPC_ERR_PROTOCOL, wire_decode_request(made, size, &found));
    }
    for (size_t i = 2; i < 8; i++) { /* reserved */
        made[i] = 1;
        check_status(GPUIPC_ERR_PROTOCOL, wire_decode_request(made, sizeof(made), &found));
        made[i] = 0;
    }
    made[0] = WIRE_CONFIRM;
    check_ok(wire_decode_request(made, sizeof(made), &found));
    cr_assert_eq(found.wish, 2);
    made[0] = 0;
    check_status(GPUIPC_ERR_VERSION, wire_decode_request(made, sizeof(made), &found));
    made[0] = WIRE_NAME;
    check_ok(wire_decode_request(made, sizeof(made), &found));
    cr_assert_eq(found.wish, 4);
    made[0] = WIRE_NAME + 1;
    check_status(GPUIPC_ERR_VERSION, wire_decode_request(made, sizeof(made), &found));
}

Test(wire, a_wish_for_a_channel_is_the_frozen_bytes) {
    static const uint8_t frozen[8] = {3, 0, 1, 2, 5, 0, 0, 0};
    const wire_request wanted = {.wish = WIRE_SUBSCRIBE, .delivery = 1, .first = 2, .held = 5};
    uint8_t made[WIRE_REQUEST_BYTES];
    wire_request found = {0};
    wire_encode_request(&wanted, made);
    cr_assert_eq(memcmp(made, frozen, sizeof(frozen)), 0);
    check_ok(wire_decode_request(made, sizeof(made), &found));
    cr_assert(found.wish == WIRE_SUBSCRIBE && found.delivery == 1 && found.first == 2 &&
              found.held == 5);
    made[2] = GPUIPC_DELIVERY_NEWEST + 1;
    check_status(GPUIPC_ERR_PROTOCOL, wire_decode_request(made, sizeof(made), &found));
    made[2] = GPUIPC_DELIVERY_NEWEST;
    made[3] = GPUIPC_FIRST_OLDEST + 1;
    check_status(GPUIPC_ERR_PROTOCOL, wire_decode_request(made, sizeof(made), &found));
}

Test(wire, a_reply_is_the_frozen_bytes) {
    static const uint8_t frozen[WIRE_REPLY_BYTES] = {0, 0, 0, 0, 3, 0, 0, 0};
    const wire_reply wanted = {.answer = WIRE_GRANTED, .attachment_bytes = 3};
    uint8_t made[WIRE_REPLY_BYTES + 4] = {0};
    wire_reply found = {.answer = 99};
    wire_encode_reply(&wanted, made);
    cr_assert_eq(memcmp(made, frozen, sizeof(frozen)), 0);
    check_ok(wire_decode_reply(made, WIRE_REPLY_BYTES + 3, &found));
    cr_assert(found.answer == WIRE_GRANTED && found.attachment_bytes == 3);
    for (size_t size = 0; size <= sizeof(made); size++) { /* another length than it says */
        if (size != WIRE_REPLY_BYTES + 3) {
            check_status(GPUIPC_ERR_PROTOCOL, wire_decode_reply(made, size, &found));
        }
    }
    made[2] = WIRE_REPLY_ONE_SHOT;
    check_ok(wire_decode_reply(made, WIRE_REPLY_BYTES + 3, &found));
    cr_assert_eq(found.flags, WIRE_REPLY_ONE_SHOT);
    for (unsigned bit = 1; bit < 16;
         bit++) { /* flags that there are not, or not beside an attachment */
        made[2] = (uint8_t)(1u << bit);
        made[3] = (uint8_t)((1u << bit) >> 8);
        check_status(GPUIPC_ERR_PROTOCOL, wire_decode_reply(made, WIRE_REPLY_BYTES + 3, &found));
    }
}

Test(wire, the_reply_of_a_part_has_no_attachment) {
    const wire_reply wanted = {.answer = WIRE_GRANTED,
                               .flags = WIRE_REPLY_ONE_SHOT | WIRE_REPLY_WITHHELD};
    uint8_t made[WIRE_REPLY_BYTES + 1] = {0};
    wire_reply found;
    wire_encode_reply(&wanted, made);
    check_ok(wire_decode_reply(made, WIRE_REPLY_BYTES, &found));
    cr_assert_eq(found.flags, wanted.flags);
    made[4] = 1; /* its attachment, and the flag that says there is none */
    check_status(GPUIPC_ERR_PROTOCOL, wire_decode_reply(made, sizeof(made), &found));
}

Test(wire, only_what_is_granted_has_an_attachment) {
    uint8_t made[WIRE_REPLY_BYTES + 1] = {0};
    for (uint16_t answer = WIRE_GRANTED; answer <= WIRE_TOO_MANY; answer++) {
        const wire_reply wanted = {.answer = answer, .attachment_bytes = 1};
        const wire_reply alone = {.answer = answer};
        wire_reply found;
        wire_encode_reply(&wanted, made);
        check_status(answer == WIRE_GRANTED ? GPUIPC_OK : GPUIPC_ERR_PROTOCOL,
                     wire_decode_reply(made, sizeof(made), &found));
        wire_encode_reply(&alone, made);
        check_ok(wire_decode_reply(made, WIRE_REPLY_BYTES, &found));
        for (uint8_t flag = WIRE_REPLY_ONE_SHOT; flag <= WIRE_REPLY_WITHHELD; flag++) {
            made[2] = flag;
            /* busy: why */
            check_status(answer == WIRE_GRANTED || answer == WIRE_BUSY ? GPUIPC_OK
                                                                       : GPUIPC_ERR_PROTOCOL,
                         wire_decode_reply(made, WIRE_REPLY_BYTES, &found));
        }
        cr_assert_eq(found.answer, answer);
    }
    const wire_reply newer = {.answer = WIRE_TOO_MANY + 1};
    wire_reply found;
    wire_encode_reply(&newer, made);
    check_status(GPUIPC_ERR_VERSION, wire_decode_reply(made, WIRE_REPLY_BYTES, &found));
}

static gpuipc_status decode(const wire_header *header) {
    uint8_t packet[WIRE_HEADER_BYTES + WIRE_REQUEST_BYTES] = {0};
    wire_packet found;
    wire_encode_header(header, packet);
    return wire_decode_packet(packet, wire_packet_bytes(header), 0, &found);
}

Test(wire, a_request_is_one_packet_without_buffers) {
    const wire_header good = {
        .kind = WIRE_REQUEST, .total_bytes = WIRE_REQUEST_BYTES, .bytes = WIRE_REQUEST_BYTES};
    wire_header bad = good;
    check_ok(decode(&good));
    bad.bytes--;
    check_status(GPUIPC_ERR_PROTOCOL, decode(&bad));
    bad = good;
    bad.total_buffers = 1;
    check_status(GPUIPC_ERR_PROTOCOL, decode(&bad));
    bad = good;
    bad.total_segments = 1;
    check_status(GPUIPC_ERR_PROTOCOL, decode(&bad));
}

Test(wire, a_reply_has_at_most_one_buffer) {
    wire_header header = {
        .kind = WIRE_REPLY, .total_bytes = WIRE_REPLY_BYTES, .bytes = WIRE_REPLY_BYTES};
    check_ok(decode(&header));
    header.total_buffers = 1;
    header.total_segments = 9;
    check_ok(decode(&header));
    header.total_buffers = 2;
    check_status(GPUIPC_ERR_PROTOCOL, decode(&header));
    header.kind = (wire_kind)(WIRE_REPLY + 1);
    check_status(GPUIPC_ERR_PROTOCOL, decode(&header));
}
