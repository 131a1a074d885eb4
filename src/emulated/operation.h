/* SPDX-License-Identifier: MIT */
/**
 * @file What a stream is asked to do, as it was asked: by addresses and handles. It becomes work when it is
 * submitted, or, where it was captured, at each launch of its graph. The driver's lock is held in every
 * call.
 */
#ifndef GPUIPC_EMULATED_OPERATION_H
#define GPUIPC_EMULATED_OPERATION_H

#include "stream.h"
#include "work.h"

/** cuda.h, cuStreamBatchMemOp: so many words in one call at most. */
#define OPERATION_WORDS_MAX 256

/** An address, and the context whose device reads or writes there. */
typedef struct operand {
    CUdeviceptr address;
    CUcontext by;
} operand;

typedef struct fill_request {
    CUdeviceptr address;
    uint64_t pitch;
    uint64_t columns;
    uint64_t rows;
    uint32_t value;
    unsigned width; /**< bytes of one value */
} fill_request;

typedef struct operation {
    CUgraphNodeType type; /**< what it is as a node of a graph; says which member counts */
    CUcontext by;         /**< whose device does it */
    union {
        struct {
            operand destination;
            operand source;
            uint64_t bytes;
        } copy;            /**< MEMCPY */
        fill_request fill; /**< MEMSET, checked */
        struct {
            CUhostFn function;
            void *data;
        } call; /**< HOST */
        struct {
            CUstreamBatchMemOpParams *item; /**< owned if operation_copy made it */
            unsigned count;
        } words;       /**< BATCH_MEM_OP */
        CUevent event; /**< EVENT_RECORD, WAIT_EVENT */
    } as;
} operation;

/** Does it on a stream, later; or adds it to the graph that the stream is captured into. Nothing is done
 *  if any part of it is wrong. No event. */
CUresult operation_submit(stream *on, const operation *todo);

/** Whether it would be taken: the answers of operation_submit. */
CUresult operation_check(const operation *todo);

/** Does it on a stream that is not captured. What cannot be done any more ends the context when its turn
 *  comes: CUDA checks the nodes of a graph before the launch only. */
CUresult operation_launch(stream *on, const operation *todo);

/** One that owns what it refers to. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult operation_copy(const operation *from, operation *out);
void operation_free(operation *todo);

#endif
