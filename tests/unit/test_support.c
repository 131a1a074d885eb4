/* SPDX-License-Identifier: MIT */
/** @file The tests' own tools: the leak gate finds what is planted, helpers do as they are told. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "child.h"
#include "cuda/cuda_api.h"
#include "leak_gate.h"
#include "thread_state.h"
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
    char expected[32];
    leak_gate_begin(&gate);
    check_ok(os_memory_create("planted-handle", 4096, &handle));
    cr_assert_eq(leak_gate_end(&gate), 1, "%s", gate.text);
    snprintf(expected, sizeof(expected), " %" PRIdPTR ": ", handle.value);
    cr_assert(strstr(gate.text, expected) != NULL, "%s", gate.text);
    os_handle_close(&handle);
}

Test(support, the_gate_takes_no_more_handles_than_it_may) {
    leak_gate gate;
    os_handle handles[2];
    leak_gate_begin(&gate);
    for (int i = 0; i < 2; i++) {
        check_ok(os_memory_create("taken", 4096, &handles[i]));
    }
    leak_gate_take_handles(&gate, 2);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
    leak_gate_begin(&gate);
    os_handle copies[2];
    for (int i = 0; i < 2; i++) {
        check_ok(os_handle_duplicate(handles[i], &copies[i]));
    }
    leak_gate_take_handles(&gate, 1);
    cr_assert_eq(leak_gate_end(&gate), 1, "%s", gate.text);
    cr_assert(strstr(gate.text, "more handles") != NULL, "%s", gate.text);
    for (int i = 0; i < 2; i++) {
        os_handle_close(&handles[i]);
        os_handle_close(&copies[i]);
    }
}

Test(support, the_gate_finds_a_planted_mapping) {
    leak_gate gate;
    os_handle handle;
    void *address;
    char expected[32];
    leak_gate_begin(&gate);
    check_ok(os_memory_create("planted-mapping", 4096, &handle));
    check_ok(os_memory_map(handle, 4096, true, &address));
    os_handle_close(&handle);
    cr_assert_eq(leak_gate_end(&gate), 1, "%s", gate.text);
    snprintf(expected, sizeof(expected), "mapping %08" PRIxPTR "-", (uintptr_t)address);
    cr_assert(strstr(gate.text, expected) != NULL, "%s", gate.text);
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
    cr_assert_neq(end.code, 0);
    child_kill(helper);
    check_status(GPUIPC_ERR_PEER_CLOSED, child_write_line(helper, "nobody reads this"));
    child_destroy(helper);
    child_destroy(NULL);
}

Test(support, a_helper_gets_its_arguments_as_they_are) {
    static const char *const arguments[][6] = {
        {"arguments", "plain", "", "two words", "tab\tand 'single'", NULL},
        {"arguments", "\"", "\"quoted\"", "a\"b", "\\\"", NULL},
        {"arguments", "\\", "C:\\folder\\", "\\\\server\\two words\\", "\\\\\"x\\\\", NULL},
        {"arguments", "%PATH%", "$HOME", "*.c", "&|<>^;", NULL},
    };
    for (size_t i = 0; i < sizeof(arguments) / sizeof(arguments[0]); i++) {
        child_process *helper;
        child_end end;
        char line[CHILD_LINE_MAX];
        check_ok(child_start("unit_helper", arguments[i], NULL, &helper));
        for (size_t j = 1; j < 5; j++) {
            cr_assert(child_expect_line(helper, arguments[i][j], line, 20000), "%s: %s",
                      arguments[i][j], line);
        }
        check_ok(child_wait(helper, 20000, &end));
        cr_assert(end.exited && end.code == 0);
        child_destroy(helper);
    }
}

static void check_environment(const char *name, const char *const *changes, const char *expected) {
    const char *const arguments[] = {"environment", name, NULL};
    child_process *helper;
    char line[CHILD_LINE_MAX];
    char process_id[32];
    check_ok(child_start("unit_helper", arguments, changes, &helper));
    snprintf(process_id, sizeof(process_id), "%" PRIu64, child_process_id(helper));
    cr_assert(child_expect_line(helper, process_id, line, 20000), "%s", line);
    cr_assert(child_expect_line(helper, expected, line, 20000), "%s", line);
    child_destroy(helper);
}

Test(support, a_helper_gets_the_environment_with_the_changes) {
    static const char *const set[] = {"GPUIPC_TEST_A=1=2", "GPUIPC_CUDA_DRIVER",
                                      "GPUIPC_TEST_B=", NULL};
    static const char *const twice[] = {"GPUIPC_CUDA_DRIVER=other", NULL};
    /* CTest sets it for this program; who starts that by hand may not have it. */
    const char *driver = os_environment("GPUIPC_CUDA_DRIVER");
    check_environment("GPUIPC_CUDA_DRIVER", NULL, driver != NULL ? driver : "(none)");
    check_environment("GPUIPC_CUDA_DRIVER", set, "(none)");
    check_environment("GPUIPC_CUDA_DRIVER", twice, "other");
    check_environment("GPUIPC_TEST_A", set, "1=2");
    check_environment("GPUIPC_TEST_A", NULL, "(none)");
}

