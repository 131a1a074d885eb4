/* SPDX-License-Identifier: MIT */
/** @file Ranges found by a number in them, compared with a look at all of them. */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/range_tree.h"

TestSuite(range_tree, .timeout = 60);

enum {
    NODES = 300,
    NUMBERS = 4000
};

static range_node nodes[NODES];
static bool is_in[NODES];
static range_node *root;

static bool has(const range_node *node, uint64_t number) {
    return node->begin <= number && number < node->end;
}

static bool takes_any(range_node *node) {
    return node != NULL;
}

static const range_node *only;

static bool takes_one(range_node *node) {
    return node == only;
}

static void check_number(uint64_t number) {
    size_t that_have = 0;
    for (size_t i = 0; i < NODES; i++) {
        that_have += is_in[i] && has(&nodes[i], number);
    }
    const range_node *found = range_tree_find(root, number, takes_any);
    cr_assert_eq(found != NULL, that_have > 0, "%llu", (unsigned long long)number);
    cr_assert(found == NULL || (has(found, number) && is_in[found - nodes]));
    for (size_t i = 0; i < NODES; i++) {
        only = &nodes[i];
        const bool can = is_in[i] && has(only, number);
        cr_assert_eq(range_tree_find(root, number, takes_one), can ? only : NULL, "%zu", i);
    }
}

static void check_between(uint64_t first, uint64_t last) {
    size_t that_have = 0;
    for (size_t i = 0; i < NODES; i++) {
        that_have += is_in[i] && nodes[i].begin <= last && first < nodes[i].end;
    }
    const range_node *found = range_tree_find_between(root, first, last, takes_any);
    cr_assert_eq(found != NULL, that_have > 0, "%llu", (unsigned long long)first);
    cr_assert(found == NULL ||
              (is_in[found - nodes] && found->begin <= last && first < found->end));
}

static void check_all(void) {
    for (uint64_t number = 0; number < NUMBERS; number += 7) {
        check_number(number);
        check_between(number, number + number % 50);
    }
}

Test(range_tree, an_empty_one_has_nothing) {
    cr_assert_null(range_tree_find(NULL, 0, takes_any));
}

Test(range_tree, ranges_that_overlap_come_and_go) {
    unsigned state = 1;
    for (unsigned step = 0; step < 4 * NODES; step++) {
        state = state * 1103515245u + 12345u;
        const size_t at = (state >> 8) % NODES;
        if (is_in[at]) {
            range_tree_remove(&root, &nodes[at]);
        } else {
            nodes[at].begin = (state >> 4) % (NUMBERS - 200);
            nodes[at].end = nodes[at].begin + 1 + (state >> 12) % 200;
            range_tree_add(&root, &nodes[at], 0x9E3779B97F4A7C15u);
        }
        is_in[at] = !is_in[at];
        if (step % 40 == 0) {
            check_all();
        }
    }
    for (size_t i = 0; i < NODES; i++) {
        if (is_in[i]) {
            range_tree_remove(&root, &nodes[i]);
            is_in[i] = false;
        }
    }
    cr_assert_null(root);
}

Test(range_tree, the_same_range_many_times) {
    for (size_t i = 0; i < NODES; i++) {
        nodes[i].begin = 100;
        nodes[i].end = 200;
        is_in[i] = true;
        range_tree_add(&root, &nodes[i], 7);
    }
    for (size_t i = 0; i < NODES; i++) {
        check_number(99);
        check_number(100);
        check_number(199);
        check_number(200);
        range_tree_remove(&root, &nodes[i]);
        is_in[i] = false;
    }
    cr_assert_null(root);
}

static unsigned depth(const range_node *of) {
    if (of == NULL) {
        return 0;
    }
    const unsigned left = depth(of->left);
    const unsigned right = depth(of->right);
    return 1 + (left > right ? left : right);
}

/* In the order in which memory is mostly handed out: ascending. */
Test(range_tree, it_does_not_grow_one_sided) {
    enum {
        MANY = 20000
    };
    range_node *many = calloc(MANY, sizeof(*many));
    cr_assert_not_null(many);
    for (size_t i = 0; i < MANY; i++) {
        many[i].begin = i;
        many[i].end = i + 1;
        range_tree_add(&root, &many[i], 12345);
    }
    cr_assert_lt(depth(root), 60, "%u", depth(root));
    free(many);
}
