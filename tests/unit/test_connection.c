/* SPDX-License-Identifier: MIT */
/** @file Messages between two ends in one process: what arrives, and what is refused. */
#include "core_fixture.h"

#include <stdlib.h>
#include <string.h>

TestSuite(connection, .init = core_start, .fini = core_finish, .timeout = 120);

static core_pair pair;

static void connect_pair(void) {
    core_pair_open(&pair, core_context, core_context);
}

static gpuipc_status send_bytes(gpuipc_connection *to, const void *bytes, size_t size) {
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .bytes = bytes, .bytes_size = size};
    return gpuipc_connection_send(to, &message, SOON_MS);
}

static gpuipc_incoming room_for(void *bytes, size_t capacity) {
    return (gpuipc_incoming){
        .struct_size = sizeof(gpuipc_incoming), .bytes = bytes, .bytes_capacity = capacity};
}

/* As many bytes as a message has at most, no two parts of it alike. */
static uint8_t *long_text(void) {
    uint8_t *text = malloc(GPUIPC_MESSAGE_BYTES_MAX);
    cr_assert_not_null(text);
    for (size_t i = 0; i < GPUIPC_MESSAGE_BYTES_MAX; i++) {
        text[i] = (uint8_t)(i * 7 + i / 256);
    }
    return text;
}

Test(connection, bytes_arrive_as_they_were_sent) {
    static const size_t sizes[] = {0, 1, 5, 4096, 65536};
    uint8_t *sent = long_text();
    uint8_t *came = malloc(GPUIPC_MESSAGE_BYTES_MAX);
    connect_pair();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        gpuipc_incoming message = room_for(came, GPUIPC_MESSAGE_BYTES_MAX);
        memset(came, 0, GPUIPC_MESSAGE_BYTES_MAX);
        check_ok(send_bytes(i % 2 == 0 ? pair.client : pair.server, sent, sizes[i]));
        check_ok(
            gpuipc_connection_receive(i % 2 == 0 ? pair.server : pair.client, &message, SOON_MS));
        cr_assert_eq(message.bytes_size, sizes[i]);
        cr_assert_eq(message.buffer_count, 0);
        cr_assert_eq(memcmp(came, sent, sizes[i]), 0);
    }
    free(sent);
    free(came);
    core_pair_close(&pair);
}

typedef struct long_message {
    const uint8_t *text;
    size_t size;
    gpuipc_buffer *buffer;
} long_message;

static gpuipc_status send_long(void *argument) {
    const long_message *self = argument;
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = self->text,
                                     .bytes_size = self->size,
                                     .buffers = &self->buffer,
                                     .buffer_count = 1};
    return gpuipc_connection_send(pair.client, &message, SOON_MS);
}

/* More than a packet, and more than the system keeps for a peer that does not read. */
Test(connection, bytes_of_many_packets_arrive_with_their_buffer) {
    static const size_t sizes[] = {OS_PACKET_BYTES_MAX - 1, OS_PACKET_BYTES_MAX,
                                   OS_PACKET_BYTES_MAX + 1, 300001, GPUIPC_MESSAGE_BYTES_MAX};
    uint8_t *came = malloc(GPUIPC_MESSAGE_BYTES_MAX);
    long_message sent = {.text = long_text(), .buffer = core_buffer(core_unit, 0)};
    connect_pair();
    core_write_pattern(sent.buffer, 62);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        gpuipc_incoming message = room_for(came, GPUIPC_MESSAGE_BYTES_MAX);
        gpuipc_buffer *opened = NULL;
        core_waiter sender;
        message.buffers = &opened;
        message.buffer_capacity = 1;
        sent.size = sizes[i];
        memset(came, 0, GPUIPC_MESSAGE_BYTES_MAX);
        core_waiter_begin(&sender, send_long, &sent);
        check_ok(gpuipc_connection_receive(pair.server, &message, SOON_MS));
        check_ok(core_waiter_end(&sender));
        cr_assert_eq(message.bytes_size, sizes[i]);
        cr_assert_eq(memcmp(came, sent.text, sizes[i]), 0);
        cr_assert_eq(message.buffer_count, 1);
        core_check_pattern(opened, 62);
        check_ok(gpuipc_buffer_release(opened));
    }
    check_ok(gpuipc_buffer_release(sent.buffer));
    free((void *)sent.text);
    free(came);
    core_pair_close(&pair);
}

