/* SPDX-License-Identifier: MIT */
/**
 * @file Executable graphs. Each captured stream has a stream here, its lane, so that branches of a graph
 * run beside each other: one that waits for a word does not hold up another that writes it.
 */
#include <stdlib.h>

#include "entry.h"
#include "graph.h"
#include "handle_table.h"

/* cuda.h, CUgraphInstantiate_flags: what may be asked for; neither changes anything here. */
#define INSTANTIATE_FLAGS                                                                          \
    (CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |                                             \
     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

typedef struct exec_node {
    CUgraphNode source; /* the node of the graph, which may be gone */
    unsigned lane;
    size_t *after; /* what must be done first: positions, all lower */
    size_t after_count;
    operation todo;
    task *point; /* during a launch: behind it; one reference */
} exec_node;

typedef struct graph_exec {
    CUgraphExec handle;
    exec_node *nodes;
    size_t count;
    stream **lanes;
    unsigned lane_count;
    task *launched; /* behind the latest launch; one reference, or NULL */
    struct graph_exec *next;
} graph_exec;

static graph_exec *all;

static void exec_destroy(graph_exec *made) {
    for (graph_exec **link = &all; *link != NULL; link = &(*link)->next) {
        if (*link == made) {
            *link = made->next;
            break;
        }
    }
    if (made->handle != NULL) {
        handle_remove((uintptr_t)made->handle);
        driver.live.graph_execs--;
    }
    for (size_t i = 0; i < made->count; i++) {
        operation_free(&made->nodes[i].todo);
        free(made->nodes[i].after);
    }
    for (unsigned i = 0; i < made->lane_count; i++) {
        stream_close(made->lanes[i]); /* cuda.h: what was launched is still done */
    }
    task_release(made->launched);
    free(made->nodes);
    free(made->lanes);
    free(made);
}

void graph_exec_forget(const context *ending) {
    graph_exec *made = all;
    while (made != NULL) {
        bool is_there = false;
        for (unsigned i = 0; i < made->lane_count; i++) {
            is_there = is_there || made->lanes[i]->owner == ending;
        }
        if (is_there) {
            exec_destroy(made);
            made = all; /* the lock may have been released meanwhile */
        } else {
            made = made->next;
        }
    }
}

static size_t position_of(const graph *from, CUgraphNode handle) {
    size_t i = 0;
    while (from->nodes[i]->handle != handle) {
        i++;
    }
    return i;
}

/* A node is counted only when all of it is there. */
static CUresult add_node(graph_exec *to, const graph *from, const node *one) {
    exec_node *made = &to->nodes[to->count];
    made->after = malloc((one->after_count + 1) * sizeof(*made->after));
    if (made->after == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = operation_copy(&one->todo, &made->todo);
    if (result != CUDA_SUCCESS) {
        free(made->after);
        return result;
    }
    for (size_t i = 0; i < one->after_count; i++) {
        made->after[i] = position_of(from, one->after[i]);
    }
    made->after_count = one->after_count;
    made->source = one->handle;
    made->lane = one->lane;
    made->point = NULL;
    to->count++;
    return CUDA_SUCCESS;
}

static CUresult fill_exec(graph_exec *to, const graph *from) {
    CUresult result = CUDA_SUCCESS;
    to->nodes = malloc((from->count + 1) * sizeof(*to->nodes));
    to->lanes = malloc((from->lane_count + 1) * sizeof(stream *));
    if (to->nodes == NULL || to->lanes == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (unsigned i = 0; i < from->lane_count && result == CUDA_SUCCESS; i++) {
        context *owner;
        result = context_find(from->lanes[i], &owner);
        if (result == CUDA_SUCCESS) {
            result = stream_create_lane(owner, &to->lanes[i]);
        }
        to->lane_count += result == CUDA_SUCCESS;
    }
    for (size_t i = 0; i < from->count && result == CUDA_SUCCESS; i++) {
        result = add_node(to, from, from->nodes[i]);
    }
    return result;
}

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags) {
    const graph *from = handle_find(HANDLE_GRAPH, (uintptr_t)handle);
    if (from == NULL || out == NULL || from->is_capturing ||
        (flags & ~(unsigned long long)INSTANTIATE_FLAGS) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    graph_exec *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = fill_exec(made, from);
    if (result == CUDA_SUCCESS) {
        made->handle = (CUgraphExec)(uintptr_t)handle_add(HANDLE_GRAPH_EXEC, made);
        result = made->handle == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        exec_destroy(made);
        return result;
    }
    driver.live.graph_execs++;
    made->next = all;
    all = made;
    *out = made->handle;
    return CUDA_SUCCESS;
}

static CUresult exec_find(CUgraphExec handle, graph_exec **out) {
    *out = handle_find(HANDLE_GRAPH_EXEC, (uintptr_t)handle);
    return *out == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Lanes are in order by themselves; what a node needs of another lane, its own waits for. */
static CUresult launch_node(graph_exec *self, exec_node *one) {
    stream *lane = self->lanes[one->lane];
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < one->after_count && result == CUDA_SUCCESS; i++) {
        const exec_node *before = &self->nodes[one->after[i]];
        if (before->lane != one->lane) {
            result = stream_wait_for(lane, before->point);
        }
    }
    if (result == CUDA_SUCCESS) {
        result = operation_launch(lane, &one->todo);
    }
    return result == CUDA_SUCCESS ? stream_mark(lane, &one->point) : result;
}

/* What is behind @p start, which all lanes wait for; the launching stream waits for all lanes then. */
static CUresult launch_all(graph_exec *self, stream *on, task *start) {
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < self->lane_count && result == CUDA_SUCCESS; i++) {
        result = stream_wait_for(self->lanes[i], start);
    }
    for (size_t i = 0; i < self->count && result == CUDA_SUCCESS; i++) {
        result = launch_node(self, &self->nodes[i]);
    }
    for (unsigned i = 0; i < self->lane_count && result == CUDA_SUCCESS; i++) {
        result = stream_wait_for(on, self->lanes[i]->latest);
    }
    for (size_t i = 0; i < self->count; i++) {
        task_release(self->nodes[i].point);
        self->nodes[i].point = NULL;
    }
    return result;
}

/* cuda.h: launches of one executable graph are ordered behind each other, on whatever streams. */
static CUresult launch(CUgraphExec handle, CUstream stream_handle) {
    graph_exec *self;
    stream *on;
    task *point;
    CUresult result = exec_find(handle, &self);
    if (result == CUDA_SUCCESS) {
        result = stream_find(stream_handle, &on);
    }
    if (result == CUDA_SUCCESS) {
        result = stream_wait_for(on, self->launched);
    }
    if (result == CUDA_SUCCESS) {
        result = stream_mark(on, &point);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = launch_all(self, on, point);
    task_release(point);
    if (result == CUDA_SUCCESS) {
        result = stream_mark(on, &point);
    }
    if (result == CUDA_SUCCESS) {
        task_release(self->launched);
        self->launched = point;
    }
    return result;
}

static CUresult upload(CUgraphExec handle, CUstream stream_handle) {
    graph_exec *self;
    stream *on;
    const CUresult result = exec_find(handle, &self);
    return result == CUDA_SUCCESS ? stream_find(stream_handle, &on) : result;
}

static CUresult destroy(CUgraphExec handle) {
    graph_exec *self;
    const CUresult result = exec_find(handle, &self);
    if (result == CUDA_SUCCESS) {
        exec_destroy(self);
    }
    return result;
}

static exec_node *node_of(const graph_exec *self, CUgraphNode source) {
    for (size_t i = 0; i < self->count; i++) {
        if (self->nodes[i].source == source) {
            return &self->nodes[i];
        }
    }
    return NULL;
}

/* cuda.h: the context, and the number and the kinds of the operations, stay as they are. */
static bool may_become(const operation *now, const CUDA_BATCH_MEM_OP_NODE_PARAMS *wanted) {
    if (now->type != CU_GRAPH_NODE_TYPE_BATCH_MEM_OP || wanted->ctx != now->by ||
        wanted->count != now->as.words.count || wanted->paramArray == NULL || wanted->flags != 0) {
        return false;
    }
    for (unsigned i = 0; i < wanted->count; i++) {
        if (wanted->paramArray[i].operation != now->as.words.item[i].operation) {
            return false;
        }
    }
    return true;
}

static CUresult set_words(CUgraphExec handle, CUgraphNode source,
                          const CUDA_BATCH_MEM_OP_NODE_PARAMS *wanted) {
    graph_exec *self;
    operation made;
    CUresult result = exec_find(handle, &self);
    exec_node *one = result == CUDA_SUCCESS ? node_of(self, source) : NULL;
    if (one == NULL || wanted == NULL || !may_become(&one->todo, wanted)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const operation next = {.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                            .by = wanted->ctx,
                            .as.words = {wanted->paramArray, wanted->count}};
    result = operation_check(&next);
    if (result == CUDA_SUCCESS) {
        result = operation_copy(&next, &made);
    }
    if (result == CUDA_SUCCESS) {
        operation_free(&one->todo);
        one->todo = made;
    }
    return result;
}

GPUIPC_EXPORTED CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle,
                                                     unsigned long long flags) {
    const CUresult refused = ENTER(cuGraphInstantiateWithFlags);
    return refused != CUDA_SUCCESS ? refused : entry_leave(instantiate(out, handle, flags));
}

GPUIPC_EXPORTED CUresult cuGraphUpload(CUgraphExec handle, CUstream on) {
    const CUresult refused = ENTER(cuGraphUpload);
    return refused != CUDA_SUCCESS ? refused : entry_leave(upload(handle, on));
}

GPUIPC_EXPORTED CUresult cuGraphLaunch(CUgraphExec handle, CUstream on) {
    const CUresult refused = ENTER(cuGraphLaunch);
    return refused != CUDA_SUCCESS ? refused : entry_leave(launch(handle, on));
}

GPUIPC_EXPORTED CUresult cuGraphExecDestroy(CUgraphExec handle) {
    const CUresult refused = ENTER(cuGraphExecDestroy);
    return refused != CUDA_SUCCESS ? refused : entry_leave(destroy(handle));
}

GPUIPC_EXPORTED CUresult cuGraphExecBatchMemOpNodeSetParams(
    CUgraphExec handle, CUgraphNode source, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params) {
    const CUresult refused = ENTER(cuGraphExecBatchMemOpNodeSetParams);
    return refused != CUDA_SUCCESS ? refused : entry_leave(set_words(handle, source, params));
}
