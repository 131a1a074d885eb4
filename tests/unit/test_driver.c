/* SPDX-License-Identifier: MIT */
/** @file Choosing, loading and starting a driver, and what is said of one that will not do. */
#include "core_fixture.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

TestSuite(driver, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

static gpuipc_status create(const char *choice, gpuipc_context **out_context) {
    gpuipc_context_config config = core_context_config();
    config.driver = choice;
    return gpuipc_context_create(&config, out_context);
}

/* No context comes of this driver, and the sentence has the text in it. */
static void check_driver_refused(gpuipc_status expected, const char *text, const char *choice) {
    gpuipc_context *context = NULL;
    check_refused(expected, text, create(choice, &context));
    cr_assert_neq(gpuipc_error_get()->operation[0], '\0');
    cr_assert_null(context);
}

/* The path of a library that lies beside this program. It ends as the names of libraries do here. */
static const char *stand_in(int number) {
    static char paths[7][512];
    char name[64];
    os_library *library;
    (void)snprintf(name, sizeof(name), "gpuipc-stand-in-%d%s", number,
                   strrchr(os_emulated_driver_name, '.'));
    check_ok(os_library_open_own(name, &library));
    (void)snprintf(paths[number], sizeof(paths[number]), "%s", os_library_path(library));
    os_library_close(library);
    return paths[number];
}

/* The absolute path of a file in the fixture's directory. */
static const char *path_of(const char *name) {
    static char path[RUNTIME_DIRECTORY_MAX + 32];
    (void)snprintf(path, sizeof(path), "%s/%s", core_directory, name);
    return path;
}

Test(driver, a_missing_path_is_a_driver_that_does_not_load) {
    char sentence[RUNTIME_DIRECTORY_MAX + 64];
    const char *path = path_of("libcuda.so.1");
    (void)snprintf(sentence, sizeof(sentence), "there is no %s", path);
    check_driver_refused(GPUIPC_ERR_DRIVER_FAILED, sentence, path);
}

Test(driver, a_path_must_be_absolute) {
    check_driver_refused(GPUIPC_ERR_INVALID_ARGUMENT, "auto, emulated or an absolute path",
                         "libcuda.so.1");
    check_driver_refused(GPUIPC_ERR_INVALID_ARGUMENT, "auto, emulated or an absolute path",
                         "Emulated");
}

Test(driver, a_file_that_is_no_library_says_so) {
    const char *path = path_of("text");
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_geq(fputs("no library", file), 0);
    cr_assert_eq(fclose(file), 0);
    check_driver_refused(GPUIPC_ERR_DRIVER_FAILED, path, path);
}

/* The same file by a path of some 600 bytes. */
static const char *long_path_of(const char *name) {
    static char path[1024];
    size_t used = (size_t)snprintf(path, sizeof(path), "%s", core_directory);
    for (int i = 0; i < 300; i++) {
        used += (size_t)snprintf(path + used, sizeof(path) - used, "/.");
    }
    (void)snprintf(path + used, sizeof(path) - used, "/%s", name);
    return path;
}

Test(driver, a_long_path_leaves_room_for_what_is_wrong) {
    const char *path = long_path_of("text");
    FILE *file = fopen(path_of("text"), "w");
    cr_assert_not_null(file);
    cr_assert_geq(fputs("no library\n", file), 0);
    cr_assert_eq(fclose(file), 0);
    check_driver_refused(GPUIPC_ERR_DRIVER_FAILED, "/text does not load", path);
    check_driver_refused(GPUIPC_ERR_DRIVER_FAILED, "/none", long_path_of("none"));
    check_driver_refused(GPUIPC_ERR_INVALID_ARGUMENT, "auto, emulated or an absolute path",
                         long_path_of("text") + 2);
}

Test(driver, a_library_that_is_no_driver_is_refused) {
    check_driver_refused(GPUIPC_ERR_DRIVER_TOO_OLD, "has no cuGetProcAddress", stand_in(1));
}

Test(driver, an_old_driver_is_told_what_it_lacks) {
    check_driver_refused(GPUIPC_ERR_DRIVER_TOO_OLD,
                         "has no cuDeviceGetUuid; gpuipc needs the driver of CUDA 11.4",
                         stand_in(2));
}

Test(driver, a_driver_that_does_not_start_is_a_failure) {
    check_driver_refused(GPUIPC_ERR_DRIVER_FAILED, "no words for it", stand_in(3));
    cr_assert_eq(gpuipc_error_get()->native_origin, GPUIPC_NATIVE_CUDA);
    cr_assert_eq(gpuipc_error_get()->native_code, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
    cr_assert_str_eq(gpuipc_error_get()->native_call, "cuInit");
}

Test(driver, a_driver_that_counts_no_device_has_none) {
    check_driver_refused(GPUIPC_ERR_NO_DEVICE, "finds no device", stand_in(4));
}

Test(driver, the_environment_chooses_when_the_config_does_not) {
    gpuipc_context *context = NULL;
    core_environment_set("GPUIPC_CUDA_DRIVER", path_of("libcuda.so.1"));
    check_status(GPUIPC_ERR_DRIVER_FAILED, create(NULL, &context));
    check_ok(create("emulated", &context)); /* the config is the stronger one */
    check_ok(gpuipc_context_destroy(context));
    check_status(GPUIPC_ERR_DRIVER_FAILED, gpuipc_context_create(NULL, &context));
}

/* An empty choice is one, and the variable is not asked. */
Test(driver, an_empty_choice_is_auto) {
    gpuipc_context *context = NULL;
    core_environment_set("GPUIPC_CUDA_DRIVER", "emulated");
    const gpuipc_status status = create("", &context);
    if (status == GPUIPC_OK) {
        gpuipc_context_info info = GPUIPC_CONTEXT_INFO_INIT;
        check_ok(gpuipc_context_get_info(context, &info));
        cr_assert_eq(info.is_emulated, 0);
        check_ok(gpuipc_context_destroy(context));
    } else {
        check_status(status, create("auto", &context));
    }
}

Test(driver, auto_without_a_driver_never_turns_to_the_emulated_one) {
    static const char *const choices[] = {"auto", "", NULL};
    os_library *library;
    if (os_library_open_system(os_cuda_driver_name, &library) != GPUIPC_ERR_NOT_FOUND) {
        cr_skip_test("this machine has a CUDA driver");
    }
    core_environment_set("GPUIPC_CUDA_DRIVER", "");
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        check_driver_refused(GPUIPC_ERR_NO_DRIVER, os_cuda_driver_name, choices[i]);
    }
    core_environment_set("GPUIPC_CUDA_DRIVER", NULL);
    check_driver_refused(GPUIPC_ERR_NO_DRIVER, os_cuda_driver_name, NULL);
}

Test(driver, the_emulated_driver_says_what_it_is) {
    gpuipc_context *context;
    check_ok(create("emulated", &context));
    gpuipc_context_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_context_get_info(context, &info));
    cr_assert_eq(info.is_emulated, 1);
    cr_assert_geq(info.driver_version, 11040);
    cr_assert(strstr(info.driver_path, os_emulated_driver_name) != NULL, "%s", info.driver_path);
    check_ok(gpuipc_context_destroy(context));

    /* and the same when it is given by its path */
    check_ok(create(info.driver_path, &context));
    check_ok(gpuipc_context_get_info(context, &info));
    cr_assert_eq(info.is_emulated, 1);
    check_ok(gpuipc_context_destroy(context));
}

