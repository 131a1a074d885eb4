/* SPDX-License-Identifier: MIT */
/** @file The rules of a diagnosis: on machines that are made up, each finding appears where its cause is, and nowhere else. */
#include <stdio.h>
#include <string.h>

#include "core_fixture.h"
#include "diagnose/diagnosis.h"

TestSuite(diagnose_rules, .timeout = 60);

#define GIB (1024ull * 1024 * 1024)

/* Exactly these were found: "D28 D30", or "". */
static void expect_of(const diagnosis *found, const char *what, const char *ids) {
    char got[512] = "";
    for (uint32_t i = 1; i <= GPUIPC_FINDING_COUNT; i++) {
        if (diagnosis_has(found, (finding_number)i)) {
            (void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s",
                           got[0] != '\0' ? " " : "", found->findings[i].id);
            cr_assert_gt(strlen(found->findings[i].evidence), 8, "%s: %s", what,
                         found->findings[i].id);
        }
    }
    cr_assert_str_eq(got, ids, "%s: found \"%s\" and not \"%s\"", what, got, ids);
}

/* A machine on which nothing is the matter. */
static const os_facts healthy_facts = {.system = "Linux 6.1 x86_64",
                                       .is_wsl = OS_NO,
                                       .directory_on_root = OS_NO,
                                       .has_shm = OS_YES,
                                       .shm_bytes = 8 * GIB,
                                       .shm_free_bytes = 8 * GIB,
                                       .ptrace_scope = 0,
                                       .can_trace = OS_NO,
                                       .handle_limit = 1024,
                                       .handle_limit_hard = 1048576,
                                       .handles_open = 10,
                                       .locked_limit = OS_NO_NUMBER,
                                       .address_limit = OS_NO_NUMBER,
                                       .gpu_driver = "NVIDIA UNIX x86_64 Kernel Module  580.159.03",
                                       .gpu_count = 2,
                                       .gpu_nodes = 2,
                                       .imex_is_loaded = OS_NO};

static void clear_environment(void) {
    static const char *const names[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
                                        "TF_GPU_ALLOCATOR",        "CUDA_MPS_PIPE_DIRECTORY",
                                        "CUDA_VISIBLE_DEVICES",    "NVIDIA_DRIVER_CAPABILITIES",
                                        "NVIDIA_VISIBLE_DEVICES",  "CUDA_DEVICE_MAX_CONNECTIONS"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        core_environment_set(names[i], NULL);
    }
}

/* ---- the system ------------------------------------------------------------------------------ */

static void expect_system(const os_facts *facts, const char *what, const char *ids) {
    diagnosis found = {0};
    rules_system(&found, facts, "/run/user/1000/gpuipc");
    expect_of(&found, what, ids);
}

