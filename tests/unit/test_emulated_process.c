/* SPDX-License-Identifier: MIT */
/** @file Two processes and one memory: the handle travels over a connection of os.h, and the other
 *  process is a program of its own (emulated_helper.c). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "child.h"
#include "emulated_test.h"
#include "unique.h"

TestSuite(emulated_process, .timeout = 60);

#define WAIT_MS 20000

typedef struct other {
    char directory[RUNTIME_DIRECTORY_MAX];
    os_listener *listener;
    os_connection *connection;
    child_process *child;
    CUdeviceptr address; /* of the memory here */
    CUmemGenericAllocationHandle handle;
} other;

static void other_say(other *process, const char *line) {
    check_ok(child_write_line(process->child, line));
}

static void other_expect(other *process, const char *line) {
    char got[CHILD_LINE_MAX];
    cr_assert(child_expect_line(process->child, line, got, WAIT_MS), "'%s' instead of '%s'", got,
              line);
}

/* Makes memory here, starts the helper and sends it the handle. */
static void other_start(other *process, const char *const *environment) {
    char name[UNIQUE_NAME_MAX];
    intptr_t written = 0;
    os_handle exported;
    const char byte = 1;
    memset(process, 0, sizeof(*process));
    cr_assert(runtime_directory_make(process->directory));
    const os_directory directory = {process->directory, false};
    unique_name(name);
    check_ok(os_listener_open(&directory, name, NULL, &process->listener));
    const char *const arguments[] = {"import", process->directory, name, NULL};
    check_ok(child_start("emulated_helper", arguments, environment, &process->child));
    check_ok(
        os_listener_accept(process->listener, os_deadline_after(WAIT_MS), &process->connection));
    process->handle = memory_create(0, GRANULE);
    process->address = memory_map(process->handle, GRANULE);
    check_success(memory_allow(process->address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    word_write(process->address, 41);
    check_success(drv.cuMemExportToShareableHandle(
        &written, process->handle, (CUmemAllocationHandleType)os_shareable_handle_type, 0));
    check_ok(os_handle_adopt_exported(&written, &exported));
    check_ok(os_connection_send(process->connection, &byte, 1, &exported, 1,
                                os_deadline_after(WAIT_MS)));
    os_handle_close(&exported);
}

static void other_end(other *process) {
    child_end end;
    child_close_input(process->child);
    check_ok(child_wait(process->child, WAIT_MS, &end));
    cr_assert(end.exited && end.code == 0, "exited %d, code %d", end.exited, end.code);
    child_destroy(process->child);
    os_connection_destroy(process->connection);
    os_listener_destroy(process->listener);
    runtime_directory_remove(process->directory);
    memory_unmake(process->address, GRANULE);
    check_success(drv.cuMemRelease(process->handle));
}

Test(emulated_process, both_see_one_memory) {
    other process;
    emulated_start(NULL);
    other_start(&process, NULL);
    other_expect(&process, "import 0 owner 0 access 0");
    other_say(&process, "read");
    other_expect(&process, "word 41");
    word_write(process.address, 42);
    other_say(&process, "read");
    other_expect(&process, "word 42");
    other_say(&process, "write");
    other_expect(&process, "written");
    cr_assert_eq(word_read(process.address), 4711);
    other_end(&process);
}

/* The other process writes the word with a copy, which knows nothing of the wait. */
Test(emulated_process, a_stream_waits_for_a_word_of_the_other) {
    CUresult (*wait)(CUstream, CUdeviceptr, uint32_t, unsigned);
    other process;
    CUstream stream = NULL;
    emulated_start(NULL);
    emulated_symbol(drv.library, "cuStreamWaitValue32_v2", &wait);
    other_start(&process, NULL);
    other_expect(&process, "import 0 owner 0 access 0");
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_success(wait(stream, process.address, 4711, CU_STREAM_WAIT_VALUE_EQ));
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
    other_say(&process, "write");
    other_expect(&process, "written");
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(word_read(process.address), 4711);
    check_success(drv.cuStreamDestroy(stream));
    other_end(&process);
}

Test(emulated_process, an_imported_allocation_takes_no_memory_there) {
    other process;
    emulated_start(NULL);
    other_start(&process, NULL);
    other_expect(&process, "import 0 owner 0 access 0");
    other_say(&process, "used");
    other_expect(&process, "used 0");
    other_end(&process);
}

Test(emulated_process, the_owner_has_the_importers_number) {
    other process;
    const char *const environment[] = {"CUDA_VISIBLE_DEVICES=1,0", NULL};
    emulated_start(NULL);
    other_start(&process, environment);
    other_expect(&process, "import 0 owner 1 access 0");
    other_say(&process, "read");
    other_expect(&process, "word 41");
    other_end(&process);
}

/* Measured on an H200, driver 580: hidden, but within reach. */
Test(emulated_process, the_owner_may_be_hidden) {
    other process;
    const char *const environment[] = {"CUDA_VISIBLE_DEVICES=1", NULL};
    emulated_start(NULL);
    other_start(&process, environment);
    other_expect(&process, "import 0 owner -2 access 0");
    other_say(&process, "read");
    other_expect(&process, "word 41");
    other_end(&process);
}

Test(emulated_process, a_hidden_owner_out_of_reach_gives_no_access) {
    other process;
    const char *const environment[] = {"CUDA_VISIBLE_DEVICES=1", NULL};
    emulated_start("p2p=none");
    other_start(&process, environment);
    other_expect(&process, "import 0 owner -2 access 101");
    other_end(&process);
}

/* Another machine, as far as UUIDs tell. */
Test(emulated_process, the_owner_may_be_unknown) {
    other process;
    const char *const environment[] = {"GPUIPC_EMULATED_MACHINE=uuid-seed=elsewhere", NULL};
    emulated_start(NULL);
    other_start(&process, environment);
    other_expect(&process, "import 0 owner -2 access 101");
    other_end(&process);
}

Test(emulated_process, memory_outlives_the_exporter) {
    other process;
    char got[CHILD_LINE_MAX];
    const char *const arguments[] = {"export", NULL};
    child_end end;
    emulated_start(NULL);
    cr_assert(runtime_directory_make(process.directory));
    const os_directory directory = {process.directory, false};
    char name[UNIQUE_NAME_MAX];
    unique_name(name);
    check_ok(os_listener_open(&directory, name, NULL, &process.listener));
    const char *const full[] = {arguments[0], process.directory, name, NULL};
    check_ok(child_start("emulated_helper", full, NULL, &process.child));
    check_ok(os_listener_accept(process.listener, os_deadline_after(WAIT_MS), &process.connection));
    cr_assert(child_expect_line(process.child, "sent", got, WAIT_MS), "%s", got);
    child_kill(process.child);
    check_ok(child_wait(process.child, WAIT_MS, &end));
    char byte;
    size_t size = 0;
    size_t count = 0;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    check_ok(os_connection_receive(process.connection, &byte, 1, &size, handles, &count,
                                   os_deadline_after(WAIT_MS)));
    cr_assert_eq(count, 1);
    CUmemGenericAllocationHandle imported = 0;
    check_success(drv.cuMemImportFromShareableHandle(
        &imported, (void *)handles[0].value, (CUmemAllocationHandleType)os_shareable_handle_type));
    os_handle_close(&handles[0]);
    const CUdeviceptr address = memory_map(imported, GRANULE);
    check_success(memory_allow(address, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    cr_assert_eq(word_read(address), 4711);
    memory_unmake(address, GRANULE);
    check_success(drv.cuMemRelease(imported));
    child_destroy(process.child);
    os_connection_destroy(process.connection);
    os_listener_destroy(process.listener);
    runtime_directory_remove(process.directory);
}

Test(emulated_process, what_is_no_gpu_memory_is_refused) {
    os_handle handle;
    CUmemGenericAllocationHandle imported = 5;
    const CUmemAllocationHandleType type = (CUmemAllocationHandleType)os_shareable_handle_type;
    const uint64_t sizes[] = {64, 4096, 4096 + GRANULE};
    emulated_start(NULL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        check_ok(os_memory_create("impostor", sizes[i], &handle));
        check_result(CUDA_ERROR_UNKNOWN,
                     drv.cuMemImportFromShareableHandle(&imported, (void *)handle.value, type));
        check_ok(os_memory_inspect(handle, &(uint64_t){0}));
        os_handle_close(&handle);
    }
    cr_assert_eq(imported, 5);
}

/* A header that is right but for its size; the layout is in allocation.c. */
Test(emulated_process, a_header_that_lies_is_refused) {
    os_handle exported;
    os_handle forged;
    intptr_t written = 0;
    void *from;
    void *to;
    CUmemGenericAllocationHandle imported = 5;
    const CUmemAllocationHandleType type = (CUmemAllocationHandleType)os_shareable_handle_type;
    emulated_start(NULL);
    const CUmemGenericAllocationHandle handle = memory_create(0, GRANULE);
    check_success(drv.cuMemExportToShareableHandle(&written, handle, type, 0));
    check_ok(os_handle_adopt_exported(&written, &exported));
    check_ok(os_memory_create("forged", 4096 + GRANULE - 4096, &forged));
    check_ok(os_memory_map(exported, 4096, false, &from));
    check_ok(os_memory_map(forged, 4096, true, &to));
    memcpy(to, from, 4096);
    check_result(CUDA_ERROR_UNKNOWN,
                 drv.cuMemImportFromShareableHandle(&imported, (void *)forged.value, type));
    os_memory_unmap(from, 4096);
    os_memory_unmap(to, 4096);
    os_handle_close(&forged);
    os_handle_close(&exported);
    check_success(drv.cuMemRelease(handle));
}
