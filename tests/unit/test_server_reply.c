/* SPDX-License-Identifier: MIT */
/** @file Replies of many packets: a slow client costs its user time, and the others get theirs. */
#include "asker.h"

#include <stdlib.h>
#include <string.h>

#include "memory/buffer.h"
#include "message/wire.h"
#include "ticket/server_link.h"

static gpuipc_server *server;
static gpuipc_context *other;
static gpuipc_buffer *shared;
static gpuipc_ticket small; /* has a reply of one packet */
static asker honest;
static asker slow;

static void begin(void) {
    core_start();
    other = core_context_new();
    shared = core_buffer(core_unit, 0);
    check_ok(gpuipc_server_create(core_context, NULL, &server));
    small = asker_share(server, shared);
}

static void finish(void) {
    asker_end(&honest);
    asker_end(&slow);
    (void)gpuipc_server_destroy(server);
    (void)gpuipc_buffer_release(shared);
    (void)gpuipc_context_destroy(other);
    core_finish();
}

TestSuite(server_reply, .init = begin, .fini = finish, .timeout = 60);

#define MIB ((size_t)1 << 20)

static char *share_with(size_t attachment_bytes, gpuipc_ticket *out_ticket) {
    char *attachment = malloc(attachment_bytes);
    cr_assert_not_null(attachment);
    memset(attachment, 7, attachment_bytes);
    const gpuipc_share_config config = {.struct_size = sizeof(config),
                                        .attachment = attachment,
                                        .attachment_bytes = attachment_bytes};
    check_ok(gpuipc_buffer_share(server, shared, &config, out_ticket));
    return attachment;
}

/* As another process does, although the server is here. */
static gpuipc_status open_over_link(gpuipc_context *in, const gpuipc_ticket *wanted, int timeout_ms,
                                    gpuipc_buffer **out_buffer) {
    const gpuipc_open_config config = {.struct_size = sizeof(config)};
    const ticket decoded = asker_decode(wanted);
    context *ctx;
    buffer *found;
    check_ok(context_acquire(in, &ctx));
    gpuipc_status status =
        server_link_open(ctx, wanted, &decoded, &config, os_deadline_after(timeout_ms), &found);
    if (status == GPUIPC_OK) {
        status = buffer_publish_held(found, out_buffer);
    }
    context_unreference(ctx);
    return status;
}

static size_t attachment_bytes_of(gpuipc_buffer *opened) {
    return core_info(opened).attachment_bytes;
}

/* A client that stops reading within a long reply is dropped, and its time is missing for the next long replies. */
Test(server_reply, a_long_reply_is_sent_when_its_user_has_time_again) {
    gpuipc_ticket large;
    gpuipc_buffer *opened;
    char *attachment = share_with(10 * MIB, &large);
    asker_begin(&honest, other, &small);
    asker_begin(&slow, other, &large);
    while (asker_send(&slow, &large) == GPUIPC_OK) { /* until the server has had enough */
        os_sleep_ms(5);
    }
    const asker_reply refused = asker_ask(&honest, &large);
    cr_assert_eq(refused.answer, WIRE_BUSY);
    cr_assert_eq(refused.flags, WIRE_BUSY_LATER);
    cr_assert_gt(refused.limit, 0);
    cr_assert_eq(asker_answer(&honest, &small), WIRE_GRANTED);
    check_ok(open_over_link(other, &large, SOON_MS, &opened));
    cr_assert_eq(attachment_bytes_of(opened), 10 * MIB);
    check_ok(gpuipc_buffer_release(opened));
    free(attachment);
}

#define CROWD       32
#define CROWD_BYTES (4 * MIB)

typedef struct crowd_member {
    core_waiter waiter;
    gpuipc_context *context;
    const gpuipc_ticket *wanted;
} crowd_member;

static gpuipc_status open_and_release(void *argument) {
    const crowd_member *self = argument;
    gpuipc_buffer *opened;
    gpuipc_status status = open_over_link(self->context, self->wanted, SOON_MS, &opened);
    if (status == GPUIPC_OK) {
        status = attachment_bytes_of(opened) == CROWD_BYTES ? gpuipc_buffer_release(opened)
                                                            : GPUIPC_ERR_SIZE_MISMATCH;
    }
    return status;
}

/* Together they may take longer than the server waits for one user within a second. */
Test(server_reply, many_open_a_share_with_a_long_attachment_at_once) {
    static crowd_member crowd[CROWD];
    gpuipc_ticket large;
    char *attachment = share_with(CROWD_BYTES, &large);
    for (size_t i = 0; i < CROWD; i++) {
        crowd[i].context = core_context_new();
        crowd[i].wanted = &large;
    }
    for (size_t i = 0; i < CROWD; i++) {
        core_waiter_begin(&crowd[i].waiter, open_and_release, &crowd[i]);
    }
    unsigned failed = 0;
    gpuipc_status last = GPUIPC_OK;
    for (size_t i = 0; i < CROWD; i++) {
        const gpuipc_status status = core_waiter_end(&crowd[i].waiter);
        failed += status != GPUIPC_OK;
        last = status != GPUIPC_OK ? status : last;
        check_ok(gpuipc_context_destroy(crowd[i].context));
    }
    cr_assert_eq(failed, 0, "%u failed, with %s", failed, gpuipc_status_name(last));
    free(attachment);
}
