/* SPDX-License-Identifier: MIT */
/**
 * @file A process that has one of everything forks: its child gives all of it up, which is its host memory and no more. No call
 * of the driver is made, nobody is waited for, and the parent goes on with what it has.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "../fault/allocation.h"
#include "asker.h"
#include "channel_case.h"
#include "contents_ends.h"
#include "graphs.h"
#include "sync/deferred.h"
#include "ticket_server.h"

TestSuite(fork, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

#define BYTES UINT64_C(65536)

static contents_ends two;
static CUstream stream;
static gpuipc_buffer *sent;
static gpuipc_buffer *opened;
static gpuipc_buffer *distant;
static gpuipc_server *server;
static gpuipc_channel *channel;
static gpuipc_subscription *reader;
static captured graphs[2];
static asker client;
static asker refused;
static ticket_server by_hand;
static gpuipc_buffer *by_ticket[2];

static void transfer(gpuipc_transport way) {
    check_ok(contents_send_range(&two, 0, BYTES, way));
    check_ok(contents_receive_range(&two, 0, BYTES, way));
    contents_both_pass(&two);
}

/* A buffer behind a stream, which the receiver never returns. */
static void send_behind_stream(void) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &two.from,
                                     .buffer_count = 1,
                                     .flags = GPUIPC_SEND_ASYNC,
                                     .stream = stream};
    check_ok(gpuipc_connection_send(two.pair.server, &message, SOON_MS));
}

/* A mark that a graph makes, and one that a graph awaits. */
static void capture_marks(void) {
    gpuipc_mark mark;
    check_ok(core_send(two.pair.server, &sent, 1));
    check_ok(core_receive(two.pair.client, &opened, 1));
    cr_assert(graphs_find(core_driver()));
    cr_assert(graphs_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    check_ok(gpuipc_buffer_mark(sent, stream, &mark));
    cr_assert(graphs_end(stream, &graphs[0]));
    cr_assert(graphs_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    check_ok(gpuipc_buffer_await_mark_async(opened, &mark, stream));
    cr_assert(graphs_end(stream, &graphs[1]));
}

#define NAME "forked"

static void serve_channel(uint32_t flags) {
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = sent,
                                          .slot_bytes = CHANNEL_CASE_SLOT,
                                          .slots = 2,
                                          .max_readers = 1,
                                          .max_held = 1,
                                          .name = NAME};
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_ticket of;
    intptr_t handle;
    server = asker_server(flags);
    check_ok(gpuipc_channel_create(server, &config, &channel, &of));
    check_ok(gpuipc_subscription_open(core_context, &of, NULL, &reader));
    check_ok(gpuipc_subscription_get_wait_handle(reader, &handle));
    check_ok(gpuipc_channel_loan(channel, stream, 0, &frame));
    check_ok(gpuipc_channel_publish(channel, &frame, stream));
    check_ok(gpuipc_subscription_take(reader, stream, 0, &frame));
}

/* Behind a stream, for few processes, to one that has it open. */
static void serve_share(void) {
    const gpuipc_share_config late = {.struct_size = sizeof(late),
                                      .flags = GPUIPC_SEND_ASYNC,
                                      .max_processes = 3,
                                      .stream = stream};
    gpuipc_ticket of;
    asker_reply reply;
    server = asker_server(0);
    check_ok(gpuipc_buffer_share(server, two.from, &late, &of));
    asker_begin(&client, two.other, &of);
    check_ok(asker_send(&client, &of));
    check_ok(gpuipc_server_poll(server, SOON_MS));
    while (gpuipc_server_poll(server, 0) == GPUIPC_OK) { /* where it has only been let in */
    }
    check_ok(asker_receive(&client, &reply));
    cr_assert_eq(reply.answer, WIRE_GRANTED);
    check_ok(gpuipc_buffer_release(reply.buffer));
}

/* One ticket whose buffer is in use, and one that is kept open although its buffer was released. */
static void open_tickets(void) {
    static const ticket_step steps[] = {
        {TICKET_ACCEPT, 0}, {TICKET_GRANT, 0}, {TICKET_GRANT, 0}, {TICKET_CONFIRM, 0}, {0, 0}};
    const uint16_t reply_flags[] = {0, WIRE_REPLY_ONE_SHOT};
    ticket_server_open(&by_hand, core_context, two.from);
    ticket_server_begin(&by_hand, steps);
    for (size_t i = 0; i < 2; i++) {
        const gpuipc_ticket of = ticket_server_ticket(&by_hand, i * BYTES / 2, BYTES / 2);
        by_hand.reply_flags = reply_flags[i];
        check_ok(gpuipc_buffer_open(two.other, &of, NULL, &by_ticket[i]));
    }
    ticket_server_end(&by_hand);
    check_ok(gpuipc_buffer_release(by_ticket[1]));
    by_ticket[1] = NULL;
}

static void ask_what_works(void) {
    const gpuipc_transport_pair pair = {.struct_size = sizeof(pair), .owner = 0, .user = 1};
    for (uint32_t i = 1; i <= GPUIPC_TRANSPORT_FABRIC; i++) {
        gpuipc_transport_info info = {.struct_size = sizeof(info)};
        check_ok(gpuipc_transport_query(core_context, (gpuipc_transport)i, &pair, &info));
    }
}

/* From one device to another that does not reach it. */
static void copy_by_staging(void) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(1), .bytes = BYTES};
    check_ok(gpuipc_buffer_create(core_context, &config, &distant));
    check_ok(gpuipc_buffer_copy_async(distant, 0, two.from, 0, BYTES, stream));
    cr_assert_eq(core_driver()->cuStreamSynchronize(stream), CUDA_SUCCESS);
}