Test(driver, codes_of_the_start_have_their_status) {
    static const struct {
        const char *failures;
        gpuipc_status expected;
        const char *native_call;
        int64_t code;
    } rows[] = {
        {"cuInit:1=100", GPUIPC_ERR_NO_DEVICE, "cuInit", 100},
        {"cuInit:1=999", GPUIPC_ERR_DRIVER_FAILED, "cuInit", 999},
        {"cuInit:1=803", GPUIPC_ERR_DRIVER_FAILED, "cuInit", 803},
        {"cuDriverGetVersion:1=3", GPUIPC_ERR_DRIVER_FAILED, "cuInit", 3},
        {"cuDeviceGetCount:1=100", GPUIPC_ERR_NO_DEVICE, "cuDeviceGetCount", 100},
        {"cuDeviceGetCount:1=999", GPUIPC_ERR_CUDA, "cuDeviceGetCount", 999},
        {"cuDeviceGetName:1=101", GPUIPC_ERR_CUDA, "cuDeviceGetName", 101},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gpuipc_context *context = NULL;
        core_set_failures(rows[i].failures);
        check_status(rows[i].expected, create("emulated", &context));
        cr_assert_eq(gpuipc_error_get()->native_origin, GPUIPC_NATIVE_CUDA);
        cr_assert_eq(gpuipc_error_get()->native_code, rows[i].code);
        cr_assert_str_eq(gpuipc_error_get()->native_call, rows[i].native_call);
    }
    core_set_failures("");
}

