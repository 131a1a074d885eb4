/* SPDX-License-Identifier: MIT */
/** @file Our side of the comparison: what cuda_api.h says. */
#include "cuda/cuda_api.h"

#include "cuda_api_table.h"

#define SYMBOL_ROW(group, name, suffix, version, parameters) {#name, #name #suffix, 1},

static const cuda_api_symbol symbols[] = {CUDA_API_LIST(SYMBOL_ROW)};

const cuda_api_tables cuda_api_ours = {
    .rows = cuda_api_rows,
    .row_count = sizeof cuda_api_rows / sizeof cuda_api_rows[0],
    .symbols = symbols,
    .symbol_count = sizeof symbols / sizeof symbols[0],
};