Test(support, a_helper_that_is_stopped_says_nothing_until_it_may_go_on) {
    static const char *const arguments[] = {"echo", NULL};
    child_process *helper;
    char line[CHILD_LINE_MAX];
    check_ok(child_start("unit_helper", arguments, NULL, &helper));
    check_ok(child_write_line(helper, "first"));
    cr_assert(child_expect_line(helper, "first", line, 20000), "%s", line);
    child_stop(helper);
    child_stop(helper);
    check_ok(child_write_line(helper, "second"));
    check_status(GPUIPC_ERR_TIMEOUT, child_read_line(helper, line, sizeof(line), 100));
    child_continue(helper);
    cr_assert(child_expect_line(helper, "second", line, 20000), "%s", line);
    child_stop(helper);
    child_destroy(helper);
}

Test(support, a_helper_dies_with_the_one_that_started_it) {
    char path[RUNTIME_DIRECTORY_MAX];
    char name[UNIQUE_NAME_MAX];
    char line[CHILD_LINE_MAX];
    cr_assert(runtime_directory_make(path));
    unique_name(name);
    const char *const arguments[] = {"start", path, name, NULL};
    os_directory directory = {path, false};
    os_listener *listener;
    os_connection *connection;
    child_process *helper;
    child_end end;
    char byte;
    size_t size;
    size_t count;
    static os_handle handles[OS_PACKET_HANDLES_MAX];
    check_ok(os_listener_open(&directory, name, NULL, &listener));
    check_ok(child_start("unit_helper", arguments, NULL, &helper));
    cr_assert(child_expect_line(helper, "GPUIPC_OK", line, 20000), "%s", line);
    check_ok(os_listener_accept(listener, os_deadline_after(20000), &connection));
    check_status(GPUIPC_ERR_TIMEOUT, os_connection_receive(connection, &byte, 1, &size, handles,
                                                           &count, os_deadline_after(0)));
    /* Waited for, but not destroyed: what takes its helper with it is its end alone. */
    child_kill(helper);
    check_ok(child_wait(helper, 20000, &end));
    check_status(GPUIPC_ERR_PEER_CLOSED, os_connection_receive(connection, &byte, 1, &size, handles,
                                                               &count, os_deadline_after(20000)));
    child_destroy(helper);
    os_connection_destroy(connection);
    os_listener_destroy(listener);
    runtime_directory_remove(path);
}

/** A thread that waits until it may end, either asleep or not. */
typedef struct waiter {
    os_mutex mutex;
    os_condition condition;
    atomic_ullong number;
    atomic_bool may_end;
} waiter;

static void wait_asleep(void *argument) {
    waiter *own = argument;
    os_mutex_lock(&own->mutex);
    atomic_store(&own->number, thread_state_own_number());
    while (!atomic_load(&own->may_end)) {
        os_condition_wait(&own->condition, &own->mutex, os_deadline_after(-1));
    }
    os_mutex_unlock(&own->mutex);
}

static void wait_awake(void *argument) {
    waiter *own = argument;
    atomic_store(&own->number, thread_state_own_number());
    while (!atomic_load(&own->may_end)) {
    }
}

static bool is_seen_asleep(void (*run)(void *), int timeout_ms) {
    waiter own = {.number = 0};
    os_thread *thread;
    check_ok(os_condition_init(&own.condition));
    check_ok(os_thread_start(run, &own, &thread));
    while (atomic_load(&own.number) == 0) {
        os_sleep_ms(1);
    }
    bool asleep = thread_state_wait_asleep(atomic_load(&own.number), timeout_ms);
    os_mutex_lock(&own.mutex);
    atomic_store(&own.may_end, true);
    os_condition_signal_all(&own.condition);
    os_mutex_unlock(&own.mutex);
    os_thread_join(thread);
    os_condition_destroy(&own.condition);
    return asleep;
}

Test(support, a_thread_that_sleeps_is_seen_and_one_that_runs_is_not) {
    leak_gate gate;
    leak_gate_begin(&gate);
    cr_assert(is_seen_asleep(wait_asleep, 20000));
    cr_assert_not(is_seen_asleep(wait_awake, 50));
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(support, a_runtime_directory_is_removed_with_what_is_in_it) {
    char path[RUNTIME_DIRECTORY_MAX];
    char other[RUNTIME_DIRECTORY_MAX];
    char file[RUNTIME_DIRECTORY_MAX + 8];
    cr_assert(runtime_directory_make(path));
    cr_assert(runtime_directory_make(other));
    cr_assert_str_neq(path, other);
    snprintf(file, sizeof(file), "%s/file", path);
    FILE *made = fopen(file, "w");
    cr_assert_not_null(made);
    fclose(made);
    runtime_directory_remove(path);
    runtime_directory_remove(other);
    cr_assert_null(fopen(file, "w"));
}

Test(support, a_program_that_is_not_there_does_not_start) {
    leak_gate gate;
    leak_gate_begin(&gate);
    child_process *helper = NULL;
    check_status(GPUIPC_ERR_OS, child_start("no_such_helper", NULL, NULL, &helper));
    cr_assert_null(helper);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}