Test(driver, a_code_without_a_name_is_still_told) {
    gpuipc_context *context = NULL;
    core_set_failures("cuDeviceGetCount:1=12345");
    check_refused(GPUIPC_ERR_CUDA, "a code that the driver does not name",
                  create("emulated", &context));
    core_set_failures("cuDeviceGetCount:1=999;cuGetErrorName:*=1;cuGetErrorString:*=1");
    check_refused(GPUIPC_ERR_CUDA, "no description", create("emulated", &context));
    cr_assert_eq(gpuipc_error_get()->native_code, 999);
    core_set_failures("");
}

Test(driver, a_machine_without_devices_has_no_context) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=0");
    check_driver_refused(GPUIPC_ERR_NO_DEVICE, "", "emulated");
    cr_assert_eq(gpuipc_error_get()->native_code, CUDA_ERROR_NO_DEVICE);
}

Test(driver, an_emulated_driver_can_be_too_old) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "version=11020");
    check_driver_refused(GPUIPC_ERR_DRIVER_TOO_OLD, "has no cuDeviceGetUuid", "emulated");
}

/* ---- groups of entry points whose absence is a capability that is missing ---------------- */

/* The position of each entry point among those that the loader looks for, from 1. */
enum {
#define POSITION(group, name, suffix, version, parameters) BEFORE_##name,
    CUDA_API_LIST(POSITION)
#undef POSITION
};

static void hide(int position, char *failures, size_t capacity) {
    (void)snprintf(failures, capacity, "cuGetProcAddress:%d=500", position + 1);
    core_set_failures(failures);
}

static void open_without(int position, driver *out_driver) {
    char failures[64];
    hide(position, failures, sizeof(failures));
    check_ok(driver_open("emulated", out_driver));
    core_set_failures("");
}

Test(driver, one_missing_entry_point_takes_its_group_away) {
    driver drv;
    open_without(BEFORE_cuMemCreate, &drv);
    cr_assert(!drv.has_vmm);
    cr_assert(drv.has_p2p);
    open_without(BEFORE_cuMemRetainAllocationHandle, &drv);
    cr_assert(!drv.has_vmm);
    open_without(BEFORE_cuDeviceCanAccessPeer, &drv);
    cr_assert(drv.has_vmm);
    cr_assert(!drv.has_p2p);
    core_set_failures("");
    check_ok(driver_open("emulated", &drv));
    cr_assert(drv.has_vmm);
    cr_assert(drv.has_p2p);
    cr_assert(drv.is_emulated);
}

