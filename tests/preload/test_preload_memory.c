/* SPDX-License-Identifier: MIT */
/** @file What the hook finds by its address and by its ticket, while one thread frees what another shares. */
#include <criterion/criterion.h>

#include "../../src/preload/memory.h"
#include "../../src/preload/sharing.h"

/* What memory.c calls of the files that need a driver. None of it is called here. */
void sharing_end(memory *self) {
    self->buffer = NULL;
}

CUresult chunk_destroy(chunk *self) {
    (void)self;
    return CUDA_ERROR_UNKNOWN;
}

static owner maker;
static memory self;

static void begin(void) {
    self = (memory){.at = {.begin = 4096, .end = 8192}, .owner = &maker, .ticket = {{1, 2, 3}}};
    memory_lock();
    memory_enter(&self);
    memory_unlock();
}

TestSuite(memory, .init = begin, .timeout = 20);

/* How often it is found: at most once. */
static unsigned found(void) {
    unsigned count = 0;
    memory_lock();
    for (const memory *at = memory_find_ticket(&self.ticket, NULL); at != NULL && count < 3;
         at = memory_find_ticket(&self.ticket, at)) {
        count++;
    }
    memory_unlock();
    return count;
}

/* As cuIpcGetMemHandle() does when the ticket is made. */
static void share(void) {
    memory_lock();
    self.has_ticket = true;
    memory_enter_ticket(&self);
    memory_unlock();
}

/* As a free that fails does. */
static void put_back(void) {
    memory_lock();
    memory_enter(&self);
    memory_enter_ticket(&self);
    memory_unlock();
}

static void take_out(void) {
    memory_lock();
    memory_take_out(&self);
    memory_unlock();
}

Test(memory, what_has_no_ticket_is_not_found_by_one) {
    take_out();
    put_back();
    cr_assert_eq(found(), 0);
}

Test(memory, what_is_put_back_is_found_once) {
    share();
    cr_assert_eq(found(), 1);
    take_out();
    cr_assert_eq(found(), 0);
    put_back();
    cr_assert_eq(found(), 1);
}

/* The two threads, in each order. */
Test(memory, what_is_shared_while_it_is_taken_out_is_found_once) {
    take_out();
    share();
    cr_assert_eq(found(), 0, "nobody may open what is being freed");
    put_back();
    cr_assert_eq(found(), 1);
}

Test(memory, what_is_shared_after_it_was_put_back_is_found_once) {
    take_out();
    put_back();
    share();
    share();
    cr_assert_eq(found(), 1);
    take_out();
    cr_assert_eq(found(), 0);
}

Test(memory, a_ticket_that_is_forgotten_does_not_come_back) {
    share();
    memory_lock();
    memory_forget_ticket(&self);
    memory_unlock();
    take_out();
    put_back();
    cr_assert_eq(found(), 0);
}
