/* SPDX-License-Identifier: MIT */
/** @file Manifests: a frozen one, round trips, and the refusal of everything else. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "check.h"

TestSuite(manifest, .timeout = 60);

#define BUFFER_BYTES UINT64_C(0x0807060504030201)

/* Positions in a manifest, whose first record is that of vector: docs/wire-format.md. */
enum {
    AT_MAJOR = 4,
    AT_MINOR = 6,
    AT_LENGTH = 8,
    AT_COUNT = 12,
    AT_RECORD = 16,
    AT_NAME_LENGTH = AT_RECORD + 4,
    AT_DIMENSIONS = AT_RECORD + 6,
    AT_RESERVED = AT_RECORD + 12,
    AT_OFFSET = AT_RECORD + 16,
    AT_SIZE = AT_RECORD + 24,
    AT_NAME = AT_RECORD + 64,
    RECORD_BYTES = 80
};

/* clang-format off */
/* Written down from docs/wire-format.md, not made by manifest.c, and never changed. */
static const uint8_t vector[] = {
    0x47, 0x50, 0x49, 0x4D, 0x01, 0x00, 0x00, 0x00, 0x82, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00,
    0x50, 0x00, 0x00, 0x00, 0x0F, 0x00, 0x02, 0x00, 0x07, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x20, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x6C, 0x61, 0x79, 0x65, 0x72, 0x73, 0x2E, 0x30, 0x2E, 0x77, 0x65, 0x69, 0x67, 0x68, 0x74, 0x00,
    0x22, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0xAA, 0xBB, 0xCC, 0xDD, 0x00, 0x00, 0x00, 0x00,
    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x65, 0x00,
};
/* clang-format on */

static const gpuipc_range vector_ranges[] = {{.name = "layers.0.weight",
                                              .offset = 0x200000,
                                              .bytes = 0x180000,
                                              .element_type = 7,
                                              .dimensions = 2,
                                              .shape = {1024, 768},
                                              .strides = {768, 1}},
                                             {.name = "e", /* empty, at the very end */
                                              .offset = BUFFER_BYTES,
                                              .element_type = 0xDDCCBBAA}};