/* The healthy facts but for one. */
#define SYSTEM_ROW(ids, ...)                                                                       \
    do {                                                                                           \
        os_facts facts = healthy_facts;                                                            \
        __VA_ARGS__;                                                                               \
        expect_system(&facts, #__VA_ARGS__, ids);                                                  \
    } while (0)

Test(diagnose_rules, each_fact_of_the_system_alone) {
    clear_environment();
    SYSTEM_ROW("", (void)facts);
    SYSTEM_ROW("D11", facts.is_wsl = OS_YES);
    SYSTEM_ROW("", facts.is_wsl = OS_UNKNOWN);
    SYSTEM_ROW("D17", strcpy(facts.mps_control, "/tmp/nvidia-mps/control"));
    SYSTEM_ROW("", strcpy(facts.container, "/.dockerenv"));
    SYSTEM_ROW("", facts.directory_on_root = OS_YES); /* no container: / is the machine's own */
    SYSTEM_ROW("D27", facts.directory_on_root = OS_YES; strcpy(facts.container, "/.dockerenv"));
    SYSTEM_ROW("D28", strcpy(facts.pid_namespace, "pid:[4026532281]"));
    SYSTEM_ROW("D29", strcpy(facts.user_namespace, "user:[4026532281]"));
    SYSTEM_ROW("D30", strcpy(facts.ipc_namespace, "ipc:[4026532281]"));
    SYSTEM_ROW("D31", facts.has_shm = OS_NO);
    SYSTEM_ROW("", facts.has_shm = OS_UNKNOWN);
    SYSTEM_ROW("D31", facts.shm_bytes = facts.shm_free_bytes = GIB / 16); /* Docker's */
    SYSTEM_ROW("D31", facts.shm_free_bytes = 4096);
    SYSTEM_ROW("D32", facts.ptrace_scope = 1);
    SYSTEM_ROW("", facts.ptrace_scope = 1; facts.can_trace = OS_YES);
    SYSTEM_ROW("", facts.ptrace_scope = -1);
    SYSTEM_ROW("D33", facts.pidfd_getfd_code = 1; strcpy(facts.pidfd_getfd_text, "not permitted"));
    SYSTEM_ROW("D34", facts.pidfd_open_code = 38; facts.pidfd_getfd_code = 38);
    SYSTEM_ROW("D36", facts.locked_limit = 8 * 1024 * 1024);
    SYSTEM_ROW("", facts.locked_limit = 8 * GIB);
    SYSTEM_ROW("D40", facts.address_limit = 4 * GIB);
}

static gpuipc_severity handles_severity(uint64_t limit, uint64_t open) {
    diagnosis found = {0};
    os_facts facts = healthy_facts;
    facts.handle_limit = limit;
    facts.handles_open = open;
    rules_system(&found, &facts, "/run");
    return found.findings[FINDING_HANDLE_LIMIT].severity;
}

Test(diagnose_rules, descriptors_are_counted_against_what_a_packet_may_bring) {
    clear_environment();
    cr_assert_eq((int)handles_severity(1024, 10), 0);
    cr_assert_eq((int)handles_severity(OS_NO_NUMBER, 1000000), 0);
    cr_assert_eq((int)handles_severity(OS_NO_NUMBER, OS_NO_NUMBER), 0);
    cr_assert_eq(handles_severity(512, 10), GPUIPC_SEVERITY_NOTE);
    cr_assert_eq(handles_severity(256, 10), GPUIPC_SEVERITY_BLOCKS);
    cr_assert_eq(handles_severity(64, OS_NO_NUMBER), GPUIPC_SEVERITY_BLOCKS);
    cr_assert_eq(handles_severity(4096, 4000), GPUIPC_SEVERITY_BLOCKS);
    cr_assert_eq((int)handles_severity(4096, 1000), 0);
}

Test(diagnose_rules, each_variable_alone) {
    static const struct {
        const char *name;
        const char *value;
        const char *ids;
    } rows[] = {{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "D37"},
                {"PYTORCH_ALLOC_CONF", "max_split_size_mb:64,expandable_segments:True", "D37"},
                {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False", ""},
                {"PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync", "D38"},
                {"PYTORCH_CUDA_ALLOC_CONF", "backend:native", ""},
                {"PYTORCH_CUDA_ALLOC_CONF", "", ""},
                {"TF_GPU_ALLOCATOR", "cuda_malloc_async", "D38"},
                {"TF_GPU_ALLOCATOR", "cuda_malloc", ""},
                {"CUDA_DEVICE_MAX_CONNECTIONS", "1", "D41"},
                {"CUDA_DEVICE_MAX_CONNECTIONS", "8", ""},
                {"CUDA_DEVICE_MAX_CONNECTIONS", "12", ""},
                {"CUDA_DEVICE_MAX_CONNECTIONS", "1x", ""},
                {"CUDA_DEVICE_MAX_CONNECTIONS", "", ""},
                {"CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps", "D17"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        clear_environment();
        core_environment_set(rows[i].name, rows[i].value);
        expect_system(&healthy_facts, rows[i].value, rows[i].ids);
    }
}

/* ---- no context ------------------------------------------------------------------------------ */

static const os_facts bare_facts = {
    .handle_limit = OS_NO_NUMBER, .ptrace_scope = -1, .address_limit = OS_NO_NUMBER};

static void expect_choice(const os_facts *facts, const char *choice, gpuipc_status status,
                          int64_t code, const char *ids) {
    diagnosis found = {0};
    const gpuipc_error error = {.status = status,
                                .native_code = code,
                                .native_origin =
                                    code != 0 ? GPUIPC_NATIVE_CUDA : GPUIPC_NATIVE_NONE,
                                .sentence = "libcuda.so.1 is not here"};
    cr_assert_eq(rules_no_context(&found, facts, &error, choice), ids[0] != '\0');
    expect_of(&found, gpuipc_status_name(status), ids);
}

static void expect_no_context(const os_facts *facts, gpuipc_status status, int64_t code,
                              const char *ids) {
    expect_choice(facts, "auto", status, code, ids);
}

/* Loaded, it is the driver, whatever its name. */
Test(diagnose_rules, a_library_that_was_named_and_does_not_load_is_no_installed_driver) {
    clear_environment();
    expect_choice(&healthy_facts, "/nowhere", GPUIPC_ERR_DRIVER_FAILED, 0, "D39");
    expect_choice(&bare_facts, "emulated", GPUIPC_ERR_DRIVER_FAILED, 0, "D39");
    expect_choice(&bare_facts, "auto", GPUIPC_ERR_DRIVER_FAILED, 0, "D03");
    expect_choice(&bare_facts, "/nowhere", GPUIPC_ERR_DRIVER_FAILED, 999, "D03");
    expect_choice(&bare_facts, "/nowhere", GPUIPC_ERR_DRIVER_TOO_OLD, 0, "D02");
    expect_choice(&bare_facts, "/nowhere", GPUIPC_ERR_NOT_SUPPORTED, 0, "D03");
}

Test(diagnose_rules, why_there_is_no_context) {
    os_facts refused = healthy_facts;
    (void)strcpy(refused.gpu_node_refused, "/dev/nvidia-uvm: Operation not permitted");
    clear_environment();
    expect_no_context(&bare_facts, GPUIPC_ERR_NO_DRIVER, 0, "D01");
    expect_no_context(&healthy_facts, GPUIPC_ERR_NO_DRIVER, 0, "D06");
    expect_no_context(&bare_facts, GPUIPC_ERR_DRIVER_TOO_OLD, 0, "D02");
    expect_no_context(&healthy_facts, GPUIPC_ERR_DRIVER_FAILED, 999, "D03");
    expect_no_context(&bare_facts, GPUIPC_ERR_DRIVER_FAILED, 999, "D03");
    expect_no_context(&bare_facts, GPUIPC_ERR_NOT_SUPPORTED, 0, "D03");
    expect_no_context(&refused, GPUIPC_ERR_DRIVER_FAILED, 999, "D06");
    expect_no_context(&healthy_facts, GPUIPC_ERR_DRIVER_FAILED, 803, "D08");
    expect_no_context(&bare_facts, GPUIPC_ERR_NO_DEVICE, 100, "D04");
    expect_no_context(&healthy_facts, GPUIPC_ERR_NO_DEVICE, 100, "D07");
    expect_no_context(&healthy_facts, GPUIPC_ERR_FORKED, 3, "D09");
    expect_no_context(&healthy_facts, GPUIPC_ERR_OUT_OF_MEMORY, 0, "");
    core_environment_set("CUDA_VISIBLE_DEVICES", "");
    expect_no_context(&healthy_facts, GPUIPC_ERR_NO_DEVICE, 100, "D05");
    expect_no_context(&refused, GPUIPC_ERR_NO_DEVICE, 100, "D05 D07");
    core_environment_set("CUDA_VISIBLE_DEVICES", "7");
    expect_no_context(&bare_facts, GPUIPC_ERR_NO_DEVICE, 100, "D05");
}

/* As seen on H100s, where the driver says that memory is out. */
Test(diagnose_rules, addresses_run_out_where_they_are_limited) {
    os_facts limited = healthy_facts;
    clear_environment();
    limited.address_limit = 4 * GIB;
    expect_no_context(&limited, GPUIPC_ERR_DRIVER_FAILED, 2, "D40");
    expect_no_context(&limited, GPUIPC_ERR_DRIVER_FAILED, 0, "D03");
    expect_no_context(&limited, GPUIPC_ERR_DRIVER_FAILED, 999, "D03");
    expect_no_context(&limited, GPUIPC_ERR_DRIVER_FAILED, 803, "D08");
    expect_no_context(&healthy_facts, GPUIPC_ERR_DRIVER_FAILED, 2, "D03");
}

/* Linux 5.3 to 5.5 have the one call and not the other. */
Test(diagnose_rules, who_refuses_pidfd_getfd_is_told) {
    os_facts facts = healthy_facts;
    diagnosis found = {0};
    clear_environment();
    facts.pidfd_getfd_code = 38;
    (void)strcpy(facts.pidfd_getfd_text, "Function not implemented");
    rules_system(&found, &facts, "/run");
    cr_assert_str_eq(found.findings[FINDING_SECCOMP].evidence,
                     "pidfd_getfd of a descriptor of its own: Function not implemented (no filter "
                     "is set; Linux 6.1 x86_64)");
    facts.seccomp = 2;
    found = (diagnosis){0};
    rules_system(&found, &facts, "/run");
    cr_assert_not_null(strstr(found.findings[FINDING_SECCOMP].evidence, "(a filter is set;"));
}

Test(diagnose_rules, a_container_is_told_with_what_its_toolkit_was_told) {
    diagnosis found = {0};
    const gpuipc_error error = {.status = GPUIPC_ERR_NO_DRIVER, .sentence = "no library"};
    clear_environment();
    core_environment_set("NVIDIA_DRIVER_CAPABILITIES", "graphics");
    core_environment_set("NVIDIA_VISIBLE_DEVICES", "void");
    cr_assert(rules_no_context(&found, &healthy_facts, &error, "auto"));
    const char *evidence = found.findings[FINDING_CONTAINER_WITHOUT_DRIVER].evidence;
    cr_assert_str_eq(
        evidence, "no library; the kernel's driver is NVIDIA UNIX x86_64 Kernel Module  "
                  "580.159.03; NVIDIA_DRIVER_CAPABILITIES=graphics; NVIDIA_VISIBLE_DEVICES=void");
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static void expect_gpus(uint32_t visible, uint32_t nvml_count, const char *file, bool is_emulated,
                        bool has_slices, const char *ids) {
    diagnosis found = {0};
    gpus_facts gpus = {.visible = visible,
                       .nvml_count = nvml_count,
                       .is_emulated = is_emulated,
                       .has_slices = has_slices};
    (void)snprintf(gpus.driver_file, sizeof(gpus.driver_file), "%s", file);
    rules_gpus(&found, &healthy_facts, &gpus); /* whose kernel driver lists 2 */
    expect_of(&found, file, ids);
}

Test(diagnose_rules, gpus_that_are_hidden_or_withheld) {
    static const char library[] = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03";
    clear_environment();
    expect_gpus(2, 2, library, false, false, "");
    expect_gpus(2, 0, library, false, false, "");
    expect_gpus(1, 1, library, false, false, "D07");
    expect_gpus(1, 0, library, false, false, "D07");
    expect_gpus(1, 1, library, false, true, ""); /* slices are not counted */
    core_environment_set("CUDA_VISIBLE_DEVICES", "0");
    expect_gpus(1, 2, library, false, false, "D05");
    expect_gpus(1, 0, library, false, false, ""); /* how many there are is not known */
    expect_gpus(2, 2, library, false, false, "");
    expect_gpus(1, 1, library, false, false, "D07");
}

Test(diagnose_rules, a_library_of_another_version_than_the_kernels_driver) {
    clear_environment();
    expect_gpus(2, 2, "/usr/local/cuda/compat/libcuda.so.575.57.08", false, false, "D08");
    expect_gpus(2, 2, "/usr/lib/libcuda.so.580.159.03", false, false, "");
    expect_gpus(2, 2, "/usr/lib/libcuda.so.1", false, false, ""); /* it does not say */
    expect_gpus(2, 2, "libcuda.so.575.57.08", false, false, "");  /* of no folder: none was found */
    expect_gpus(2, 2, "/opt/gpuipc-0.1/libgpuipc-emulated-cuda.so", true, false, "D10");
    expect_gpus(1, 1, "/opt/gpuipc-0.1/libgpuipc-emulated-cuda.so", true, false, "D10");
}

Test(diagnose_rules, versions_are_found_in_texts) {
    char version[32];
    cr_assert(diagnosis_version("NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release",
                                version, sizeof(version)));
    cr_assert_str_eq(version, "580.95.05");
    cr_assert(diagnosis_version("libcuda.so.535.54", version, sizeof(version)));
    cr_assert_str_eq(version, "535.54");
    cr_assert_not(diagnosis_version("libcuda.so.1", version, sizeof(version)));
    cr_assert_not(diagnosis_version("x86_64", version, sizeof(version)));
    cr_assert_not(diagnosis_version("", version, sizeof(version)));
}

Test(diagnose_rules, what_runs_the_gpus) {
    static const struct {
        const char *line;
        os_answer is_wsl;
        const char *model;
    } rows[] = {
        {"NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release", OS_NO,
         "open kernel module"},
        {"NVIDIA UNIX Open Kernel Module for aarch64  540.4.0", OS_UNKNOWN, "open kernel module"},
        {"NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6", OS_NO,
         "proprietary kernel module"},
        {"NVIDIA UNIX x86_64 Kernel Module  535.54.03", OS_YES, "WSL"},
        {"", OS_YES, "WSL"},
        {"", OS_NO, "unknown"},
        {"Kernel", OS_NO, "unknown"},
        {"something else", OS_UNKNOWN, "unknown"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        os_facts facts = {.is_wsl = rows[i].is_wsl};
        (void)snprintf(facts.gpu_driver, sizeof(facts.gpu_driver), "%s", rows[i].line);
        cr_assert_str_eq(diagnosis_driver_model(&facts), rows[i].model, "%s", rows[i].line);
    }
}

Test(diagnose_rules, each_fact_of_a_gpu_alone) {
    const gpuipc_device_info good = {
        .name = "NVIDIA H200", .driver_model = GPUIPC_DRIVER_MODEL_WDDM, .can_share = 1};
    gpuipc_device_info slice = good;
    gpuipc_device_info tcc = good;
    gpuipc_device_info old = good;
    slice.is_mig = 1;
    tcc.driver_model = GPUIPC_DRIVER_MODEL_TCC;
    tcc.can_share = old.can_share = 0;
    (void)strcpy(old.why_not, "the device has no virtual memory management");
    const struct {
        gpu_facts gpu;
        const char *ids;
    } rows[] = {{{.info = &good}, ""},
                {{.info = &good, .compute_mode = 3}, "D16"},
                {{.info = &good, .compute_mode = 2}, "D16"},
                {{.info = &good, .is_integrated = true}, "D14"},
                {{.info = &slice}, "D15"},
                {{.info = &tcc}, "D12"},
                {{.info = &old}, "D13"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        diagnosis found = {0};
        rules_gpu(&found, &rows[i].gpu);
        expect_of(&found, rows[i].ids, rows[i].ids);
    }
}

static const pair_facts near_pair = {.owner = 0,
                                     .user = 1,
                                     .way = {.peer_access = 1, .link = GPUIPC_LINK_PCIE},
                                     .common = NVML_TOPOLOGY_HOSTBRIDGE,
                                     .memory_bytes = 80 * GIB,
                                     .pci = {.iommu = "identity", .bar1_bytes = 128 * GIB}};

#define PAIR_ROW(ids, ...)                                                                         \
    do {                                                                                           \
        diagnosis found = {0};                                                                     \
        pair_facts pair = near_pair;                                                               \
        __VA_ARGS__;                                                                               \
        rules_pair(&found, &pair);                                                                 \
        expect_of(&found, #__VA_ARGS__, ids);                                                      \
    } while (0)

Test(diagnose_rules, each_fact_of_two_gpus_alone) {
    PAIR_ROW("", (void)pair);
    PAIR_ROW("D18", pair.way.peer_access = 0);
    PAIR_ROW("D42", pair.has_pools = true);
    PAIR_ROW("D18", pair.way.peer_access = 0; pair.has_pools = true);
    PAIR_ROW("D19", pair.common = NVML_TOPOLOGY_SYSTEM);
    PAIR_ROW("D19", pair.common = NVML_TOPOLOGY_NODE);
    PAIR_ROW("", pair.common = NVML_TOPOLOGY_MULTIPLE);
    PAIR_ROW("", pair.common = -1);
    PAIR_ROW("D20", strcpy(pair.pci.iommu, "DMA-FQ"));
    PAIR_ROW("D20", strcpy(pair.pci.iommu, "DMA"));
    PAIR_ROW("", pair.pci.iommu[0] = '\0');
    PAIR_ROW("D21", pair.pci.bar1_bytes = GIB / 4);
    PAIR_ROW("", pair.pci.bar1_bytes = 0);
    /* NVLink goes by none of these. */
    PAIR_ROW("", pair.way.link = GPUIPC_LINK_NVLINK; strcpy(pair.pci.iommu, "DMA");
             pair.pci.bar1_bytes = 1; pair.common = NVML_TOPOLOGY_SYSTEM);
}

/* The worst of several pairs counts. */
Test(diagnose_rules, two_nodes_are_worse_than_two_host_bridges) {
    diagnosis found = {0};
    pair_facts pair = near_pair;
    pair.common = NVML_TOPOLOGY_NODE;
    rules_pair(&found, &pair);
    const gpuipc_finding *one = &found.findings[FINDING_FAR_APART];
    cr_assert_eq(one->severity, GPUIPC_SEVERITY_NOTE);
    cr_assert_not_null(strstr(one->evidence, "two host bridges of one NUMA node"));
    pair.common = NVML_TOPOLOGY_SYSTEM;
    rules_pair(&found, &pair);
    cr_assert_eq(one->severity, GPUIPC_SEVERITY_SLOWS);
}

Test(diagnose_rules, each_end_of_a_trial) {
    static const struct {
        gpuipc_reason reason;
        const char *ids;
    } rows[] = {{GPUIPC_REASON_NONE, ""},
                {GPUIPC_REASON_NO_P2P, ""}, /* these have findings of their own */
                {GPUIPC_REASON_MIG, ""},
                {GPUIPC_REASON_COMPUTE_MODE, ""},
                {GPUIPC_REASON_NO_IMEX_CHANNEL, "D22"},
                {GPUIPC_REASON_WRONG_DATA, "D23"},
                {GPUIPC_REASON_DRIVER_REFUSED, "D24"},
                {GPUIPC_REASON_DEVICE_MEMORY, "D25"},
                {GPUIPC_REASON_HANDLE_LIMIT, "D35"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        diagnosis found = {0};
        const gpuipc_transport_info answer = {.reason = rows[i].reason, .sentence = "a reason"};
        rules_trial(&found, &healthy_facts, 0, 1, &answer);
        expect_of(&found, gpuipc_reason_name(rows[i].reason), rows[i].ids);
    }
}

/* ---- findings -------------------------------------------------------------------------------- */

Test(diagnose_rules, every_number_has_its_texts) {
    gpuipc_finding finding;
    for (uint32_t i = 1; i <= GPUIPC_FINDING_COUNT; i++) {
        char id[8];
        check_ok(gpuipc_finding_describe(i, &finding));
        (void)snprintf(id, sizeof(id), "D%02u", i);
        cr_assert_str_eq(finding.id, id);
        cr_assert_eq(finding.number, i);
        cr_assert_gt(strlen(finding.cause), 10, "%s", id);
        cr_assert_gt(strlen(finding.remedy), 10, "%s", id);
        cr_assert_gt(strlen(finding.cost), 3, "%s", id);
        cr_assert_gt(strlen(finding.name), 2, "%s", id);
        cr_assert_eq(finding.evidence[0], '\0');
        cr_assert_str_neq(gpuipc_severity_name(finding.severity), "unknown");
    }
    cr_assert_str_eq(gpuipc_severity_name((gpuipc_severity)0), "unknown");
    check_status(GPUIPC_ERR_NOT_FOUND, gpuipc_finding_describe(0, &finding));
    check_status(GPUIPC_ERR_NOT_FOUND, gpuipc_finding_describe(GPUIPC_FINDING_COUNT + 1, &finding));
    check_status(GPUIPC_ERR_INVALID_ARGUMENT, gpuipc_finding_describe(1, NULL));
}

Test(diagnose_rules, evidence_is_gathered_and_cut_with_a_sign_of_it) {
    diagnosis found = {0};
    diagnosis_add(&found, FINDING_NO_P2P, GPUIPC_SEVERITY_NOTE, "device %d", 0);
    diagnosis_add(&found, FINDING_NO_P2P, GPUIPC_SEVERITY_BLOCKS, "device %d", 1);
    diagnosis_add(&found, FINDING_NO_P2P, GPUIPC_SEVERITY_SLOWS, "device %d", 2);
    const gpuipc_finding *finding = &found.findings[FINDING_NO_P2P];
    cr_assert_str_eq(finding->evidence, "device 0; device 1; device 2");
    cr_assert_eq(finding->severity, GPUIPC_SEVERITY_BLOCKS);
    for (int i = 3; i < 500; i++) {
        diagnosis_add(&found, FINDING_NO_P2P, GPUIPC_SEVERITY_NOTE, "device %d", i);
    }
    const size_t length = strlen(finding->evidence);
    cr_assert_lt(length, sizeof(finding->evidence));
    cr_assert_gt(length, sizeof(finding->evidence) - 32);
    cr_assert_str_eq(finding->evidence + length - 5, "; ...");
    cr_assert_neq(strcmp(finding->evidence + length - 10, "; ...; ..."), 0);
}

/* ---- evidence ---------------------------------------------------------------------------------- */

static const char *evidence_of(const os_facts *facts, gpuipc_status status, finding_number of,
                               diagnosis *found) {
    const gpuipc_error error = {.status = status, .sentence = "said"};
    cr_assert(rules_no_context(found, facts, &error, "auto"));
    return found->findings[of].evidence;
}

Test(diagnose_rules, what_is_known_is_the_evidence) {
    diagnosis files = {0};
    diagnosis kernel = {0};
    diagnosis withheld = {0};
    os_facts facts = healthy_facts;
    clear_environment();
    facts.gpu_driver[0] = '\0'; /* of a container that has the files alone */
    strcpy(facts.gpu_node_refused, "/dev/nvidiactl: no");
    cr_assert_str_eq(
        evidence_of(&facts, GPUIPC_ERR_NO_DRIVER, FINDING_CONTAINER_WITHOUT_DRIVER, &files),
        "said; /dev/nvidiactl: no");
    cr_assert_str_eq(
        evidence_of(&facts, GPUIPC_ERR_DRIVER_FAILED, FINDING_CONTAINER_WITHOUT_DRIVER, &kernel),
        "said; /dev/nvidiactl: no");
    cr_assert_not_null(
        strstr(evidence_of(&facts, GPUIPC_ERR_NO_DEVICE, FINDING_GPU_WITHHELD, &withheld),
               "(/dev/nvidiactl: no)"));
}

/* Refused files of a driver that is not there say nothing. */
Test(diagnose_rules, a_driver_that_fails_and_is_not_there_has_failed) {
    os_facts facts = bare_facts;
    clear_environment();
    strcpy(facts.gpu_node_refused, "/dev/nvidiactl: no");
    expect_no_context(&facts, GPUIPC_ERR_DRIVER_FAILED, 0, "D03");
    expect_no_context(&facts, GPUIPC_ERR_DRIVER_FAILED, 999, "D03");
}

Test(diagnose_rules, what_is_known_of_channels_is_the_evidence) {
    const gpuipc_transport_info answer = {.reason = GPUIPC_REASON_NO_IMEX_CHANNEL,
                                          .sentence = "a reason"};
    static const char *const said[] = {"the driver has no channels", "no channel opens",
                                       "/dev/channel7"};
    for (size_t i = 0; i < 3; i++) {
        diagnosis found = {0};
        os_facts facts = healthy_facts;
        facts.imex_is_loaded = i > 0 ? OS_YES : OS_NO;
        (void)strcpy(facts.imex_channel, i == 2 ? said[2] : "");
        rules_trial(&found, &facts, 0, 1, &answer);
        cr_assert_not_null(strstr(found.findings[FINDING_NO_IMEX_CHANNEL].evidence, said[i]));
    }
}

Test(diagnose_rules, a_name_without_a_folder_and_a_number_without_a_fraction_are_no_version) {
    char version[32];
    clear_environment();
    expect_gpus(2, 2, "libcuda.so.575.57.08", false, false, "");
    cr_assert_not(diagnosis_version("7.x", version, sizeof(version)));
    cr_assert_not(diagnosis_version("7./", version, sizeof(version)));
    cr_assert_not(diagnosis_version("7.:", version, sizeof(version)));
}
