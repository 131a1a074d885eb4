/* SPDX-License-Identifier: MIT */
/** @file Memory that is imported once and mapped once, however often it is handed over. */
#include "import_case.h"
#include "memory/buffer.h"

TestSuite(import, .init = core_start_without_context, .fini = import_case_end, .timeout = 60);

static gpuipc_buffer *hand_over(gpuipc_buffer *own) {
    return import_case_hand_over(own, (import_how){0});
}

Test(import, two_hand_overs_are_one_import_and_one_mapping) {
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(3 * core_unit, core_unit);
    core_write_pattern(own, 7);
    core_set_failures("");
    gpuipc_buffer *first = hand_over(own);
    import_case_calls(3, 3, 0, 0);
    gpuipc_buffer *second = hand_over(own);
    import_case_calls(0, 0, 0, 0);
    cr_assert_eq(core_calls("cuMemSetAccess"), 0);
    cr_assert_neq(first, second);
    cr_assert_eq(core_info(first).address, core_info(second).address);
    cr_assert_eq(core_info(second).segment_count, 3);
    import_case_drop(first);
    import_case_calls(0, 0, 0, 0);
    core_check_pattern(second, 7);
    core_set_failures("");
    import_case_drop(second);
    import_case_calls(0, 0, 1, 3);
    import_case_drop(hand_over(own));
    import_case_calls(3, 3, 1, 3);
    import_case_drop(own);
}

Test(import, a_buffer_that_a_message_has_twice_is_imported_once) {
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(2 * core_unit, core_unit);
    gpuipc_buffer *const both[] = {own, own};
    gpuipc_buffer *opened[2];
    core_set_failures("");
    check_ok(core_send(import_pair.client, both, 2));
    check_ok(core_receive(import_pair.server, opened, 2));
    import_case_calls(2, 2, 0, 0);
    import_case_drop(opened[1]);
    import_case_calls(0, 0, 0, 0);
    import_case_drop(opened[0]);
    import_case_calls(0, 0, 1, 2);
    import_case_drop(own);
}

Test(import, each_device_and_access_has_a_mapping_of_its_own) {
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    const import_how ways[] = {{0, GPUIPC_ACCESS_READ_WRITE, 0},
                               {0, GPUIPC_ACCESS_READ, 0},
                               {GPUIPC_DEVICE(1), GPUIPC_ACCESS_READ_WRITE, 0}};
    gpuipc_buffer *opened[6];
    for (size_t i = 0; i < 3; i++) {
        core_set_failures("");
        opened[i] = import_case_hand_over(own, ways[i]);
        import_case_calls(i == 0, 1, 0, 0);
        opened[3 + i] = import_case_hand_over(own, ways[i]);
        import_case_calls(0, 0, 0, 0);
        cr_assert_eq(core_info(opened[i]).address, core_info(opened[3 + i]).address);
        cr_assert_eq(core_info(opened[i]).access, ways[i].access);
    }
    cr_assert_neq(core_info(opened[0]).address, core_info(opened[1]).address);
    cr_assert_neq(core_info(opened[0]).address, core_info(opened[2]).address);
    for (size_t i = 0; i < 3; i++) {
        import_case_drop(opened[3 + i]);
        import_case_calls(0, 0, 0, 0);
        import_case_drop(opened[i]);
        import_case_calls(0, 0, 1, i == 2); /* the memory itself with the last mapping */
    }
    import_case_drop(own);
}

Test(import, whether_one_device_reaches_another_is_asked_once) {
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    core_set_failures("");
    for (size_t i = 0; i < 3; i++) {
        import_case_drop(import_case_hand_over(own, (import_how){.device = GPUIPC_DEVICE(1)}));
    }
    cr_assert_eq(core_calls("cuDeviceCanAccessPeer"), 1);
    import_case_drop(own);
}

Test(import, what_comes_over_another_connection_is_other_memory) {
    import_case_begin(0);
    core_pair other;
    core_pair_open(&other, core_context, core_context);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    gpuipc_buffer *second = NULL;
    core_set_failures("");
    gpuipc_buffer *first = hand_over(own);
    import_case_calls(1, 1, 0, 0);
    check_ok(core_send(other.client, &own, 1));
    check_ok(core_receive(other.server, &second, 1));
    import_case_calls(1, 1, 0, 0);
    import_case_drop(first);
    import_case_drop(second);
    import_case_drop(own);
    core_pair_close(&other);
}

Test(import, access_is_changed_for_all_who_share_a_mapping_and_for_nobody_else) {
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    gpuipc_buffer *first = hand_over(own);
    gpuipc_buffer *second = hand_over(own);
    check_ok(gpuipc_buffer_set_access(first, 0, GPUIPC_ACCESS_READ));
    cr_assert_eq(core_info(second).access, GPUIPC_ACCESS_READ);
    check_status(GPUIPC_ERR_ACCESS_DENIED, gpuipc_buffer_fill_async(second, 0, 4, 0, 1, NULL));
    core_set_failures("");
    gpuipc_buffer *third = hand_over(own); /* wants to write, so it does not share that one */
    import_case_calls(0, 1, 0, 0);
    cr_assert_eq(core_info(third).access, GPUIPC_ACCESS_READ_WRITE);
    gpuipc_buffer *fourth = import_case_hand_over(own, (import_how){.access = GPUIPC_ACCESS_READ});
    import_case_calls(0, 0, 0, 0);
    cr_assert_eq(core_info(fourth).address, core_info(first).address);
    import_case_drop(first);
    import_case_drop(second);
    import_case_drop(third);
    import_case_drop(fourth);
    import_case_drop(own);
}

