/* SPDX-License-Identifier: MIT */
/**
 * @file Ranges of numbers, found by a number in them: what it costs grows with the logarithm of how many there are.
 * They may overlap. Not locked: that is the owner's.
 */
#ifndef GPUIPC_RANGE_TREE_H
#define GPUIPC_RANGE_TREE_H

#include <stdbool.h>
#include <stdint.h>

/** A member of what has the range. */
typedef struct range_node {
    uint64_t begin;
    uint64_t end;      /**< behind the last number of it */
    uint64_t reaches;  /**< the largest end of it and all below it */
    uint64_t priority; /**< of two, the one above has the higher one */
    struct range_node *left;
    struct range_node *right;
} range_node;

/** Enters a node, whose begin and end are set. @param seed random, so that the tree does not grow one-sided */
void range_tree_add(range_node **root, range_node *node, uint64_t seed);
/** Takes out a node that is in it. */
void range_tree_remove(range_node **root, const range_node *node);
/** One whose range has this number in it and which @p takes says is one to take; NULL: there is none. */
range_node *range_tree_find(range_node *root, uint64_t number, bool (*takes)(range_node *node));
/** The same, with any of these numbers in it. */
range_node *range_tree_find_between(range_node *root, uint64_t first, uint64_t last,
                                    bool (*takes)(range_node *node));

#endif