static void put(uint8_t *at, uint64_t value, size_t width) {
    for (size_t i = 0; i < width; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

/* A copy with no room behind it, so that a sanitizer sees every byte read beyond its end. */
static uint8_t *copy_of(const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    cr_assert_not_null(copy);
    memcpy(copy, bytes, size);
    return copy;
}

static void check_same(const gpuipc_range *got, const gpuipc_range *expected) {
    cr_assert_str_eq(got->name, expected->name);
    cr_assert_eq(got->offset, expected->offset);
    cr_assert_eq(got->bytes, expected->bytes);
    cr_assert_eq(got->element_type, expected->element_type);
    cr_assert_eq(got->dimensions, expected->dimensions);
    for (uint32_t i = 0; i < GPUIPC_DIMENSIONS_MAX; i++) {
        const bool used = i < expected->dimensions;
        cr_assert_eq(got->shape[i], used ? expected->shape[i] : 0);
        cr_assert_eq(got->strides[i], used ? expected->strides[i] : 0);
    }
}

/* Writes, with no room to spare, and reads; what comes must be what was given. */
static void check_round_trip(const gpuipc_range *ranges, size_t count, uint64_t buffer_bytes) {
    size_t size = 0;
    size_t written = 0;
    size_t came = 12345;
    check_status(GPUIPC_ERR_TOO_SMALL, gpuipc_manifest_write(ranges, count, NULL, 0, &size));
    uint8_t *bytes = malloc(size);
    gpuipc_range *got = calloc(count + 1, sizeof(*got));
    cr_assert(bytes != NULL && got != NULL);
    memset(got, 0x5A, (count + 1) * sizeof(*got));
    check_ok(gpuipc_manifest_write(ranges, count, bytes, size, &written));
    cr_assert_eq(written, size);
    check_ok(gpuipc_manifest_read(bytes, size, buffer_bytes, got, count + 1, &came));
    cr_assert_eq(came, count);
    for (size_t i = 0; i < count; i++) {
        check_same(&got[i], &ranges[i]);
    }
    cr_assert_eq(got[count].dimensions, 0x5A5A5A5A); /* not touched */
    free(got);
    free(bytes);
}

/* Reads; all that comes lies in the buffer and in the bytes. Anything may come of bytes that were
 * changed, but this. */
static gpuipc_status read_carefully(const uint8_t *bytes, size_t size, uint64_t buffer_bytes) {
    gpuipc_range ranges[8];
    size_t count = 0;
    uint8_t *copy = copy_of(bytes, size);
    gpuipc_status status = gpuipc_manifest_read(copy, size, buffer_bytes, ranges, 8, &count);
    for (size_t i = 0; status == GPUIPC_OK && i < count; i++) {
        const uint8_t *name = (const uint8_t *)ranges[i].name;
        cr_assert(count <= 8);
        cr_assert(ranges[i].offset <= buffer_bytes);
        cr_assert(ranges[i].bytes <= buffer_bytes - ranges[i].offset);
        cr_assert(name >= copy && name < copy + size);
        const uint8_t *end = memchr(name, '\0', (size_t)(copy + size - name));
        cr_assert(end != NULL && end > name && end - name <= GPUIPC_RANGE_NAME_MAX);
        cr_assert(ranges[i].dimensions <= GPUIPC_DIMENSIONS_MAX);
        for (uint32_t d = ranges[i].dimensions; d < GPUIPC_DIMENSIONS_MAX; d++) {
            cr_assert(ranges[i].shape[d] == 0 && ranges[i].strides[d] == 0);
        }
    }
    free(copy);
    cr_assert(status == GPUIPC_OK || gpuipc_error_get()->status == status);
    cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_PROTOCOL ||
                  status == GPUIPC_ERR_VERSION || status == GPUIPC_ERR_OUT_OF_RANGE ||
                  status == GPUIPC_ERR_TOO_SMALL,
              "%s", gpuipc_status_name(status));
    return status;
}

static void check_change(gpuipc_status expected, size_t at, uint64_t value, size_t width) {
    uint8_t bytes[sizeof(vector)];
    memcpy(bytes, vector, sizeof(bytes));
    put(bytes + at, value, width);
    gpuipc_status status = read_carefully(bytes, sizeof(bytes), BUFFER_BYTES);
    cr_assert_eq(status, expected, "%llu at %zu: %s, not %s", (unsigned long long)value, at,
                 gpuipc_status_name(status), gpuipc_status_name(expected));
}

Test(manifest, the_frozen_one_reads_and_writes) {
    gpuipc_range got[2];
    uint8_t made[sizeof(vector)];
    size_t size = 0;
    size_t count = 0;
    check_ok(gpuipc_manifest_read(vector, sizeof(vector), BUFFER_BYTES, got, 2, &count));
    cr_assert_eq(count, 2);
    check_same(&got[0], &vector_ranges[0]);
    check_same(&got[1], &vector_ranges[1]);
    check_ok(gpuipc_manifest_write(vector_ranges, 2, made, sizeof(made), &size));
    cr_assert_eq(size, sizeof(vector));
    cr_assert_arr_eq(made, vector, sizeof(vector));
}

Test(manifest, what_is_written_is_read) {
    char longest[GPUIPC_RANGE_NAME_MAX + 1];
    memset(longest, 'n', GPUIPC_RANGE_NAME_MAX);
    longest[GPUIPC_RANGE_NAME_MAX] = '\0';
    /* strides may be below 0, and the unused numbers anything: they are not carried */
    const gpuipc_range ranges[] = {{.name = longest,
                                    .offset = UINT64_MAX,
                                    .element_type = UINT32_MAX,
                                    .dimensions = GPUIPC_DIMENSIONS_MAX,
                                    .shape = {1, 2, 3, 4, 5, 6, 7, INT64_MAX},
                                    .strides = {-1, -2, -3, -4, -5, -6, -7, INT64_MIN}},
                                   {.name = "gewichte \xC3\xA4",
                                    .bytes = UINT64_MAX,
                                    .dimensions = 1,
                                    .shape = {0, 9, 9, 9, 9, 9, 9, 9},
                                    .strides = {0, 9, 9, 9, 9, 9, 9, 9}},
                                   {.name = "x", .offset = 1, .bytes = UINT64_MAX - 1}};
    check_round_trip(NULL, 0, 0);
    for (size_t count = 1; count <= 3; count++) {
        check_round_trip(ranges, count, UINT64_MAX);
    }
}

Test(manifest, a_thousand_tensors_fit_in_a_message) {
    enum {
        COUNT = 1000
    };
    gpuipc_range *ranges = calloc(COUNT, sizeof(*ranges));
    char(*names)[32] = calloc(COUNT, sizeof(*names));
    size_t size = 0;
    cr_assert(ranges != NULL && names != NULL);
    for (size_t i = 0; i < COUNT; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "model.layers.%04zu.self_attn.w", i);
        ranges[i] = (gpuipc_range){.name = names[i],
                                   .offset = i * 8192,
                                   .bytes = 8192,
                                   .element_type = 1,
                                   .dimensions = 2,
                                   .shape = {64, 64},
                                   .strides = {64, 1}};
    }
    check_round_trip(ranges, COUNT, UINT64_C(8192) * COUNT);
    check_status(GPUIPC_ERR_TOO_SMALL, gpuipc_manifest_write(ranges, COUNT, NULL, 0, &size));
    cr_assert(size <= GPUIPC_MESSAGE_BYTES_MAX);
    free(names);
    free(ranges);
}

