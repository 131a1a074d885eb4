/* SPDX-License-Identifier: MIT */
/** @file Channels on a machine that is not as they would have it: devices that reach nothing, a clock that steps, bells
 * that are gone, streams that are captured. And what programs put into frames: any size, and several tensors. */
#include "base/status.h"
#include "channel_case.h"
#include "stream_gate.h"

/* ---- devices ----------------------------------------------------------------------------------- */

static void start_apart(void) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "p2p=none");
    channel_start();
}

TestSuite(channel_apart, .init = start_apart, .fini = channel_finish, .timeout = 60);

static gpuipc_status open_on(uint32_t device, gpuipc_subscription **out_reader) {
    const gpuipc_subscription_config config = {.struct_size = sizeof(config), .device = device};
    return gpuipc_subscription_open(core_context, &channel_case_ticket, &config, out_reader);
}

/* A ticket of this process for a device that does not reach the memory. */
static void check_buffer_is_out_of_reach(void) {
    const gpuipc_open_config far = {.struct_size = sizeof(far), .device = GPUIPC_DEVICE(1)};
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = NULL;
    gpuipc_ticket of;
    check_ok(gpuipc_buffer_share(channel_case_server, own, NULL, &of));
    check_status(GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
                 gpuipc_buffer_open(core_context, &of, &far, &opened));
    cr_assert_null(opened);
    check_ok(gpuipc_server_revoke(channel_case_server, &of));
    check_ok(gpuipc_buffer_release(own));
}

/* It takes no place either. */
Test(channel_apart, a_device_that_cannot_reach_the_slots_is_told) {
    gpuipc_subscription *reader = NULL;
    core_need_devices(2);
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .max_readers = 1});
    for (int i = 0; i < 3; i++) {
        check_status(GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED, open_on(GPUIPC_DEVICE(1), &reader));
    }
    check_status(GPUIPC_ERR_DEVICE_NOT_FOUND, open_on(GPUIPC_DEVICE(7), &reader));
    cr_assert_null(reader);
    check_buffer_is_out_of_reach();
    check_ok(open_on(GPUIPC_DEVICE(0), &reader));
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 1);
    check_ok(gpuipc_subscription_close(reader));
}

/* ---- the clock --------------------------------------------------------------------------------- */

/* ld(1), --wrap: all that the library knows of the time of day. */
uint64_t __real_os_time_unix_ms(void);
uint64_t __wrap_os_time_unix_ms(void);

static atomic_uint_least64_t told_ms; /* 0: what the clock says */
static atomic_uint asked;

uint64_t __wrap_os_time_unix_ms(void) {
    const uint64_t told = atomic_load(&told_ms);
    atomic_fetch_add(&asked, 1);
    return told == 0 ? __real_os_time_unix_ms() : told;
}

TestSuite(channel_odd, .init = channel_start, .fini = channel_finish, .timeout = 60);

#define DAY_MS UINT64_C(86400000)

/* When the one that reads came; 0: none does. */
static uint64_t since_ms(void) {
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    size_t count = 0;
    check_ok(
        gpuipc_channel_readers(channel_case_channel, infos, GPUIPC_CHANNEL_READERS_MAX, &count));
    for (size_t i = 0; i < count; i++) {
        if (infos[i].state == GPUIPC_READER_ACTIVE) {
            return infos[i].since_ms;
        }
    }
    return 0;
}

/* It is shown, and nothing waits by it. */
Test(channel_odd, a_clock_that_steps_changes_no_wait) {
    static const uint64_t steps[] = {DAY_MS * 20000, DAY_MS * 19000, 1, DAY_MS * 30000};
    gpuipc_frame none = GPUIPC_FRAME_INIT;
    channel_case_make(
        &(gpuipc_channel_config){.slots = 2, .full = GPUIPC_FULL_DROP, .drop_after_ms = SOON_MS});
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        atomic_store(&told_ms, steps[i]);
        gpuipc_subscription *reader = channel_case_open(NULL);
        cr_assert_eq(since_ms(), steps[i]);
        atomic_store(&told_ms, steps[(i + 1) % 4]);
        channel_case_send();
        channel_case_send();
        const unsigned before = atomic_load(&asked);
        cr_assert_eq(gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, 20, &none),
                     GPUIPC_ERR_TIMEOUT);
        cr_assert_eq(channel_case_receive(reader), 2 * i + 1);
        cr_assert_eq(channel_case_receive(reader), 2 * i + 2);
        cr_assert_eq(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 20, &none),
                     GPUIPC_ERR_TIMEOUT);
        cr_assert_eq(atomic_load(&asked), before);
        cr_assert_eq(since_ms(), steps[i], "nobody was dropped");
        check_ok(gpuipc_subscription_close(reader));
    }
    atomic_store(&told_ms, 0);
}

