/* SPDX-License-Identifier: MIT */
/** @file An error whose sentence cannot be formatted. The C library of Windows formats whatever it is given. */
#include <criterion/criterion.h>
#include <wchar.h>

#include "base/status.h"

TestSuite(posix_status, .timeout = 30);

/* A wide character that there is not: printf(3) has it as an error (EILSEQ). */
Test(posix_status, a_sentence_that_cannot_be_formatted_has_a_stand_in) {
    static const wchar_t impossible[] = {(wchar_t)0xD800, 0};
    status_enter("call");
    cr_assert_eq(status_fail(GPUIPC_ERR_TIMEOUT, "%ls", impossible), GPUIPC_ERR_TIMEOUT);
    cr_assert_str_eq(gpuipc_error_get()->sentence, gpuipc_status_message(GPUIPC_ERR_TIMEOUT));
    cr_assert_str_eq(gpuipc_error_get()->operation, "call");
}
