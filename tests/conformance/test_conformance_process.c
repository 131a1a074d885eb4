/* SPDX-License-Identifier: MIT */
/** @file What holds between two processes, and what ends one. */
#include "conformance_process.h"

#include <stdio.h>

TestSuite(process, .init = conformance_start, .fini = conformance_finish, .timeout = 60);

/** Asserts that every step of an import worked and found the memory. */
static void check_import(const import_report *report, const char *row, uint32_t word,
                         size_t bytes) {
    CHECK(row, CUDA_SUCCESS, (CUresult)report->imported);
    CHECK(row, CUDA_SUCCESS, (CUresult)report->properties);
    CHECK(row, CUDA_SUCCESS, (CUresult)report->mapped);
    CHECK(row, CUDA_SUCCESS, (CUresult)report->accessed);
    CHECK(row, CUDA_SUCCESS, (CUresult)report->copied);
    cr_assert_eq(report->word, word, "%s: the importer reads %08x, not %08x", row, report->word,
                 word);
    cr_assert_eq(report->range, bytes, "%s: cuMemGetAddressRange says %llu, not %zu", row,
                 report->range, bytes);
    cr_assert_eq(report->handle_types, 0,
                 "measured: an imported handle's requestedHandleTypes is %d", report->handle_types);
    cr_assert_eq(report->location_type, (int)CU_MEM_LOCATION_TYPE_DEVICE, "%s: location type %d",
                 row, report->location_type);
}

static void check_exit(helper *process) {
    const helper_ending ending = helper_end(process);
    cr_assert(ending.exit_code == 0 && ending.crash == 0, "the helper: exit code %d, crash %d",
              ending.exit_code, ending.crash);
}

