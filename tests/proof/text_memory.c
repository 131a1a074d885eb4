/* SPDX-License-Identifier: MIT */
/**
 * @file The text of a ticket for Frama-C's WP: whatever its characters and however many, nothing is read behind its end,
 * and nothing overflows. ci/prove runs it; it is never compiled.
 *
 * The functions of ticket.c have their contracts here, as wire.c's have theirs in packet_memory.c. What a text is, and what
 * the C library's functions do with one, is taken for granted. ticket.c is a copy that ci/prove makes, in which copy_text()
 * stands for the memcpy of characters, since WP knows no pointer for both them and bytes.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ticket/ticket.h"

#include "base/status.h"
#include "os.h"

/* clang-format off */
/* Where a text ends is known to nobody before it was looked for; only that it does. No object has more than half of all
 * addresses. A text begins with 8 characters, then come 86 of the 64 digits: the numbers below. */
static const char digits[65];
/*@ predicate text_of(char *text, integer length) =
      0 <= length <= SIZE_MAX / 2 && \valid_read(text + (0 .. length)) && text[length] == 0;
    predicate is_text(char *text) = \exists integer length; text_of(text, length);
    lemma behind: \forall char *text, integer length, n; 0 <= n <= length && text_of(text, length) ==> text_of(text + n, length - n);
    predicate one_of(char *among, char c) =
      \exists integer k; 0 <= k < 64 && among[k] == c && \forall integer l; 0 <= l < k ==> among[l] != 0;
    predicate all_of(char *among, char *text, integer n) = \forall integer k; 0 <= k < n ==> one_of(among, text[k]); */

/* The C library's, of the types and the texts that ticket.c has. */
/*@ requires \valid_read(from + (0 .. count - 1));
    requires \valid(to + (0 .. count - 1));
    requires \separated(to + (0 .. count - 1), from + (0 .. count - 1));
    assigns to[0 .. count - 1]; */
void copy_bytes(uint8_t *to, const uint8_t *from, size_t count);
/*@ requires \valid_read(from + (0 .. count - 1));
    requires \valid(to + (0 .. count - 1));
    requires \separated(to + (0 .. count - 1), from + (0 .. count - 1));
    assigns to[0 .. count - 1]; */
void copy_text(char *to, const char *from, size_t count);
/*@ requires \valid_read(one + (0 .. count - 1));
    requires \valid_read(other + (0 .. count - 1));
    assigns \nothing; */
int compare_bytes(const uint8_t *one, const uint8_t *other, size_t count);
/*@ requires is_text(text); assigns \nothing; ensures text_of(text, \result); */
size_t length_of(const char *text);
/*@ requires is_text(text) && \valid_read(prefix + (0 .. 8)) && prefix[8] == 0;
    requires \forall integer k; 0 <= k < 8 ==> prefix[k] != 0;
    assigns \nothing;
    ensures \result == 0 && count >= 8 ==> \forall integer k; 0 <= k < 8 ==> text[k] == prefix[k]; */
int compare_begin(const char *text, const char *prefix, size_t count);
/*@ requires is_text(text) && \valid_read(among + (0 .. 64)) && among[64] == 0;
    assigns \nothing;
    ensures \result <= SIZE_MAX / 2 && \valid_read(text + (0 .. \result));
    ensures all_of(among, text, \result);
    ensures \forall integer n; 0 <= n && text[n] == 0 ==> \result <= n; */
size_t span(const char *text, const char *among);
/* That there is one has to be known: nobody asks whether it is NULL. */
/*@ requires \valid_read(among + (0 .. 64)) && one_of(among, (char)c);
    assigns \nothing;
    ensures \exists integer k; 0 <= k < 64 && \result == among + k; */
const char *find(const char *among, int c);
#define memcpy copy_bytes
#define memcmp compare_bytes
#define strlen length_of
#define strncmp compare_begin
#define strspn span
#define strchr find

/* The record of an error is no part of what is proven; what is told there is. */
#define status_fail(status, ...) (__VA_ARGS__, (status))
#define status_enter(name) ((void)0)

/* The loops in the order of the files. */
#define LOOP_OF(number) LOOP_##number
#define LOOP(number) LOOP_OF(number)
#define for LOOP(__COUNTER__) for
#define LOOP_0 /*@ loop invariant i <= bytes; loop assigns i, at[0 .. bytes - 1]; loop variant bytes - i; */
#define LOOP_1 /*@ loop invariant i <= bytes; loop assigns i, value; loop variant bytes - i; */
#define LOOP_2 /*@ loop invariant i <= size; loop assigns i, crc; loop variant size - i; */
#define LOOP_3 /*@ loop invariant i <= 16; loop assigns i, difference; loop variant 16 - i; */
#define LOOP_4 /* left out */
#define LOOP_5 /* left out */
#define LOOP_6 /*@ loop invariant i <= 64 && count < 6 && text == \at(text, Pre) + (8 * i - count) / 6 && (8 * i - count) % 6 == 0 && count <= 8 * i; loop assigns i, count, bits, text, \at(text, Pre)[0 .. 84]; loop variant 64 - i; */
#define LOOP_7 /*@ loop invariant count < 14 && text == \at(text, Pre) + (8 * i + 8 - count) / 6 && (8 * i + 8 - count) % 6 == 0; loop assigns count, text, \at(text, Pre)[0 .. 84]; loop variant count; */
#define LOOP_8 /*@ loop invariant i <= 86 && count < 8 && bytes == \at(bytes, Pre) + (6 * i - count) / 8 && (6 * i - count) % 8 == 0 && count <= 6 * i; loop assigns i, count, bits, bytes, \at(bytes, Pre)[0 .. 63]; loop variant 86 - i; */

