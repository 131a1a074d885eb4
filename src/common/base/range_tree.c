/* SPDX-License-Identifier: MIT */
/**
 * @file See range_tree.h. A treap (Seidel and Aragon, "Randomized Search Trees", 1996) in the order of where the ranges
 * begin, in which each node knows how far what is below it reaches (Cormen and others, "Introduction to Algorithms",
 * interval trees).
 */
#include "base/range_tree.h"

#include <stddef.h>

#include "base/hash.h"

/* Those that begin at the same number are told apart by where they lie. */
static bool is_before(const range_node *one, const range_node *other) {
    return one->begin != other->begin ? one->begin < other->begin
                                      : (uintptr_t)one < (uintptr_t)other;
}

static void settle(range_node *self) {
    self->reaches = self->end;
    if (self->left != NULL && self->left->reaches > self->reaches) {
        self->reaches = self->left->reaches;
    }
    if (self->right != NULL && self->right->reaches > self->reaches) {
        self->reaches = self->right->reaches;
    }
}

/* @param left all before any of @p right */
static range_node *merge(range_node *left, range_node *right) {
    if (left == NULL || right == NULL) {
        return left == NULL ? right : left;
    }
    if (left->priority > right->priority) {
        left->right = merge(left->right, right);
        settle(left);
        return left;
    }
    right->left = merge(left, right->left);
    settle(right);
    return right;
}

/* Into those before @p at and the others, @p at among these. */
static void split(range_node *root, const range_node *at, range_node **out_left,
                  range_node **out_right) {
    if (root == NULL) {
        *out_left = *out_right = NULL;
    } else if (is_before(root, at)) {
        *out_left = root;
        split(root->right, at, &root->right, out_right);
        settle(root);
    } else {
        *out_right = root;
        split(root->left, at, out_left, &root->left);
        settle(root);
    }
}

void range_tree_add(range_node **root, range_node *node, uint64_t seed) {
    range_node *left;
    range_node *right;
    node->left = node->right = NULL;
    node->priority = hash_word(seed, (uint64_t)(uintptr_t)node);
    settle(node);
    split(*root, node, &left, &right);
    *root = merge(merge(left, node), right);
}

/* Takes the first one out. */
static range_node *without_first(range_node *root) {
    if (root->left == NULL) {
        return root->right;
    }
    root->left = without_first(root->left);
    settle(root);
    return root;
}

void range_tree_remove(range_node **root, const range_node *node) {
    range_node *left;
    range_node *right;
    split(*root, node, &left, &right);
    *root = merge(left, without_first(right)); /* which is the node */
}

range_node *range_tree_find_between(range_node *root, uint64_t first, uint64_t last,
                                    bool (*takes)(range_node *node)) {
    if (root == NULL || root->reaches <= first) {
        return NULL;
    }
    range_node *found = range_tree_find_between(root->left, first, last, takes);
    if (found != NULL || root->begin > last) {
        return found; /* what is to the right begins later still */
    }
    return first < root->end && takes(root)
               ? root
               : range_tree_find_between(root->right, first, last, takes);
}

range_node *range_tree_find(range_node *root, uint64_t number, bool (*takes)(range_node *node)) {
    return range_tree_find_between(root, number, number, takes);
}
