/* SPDX-License-Identifier: MIT */
/** @file Entries of @errors that no other test brings about, those of structs and handles first. ci/check-errors counts what
 *  the tests have seen. */
#include <string.h>

#include "channel_case.h"
#include "ticket_check.h"

TestSuite(errors, .init = channel_start, .fini = channel_finish, .timeout = 60);

/* ---- structs ----------------------------------------------------------------------------------- */

Test(errors, a_frame_without_a_size_is_refused_and_stays_where_it_is) {
    gpuipc_frame bare = {0};
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    gpuipc_subscription *reader = channel_case_open(NULL);
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, 0, &bare));
    gpuipc_frame loaned = channel_case_loan();
    bare = loaned;
    bare.struct_size = 0;
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_channel_publish(channel_case_channel, &bare, GPUIPC_NO_STREAM));
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_channel_discard(channel_case_channel, &bare));
    check_ok(gpuipc_channel_publish(channel_case_channel, &loaned, GPUIPC_NO_STREAM));
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &bare));
    gpuipc_frame taken = channel_case_take(reader);
    bare = taken;
    bare.struct_size = 0;
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_subscription_give_back(reader, &bare, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_give_back(reader, &taken, GPUIPC_NO_STREAM));
    check_ok(gpuipc_subscription_close(reader));
}

Test(errors, a_config_without_a_size_is_refused) {
    const gpuipc_channel_config channel = {0};
    const gpuipc_subscription_config subscription = {0};
    const gpuipc_share_config share = {0};
    gpuipc_channel *made = NULL;
    gpuipc_subscription *opened = NULL;
    gpuipc_ticket of = {{0}};
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_channel_create(channel_case_server, &channel, &made, &of));
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_buffer_share(channel_case_server, buffer, &share, &of));
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_subscription_open(core_context, &of, &subscription, &opened));
    check_status(GPUIPC_ERR_STRUCT_SIZE,
                 gpuipc_subscription_open_named(core_context, "name", &subscription, &opened));
    cr_assert(made == NULL && opened == NULL);
    check_ok(gpuipc_buffer_release(buffer));
}

/* ---- objects that have ended ------------------------------------------------------------------- */

Test(errors, what_was_ended_is_not_ended_again) {
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    gpuipc_subscription *reader = channel_case_open(NULL);
    gpuipc_channel *const ended = channel_case_channel;
    check_ok(gpuipc_subscription_close(reader));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_subscription_close(reader));
    check_ok(gpuipc_channel_destroy(ended));
    channel_case_channel = NULL;
    check_status(GPUIPC_ERR_RELEASED, gpuipc_channel_destroy(ended));
}

/* ---- tickets ----------------------------------------------------------------------------------- */

static void check_unreadable(gpuipc_status expected, const gpuipc_ticket *of) {
    gpuipc_buffer *opened = NULL;
    gpuipc_subscription *reader = NULL;
    size_t count = 0;
    check_status(expected, gpuipc_server_holders(channel_case_server, of, NULL, 0, &count));
    check_status(expected, gpuipc_server_revoke(channel_case_server, of));
    check_status(expected, gpuipc_buffer_open(core_context, of, NULL, &opened));
    check_status(expected, gpuipc_subscription_open(core_context, of, NULL, &reader));
    cr_assert(opened == NULL && reader == NULL);
}

Test(errors, tickets_that_cannot_be_read) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_ticket made;
    check_ok(gpuipc_buffer_share(channel_case_server, buffer, NULL, &made));
    made.bytes[0]++; /* the version, and the check is that of the other bytes */
    check_unreadable(GPUIPC_ERR_TICKET_DAMAGED, &made);
    made = ticket_with_check(made);
    check_unreadable(GPUIPC_ERR_TICKET_VERSION, &made);
    check_ok(gpuipc_buffer_release(buffer));
}

/* ---- memory ------------------------------------------------------------------------------------ */

static gpuipc_buffer *opened_to_read(gpuipc_buffer *own) {
    const gpuipc_outgoing out = {.struct_size = sizeof(out),
                                 .buffers = &own,
                                 .buffer_count = 1,
                                 .access = GPUIPC_ACCESS_READ};
    gpuipc_buffer *opened = NULL;
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    check_ok(gpuipc_connection_send(pair.client, &out, SOON_MS));
    check_ok(core_receive(pair.server, &opened, 1));
    core_pair_close(&pair);
    return opened;
}

Test(errors, what_may_only_be_read) {
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = opened_to_read(own);
    check_refused(GPUIPC_ERR_ACCESS_DENIED, "may only be read",
                  gpuipc_buffer_copy_async(opened, 0, own, 0, 8, NULL));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(own));
}

/* Its handles were not kept, so nobody else can open the slots. */
Test(errors, a_channel_in_memory_of_another_process) {
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = opened_to_read(own);
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = opened,
                                          .slots = 1,
                                          .slot_bytes = CHANNEL_CASE_SLOT};
    gpuipc_channel *made = NULL;
    gpuipc_ticket of;
    check_status(GPUIPC_ERR_NOT_SHAREABLE,
                 gpuipc_channel_create(channel_case_server, &config, &made, &of));
    cr_assert_null(made);
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(own));
}

