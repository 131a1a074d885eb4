/* SPDX-License-Identifier: MIT */
/** @file Channels, while another thread or the other end does something between two steps of a call. */
#include "base/status.h"
#include "channel/channel.h"
#include "kernel_case.h"
#include "moment.h"

TestSuite(moment_channel, .init = channel_start, .fini = channel_finish, .timeout = 60);

static gpuipc_subscription *reader;
static CUstream stream;

static gpuipc_status fails(void) {
    return status_fail(GPUIPC_ERR_OUT_OF_MEMORY, "there is none");
}

static gpuipc_status close_reader(void) {
    check_ok(gpuipc_subscription_close(reader));
    return GPUIPC_OK;
}

static gpuipc_status destroy_channel(void) {
    check_ok(gpuipc_channel_destroy(channel_case_channel));
    channel_case_channel = NULL;
    return GPUIPC_OK;
}

static size_t count_readers(gpuipc_reader_info *infos) {
    size_t count = 0;
    check_ok(
        gpuipc_channel_readers(channel_case_channel, infos, GPUIPC_CHANNEL_READERS_MAX, &count));
    return count;
}

/* ---- opening ----------------------------------------------------------------------------------- */

static gpuipc_status open_reader(void) {
    return gpuipc_subscription_open(core_context, &channel_case_ticket, NULL, &reader);
}

static void check_opening_fails(moment where, unsigned nth, size_t readers) {
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    reader = NULL;
    moment_at(where, nth, fails);
    check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "there is none", open_reader());
    moment_over();
    cr_assert_null(reader);
    cr_assert_eq(count_readers(infos), readers);
    cr_assert(readers == 0 || infos[0].state == GPUIPC_READER_CLOSED);
}

/* The one place is free afterwards. */
Test(moment_channel, a_reader_that_cannot_be_made_leaves_its_place) {
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .max_readers = 1});
    check_opening_fails(MOMENT_BELL, 1, 0);
    check_opening_fails(MOMENT_BELL, 2, 0);
    check_opening_fails(MOMENT_PUBLISH, 1, 1);
    check_ok(open_reader());
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 1);
    check_ok(gpuipc_subscription_close(reader));
}

/* What a writer has locked all the time. */
Test(moment_channel, a_reader_is_told_that_the_writer_is_busy) {
    gpuipc_reader_info infos[GPUIPC_CHANNEL_READERS_MAX];
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    reader = NULL;
    moment_at_all(MOMENT_TRY_LOCK, 1, fails);
    check_status(GPUIPC_ERR_SERVER_BUSY, open_reader());
    moment_over();
    cr_assert_null(reader);
    cr_assert_eq(count_readers(infos), 0);
    check_ok(open_reader());
    check_ok(gpuipc_subscription_close(reader));
}

/* ---- closed meanwhile -------------------------------------------------------------------------- */

Test(moment_channel, a_subscription_closed_before_the_take_gives_nothing) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    check_ok(open_reader());
    channel_case_send();
    moment_at(MOMENT_TRY_LOCK, 1, close_reader);
    check_refused(GPUIPC_ERR_RELEASED, "closed meanwhile",
                  gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, SOON_MS, &frame));
    moment_over();
    cr_assert_eq(channel_case_reader().state, GPUIPC_READER_CLOSED);
}

Test(moment_channel, a_subscription_closed_meanwhile_has_no_wait_handle) {
    intptr_t native = -7;
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    check_ok(open_reader());
    moment_at(MOMENT_TRY_LOCK, 1, close_reader);
    check_refused(GPUIPC_ERR_RELEASED, "closed meanwhile",
                  gpuipc_subscription_get_wait_handle(reader, &native));
    moment_over();
    cr_assert_eq(native, -7);
}

static gpuipc_status take_on_host(void *frame) {
    return gpuipc_subscription_take(reader, GPUIPC_NO_STREAM, SOON_MS, frame);
}

