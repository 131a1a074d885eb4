/* SPDX-License-Identifier: MIT */
/** @file See graph.h; and the entry points for graphs and their nodes. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "entry.h"
#include "handle_table.h"

CUresult graph_create(graph **out) {
    graph *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->handle = (CUgraph)(uintptr_t)handle_add(HANDLE_GRAPH, made);
    if (made->handle == NULL) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    driver.live.graphs++;
    *out = made;
    return CUDA_SUCCESS;
}

static void node_destroy(node *one) {
    if (one->handle != NULL) {
        handle_remove((uintptr_t)one->handle);
    }
    operation_free(&one->todo);
    free(one->after);
    free(one);
}

void graph_free(graph *made) {
    for (size_t i = 0; i < made->count; i++) {
        node_destroy(made->nodes[i]);
    }
    handle_remove((uintptr_t)made->handle);
    free(made->nodes);
    free(made->lanes);
    free(made);
    driver.live.graphs--;
}

CUresult graph_add_lane(graph *to, CUcontext owner) {
    CUcontext *grown = realloc(to->lanes, (to->lane_count + 1) * sizeof(*grown));
    if (grown == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    to->lanes = grown;
    to->lanes[to->lane_count++] = owner;
    return CUDA_SUCCESS;
}

static CUresult node_create(const operation *todo, const CUgraphNode *after, size_t after_count,
                            node **out) {
    node *one = calloc(1, sizeof(*one));
    if (one == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    one->after = malloc((after_count + 1) * sizeof(*after));
    CUresult result = one->after == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        result = operation_copy(todo, &one->todo);
    }
    if (result != CUDA_SUCCESS) {
        free(one->after);
        free(one);
        return result;
    }
    if (after_count > 0) {
        memcpy(one->after, after, after_count * sizeof(*after));
    }
    one->after_count = after_count;
    *out = one;
    return CUDA_SUCCESS;
}

CUresult graph_add(graph *to, unsigned lane, const operation *todo, const CUgraphNode *after,
                   size_t after_count, node **out) {
    node *one;
    CUresult result = node_create(todo, after, after_count, &one);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    node **grown = realloc(to->nodes, (to->count + 1) * sizeof(node *));
    if (grown != NULL) {
        to->nodes = grown;
        one->handle = (CUgraphNode)(uintptr_t)handle_add(HANDLE_GRAPH_NODE, one);
    }
    if (one->handle == NULL) {
        node_destroy(one);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    one->of = to;
    one->lane = lane;
    to->nodes[to->count++] = one;
    *out = one;
    return CUDA_SUCCESS;
}

static CUresult graph_find(CUgraph handle, graph **out) {
    *out = handle_find(HANDLE_GRAPH, (uintptr_t)handle);
    return *out == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult destroy(CUgraph handle) {
    graph *made;
    const CUresult result = graph_find(handle, &made);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    /* cuda.h, cuStreamGetCaptureInfo: while it is captured into, all is permitted but this. */
    if (made->is_capturing) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    graph_free(made);
    return CUDA_SUCCESS;
}

/* cuda.h: without an array the number of them; with one, as many as fit, and NULL behind the last. */
static CUresult get_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    graph *made;
    const CUresult result = graph_find(handle, &made);
    if (result != CUDA_SUCCESS || count == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; nodes != NULL && i < *count; i++) {
        nodes[i] = i < made->count ? made->nodes[i]->handle : NULL;
    }
    if (nodes == NULL || made->count < *count) {
        *count = made->count;
    }
    return CUDA_SUCCESS;
}

static CUresult get_type(CUgraphNode handle, CUgraphNodeType *out) {
    const node *one = handle_find(HANDLE_GRAPH_NODE, (uintptr_t)handle);
    if (one == NULL || out == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = one->todo.type;
    return CUDA_SUCCESS;
}

static CUresult get_words(CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS *out) {
    const node *one = handle_find(HANDLE_GRAPH_NODE, (uintptr_t)handle);
    if (one == NULL || out == NULL || one->todo.type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = (CUDA_BATCH_MEM_OP_NODE_PARAMS){
        .ctx = one->todo.by,
        .count = one->todo.as.words.count,
        .paramArray = one->todo.as.words.item,
    };
    return CUDA_SUCCESS;
}

GPUIPC_EXPORTED CUresult cuGraphDestroy(CUgraph handle) {
    const CUresult refused = ENTER(cuGraphDestroy);
    return refused != CUDA_SUCCESS ? refused : entry_leave(destroy(handle));
}

GPUIPC_EXPORTED CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *count) {
    const CUresult refused = ENTER(cuGraphGetNodes);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_nodes(handle, nodes, count));
}

GPUIPC_EXPORTED CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type) {
    const CUresult refused = ENTER(cuGraphNodeGetType);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_type(handle, type));
}

GPUIPC_EXPORTED CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode handle,
                                                        CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
    const CUresult refused = ENTER(cuGraphBatchMemOpNodeGetParams);
    return refused != CUDA_SUCCESS ? refused : entry_leave(get_words(handle, params));
}
