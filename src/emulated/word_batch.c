/* SPDX-License-Identifier: MIT */
/** @file Several waits and writes of words in one call. */
#include "entry.h"
#include "stream.h"
#include "word.h"

/* cuda.h, cuStreamBatchMemOp. */
#define BATCH_MAX 256

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

static CUresult prepare_all(const stream *on, const CUstreamBatchMemOpParams *operations,
                            unsigned count, work **todo) {
    CUresult result = CUDA_SUCCESS;
    unsigned done = 0;
    for (; done < count && result == CUDA_SUCCESS; done++) {
        word_request wanted;
        todo[done] = NULL;
        result = read_operation(&operations[done], &wanted) ? word_prepare(on, &wanted, &todo[done])
                                                            : CUDA_ERROR_INVALID_VALUE;
    }
    while (result != CUDA_SUCCESS && done > 0) {
        work_free(todo[--done]);
    }
    return result;
}

/* All of them or, if one is wrong, none. */
static CUresult submit_all(CUstream handle, const CUstreamBatchMemOpParams *operations,
                           unsigned count, unsigned flags) {
    stream *on;
    work *todo[BATCH_MAX];
    CUresult result = stream_find(handle, &on);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (count > BATCH_MAX || flags != 0 || (count > 0 && operations == NULL)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = prepare_all(on, operations, count, todo);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (unsigned i = 0; i < count; i++) {
        if (result == CUDA_SUCCESS) {
            result = stream_submit(on, todo[i]);
        } else {
            work_free(todo[i]);
        }
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuStreamBatchMemOp_v2(CUstream on, unsigned int count,
                                               CUstreamBatchMemOpParams *operations,
                                               unsigned int flags) {
    const CUresult refused = ENTER(cuStreamBatchMemOp_v2);
    return refused != CUDA_SUCCESS ? refused
                                   : entry_leave(submit_all(on, operations, count, flags));
}