/* Who waits for the contents of a frame goes on, by another thread that closes it. */
Test(moment_channel, a_subscription_closed_while_its_frame_is_not_ready_gives_nothing) {
    core_waiter waiter;
    gpuipc_frame taken = GPUIPC_FRAME_INIT;
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    stream_gate_make();
    stream = stream_gate_stream();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    check_ok(open_reader());
    stream_gate_close(stream);
    check_ok(gpuipc_channel_loan(channel_case_channel, stream, SOON_MS, &frame));
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, stream));
    core_waiter_start(&waiter, take_on_host, &taken);
    check_ok(gpuipc_subscription_close(reader));
    cr_assert_eq(core_waiter_end(&waiter), GPUIPC_ERR_RELEASED);
    stream_gate_open();
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* The share is found, and the channel destroyed before its reader has a place. */
Test(moment_channel, a_channel_that_goes_while_a_reader_comes_has_revoked_its_ticket) {
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    moment_at(MOMENT_TRY_LOCK, 1, destroy_channel);
    check_status(GPUIPC_ERR_TICKET_REVOKED, open_reader());
    moment_over();
}

/* Its readers have both slots, and their pages are gone. */
Test(moment_channel, a_slot_is_not_loaned_in_a_channel_that_was_destroyed_meanwhile) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    stream_gate_make();
    stream = stream_gate_stream();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    check_ok(open_reader());
    channel_case_send();
    channel_case_send();
    gpuipc_channel *of = channel_case_channel;
    moment_at(MOMENT_TRY_LOCK, 1, destroy_channel);
    check_refused(GPUIPC_ERR_RELEASED, "destroyed meanwhile",
                  gpuipc_channel_loan(of, stream, SOON_MS, &frame));
    moment_over();
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* ---- turns --------------------------------------------------------------------------------------- */

static void make_turns(gpuipc_frame *frame) {
    stream_gate_make();
    stream = stream_gate_stream();
    channel_case_make(&(gpuipc_channel_config){.slots = 1, .turns = 1});
    if (frame != NULL) {
        check_ok(gpuipc_channel_loan(channel_case_channel, stream, SOON_MS, frame));
    }
    moment_at(MOMENT_TRY_LOCK, 1, destroy_channel);
}

static void end_turns(void) {
    moment_over();
    stream_gate_stream_end(stream);
    stream_gate_end();
}

Test(moment_channel, a_turn_is_not_published_in_a_channel_that_was_destroyed_meanwhile) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    make_turns(&frame);
    gpuipc_channel *of = channel_case_channel;
    check_refused(GPUIPC_ERR_RELEASED, "destroyed meanwhile",
                  gpuipc_channel_publish(of, &frame, stream));
    end_turns();
}

Test(moment_channel, nor_is_one_loaned) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    make_turns(NULL);
    gpuipc_channel *of = channel_case_channel;
    check_refused(GPUIPC_ERR_RELEASED, "destroyed meanwhile",
                  gpuipc_channel_loan(of, stream, 0, &frame));
    end_turns();
}

static const channel_reader *watched;

/* ---- an offer that is taken back while it is taken ------------------------------------------------ */

/* The first thing that the writer does, which is about to. */
static gpuipc_status withdraw_first(void) {
    channel_write(watched->page, channel_offered_at(1, CHANNEL_PLACE), 0);
    return GPUIPC_OK;
}

static gpuipc_status take_meanwhile(void) {
    moment_at(MOMENT_CLAIM, 1, withdraw_first);
    channel_case_check_nothing(reader);
    return GPUIPC_OK;
}

/* The reader finds that it was withdrawn, and the writer that it was taken: it goes back, and nobody waits. */
Test(moment_channel, who_takes_what_is_withdrawn_declines) {
    channel *of;
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    check_ok(channel_acquire(channel_case_channel, &of));
    reader = channel_case_open(&(gpuipc_subscription_config){.delivery = GPUIPC_DELIVERY_NEWEST});
    watched = &of->readers[0];
    channel_case_send();
    moment_at(MOMENT_WITHDRAW, 1, take_meanwhile);
    const gpuipc_frame made = channel_case_loan();
    moment_over();
    cr_assert_eq(channel_case_reader().held, 0);
    cr_assert_eq(channel_case_reader().passed_over, 1);
    check_ok(gpuipc_channel_publish(channel_case_channel, &made, GPUIPC_NO_STREAM));
    const gpuipc_frame frame = channel_case_take(reader);
    cr_assert_eq(frame.sequence, 2);
    cr_assert_eq(frame.missed, 1);
    check_ok(gpuipc_subscription_close(reader));
    object_unreference(&of->object);
}

