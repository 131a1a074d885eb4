/* SPDX-License-Identifier: MIT */
/** @file gpuipc_diagnose() on emulated machines of many kinds: what is found of the driver and the GPUs there, and what is
 *  not. What is found of the system that the test runs on is not looked at here (test_posix_diagnose.c). */
#include <stdio.h>
#include <string.h>

#include "diagnose/diagnosis.h"
#include "emulated.h"
#include "transport_machine.h"

TestSuite(diagnose, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

/* Findings above this number depend on the system. */
#define LAST_OF_DRIVER FINDING_NO_DEVICE_MEMORY

static gpuipc_finding findings[GPUIPC_FINDING_COUNT];

static size_t diagnose(uint32_t flags) {
    const gpuipc_context_config config = core_context_config();
    size_t count = 0;
    check_ok(gpuipc_diagnose(&config, flags, findings, GPUIPC_FINDING_COUNT, &count));
    cr_assert_leq(count, GPUIPC_FINDING_COUNT);
    return count;
}

static bool is_listed(const char *ids, const char *id) {
    return strstr(ids, id) != NULL;
}

/* Of the driver and the GPUs, exactly these are found. */
static void expect_with(const char *machine, const char *ids, uint32_t flags) {
    char got[256] = "";
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", machine);
    const size_t count = diagnose(flags);
    for (size_t i = 0; i < count; i++) {
        const gpuipc_finding *one = &findings[i];
        if (one->number <= LAST_OF_DRIVER && one->number != FINDING_WSL &&
            one->number != FINDING_MPS) {
            (void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s ", one->id);
            cr_assert(is_listed(ids, one->id), "%s: found %s (%s), not listed in %s", machine,
                      one->id, one->evidence, ids);
        }
    }
    cr_assert_eq(strlen(got), strlen(ids), "%s: found \"%s\" and not \"%s\"", machine, got, ids);
}

static void expect(const char *machine, const char *ids) {
    expect_with(machine, ids, 0);
}

Test(diagnose, nothing_is_the_matter_but_that_it_is_no_gpu) {
    expect("imex=1", "D10 ");
}

Test(diagnose, fabric_handles_without_a_channel) {
    expect("", machine_is_windows() ? "D10 " : "D10 D22 ");
}

Test(diagnose, one_gpu_alone) {
    expect("devices=1;imex=1", "D10 ");
}

Test(diagnose, eight_gpus) {
    expect("devices=8;imex=1;memory=64M", "D10 ");
}

Test(diagnose, no_peer_access) {
    expect("p2p=none;imex=1", "D10 D18 ");
}

Test(diagnose, no_peer_access_between_some) {
    expect("devices=3;p2p=0-1;imex=1", "D10 D18 ");
    for (size_t i = 0; i < 2; i++) {
        if (findings[i].number == FINDING_NO_P2P) {
            cr_assert_str_eq(findings[i].evidence,
                             "device 2 does not reach 0; device 2 does not reach 1; "
                             "device 0 does not reach 2; device 1 does not reach 2");
            cr_assert_eq(findings[i].severity, GPUIPC_SEVERITY_SLOWS);
        }
    }
}

static const gpuipc_finding *find(size_t count, uint32_t number) {
    for (size_t i = 0; i < count; i++) {
        if (findings[i].number == number) {
            return &findings[i];
        }
    }
    return NULL;
}

Test(diagnose, pools_that_another_gpu_reaches) {
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=2");
    const gpuipc_finding *found =
        find(diagnose(GPUIPC_DIAGNOSE_LOOK_ONLY), FINDING_POOL_ACROSS_GPUS);
    cr_assert_eq(found == NULL, machine_is_windows());
    cr_assert(found == NULL || found->severity == GPUIPC_SEVERITY_NOTE);
}

Test(diagnose, no_pools_that_another_gpu_reaches) {
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=2;p2p=none");
    cr_assert_null(find(diagnose(GPUIPC_DIAGNOSE_LOOK_ONLY), FINDING_POOL_ACROSS_GPUS));
}

Test(diagnose, one_hardware_queue) {
    core_environment_set("CUDA_DEVICE_MAX_CONNECTIONS", "1");
    const gpuipc_finding *found = find(diagnose(GPUIPC_DIAGNOSE_LOOK_ONLY), FINDING_ONE_CONNECTION);
    cr_assert_not_null(found);
    cr_assert_eq(found->severity, GPUIPC_SEVERITY_SLOWS);
    cr_assert_str_eq(found->evidence, "CUDA_DEVICE_MAX_CONNECTIONS=1");
    cr_assert_not_null(strstr(found->remedy, "8 or more"));
    core_environment_set("CUDA_DEVICE_MAX_CONNECTIONS", "8");
    cr_assert_null(find(diagnose(GPUIPC_DIAGNOSE_LOOK_ONLY), FINDING_ONE_CONNECTION));
}

Test(diagnose, slices) {
    expect("mig=1;imex=1", "D10 D15 D18 ");
}

Test(diagnose, a_mode_that_admits_one_process) {
    expect("compute-mode=exclusive;imex=1", "D10 D16 ");
}

Test(diagnose, a_mode_that_admits_none) {
    expect("compute-mode=prohibited;imex=1", "D10 D16 ");
}

Test(diagnose, no_virtual_memory) {
    expect("vmm=0;imex=1", "D10 D13 ");
}

Test(diagnose, memory_that_cannot_be_exported) {
    expect("fd-handles=0;imex=1", "D10 D13 ");
}

Test(diagnose, the_tcc_driver_model) {
    expect("driver-model=tcc", machine_is_windows() ? "D10 D12 " : "D10 D13 ");
}

Test(diagnose, a_driver_as_under_wsl) {
    expect("wsl=1;imex=1", "D10 D13 D18 ");
}

Test(diagnose, a_driver_that_is_too_old) {
    expect("version=11020", "D02 ");
}

Test(diagnose, a_driver_that_does_not_start) {
    core_environment_set("GPUIPC_EMULATED_FAIL", "cuInit:*=999");
    expect("", "D03 ");
}

Test(diagnose, a_driver_of_another_version_than_its_library) {
    core_environment_set("GPUIPC_EMULATED_FAIL", "cuInit:*=803");
    expect("", "D08 ");
}

Test(diagnose, no_gpu) {
    core_environment_set("CUDA_VISIBLE_DEVICES", NULL);
    expect("devices=0", "D04 ");
}

Test(diagnose, all_gpus_hidden) {
    core_environment_set("CUDA_VISIBLE_DEVICES", "-1");
    expect("", "D05 ");
    cr_assert_eq(findings[0].severity, GPUIPC_SEVERITY_BLOCKS, "the gravest comes first");
}

Test(diagnose, some_gpus_hidden) {
    core_environment_set("CUDA_VISIBLE_DEVICES", "1");
    expect("devices=3;imex=1", "D05 D10 ");
}

Test(diagnose, named_gpus_that_are_all_there_are_not_hidden) {
    core_environment_set("CUDA_VISIBLE_DEVICES", "1,0");
    expect("imex=1", "D10 ");
}

Test(diagnose, hidden_gpus_are_not_counted_without_nvml) {
    core_environment_set("CUDA_VISIBLE_DEVICES", "1");
    expect("devices=3;imex=1;nvml=0", "D10 ");
}

Test(diagnose, a_trial_that_the_driver_refuses) {
    core_environment_set("GPUIPC_EMULATED_FAIL", "cuMemImportFromShareableHandle:*=999");
    expect("imex=1", "D10 D24 ");
}

Test(diagnose, no_memory_left_for_a_trial) {
    core_environment_set("GPUIPC_EMULATED_FAIL", "cuMemCreate:*=2");
    expect("imex=1", "D10 D25 ");
}

Test(diagnose, looking_only_tries_nothing) {
    core_environment_set("GPUIPC_EMULATED_FAIL", "cuMemCreate:*=2;cuDevicePrimaryCtxRetain:*=2");
    expect_with("p2p=none", "D10 D18 ", GPUIPC_DIAGNOSE_LOOK_ONLY);
}

/* What gives something back cannot be tried again: tests/fault looks at those. */
static bool gives_back(const char *name) {
    static const char *const words[] = {"Release", "Unmap", "Free", "Destroy", "Unregister",
                                        "Disable", "Close", "Pop",  "Unload"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strstr(name, words[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* It comes to an end, with findings or a failure, and leaves nothing behind (core_finish). */
static void diagnose_failing(const char *name, const char *which) {
    const gpuipc_context_config config = core_context_config();
    char rule[96];
    size_t count = 0;
    (void)snprintf(rule, sizeof(rule), "%s:%s=999", name, which);
    core_set_failures(rule);
    const gpuipc_status status =
        gpuipc_diagnose(&config, 0, findings, GPUIPC_FINDING_COUNT, &count);
    cr_assert_eq(status == GPUIPC_OK, count > 0, "%s: %s", rule, gpuipc_status_name(status));
    core_set_failures("");
}

Test(diagnose, each_call_of_the_driver_fails, .timeout = 100) {
    static const char *const names[] = {
#define NAME(group, name, suffix, version, parameters) #name,
        CUDA_API_LIST(NAME)
#undef NAME
    };
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "devices=2;memory=64M");
    const size_t before = diagnose(0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!gives_back(names[i])) {
            diagnose_failing(names[i], "*");
        }
        if (!gives_back(names[i]) && strncmp(names[i], "cuMem", 5) == 0) {
            diagnose_failing(names[i], "2"); /* behind what went well */
        }
    }
    cr_assert_eq(diagnose(0), before, "afterwards it finds what it found before");
}

Test(diagnose, an_installed_driver_is_missing_where_there_is_none) {
    gpuipc_context_config config = core_context_config();
    gpuipc_context *context;
    size_t count = 0;
    config.driver = "auto";
    if (gpuipc_context_create(&config, &context) != GPUIPC_ERR_NO_DRIVER) {
        cr_skip_test("this machine has a driver");
    }
    check_ok(gpuipc_diagnose(&config, 0, findings, GPUIPC_FINDING_COUNT, &count));
    bool is_found = false;
    for (size_t i = 0; i < count; i++) {
        is_found = is_found || findings[i].number == FINDING_NO_DRIVER ||
                   findings[i].number == FINDING_CONTAINER_WITHOUT_DRIVER;
        cr_assert_neq(findings[i].number, FINDING_EMULATED);
    }
    cr_assert(is_found);
}

Test(diagnose, the_runtime_directory_is_tried) {
    gpuipc_context_config config = core_context_config();
    char path[RUNTIME_DIRECTORY_MAX + 64];
    size_t count = 0;
    core_need_emulated();
    diagnose(0);
    cr_assert_neq(findings[0].number, FINDING_RUNTIME_DIRECTORY);
    (void)snprintf(path, sizeof(path), "%s/missing/deeper", core_directory);
    config.runtime_directory = path;
    check_ok(gpuipc_diagnose(&config, 0, findings, GPUIPC_FINDING_COUNT, &count));
    cr_assert_eq(findings[0].number, FINDING_RUNTIME_DIRECTORY);
    config.runtime_directory = "relative"; /* the driver is looked at all the same */
    check_ok(gpuipc_diagnose(&config, 0, findings, GPUIPC_FINDING_COUNT, &count));
    cr_assert_eq(findings[0].number, FINDING_RUNTIME_DIRECTORY);
    bool is_emulated = false;
    for (size_t i = 0; i < count; i++) {
        is_emulated = is_emulated || findings[i].number == FINDING_EMULATED;
    }
    cr_assert(is_emulated);
}

Test(diagnose, room_for_fewer_is_filled_with_the_gravest) {
    const gpuipc_context_config config = core_context_config();
    size_t all = 0;
    size_t count = 0;
    core_need_emulated();
    core_environment_set("GPUIPC_EMULATED_MACHINE", "p2p=none");
    all = diagnose(0);
    cr_assert_geq(all, 2);
    const uint32_t first = findings[0].number;
    memset(findings, 0, sizeof(findings));
    check_status(GPUIPC_ERR_TOO_SMALL, gpuipc_diagnose(&config, 0, findings, 1, &count));
    cr_assert_eq(count, all);
    cr_assert_eq(findings[0].number, first);
    cr_assert_eq(findings[1].number, 0);
    check_status(GPUIPC_ERR_TOO_SMALL, gpuipc_diagnose(&config, 0, NULL, 0, &count));
    cr_assert_eq(count, all);
}

Test(diagnose, wrong_arguments_are_refused) {
    gpuipc_context_config config = core_context_config();
    size_t count = 77;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_diagnose(&config, 2, findings, 1, &count));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_diagnose(&config, 0, NULL, 1, &count));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_diagnose(&config, 0, findings, 1, NULL));
    config.flags = 0x80000000u;
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_diagnose(&config, 0, findings, 1, &count));
    config.struct_size = 1;
    check_status(GPUIPC_ERR_STRUCT_SIZE, gpuipc_diagnose(&config, 0, findings, 1, &count));
    cr_assert_eq(count, 77);
}