Test(import, handles_are_kept_for_the_buffers_that_ask_for_it) {
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(2 * core_unit, core_unit);
    gpuipc_buffer *without = hand_over(own);
    gpuipc_buffer *with =
        import_case_hand_over(own, (import_how){.flags = GPUIPC_RECEIVE_KEEP_HANDLES});
    gpuipc_buffer *again =
        import_case_hand_over(own, (import_how){.flags = GPUIPC_RECEIVE_KEEP_HANDLES});
    gpuipc_buffer *home = NULL;
    check_status(GPUIPC_ERR_NOT_SHAREABLE, core_send(import_pair.client, &without, 1));
    import_case_drop(without);
    import_case_drop(again);
    check_ok(core_send(import_pair.server, &with, 1));
    check_ok(core_receive(import_pair.client, &home, 1));
    import_case_drop(home);
    import_case_drop(with);
    import_case_drop(own);
}

Test(import, native_handles_have_no_name_and_are_imported_each_time) {
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    gpuipc_native_segment exported;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    gpuipc_buffer *opened[2];
    check_ok(gpuipc_native_export(own, &exported, 1, &layout, &count));
    for (size_t i = 0; i < 2; i++) {
        core_set_failures("");
        check_ok(gpuipc_native_import(core_context, &exported, 1, &layout, 0, GPUIPC_ACCESS_DEFAULT,
                                      &opened[i]));
        import_case_calls(1, 1, 0, 0);
    }
    os_handle mine = {exported.handle.value};
    check_ok(os_handle_adopt(exported.handle.value, &mine));
    os_handle_close(&mine);
    import_case_drop(opened[0]);
    import_case_drop(opened[1]);
    import_case_drop(own);
}

Test(import, what_fails_leaves_nothing_and_the_next_hand_over_works) {
    static const char *const failures[] = {"cuMemImportFromShareableHandle:1=999",
                                           "cuMemImportFromShareableHandle:2=999",
                                           "cuMemAddressReserve:1=999",
                                           "cuMemMap:2=999",
                                           "cuMemSetAccess:1=999",
                                           "cuDeviceCanAccessPeer:1=999"};
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(2 * core_unit, core_unit);
    gpuipc_buffer *opened = NULL;
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        const import_how wanted = {.device = GPUIPC_DEVICE(i == 5 ? 1 : 0)};
        check_ok(core_send(import_pair.client, &own, 1));
        core_set_failures(failures[i]);
        check_status(i < 2 ? GPUIPC_ERR_NOT_GPU_MEMORY : GPUIPC_ERR_CUDA,
                     import_case_receive(import_pair.server, wanted, &opened));
        core_set_failures("");
        cr_assert_eq(import_case_context()->imports->by_buffer.count, 0, "%s", failures[i]);
        import_case_drop(hand_over(own));
        import_case_calls(2, 2, 1, 2);
    }
    /* And of memory that is open already. */
    opened = hand_over(own);
    core_set_failures("cuMemSetAccess:1=999");
    gpuipc_buffer *none = NULL;
    check_ok(core_send(import_pair.client, &own, 1));
    check_status(
        GPUIPC_ERR_CUDA,
        import_case_receive(import_pair.server, (import_how){.access = GPUIPC_ACCESS_READ}, &none));
    import_case_calls(0, 2, 1, 0);
    import_case_drop(opened);
    import_case_calls(0, 0, 1, 2);
    import_case_drop(own);
}

/* The message is dropped, the connection goes on. */
Test(import, a_buffer_that_changes_its_size_costs_its_message) {
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    gpuipc_buffer *larger = core_buffer(2 * core_unit, 0);
    gpuipc_buffer *none = NULL;
    buffer *inside;
    gpuipc_buffer *opened = hand_over(own);
    check_ok(buffer_acquire(larger, &inside));
    const uint64_t own_id = inside->buffer_id;
    inside->buffer_id = core_info(own).buffer_id;
    check_ok(core_send(import_pair.client, &larger, 1));
    inside->buffer_id = own_id;
    buffer_unreference(inside);
    check_status(GPUIPC_ERR_SIZE_MISMATCH, core_receive(import_pair.server, &none, 1));
    import_case_drop(hand_over(larger));
    import_case_drop(opened);
    import_case_drop(own);
    import_case_drop(larger);
}

enum {
    OPENED = 64
};

/* What one thread has received and another releases. */
static gpuipc_buffer *passed_on[OPENED];
static atomic_uint passed_count;

static gpuipc_status release_all(void *argument) {
    gpuipc_status status = GPUIPC_OK;
    (void)argument;
    for (unsigned i = 0; i < OPENED && status == GPUIPC_OK;) {
        if (i < atomic_load(&passed_count)) {
            status = gpuipc_buffer_release(passed_on[i++]);
        }
    }
    return status;
}

Test(import, one_thread_opens_while_another_releases) {
    import_case_begin(0);
    gpuipc_buffer *own = core_buffer(core_unit, 0);
    core_waiter thread;
    core_waiter_begin(&thread, release_all, NULL);
    for (unsigned i = 0; i < OPENED; i++) {
        passed_on[i] = import_case_hand_over(
            own, (import_how){.access = i % 3 == 0 ? GPUIPC_ACCESS_READ : GPUIPC_ACCESS_DEFAULT});
        atomic_store(&passed_count, i + 1);
    }
    cr_assert_eq(core_waiter_end(&thread), GPUIPC_OK);
    cr_assert_eq(import_case_context()->imports->by_buffer.count, 0);
    import_case_drop(own);
}