static gpuipc_frame between = GPUIPC_FRAME_INIT;

static gpuipc_status take_between(void) {
    between = channel_case_take(reader);
    return GPUIPC_OK;
}

static void check_taken(gpuipc_full_policy full, gpuipc_status expected) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    channel_case_make(&(gpuipc_channel_config){.slots = 1, .full = full});
    reader = channel_case_open(&(gpuipc_subscription_config){.delivery = GPUIPC_DELIVERY_NEWEST});
    channel_case_send();
    moment_at(MOMENT_WITHDRAW, 1, take_between);
    check_refused(expected, "readers have all slots",
                  gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, 0, &frame));
    moment_over();
    cr_assert_eq(between.sequence, 1);
    cr_assert_eq(channel_case_reader().held, 1);
    check_ok(gpuipc_subscription_give_back(reader, &between, GPUIPC_NO_STREAM));
    channel_case_send();
    cr_assert_eq(channel_case_reader().passed_over, 0);
    check_ok(gpuipc_subscription_close(reader));
}

Test(moment_channel, what_is_taken_is_not_withdrawn) {
    check_taken(GPUIPC_FULL_WAIT, GPUIPC_ERR_TIMEOUT);
}

Test(moment_channel, and_is_in_the_way_of_who_skips) {
    check_taken(GPUIPC_FULL_SKIP, GPUIPC_ERR_BUSY);
}

/* ---- streams and kernels ------------------------------------------------------------------------- */

static bool is_rung;

static gpuipc_status note_bell_and_fail(void) {
    is_rung = channel_read(watched->page, CHANNEL_READER_SLEEPS) == 0;
    return fails();
}

static gpuipc_status take_one(void *argument) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status = gpuipc_subscription_take(argument, GPUIPC_NO_STREAM, -1, &frame);
    return status == GPUIPC_OK ? gpuipc_subscription_give_back(argument, &frame, GPUIPC_NO_STREAM)
                               : status;
}

/* To wake takes longer than to tell the stream. A frame that does not come then is waited for as before. (The word of a reader
 * says first that it sleeps, and it does not: one that is awake for nothing would soon say so again.) */
Test(moment_channel, who_sleeps_is_woken_before_the_stream_is_told) {
    core_waiter waiter;
    channel *of;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    stream = stream_gate_stream();
    check_ok(open_reader());
    check_ok(channel_acquire(channel_case_channel, &of));
    watched = &of->readers[0];
    channel_write(watched->page, CHANNEL_READER_SLEEPS, 1);
    gpuipc_frame frame = channel_case_loan();
    is_rung = false;
    moment_at(MOMENT_WRITE, 1, note_bell_and_fail);
    check_status(GPUIPC_ERR_OUT_OF_MEMORY,
                 gpuipc_channel_publish(channel_case_channel, &frame, stream));
    moment_over();
    cr_assert(is_rung);
    core_waiter_begin(&waiter, take_one, reader);
    while (channel_read(watched->page, CHANNEL_READER_SLEEPS) != 1) { /* it is about to sleep */
    }
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, stream));
    check_ok(core_waiter_end(&waiter));
    check_ok(gpuipc_subscription_close(reader));
    object_unreference(&of->object);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* And before the driver is asked about the stream, which takes its time as well. */
