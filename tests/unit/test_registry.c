/* SPDX-License-Identifier: MIT */
/** @file Buffers whose memory ends with them: given up by one thread while another finds them and hands them over. */
#include "memory/registry.h"

#include <stdatomic.h>

#include "core_fixture.h"
#include "memory/transport.h"
#include "message/connection.h"

static context *ctx;
static core_pair pair;
static connection *to;
static export_table *table;

static atomic_uint ended;
static atomic_uint ended_too_soon; /* a peer had them open */

static void note_end(buffer *self) {
    atomic_fetch_add(&ended, 1u);
    atomic_fetch_add(&ended_too_soon, export_is_outstanding(&self->exports) ? 1u : 0u);
}

static const transport without_memory = {
    .name = "without memory", .ends_with_owner = true, .release = note_end};

static void begin(void) {
    core_start();
    check_ok(context_acquire(core_context, &ctx));
    core_pair_open(&pair, core_context, core_context);
    check_ok(connection_acquire(pair.client, &to));
    check_ok(export_table_new(ctx, to->other_end, &table));
}

static void finish(void) {
    export_table_leave(table, false, false);
    connection_unreference(to);
    core_pair_close(&pair);
    context_unreference(ctx);
    core_finish();
}

TestSuite(registry, .init = begin, .fini = finish, .timeout = 120);

static buffer *make(void) {
    buffer *made;
    check_ok(buffer_new(ctx, GPUIPC_BUFFER_CREATED, &without_memory, &made));
    registry_add(made);
    return made;
}

static void give_back(const point *at) {
    const point_word released = point_released_word(at);
    point_store(&released);
}

static void hand_over(buffer *of, point *out_at) {
    export_record *one;
    check_ok(export_begin(table, &of->exports, &one, out_at));
}

Test(registry, what_others_have_open_lingers_until_it_is_returned) {
    buffer *self = make();
    point at;
    hand_over(self, &at);
    buffer_unreference(self);
    (void)registry_sweep();
    cr_assert_eq(atomic_load(&ended), 0);
    give_back(&at);
    cr_assert(registry_sweep());
    cr_assert_eq(atomic_load(&ended), 1);
    cr_assert_eq(atomic_load(&ended_too_soon), 0);
}

/* It has no reference left, and its thread has not asked yet. */
Test(registry, what_is_found_before_its_last_owner_asks_is_his_who_found_it) {
    buffer *self = make();
    point at;
    atomic_fetch_sub(&self->object.references, 1u);
    buffer *found = registry_find(self->exporter_id, self->buffer_id);
    cr_assert_eq(found, self);
    hand_over(found, &at);
    buffer_unreference(found);
    cr_assert_eq(atomic_load(&ended), 0, "its first owner has still to ask");
    self->object.destroy(&self->object);
    cr_assert_eq(atomic_load(&ended), 0, "a peer has it open");
    give_back(&at);
    cr_assert(registry_sweep());
    cr_assert_eq(atomic_load(&ended), 1);
    cr_assert_eq(atomic_load(&ended_too_soon), 0);
}

/* ---- at once ------------------------------------------------------------------------------------ */

/* Which buffer the one thread is about to give up; 0: that was all. */
static _Atomic(uint64_t) given_up;

/* Hands over whatever is being given up, and has it back when the next one is. */
static void hand_over_what_goes(void *argument) {
    uint64_t last = 0;
    point at = {0};
    uint64_t id;
    (void)argument;
    while ((id = atomic_load(&given_up)) != 0) {
        if (at.page != NULL && id != last) {
            give_back(&at);
            at.page = NULL;
        }
        buffer *found = at.page == NULL ? registry_find(ctx->instance_id, id) : NULL;
        if (found != NULL) {
            hand_over(found, &at);
            last = id;
            buffer_unreference(found);
        }
    }
    if (at.page != NULL) {
        give_back(&at);
    }
}

/* Whether it must linger is asked under the lock under which it is found: else it ends on an answer from before. */
Test(registry, nothing_ends_while_a_peer_has_it_open) {
    enum {
        MANY = 400000
    };
    os_thread *other;
    atomic_store(&given_up, UINT64_MAX); /* none is called so */
    check_ok(os_thread_start(hand_over_what_goes, NULL, &other));
    for (unsigned i = 0; i < MANY; i++) {
        buffer *self = make();
        atomic_store(&given_up, self->buffer_id);
        buffer_unreference(self);
        (void)registry_sweep();
    }
    atomic_store(&given_up, 0);
    os_thread_join(other);
    (void)registry_sweep();
    cr_assert_eq(atomic_load(&ended_too_soon), 0, "%u of %u", atomic_load(&ended_too_soon), MANY);
    cr_assert_eq(atomic_load(&ended), MANY);
}
