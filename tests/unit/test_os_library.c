/* SPDX-License-Identifier: MIT */
/** @file Dynamic libraries. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "library_names.h"
#include "os.h"
#include "unique.h"

TestSuite(os_library, .timeout = 30);

static void check_cosine(os_library *library) {
    double (*cosine)(double);
    void *symbol = os_library_symbol(library, "cos");
    cr_assert_not_null(symbol);
    memcpy(&cosine, &symbol, sizeof(symbol));
    cr_assert_eq(cosine(0.0), 1.0);
    cr_assert_null(os_library_symbol(library, "gpuipc_no_such_symbol"));
}

Test(os_library, the_systems_own_by_name_and_again_by_path) {
    leak_gate gate;
    leak_gate_begin(&gate);
    os_library *library;
    os_library *again;
    check_ok(os_library_open_system(system_library, &library));
    check_cosine(library);
    cr_assert(strstr(os_library_path(library), system_library) != NULL, "%s",
              os_library_path(library));
    check_ok(os_library_open_path(os_library_path(library), &again));
    check_cosine(again);
    cr_assert_str_eq(os_library_path(again), os_library_path(library));
    os_library_close(again);
    os_library_close(library);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(os_library, missing_is_not_found) {
    os_library *library = NULL;
    check_refused(GPUIPC_ERR_NOT_FOUND, "libgpuipc-no-such.so.1",
                  os_library_open_system("libgpuipc-no-such.so.1", &library));
    check_refused(GPUIPC_ERR_NOT_FOUND, absent_library_path,
                  os_library_open_path(absent_library_path, &library));
    check_refused(GPUIPC_ERR_NOT_FOUND, "libgpuipc-no-such.so",
                  os_library_open_own("libgpuipc-no-such.so", &library));
    cr_assert_null(library);
}

Test(os_library, a_path_must_be_absolute) {
    os_library *library = NULL;
    for (size_t i = 0; relative_library_paths[i] != NULL; i++) {
        check_refused(GPUIPC_ERR_INVALID_ARGUMENT, "absolute",
                      os_library_open_path(relative_library_paths[i], &library));
    }
    cr_assert_null(library);
}

Test(os_library, there_but_no_library_is_another_failure_than_missing) {
    char directory[RUNTIME_DIRECTORY_MAX];
    char path[RUNTIME_DIRECTORY_MAX + 32];
    os_library *library = NULL;
    cr_assert(runtime_directory_make(directory));
    snprintf(path, sizeof(path), "%s/libbroken.so", directory);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs("this is no library", file);
    fclose(file);
    check_refused(GPUIPC_ERR_OS, "does not load", os_library_open_path(path, &library));
    check_refused(GPUIPC_ERR_OS, "installed but does not load",
                  os_library_open_system(broken_system_library(path), &library));
    runtime_directory_remove(directory);
    check_refused(GPUIPC_ERR_NOT_FOUND, "not installed",
                  os_library_open_system(absent_system_library(path), &library));
    cr_assert_null(library);
}

Test(os_library, names_of_this_system) {
    cr_assert(strlen(os_cuda_driver_name) > 0);
    cr_assert(strstr(os_emulated_driver_name, "emulated") != NULL);
    cr_assert(os_shareable_handle_type == 1 || os_shareable_handle_type == 2);
}

Test(os_library, the_emulated_driver_is_found_beside_this_program) {
    os_library *library;
    gpuipc_emulated_mark_fn mark;
    check_ok(os_library_open_own(os_emulated_driver_name, &library));
    cr_assert(strstr(os_library_path(library), os_emulated_driver_name) != NULL);
    void *symbol = os_library_symbol(library, GPUIPC_EMULATED_MARK);
    cr_assert_not_null(symbol);
    memcpy(&mark, &symbol, sizeof(symbol));
    cr_assert_eq(mark(), 1);
    os_library_close(library);
}
