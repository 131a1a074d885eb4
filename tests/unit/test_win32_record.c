/* SPDX-License-Identifier: MIT */
/** @file The recorder itself: what it notes is what was asked, and its orders are followed. */
#include "check.h"
#include "leak_gate.h"
#include "os_pair.h"
#include "win32_raw.h"
#include "win32_record.h"

TestSuite(win32_record, .timeout = 60);

Test(win32_record, notes_calls_of_the_library_with_arguments_and_result) {
    os_handle event;
    record_begin();
    check_ok(win32_event_make(&event));
    os_handle_close(&event);
    record_end();
    const record_call *made = record_at(RECORD_CreateEventW, 0);
    const record_call *closed = record_at(RECORD_CloseHandle, 0);
    cr_assert_eq(record_count(RECORD_CreateEventW), 1);
    cr_assert_eq(made->arguments[0], 0);
    cr_assert_eq(made->arguments[1], TRUE);
    cr_assert_eq(made->arguments[2], FALSE);
    cr_assert_eq(made->arguments[3], 0);
    cr_assert_neq(made->result, 0);
    cr_assert_not(record_has_failed(made));
    cr_assert_eq(closed->arguments[0], made->result);
    cr_assert_eq(record_bad_closes(), 0);
}

Test(win32_record, notes_nothing_before_the_begin_and_after_the_end) {
    os_handle event;
    check_ok(win32_event_make(&event));
    os_handle_close(&event);
    cr_assert_eq(record_count(RECORD_CreateEventW), 0);
    record_begin();
    record_fail(RECORD_CreateEventW, 0, ERROR_NO_SYSTEM_RESOURCES);
    record_end();
    check_ok(win32_event_make(&event));
    os_handle_close(&event);
    cr_assert_eq(record_count(RECORD_CreateEventW), 0);
}

Test(win32_record, every_function_that_is_listed_is_stood_for) {
    os_pair pair;
    os_peer peer;
    os_handle memory;
    os_handle came[OS_PACKET_HANDLES_MAX];
    char byte;
    size_t size;
    size_t count;
    leak_gate gate;
    leak_gate_begin(&gate);
    record_begin();
    os_pair_open(&pair);
    check_ok(os_connection_get_peer(pair.client, &peer));
    os_peer_close(&peer);
    check_ok(os_memory_create("test", 4096, &memory));
    check_ok(os_connection_send(pair.client, "x", 1, &memory, 1, os_deadline_after(SOON_MS)));
    check_ok(os_connection_receive(pair.server, &byte, 1, &size, came, &count,
                                   os_deadline_after(SOON_MS)));
    os_handle_close(&came[0]);
    check_ok(os_connection_get_peer(pair.server, &peer));
    os_peer_close(&peer);
    os_handle_close(&memory);
    os_pair_close(&pair);
    record_end();
    for (int i = 0; i < RECORD_FUNCTIONS; i++) {
        cr_assert_gt(record_count((record_function)i), 0, "%s", record_name((record_function)i));
    }
    cr_assert_eq(record_bad_closes(), 0);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_record, the_call_that_was_ordered_fails_and_no_other) {
    os_handle events[3];
    record_begin();
    record_fail(RECORD_CreateEventW, 2, ERROR_TOO_MANY_OPEN_FILES);
    check_ok(win32_event_make(&events[0]));
    check_status(GPUIPC_ERR_TOO_MANY_HANDLES, win32_event_make(&events[1]));
    cr_assert_eq(gpuipc_error_get()->native_code, ERROR_TOO_MANY_OPEN_FILES);
    check_ok(win32_event_make(&events[2]));
    record_end();
    cr_assert_not(record_has_failed(record_at(RECORD_CreateEventW, 0)));
    cr_assert(record_has_failed(record_at(RECORD_CreateEventW, 1)));
    cr_assert_not(record_has_failed(record_at(RECORD_CreateEventW, 2)));
    os_handle_close(&events[0]);
    os_handle_close(&events[2]);
}

static bool answer_with_argument(void *user_data, record_call *call, size_t number) {
    size_t *wanted = user_data;
    if (number != *wanted) {
        return false;
    }
    *(BOOL *)call->arguments[1] = TRUE;
    call->result = TRUE;
    return true;
}

Test(win32_record, a_hook_answers_instead_of_the_system) {
    BOOL is_32_bit = 7;
    size_t second = 2;
    record_begin();
    record_answer(RECORD_IsWow64Process, answer_with_argument, &second);
    cr_assert(IsWow64Process(GetCurrentProcess(), &is_32_bit));
    cr_assert_eq(is_32_bit, FALSE);
    cr_assert(IsWow64Process(GetCurrentProcess(), &is_32_bit));
    cr_assert_eq(is_32_bit, TRUE);
    record_end();
    cr_assert_eq(record_count(RECORD_IsWow64Process), 2);
}

static void make_many(void *argument) {
    (void)argument;
    for (int i = 0; i < 100; i++) {
        os_handle event;
        check_ok(win32_event_make(&event));
        os_handle_close(&event);
    }
}

Test(win32_record, several_threads_lose_no_call) {
    os_thread *threads[4];
    record_begin();
    for (size_t i = 0; i < 4; i++) {
        check_ok(os_thread_start(make_many, NULL, &threads[i]));
    }
    for (size_t i = 0; i < 4; i++) {
        os_thread_join(threads[i]);
    }
    record_end();
    cr_assert_eq(record_count(RECORD_CreateEventW), 400);
    cr_assert_eq(record_bad_closes(), 0);
}
