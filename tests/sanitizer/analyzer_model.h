/* SPDX-License-Identifier: MIT */
/** @file For ci/analyze: what functions of another file promise, which gcc's analyzer cannot see. It would follow paths on which
 *  what failed is GPUIPC_OK, with what was not made then. */
#ifndef GPUIPC_TEST_ANALYZER_MODEL_H
#define GPUIPC_TEST_ANALYZER_MODEL_H

#include "base/status.h"

/* No call names GPUIPC_OK as the failure. */
static inline gpuipc_status model_failure(gpuipc_status status) {
    if (status == GPUIPC_OK) {
        __builtin_unreachable();
    }
    return status;
}

#define status_fail(...)          model_failure((status_fail)(__VA_ARGS__))
#define status_fail_os(...)       model_failure((status_fail_os)(__VA_ARGS__))
#define status_fail_cuda(...)     model_failure((status_fail_cuda)(__VA_ARGS__))
#define status_out_of_memory(...) model_failure((status_out_of_memory)(__VA_ARGS__))

#endif