static void begin(void) {
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=2;p2p=none");
    gpuipc_context_config config = core_context_config();
    config.max_cached_imports = 4;
    core_open_context(&config);
    contents_ends_open(&two, BYTES);
    cr_assert_eq(core_driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    sent = core_buffer(core_unit, 0);
}

/* @return how many of the calls that give back did not say so */
static int give_everything_back(void) {
    int wrong = 0;
    wrong += gpuipc_subscription_close(reader) != GPUIPC_OK;
    wrong += gpuipc_channel_destroy(channel) != GPUIPC_OK;
    asker_end(&client);
    asker_end(&refused);
    wrong += gpuipc_server_destroy(server) != GPUIPC_OK;
    wrong += gpuipc_buffer_release(by_ticket[0]) != GPUIPC_OK;
    wrong += gpuipc_connection_close(by_hand.connection) != GPUIPC_OK;
    wrong += gpuipc_listener_close(by_hand.listener) != GPUIPC_OK;
    wrong += gpuipc_buffer_release(opened) != GPUIPC_OK;
    wrong += gpuipc_buffer_release(sent) != GPUIPC_OK;
    wrong += gpuipc_buffer_release(distant) != GPUIPC_OK;
    wrong += gpuipc_connection_close(two.pair.client) != GPUIPC_OK;
    wrong += gpuipc_connection_close(two.pair.server) != GPUIPC_OK;
    wrong += gpuipc_listener_close(two.pair.listener) != GPUIPC_OK;
    wrong += gpuipc_buffer_release(two.from) != GPUIPC_OK;
    wrong += gpuipc_buffer_release(two.into) != GPUIPC_OK;
    wrong += gpuipc_context_destroy(two.other) != GPUIPC_OK;
    wrong += gpuipc_context_destroy(core_context) != GPUIPC_OK;
    return wrong;
}

static void end_everything(void) {
    cr_assert_eq(give_everything_back(), 0);
    core_context = NULL;
    cr_assert_eq(core_driver()->cuStreamDestroy(stream), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamDestroy(two.sends), CUDA_SUCCESS);
    cr_assert_eq(core_driver()->cuStreamDestroy(two.receives), CUDA_SUCCESS);
}

static bool are_locked; /* by threads of the parent's, which the child has not */

bool __real_os_mutex_try_lock(os_mutex *mutex);
bool __wrap_os_mutex_try_lock(os_mutex *mutex);
bool __wrap_os_mutex_try_lock(os_mutex *mutex) {
    return !are_locked && __real_os_mutex_try_lock(mutex);
}

#define CALLS_MADE  99
#define MEMORY_LEFT 98
#define TRIES       20

static int live_as_child(void) {
    const uint64_t before = core_calls(NULL);
    int wrong = give_everything_back();
    const int64_t left = allocation_live();
    if (wrong == 0 && left != 0) {
        fprintf(stderr, "%lld allocations are left in the child\n", (long long)left);
        wrong = MEMORY_LEFT;
    }
    return core_calls(NULL) == before ? wrong : CALLS_MADE;
}

static int fork_once(void) {
    int how = -1;
    const pid_t child = fork();
    if (child == 0) {
        _exit(live_as_child());
    }
    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_assert(WIFEXITED(how), "0x%x", how);
    return WEXITSTATUS(how);
}

/* What a thread of the library's just looks at has a reference from it, which nobody gives back in the child. That is a
 * matter of moments, and what is left for want of care is left each time. */
static void check_child(void) {
    int how = MEMORY_LEFT;
    for (int tries = 0; tries < TRIES && how == MEMORY_LEFT; tries++) {
        how = fork_once();
    }
    cr_assert_eq(how, 0, "%d", how);
}

/* What the process makes once and keeps is there. */
static void begin_counted(void) {
    begin();
    ask_what_works();
    end_everything();
    allocation_watch(0);
    begin();
}

Test(fork, what_goes_over_connections) {
    begin_counted();
    transfer(GPUIPC_TRANSPORT_HOST);
    transfer(GPUIPC_TRANSPORT_VMM);
    capture_marks();
    copy_by_staging();
    serve_share();
    send_behind_stream();
    check_child();
    /* all that the parent has is as good as before */
    check_ok(gpuipc_buffer_copy_async(distant, 0, two.from, 0, BYTES, stream));
    cr_assert(graphs_launch(&graphs[0], stream));
    cr_assert_eq(core_driver()->cuStreamSynchronize(stream), CUDA_SUCCESS);
    cr_assert(graphs_destroy(&graphs[0]));
    cr_assert(graphs_destroy(&graphs[1]));
    end_everything();
}

/* The child has not taken it away. */
static void check_name_is_there(void) {
    const os_directory directory = {.path = core_directory};
    os_connection *made;
    check_ok(os_connection_open(&directory, "channel-" NAME, os_deadline_after(0), &made));
    os_connection_destroy(made);
}

static void fork_with_a_channel(uint32_t server_flags) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    begin_counted();
    serve_channel(server_flags);
    check_child();
    check_name_is_there();
    check_ok(gpuipc_channel_loan(channel, stream, 0, &frame));
    check_ok(gpuipc_channel_publish(channel, &frame, stream));
    cr_assert_eq(core_driver()->cuStreamSynchronize(stream), CUDA_SUCCESS);
    end_everything();
}

