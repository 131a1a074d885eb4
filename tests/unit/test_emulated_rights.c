/* SPDX-License-Identifier: MIT */
/** @file What a program on Windows may say about the rights of handles, byte by byte: that is read the
 *  same everywhere. */
#include <string.h>

#include "check.h"
#include "handle_rights.h"

TestSuite(emulated_rights, .timeout = 60);

static const unsigned char descriptor[20] = {1, 0, 0x04, 0x80};

/* An OBJECT_ATTRIBUTES as a program makes it that wants handles for its user alone. */
typedef union attributes {
    unsigned char bytes[64];
    void *align;
} attributes;

static void put(attributes *to, size_t at, uint64_t value, size_t bytes) {
    memcpy(to->bytes + at, &value, bytes); /* little-endian, like every system that has CUDA */
}

static attributes attributes_made(void) {
    attributes made;
    memset(&made, 0, sizeof(made));
    put(&made, 0, 48, 4);
    put(&made, 32, (uintptr_t)descriptor, 8);
    return made;
}

Test(emulated_rights, of_the_usual_kind_are_taken) {
    const attributes made = attributes_made();
    cr_assert_eq(handle_rights_check(made.bytes), CUDA_SUCCESS);
}

Test(emulated_rights, of_nobody_in_particular_are_taken) {
    attributes made = attributes_made();
    put(&made, 32, 0, 8); /* the system's default */
    cr_assert_eq(handle_rights_check(made.bytes), CUDA_SUCCESS);
    put(&made, 24, 0x40, 4); /* OBJ_CASE_INSENSITIVE */
    cr_assert_eq(handle_rights_check(made.bytes), CUDA_SUCCESS);
}

Test(emulated_rights, that_are_none_are_refused) {
    static const unsigned char no_descriptor[20] = {48};
    static const struct {
        size_t at;
        uint64_t value;
        size_t bytes;
        CUresult expected;
        const char *what;
    } changes[] = {
        {0, 24, 4, CUDA_ERROR_INVALID_VALUE, "the length of a SECURITY_ATTRIBUTES"},
        {0, 0, 4, CUDA_ERROR_INVALID_VALUE, "no length"},
        {0, 56, 4, CUDA_ERROR_INVALID_VALUE, "another length"},
        {24, 0x00000001, 4, CUDA_ERROR_INVALID_VALUE, "a flag that there is not"},
        {24, 0x80000000, 4, CUDA_ERROR_INVALID_VALUE, "another one"},
        {24, 0x00000002, 4, CUDA_ERROR_NOT_SUPPORTED, "OBJ_INHERIT"},
        {8, 4, 8, CUDA_ERROR_NOT_SUPPORTED, "a root directory"},
        {16, 4096, 8, CUDA_ERROR_NOT_SUPPORTED, "a name"},
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        attributes made = attributes_made();
        put(&made, changes[i].at, changes[i].value, changes[i].bytes);
        cr_assert_eq(handle_rights_check(made.bytes), changes[i].expected, "%s", changes[i].what);
    }
    attributes made = attributes_made();
    put(&made, 32, (uintptr_t)no_descriptor, 8);
    cr_assert_eq(handle_rights_check(made.bytes), CUDA_ERROR_INVALID_VALUE);
    cr_assert_eq(handle_rights_check(NULL), CUDA_ERROR_INVALID_VALUE);
}
