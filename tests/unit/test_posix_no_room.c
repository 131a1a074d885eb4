/* SPDX-License-Identifier: MIT */
/** @file Opening memory while the process has no more addresses (RLIMIT_AS). */
#include "core_fixture.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static void begin(void) {
    core_start();
    core_need_emulated(); /* a real driver's own needs are not known */
}

TestSuite(posix_no_room, .init = begin, .fini = core_finish, .timeout = 60);

static rlim_t address_bytes(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%lu", &pages), 1);
    (void)fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

Test(posix_no_room, an_opening_says_so_and_succeeds_later) {
    gpuipc_buffer *made = core_buffer(core_unit, 0);
    gpuipc_buffer *opened = NULL;
    gpuipc_native_segment segment;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    size_t count = 0;
    os_handle handle;
    struct rlimit before;
    check_ok(gpuipc_native_export(made, &segment, 1, &layout, &count));
    cr_assert_eq(getrlimit(RLIMIT_AS, &before), 0);
    const struct rlimit none = {.rlim_cur = address_bytes(), .rlim_max = before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_AS, &none), 0);
    const gpuipc_status status = gpuipc_native_import(
        core_context, &segment, 1, &layout, GPUIPC_DEVICE_OWNER, GPUIPC_ACCESS_DEFAULT, &opened);
    cr_assert_eq(setrlimit(RLIMIT_AS, &before), 0);
    check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, status);
    check_ok(gpuipc_native_import(core_context, &segment, 1, &layout, GPUIPC_DEVICE_OWNER,
                                  GPUIPC_ACCESS_DEFAULT, &opened));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(os_handle_adopt(segment.handle.value, &handle));
    os_handle_close(&handle);
    check_ok(gpuipc_buffer_release(made));
}