Test(manifest, too_little_room_says_how_much_is_needed) {
    uint8_t made[sizeof(vector)];
    gpuipc_range got[2];
    size_t size = 0;
    size_t count = 0;
    memset(made, 0x77, sizeof(made));
    check_refused(GPUIPC_ERR_TOO_SMALL, "130",
                  gpuipc_manifest_write(vector_ranges, 2, made, sizeof(made) - 1, &size));
    cr_assert_eq(size, sizeof(vector));
    memset(got, 0x77, sizeof(got));
    check_status(GPUIPC_ERR_TOO_SMALL,
                 gpuipc_manifest_read(vector, sizeof(vector), BUFFER_BYTES, got, 1, &count));
    cr_assert_eq(count, 2);
    count = 0;
    check_status(GPUIPC_ERR_TOO_SMALL,
                 gpuipc_manifest_read(vector, sizeof(vector), BUFFER_BYTES, NULL, 0, &count));
    cr_assert_eq(count, 2);
    for (size_t i = 0; i < sizeof(made); i++) {
        cr_assert_eq(made[i], 0x77);
    }
    cr_assert_eq(got[0].dimensions, 0x77777777);
}

Test(manifest, what_cannot_be_written_is_refused) {
    char longer[GPUIPC_RANGE_NAME_MAX + 2];
    uint8_t made[1024];
    size_t size = 4711;
    memset(longer, 'n', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    const struct {
        gpuipc_range range;
        gpuipc_status expected;
    } rows[] = {
        {{.name = NULL}, GPUIPC_ERR_INVALID_ARGUMENT},
        {{.name = ""}, GPUIPC_ERR_NAME_INVALID},
        {{.name = longer}, GPUIPC_ERR_NAME_TOO_LONG},
        {{.name = "n", .dimensions = GPUIPC_DIMENSIONS_MAX + 1}, GPUIPC_ERR_INVALID_ARGUMENT},
        {{.name = "n", .dimensions = UINT32_MAX}, GPUIPC_ERR_INVALID_ARGUMENT}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const gpuipc_range both[] = {{.name = "good"}, rows[i].range};
        check_refused(rows[i].expected, "range 1",
                      gpuipc_manifest_write(both, 2, made, sizeof(made), &size));
        cr_assert_eq(size, 4711);
    }
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_manifest_write(NULL, 1, made, sizeof(made), &size));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_manifest_write(vector_ranges, 1, NULL, 100, &size));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_manifest_write(vector_ranges, 1, made, sizeof(made), NULL));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_manifest_read(NULL, 16, 0, NULL, 0, &size));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_manifest_read(vector, sizeof(vector), BUFFER_BYTES, NULL, 1, &size));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_manifest_read(vector, sizeof(vector), BUFFER_BYTES, NULL, 0, NULL));
}