Test(fork, both_ends_of_a_channel) {
    fork_with_a_channel(0);
}

Test(fork, a_server_that_has_a_thread) {
    fork_with_a_channel(GPUIPC_SERVER_THREAD);
}

Test(fork, what_tickets_have_opened) {
    begin_counted();
    open_tickets();
    check_child();
    end_everything();
}

Test(fork, what_was_put_off) {
    const gpuipc_buffer_config of_host = {
        .struct_size = sizeof(of_host), .transport = GPUIPC_TRANSPORT_HOST, .bytes = BYTES};
    core_pair over;
    begin_counted();
    deferred_wait_begins(); /* as while a stream waits for another process */
    ask_what_works();
    check_ok(gpuipc_buffer_create(core_context, &of_host, &opened));
    core_pair_open(&over, core_context, core_context);
    check_ok(core_send(over.client, &sent, 1));
    core_pair_close(&over); /* whose pages of points stay until the streams have passed */
    check_child();
    deferred_wait_ends();
    end_everything();
}

/* What was opened and is not in use stays open for the next message of the same buffer, in the parent. */
Test(fork, what_stays_open_for_another_time) {
    gpuipc_buffer *came = NULL;
    begin_counted();
    for (int i = 0; i < 2; i++) {
        check_ok(core_send(two.pair.client, &two.into, 1));
        check_ok(core_receive(two.pair.server, &came, 1));
        check_ok(gpuipc_buffer_release(came));
        if (i == 0) {
            check_child();
            core_set_failures(""); /* counts anew */
        }
    }
    cr_assert_eq(core_calls("cuMemImportFromShareableHandle"), 0);
    end_everything();
}

/* Their words have come, and the ring itself stays in the message. */
Test(fork, contents_that_have_come_and_were_not_taken) {
    begin_counted();
    check_ok(contents_send_range(&two, 0, BYTES, GPUIPC_TRANSPORT_HOST));
    check_status(GPUIPC_ERR_OTHER_KIND, core_receive(two.pair.client, NULL, 0));
    check_child();
    check_ok(contents_receive_range(&two, 0, BYTES, GPUIPC_TRANSPORT_HOST));
    contents_both_pass(&two);
    end_everything();
}

/* It is left alone, with what it guards: only the memory of that stays. */
Test(fork, what_other_threads_were_in_the_midst_of) {
    begin();
    serve_channel(0);
    open_tickets();
    are_locked = true;
    const int how = fork_once();
    are_locked = false;
    cr_assert(how == 0 || how == MEMORY_LEFT, "%d", how);
    check_name_is_there();
    end_everything();
}

/* One too many, who has been told so and has not asked yet. */
Test(fork, whom_a_server_has_refused) {
    const gpuipc_server_config few = {.struct_size = sizeof(few), .max_connections = 1};
    asker_reply reply;
    begin_counted();
    check_ok(gpuipc_server_create(core_context, &few, &server));
    const gpuipc_ticket of = asker_share(server, two.from);
    asker_begin(&client, two.other, &of);
    check_ok(gpuipc_server_poll(server, SOON_MS));
    asker_begin(&refused, two.other, &of);
    check_ok(gpuipc_server_poll(server, SOON_MS));
    check_child();
    check_ok(asker_receive(&refused, &reply));
    cr_assert_eq(reply.answer, WIRE_BUSY);
    end_everything();
}
