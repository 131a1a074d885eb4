/* SPDX-License-Identifier: MIT */
/** @file See channel_case.h. */
#include "channel_case.h"

gpuipc_server *channel_case_server;
gpuipc_channel *channel_case_channel;
gpuipc_ticket channel_case_ticket;

void channel_start(void) {
    core_start();
    core_need_emulated();
    check_ok(gpuipc_server_create(core_context, NULL, &channel_case_server));
}

void channel_finish(void) {
    if (channel_case_server != NULL) {
        check_ok(gpuipc_channel_destroy(channel_case_channel));
        check_ok(gpuipc_server_destroy(channel_case_server));
    }
    core_finish();
}

void channel_case_make(const gpuipc_channel_config *config) {
    gpuipc_channel_config whole = *config;
    gpuipc_buffer *slots = core_buffer(core_unit, 0);
    whole.struct_size = sizeof(whole);
    whole.buffer = slots;
    whole.slot_bytes = CHANNEL_CASE_SLOT;
    check_ok(gpuipc_channel_create(channel_case_server, &whole, &channel_case_channel,
                                   &channel_case_ticket));
    check_ok(gpuipc_buffer_release(slots)); /* the channel keeps them */
}

gpuipc_subscription *channel_case_open(const gpuipc_subscription_config *config) {
    gpuipc_subscription_config whole = {0};
    gpuipc_subscription *opened = NULL;
    if (config != NULL) {
        whole = *config;
    }
    whole.struct_size = sizeof(whole);
    check_ok(gpuipc_subscription_open(core_context, &channel_case_ticket, &whole, &opened));
    return opened;
}

gpuipc_frame channel_case_loan(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, SOON_MS, &frame));
    return frame;
}

void channel_case_send(void) {
    gpuipc_frame frame = channel_case_loan();
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
}

gpuipc_frame channel_case_take(gpuipc_subscription *reader) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, SOON_MS, &frame));
    return frame;
}

uint64_t channel_case_receive(gpuipc_subscription *reader) {
    const gpuipc_frame frame = channel_case_take(reader);
    check_ok(gpuipc_subscription_give_back(reader, &frame, GPUIPC_NO_STREAM));
    return frame.sequence;
}

void channel_case_check_nothing(gpuipc_subscription *reader) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &frame));
}

gpuipc_reader_info channel_case_reader(void) {
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    size_t count = 0;
    check_ok(
        gpuipc_channel_readers(channel_case_channel, infos, GPUIPC_CHANNEL_READERS_MAX, &count));
    cr_assert_gt(count, 0);
    return infos[0];
}