/** Imports a handle here, maps it, and asserts the first word. Leaves nothing. */
static void check_word_behind(os_handle shareable, size_t bytes, uint32_t word, const char *row) {
    CUmemGenericAllocationHandle imported = 0;
    CHECK(row, CUDA_SUCCESS, memory_import(shareable, &imported));
    const CUdeviceptr address = memory_map(imported, bytes);
    OK(memory_access(address, bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    cr_assert_eq(word_read(address), word, "%s", row);
    memory_unmap(address, bytes);
    OK(drv.cuMemRelease(imported));
}

Test(process, both_see_one_memory) {
    memory made = memory_make(0, 3 * GRANULE);
    os_handle shareable = memory_export(made.handle);
    helper *other = helper_start(NULL);
    word_write(made.address, 0x600DDA7A);
    const import_report report = helper_import(other, shareable, 0, made.bytes);
    os_handle_close(&shareable);
    check_import(&report, "measured: import in another process", 0x600DDA7A, made.bytes);
    cr_assert_eq(report.location, 0, "measured: the owner's ordinal, not %d", report.location);
    CHECK("measured: the importer writes", CUDA_SUCCESS, helper_result(other, "write 17"));
    cr_assert_eq(word_read(made.address), 17, "measured: both see one memory");
    word_write(made.address, 18);
    cr_assert_eq(helper_read(other), 18, "measured: both see one memory");
    CHECK("measured: the importer closes", CUDA_SUCCESS, helper_result(other, "close"));
    check_exit(other);
    word_write(made.address, 19);
    cr_assert_eq(word_read(made.address), 19, "the exporter's memory goes on");
    memory_undo(&made);
}

Test(process, mapping_survives_the_exporters_death) {
    helper *exporter = helper_start(NULL);
    CUmemGenericAllocationHandle imported = 0;
    os_handle shareable = helper_create(exporter, 0, 2 * GRANULE, 0xDEADFEED);
    OK(memory_import(shareable, &imported));
    os_handle_close(&shareable); /* nothing but the mapping is left */
    const CUdeviceptr address = memory_map(imported, 2 * GRANULE);
    OK(memory_access(address, 2 * GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    OK(drv.cuMemRelease(imported));
    helper_kill(exporter);
    cr_assert_eq(word_read(address), 0xDEADFEED,
                 "measured: after SIGKILL of the exporter a mapping still reads right");
    word_write(address, 1);
    cr_assert_eq(word_read(address), 1);
    memory_unmap(address, 2 * GRANULE);
    helper_end(exporter);
}

Test(process, descriptor_in_flight_keeps_memory) {
    char line[MESSAGE_BYTES];
    os_handle shareable = OS_HANDLE_NONE;
    helper *exporter = helper_start(NULL);
    helper_tell(exporter, OS_HANDLE_NONE, "create 0 %zu %u", GRANULE, 0xF117F117U);
    helper_await_answer(exporter);
    helper_kill(exporter); /* on Linux the fd lies in the socket, and nowhere else */
    helper_hear(exporter, line, &shareable);
    cr_assert(os_handle_is_valid(shareable));
    check_word_behind(shareable, GRANULE, 0xF117F117,
                      "measured: an fd that was only in flight still imports and reads right");
    os_handle_close(&shareable);
    helper_end(exporter);
}

Test(process, descriptor_outlives_the_exporters_release) {
    helper *exporter = helper_start(NULL);
    os_handle shareable = helper_create(exporter, 0, GRANULE, 0x7E1EA5ED);
    CHECK("measured: the exporter releases", CUDA_SUCCESS, helper_result(exporter, "close"));
    check_exit(exporter);
    check_word_behind(shareable, GRANULE, 0x7E1EA5ED, "measured: an fd alone keeps memory alive");
    os_handle_close(&shareable);
}

Test(process, importer_keeps_what_the_exporter_released) {
    memory made = memory_make(0, GRANULE);
    os_handle shareable = memory_export(made.handle);
    helper *importer = helper_start(NULL);
    word_write(made.address, 77);
    const import_report report = helper_import(importer, shareable, 0, GRANULE);
    check_import(&report, "measured: import in another process", 77, GRANULE);
    CHECK("cuda.h: the importer keeps only the mapping", CUDA_SUCCESS,
          helper_result(importer, "release"));
    os_handle_close(&shareable);
    memory_undo(&made);
    cr_assert_eq(helper_read(importer), 77, "measured: the importer holding only the mapping");
    CHECK("measured: the importer closes", CUDA_SUCCESS, helper_result(importer, "close"));
    check_exit(importer);
}

Test(process, on_a_peer_gpu) {
    conformance_need_devices(2);
    int can = 0;
    OK(drv.cuDeviceCanAccessPeer(&can, 1, 0));
    if (can == 0) {
        cr_skip_test("devices 0 and 1 have no peer access");
    }
    memory made = memory_make(0, GRANULE);
    os_handle shareable = memory_export(made.handle);
    helper *importer = helper_start(NULL);
    word_write(made.address, 0xBEE5);
    const import_report report = helper_import(importer, shareable, 1, GRANULE);
    check_import(&report, "measured: import on a peer GPU", 0xBEE5, GRANULE);
    cr_assert_eq(report.location, 0,
                 "measured: the location is the owner, not the device that maps");
    CHECK("measured: the importer writes", CUDA_SUCCESS, helper_result(importer, "write 21"));
    cr_assert_eq(word_read(made.address), 21);
    CHECK("measured: the importer closes", CUDA_SUCCESS, helper_result(importer, "close"));
    check_exit(importer);
    os_handle_close(&shareable);
    memory_undo(&made);
}

Test(process, owner_is_hidden_or_renumbered) {
    conformance_need_devices(2);
    int can = 0;
    OK(drv.cuDeviceCanAccessPeer(&can, 1, 0));
    if (can == 0) {
        cr_skip_test("devices 0 and 1 have no peer access");
    }
    char first[48], second[48], swapped[100];
    device_uuid_text(0, first);
    device_uuid_text(1, second);
    snprintf(swapped, sizeof swapped, "%s,%s", second, first);
    const struct {
        const char *visible;
        int location;
        const char *row;
    } cases[] = {
        {second, -2, "measured: CUDA_VISIBLE_DEVICES hides the owner: location -2"},
        {swapped, 1, "measured: the owner's ordinal as the importer numbers devices"},
        {first, 0, "measured: the owner alone is visible"},
    };
    memory made = memory_make(0, GRANULE);
    os_handle shareable = memory_export(made.handle);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        helper *importer = helper_start(cases[i].visible);
        word_write(made.address, 0x41D0 + (uint32_t)i);
        const import_report report = helper_import(importer, shareable, 0, GRANULE);
        check_import(&report, cases[i].row, 0x41D0 + (uint32_t)i, GRANULE);
        cr_assert_eq(report.location, cases[i].location, "%s; it is %d", cases[i].row,
                     report.location);
        CHECK(cases[i].row, CUDA_SUCCESS, helper_result(importer, "write 5"));
        cr_assert_eq(word_read(made.address), 5, "%s", cases[i].row);
        CHECK(cases[i].row, CUDA_SUCCESS, helper_result(importer, "close"));
        check_exit(importer);
    }
    os_handle_close(&shareable);
    memory_undo(&made);
}

Test(process, no_device_is_visible) {
    helper *other = helper_start("");
    char line[MESSAGE_BYTES];
    int status = -1;
    helper_tell(other, OS_HANDLE_NONE, "open");
    helper_hear(other, line, NULL);
    cr_assert_eq(sscanf(line, "%d", &status), 1);
    cr_assert_eq(status, (int)GPUIPC_ERR_NO_DEVICE,
                 "cuda.h: cuInit answers CUDA_ERROR_NO_DEVICE when none is visible; status %s",
                 gpuipc_status_name((gpuipc_status)status));
    check_exit(other);
}

Test(process, handle_value_that_was_never_given_out) {
    const char *const calls[] = {"cuMemMap", "cuMemExportToShareableHandle",
                                 "cuMemGetAllocationPropertiesFromHandle"};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        helper *victim = helper_start(NULL);
        helper_tell(victim, OS_HANDLE_NONE, "garbage %s", calls[i]);
        const helper_ending ending = helper_await_end(victim);
        cr_assert_neq(
            ending.crash, 0,
            "measured: a handle value the driver never gave out, passed to %s: the process "
            "crashes; it exited with %d",
            calls[i], ending.exit_code);
    }
}
