/* SPDX-License-Identifier: MIT */
/** @file See ticket.h; tickets as bytes and as text: the public functions that ask nobody. */
#include "ticket/ticket.h"

#include <inttypes.h>
#include <string.h>

#include "base/little_endian.h"
#include "base/status.h"
#include "os.h"

#define VERSION 1u

/* The fields of a ticket; docs/wire-format.md has the table. Where the check is and what it is made of stay in every
 * version there will be: a damaged ticket is told from one of another version. */
/* clang-format off */
#define TICKET_FIELDS(NUMBER, BYTES) \
    NUMBER(2, 16, boot) \
    NUMBER(4, 32, user) \
    NUMBER(8, 32, share) \
    BYTES(16, server_id) \
    BYTES(32, secret) \
    NUMBER(48, 64, offset) \
    NUMBER(56, 64, bytes)
/* clang-format on */

enum {
    TICKET_VERSION = 0,
    TICKET_FLAGS = 1,
    TICKET_CHECK = 12
};

#define CHECK_BYTES 4

#define TEXT_PREFIX   "gpuipc1:"
#define PREFIX_LENGTH (sizeof(TEXT_PREFIX) - 1)
/* Six bits a character; the four that are left over are 0. */
#define TEXT_DIGITS 86

/* RFC 4648, section 5: base64url, here without padding. */
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

_Static_assert(PREFIX_LENGTH + TEXT_DIGITS + 1 == GPUIPC_TICKET_TEXT_SIZE, "the text fits");

/* CRC-32 of IEEE 802.3, as zlib's crc32(), a half byte at a time. */
static uint32_t crc_add(uint32_t crc, const uint8_t *bytes, size_t size) {
    static const uint32_t table[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC,
                                       0x76DC4190, 0x6B6B51F4, 0x4DB26158, 0x5005713C,
                                       0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
                                       0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        crc = (crc >> 4) ^ table[crc & 15];
        crc = (crc >> 4) ^ table[crc & 15];
    }
    return crc;
}

/* Of all bytes but its own. */
static uint32_t check_of(const uint8_t bytes[GPUIPC_TICKET_BYTES]) {
    const size_t behind = TICKET_CHECK + CHECK_BYTES;
    uint32_t crc = crc_add(UINT32_MAX, bytes, TICKET_CHECK);
    return ~crc_add(crc, bytes + behind, GPUIPC_TICKET_BYTES - behind);
}

void ticket_encode(const ticket *record, gpuipc_ticket *out_bytes) {
    uint8_t *at = out_bytes->bytes;
    at[TICKET_VERSION] = VERSION;
    at[TICKET_FLAGS] = 0;
    FIELDS_PUT(TICKET_FIELDS)
    little_endian_put(at + TICKET_CHECK, CHECK_BYTES, check_of(at));
}

gpuipc_status ticket_decode(const gpuipc_ticket *bytes, ticket *out_ticket) {
    const uint8_t *at = bytes->bytes;
    ticket decoded;
    ticket *record = &decoded;
    if (little_endian_get(at + TICKET_CHECK, CHECK_BYTES) != check_of(at)) {
        return status_fail(GPUIPC_ERR_TICKET_DAMAGED,
                           "the ticket's check is not that of its bytes");
    }
    if (at[TICKET_VERSION] != VERSION || at[TICKET_FLAGS] != 0) {
        return status_fail(GPUIPC_ERR_TICKET_VERSION,
                           "the ticket is of version %u, flags %u; this library reads version %u",
                           (unsigned)at[TICKET_VERSION], (unsigned)at[TICKET_FLAGS], VERSION);
    }
    FIELDS_GET(TICKET_FIELDS)
    if (decoded.share == 0 || decoded.bytes == 0 || decoded.bytes > UINT64_MAX - decoded.offset) {
        return status_fail(GPUIPC_ERR_TICKET_DAMAGED,
                           "the ticket stands for nothing: no share, or an impossible range");
    }
    *out_ticket = decoded;
    return GPUIPC_OK;
}

bool ticket_secret_is(const uint8_t a[TICKET_SECRET_BYTES], const uint8_t b[TICKET_SECRET_BYTES]) {
    volatile uint8_t difference = 0; /* so that no compiler leaves the loop early */
    for (size_t i = 0; i < TICKET_SECRET_BYTES; i++) {
        difference = (uint8_t)(difference | (a[i] ^ b[i]));
    }
    return difference == 0;
}

/* FNV-1a: part of the format of a ticket, so that it is the same for all (the steps of hash.h take words in the
 * machine's order, with a seed). It only tells apart what was not made to be alike. */
static uint32_t hash_of(const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ at[i]) * 16777619u;
    }
    return hash;
}

uint16_t ticket_boot(void) {
    static const uint8_t unknown[16];
    uint8_t id[16];
    os_boot_id(id);
    if (memcmp(id, unknown, sizeof(id)) == 0) {
        return 0;
    }
    const uint32_t hash = hash_of(id, sizeof(id));
    const uint16_t folded = (uint16_t)(hash ^ (hash >> 16));
    return (uint16_t)(folded + (folded == 0)); /* 0: it is not known */
}

uint32_t ticket_user(void) {
    char user[sizeof(((os_peer *)0)->user)];
    os_own_user(user, sizeof(user));
    if (user[0] == '\0') {
        return 0;
    }
    const uint32_t hash = hash_of(user, strlen(user));
    return hash + (hash == 0);
}

