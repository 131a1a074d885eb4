/* SPDX-License-Identifier: MIT */
/** @file Shares and channels in states that the scenarios of tests/fault leave out, while each allocation, and then each call of
 *  the driver, fails in turn. */
#include <string.h>

#include "channel_case.h"
#include "shortage_case.h"
#include "stream_gate.h"

static gpuipc_server *server;
static gpuipc_buffer *slots;
static gpuipc_channel *channel;
static gpuipc_subscription *reader;
static gpuipc_buffer *opened;
static CUstream stream;

static void start(void) {
    core_start();
    core_need_emulated();
    stream_gate_make();
    stream = stream_gate_stream();
    slots = core_buffer(core_unit, 0);
}

static void finish(void) {
    stream_gate_stream_end(stream);
    check_ok(gpuipc_buffer_release(slots));
    stream_gate_end();
    core_finish();
}

TestSuite(shortage_tickets, .init = start, .fini = finish, .timeout = 120);

static void serve(void) {
    check_ok(gpuipc_server_create(core_context, NULL, &server));
}

static void end_all(void) {
    stream_gate_synchronize(stream);
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_channel_destroy(channel));
    stream_gate_synchronize(stream);
    check_ok(gpuipc_server_destroy(server));
    reader = NULL;
    opened = NULL;
    channel = NULL;
}

/* ---- shares ------------------------------------------------------------------------------------ */

static gpuipc_share_config sharing;

/* Opened by this very process, as a view. */
static gpuipc_status share_and_open(void) {
    const gpuipc_open_config how = {.struct_size = sizeof(how), .access = GPUIPC_ACCESS_READ};
    gpuipc_ticket ticket;
    gpuipc_status status = gpuipc_buffer_share(server, slots, &sharing, &ticket);
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_open(core_context, &ticket, &how, &opened);
    }
    return status == GPUIPC_OK ? gpuipc_server_revoke(server, &ticket) : status;
}

static const shortage_operation shared = {serve, share_and_open, end_all};

Test(shortage_tickets, a_share_of_a_range) {
    sharing = (gpuipc_share_config){
        .struct_size = sizeof(sharing), .offset = 64, .bytes = 4096, .stream = stream};
    shortage_in_turn(&shared);
}

Test(shortage_tickets, a_share_for_few_processes) {
    sharing = (gpuipc_share_config){.struct_size = sizeof(sharing),
                                    .max_processes = 2,
                                    .expires_ms = 60000,
                                    .attachment = "said",
                                    .attachment_bytes = 4};
    shortage_in_turn(&shared);
}

Test(shortage_tickets, a_share_behind_a_stream) {
    sharing = (gpuipc_share_config){
        .struct_size = sizeof(sharing), .flags = GPUIPC_SEND_ASYNC, .stream = stream};
    shortage_in_turn(&shared);
}

Test(shortage_tickets, a_share_of_a_copy) {
    sharing = (gpuipc_share_config){
        .struct_size = sizeof(sharing), .flags = GPUIPC_SEND_STAGED, .stream = stream};
    shortage_in_turn(&shared);
}

/* What streams make it with is awaited by whoever uses it. */
static gpuipc_status share_and_open_for_later(void) {
    const gpuipc_open_config how = {.struct_size = sizeof(how), .flags = GPUIPC_RECEIVE_DEFERRED};
    gpuipc_ticket ticket;
    gpuipc_status status = gpuipc_buffer_share(server, slots, &sharing, &ticket);
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_open(core_context, &ticket, &how, &opened);
    }
    return status == GPUIPC_OK ? gpuipc_buffer_await_ready_async(opened, stream) : status;
}

static void serve_what_is_made(void) {
    serve();
    stream_gate_close(stream);
}

static void open_gate_of_share(void) {
    stream_gate_open();
    end_all();
}

Test(shortage_tickets, a_share_that_is_opened_for_later) {
    const shortage_operation what = {serve_what_is_made, share_and_open_for_later,
                                     open_gate_of_share};
    sharing = (gpuipc_share_config){
        .struct_size = sizeof(sharing), .flags = GPUIPC_SEND_ASYNC, .stream = stream};
    shortage_in_turn(&what);
}

/* ---- servers ------------------------------------------------------------------------------------ */

static gpuipc_status serve_by_thread(void) {
    const gpuipc_server_config how = {.struct_size = sizeof(how), .flags = GPUIPC_SERVER_THREAD};
    return gpuipc_server_create(core_context, &how, &server);
}

static void end_thread(void) {
    check_ok(gpuipc_server_destroy(server));
    server = NULL;
}

Test(shortage_tickets, a_server_with_a_thread) {
    const shortage_operation what = {.run = serve_by_thread, .end = end_thread};
    shortage_of_memory(&what);
}

/* ---- channels ---------------------------------------------------------------------------------- */

static gpuipc_channel_config making;
static gpuipc_status (*passes)(gpuipc_frame *frame);

static gpuipc_status make_and_pass(void) {
    const gpuipc_subscription_config how = {.struct_size = sizeof(how), .timeout_ms = 100};
    gpuipc_ticket ticket;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status;
    making.struct_size = sizeof(making);
    making.buffer = slots;
    making.slot_bytes = CHANNEL_CASE_SLOT;
    if ((status = gpuipc_channel_create(server, &making, &channel, &ticket)) != GPUIPC_OK) {
        return status;
    }
    status = gpuipc_subscription_open(core_context, &ticket, &how, &reader);
    if (status == GPUIPC_OK) {
        status = gpuipc_channel_loan(channel, stream, 0, &frame);
    }
    return status == GPUIPC_OK ? passes(&frame) : status;
}

