/* SPDX-License-Identifier: MIT */
/**
 * @file What the scenarios of tests/fault leave out, while each allocation, and then each call of the driver, fails in turn. A
 * failure is told by a status with its record, or made up for; nothing is left; and the next time it works.
 */
#include "../fault/allocation.h"
#include "base/table.h"
#include "contents_ends.h"
#include "own_kinds.h"
#include "shortage_case.h"

TestSuite(shortage, .init = core_start, .fini = core_finish, .timeout = 120);

#define BYTES UINT64_C(65536)

/* ---- memory of the caller's ---------------------------------------------------------------------- */

static own_kinds own;

static gpuipc_status wrap(void) {
    gpuipc_pointer_info info = {.struct_size = sizeof(info)};
    gpuipc_buffer *buffer;
    gpuipc_status status = gpuipc_pointer_classify(core_context, own.address, 1, &info);
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_wrap(core_context, own.address, BYTES, &buffer);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    status = gpuipc_buffer_set_access(buffer, 0, GPUIPC_ACCESS_DEFAULT);
    const gpuipc_error why = *gpuipc_error_get();
    check_ok(gpuipc_buffer_release(buffer));
    return status == GPUIPC_OK ? GPUIPC_OK : why.status;
}

static void wrap_fails(own_kind kind) {
    const shortage_operation what = {.run = wrap};
    core_need_emulated();
    core_enter_device(0);
    own = own_kinds_make(kind, BYTES);
    shortage_in_turn(&what);
    own_kinds_undo(&own);
}

Test(shortage, wrapping_cuMemAlloc) {
    wrap_fails(OWN_PLAIN);
}

Test(shortage, wrapping_a_pools_memory) {
    wrap_fails(OWN_POOL);
}

Test(shortage, wrapping_the_default_pools_memory) {
    wrap_fails(OWN_DEFAULT_POOL);
}

Test(shortage, wrapping_pinned_memory) {
    wrap_fails(OWN_PINNED);
}

Test(shortage, wrapping_managed_memory) {
    wrap_fails(OWN_MANAGED);
}

/* Which no transport carries is shared as a copy. */
static gpuipc_server *by;
static gpuipc_buffer *wrapped;

static void wrap_and_serve(void) {
    check_ok(gpuipc_buffer_wrap(core_context, own.address, BYTES, &wrapped));
    check_ok(gpuipc_server_create(core_context, NULL, &by));
}

static gpuipc_status share_copy(void) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .flags = GPUIPC_SEND_STAGED};
    gpuipc_ticket of;
    return gpuipc_buffer_share(by, wrapped, &config, &of);
}

static void end_of_copy(void) {
    check_ok(gpuipc_server_destroy(by));
    check_ok(gpuipc_buffer_release(wrapped));
}

Test(shortage, sharing_a_copy_of_pinned_memory) {
    const shortage_operation what = {wrap_and_serve, share_copy, end_of_copy};
    core_need_emulated();
    core_enter_device(0);
    own = own_kinds_make(OWN_PINNED, BYTES);
    shortage_in_turn(&what);
    own_kinds_undo(&own);
}

/* ---- messages of two buffers, which nobody waits for ---------------------------------------------- */

static core_pair pair;
static gpuipc_buffer *sent[2];
static gpuipc_buffer *opened[2];
static CUstream stream;
static uint32_t send_flags;
static uint32_t receive_flags;

static gpuipc_status send_two(void) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = sent,
                                     .buffer_count = 2,
                                     .flags = send_flags,
                                     .stream = stream};
    return gpuipc_connection_send(pair.client, &message, SOON_MS);
}

static gpuipc_status receive_two(void) {
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = opened,
                               .buffer_capacity = 2,
                               .flags = receive_flags,
                               .stream = stream};
    gpuipc_status status = gpuipc_connection_receive(pair.server, &message, SOON_MS);
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_await_ready_async(opened[0], stream);
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_return_async(opened[1], stream);
    }
    return status;
}

static void open_pair(void) {
    core_pair_open(&pair, core_context, core_context);
}

static void open_and_send(void) {
    open_pair();
    check_ok(send_two());
}

