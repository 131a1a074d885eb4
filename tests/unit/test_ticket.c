/* SPDX-License-Identifier: MIT */
/** @file Tickets as bytes and as text: frozen ones, and the refusal of everything else, each for what it is. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "check.h"
#include "ticket/ticket.h"
#include "ticket_check.h"

TestSuite(ticket, .timeout = 60);

/* Written down from docs/wire-format.md, with a check by another program's CRC-32; never changed. */
static const uint8_t frozen[GPUIPC_TICKET_BYTES] = {
    0x01, 0x00, 0x2B, 0x1A, 0x04, 0x03, 0x02, 0x01, 0xD4, 0xC3, 0xB2, 0xA1, 0x42, 0xEA, 0xB1, 0xEF,
    0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x1B, 0x1C, 0x1D, 0x1E, 0x1F,
    0xE0, 0xE1, 0xE2, 0xE3, 0xE4, 0xE5, 0xE6, 0xE7, 0xE8, 0xE9, 0xEA, 0xEB, 0xEC, 0xED, 0xEE, 0xEF,
    0x00, 0x00, 0x20, 0x00, 0x01, 0x00, 0x00, 0x00, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};

static const char frozen_text[] =
    "gpuipc1:AQArGgQDAgHUw7KhQuqx7xAREhMUFRYXGBkaGxwdHh_g4eLj5OXm5-jp6uvs7e7vAAAgAAEAAACId2ZVRDMi"
    "EQ";

static ticket frozen_fields(void) {
    ticket fields = {.share = 0xA1B2C3D4,
                     .offset = UINT64_C(0x100200000),
                     .bytes = UINT64_C(0x1122334455667788),
                     .boot = 0x1A2B,
                     .user = 0x01020304};
    for (uint8_t i = 0; i < 16; i++) {
        fields.server_id[i] = (uint8_t)(0x10 + i);
        fields.secret[i] = (uint8_t)(0xE0 + i);
    }
    return fields;
}

static gpuipc_ticket frozen_ticket(void) {
    gpuipc_ticket made;
    memcpy(made.bytes, frozen, sizeof(frozen));
    return made;
}

static gpuipc_ticket changed(size_t at, uint8_t value) {
    gpuipc_ticket made = frozen_ticket();
    made.bytes[at] = value;
    return ticket_with_check(made);
}

static gpuipc_status from_bytes(const gpuipc_ticket *of) {
    gpuipc_ticket read;
    return gpuipc_ticket_from_bytes(of->bytes, sizeof(of->bytes), &read);
}

Test(ticket, is_the_frozen_bytes) {
    const ticket wanted = frozen_fields();
    gpuipc_ticket made;
    ticket found;
    ticket_encode(&wanted, &made);
    cr_assert_eq(memcmp(made.bytes, frozen, sizeof(frozen)), 0);
    check_ok(ticket_decode(&made, &found));
    cr_assert(found.share == wanted.share && found.offset == wanted.offset &&
              found.bytes == wanted.bytes && found.boot == wanted.boot &&
              found.user == wanted.user);
    cr_assert_eq(memcmp(found.server_id, wanted.server_id, sizeof(found.server_id)), 0);
    cr_assert_eq(memcmp(found.secret, wanted.secret, sizeof(found.secret)), 0);
}

Test(ticket, an_altered_byte_is_damage_wherever_it_is) {
    static const uint8_t differences[] = {1, 2, 4, 8, 16, 32, 64, 128, 0x55, 0xFF};
    for (size_t at = 0; at < GPUIPC_TICKET_BYTES; at++) {
        for (size_t i = 0; i < sizeof(differences); i++) {
            gpuipc_ticket altered = frozen_ticket();
            altered.bytes[at] ^= differences[i];
            cr_assert_eq(from_bytes(&altered), GPUIPC_ERR_TICKET_DAMAGED, "byte %zu, %u", at,
                         (unsigned)differences[i]);
        }
    }
}