static const shortage_operation channelled = {serve, make_and_pass, end_all};

static gpuipc_status pass_by_stream(gpuipc_frame *frame) {
    gpuipc_frame taken = GPUIPC_FRAME_INIT;
    gpuipc_status status = gpuipc_channel_publish(channel, frame, stream);
    if (status == GPUIPC_OK) {
        status = gpuipc_subscription_take(reader, stream, 0, &taken);
    }
    return status == GPUIPC_OK ? gpuipc_subscription_give_back(reader, &taken, stream) : status;
}

Test(shortage_tickets, a_channel_of_turns) {
    making = (gpuipc_channel_config){.slots = 1, .turns = 1};
    passes = pass_by_stream;
    shortage_in_turn(&channelled);
}

static gpuipc_subscription *second;

/* The next loan's stream waits for both readers. */
static gpuipc_status pass_to_two(gpuipc_frame *frame) {
    gpuipc_frame again = GPUIPC_FRAME_INIT;
    gpuipc_frame taken[2] = {GPUIPC_FRAME_INIT, GPUIPC_FRAME_INIT};
    gpuipc_subscription *const readers[] = {reader, second};
    gpuipc_status status = gpuipc_channel_publish(channel, frame, stream);
    for (size_t i = 0; i < 2 && status == GPUIPC_OK; i++) {
        status = gpuipc_subscription_take(readers[i], stream, 0, &taken[i]);
        if (status == GPUIPC_OK) {
            status = gpuipc_subscription_give_back(readers[i], &taken[i], stream);
        }
    }
    return status == GPUIPC_OK ? gpuipc_channel_loan(channel, stream, 0, &again) : status;
}

static gpuipc_status make_for_two(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_ticket ticket;
    making = (gpuipc_channel_config){.struct_size = sizeof(making),
                                     .buffer = slots,
                                     .slot_bytes = CHANNEL_CASE_SLOT,
                                     .slots = 1,
                                     .max_readers = 2,
                                     .max_held = 1};
    gpuipc_status status = gpuipc_channel_create(server, &making, &channel, &ticket);
    if (status == GPUIPC_OK) {
        status = gpuipc_subscription_open(core_context, &ticket, NULL, &reader);
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_subscription_open(core_context, &ticket, NULL, &second);
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_channel_loan(channel, stream, 0, &frame);
    }
    return status == GPUIPC_OK ? pass_to_two(&frame) : status;
}

static void end_of_two(void) {
    stream_gate_open();
    stream_gate_synchronize(stream);
    check_ok(gpuipc_subscription_close(second));
    second = NULL;
    end_all();
}

static void serve_two(void) {
    serve();
    stream_gate_close(stream);
}

Test(shortage_tickets, a_channel_of_two_readers) {
    const shortage_operation what = {serve_two, make_for_two, end_of_two};
    shortage_in_turn(&what);
}

/* ---- frames of streams that are not done ----------------------------------------------------------- */

static CUstream other;

static void serve_behind_a_gate(void) {
    serve();
    other = stream_gate_stream();
    stream_gate_close(stream);
}

/* The reader's stream waits for the writer's, and the next loan's for the reader's. */
static gpuipc_status pass_late(gpuipc_frame *frame) {
    gpuipc_frame taken = GPUIPC_FRAME_INIT;
    gpuipc_frame again = GPUIPC_FRAME_INIT;
    gpuipc_status status = gpuipc_channel_publish(channel, frame, stream);
    if (status == GPUIPC_OK) {
        status = gpuipc_subscription_take(reader, other, 0, &taken);
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_subscription_give_back(reader, &taken, other);
    }
    return status == GPUIPC_OK ? gpuipc_channel_loan(channel, other, 0, &again) : status;
}

static void open_gate_and_end(void) {
    stream_gate_open();
    stream_gate_synchronize(stream);
    stream_gate_synchronize(other);
    end_all();
    stream_gate_stream_end(other);
}

Test(shortage_tickets, a_channel_of_streams_that_are_not_done) {
    const shortage_operation what = {serve_behind_a_gate, make_and_pass, open_gate_and_end};
    making = (gpuipc_channel_config){.slots = 2};
    passes = pass_late;
    shortage_in_turn(&what);
}

Test(shortage_tickets, turns_of_streams_that_are_not_done) {
    const shortage_operation what = {serve_behind_a_gate, make_and_pass, open_gate_and_end};
    making = (gpuipc_channel_config){.slots = 1, .turns = 1};
    passes = pass_late;
    shortage_in_turn(&what);
}

/* ---- streams of a CUDA context that the program made itself: whose device they are of is asked for --------- */

static CUcontext own;
static CUstream of_device;

static void serve_own_context(void) {
    void *symbol = os_library_symbol(core_driver()->library, "cuCtxCreate_v2");
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    cr_assert_not_null(symbol);
    memcpy(&create, &symbol, sizeof(create));
    serve();
    of_device = stream;
    cr_assert_eq(create(&own, 0, 0), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

static void end_own_context(void) {
    void *symbol = os_library_symbol(core_driver()->library, "cuCtxDestroy_v2");
    CUresult (*destroy)(CUcontext);
    cr_assert_not_null(symbol);
    memcpy(&destroy, &symbol, sizeof(destroy));
    end_all();
    cr_assert_eq(destroy(own), CUDA_SUCCESS);
    stream = of_device;
}

Test(shortage_tickets, a_channel_of_streams_of_the_programs_own_context) {
    const shortage_operation what = {serve_own_context, make_and_pass, end_own_context};
    making = (gpuipc_channel_config){.slots = 2};
    passes = pass_by_stream;
    shortage_in_turn(&what);
}