Test(manifest, what_breaks_a_rule_is_refused) {
    check_change(GPUIPC_OK, 0, 'G', 1);
    check_change(GPUIPC_ERR_PROTOCOL, 0, 'g', 1);
    check_change(GPUIPC_ERR_VERSION, AT_MAJOR, 2, 2);
    check_change(GPUIPC_ERR_VERSION, AT_MAJOR, 0, 2);
    check_change(GPUIPC_ERR_PROTOCOL, AT_LENGTH, sizeof(vector) - 1, 4);
    check_change(GPUIPC_ERR_PROTOCOL, AT_LENGTH, sizeof(vector) + 1, 4);
    check_change(GPUIPC_ERR_PROTOCOL, AT_COUNT, 1, 4); /* something behind the last record */
    check_change(GPUIPC_ERR_PROTOCOL, AT_COUNT, 3, 4);
    check_change(GPUIPC_ERR_PROTOCOL, AT_COUNT, UINT32_MAX, 4);
    check_change(GPUIPC_ERR_PROTOCOL, AT_RECORD, 0, 4);
    check_change(GPUIPC_ERR_PROTOCOL, AT_RECORD, RECORD_BYTES - 1, 4);
    check_change(GPUIPC_ERR_PROTOCOL, AT_RECORD, RECORD_BYTES + 1, 4);
    check_change(GPUIPC_ERR_PROTOCOL, AT_RECORD, UINT32_MAX, 4);
    check_change(GPUIPC_ERR_PROTOCOL, AT_NAME_LENGTH, 0, 2);
    check_change(GPUIPC_ERR_PROTOCOL, AT_NAME_LENGTH, 14, 2);
    check_change(GPUIPC_ERR_PROTOCOL, AT_NAME_LENGTH, 16, 2);
    check_change(GPUIPC_ERR_PROTOCOL, AT_NAME_LENGTH, 256, 2);
    check_change(GPUIPC_ERR_PROTOCOL, AT_DIMENSIONS, 1, 2);
    check_change(GPUIPC_ERR_PROTOCOL, AT_DIMENSIONS, 9, 2);
    check_change(GPUIPC_ERR_PROTOCOL, AT_DIMENSIONS, UINT16_MAX, 2);
    check_change(GPUIPC_ERR_PROTOCOL, AT_RESERVED, 1, 4);
    check_change(GPUIPC_ERR_PROTOCOL, AT_NAME + 3, 0, 1);    /* a 0 inside of a name */
    check_change(GPUIPC_ERR_PROTOCOL, AT_NAME + 15, 'x', 1); /* none at its end */
    check_change(GPUIPC_ERR_OUT_OF_RANGE, AT_OFFSET, BUFFER_BYTES + 1, 8);
    check_change(GPUIPC_ERR_OUT_OF_RANGE, AT_OFFSET, UINT64_MAX, 8);
    check_change(GPUIPC_ERR_OUT_OF_RANGE, AT_SIZE, BUFFER_BYTES, 8);
    check_change(GPUIPC_ERR_OUT_OF_RANGE, AT_SIZE, UINT64_MAX - 0x200000 + 1, 8);
    check_change(GPUIPC_OK, AT_SIZE, BUFFER_BYTES - 0x200000, 8);
    check_change(GPUIPC_ERR_OUT_OF_RANGE, AT_SIZE, BUFFER_BYTES - 0x200000 + 1, 8);
    check_status(GPUIPC_ERR_OUT_OF_RANGE, read_carefully(vector, sizeof(vector), BUFFER_BYTES - 1));
}