Test(ticket, one_cut_short_or_longer_has_the_wrong_size) {
    uint8_t longer[GPUIPC_TICKET_BYTES + 1] = {0};
    gpuipc_ticket read = {{0}};
    const gpuipc_ticket untouched = read;
    memcpy(longer, frozen, sizeof(frozen));
    for (size_t size = 0; size <= sizeof(longer); size++) {
        uint8_t *copy = malloc(size + (size == 0)); /* a sanitizer sees what is read behind it */
        cr_assert_not_null(copy);
        memcpy(copy, longer, size);
        if (size != GPUIPC_TICKET_BYTES) {
            check_status(GPUIPC_ERR_TICKET_SIZE, gpuipc_ticket_from_bytes(copy, size, &read));
            cr_assert_eq(memcmp(&read, &untouched, sizeof(read)), 0);
        } else {
            check_ok(gpuipc_ticket_from_bytes(copy, size, &read));
            cr_assert_eq(memcmp(read.bytes, frozen, size), 0);
            read = untouched;
        }
        free(copy);
    }
}

Test(ticket, one_of_another_version_is_told_from_damage) {
    for (unsigned version = 0; version < 256; version++) {
        const gpuipc_ticket other = changed(0, (uint8_t)version);
        check_status(version == 1 ? GPUIPC_OK : GPUIPC_ERR_TICKET_VERSION, from_bytes(&other));
    }
    const gpuipc_ticket flagged = changed(1, 1);
    check_status(GPUIPC_ERR_TICKET_VERSION, from_bytes(&flagged));
}

Test(ticket, one_that_stands_for_nothing_is_damaged) {
    ticket fields = frozen_fields();
    gpuipc_ticket made;
    fields.bytes = 0;
    ticket_encode(&fields, &made);
    check_status(GPUIPC_ERR_TICKET_DAMAGED, from_bytes(&made));
    fields.bytes = UINT64_MAX - fields.offset;
    ticket_encode(&fields, &made);
    check_ok(from_bytes(&made));
    fields.bytes++;
    ticket_encode(&fields, &made);
    check_status(GPUIPC_ERR_TICKET_DAMAGED, from_bytes(&made));
    fields = frozen_fields();
    fields.share = 0;
    ticket_encode(&fields, &made);
    check_status(GPUIPC_ERR_TICKET_DAMAGED, from_bytes(&made));
    memset(made.bytes, 0, sizeof(made.bytes));
    check_status(GPUIPC_ERR_TICKET_DAMAGED, from_bytes(&made));
    memset(made.bytes, 0xFF, sizeof(made.bytes));
    check_status(GPUIPC_ERR_TICKET_DAMAGED, from_bytes(&made));
}

/* ---- text ---------------------------------------------------------------------------------- */

static gpuipc_status from_text(const char *text) {
    gpuipc_ticket read;
    size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    cr_assert_not_null(copy);
    memcpy(copy, text, size);
    gpuipc_status status = gpuipc_ticket_from_text(copy, &read);
    free(copy);
    return status;
}

Test(ticket, is_the_frozen_text) {
    const gpuipc_ticket of = frozen_ticket();
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_ticket read;
    check_ok(gpuipc_ticket_to_text(&of, text));
    cr_assert_str_eq(text, frozen_text);
    check_ok(gpuipc_ticket_from_text(text, &read));
    cr_assert_eq(memcmp(read.bytes, frozen, sizeof(frozen)), 0);
}

Test(ticket, every_byte_has_its_place_in_the_text) {
    for (size_t at = 16; at < GPUIPC_TICKET_BYTES; at++) {
        const gpuipc_ticket of = changed(at, 0x3E);
        char text[GPUIPC_TICKET_TEXT_SIZE];
        gpuipc_ticket read;
        check_ok(gpuipc_ticket_to_text(&of, text));
        cr_assert_eq(strlen(text), GPUIPC_TICKET_TEXT_SIZE - 1);
        check_ok(gpuipc_ticket_from_text(text, &read));
        cr_assert_eq(memcmp(&read, &of, sizeof(of)), 0);
    }
}

Test(ticket, text_cut_short_has_the_wrong_size) {
    char text[sizeof(frozen_text) + 1];
    for (size_t length = 0; length < sizeof(frozen_text) - 1; length++) {
        memcpy(text, frozen_text, length);
        text[length] = '\0';
        check_status(GPUIPC_ERR_TICKET_SIZE, from_text(text));
    }
    memcpy(text, frozen_text, sizeof(frozen_text));
    memcpy(text + sizeof(frozen_text) - 1, "A", 2);
    check_refused(GPUIPC_ERR_TICKET_SIZE, "the text has 95 characters, not 94", from_text(text));
    text[40] = '\0';
    check_refused(GPUIPC_ERR_TICKET_SIZE, "the text has 40 characters, not 94", from_text(text));
    check_refused(GPUIPC_ERR_TICKET_SIZE, "the text is empty", from_text(""));
}

