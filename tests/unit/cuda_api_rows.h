/* SPDX-License-Identifier: MIT */
/** @file What one header says of the CUDA Driver API, as rows that can be compared with another's. */
#ifndef GPUIPC_TEST_CUDA_API_ROWS_H
#define GPUIPC_TEST_CUDA_API_ROWS_H

#include <stddef.h>
#include <stdint.h>

/** A size, an alignment, an offset or an enumerator's value. */
typedef struct cuda_api_row {
    const char *name;
    uint64_t value;
} cuda_api_row;

/** An entry point: the symbol that the library has for it, and whether the signature is ours. */
typedef struct cuda_api_symbol {
    const char *name;
    const char *symbol;
    int same_signature;
} cuda_api_symbol;

/** Everything one translation unit saw. */
typedef struct cuda_api_tables {
    int cuda_version; /**< CUDA_VERSION; 0: there is no header on this side */
    const cuda_api_row *rows;
    size_t row_count;
    const cuda_api_symbol *symbols;
    size_t symbol_count;
} cuda_api_tables;

extern const cuda_api_tables cuda_api_ours;
extern const cuda_api_tables cuda_api_theirs;

#endif
