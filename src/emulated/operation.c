/* SPDX-License-Identifier: MIT */
/** @file See operation.h. */
#include "operation.h"

#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "event.h"
#include "word.h"

static unsigned parts(const operation *todo) {
    return todo->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP ? todo->as.words.count : 1;
}

static CUresult prepare_copy(const operation *todo, work **out) {
    context *to;
    context *from;
    CUresult result = context_find(todo->as.copy.destination.by, &to);
    if (result == CUDA_SUCCESS) {
        result = context_find(todo->as.copy.source.by, &from);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return work_copy((side){todo->as.copy.destination.address, to},
                     (side){todo->as.copy.source.address, from}, todo->as.copy.bytes, out);
}

static CUresult prepare_fill(const fill_request *wanted, const context *by, work **out) {
    return work_fill((side){wanted->address, by}, wanted->columns * wanted->width, wanted->rows,
                     wanted->pitch, wanted->value, wanted->width, out);
}

/* One part of it. */
static CUresult prepare(const operation *todo, unsigned part, work **out) {
    context *by;
    const CUresult result = context_find(todo->by, &by);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    switch (todo->type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return prepare_copy(todo, out);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return prepare_fill(&todo->as.fill, by, out);
    case CU_GRAPH_NODE_TYPE_HOST:
        return work_function(todo->as.call.function, todo->as.call.data, out);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return word_prepare(by, &todo->as.words.item[part], out);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* All parts, or none. */
static CUresult prepare_all(const operation *todo, work **all) {
    CUresult result = CUDA_SUCCESS;
    unsigned done = 0;
    for (; done < parts(todo) && result == CUDA_SUCCESS; done++) {
        all[done] = NULL;
        result = prepare(todo, done, &all[done]);
    }
    while (result != CUDA_SUCCESS && done > 0) {
        work_free(all[--done]);
    }
    return result;
}

CUresult operation_check(const operation *todo) {
    work *all[OPERATION_WORDS_MAX];
    const CUresult result = prepare_all(todo, all);
    for (unsigned i = 0; i < parts(todo) && result == CUDA_SUCCESS; i++) {
        work_free(all[i]);
    }
    return result;
}

/* Takes all of them over, whatever the result. */
static CUresult submit_all(stream *on, work **all, unsigned count) {
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count; i++) {
        if (result == CUDA_SUCCESS) {
            result = stream_submit(on, all[i]);
        } else {
            work_free(all[i]);
        }
    }
    return result;
}

CUresult operation_submit(stream *on, const operation *todo) {
    work *all[OPERATION_WORDS_MAX];
    if (on->captured.capture != NULL) {
        return capture_add(on, todo);
    }
    const CUresult result = prepare_all(todo, all);
    return result == CUDA_SUCCESS ? submit_all(on, all, parts(todo)) : result;
}

static CUresult launch_event(stream *on, const operation *todo) {
    event *what;
    CUresult result = event_find(todo->as.event, &what);
    if (result == CUDA_ERROR_INVALID_HANDLE) {
        return CUDA_SUCCESS; /* destroyed since: nobody can see its record, or make another */
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return todo->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? event_record_on(what, on)
                                                         : event_wait_on(on, what);
}

CUresult operation_launch(stream *on, const operation *todo) {
    work *all[OPERATION_WORDS_MAX];
    if (todo->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ||
        todo->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        return launch_event(on, todo);
    }
    CUresult result = prepare_all(todo, all);
    if (result == CUDA_SUCCESS) {
        return submit_all(on, all, parts(todo));
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY) {
        result = work_illegal(&all[0]);
    }
    return result == CUDA_SUCCESS ? stream_submit(on, all[0]) : result;
}

CUresult operation_copy(const operation *from, operation *out) {
    *out = *from;
    if (from->type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        return CUDA_SUCCESS;
    }
    const size_t bytes = from->as.words.count * sizeof(*from->as.words.item);
    out->as.words.item = malloc(bytes > 0 ? bytes : 1);
    if (out->as.words.item == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (bytes > 0) {
        memcpy(out->as.words.item, from->as.words.item, bytes);
    }
    return CUDA_SUCCESS;
}

void operation_free(operation *todo) {
    if (todo->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        free(todo->as.words.item);
    }
}