Test(ticket, text_with_anything_that_no_ticket_has_is_no_ticket) {
    static const char strange[] = " \t\r\n=+/.:,\"'\x01\x7f\x80\xff";
    char text[sizeof(frozen_text) + 1];
    for (size_t i = 0; i < sizeof(strange) - 1; i++) {
        for (size_t at = 0; at < sizeof(frozen_text) - 1; at++) { /* in the place of a character */
            memcpy(text, frozen_text, sizeof(frozen_text));
            if (text[at] == strange[i]) {
                continue;
            }
            text[at] = strange[i];
            cr_assert_eq(from_text(text), GPUIPC_ERR_TICKET_TEXT, "%d at %zu", strange[i], at);
        }
        memcpy(text, frozen_text, sizeof(frozen_text)); /* behind it */
        text[sizeof(frozen_text) - 1] = strange[i];
        text[sizeof(frozen_text)] = '\0';
        check_status(GPUIPC_ERR_TICKET_TEXT, from_text(text));
        text[0] = strange[i]; /* before it */
        memcpy(text + 1, frozen_text, sizeof(frozen_text));
        check_status(GPUIPC_ERR_TICKET_TEXT, from_text(text));
    }
    check_status(GPUIPC_ERR_TICKET_TEXT, from_text("GPUIPC1:AQArGgQDAgHUw7KhQuqx7w"));
    check_status(GPUIPC_ERR_TICKET_TEXT, from_text("gpuipc2:AQArGgQDAgHUw7KhQuqx7w"));
    check_status(GPUIPC_ERR_TICKET_TEXT, from_text(frozen_text + 8));
}

Test(ticket, altered_text_is_damaged) {
    char text[sizeof(frozen_text)];
    for (size_t at = 8; at < sizeof(frozen_text) - 1; at++) {
        memcpy(text, frozen_text, sizeof(frozen_text));
        text[at] = text[at] == 'A' ? 'B' : 'A';
        cr_assert_eq(from_text(text), GPUIPC_ERR_TICKET_DAMAGED, "character %zu", at);
    }
    memcpy(text, frozen_text, sizeof(frozen_text));
    text[sizeof(frozen_text) - 2] = 'R'; /* Q, with one of the four bits behind the last byte */
    check_refused(GPUIPC_ERR_TICKET_DAMAGED, "more bits", from_text(text));
}

/* RFC 4648, section 5, without padding: of 64 bytes 86 characters, the last of which has four bits of none. */
static void write_text(const gpuipc_ticket *of, char text[GPUIPC_TICKET_TEXT_SIZE]) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    strcpy(text, "gpuipc1:");
    for (size_t bit = 0; bit < sizeof(of->bytes) * 8; bit += 6) {
        const size_t at = bit / 8;
        const unsigned next = at + 1 < sizeof(of->bytes) ? of->bytes[at + 1] : 0;
        const unsigned both = (unsigned)of->bytes[at] << 8 | next;
        text[8 + bit / 6] = letters[both >> (10 - bit % 8) & 63];
    }
    text[GPUIPC_TICKET_TEXT_SIZE - 1] = '\0';
}

Test(ticket, text_of_another_version_is_told_from_damage) {
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_ticket of = frozen_ticket();
    write_text(&of, text);
    cr_assert_str_eq(text, frozen_text);
    of = changed(0, 2);
    write_text(&of, text);
    check_status(GPUIPC_ERR_TICKET_VERSION, from_text(text));
}

Test(ticket, of_damaged_bytes_there_is_no_text) {
    gpuipc_ticket of = frozen_ticket();
    char text[GPUIPC_TICKET_TEXT_SIZE] = "untouched";
    of.bytes[40]++;
    check_status(GPUIPC_ERR_TICKET_DAMAGED, gpuipc_ticket_to_text(&of, text));
    of = changed(0, 2);
    check_status(GPUIPC_ERR_TICKET_VERSION, gpuipc_ticket_to_text(&of, text));
    cr_assert_str_eq(text, "untouched");
}

/* ---- a part of a range --------------------------------------------------------------------- */

Test(ticket, of_what_cannot_be_read_there_is_no_part) {
    gpuipc_ticket part;
    gpuipc_ticket of = frozen_ticket();
    of.bytes[40]++;
    check_status(GPUIPC_ERR_TICKET_DAMAGED, gpuipc_ticket_narrow(&of, 0, 1, &part));
    of = changed(0, 2);
    check_status(GPUIPC_ERR_TICKET_VERSION, gpuipc_ticket_narrow(&of, 0, 1, &part));
}

