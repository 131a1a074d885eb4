/* SPDX-License-Identifier: MIT */
/** @file Handles: adopted, duplicated, given up, closed. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "os.h"

TestSuite(os_handle, .timeout = 30);

/** A handle that is open but not the library's. */
static intptr_t native_make(void) {
    os_handle handle;
    check_ok(os_memory_create("native", 4096, &handle));
    return os_handle_give_up(&handle);
}

static void native_close(intptr_t native) {
    os_handle handle;
    check_ok(os_handle_adopt(native, &handle));
    os_handle_close(&handle);
}

static bool is_open(intptr_t native) {
    os_handle copy;
    if (os_handle_duplicate_native(native, &copy) != GPUIPC_OK) {
        return false;
    }
    os_handle_close(&copy);
    return true;
}

Test(os_handle, none_is_not_valid_and_may_be_closed) {
    os_handle handle = OS_HANDLE_NONE;
    cr_assert_not(os_handle_is_valid(handle));
    os_handle_close(&handle);
    cr_assert_not(os_handle_is_valid(handle));
    cr_assert_eq(os_handle_give_up(&handle), OS_HANDLE_NONE.value);
}

Test(os_handle, adopted_is_closed_with_it) {
    leak_gate gate;
    leak_gate_begin(&gate);
    intptr_t native = native_make();
    os_handle handle;
    check_ok(os_handle_adopt(native, &handle));
    cr_assert(os_handle_is_valid(handle));
    cr_assert_eq(handle.value, native);
    os_handle_close(&handle);
    cr_assert_not(os_handle_is_valid(handle));
    cr_assert_not(is_open(native));
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_handle, what_the_driver_wrote_is_adopted) {
    leak_gate gate;
    leak_gate_begin(&gate);
    intptr_t native = native_make();
    unsigned char written[8] = {0};
    int number = (int)native;
    memcpy(written, &number, sizeof(number));
    os_handle handle;
    check_ok(os_handle_adopt_exported(written, &handle));
    cr_assert_eq(handle.value, native);
    os_handle_close(&handle);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_handle, numbers_that_are_no_handle_are_refused) {
    /* With some compilers a thread's first use of its own memory, here the error record, opens a
     * handle, which could get the number of the one closed below. */
    (void)gpuipc_error_get();
    intptr_t closed = native_make();
    native_close(closed);
    const intptr_t numbers[] = {-1, -7, INTPTR_MIN, closed, INT_MAX, INTPTR_MAX};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        os_handle handle = {77};
        check_status(GPUIPC_ERR_INVALID_ARGUMENT, os_handle_adopt(numbers[i], &handle));
        cr_assert_eq(handle.value, 77, "an output written on failure");
        check_status(GPUIPC_ERR_INVALID_ARGUMENT, os_handle_duplicate_native(numbers[i], &handle));
        check_status(GPUIPC_ERR_INVALID_ARGUMENT,
                     os_handle_duplicate((os_handle){numbers[i]}, &handle));
        cr_assert_eq(handle.value, 77, "an output written on failure");
    }
}

Test(os_handle, a_duplicate_is_another_handle_to_the_same) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_handle first;
    os_handle second;
    check_ok(os_memory_create("same", 8192, &first));
    check_ok(os_handle_duplicate(first, &second));
    cr_assert_neq(first.value, second.value);
    os_handle_close(&first);
    uint64_t bytes = 0;
    check_ok(os_memory_inspect(second, &bytes));
    cr_assert_eq(bytes, 8192);
    os_handle_close(&second);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_handle, given_up_is_no_longer_the_librarys) {
    os_handle handle;
    check_ok(os_memory_create("given", 4096, &handle));
    os_handle again = handle;
    intptr_t native = os_handle_give_up(&handle);
    cr_assert_not(os_handle_is_valid(handle));
    cr_assert_eq(native, again.value);
    /* A stale copy of the handle cannot close what is somebody else's now. */
    os_handle_close(&again);
    cr_assert(is_open(native));
    native_close(native);
}

Test(os_handle, closed_twice_closes_nobody_elses) {
    os_handle handle;
    check_ok(os_memory_create("one", 4096, &handle));
    os_handle stale = handle;
    os_handle_close(&handle);
    /* The system gives the lowest free number, so this has the number of the one just closed. */
    intptr_t native = native_make();
    cr_assert_eq(native, stale.value);
    os_handle_close(&stale);
    cr_assert(is_open(native));
    native_close(native);
}

Test(os_handle, many_at_once) {
    enum {
        COUNT = 600
    };
    static os_handle handles[COUNT];
    leak_gate gate;
    leak_gate_begin(&gate);
    os_handle first;
    check_ok(os_memory_create("many", 4096, &first));
    for (size_t i = 0; i < COUNT; i++) {
        check_ok(os_handle_duplicate(first, &handles[i]));
    }
    for (size_t i = 0; i < COUNT; i++) {
        os_handle_close(&handles[i]);
    }
    os_handle_close(&first);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}