Test(moment_channel, and_before_the_driver_is_asked_about_the_stream) {
    channel *of;
    stream_gate_make();
    stream = stream_gate_stream();
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    check_ok(open_reader());
    check_ok(channel_acquire(channel_case_channel, &of));
    const gpuipc_frame frame = channel_case_loan();
    channel_write(of->readers[0].page, CHANNEL_READER_SLEEPS, 1);
    core_set_captured(true, stream);
    check_status(GPUIPC_ERR_CUDA, gpuipc_channel_publish(channel_case_channel, &frame, stream));
    core_set_captured(false, NULL);
    cr_assert_eq(channel_read(of->readers[0].page, CHANNEL_READER_SLEEPS), 0);
    check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
    check_ok(gpuipc_subscription_close(reader));
    object_unreference(&of->object);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* The stream may be the writer's as well: what it is given now comes before the word that it would wait for. */
static gpuipc_status find_no_slot(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_channel_loan(channel_case_channel, stream, 0, &frame));
    cr_assert_eq(channel_case_reader().held, 1);
    return GPUIPC_OK;
}

static gpuipc_status find_no_slot_and_fail(void) {
    (void)find_no_slot();
    status_enter("gpuipc_subscription_give_back"); /* the call that this is within */
    return status_fail(GPUIPC_ERR_CUDA, "on purpose");
}

static gpuipc_frame take_on_stream(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_subscription_take(reader, stream, SOON_MS, &frame));
    return frame;
}

static void send_on_stream(void) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_channel_loan(channel_case_channel, stream, SOON_MS, &frame));
    check_ok(gpuipc_channel_publish(channel_case_channel, &frame, stream));
}

/* One stream of both ends, as the default stream is one of all threads. */
Test(moment_channel, a_writer_learns_of_a_release_that_the_stream_has_been_given) {
    stream_gate_make();
    stream = stream_gate_stream();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    check_ok(open_reader());
    for (int i = 0; i < 3; i++) {
        send_on_stream();
        const gpuipc_frame frame = take_on_stream();
        moment_at(MOMENT_WRITE, 1, find_no_slot);
        check_ok(gpuipc_subscription_give_back(reader, &frame, stream));
        moment_over();
        cr_assert_eq(channel_case_reader().held, 0);
    }
    send_on_stream();
    stream_gate_synchronize(stream);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(stream);
    stream_gate_end();
}

Test(moment_channel, a_writer_learns_of_no_release_that_failed) {
    gpuipc_frame next = GPUIPC_FRAME_INIT;
    stream_gate_make();
    stream = stream_gate_stream();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    check_ok(open_reader());
    send_on_stream();
    const gpuipc_frame frame = take_on_stream();
    moment_at(MOMENT_WRITE, 1, find_no_slot_and_fail);
    check_status(GPUIPC_ERR_CUDA, gpuipc_subscription_give_back(reader, &frame, stream));
    moment_over();
    (void)find_no_slot();
    check_status(GPUIPC_ERR_LIMIT, gpuipc_subscription_take(reader, stream, 0, &next));
    check_ok(gpuipc_subscription_give_back(reader, &frame, stream));
    send_on_stream();
    stream_gate_synchronize(stream);
    cr_assert_eq(channel_case_receive(reader), 2);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* ---- what a reader may have ------------------------------------------------------------------------ */

static gpuipc_frame first_of_two = GPUIPC_FRAME_INIT;

static gpuipc_status give_first_back(void) {
    return gpuipc_subscription_give_back(reader, &first_of_two, GPUIPC_NO_STREAM);
}

static void check_greedy(gpuipc_status (*meanwhile)(void), gpuipc_reader_state expected) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    channel *of;
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .max_held = 2});
    reader = channel_case_open(&(gpuipc_subscription_config){.max_held = 2});
    check_ok(channel_acquire(channel_case_channel, &of));
    of->readers[0].max_held =
        1; /* the page then says what a look of the writer's may put together */
    channel_case_send();
    channel_case_send();
    first_of_two = channel_case_take(reader);
    const gpuipc_frame second = channel_case_take(reader);
    of->looked_ns = 0;
    moment_at(MOMENT_LIST_HELD, 2, meanwhile);
    check_ok(gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, SOON_MS, &frame));
    moment_over();
    cr_assert_eq(channel_case_reader().state, expected);
    check_ok(gpuipc_channel_discard(channel_case_channel, &frame));
    (void)second;
    check_ok(gpuipc_subscription_close(reader));
    object_unreference(&of->object);
}