Test(ticket, narrowed_stands_for_a_part_of_the_range) {
    const gpuipc_ticket whole = frozen_ticket();
    const uint64_t bytes = UINT64_C(0x1122334455667788);
    gpuipc_ticket part;
    ticket found;
    ticket wanted = frozen_fields();
    check_ok(gpuipc_ticket_narrow(&whole, 4096, 512, &part));
    check_ok(ticket_decode(&part, &found));
    cr_assert(found.offset == wanted.offset + 4096 && found.bytes == 512);
    cr_assert(found.share == wanted.share &&
              ticket_secret_is(found.secret, wanted.secret)); /* the same share */
    check_ok(gpuipc_ticket_narrow(&part, 511, 1, &part));     /* and in place */
    check_ok(ticket_decode(&part, &found));
    cr_assert(found.offset == wanted.offset + 4096 + 511 && found.bytes == 1);
    check_ok(gpuipc_ticket_narrow(&whole, 0, bytes, &part));
    cr_assert_eq(memcmp(&part, &whole, sizeof(part)), 0);
    check_status(GPUIPC_ERR_OUT_OF_RANGE, gpuipc_ticket_narrow(&whole, 0, bytes + 1, &part));
    check_status(GPUIPC_ERR_OUT_OF_RANGE, gpuipc_ticket_narrow(&whole, 1, bytes, &part));
    check_status(GPUIPC_ERR_OUT_OF_RANGE, gpuipc_ticket_narrow(&whole, bytes, 1, &part));
    check_status(GPUIPC_ERR_OUT_OF_RANGE, gpuipc_ticket_narrow(&whole, UINT64_MAX, 2, &part));
    check_status(GPUIPC_ERR_OUT_OF_RANGE, gpuipc_ticket_narrow(&whole, 1, UINT64_MAX, &part));
    check_status(GPUIPC_ERR_OUT_OF_RANGE, gpuipc_ticket_narrow(&whole, 0, 0, &part));
    cr_assert_eq(memcmp(&part, &whole, sizeof(part)), 0);
}

Test(ticket, of_a_damaged_one_there_is_no_part) {
    gpuipc_ticket damaged = frozen_ticket();
    gpuipc_ticket part = frozen_ticket();
    damaged.bytes[GPUIPC_TICKET_BYTES - 1] ^= 1u;
    check_status(GPUIPC_ERR_TICKET_DAMAGED, gpuipc_ticket_narrow(&damaged, 0, 1, &part));
    cr_assert_eq(memcmp(part.bytes, frozen, sizeof(frozen)), 0);
}

Test(ticket, calls_refuse_null) {
    gpuipc_ticket of = frozen_ticket();
    char text[GPUIPC_TICKET_TEXT_SIZE];
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_ticket_from_bytes(NULL, 64, &of));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_ticket_from_bytes(frozen, 64, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_ticket_from_text(NULL, &of));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_ticket_from_text(frozen_text, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_ticket_to_text(NULL, text));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_ticket_to_text(&of, NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_ticket_narrow(NULL, 0, 1, &of));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_ticket_narrow(&of, 0, 1, NULL));
}

/* ---- what is inside ------------------------------------------------------------------------ */

Test(ticket, secrets_are_the_same_only_when_all_bytes_are) {
    const ticket fields = frozen_fields();
    uint8_t other[TICKET_SECRET_BYTES];
    memcpy(other, fields.secret, sizeof(other));
    cr_assert(ticket_secret_is(fields.secret, other));
    for (size_t i = 0; i < sizeof(other) * 8; i++) {
        other[i / 8] ^= (uint8_t)(1u << (i % 8));
        cr_assert_not(ticket_secret_is(fields.secret, other), "bit %zu", i);
        other[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
}

Test(ticket, the_endpoint_is_named_by_the_server) {
    const ticket fields = frozen_fields();
    char name[TICKET_ENDPOINT_SIZE];
    ticket_endpoint(fields.server_id, name);
    cr_assert_str_eq(name, "ticket-101112131415161718191a1b1c1d1e1f");
    cr_assert(strlen(name) <= GPUIPC_NAME_MAX);
}

Test(ticket, boot_and_user_stay_the_same_in_one_process) {
    cr_assert_eq(ticket_boot(), ticket_boot());
    cr_assert_eq(ticket_user(), ticket_user());
    cr_assert_neq(ticket_user(), 0);
}