/* A later minor version may have more in each record: that is skipped. */
Test(manifest, longer_records_of_a_later_minor_version_are_read) {
    enum {
        MORE = 5,
        FIRST_END = AT_RECORD + RECORD_BYTES
    };
    uint8_t later[sizeof(vector) + 2 * MORE];
    gpuipc_range got[2];
    size_t count = 0;
    memset(later, 0xEE, sizeof(later));
    memcpy(later, vector, FIRST_END);
    memcpy(later + FIRST_END + MORE, vector + FIRST_END, sizeof(vector) - FIRST_END);
    put(later + AT_LENGTH, sizeof(later), 4);
    put(later + AT_RECORD, RECORD_BYTES + MORE, 4);
    put(later + FIRST_END + MORE, sizeof(vector) - FIRST_END + MORE, 4);
    check_status(GPUIPC_ERR_PROTOCOL, read_carefully(later, sizeof(later), BUFFER_BYTES));
    put(later + AT_MINOR, 1, 2);
    put(later + AT_RESERVED, 0x01020304, 4);
    check_ok(gpuipc_manifest_read(later, sizeof(later), BUFFER_BYTES, got, 2, &count));
    cr_assert_eq(count, 2);
    check_same(&got[0], &vector_ranges[0]);
    check_same(&got[1], &vector_ranges[1]);
    for (size_t size = 0; size < sizeof(later); size++) {
        check_status(GPUIPC_ERR_PROTOCOL, read_carefully(later, size, BUFFER_BYTES));
    }
}

Test(manifest, every_truncation_is_refused) {
    uint8_t cut[sizeof(vector)];
    for (size_t size = 0; size < sizeof(vector); size++) {
        check_status(GPUIPC_ERR_PROTOCOL, read_carefully(vector, size, BUFFER_BYTES));
        memcpy(cut, vector, size);
        if (size >= AT_COUNT) { /* and says that it is whole */
            put(cut + AT_LENGTH, size, 4);
            check_status(GPUIPC_ERR_PROTOCOL, read_carefully(cut, size, BUFFER_BYTES));
        }
    }
}

Test(manifest, every_change_of_a_byte_is_refused_or_harmless) {
    uint8_t bytes[sizeof(vector)];
    unsigned refused = 0;
    memcpy(bytes, vector, sizeof(bytes));
    for (size_t at = 0; at < sizeof(bytes); at++) {
        for (unsigned value = 0; value < 256; value++) {
            bytes[at] = (uint8_t)value;
            refused += read_carefully(bytes, sizeof(bytes), BUFFER_BYTES) != GPUIPC_OK;
        }
        bytes[at] = vector[at];
    }
    /* all of the head but its minor version, of a record its lengths, reserved part, name's end */
    cr_assert(refused > 40 * 255, "%u", refused);
}

/* xorshift64, Marsaglia 2003: the same numbers everywhere. */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