/* Which flag of a driver is its group's. */
static const struct {
    const char *name;
    const char *group;
    size_t flag;
} entry_points[] = {
#define ENTRY_POINT(group, name, suffix, version, parameters)                                      \
    {#name, #group, offsetof(driver, has_##group)},
    CUDA_API_LIST(ENTRY_POINT)
#undef ENTRY_POINT
};
#define ENTRY_POINTS (sizeof(entry_points) / sizeof(entry_points[0]))

Test(driver, each_entry_point_is_missed) {
    for (size_t i = 0; i < ENTRY_POINTS; i++) {
        char failures[64];
        char sentence[96];
        driver drv = {0};
        hide((int)i, failures, sizeof(failures));
        if (strcmp(entry_points[i].group, "core") == 0) {
            (void)snprintf(sentence, sizeof(sentence), "has no %s; gpuipc needs",
                           entry_points[i].name);
            check_refused(GPUIPC_ERR_DRIVER_TOO_OLD, sentence, driver_open("emulated", &drv));
            continue;
        }
        check_ok(driver_open("emulated", &drv));
        cr_assert(!*((bool *)&drv + entry_points[i].flag), "%s", entry_points[i].name);
        for (size_t other = 0; other < ENTRY_POINTS; other++) {
            cr_assert_eq(*((bool *)&drv + entry_points[other].flag),
                         entry_points[other].flag != entry_points[i].flag, "without %s: %s",
                         entry_points[i].name, entry_points[other].name);
        }
    }
    core_set_failures("");
}

Test(driver, one_missing_core_entry_point_is_too_much) {
    char failures[64];
    driver drv;
    hide(BEFORE_cuCtxPopCurrent, failures, sizeof(failures));
    check_refused(GPUIPC_ERR_DRIVER_TOO_OLD, "has no cuCtxPopCurrent",
                  driver_open("emulated", &drv));
    hide(BEFORE_cuInit, failures, sizeof(failures));
    check_refused(GPUIPC_ERR_DRIVER_TOO_OLD, "has no cuInit", driver_open("emulated", &drv));
    core_set_failures("");
}

Test(driver, without_virtual_memory_management_nothing_can_be_shared) {
    char failures[64];
    gpuipc_context *context;
    gpuipc_buffer *buffer = NULL;
    hide(BEFORE_cuMemMap, failures, sizeof(failures));
    check_ok(create("emulated", &context));
    core_set_failures("");

    gpuipc_device_info device = {.struct_size = sizeof(device)};
    check_ok(gpuipc_device_get_info(context, 0, &device));
    cr_assert_eq(device.can_share, 0);
    cr_assert_eq(device.granularity_bytes, 0);
    cr_assert(strstr(device.why_not, "virtual memory management calls") != NULL);

    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 1};
    check_refused(GPUIPC_ERR_VMM_UNSUPPORTED, device.why_not,
                  gpuipc_buffer_create(context, &config, &buffer));
    check_status(GPUIPC_ERR_NOT_DEVICE_MEMORY, gpuipc_buffer_wrap(context, 1u << 21, 1, &buffer));
    const gpuipc_native_layout layout = {.struct_size = sizeof(layout), .bytes = 1};
    const gpuipc_native_segment segment = {{0}, 1u << 21};
    check_status(GPUIPC_ERR_VMM_UNSUPPORTED,
                 gpuipc_native_import(context, &segment, 1, &layout, GPUIPC_DEVICE_OWNER,
                                      GPUIPC_ACCESS_DEFAULT, &buffer));
    cr_assert_null(buffer);
    check_ok(gpuipc_context_destroy(context));
}

/* ---- once in a process ------------------------------------------------------------------- */

static void open_in_thread(void *argument) {
    check_ok(driver_open("emulated", argument));
}

Test(driver, threads_that_load_it_at_once_get_the_same_library) {
    driver drivers[8];
    os_thread *threads[8];
    for (size_t i = 0; i < 8; i++) {
        check_ok(os_thread_start(open_in_thread, &drivers[i], &threads[i]));
    }
    for (size_t i = 0; i < 8; i++) {
        os_thread_join(threads[i]);
    }
    for (size_t i = 1; i < 8; i++) {
        cr_assert_eq(drivers[i].library, drivers[0].library);
    }
}

/* ---- words ------------------------------------------------------------------------------- */

static CUresult say_nothing(CUresult error, const char **text) {
    (void)error;
    *text = NULL;
    return CUDA_SUCCESS;
}

Test(driver, a_driver_that_has_no_words_is_told_by_the_code) {
    driver drv = *core_driver();
    drv.cuGetErrorName = say_nothing;
    drv.cuGetErrorString = say_nothing;
    check_refused(GPUIPC_ERR_CUDA, "a code that the driver does not name (no description)",
                  driver_status(&drv, CUDA_ERROR_UNKNOWN, "cuCall", "calling"));
    cr_assert_eq(gpuipc_error_get()->native_code, CUDA_ERROR_UNKNOWN);
    check_ok(driver_status(&drv, CUDA_SUCCESS, "cuCall", "calling"));
}

Test(driver, a_symbol_that_is_said_to_be_found_and_is_not) {
    check_driver_refused(GPUIPC_ERR_DRIVER_TOO_OLD, "has no cuStreamQuery", stand_in(5));
    check_driver_refused(GPUIPC_ERR_DRIVER_FAILED, "no words for it", stand_in(6));
}
