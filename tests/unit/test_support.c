/* SPDX-License-Identifier: MIT */
/** @file The tests' own tools: the leak gate finds what is planted, helpers do as they are told. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "child.h"
#include "cuda_api.h"
#include "leak_gate.h"
#include "unique.h"

TestSuite(support, .timeout = 60);

Test(support, the_gate_is_silent_when_nothing_is_left) {
    leak_gate gate;
    os_handle handle;
    void *address;
    leak_gate_begin(&gate);
    check_ok(os_memory_create("nothing", 4096, &handle));
    check_ok(os_memory_map(handle, 4096, true, &address));
    os_memory_unmap(address, 4096);
    os_handle_close(&handle);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
    cr_assert_str_eq(gate.text, "");
}

Test(support, the_gate_finds_a_planted_handle) {
    leak_gate gate;
    os_handle handle;
    leak_gate_begin(&gate);
    check_ok(os_memory_create("planted-handle", 4096, &handle));
    cr_assert_eq(leak_gate_end(&gate), 1, "%s", gate.text);
    cr_assert(strstr(gate.text, "planted-handle") != NULL, "%s", gate.text);
    os_handle_close(&handle);
}

Test(support, the_gate_finds_a_planted_mapping) {
    leak_gate gate;
    os_handle handle;
    void *address;
    leak_gate_begin(&gate);
    check_ok(os_memory_create("planted-mapping", 4096, &handle));
    check_ok(os_memory_map(handle, 4096, true, &address));
    os_handle_close(&handle);
    cr_assert_eq(leak_gate_end(&gate), 1, "%s", gate.text);
    cr_assert(strstr(gate.text, "planted-mapping") != NULL, "%s", gate.text);
    os_memory_unmap(address, 4096);
}

Test(support, the_gate_finds_a_planted_object_of_the_emulated_driver) {
    os_library *driver;
    CUresult (*init)(unsigned);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*release)(CUdeviceptr, size_t);
    const size_t size = 2u << 20;
    CUdeviceptr address = 0;
    leak_gate gate;
    check_ok(os_library_open_own(os_emulated_driver_name, &driver));
    void *symbols[] = {os_library_symbol(driver, "cuInit"),
                       os_library_symbol(driver, "cuMemAddressReserve"),
                       os_library_symbol(driver, "cuMemAddressFree")};
    memcpy(&init, &symbols[0], sizeof(symbols[0]));
    memcpy(&reserve, &symbols[1], sizeof(symbols[1]));
    memcpy(&release, &symbols[2], sizeof(symbols[2]));
    cr_assert_eq(init(0), CUDA_SUCCESS);
    leak_gate_begin(&gate);
    cr_assert_eq(reserve(&address, size, 0, 0, 0), CUDA_SUCCESS);
    cr_assert_eq(leak_gate_end(&gate), 1, "%s", gate.text);
    cr_assert(strstr(gate.text, "1 reservations") != NULL, "%s", gate.text);
    leak_gate_begin(&gate);
    cr_assert_eq(release(address, size), CUDA_SUCCESS);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
    os_library_close(driver);
}

Test(support, names_are_not_given_twice) {
    char names[50][UNIQUE_NAME_MAX];
    for (size_t i = 0; i < 50; i++) {
        unique_name(names[i]);
        cr_assert_eq(strspn(names[i], "abcdefghijklmnopqrstuvwxyz0123456789-"), strlen(names[i]));
        for (size_t j = 0; j < i; j++) {
            cr_assert_str_neq(names[i], names[j]);
        }
    }
}

Test(support, a_helper_answers_and_its_end_is_seen) {
    leak_gate gate;
    leak_gate_begin(&gate);
    static const char *const arguments[] = {"echo", NULL};
    child_process *helper;
    child_end end;
    char line[CHILD_LINE_MAX];
    check_ok(child_start("unit_helper", arguments, NULL, &helper));
    for (int i = 0; i < 100; i++) {
        char said[64];
        snprintf(said, sizeof(said), "line %d", i);
        check_ok(child_write_line(helper, said));
        cr_assert(child_expect_line(helper, said, line, 20000), "%s", line);
    }
    check_status(GPUIPC_ERR_TIMEOUT, child_read_line(helper, line, sizeof(line), 10));
    check_status(GPUIPC_ERR_TIMEOUT, child_wait(helper, 0, &end));
    check_ok(child_write_line(helper, "last"));
    child_close_input(helper);
    check_status(GPUIPC_ERR_PEER_CLOSED, child_write_line(helper, "too late"));
    cr_assert(child_expect_line(helper, "last", line, 20000), "%s", line);
    check_status(GPUIPC_ERR_PEER_CLOSED, child_read_line(helper, line, sizeof(line), 20000));
    for (int i = 0; i < 2; i++) {
        check_ok(child_wait(helper, 20000, &end));
        cr_assert(end.exited);
        cr_assert_eq(end.code, 7);
    }
    child_destroy(helper);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(support, a_helper_that_is_killed_has_not_exited) {
    static const char *const arguments[] = {"echo", NULL};
    child_process *helper;
    child_end end;
    check_ok(child_start("unit_helper", arguments, NULL, &helper));
    child_kill(helper);
    check_ok(child_wait(helper, 20000, &end));
    cr_assert_not(end.exited);
    child_kill(helper);
    check_status(GPUIPC_ERR_PEER_CLOSED, child_write_line(helper, "nobody reads this"));
    child_destroy(helper);
    child_destroy(NULL);
}

Test(support, a_program_that_is_not_there_does_not_start) {
    leak_gate gate;
    leak_gate_begin(&gate);
    child_process *helper = NULL;
    check_status(GPUIPC_ERR_OS, child_start("no_such_helper", NULL, NULL, &helper));
    cr_assert_null(helper);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}