Test(manifest, bytes_at_random_do_no_harm) {
    static const uint64_t likely[] = {0, 1, 2, 8, 9, 15, 16, 34, 80, 130, 255, 256, UINT64_MAX};
    uint64_t random = 0x9E3779B97F4A7C15;
    unsigned accepted = 0;
    for (unsigned round = 0; round < 20000; round++) {
        uint8_t bytes[sizeof(vector) + 16];
        size_t size = sizeof(vector);
        memcpy(bytes, vector, sizeof(vector));
        memset(bytes + sizeof(vector), 0, 16);
        const unsigned changes = 1 + (unsigned)(next_random(&random) % 4);
        for (unsigned i = 0; i < changes; i++) {
            const size_t width = (size_t)1 << next_random(&random) % 4;
            const size_t at = (size_t)(next_random(&random) % sizeof(vector));
            const uint64_t number = next_random(&random);
            put(bytes + at, number % 2 == 0 ? number : likely[number % 13], width);
        }
        if (next_random(&random) % 4 == 0) {
            size = (size_t)(next_random(&random) % (sizeof(bytes) + 1));
            put(bytes + AT_LENGTH, size, 4);
        }
        accepted += read_carefully(bytes, size, BUFFER_BYTES) == GPUIPC_OK;
    }
    cr_assert(accepted > 1000 && accepted < 19000, "%u", accepted); /* both have been tried */
}

Test(manifest, one_range_is_found_by_its_name) {
    gpuipc_range found;
    for (size_t i = 0; i < 2; i++) {
        check_ok(gpuipc_manifest_find(vector, sizeof(vector), BUFFER_BYTES, vector_ranges[i].name,
                                      &found));
        cr_assert_str_eq(found.name, vector_ranges[i].name);
        cr_assert_eq(found.offset, vector_ranges[i].offset);
        cr_assert_eq(found.bytes, vector_ranges[i].bytes);
        cr_assert_eq(found.element_type, vector_ranges[i].element_type);
        cr_assert_arr_eq(found.shape, vector_ranges[i].shape, sizeof(found.shape));
    }
    static const char *const missing[] = {"", "layers.0.weigh", "layers.0.weights", "f"};
    for (size_t i = 0; i < sizeof(missing) / sizeof(missing[0]); i++) {
        check_status(GPUIPC_ERR_NOT_FOUND, gpuipc_manifest_find(vector, sizeof(vector),
                                                                BUFFER_BYTES, missing[i], &found));
    }
}

Test(manifest, what_is_looked_at_on_the_way_is_checked) {
    uint8_t bytes[sizeof(vector)];
    gpuipc_range found;
    memcpy(bytes, vector, sizeof(bytes));
    check_status(GPUIPC_ERR_PROTOCOL,
                 gpuipc_manifest_find(bytes, sizeof(bytes) - 1, BUFFER_BYTES, "e", &found));
    check_status(GPUIPC_ERR_OUT_OF_RANGE,
                 gpuipc_manifest_find(bytes, sizeof(bytes), 1, "layers.0.weight", &found));
    put(bytes + AT_NAME_LENGTH, 0, 2);
    check_status(GPUIPC_ERR_PROTOCOL,
                 gpuipc_manifest_find(bytes, sizeof(bytes), BUFFER_BYTES, "e", &found));
    put(bytes + AT_MAJOR, 2, 2);
    check_status(GPUIPC_ERR_VERSION,
                 gpuipc_manifest_find(bytes, sizeof(bytes), BUFFER_BYTES, "e", &found));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_manifest_find(NULL, 0, BUFFER_BYTES, "e", &found));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_manifest_find(bytes, sizeof(bytes), BUFFER_BYTES, NULL, &found));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                 gpuipc_manifest_find(bytes, sizeof(bytes), BUFFER_BYTES, "e", NULL));
}

/* The bytes of DLDataType: code, bits, lanes. */
Test(manifest, element_types_are_those_of_dlpack) {
    cr_assert_eq(GPUIPC_ELEMENT_TYPE(GPUIPC_ELEMENT_FLOAT, 32, 1), 0x00012002u);
    cr_assert_eq(GPUIPC_ELEMENT_TYPE(GPUIPC_ELEMENT_BFLOAT, 16, 4), 0x00041004u);
    cr_assert_eq(GPUIPC_ELEMENT_KIND(0x00041004u), GPUIPC_ELEMENT_BFLOAT);
    cr_assert_eq(GPUIPC_ELEMENT_BITS(0x00041004u), 16);
    cr_assert_eq(GPUIPC_ELEMENT_LANES(0x00041004u), 4);
}
