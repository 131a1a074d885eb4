/* SPDX-License-Identifier: MIT */
/** @file See word.h; and the entry points, which cuda.h calls stream memory operations. */
#include "word.h"

#include <stdatomic.h>

#include "entry.h"
#include "operation.h"
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

/** A wait or a write that a program asks for. */
typedef struct word_request {
    work_kind kind; /**< WORK_WRITE or WORK_WAIT */
    CUdeviceptr address;
    uint64_t value;
    unsigned width; /**< 4 or 8 */
    unsigned flags;
} word_request;

/* False: none that there is here. */
static bool read_operation(const CUstreamBatchMemOpParams *from, word_request *out) {
    *out = (word_request){.kind = WORK_WAIT, .width = 8};
    switch (from->operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        out->kind = WORK_WRITE;
        out->width = 4;
        break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        out->width = 4;
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        out->kind = WORK_WRITE;
        break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        break;
    default:
        return false;
    }
    out->address = from->word.address;
    out->value = out->width == 8 ? from->word.to.value64 : from->word.to.value;
    out->flags = from->word.flags;
    return true;
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

static CUresult prepare(const context *by, const word_request *wanted, work **out) {
    const side at = {wanted->address, by};
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

CUresult word_prepare(const context *by, const CUstreamBatchMemOpParams *wanted, work **out) {
    word_request request;
    return read_operation(wanted, &request) ? prepare(by, &request, out) : CUDA_ERROR_INVALID_VALUE;
}

/* The stream behind a handle, once it has room. */
static CUresult find_with_room(CUstream handle, stream **out) {
    CUresult result;
    while ((result = stream_find(handle, out)) == CUDA_SUCCESS &&
           (*out)->calls == STREAM_CALLS_MAX) {
        state_wait();
    }
    return result;
}

/* All of them or, if one is wrong, none. */
static CUresult submit(CUstream handle, CUstreamBatchMemOpParams *wanted, unsigned count,
                       unsigned flags) {
    stream *on;
    CUresult result = find_with_room(handle, &on);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (count > OPERATION_WORDS_MAX || flags != 0 || (count > 0 && wanted == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = operation_submit(on, &(operation){.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                                               .by = on->owner->handle,
                                               .as.words = {wanted, count}});
    if (result == CUDA_SUCCESS && count > 0) {
        stream_count_call(on);
    }
    return result;
}

static CUresult submit_one(CUstream handle, CUstreamBatchMemOpType what, CUdeviceptr address,
                           uint64_t value, unsigned flags) {
    CUstreamBatchMemOpParams wanted = {
        .word = {.operation = what, .address = address, .flags = flags}};
    if (what == CU_STREAM_MEM_OP_WRITE_VALUE_32 || what == CU_STREAM_MEM_OP_WAIT_VALUE_32) {
        wanted.word.to.value = (cuuint32_t)value;
    } else {
        wanted.word.to.value64 = value;
    }
    return submit(handle, &wanted, 1, 0);
}

GPUIPC_EXPORTED CUresult cuStreamBatchMemOp_v2(CUstream on, unsigned int count,
                                               CUstreamBatchMemOpParams *operations,
                                               unsigned int flags) {
    const CUresult refused = ENTER(cuStreamBatchMemOp_v2);
    return refused != CUDA_SUCCESS ? refused : entry_leave(submit(on, operations, count, flags));
}

GPUIPC_EXPORTED CUresult cuStreamWriteValue64_v2(CUstream on, CUdeviceptr address, cuuint64_t value,
                                                 unsigned int flags) {
    const CUresult refused = ENTER(cuStreamWriteValue64_v2);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(submit_one(on, CU_STREAM_MEM_OP_WRITE_VALUE_64,
                                                            address, value, flags));
}

GPUIPC_EXPORTED CUresult cuStreamWaitValue64_v2(CUstream on, CUdeviceptr address, cuuint64_t value,
                                                unsigned int flags) {
    const CUresult refused = ENTER(cuStreamWaitValue64_v2);
    return refused != CUDA_SUCCESS
               ? refused
               : entry_leave(submit_one(on, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags));
}

GPUIPC_EXPORTED CUresult cuStreamWriteValue32_v2(CUstream on, CUdeviceptr address, cuuint32_t value,
                                                 unsigned int flags) {
    const CUresult refused = ENTER(cuStreamWriteValue32_v2);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(submit_one(on, CU_STREAM_MEM_OP_WRITE_VALUE_32,
                                                            address, value, flags));
}

GPUIPC_EXPORTED CUresult cuStreamWaitValue32_v2(CUstream on, CUdeviceptr address, cuuint32_t value,
                                                unsigned int flags) {
    const CUresult refused = ENTER(cuStreamWaitValue32_v2);
    return refused != CUDA_SUCCESS
               ? refused
               : entry_leave(submit_one(on, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags));
}