Test(errors, contents_beyond_the_buffer) {
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    const gpuipc_contents beyond = {
        .struct_size = sizeof(beyond), .buffer = own, .offset = core_unit - 8, .bytes = 16};
    core_pair pair;
    core_pair_open(&pair, core_context, core_context);
    check_status(GPUIPC_ERR_OUT_OF_RANGE,
                 gpuipc_connection_receive_contents(pair.server, &beyond, 0));
    check_status(GPUIPC_ERR_OUT_OF_RANGE, gpuipc_connection_send_contents(pair.client, &beyond, 0));
    core_pair_close(&pair);
    check_ok(gpuipc_buffer_release(own));
}

/* ---- readers ----------------------------------------------------------------------------------- */

Test(errors, more_readers_than_there_is_room_for) {
    gpuipc_reader_info info;
    size_t count = 0;
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    gpuipc_subscription *first = channel_case_open(NULL);
    gpuipc_subscription *second = channel_case_open(NULL);
    check_status(GPUIPC_ERR_TOO_SMALL,
                 gpuipc_channel_readers(channel_case_channel, &info, 1, &count));
    cr_assert_eq(count, 2);
    check_ok(gpuipc_subscription_close(first));
    check_ok(gpuipc_subscription_close(second));
}

Test(errors, a_reader_that_was_dropped_is_told_when_it_asks) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    channel_case_make(
        &(gpuipc_channel_config){.slots = 1, .full = GPUIPC_FULL_DROP, .drop_after_ms = 1});
    gpuipc_subscription *reader = channel_case_open(NULL);
    check_ok(gpuipc_subscription_check(reader));
    channel_case_send();
    check_ok(gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, SOON_MS, &frame));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, gpuipc_subscription_check(reader));
    check_ok(gpuipc_subscription_close(reader));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_subscription_check(reader));
}

static gpuipc_status take_long(void *argument) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    return gpuipc_subscription_take(argument, GPUIPC_NO_STREAM, -1, &frame);
}

Test(errors, one_takes_at_a_time) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    core_waiter taker;
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    gpuipc_subscription *reader = channel_case_open(NULL);
    core_waiter_start(&taker, take_long, reader);
    check_status(GPUIPC_ERR_BUSY, gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &frame));
    check_ok(gpuipc_subscription_close(reader));
    check_status(GPUIPC_ERR_RELEASED, core_waiter_end(&taker));
}

static int refuse_all(void *unused, const gpuipc_peer_info *peer) {
    (void)unused;
    (void)peer;
    return 0;
}

Test(errors, a_channels_name_of_whom_the_policy_refuses) {
    const gpuipc_subscription_config config = {.struct_size = sizeof(config), .policy = refuse_all};
    gpuipc_subscription *opened = NULL;
    gpuipc_listener *another; /* of a channel of this very process no policy is asked */
    check_ok(gpuipc_listener_open(core_context, "channel-refused", NULL, &another));
    check_status(GPUIPC_ERR_ACCESS_DENIED,
                 gpuipc_subscription_open_named(core_context, "refused", &config, &opened));
    cr_assert_null(opened);
    check_ok(gpuipc_listener_close(another));
}

/* ---- contexts ---------------------------------------------------------------------------------- */

TestSuite(errors_early, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

Test(errors_early, a_runtime_directory_with_too_long_a_path) {
    char path[5000];
    gpuipc_context_config config = core_context_config();
    gpuipc_context *made = NULL;
    memset(path, 'd', sizeof(path));
    memcpy(path, config.runtime_directory, strlen(config.runtime_directory));
    path[strlen(config.runtime_directory)] = '/';
    path[sizeof(path) - 1] = '\0';
    config.runtime_directory = path;
    check_status(GPUIPC_ERR_NAME_TOO_LONG, gpuipc_context_create(&config, &made));
    cr_assert_null(made);
}

Test(errors_early, memory_of_a_gpu_that_the_device_cannot_reach) {
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=2;p2p=none");
    gpuipc_context *context = core_context_new();
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 1};
    gpuipc_buffer *own = NULL;
    gpuipc_buffer *opened = NULL;
    gpuipc_native_segment segment;
    gpuipc_native_layout layout = GPUIPC_NATIVE_LAYOUT_INIT;
    size_t count = 0;
    check_ok(gpuipc_buffer_create(context, &config, &own));
    check_ok(gpuipc_native_export(own, &segment, 1, &layout, &count));
    check_status(GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
                 gpuipc_native_import(context, &segment, 1, &layout, GPUIPC_DEVICE(1),
                                      GPUIPC_ACCESS_DEFAULT, &opened));
    cr_assert_null(opened);
    os_handle handle;
    check_ok(os_handle_adopt(segment.handle.value, &handle));
    os_handle_close(&handle);
    check_ok(gpuipc_buffer_release(own));
    check_ok(gpuipc_context_destroy(context));
}
