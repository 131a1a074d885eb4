/* SPDX-License-Identifier: MIT */
/** @file See word.h; and the entry points, which cuda.h calls stream memory operations. */
#include "word.h"

#include <stdatomic.h>

#include "entry.h"
#include "pinned.h"

/* So many looks between two questions of whether the wait goes on at all. */
#define LOOKS 8
/* For so long a waiting stream looks as often as the system lets it; then every millisecond. */
#define EAGER_NS UINT64_C(5000000)

/* FLUSH needs an attribute that is 0 here. */
#define WAIT_COMPARE_MASK 3u

void word_write(const work *todo) {
    uint8_t *at = todo->destination.item[0].bytes;
    /* What the stream did before is there when the word is. */
    if (todo->width == 8) {
        atomic_store((_Atomic uint64_t *)(void *)at, todo->value);
    } else {
        atomic_store((_Atomic uint32_t *)(void *)at, (uint32_t)todo->value);
    }
}

void word_raise(uint8_t *at, uint64_t value) {
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)at;
    uint64_t found = atomic_load(word);
    while (found < value && !atomic_compare_exchange_weak(word, &found, value)) {
    }
}

static bool compare_64(uint64_t word, uint64_t value, unsigned how) {
    switch (how) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return (int64_t)(word - value) >= 0; /* cyclic, as cuda.h has it */
    case CU_STREAM_WAIT_VALUE_EQ:
        return word == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (word & value) != 0;
    default:
        return ~(word | value) != 0;
    }
}

static bool compare_32(uint32_t word, uint32_t value, unsigned how) {
    switch (how) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return (int32_t)(word - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return word == value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (word & value) != 0;
    default:
        return (uint32_t) ~(word | value) != 0;
    }
}

bool word_is_reached(const work *todo) {
    uint8_t *at = todo->destination.item[0].bytes;
    if (todo->width == 8) {
        const uint64_t word = atomic_load((_Atomic uint64_t *)(void *)at);
        return compare_64(word, todo->value, todo->compare);
    }
    const uint32_t word = atomic_load((_Atomic uint32_t *)(void *)at);
    return compare_32(word, (uint32_t)todo->value, todo->compare);
}

void word_watch(const work *todo, uint64_t waited_ns) {
    const unsigned pause_ms = waited_ns < EAGER_NS ? 0 : 1;
    for (unsigned i = 0; i < LOOKS && !word_is_reached(todo); i++) {
        os_sleep_ms(pause_ms);
    }
}

static CUresult check_flags(const word_request *wanted) {
    if (wanted->kind == WORK_WRITE) {
        /* NO_MEMORY_BARRIER of the first version is no flag any more (measured). */
        return wanted->flags == CU_STREAM_WRITE_VALUE_DEFAULT ? CUDA_SUCCESS
                                                              : CUDA_ERROR_INVALID_VALUE;
    }
    if ((wanted->flags & ~(WAIT_COMPARE_MASK | CU_STREAM_WAIT_VALUE_FLUSH)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return (wanted->flags & CU_STREAM_WAIT_VALUE_FLUSH) == 0 ? CUDA_SUCCESS
                                                             : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult word_prepare(const stream *on, const word_request *wanted, work **out) {
    const side at = {wanted->address, on->owner};
    const pinned *host = pinned_find(wanted->address);
    const mapping *mapped = address_mapping(wanted->address);
    const CUresult result =
        driver.computer.has_stream_words ? check_flags(wanted) : CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* cuda.h: naturally aligned, and "cannot be used with managed memory"; with that of a pool neither
     * (measured). */
    if (wanted->address % wanted->width != 0 || (host == NULL && mapped == NULL) ||
        (host != NULL && host->kind == PINNED_MANAGED) ||
        (mapped != NULL && mapped->kind == MAPPING_POOLED)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return work_word(wanted->kind, at, wanted->value, wanted->width,
                     wanted->flags & WAIT_COMPARE_MASK, out);
}

static CUresult submit(CUstream handle, const word_request *wanted) {
    stream *on;
    work *todo;
    CUresult result = stream_find(handle, &on);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = word_prepare(on, wanted, &todo);
    return result == CUDA_SUCCESS ? stream_submit(on, todo) : result;
}

GPUIPC_EXPORTED CUresult cuStreamWriteValue64_v2(CUstream on, CUdeviceptr address, cuuint64_t value,
                                                 unsigned int flags) {
    const CUresult refused = ENTER(cuStreamWriteValue64_v2);
    const word_request wanted = {WORK_WRITE, address, value, 8, flags};
    return refused != CUDA_SUCCESS ? refused : entry_leave(submit(on, &wanted));
}

GPUIPC_EXPORTED CUresult cuStreamWaitValue64_v2(CUstream on, CUdeviceptr address, cuuint64_t value,
                                                unsigned int flags) {
    const CUresult refused = ENTER(cuStreamWaitValue64_v2);
    const word_request wanted = {WORK_WAIT, address, value, 8, flags};
    return refused != CUDA_SUCCESS ? refused : entry_leave(submit(on, &wanted));
}

GPUIPC_EXPORTED CUresult cuStreamWriteValue32_v2(CUstream on, CUdeviceptr address, cuuint32_t value,
                                                 unsigned int flags) {
    const CUresult refused = ENTER(cuStreamWriteValue32_v2);
    const word_request wanted = {WORK_WRITE, address, value, 4, flags};
    return refused != CUDA_SUCCESS ? refused : entry_leave(submit(on, &wanted));
}

GPUIPC_EXPORTED CUresult cuStreamWaitValue32_v2(CUstream on, CUdeviceptr address, cuuint32_t value,
                                                unsigned int flags) {
    const CUresult refused = ENTER(cuStreamWaitValue32_v2);
    const word_request wanted = {WORK_WAIT, address, value, 4, flags};
    return refused != CUDA_SUCCESS ? refused : entry_leave(submit(on, &wanted));
}