/* A look at its slots, one after the other, finds both the frame that it gives back and the one that it takes for that. */
Test(moment_channel, a_reader_that_gives_one_back_before_it_takes_the_next_is_not_dropped) {
    check_greedy(give_first_back, GPUIPC_READER_ACTIVE);
}

static gpuipc_status do_nothing(void) {
    return GPUIPC_OK;
}

Test(moment_channel, a_reader_that_has_more_than_it_may_is_dropped) {
    check_greedy(do_nothing, GPUIPC_READER_DROPPED);
}

/* The frame stays the next call's. */
Test(moment_channel, a_kernel_that_nobody_could_let_go_gets_no_words) {
    atomic_bool may_run = false;
    kernel_case writes = {.may_run = &may_run};
    kernel_case uses_it = {.count = 0};
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_word word;
    stream_gate_make();
    channel_case_make(&(gpuipc_channel_config){.slots = 1});
    check_ok(open_reader());
    stream = stream_gate_stream();
    CUstream uses = stream_gate_stream();
    const gpuipc_frame made = kernel_case_loan(stream);
    kernel_case_publish(&made, stream, &writes);
    kernel_case_launch(&writes, stream);
    kernel_case_say_written(&made, stream);
    moment_at(MOMENT_WATCH_SLOT, 1, fails);
    check_status(GPUIPC_ERR_OUT_OF_MEMORY,
                 gpuipc_subscription_take_for_kernel(reader, uses, 0, &frame, &word, &word));
    moment_over();
    const gpuipc_frame came = kernel_case_take(reader, uses, &uses_it);
    atomic_store(&may_run, true);
    kernel_case_launch(&uses_it, uses);
    check_ok(gpuipc_subscription_kernel_launched(reader, &came, uses));
    stream_gate_synchronize(uses);
    check_ok(gpuipc_subscription_close(reader));
    stream_gate_stream_end(uses);
    stream_gate_stream_end(stream);
    stream_gate_end();
}

/* ---- a channel ------------------------------------------------------------------------------------ */

/* Nobody finds it, by its ticket or its name. */
Test(moment_channel, a_channel_that_gets_no_handle_is_none) {
    gpuipc_channel *made = NULL;
    gpuipc_ticket given;
    gpuipc_buffer *slots = core_buffer(core_unit, 0);
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = slots,
                                          .slots = 2,
                                          .slot_bytes = CHANNEL_CASE_SLOT,
                                          .name = "frames"};
    moment_at(MOMENT_PUBLISH, 1, fails);
    check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "there is none",
                  gpuipc_channel_create(channel_case_server, &config, &made, &given));
    moment_over();
    cr_assert_null(made);
    check_ok(gpuipc_channel_create(channel_case_server, &config, &made, &given));
    check_ok(gpuipc_channel_destroy(made));
    check_ok(gpuipc_buffer_release(slots));
}

/* ---- what the page says --------------------------------------------------------------------------- */

static uint32_t wrong_at;
static uint64_t wrong_value;

/* The page of the one reader that there is: a writer may write there what it likes. */
static gpuipc_status write_wrong(void) {
    object *found;
    check_ok(object_acquire(OBJECT_CHANNEL, channel_case_channel, &found));
    channel_write(((channel *)found)->readers[0].page, wrong_at, wrong_value);
    object_unreference(found);
    return GPUIPC_OK;
}

