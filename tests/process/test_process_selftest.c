/* SPDX-License-Identifier: MIT */
/** @file gpuipc-selftest as a person or a script meets it: what it prints first, and its exit code. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "check.h"
#include "child.h"
#include "posix_system.h"
#include "process_case.h"

#define TOOL "gpuipc-selftest"
/* One small case; a short time-out, so that what is made to hang is ended soon. */
#define ONE_CASE "--device=0", "--peer=1", "--size=1M", "--timeout=2"

typedef const char *const words[];

TestSuite(selftest, .timeout = 100);

/* What a run printed on its standard output, and how it ended. */
typedef struct outcome {
    char first[CHILD_LINE_MAX];
    char last[CHILD_LINE_MAX];
    char all[8192];
    int code;
} outcome;

static outcome run_tool(const char *const *arguments, const char *const *environment) {
    outcome found = {.code = -1};
    char line[CHILD_LINE_MAX];
    child_process *tool;
    child_end how;
    check_ok(child_start(TOOL, arguments, environment, &tool));
    while (child_read_line(tool, line, sizeof(line), PATIENCE_MS) == GPUIPC_OK) {
        size_t used = strlen(found.all);
        (void)snprintf(found.all + used, sizeof(found.all) - used, "%s\n", line);
        memcpy(found.last, line, sizeof(line));
        if (found.first[0] == '\0') {
            memcpy(found.first, line, sizeof(line));
        }
    }
    check_ok(child_wait(tool, PATIENCE_MS, &how));
    cr_assert(how.exited, "ended by signal %d", how.code);
    found.code = how.code;
    child_destroy(tool);
    return found;
}

static void expect_text(const outcome *found, const char *text) {
    cr_assert(strstr(found->all, text) != NULL, "\"%s\" is not in:\n%s", text, found->all);
}

static void expect_code(const outcome *found, int code) {
    cr_assert_eq(found->code, code, "exit code %d, not %d; it printed:\n%s", found->code, code,
                 found->all);
}

Test(selftest, passes_on_the_emulated_driver_and_says_so_first) {
    outcome found = run_tool((words){"--driver=emulated", NULL}, NULL);
    expect_code(&found, 0);
    cr_assert(strstr(found.first, "emulated") != NULL, "%s", found.first);
    expect_text(&found, "pass  device 0 -> device 1, 1 MiB (rounded up to 2 MiB: the granularity "
                        "is 2 MiB): all 262144 words right both ways");
    expect_text(&found, "pass  device 1 -> device 0, 8 MiB: all 2097152 words right both ways");
    expect_text(&found, "opening changed free memory by 0 B (emulated");
    expect_text(&found, "kernel: not run (emulated driver)");
    cr_assert(strstr(found.last, "passed on the emulated driver, no GPU was used: 8 passed, 0 "
                                 "failed, 0 skipped") == found.last,
              "%s", found.last);
}

Test(selftest, measures_copies) {
    outcome found = run_tool((words){"--driver=emulated", ONE_CASE, "--bench-copy", NULL}, NULL);
    expect_code(&found, 0);
    expect_text(&found, "through the shared mapping ");
    expect_text(&found, " GB/s (emulated), inside one process ");
    expect_text(&found, "2 passed, 0 failed, 0 skipped");
}

Test(selftest, says_every_step_when_asked) {
    outcome found = run_tool((words){"--driver=emulated", ONE_CASE, "--verbose", NULL}, NULL);
    expect_code(&found, 0);
    expect_text(&found, "producer: filling the memory");
    expect_text(&found, "consumer: writing another pattern");
}

Test(selftest, wrong_usage) {
    static const char *const lines[][4] = {{"--nonsense", NULL},
                                           {"--size=0", NULL},
                                           {"--size=3", NULL},
                                           {"--size=1Q", NULL},
                                           {"--size=99999999999G", NULL},
                                           {"--size", NULL},
                                           {"--device=x", NULL},
                                           {"--device=-1", NULL},
                                           {"--driver=", NULL},
                                           {"--timeout=0", NULL},
                                           {"--timeout=soon", NULL},
                                           {"dance", NULL},
                                           {"produce", "a", "b", NULL},
                                           {"produce", "a", "--name=b", NULL},
                                           {"consume", "--size=1M", NULL},
                                           {"--name=a", NULL},
                                           {"--driver=emulated", "--device=7", NULL},
                                           {"--driver=emulated", "--peer=7", NULL}};
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        outcome found = run_tool(lines[i], NULL);
        cr_assert_eq(found.code, 2, "%s: exit code %d", lines[i][0], found.code);
    }
}

Test(selftest, help_and_version) {
    outcome found = run_tool((words){"--help", NULL}, NULL);
    expect_code(&found, 0);
    expect_text(&found, "usage: gpuipc-selftest");
    found = run_tool((words){"--version", NULL}, NULL);
    expect_code(&found, 0);
    cr_assert_eq(strncmp(found.first, "gpuipc-selftest 0.", 18), 0, "%s", found.first);
}