static void close_pair(void) {
    cr_assert_eq(core_driver()->cuStreamSynchronize(stream), CUDA_SUCCESS);
    for (size_t i = 0; i < 2; i++) {
        check_ok(gpuipc_buffer_release(opened[i]));
        opened[i] = NULL;
    }
    core_pair_close(&pair);
}

static void message_fails(const shortage_operation *what) {
    core_need_emulated();
    core_enter_device(0);
    cr_assert_eq(core_driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    sent[0] = core_buffer(core_unit, 0);
    sent[1] = core_buffer(2 * core_unit, core_unit);
    shortage_in_turn(what);
    check_ok(gpuipc_buffer_release(sent[0]));
    check_ok(gpuipc_buffer_release(sent[1]));
    cr_assert_eq(core_driver()->cuStreamDestroy(stream), CUDA_SUCCESS);
}

static const shortage_operation sending = {open_pair, send_two, close_pair};
static const shortage_operation receiving = {open_and_send, receive_two, close_pair};

Test(shortage, sending_behind_a_stream) {
    send_flags = GPUIPC_SEND_ASYNC;
    message_fails(&sending);
}

Test(shortage, receiving_before_a_stream) {
    send_flags = GPUIPC_SEND_ASYNC;
    receive_flags = GPUIPC_RECEIVE_ASYNC;
    message_fails(&receiving);
}

Test(shortage, receiving_for_later) {
    send_flags = GPUIPC_SEND_ASYNC;
    receive_flags = GPUIPC_RECEIVE_DEFERRED | GPUIPC_RECEIVE_KEEP_HANDLES;
    message_fails(&receiving);
}

/* ---- contents --------------------------------------------------------------------------------------- */

static contents_ends two;
static gpuipc_transport way;

static void contents_begin(void) {
    contents_ends_open(&two, BYTES);
    buffer_marks_write(two.from, 5);
}

static gpuipc_status contents_run(void) {
    gpuipc_status status = contents_send_range(&two, 0, BYTES, way);
    if (status == GPUIPC_OK) {
        const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                          .buffer = two.into,
                                          .bytes = BYTES,
                                          .stream = two.receives,
                                          .transport = way};
        status = gpuipc_connection_receive_contents(two.pair.client, &contents, 0);
    }
    if (status != GPUIPC_OK) { /* the receiver goes, so that the sender need not wait for it */
        const gpuipc_error why = *gpuipc_error_get();
        check_ok(gpuipc_connection_close(two.pair.client));
        two.pair.client = NULL;
        return why.status;
    }
    return GPUIPC_OK;
}

static void contents_end(void) {
    contents_both_pass(&two);
    if (two.pair.client != NULL) {
        buffer_marks_check(two.into, 0, 0, BYTES, 5, 0);
    }
    contents_ends_close(&two);
}

static const shortage_operation contents = {contents_begin, contents_run, contents_end};

Test(shortage, contents_by_memory) {
    core_need_emulated();
    way = GPUIPC_TRANSPORT_VMM;
    shortage_in_turn(&contents);
}

Test(shortage, contents_through_the_ring) {
    core_need_emulated();
    way = GPUIPC_TRANSPORT_HOST;
    shortage_in_turn(&contents);
}

/* The pieces are copied by host functions. */
static void contents_of_host_begin(void) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_HOST, .bytes = BYTES};
    contents_ends_open(&two, BYTES);
    check_ok(gpuipc_buffer_release(two.from));
    check_ok(gpuipc_buffer_create(core_context, &config, &two.from));
    buffer_marks_write(two.from, 5);
}

Test(shortage, contents_of_host_memory) {
    const shortage_operation what = {contents_of_host_begin, contents_run, contents_end};
    core_need_emulated();
    way = GPUIPC_TRANSPORT_HOST;
    shortage_in_turn(&what);
}

/* ---- machines ------------------------------------------------------------------------------------------ */

TestSuite(shortage_machine, .init = core_start_without_context, .fini = core_finish,
          .timeout = 120);

static gpuipc_context *made;
static gpuipc_buffer *ends[2];

static void copy_begin(void) {
    made = core_context_new();
    for (uint32_t i = 0; i < 2; i++) {
        const gpuipc_buffer_config config = {
            .struct_size = sizeof(config), .device = GPUIPC_DEVICE(i), .bytes = BYTES};
        check_ok(gpuipc_buffer_create(made, &config, &ends[i]));
    }
    buffer_marks_write(ends[0], 3);
}

