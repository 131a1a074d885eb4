/* SPDX-License-Identifier: MIT */
/** @file NVIDIA's side of the comparison: what the installed cuda.h and cudaTypedefs.h say. */
#include <cuda.h>
#include <cudaTypedefs.h>

#include "cuda/cuda_entry_points.h"

#include "cuda_api_table.h"

/* The name goes through one more macro, so that cuda.h's "#define cuMemAlloc cuMemAlloc_v2" takes
 * place; beside # and ## an argument is not expanded, so #name and PFN_##name stay as listed. */
#define TEXT_OF(symbol) #symbol
#define SYMBOL_OF(name) TEXT_OF(name)

/* Our parameters with NVIDIA's types behind the names, against NVIDIA's own pointer type for the
 * version that the list names. PFN_ is pasted here. */
#define SYMBOL_ROW(group, name, suffix, version, parameters)                                       \
    {#name, SYMBOL_OF(name),                                                                       \
     _Generic((PFN_##name##_v##version)0, CUresult(CUDAAPI *) parameters : 1, default : 0)},

static const cuda_api_symbol symbols[] = {CUDA_API_LIST(SYMBOL_ROW)};

const cuda_api_tables cuda_api_theirs = {
    .cuda_version = CUDA_VERSION,
    .rows = cuda_api_rows,
    .row_count = sizeof cuda_api_rows / sizeof cuda_api_rows[0],
    .symbols = symbols,
    .symbol_count = sizeof symbols / sizeof symbols[0],
};
