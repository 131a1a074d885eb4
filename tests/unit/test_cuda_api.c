/* SPDX-License-Identifier: MIT */
/** @file Our declarations of the CUDA Driver API are the real ones. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "cuda_api_rows.h"

TestSuite(cuda_api, .timeout = 30);

/** Symbols that some versions of cuda.h put behind a name, with the same parameters; the list asks for
 *  one that every supported driver has. */
static const struct {
    const char *name;
    int since, before; /**< CUDA_VERSION */
    const char *symbol;
} other_symbols[] = {
    /* The later one need not report the latest error of pending work (cuda.h). */
    {"cuEventElapsedTime", 12080, INT_MAX, "cuEventElapsedTime_v2"},
    /* Both were declared, and the name meant the one that knows no MIG. */
    {"cuDeviceGetUuid", 0, 13000, "cuDeviceGetUuid"},
};

static void skip_without_header(void) {
    if (cuda_api_theirs.cuda_version == 0) {
        cr_skip_test("no cuda.h");
    }
}

static const char *expected_symbol(const char *name, const char *listed) {
    for (size_t i = 0; i < sizeof other_symbols / sizeof other_symbols[0]; i++) {
        if (strcmp(other_symbols[i].name, name) == 0 &&
            cuda_api_theirs.cuda_version >= other_symbols[i].since &&
            cuda_api_theirs.cuda_version < other_symbols[i].before) {
            return other_symbols[i].symbol;
        }
    }
    return listed;
}

Test(cuda_api, table_has_what_the_header_declares) {
    /* The names are taken from cuda_api.h by a pattern: a table that came out short would compare
     * nothing and still pass. One name of each kind, the first and the last enumerator among them. */
    static const char *const wanted[] = {"sizeof CUdevice",
                                         "sizeof CUstream",
                                         "sizeof CUmemAllocationProp",
                                         "sizeof CUuuid",
                                         "CUDA_SUCCESS",
                                         "sizeof CUdriverProcAddressQueryResult",
                                         "sizeof cuuint64_t",
                                         "sizeof CUhostFn",
                                         "sizeof CUmemPoolProps",
                                         "CU_MEMHOSTALLOC_PORTABLE",
                                         "CU_MEMHOSTREGISTER_DEVICEMAP",
                                         "CU_MEM_HANDLE_TYPE_MAX",
                                         "CU_STREAM_CAPTURE_MODE_RELAXED",
                                         "CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        bool found = false;
        for (size_t row = 0; row < cuda_api_ours.row_count && !found; row++) {
            found = strcmp(cuda_api_ours.rows[row].name, wanted[i]) == 0;
        }
        cr_assert(found, "cuda_api.cmake did not find \"%s\" in cuda_api.h", wanted[i]);
    }
}

Test(cuda_api, sizes_offsets_and_values) {
    skip_without_header();
    cr_assert_eq(cuda_api_ours.row_count, cuda_api_theirs.row_count);
    for (size_t i = 0; i < cuda_api_ours.row_count; i++) {
        const cuda_api_row *ours = &cuda_api_ours.rows[i];
        const cuda_api_row *theirs = &cuda_api_theirs.rows[i];
        cr_assert_str_eq(ours->name, theirs->name);
        cr_expect_eq(ours->value, theirs->value, "%s: %llu here, %llu in cuda.h", ours->name,
                     (unsigned long long)ours->value, (unsigned long long)theirs->value);
    }
}

Test(cuda_api, signatures) {
    skip_without_header();
    cr_assert_eq(cuda_api_ours.symbol_count, cuda_api_theirs.symbol_count);
    for (size_t i = 0; i < cuda_api_theirs.symbol_count; i++) {
        cr_expect(cuda_api_theirs.symbols[i].same_signature,
                  "%s: the parameters listed are not those of its version in cudaTypedefs.h",
                  cuda_api_theirs.symbols[i].name);
    }
}

Test(cuda_api, symbols) {
    skip_without_header();
    cr_assert_eq(cuda_api_ours.symbol_count, cuda_api_theirs.symbol_count);
    for (size_t i = 0; i < cuda_api_theirs.symbol_count; i++) {
        const cuda_api_symbol *theirs = &cuda_api_theirs.symbols[i];
        const char *expected = expected_symbol(theirs->name, cuda_api_ours.symbols[i].symbol);
        cr_expect_str_eq(theirs->symbol, expected, "%s: cuda.h says %s, expected %s", theirs->name,
                         theirs->symbol, expected);
    }
}