static gpuipc_status copy_run(void) {
    return gpuipc_buffer_copy_async(ends[1], 0, ends[0], 0, BYTES, stream);
}

static void copy_end(void) {
    check_ok(copy_run());
    cr_assert_eq(core_driver()->cuStreamSynchronize(stream), CUDA_SUCCESS);
    buffer_marks_check(ends[1], 0, 0, BYTES, 3, 0);
    check_ok(gpuipc_buffer_release(ends[0]));
    check_ok(gpuipc_buffer_release(ends[1]));
    check_ok(gpuipc_context_destroy(made));
}

Test(shortage_machine, a_copy_through_pinned_memory) {
    const shortage_operation what = {copy_begin, copy_run, copy_end};
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=2;p2p=none");
    core_enter_device(0);
    cr_assert_eq(core_driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    shortage_in_turn(&what);
    cr_assert_eq(core_driver()->cuStreamDestroy(stream), CUDA_SUCCESS);
}

/* What a device has access to, it has until its context ends. */
static void reach_begin(void) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_P2P, .bytes = BYTES};
    made = core_context_new();
    check_ok(gpuipc_buffer_create(made, &config, &ends[0]));
}

static gpuipc_status reach(void) {
    return gpuipc_buffer_set_access(ends[0], 1, GPUIPC_ACCESS_DEFAULT);
}

static void reach_end(void) {
    check_ok(gpuipc_buffer_release(ends[0]));
    check_ok(gpuipc_context_destroy(made));
}

Test(shortage_machine, access_by_another_device) {
    const shortage_operation what = {reach_begin, reach, reach_end};
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=2");
    shortage_in_turn(&what);
}

/* The answers are kept, for which there is no memory. */
static void select_begin(void) {
    made = core_context_new();
}

static gpuipc_status select_transport(void) {
    const gpuipc_transport_pair of = {.struct_size = sizeof(of), .owner = 0, .user = 1};
    gpuipc_selection selection = {.struct_size = sizeof(selection)};
    return gpuipc_transport_select(made, &of, NULL, GPUIPC_POLICY_ANY, &selection);
}

static void select_end(void) {
    check_ok(gpuipc_context_destroy(made));
}

static gpuipc_status measure(void) {
    const gpuipc_transport_pair of = {.struct_size = sizeof(of), .owner = 0, .user = 1};
    gpuipc_measurement measured = {.struct_size = sizeof(measured)};
    return gpuipc_transport_measure(made, GPUIPC_TRANSPORT_VMM, &of, &measured);
}

Test(shortage_machine, a_measurement_of_what_was_not_asked_for) {
    const shortage_operation what = {select_begin, measure, select_end};
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=2");
    shortage_of_memory(&what);
}

/* Of memory whose owner this process does not see, what can be tried is. */
static gpuipc_status ask_for_hidden(void) {
    const gpuipc_transport_pair of = {
        .struct_size = sizeof(of), .owner = GPUIPC_DEVICE_NONE, .user = 0};
    gpuipc_transport_info info = {.struct_size = sizeof(info)};
    return gpuipc_transport_query(made, GPUIPC_TRANSPORT_VMM, &of, &info);
}

Test(shortage_machine, a_question_for_a_device_that_is_hidden) {
    const shortage_operation what = {select_begin, ask_for_hidden, select_end};
    core_need_emulated();
    shortage_of_memory(&what);
}

Test(shortage_machine, a_choice_of_a_transport) {
    const shortage_operation what = {select_begin, select_transport, select_end};
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=2");
    shortage_of_memory(&what);
}

/* ---- tables -------------------------------------------------------------------------------------------- */

/* What does not grow is slower, and right. */
Test(shortage_machine, a_table_that_cannot_grow_finds_all) {
    static table_link links[500];
    hash_table self = {.count = 0};
    allocation_watch(1);
    for (uint64_t i = 0; i < 500; i++) {
        table_add(&self, &links[i], i * 7);
    }
    int64_t live;
    cr_assert_gt(allocation_unwatch(&live), 1, "it is tried again");
    for (uint64_t i = 0; i < 500; i++) {
        cr_assert_eq(table_find(&self, i * 7), &links[i]);
    }
    cr_assert_null(table_find(&self, 1));
    table_clear(&self);
}