Test(moment_channel, a_page_that_says_what_cannot_be_is_refused) {
    static const struct {
        gpuipc_status expected;
        uint32_t at;
        uint64_t value;
    } rows[] = {{GPUIPC_ERR_PROTOCOL, CHANNEL_MAGIC_WORD, 0},
                {GPUIPC_ERR_PROTOCOL, CHANNEL_MAGIC_WORD, CHANNEL_TURNS_MAGIC},
                {GPUIPC_ERR_PROTOCOL, CHANNEL_SLOTS, 0},
                {GPUIPC_ERR_PROTOCOL, CHANNEL_SLOTS, GPUIPC_CHANNEL_SLOTS_MAX + 1},
                {GPUIPC_ERR_PROTOCOL, CHANNEL_SLOT_BYTES, 0},
                {GPUIPC_ERR_PROTOCOL, CHANNEL_HEADER_BYTES, GPUIPC_FRAME_HEADER_MAX + 1},
                {GPUIPC_ERR_OUT_OF_RANGE, CHANNEL_SLOT_BYTES, UINT64_MAX},
                {GPUIPC_ERR_OUT_OF_RANGE, CHANNEL_SLOTS, 3}};
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .max_readers = 1});
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        wrong_at = rows[i].at;
        wrong_value = rows[i].value;
        reader = NULL;
        moment_at(MOMENT_TRAIL, 1, write_wrong);
        check_status(rows[i].expected, open_reader());
        moment_over();
        cr_assert_null(reader);
        cr_assert_eq(channel_case_reader().state, GPUIPC_READER_CLOSED);
    }
    check_ok(open_reader());
    check_ok(gpuipc_subscription_close(reader));
}

/* ---- another driver ------------------------------------------------------------------------------- */

/* Memory of this process, which the other driver does not know as such: it asks the server as another process would. */
Test(moment_channel, a_context_of_another_driver_reads_as_another_process_does) {
    gpuipc_context *other = NULL;
    gpuipc_context_config by_path = core_context_config();
    by_path.driver = os_library_path(core_driver()->library);
    channel_case_make(&(gpuipc_channel_config){.slots = 2});
    check_ok(gpuipc_context_create(&by_path, &other));
    core_set_failures("");
    check_ok(gpuipc_subscription_open(other, &channel_case_ticket, NULL, &reader));
    cr_assert_eq(core_calls("cuMemImportFromShareableHandle"), 1);
    channel_case_send();
    cr_assert_eq(channel_case_receive(reader), 1);
    check_ok(gpuipc_subscription_close(reader));
    check_ok(gpuipc_context_destroy(other));
}

/* ---- a turn that is waited for -------------------------------------------------------------------- */

/* The streams are too far behind, and when the call looks again there is no channel. */
static gpuipc_status has_no_room(void) {
    moment_at(MOMENT_TRY_LOCK, 1, destroy_channel);
    return GPUIPC_ERR_TIMEOUT;
}

Test(moment_channel, a_turn_that_is_waited_for_ends_with_its_channel) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    make_turns(NULL);
    gpuipc_channel *of = channel_case_channel;
    moment_at(MOMENT_TURN, 1, has_no_room);
    check_refused(GPUIPC_ERR_RELEASED, "destroyed meanwhile",
                  gpuipc_channel_loan(of, stream, SOON_MS, &frame));
    end_turns();
}

/* ---- who is asked for a name ---------------------------------------------------------------------- */

static gpuipc_status answer;

static gpuipc_status answers(void) {
    return status_fail(answer, "so it is");
}

/* Whoever had the name has ended, and who has it now is asked a moment later. */
Test(moment_channel, a_name_whose_owner_is_just_gone_is_asked_for_again) {
    static const struct {
        gpuipc_status answer;
        gpuipc_status expected;
    } rows[] = {{GPUIPC_ERR_NOT_FOUND, GPUIPC_OK},
                {GPUIPC_ERR_TICKET_UNKNOWN, GPUIPC_OK},
                {GPUIPC_ERR_TICKET_REVOKED, GPUIPC_OK},
                {GPUIPC_ERR_EXPORTER_GONE, GPUIPC_OK},
                {GPUIPC_ERR_ACCESS_DENIED, GPUIPC_ERR_ACCESS_DENIED}};
    channel_case_make(&(gpuipc_channel_config){.slots = 2, .name = "frames"});
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        answer = rows[i].answer;
        reader = NULL;
        moment_at(MOMENT_ASK, 1, answers);
        check_status(rows[i].expected,
                     gpuipc_subscription_open_named(core_context, "frames", NULL, &reader));
        moment_over();
        cr_assert_eq(reader != NULL, rows[i].expected == GPUIPC_OK);
        check_ok(gpuipc_subscription_close(reader));
    }
}