Test(connection, many_messages_keep_their_order) {
    connect_pair();
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 10; i++) {
            check_ok(send_bytes(pair.client, &i, sizeof(i)));
        }
        for (uint32_t i = 0; i < 10; i++) {
            uint32_t came = 0;
            gpuipc_incoming message = room_for(&came, sizeof(came));
            check_ok(gpuipc_connection_receive(pair.server, &message, SOON_MS));
            cr_assert_eq(came, i);
        }
    }
    core_pair_close(&pair);
}

Test(connection, a_buffer_is_one_memory_on_both_sides) {
    gpuipc_buffer *buffer = core_buffer(core_unit * 2 + 100, core_unit);
    gpuipc_buffer *opened;
    connect_pair();
    core_write_pattern(buffer, 61);
    check_ok(core_send(pair.client, &buffer, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    const gpuipc_buffer_info sent = core_info(buffer);
    const gpuipc_buffer_info came = core_info(opened);
    cr_assert_neq(opened, buffer);
    cr_assert_neq(came.address, sent.address);
    cr_assert_eq(came.bytes, sent.bytes);
    cr_assert_eq(came.allocated_bytes, sent.allocated_bytes);
    cr_assert_eq(came.segment_count, 3);
    cr_assert_eq(came.device, sent.device);
    cr_assert_eq(came.origin, GPUIPC_BUFFER_OPENED);
    cr_assert_eq(came.access, GPUIPC_ACCESS_READ_WRITE);
    cr_assert_eq(came.buffer_id, sent.buffer_id); /* the two name the same memory */
    cr_assert_eq(memcmp(came.exporter_id, sent.exporter_id, 16), 0);
    core_check_pattern(opened, 61);
    core_write_pattern(opened, 62);
    core_check_pattern(buffer, 62);
    core_pair_close(&pair); /* what came through it stays */
    core_check_pattern(opened, 62);
    check_ok(gpuipc_buffer_release(buffer));
    core_check_pattern(opened, 62);
    check_ok(gpuipc_buffer_release(opened));
}

Test(connection, bytes_and_buffers_travel_together) {
    gpuipc_buffer *buffers[3];
    gpuipc_buffer *opened[5] = {NULL};
    static const char text[] = "three of them";
    char came[64] = "";
    connect_pair();
    for (uint32_t i = 0; i < 3; i++) {
        buffers[i] = core_buffer(core_unit * (i + 1), i == 1 ? core_unit : 0);
        core_write_pattern(buffers[i], i);
    }
    const gpuipc_outgoing out = {.struct_size = sizeof(out),
                                 .bytes = text,
                                 .bytes_size = sizeof(text),
                                 .buffers = buffers,
                                 .buffer_count = 3};
    check_ok(gpuipc_connection_send(pair.server, &out, SOON_MS));
    gpuipc_incoming in = room_for(came, sizeof(came));
    in.buffers = opened;
    in.buffer_capacity = 5;
    check_ok(gpuipc_connection_receive(pair.client, &in, SOON_MS));
    cr_assert_eq(in.buffer_count, 3);
    cr_assert_str_eq(came, text);
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(core_info(opened[i]).segment_count, i == 1 ? 2 : 1);
        core_check_pattern(opened[i], i);
        check_ok(gpuipc_buffer_release(opened[i]));
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    cr_assert_null(opened[3]);
    core_pair_close(&pair);
}

/* More handles than one packet has room for. */
Test(connection, a_message_may_take_several_packets) {
    enum {
        SEGMENTS = OS_PACKET_HANDLES_MAX + 7
    };
    static gpuipc_buffer *buffers[SEGMENTS];
    gpuipc_buffer *opened;
    connect_pair();
    gpuipc_buffer *large = core_buffer(core_unit * SEGMENTS, core_unit);
    const uint32_t last = 4711;
    check_ok(gpuipc_buffer_write(large, core_unit * SEGMENTS - 4, &last, 4));
    check_ok(core_send(pair.client, &large, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    cr_assert_eq(core_info(opened).segment_count, SEGMENTS);
    uint32_t came = 0;
    check_ok(gpuipc_buffer_read(opened, core_unit * SEGMENTS - 4, &came, 4));
    cr_assert_eq(came, last);
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(large));

    /* as many buffers of one segment each: it is the same buffer, again and again */
    gpuipc_buffer *small = core_buffer(core_unit, 0);
    for (size_t i = 0; i < SEGMENTS; i++) {
        buffers[i] = small;
    }
    check_ok(core_send(pair.client, buffers, SEGMENTS));
    check_ok(core_receive(pair.server, buffers, SEGMENTS));
    core_write_pattern(small, 3);
    core_check_pattern(buffers[SEGMENTS - 1], 3);
    for (size_t i = 0; i < SEGMENTS; i++) {
        check_ok(gpuipc_buffer_release(buffers[i]));
    }
    check_ok(gpuipc_buffer_release(small));
    core_pair_close(&pair);
}

Test(connection, a_message_waits_while_there_is_too_little_room) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = NULL;
    char came[8] = "";
    connect_pair();
    const gpuipc_outgoing out = {.struct_size = sizeof(out),
                                 .bytes = "hello",
                                 .bytes_size = 6,
                                 .buffers = &buffer,
                                 .buffer_count = 1};
    check_ok(gpuipc_connection_send(pair.client, &out, SOON_MS));
    check_ok(send_bytes(pair.client, "next", 5));
    const struct {
        size_t bytes;
        size_t buffers;
    } rows[] = {{0, 0}, {6, 0}, {5, 1}};
    for (size_t i = 0; i < 3; i++) {
        gpuipc_incoming in = room_for(rows[i].bytes == 0 ? NULL : came, rows[i].bytes);
        in.buffers = rows[i].buffers == 0 ? NULL : &opened;
        in.buffer_capacity = rows[i].buffers;
        check_status(GPUIPC_ERR_TOO_SMALL, gpuipc_connection_receive(pair.server, &in, SOON_MS));
        cr_assert_eq(in.bytes_size, 6);
        cr_assert_eq(in.buffer_count, 1);
        cr_assert_eq(came[0], '\0');
        cr_assert_null(opened);
    }
    gpuipc_incoming in = room_for(came, 6);
    in.buffers = &opened;
    in.buffer_capacity = 1;
    check_ok(gpuipc_connection_receive(pair.server, &in, SOON_MS));
    cr_assert_str_eq(came, "hello");
    in = room_for(came, sizeof(came));
    check_ok(gpuipc_connection_receive(pair.server, &in, SOON_MS));
    cr_assert_str_eq(came, "next");
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

/* ---- who may do what --------------------------------------------------------------------- */

static gpuipc_buffer *pass_on(gpuipc_buffer *buffer, gpuipc_access offered, gpuipc_access wanted) {
    const gpuipc_outgoing out = {.struct_size = sizeof(out),
                                 .buffers = &buffer,
                                 .buffer_count = 1,
                                 .flags = GPUIPC_SEND_READY,
                                 .access = offered};
    gpuipc_buffer *opened = NULL;
    gpuipc_incoming in = room_for(NULL, 0);
    in.buffers = &opened;
    in.buffer_capacity = 1;
    in.flags = GPUIPC_RECEIVE_KEEP_HANDLES;
    in.access = wanted;
    check_ok(gpuipc_connection_send(pair.client, &out, SOON_MS));
    check_ok(gpuipc_connection_receive(pair.server, &in, SOON_MS));
    return opened;
}

Test(connection, the_receiver_gets_no_more_than_is_offered) {
    static const struct {
        gpuipc_access offered;
        gpuipc_access wanted;
        gpuipc_access given;
    } rows[] = {
        {GPUIPC_ACCESS_DEFAULT, GPUIPC_ACCESS_DEFAULT, GPUIPC_ACCESS_READ_WRITE},
        {GPUIPC_ACCESS_DEFAULT, GPUIPC_ACCESS_READ, GPUIPC_ACCESS_READ},
        {GPUIPC_ACCESS_READ, GPUIPC_ACCESS_DEFAULT, GPUIPC_ACCESS_READ},
        {GPUIPC_ACCESS_READ, GPUIPC_ACCESS_READ_WRITE, GPUIPC_ACCESS_READ},
        {GPUIPC_ACCESS_READ_WRITE, GPUIPC_ACCESS_READ_WRITE, GPUIPC_ACCESS_READ_WRITE},
    };
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    connect_pair();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gpuipc_buffer *opened = pass_on(buffer, rows[i].offered, rows[i].wanted);
        const bool writable = rows[i].given == GPUIPC_ACCESS_READ_WRITE;
        const uint32_t word = 1;
        cr_assert_eq(core_info(opened).access, rows[i].given, "row %zu", i);
        check_status(writable ? GPUIPC_OK : GPUIPC_ERR_ACCESS_DENIED,
                     gpuipc_buffer_write(opened, 0, &word, sizeof(word)));
        check_status(rows[i].offered == GPUIPC_ACCESS_READ ? GPUIPC_ERR_ACCESS_DENIED : GPUIPC_OK,
                     gpuipc_buffer_set_access(opened, 0, GPUIPC_ACCESS_READ_WRITE));
        check_ok(gpuipc_buffer_set_access(opened, 0, GPUIPC_ACCESS_DEFAULT));
        check_ok(gpuipc_buffer_release(opened));
    }
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

Test(connection, kept_handles_let_a_buffer_travel_on) {
    gpuipc_buffer *buffer = core_buffer(core_unit * 2, core_unit);
    connect_pair();
    core_write_pattern(buffer, 71);
    gpuipc_buffer *second = pass_on(buffer, GPUIPC_ACCESS_READ, GPUIPC_ACCESS_DEFAULT);
    gpuipc_buffer *third = pass_on(second, GPUIPC_ACCESS_READ_WRITE, GPUIPC_ACCESS_DEFAULT);
    const gpuipc_buffer_info first_info = core_info(buffer);
    const gpuipc_buffer_info info = core_info(third);
    cr_assert_eq(info.access, GPUIPC_ACCESS_READ); /* the limit travels with it */
    cr_assert_eq(info.buffer_id, first_info.buffer_id);
    check_ok(gpuipc_buffer_release(second));
    check_ok(gpuipc_buffer_release(buffer));
    core_check_pattern(third, 71);
    check_ok(gpuipc_buffer_release(third));
    core_pair_close(&pair);
}

Test(connection, a_buffer_received_without_its_handles_is_not_passed_on) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *opened;
    connect_pair();
    check_ok(core_send(pair.client, &buffer, 1));
    check_ok(core_receive(pair.server, &opened, 1));
    gpuipc_buffer *const both[] = {buffer, opened};
    check_refused(GPUIPC_ERR_NOT_SHAREABLE, "GPUIPC_RECEIVE_KEEP_HANDLES",
                  core_send(pair.client, both, 2));
    check_ok(core_send(pair.client, NULL, 0)); /* nothing had left, so the connection is good */
    check_ok(core_receive(pair.server, NULL, 0));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

Test(connection, the_receiver_chooses_its_device) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = NULL;
    connect_pair();
    core_write_pattern(buffer, 81);
    gpuipc_incoming in = room_for(NULL, 0);
    in.buffers = &opened;
    in.buffer_capacity = 1;
    in.device = 9; /* which used to be device 8 */
    check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "write GPUIPC_DEVICE(9)",
                  gpuipc_connection_receive(pair.server, &in, SOON_MS));
    in.device = GPUIPC_DEVICE(core_device_count);
    check_ok(core_send(pair.client, &buffer, 1));
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND, gpuipc_connection_receive(pair.server, &in, SOON_MS));
    cr_assert_null(opened); /* the message waits */
    int can = 1;
    const uint32_t last = core_device_count - 1;
    if (last > 0) {
        cr_assert_eq(core_driver()->cuDeviceCanAccessPeer(&can, (int)last, 0), CUDA_SUCCESS);
    }
    in.device = GPUIPC_DEVICE(last);
    check_status(can ? GPUIPC_OK : GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
                 gpuipc_connection_receive(pair.server, &in, SOON_MS));
    if (can) {
        cr_assert_eq(core_info(opened).access_device, last);
        cr_assert_eq(core_info(opened).device, 0);
        core_check_pattern(opened, 81);
        check_ok(gpuipc_buffer_release(opened));
    }
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

/* ---- the contents are there before the message ------------------------------------------- */

Test(connection, a_send_waits_for_the_work_that_makes_the_contents) {
    gpuipc_buffer *buffer = core_buffer(core_unit, 0);
    const driver *drv = core_driver();
    CUstream stream;
    connect_pair();
    core_enter_device(0);
    cr_assert_eq(drv->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (uint32_t i = 1; i < 20; i++) {
        gpuipc_stream with = i % 2 == 0 ? stream : NULL;
        const gpuipc_outgoing out = {
            .struct_size = sizeof(out), .buffers = &buffer, .buffer_count = 1, .stream = with};
        gpuipc_buffer *opened;
        uint32_t word = 0;
        check_ok(gpuipc_buffer_fill_async(buffer, 0, core_unit, i, 4, with));
        check_ok(gpuipc_connection_send(pair.client, &out, SOON_MS));
        cr_assert_eq(drv->cuStreamQuery(with), CUDA_SUCCESS, "the stream was not waited for");
        check_ok(core_receive(pair.server, &opened, 1));
        check_ok(gpuipc_buffer_read(opened, core_unit - 4, &word, sizeof(word)));
        cr_assert_eq(word, i);
        check_ok(gpuipc_buffer_release(opened));
    }
    cr_assert_eq(drv->cuStreamDestroy(stream), CUDA_SUCCESS);
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

static bool has_passed(int ordinal, gpuipc_stream stream) {
    const driver *drv = core_driver();
    CUcontext primary;
    cr_assert_eq(drv->cuDevicePrimaryCtxRetain(&primary, ordinal), CUDA_SUCCESS);
    cr_assert_eq(drv->cuCtxPushCurrent(primary), CUDA_SUCCESS);
    CUresult result = drv->cuStreamQuery(stream);
    cr_assert_eq(drv->cuCtxPopCurrent(&primary), CUDA_SUCCESS);
    cr_assert_eq(drv->cuDevicePrimaryCtxRelease(ordinal), CUDA_SUCCESS);
    return result == CUDA_SUCCESS;
}

static void check_waits(gpuipc_buffer *buffer, int ordinal, gpuipc_stream made_on,
                        gpuipc_stream named) {
    const gpuipc_outgoing out = {
        .struct_size = sizeof(out), .buffers = &buffer, .buffer_count = 1, .stream = named};
    gpuipc_buffer *opened;
    check_ok(gpuipc_buffer_fill_async(buffer, 0, core_unit, 1, 4, made_on));
    check_ok(gpuipc_connection_send(pair.client, &out, SOON_MS));
    cr_assert(has_passed(ordinal, made_on), "stream %p was not waited for", (void *)named);
    check_ok(core_receive(pair.server, &opened, 1));
    check_ok(gpuipc_buffer_release(opened));
}

/* Default streams have no device of their own: it is the buffer's, whichever context is current. */
Test(connection, a_send_waits_for_the_default_streams_of_the_buffers_devices) {
    const gpuipc_stream legacy = CU_STREAM_LEGACY;
    const gpuipc_stream per_thread = CU_STREAM_PER_THREAD;
    core_need_devices(2);
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(1), .bytes = core_unit};
    gpuipc_buffer *buffer;
    check_ok(gpuipc_buffer_create(core_context, &config, &buffer));
    connect_pair();
    if (core_is_emulated) {
        core_set_stream_delay(100); /* on a GPU the fill may be done already */
    }
    for (int has_current = 0; has_current < 2; has_current++) {
        if (has_current) {
            core_enter_device(0);
        }
        check_waits(buffer, 1, NULL, NULL);
        check_waits(buffer, 1, NULL, legacy);
        check_waits(buffer, 1, legacy, legacy);
        check_waits(buffer, 1, per_thread, per_thread);
    }
    if (core_is_emulated) {
        core_set_stream_delay(0);
    }
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

/* Each of them counts, although they are the same. */
Test(connection, more_segments_than_32_bits_are_refused) {
    enum {
        SEGMENTS = 1024
    };
    const size_t count = (size_t)(UINT32_MAX / SEGMENTS) + 1;
    core_need_emulated();
    connect_pair();
    gpuipc_buffer *buffer = core_buffer(SEGMENTS * core_unit, core_unit);
    gpuipc_buffer **many = malloc(count * sizeof(gpuipc_buffer *));
    cr_assert_not_null(many);
    for (size_t i = 0; i < count; i++) {
        many[i] = buffer;
    }
    check_refused(GPUIPC_ERR_LIMIT, "too many segments", core_send(pair.client, many, count));
    cr_assert_eq(core_info(buffer).lent_count, 0);
    check_ok(send_bytes(pair.client, "next", 4));
    free(many);
    check_ok(gpuipc_buffer_release(buffer));
    core_pair_close(&pair);
}

/* Also where the library has room for few on its stack. */
Test(connection, many_buffers_for_which_there_is_no_room_stay_until_there_is) {
    enum {
        MANY = 20
    };
    gpuipc_buffer *sent[MANY];
    gpuipc_buffer *opened[MANY] = {NULL};
    connect_pair();
    for (size_t i = 0; i < MANY; i++) {
        sent[i] = core_buffer(core_unit, 0);
    }
    check_ok(core_send(pair.client, sent, MANY));
    check_status(GPUIPC_ERR_TOO_SMALL, core_receive(pair.server, opened, 1));
    cr_assert_null(opened[0]);
    check_ok(core_receive(pair.server, opened, MANY));
    for (size_t i = 0; i < MANY; i++) {
        check_ok(gpuipc_buffer_release(opened[i]));
        check_ok(gpuipc_buffer_release(sent[i]));
    }
    core_pair_close(&pair);
}