/* ---- bells ------------------------------------------------------------------------------------- */

/* The same: what a new reader knows its bells by. An event of Windows is gone when the writer has closed it. */
gpuipc_status __real_os_bell_find(const uint8_t name[16], os_bell *out_bell);
gpuipc_status __wrap_os_bell_find(const uint8_t name[16], os_bell *out_bell);

static void (*meanwhile)(void); /* NULL: the bells are there */

gpuipc_status __wrap_os_bell_find(const uint8_t name[16], os_bell *out_bell) {
    if (meanwhile == NULL) {
        return __real_os_bell_find(name, out_bell);
    }
    const char *call = status_call();
    meanwhile();
    status_enter(call); /* back in the opening */
    return status_fail_os(GPUIPC_ERR_OS, 2, "OpenEventW", "the event to sleep at is not there");
}

static void nothing_happens(void) {
}

static void end_channel(void) {
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
}

/* It takes nothing, so the third frame has no slot. */
static void drop_reader(void) {
    channel_case_send();
    channel_case_send();
    channel_case_send();
}

static void check_no_bell(gpuipc_status expected, void (*what)(void)) {
    gpuipc_subscription *reader = NULL;
    channel_case_make(
        &(gpuipc_channel_config){.slots = 2, .full = GPUIPC_FULL_DROP, .drop_after_ms = 1});
    meanwhile = what;
    check_status(expected,
                 gpuipc_subscription_open(core_context, &channel_case_ticket, NULL, &reader));
    meanwhile = NULL;
    cr_assert_null(reader);
}

Test(channel_odd, who_was_dropped_before_it_was_open_is_told_so) {
    check_no_bell(GPUIPC_ERR_CONNECTION_BROKEN, drop_reader);
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_DROPPED);
    gpuipc_subscription *reader = channel_case_open(NULL); /* another try is another reader */
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 4);
    check_ok(gpuipc_subscription_close(reader));
}

Test(channel_odd, a_channel_that_ended_before_it_was_open_is_told) {
    check_no_bell(GPUIPC_ERR_PEER_CLOSED, end_channel);
}

Test(channel_odd, a_bell_that_cannot_be_had_is_the_systems_failure) {
    check_no_bell(GPUIPC_ERR_OS, nothing_happens);
    cr_assert_eq(gpuipc_error_get()->native_code, 2);
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_CLOSED, "it takes no place either");
}

/* ---- what is in a frame ------------------------------------------------------------------------ */

/* Two tensors, whose sizes are others in each frame: the header says where they are. */
static size_t describe(uint64_t number, uint8_t header[GPUIPC_FRAME_HEADER_MAX]) {
    size_t size = 0;
    const gpuipc_range ranges[] = {{.name = "image",
                                    .bytes = number * 8,
                                    .dimensions = 1,
                                    .shape = {(int64_t)number},
                                    .strides = {1}},
                                   {.name = "boxes", .offset = number * 8, .bytes = 16}};
    check_ok(gpuipc_manifest_write(ranges, 2, header, GPUIPC_FRAME_HEADER_MAX, &size));
    return size;
}

