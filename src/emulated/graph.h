/* SPDX-License-Identifier: MIT */
/**
 * @file Graphs, which come about by capturing streams, and executable ones made of them. The driver's lock
 * is held in every call.
 */
#ifndef GPUIPC_EMULATED_GRAPH_H
#define GPUIPC_EMULATED_GRAPH_H

#include "operation.h"

struct graph;

typedef struct node {
    CUgraphNode handle;
    struct graph *of;
    unsigned lane;      /**< which of the captured streams it came from */
    CUgraphNode *after; /**< what must be done first; all of it stands before it in the graph */
    size_t after_count;
    operation todo;
} node;

typedef struct graph {
    CUgraph handle;
    bool is_capturing; /**< not the caller's yet */
    node **nodes;      /**< in the order in which they were captured */
    size_t count;
    CUcontext *lanes; /**< the context of each captured stream */
    unsigned lane_count;
} graph;

/** An empty one. */
CUresult graph_create(graph **out);
void graph_free(graph *made);

/** Adds a stream's context; its number is lane_count - 1 then. */
CUresult graph_add_lane(graph *to, CUcontext owner);
/** Adds a node, with copies of all that it is given. */
CUresult graph_add(graph *to, unsigned lane, const operation *todo, const CUgraphNode *after,
                   size_t after_count, node **out);

/** Destroys the executable graphs that use a context, which is ending. */
void graph_exec_forget(const context *ending);

#endif