/*@ requires bytes <= 8;
    requires \valid(at + (0 .. bytes - 1));
    assigns at[0 .. bytes - 1]; */
static inline void little_endian_put(uint8_t *at, unsigned bytes, uint64_t value);
/*@ requires bytes <= 8;
    requires \valid_read(at + (0 .. bytes - 1));
    assigns \nothing; */
static inline uint64_t little_endian_get(const uint8_t *at, unsigned bytes);
#include "base/little_endian.h"

/*@ requires \valid_read(bytes + (0 .. size - 1)); assigns \nothing; */
static uint32_t crc_add(uint32_t crc, const uint8_t *bytes, size_t size);
/*@ requires \valid_read(bytes + (0 .. GPUIPC_TICKET_BYTES - 1)); assigns \nothing; */
static uint32_t check_of(const uint8_t bytes[GPUIPC_TICKET_BYTES]);
/*@ requires \valid_read(record) && \valid(out_bytes) && \separated(record, out_bytes);
    assigns *out_bytes; */
void ticket_encode(const ticket *record, gpuipc_ticket *out_bytes);
/*@ requires \valid_read(bytes) && \valid(out_ticket);
    assigns *out_ticket;
    ensures \result == GPUIPC_OK ==> out_ticket->bytes <= UINT64_MAX - out_ticket->offset; */
gpuipc_status ticket_decode(const gpuipc_ticket *bytes, ticket *out_ticket);
/*@ requires \valid_read(a + (0 .. 15)) && \valid_read(b + (0 .. 15)); assigns \nothing; */
bool ticket_secret_is(const uint8_t a[TICKET_SECRET_BYTES], const uint8_t b[TICKET_SECRET_BYTES]);
/*@ requires \valid_read(bytes + (0 .. GPUIPC_TICKET_BYTES - 1)) && \valid(text + (0 .. 86));
    requires \separated(bytes + (0 .. GPUIPC_TICKET_BYTES - 1), text + (0 .. 86));
    assigns text[0 .. 86];
    ensures text[86] == 0; */
static void write_digits(const uint8_t *bytes, char *text);
/*@ requires \valid_read(text + (0 .. 85)) && \valid(bytes + (0 .. GPUIPC_TICKET_BYTES - 1));
    requires \separated(bytes + (0 .. GPUIPC_TICKET_BYTES - 1), text + (0 .. 85), &digits[0 .. 64]);
    requires all_of(&digits[0], text, 86);
    assigns bytes[0 .. GPUIPC_TICKET_BYTES - 1]; */
static bool read_digits(const char *text, uint8_t *bytes);
/*@ requires is_text(text); assigns \nothing; */
static bool is_cut_in_prefix(const char *text);
/*@ assigns \nothing; ensures \result == GPUIPC_ERR_TICKET_SIZE; */
static gpuipc_status wrong_length(size_t length);
/*@ requires is_text(text);
    assigns \nothing;
    ensures \result == GPUIPC_OK ==> \valid_read(text + (8 .. 93));
    ensures \result == GPUIPC_OK ==> all_of(&digits[0], text + 8, 86); */
static gpuipc_status check_text(const char *text);
/*@ requires text == \null || is_text(text);
    requires out_ticket == \null || \valid(out_ticket);
    assigns *out_ticket; */
gpuipc_status gpuipc_ticket_from_text(const char *text, gpuipc_ticket *out_ticket);
/*@ requires bytes == \null || \valid_read(bytes);
    requires text == \null || \valid(text + (0 .. GPUIPC_TICKET_TEXT_SIZE - 1));
    requires \separated(bytes, text + (0 .. GPUIPC_TICKET_TEXT_SIZE - 1));
    assigns text[0 .. GPUIPC_TICKET_TEXT_SIZE - 1]; */
gpuipc_status gpuipc_ticket_to_text(const gpuipc_ticket *bytes,
                                    char text[GPUIPC_TICKET_TEXT_SIZE]);
/*@ requires whole == \null || \valid_read(whole);
    requires out_ticket == \null || \valid(out_ticket);
    assigns *out_ticket; */
gpuipc_status gpuipc_ticket_narrow(const gpuipc_ticket *whole, uint64_t offset, uint64_t bytes,
                                   gpuipc_ticket *out_ticket);

#include "ticket/ticket.c"
/* clang-format on */