Test(selftest, nothing_to_test) {
    outcome found = run_tool((words){"--driver=emulated", NULL},
                             (words){"GPUIPC_EMULATED_MACHINE=devices=0", NULL});
    expect_code(&found, 77);

    found = run_tool((words){"--driver=emulated", NULL},
                     (words){"GPUIPC_EMULATED_MACHINE=devices=1;fd-handles=0", NULL});
    expect_code(&found, 77);
    expect_text(&found, "skip  device 0 -> device 0: the device cannot export memory");

    found = run_tool((words){"--driver=emulated", ONE_CASE, NULL},
                     (words){"GPUIPC_EMULATED_MACHINE=p2p=none", NULL});
    expect_code(&found, 77);
    expect_text(&found, "skip  device 0 -> device 1: device 1 cannot reach memory of device 0");

    found =
        run_tool((words){"--driver=emulated", "--device=0", "--peer=0", "--size=64G", NULL}, NULL);
    expect_code(&found, 77);
    expect_text(&found, "skip  device 0 -> device 0, 64 GiB: device 0 has 4 GiB of memory free");
}

/* The pairs that can are tested, those that cannot are named. */
Test(selftest, skips_what_cannot_reach_each_other) {
    outcome found = run_tool((words){"--driver=emulated", "--size=1M", NULL},
                             (words){"GPUIPC_EMULATED_MACHINE=devices=3;p2p=0-1", NULL});
    expect_code(&found, 0);
    expect_text(&found, "skip  device 0 -> device 2: ");
    expect_text(&found, "skip  device 2 -> device 1: ");
    expect_text(&found, "pass  device 1 -> device 0, 1 MiB");
    expect_text(&found, "5 passed, 0 failed, 4 skipped");
}

