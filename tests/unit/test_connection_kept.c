/* SPDX-License-Identifier: MIT */
/** @file Handles that a receiver keeps or does not, and messages that are taken whole or not at all. */
#include "core_fixture.h"

#include "resource_list.h"

TestSuite(connection_kept, .init = core_start, .fini = core_finish, .timeout = 60);

static core_pair pair;

static size_t open_handles(void) {
    resource_list list = {0};
    cr_assert(resource_list_handles(&list));
    const size_t count = list.count;
    resource_list_free(&list);
    return count;
}

static gpuipc_status receive_with(uint32_t flags, gpuipc_buffer **buffers, size_t capacity) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = buffers,
                               .buffer_capacity = capacity,
                               .flags = flags};
    return gpuipc_connection_receive(pair.server, &message, SOON_MS);
}

/* The one that cannot be sent belongs to the second packet: the first must not have left. */
Test(connection_kept, a_buffer_that_cannot_be_sent_stops_the_message_before_it_begins) {
    enum {
        COUNT = 300,
        BAD = 280
    };
    gpuipc_buffer *buffers[COUNT];
    gpuipc_buffer *opened;
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    core_pair_open(&pair, core_context, core_context);
    check_ok(core_send(pair.client, &buffer, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    for (size_t i = 0; i < COUNT; i++) {
        buffers[i] = i == BAD ? opened : buffer;
    }
    check_refused(GPUIPC_ERR_NOT_SHAREABLE, "GPUIPC_RECEIVE_KEEP_HANDLES",
                  core_send(pair.client, buffers, COUNT));
    buffers[BAD] = buffer;
    check_ok(core_send(pair.client, buffers, COUNT));
    check_ok(core_receive(pair.server, buffers, COUNT));
    for (size_t i = 0; i < COUNT; i++) {
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

/* A message that waits for room is taken by a call with other flags: kept only when both ask for it. */
Test(connection_kept, handles_are_kept_when_every_call_for_a_message_asks_for_it) {
    const uint32_t keep = GPUIPC_RECEIVE_KEEP_HANDLES;
    const struct {
        uint32_t first;
        uint32_t second;
        size_t kept;
    } rows[] = {{0, 0, 0}, {0, keep, 0}, {keep, 0, 0}, {keep, keep, 3}};
    gpuipc_buffer *buffer = core_buffer(core_unit * 3, core_unit);
    size_t none = 0;
    core_pair_open(&pair, core_context, core_context);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gpuipc_buffer *opened;
        check_ok(core_send(pair.client, &buffer, 1));
        check_status(GPUIPC_ERR_TOO_SMALL, receive_with(rows[i].first, NULL, 0));
        check_ok(receive_with(rows[i].second, &opened, 1));
        const size_t handles = open_handles();
        none = i == 0 ? handles : none;
        if (core_is_emulated) { /* a real driver opens descriptors of its own */
            cr_assert_eq(handles, none + rows[i].kept, "row %zu: %zu handles, %zu without any", i,
                         handles, none);
        }
        check_status(rows[i].kept > 0 ? GPUIPC_OK : GPUIPC_ERR_NOT_SHAREABLE,
                     core_send(pair.server, &opened, 1));
        check_ok(gpuipc_buffer_release(opened));
    }
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

Test(connection_kept, the_callers_array_is_written_when_all_buffers_are_open) {
    static const char *const failures[] = {"cuMemMap:2=2", "cuMemAddressReserve:2=2",
                                           "cuMemSetAccess:2=2"};
    gpuipc_buffer *const mark = (gpuipc_buffer *)(uintptr_t)0x4711;
    core_need_emulated();
    gpuipc_buffer *buffers[2] = {core_buffer(core_unit, 0), core_buffer(core_unit, 0)};
    core_pair_open(&pair, core_context, core_context);
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        gpuipc_buffer *opened[3] = {mark, mark, mark};
        check_ok(core_send(pair.client, buffers, 2));
        core_set_failures(failures[i]);
        check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, receive_with(0, opened, 3));
        core_set_failures("");
        for (size_t j = 0; j < 3; j++) {
            cr_assert_eq(opened[j], mark, "%s: buffer %zu was written", failures[i], j);
        }
    }
    check_ok(gpuipc_buffer_release(buffers[0]));
    check_ok(gpuipc_buffer_release(buffers[1]));
    core_pair_close(&pair);
}
