/* SPDX-License-Identifier: MIT */
/** @file Lists and hash tables through what is in them. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/hash.h"
#include "base/list.h"
#include "base/table.h"

TestSuite(list, .timeout = 30);
TestSuite(table, .timeout = 30);

typedef struct item {
    int number;
    list_link link;
    table_link slot;
    bool is_seen;
} item;

/* The numbers in a list as text, forwards; what links back is checked on the way. */
static const char *text_of(const linked_list *self) {
    static char text[64];
    size_t length = 0;
    size_t count = 0;
    const list_link *previous = NULL;
    for (const list_link *at = self->first; at != NULL; at = at->next) {
        cr_assert_eq(at->previous, previous);
        cr_assert(list_has(self, at));
        text[length++] = (char)('0' + LIST_ITEM(at, item, link)->number);
        previous = at;
        count++;
    }
    cr_assert_eq(self->last, previous);
    cr_assert_eq(self->count, count);
    text[length] = '\0';
    return text;
}

Test(list, keeps_its_order) {
    linked_list all = {0};
    item items[5] = {{.number = 0}, {.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
    cr_assert_str_eq(text_of(&all), "");
    list_append(&all, &items[1].link);
    list_append(&all, &items[2].link);
    list_prepend(&all, &items[0].link);
    list_append(&all, &items[4].link);
    list_insert(&all, &items[3].link, &items[4].link);
    cr_assert_str_eq(text_of(&all), "01234");
    cr_assert_eq(LIST_ITEM(list_turn(&all), item, link), &items[0]);
    cr_assert_str_eq(text_of(&all), "12340");
    list_remove(&items[3].link);
    list_remove(&items[1].link);
    list_remove(&items[0].link);
    cr_assert_str_eq(text_of(&all), "24");
    cr_assert_eq(LIST_ITEM(list_take(&all), item, link), &items[2]);
    cr_assert_str_eq(text_of(&all), "4");
    list_remove(&items[4].link);
    cr_assert_str_eq(text_of(&all), "");
    cr_assert_null(list_take(&all));
    cr_assert_null(list_turn(&all));
}

Test(list, what_is_in_none_or_in_another_stays_so) {
    linked_list one = {0};
    linked_list other = {0};
    item items[2] = {{.number = 0}, {.number = 1}};
    list_remove(&items[0].link);
    list_append(&one, &items[0].link);
    list_append(&other, &items[1].link);
    cr_assert_not(list_has(&one, &items[1].link));
    list_remove(&items[1].link);
    list_remove(&items[1].link);
    cr_assert_str_eq(text_of(&one), "0");
    cr_assert_str_eq(text_of(&other), "");
    cr_assert_null(LIST_ITEM(other.first, item, link));
}

#define MANY 5000

static item *find(const hash_table *self, int number, uint64_t hash) {
    table_link *at = table_find(self, hash);
    while (at != NULL && TABLE_ITEM(at, item, slot)->number != number) {
        at = table_find_next(at);
    }
    return TABLE_ITEM(at, item, slot);
}

static size_t count_all(const hash_table *self, item *items) {
    size_t count = 0;
    for (int i = 0; i < MANY; i++) {
        items[i].is_seen = false;
    }
    for (table_link *at = table_first(self); at != NULL; at = table_next(self, at)) {
        cr_assert_not(TABLE_ITEM(at, item, slot)->is_seen, "%d comes twice",
                      TABLE_ITEM(at, item, slot)->number);
        TABLE_ITEM(at, item, slot)->is_seen = true;
        count++;
    }
    return count;
}

Test(table, finds_what_is_in_it_and_nothing_else) {
    static item items[MANY];
    hash_table all = {0};
    cr_assert_null(table_find(&all, 7));
    cr_assert_null(table_first(&all));
    for (int i = 0; i < MANY; i++) {
        items[i].number = i;
        cr_assert_not(table_has(&items[i].slot));
        table_add(&all, &items[i].slot, hash_word(1, (uint64_t)i));
        cr_assert(table_has(&items[i].slot));
    }
    cr_assert_geq(all.slot_count, MANY / 2, "chains stay short");
    cr_assert_eq(count_all(&all, items), MANY);
    for (int i = 0; i < MANY; i += 2) {
        table_remove(&all, &items[i].slot);
        table_remove(&all, &items[i].slot); /* which is in none any more */
    }
    cr_assert_eq(all.count, MANY / 2);
    cr_assert_eq(count_all(&all, items), MANY / 2);
    for (int i = 0; i < MANY; i++) {
        item *found = find(&all, i, hash_word(1, (uint64_t)i));
        cr_assert_eq(found, i % 2 == 0 ? NULL : &items[i]);
    }
    table_clear(&all);
    cr_assert_eq(all.count, 0);
}

Test(table, the_latest_of_one_hash_comes_first) {
    static item items[MANY];
    hash_table all = {0};
    for (int i = 0; i < 200; i++) { /* it grows meanwhile */
        items[i].number = i;
        table_add(&all, &items[i].slot, (uint64_t)(i % 2));
    }
    int expected = 199;
    for (table_link *at = table_find(&all, 1); at != NULL; at = table_find_next(at)) {
        cr_assert_eq(TABLE_ITEM(at, item, slot)->number, expected);
        expected -= 2;
    }
    cr_assert_eq(expected, -1);
    cr_assert_null(table_find(&all, 2));
    table_clear(&all);
}