void ticket_endpoint(const uint8_t server_id[16], char name[TICKET_ENDPOINT_SIZE]) {
    static const char prefix[] = TICKET_ENDPOINT_PREFIX;
    static const char hex[] = "0123456789abcdef";
    _Static_assert(sizeof(prefix) + 32 == TICKET_ENDPOINT_SIZE, "the name fits");
    char *at = name + sizeof(prefix) - 1;
    memcpy(name, prefix, sizeof(prefix) - 1);
    for (size_t i = 0; i < 16; i++) {
        *at++ = hex[server_id[i] >> 4];
        *at++ = hex[server_id[i] & 15];
    }
    *at = '\0';
}

/* ---- bytes and text ------------------------------------------------------------------------ */

gpuipc_status gpuipc_ticket_from_bytes(const void *bytes, size_t size, gpuipc_ticket *out_ticket) {
    status_enter(__func__);
    gpuipc_ticket copy;
    ticket decoded;
    if (bytes == NULL || out_ticket == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "bytes or out_ticket is NULL");
    }
    if (size != sizeof(copy.bytes)) {
        return status_fail(GPUIPC_ERR_TICKET_SIZE, "a ticket has %d bytes, not %zu",
                           GPUIPC_TICKET_BYTES, size);
    }
    memcpy(copy.bytes, bytes, sizeof(copy.bytes));
    gpuipc_status status = ticket_decode(&copy, &decoded);
    if (status == GPUIPC_OK) {
        *out_ticket = copy;
    }
    return status;
}

/* Six bits a character, the highest first. */
static void write_digits(const uint8_t *bytes, char *text) {
    uint32_t bits = 0;
    unsigned count = 0;
    for (size_t i = 0; i < GPUIPC_TICKET_BYTES; i++) {
        bits = bits << 8 | bytes[i];
        for (count += 8; count >= 6; count -= 6) {
            *text++ = digits[bits >> (count - 6) & 63];
        }
    }
    *text++ = digits[bits << (6 - count) & 63];
    *text = '\0';
}

/* False when the bits that are left over are not 0. All characters are digits. */
static bool read_digits(const char *text, uint8_t *bytes) {
    uint32_t bits = 0;
    unsigned count = 0;
    for (size_t i = 0; i < TEXT_DIGITS; i++) {
        bits = bits << 6 | (uint32_t)(strchr(digits, text[i]) - digits);
        count += 6;
        if (count >= 8) {
            count -= 8;
            *bytes++ = (uint8_t)(bits >> count);
        }
    }
    return (bits & ((1u << count) - 1)) == 0;
}

/* Whether there is nothing but the prefix, or its beginning. */
static bool is_cut_in_prefix(const char *text) {
    return strncmp(text, TEXT_PREFIX, strlen(text)) == 0;
}

static gpuipc_status wrong_length(size_t length) {
    const size_t right = PREFIX_LENGTH + TEXT_DIGITS;
    return length == 0 ? status_fail(GPUIPC_ERR_TICKET_SIZE, "the text is empty")
                       : status_fail(GPUIPC_ERR_TICKET_SIZE, "the text has %zu characters, not %zu",
                                     length, right);
}

static gpuipc_status check_text(const char *text) {
    if (strncmp(text, TEXT_PREFIX, PREFIX_LENGTH) != 0) {
        return is_cut_in_prefix(text) ? wrong_length(strlen(text))
                                      : status_fail(GPUIPC_ERR_TICKET_TEXT,
                                                    "the text does not begin with " TEXT_PREFIX);
    }
    const size_t good = PREFIX_LENGTH + strspn(text + PREFIX_LENGTH, digits);
    if (text[good] != '\0') {
        return status_fail(GPUIPC_ERR_TICKET_TEXT, "character %zu is none that a ticket has",
                           good + 1);
    }
    if (good != PREFIX_LENGTH + TEXT_DIGITS) {
        return wrong_length(good);
    }
    return GPUIPC_OK;
}

gpuipc_status gpuipc_ticket_from_text(const char *text, gpuipc_ticket *out_ticket) {
    status_enter(__func__);
    gpuipc_ticket read;
    ticket decoded;
    if (text == NULL || out_ticket == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "text or out_ticket is NULL");
    }
    gpuipc_status status = check_text(text);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (!read_digits(text + PREFIX_LENGTH, read.bytes)) {
        return status_fail(GPUIPC_ERR_TICKET_DAMAGED,
                           "the last character has more bits than a ticket");
    }
    status = ticket_decode(&read, &decoded);
    if (status == GPUIPC_OK) {
        *out_ticket = read;
    }
    return status;
}

gpuipc_status gpuipc_ticket_to_text(const gpuipc_ticket *bytes,
                                    char text[GPUIPC_TICKET_TEXT_SIZE]) {
    status_enter(__func__);
    ticket decoded;
    if (bytes == NULL || text == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "ticket or text is NULL");
    }
    gpuipc_status status = ticket_decode(bytes, &decoded);
    if (status == GPUIPC_OK) {
        memcpy(text, TEXT_PREFIX, PREFIX_LENGTH);
        write_digits(bytes->bytes, text + PREFIX_LENGTH);
    }
    return status;
}

gpuipc_status gpuipc_ticket_narrow(const gpuipc_ticket *whole, uint64_t offset, uint64_t bytes,
                                   gpuipc_ticket *out_ticket) {
    status_enter(__func__);
    ticket decoded;
    if (whole == NULL || out_ticket == NULL) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "whole or out_ticket is NULL");
    }
    gpuipc_status status = ticket_decode(whole, &decoded);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (bytes == 0 || offset > decoded.bytes || bytes > decoded.bytes - offset) {
        return status_fail(GPUIPC_ERR_OUT_OF_RANGE,
                           "%" PRIu64 " bytes at %" PRIu64 " are not in the %" PRIu64
                           " that the ticket stands for",
                           bytes, offset, decoded.bytes);
    }
    decoded.offset += offset;
    decoded.bytes = bytes;
    ticket_encode(&decoded, out_ticket);
    return GPUIPC_OK;
}