Test(channel_odd, several_tensors_of_any_size_are_one_frame) {
    uint8_t header[GPUIPC_FRAME_HEADER_MAX];
    channel_case_make(&(gpuipc_channel_config){.slots = 3, .header_bytes = sizeof(header)});
    gpuipc_subscription *reader = channel_case_open(&(gpuipc_subscription_config){.max_held = 2});
    for (uint64_t number = 1; number < 100; number++) {
        gpuipc_range found;
        gpuipc_frame frame = channel_case_loan();
        frame.header = header;
        frame.header_bytes = describe(number, header);
        frame.bytes = number * 8 + 16;
        check_ok(gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
        memset(header, 0, sizeof(header)); /* it was copied */
        const gpuipc_frame came = channel_case_take(reader);
        cr_assert_eq(came.bytes, number * 8 + 16);
        check_ok(gpuipc_manifest_find(came.header, came.header_bytes, came.bytes, "image", &found));
        cr_assert(found.offset == 0 && found.shape[0] == (int64_t)number);
        check_ok(gpuipc_manifest_find(came.header, came.header_bytes, came.bytes, "boxes", &found));
        cr_assert(found.offset == number * 8 && found.bytes == 16);
        check_ok(gpuipc_subscription_give_back(reader, &came, GPUIPC_NO_STREAM));
    }
    check_ok(gpuipc_subscription_close(reader));
}

/* Its page is still its own, though the writer has no more use for it, and has registered it. */
Test(channel_odd, a_reader_that_was_dropped_learns_so_after_another_one_has_come) {
    channel_case_make(
        &(gpuipc_channel_config){.slots = 1, .full = GPUIPC_FULL_DROP, .drop_after_ms = 20});
    gpuipc_subscription *slow = channel_case_open(NULL);
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_frame none = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_channel_loan(channel_case_channel, NULL, SOON_MS, &frame));
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, NULL));
    const gpuipc_frame held = channel_case_take(slow);
    channel_case_send(); /* which drops it */
    gpuipc_subscription *others[4];
    for (size_t i = 0; i < 4; i++) {
        others[i] = channel_case_open(NULL);
    }
    check_ok(gpuipc_subscription_give_back(slow, &held, GPUIPC_NO_STREAM));
    cr_assert_eq(gpuipc_subscription_take(slow, GPUIPC_NO_STREAM, SOON_MS, &none),
                 GPUIPC_ERR_CONNECTION_BROKEN);
    check_ok(gpuipc_subscription_close(slow));
    for (size_t i = 0; i < 4; i++) {
        check_ok(gpuipc_subscription_close(others[i]));
    }
}

/* ---- captures ---------------------------------------------------------------------------------- */

static void check_captured_is_refused(gpuipc_subscription *reader, CUstream named,
                                      CUstream captured) {
    gpuipc_frame frame = channel_case_loan();
    gpuipc_frame other = GPUIPC_FRAME_INIT;
    gpuipc_frame came = GPUIPC_FRAME_INIT;
    core_set_captured(true, captured);
    check_status(GPUIPC_ERR_CUDA, gpuipc_channel_loan(channel_case_channel, named, 0, &other));
    check_status(GPUIPC_ERR_CUDA, gpuipc_channel_publish(channel_case_channel, &frame, named));
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM));
    check_status(GPUIPC_ERR_CUDA, gpuipc_subscription_take(reader, named, 0, &came));
    check_ok(gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, 0, &came));
    check_status(GPUIPC_ERR_CUDA, gpuipc_subscription_give_back(reader, &came, named));
    core_set_captured(false, NULL);
    check_ok(gpuipc_subscription_give_back(reader, &came, GPUIPC_NO_STREAM));
}

/* Nor is the legacy stream used while a capture forbids it. */
Test(channel_odd, a_stream_that_is_captured_is_refused) {
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    gpuipc_subscription *reader = channel_case_open(NULL);
    CUstream captured = stream_gate_stream();
    check_captured_is_refused(reader, captured, captured);
    check_captured_is_refused(reader, NULL, NULL);
    check_captured_is_refused(reader, CU_STREAM_LEGACY, CU_STREAM_LEGACY);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(captured);
    stream_gate_end();
}

Test(channel_odd, a_default_stream_whose_context_the_driver_does_not_tell) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    core_set_failures("cuCtxGetCurrent:1=999");
    check_status(GPUIPC_ERR_CUDA, gpuipc_channel_loan(channel_case_channel, NULL, 0, &frame));
    core_set_failures("");
    check_ok(gpuipc_channel_loan(channel_case_channel, NULL, 0, &frame));
    check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
}