/* A failure of the driver, wherever it comes, is a failure of the test, and one that says where. */
Test(selftest, fails_when_the_driver_fails) {
    static const struct {
        const char *fault;
        const char *said;
    } rows[] = {
        {"GPUIPC_EMULATED_FAIL=cuMemCreate:1=2", "CUDA_ERROR_OUT_OF_MEMORY"},
        {"GPUIPC_EMULATED_FAIL=cuMemCreate:2=999", "CUDA_ERROR_UNKNOWN"},
        {"GPUIPC_EMULATED_FAIL=cuMemExportToShareableHandle:2=1", "GPUIPC_ERR_NOT_SHAREABLE"},
        {"GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:2=999", "GPUIPC_ERR_NOT_GPU_MEMORY"},
        {"GPUIPC_EMULATED_FAIL=cuMemcpyDtoH:2=700", "cuMemcpyDtoH"},
        {"GPUIPC_EMULATED_FAIL=cuDeviceCanAccessPeer:*=999", "cuDeviceCanAccessPeer"},
        {"GPUIPC_EMULATED_FAIL=cuMemSetAccess:1=die", "the producer ended"},
        {"GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:2=die", "the consumer ended"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        outcome found =
            run_tool((words){"--driver=emulated", ONE_CASE, NULL}, (words){rows[i].fault, NULL});
        cr_assert_eq(found.code, 1, "%s: exit code %d\n%s", rows[i].fault, found.code, found.all);
        expect_text(&found, "FAIL  device 0 -> device 1");
        expect_text(&found, "1 failed");
    }
    outcome found = run_tool((words){"--driver=emulated", NULL},
                             (words){"GPUIPC_EMULATED_FAIL=cuInit:1=999", NULL});
    expect_code(&found, 1);
}

Test(selftest, kills_what_hangs_and_says_in_which_step) {
    outcome found =
        run_tool((words){"--driver=emulated", ONE_CASE, NULL},
                 (words){"GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:2=delay60000", NULL});
    expect_code(&found, 1);
    expect_text(&found,
                "the consumer hung and was killed; its last step: waiting for the producer, "
                "and opening what it sends");
}

/* Asked for a CUDA driver, it never takes another, whatever the reason why there is none. */
Test(selftest, never_turns_to_the_emulated_driver_when_told_not_to) {
    char line[CHILD_LINE_MAX];
    outcome any =
        run_tool((words){"--driver=auto", "--size=1M", "--device=0", "--peer=0", NULL}, NULL);
    (void)snprintf(line, sizeof(line), "%s", any.first);
    if (strstr(line, "emulated") == NULL) {
        cr_skip_test("there is a CUDA driver here, so it cannot be missing");
    }
    cr_assert_eq(any.code, 0, "%s", any.all);
    cr_assert(strstr(line, "because ") != NULL, "%s", line);

    outcome found = run_tool((words){"--driver=cuda", NULL}, NULL);
    expect_code(&found, 1);
    cr_assert(strstr(found.all, "emulated") == NULL, "%s", found.all);
    found = run_tool((words){"--driver=/nowhere/libcuda.so.1", NULL}, NULL);
    expect_code(&found, 1);
    found = run_tool((words){NULL}, (words){"GPUIPC_CUDA_DRIVER=cuda", NULL});
    expect_code(&found, 1);
}

/* A driver call has no deadline: the tool that made it ends itself. */
Test(selftest, ends_when_its_own_driver_call_hangs) {
    outcome found = run_tool((words){"--driver=emulated", ONE_CASE, NULL},
                             (words){"GPUIPC_EMULATED_FAIL=cuInit:1=delay60000", NULL});
    expect_code(&found, 1);
    cr_assert_str_empty(found.all);
}

/* 9 MiB are free, but memory is made in units of 2 MiB. */
Test(selftest, skips_what_does_not_fit_when_rounded_up) {
    words small = {"GPUIPC_EMULATED_MACHINE=memory=9M", NULL};
    words tiny = {"GPUIPC_EMULATED_MACHINE=memory=6M", NULL};
    outcome found =
        run_tool((words){"--driver=emulated", "--device=0", "--peer=0", "--size=9M", NULL}, small);
    expect_code(&found, 77);
    expect_text(&found, "skip  device 0 -> device 0, 9 MiB: device 0 has 9 MiB of memory free");
    found = run_tool(
        (words){"--driver=emulated", "--device=0", "--peer=0", "--size=2M", "--bench-copy", NULL},
        tiny);
    expect_code(&found, 0);
    expect_text(&found, "too little free memory to measure copies");
}

/* "cuda" asks for a GPU, wherever a libcuda.so.1 may lead. */
Test(selftest, does_not_take_an_emulated_libcuda_for_the_installed_one) {
    char folder[4096];
    char path[sizeof(folder) + 64];
    cr_assert(system_own_folder(folder, sizeof(folder)));
    (void)snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s/emulated", folder);
    outcome found = run_tool((words){"--driver=cuda", ONE_CASE, NULL}, (words){path, NULL});
    expect_code(&found, 1);
    cr_assert_str_empty(found.all);
}

/* A libcuda.so.1 is there: what its cuInit answers decides. */
Test(selftest, turns_to_the_emulated_driver_only_when_there_is_no_device) {
    char folder[4096];
    char path[sizeof(folder) + 64];
    cr_assert(system_own_folder(folder, sizeof(folder)));
    (void)snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s/stand-in", folder);
    words no_device = {path, "STAND_IN_INIT=100", NULL};
    words hidden = {path, "STAND_IN_INIT=100", "CUDA_VISIBLE_DEVICES=", NULL};
    words broken = {path, "STAND_IN_INIT=803", NULL};

    outcome found = run_tool((words){"--driver=auto", ONE_CASE, NULL}, no_device);
    expect_code(&found, 0);
    cr_assert(strstr(found.first, "driver: emulated in software, NOT a GPU (because ") != NULL,
              "%s", found.first);
    found = run_tool((words){"--driver=auto", ONE_CASE, NULL}, hidden);
    expect_code(&found, 0); /* what hid the GPUs does not hide the emulated ones */
    found = run_tool((words){"--driver=cuda", ONE_CASE, NULL}, no_device);
    expect_code(&found, 1);
    cr_assert_str_empty(found.all);
    found = run_tool((words){"--driver=auto", ONE_CASE, NULL}, broken);
    expect_code(&found, 1);
    cr_assert_str_empty(found.all);
}

/* The two roles by themselves, as in two terminals. */
Test(selftest, produce_and_consume_by_hand) {
    char name[UNIQUE_NAME_MAX];
    char line[CHILD_LINE_MAX];
    char all[8192] = "";
    child_process *consumer;
    child_end how;
    unique_name(name);
    check_ok(child_start(TOOL, (words){"consume", name, "--driver=emulated", "--peer=1", NULL},
                         NULL, &consumer));
    outcome found = run_tool(
        (words){"produce", "--name", name, "--driver=emulated", "--size=8M", "--bench-copy", NULL},
        NULL);
    expect_code(&found, 0);
    expect_text(&found, "pass  device 0 -> device 1, 8 MiB: all 2097152 words right both ways");
    expect_text(&found, "ratio ");
    while (child_read_line(consumer, line, sizeof(line), PATIENCE_MS) == GPUIPC_OK) {
        (void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s\n", line);
    }
    check_ok(child_wait(consumer, PATIENCE_MS, &how));
    cr_assert(how.exited && how.code == 0, "%d", how.code);
    cr_assert(strstr(all, "done: everything") != NULL, "%s", all);
    child_destroy(consumer);
}

Test(selftest, a_role_without_the_other_gives_up_in_time) {
    char name[UNIQUE_NAME_MAX];
    unique_name(name);
    outcome found =
        run_tool((words){"produce", name, "--driver=emulated", "--timeout=1", NULL}, NULL);
    expect_code(&found, 1);
    expect_text(&found, "GPUIPC_ERR_TIMEOUT");
    found = run_tool((words){"consume", name, "--driver=emulated", "--timeout=1", NULL}, NULL);
    expect_code(&found, 1);
}
