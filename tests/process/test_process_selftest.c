/* SPDX-License-Identifier: MIT */
/** @file gpuipc-selftest as a person or a script meets it: what it prints first, and its exit code. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "selftest_run.h"
#include "system.h"

TestSuite(selftest, .timeout = 100);

Test(selftest, passes_on_the_emulated_driver_and_says_so_first) {
    selftest_outcome found = selftest_run(
        (selftest_words){"--driver=emulated", "--size=1M", "--size=8M", "--verbose", NULL}, NULL);
    selftest_expect_code(&found, 0);
    cr_assert(strstr(found.first, "emulated") != NULL, "%s", found.first);
    selftest_expect_text(&found,
                         "pass  device 0 -> device 1, 1 MiB (rounded up to 2 MiB: the granularity "
                         "is 2 MiB): all 262144 words right both ways");
    selftest_expect_text(&found,
                         "pass  device 1 -> device 0, 8 MiB: all 2097152 words right both ways");
    selftest_expect_text(&found, "opening changed free memory by 0 B (emulated");
    selftest_expect_text(&found, "kernel: not run (emulated driver)");
    selftest_expect_text(&found, "(emulated); opened by ticket in ");
    selftest_expect_text(&found, "memory of device 1 used by device 0, between two programs:\n");
    selftest_expect_text(&found, "pass  vmm, rung 4, streams of both wait for each other: yes");
    selftest_expect_text(&found, "pass  vmm, rung 5, the death of either is noticed: yes");
    selftest_expect_text(&found, "pass  wrong input, device 1: damaged and revoked tickets and an");
    cr_assert(strstr(found.last, "passed on the emulated driver, no GPU was used: 14 passed, 0 "
                                 "failed, 0 skipped") == found.last,
              "%s", found.last);
}

static unsigned count_lines(const selftest_outcome *found) {
    unsigned count = 0;
    for (const char *at = strchr(found->all, '\n'); at != NULL; at = strchr(at + 1, '\n')) {
        count++;
    }
    return count;
}

/* Whatever the machine; and no figures of a GPU that is not here. */
Test(selftest, a_run_is_told_in_25_lines) {
    static const char *const machines[] = {"GPUIPC_EMULATED_MACHINE=devices=2",
                                           "GPUIPC_EMULATED_MACHINE=devices=5;p2p=0-1;memory=64M"};
    for (size_t i = 0; i < sizeof(machines) / sizeof(machines[0]); i++) {
        const selftest_outcome found =
            selftest_run((selftest_words){"--driver=emulated", "--quick", NULL},
                         (selftest_words){machines[i], NULL});
        selftest_expect_code(&found, 0);
        cr_assert_leq(count_lines(&found), 25, "%u lines:\n%s", count_lines(&found), found.all);
        selftest_expect_text(&found, "pass  memory shared between two programs: ");
        selftest_expect_text(&found, "pass  vmm between two programs: 5 cases, ");
        selftest_expect_text(&found, "pass  wrong input: 1 case, ");
        selftest_expect_text(&found, "    host    yes   ");
        cr_assert(strstr(found.all, "GB/s") == NULL && strstr(found.all, "hand-over") == NULL, "%s",
                  found.all);
        cr_assert(strstr(found.last, "passed on the emulated driver") == found.last, "%s",
                  found.last);
    }
}

/* Failures are never left out altogether. */
Test(selftest, a_run_in_few_lines_says_what_failed) {
    const selftest_outcome found =
        selftest_run((selftest_words){"--driver=emulated", "--timeout=5", NULL},
                     (selftest_words){"GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:*=999",
                                      "GPUIPC_EMULATED_MACHINE=devices=4;memory=64M", NULL});
    selftest_expect_code(&found, 1);
    cr_assert_leq(count_lines(&found), 25, "%u lines:\n%s", count_lines(&found), found.all);
    selftest_expect_text(&found, "FAIL  device 0 -> device 0, 1 MiB: ");
    selftest_expect_text(&found, "FAIL  26 more\n");
    selftest_expect_text(&found, "0 passed, 32 failed, 0 skipped");
}

/* The number of findings that block, as a line says it. */
static int blocks_in(const selftest_outcome *found, const char *before) {
    int count = -1;
    const char *at = strstr(found->all, before);
    cr_assert(at != NULL && sscanf(at + strlen(before), "%d block", &count) == 1, "%s", found->all);
    return count;
}

/* Where there is no driver a run turns to the emulated one, which is not what the doctor is asked about. */
Test(selftest, a_run_and_the_doctor_find_the_same) {
    static const char *const hidden[] = {"NO_COLOR=1", "CUDA_VISIBLE_DEVICES=7"};
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        const char *const environment[] = {hidden[i], NULL};
        const selftest_outcome run =
            selftest_run((selftest_words){"--driver=auto", "--quick", NULL}, environment);
        if (strstr(run.first, "emulated") == NULL) {
            cr_skip_test("the doctor tries more on a GPU than a run looks for");
        }
        const selftest_outcome doctor =
            selftest_run((selftest_words){"doctor", "--driver=auto", NULL}, environment);
        cr_assert_eq(blocks_in(&run, "by looking alone ("),
                     blocks_in(&doctor, "causes looked for: "));
        selftest_expect_code(&doctor, 1);
    }
}

/* Starting the driver takes longer than a run that is to be short has for what is larger than 1 MiB, and for transports. */
Test(selftest, says_what_it_leaves_out_to_be_short) {
    selftest_words slow = {"GPUIPC_EMULATED_FAIL=cuInit:1=delay2500", NULL};
    selftest_outcome found =
        selftest_run((selftest_words){"--driver=emulated", "--only=share,transports", NULL}, slow);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "pass  device 0 -> device 0, 1 MiB");
    selftest_expect_text(&found, "pass  device 1 -> device 0, 1 MiB");
    selftest_expect_text(&found, "skip  device 0 -> device 0, 8 MiB: left out, so that the run is");
    selftest_expect_text(&found, "skip  transports, device 1 -> device 1: left out");
    selftest_expect_text(&found, "4 passed, 0 failed, 8 skipped");

    found =
        selftest_run((selftest_words){"--driver=emulated", "--only=share", "--full", NULL}, slow);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "pass  device 1 -> device 1, 8 MiB");
    selftest_expect_text(&found, "12 passed, 0 failed, 0 skipped");
}

/* One pair's failure is that pair's; others go on behind it, in programs of their own. */
Test(selftest, goes_on_behind_a_pair_that_fails) {
    selftest_outcome found = selftest_run(
        (selftest_words){"--driver=emulated", "--size=1M", "--timeout=2", "--verbose", NULL},
        (selftest_words){"GPUIPC_EMULATED_FAIL=cuMemSetAccess:8=die", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "FAIL  device 1 -> device 0, 1 MiB: ");
    selftest_expect_text(&found, "pass  device 1 -> device 1, 1 MiB");
    selftest_expect_text(&found, "3 passed, 1 failed, 0 skipped");
}

Test(selftest, measures_copies) {
    selftest_outcome found = selftest_run(
        (selftest_words){"--driver=emulated", SELFTEST_ONE_CASE, "--bench-copy", NULL}, NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "through the shared mapping ");
    selftest_expect_text(&found, " GB/s (emulated), inside one process ");
    selftest_expect_text(&found, "8 passed, 0 failed, 0 skipped");
}

Test(selftest, says_every_step_when_asked) {
    selftest_outcome found = selftest_run(
        (selftest_words){"--driver=emulated", SELFTEST_ONE_CASE, "--verbose", NULL}, NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "producer: filling the memory");
    selftest_expect_text(&found, "consumer: writing another pattern");
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
                                           {"--ticket", NULL},
                                           {"produce", "--ticket=x", NULL},
                                           {"consume", "--ticket", NULL},
                                           {"produce", "a", "--ticket", NULL},
                                           {"produce", "--ticket", "--bench-copy", NULL},
                                           {"produce", "--ticket", "--size=4", NULL},
                                           {"--driver=emulated", "--device=7", NULL},
                                           {"--driver=emulated", "--peer=7", NULL}};
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        selftest_outcome found = selftest_run(lines[i], NULL);
        cr_assert_eq(found.code, 2, "%s: exit code %d", lines[i][0], found.code);
    }
}

/* Where only the ticket is missing. */
Test(selftest, a_ticket_that_is_not_there_is_asked_for) {
    selftest_outcome found = selftest_run((selftest_words){"consume", "--ticket", NULL}, NULL);
    selftest_expect_code(&found, 2);
    found = selftest_run((selftest_words){"consume", "--ticket=", "--driver=emulated", NULL}, NULL);
    selftest_expect_code(&found, 2);
    found =
        selftest_run((selftest_words){"consume", "--ticket=x", "--driver=emulated", NULL}, NULL);
    selftest_expect_code(&found, 2);
}

Test(selftest, help_and_version) {
    selftest_outcome found = selftest_run((selftest_words){"--help", NULL}, NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "usage: gpuipc-selftest");
    found = selftest_run((selftest_words){"--version", NULL}, NULL);
    selftest_expect_code(&found, 0);
    cr_assert_eq(strncmp(found.first, "gpuipc-selftest 0.", 18), 0, "%s", found.first);
}

Test(selftest, nothing_to_test) {
    selftest_outcome found =
        selftest_run((selftest_words){"--driver=emulated", NULL},
                     (selftest_words){"GPUIPC_EMULATED_MACHINE=devices=0", NULL});
    selftest_expect_code(&found, 77);

    found = selftest_run((selftest_words){"--driver=emulated", NULL},
                         (selftest_words){"GPUIPC_EMULATED_MACHINE=devices=1;fd-handles=0", NULL});
    selftest_expect_code(&found, 77);
    selftest_expect_text(&found, "skip  device 0 -> device 0: the device cannot export memory");

    found = selftest_run((selftest_words){"--driver=emulated", SELFTEST_ONE_CASE, NULL},
                         (selftest_words){"GPUIPC_EMULATED_MACHINE=p2p=none", NULL});
    selftest_expect_code(&found, 77);
    selftest_expect_text(&found,
                         "skip  device 0 -> device 1: device 1 cannot reach memory of device 0");

    found = selftest_run(
        (selftest_words){"--driver=emulated", "--device=0", "--peer=0", "--size=64G", NULL}, NULL);
    selftest_expect_code(&found, 77);
    selftest_expect_text(
        &found, "skip  device 0 -> device 0, 64 GiB: device 0 has 4094 MiB of memory free");
}

/* What is found of the system that the test runs on is that system's; of the emulated machine it is this. */
Test(selftest, doctor_says_what_is_in_the_way_and_what_to_do) {
    selftest_outcome found =
        selftest_run((selftest_words){"doctor", "--driver=emulated", NULL},
                     (selftest_words){"GPUIPC_EMULATED_MACHINE=compute-mode=prohibited", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "D16  blocks  a GPU's compute mode admits one process, or none");
    selftest_expect_text(&found, "found:    device 0: prohibited; device 1: prohibited");
    selftest_expect_text(&found, "remedy:   nvidia-smi -i GPU --compute-mode=0");
    selftest_expect_text(&found, "security: every user of the machine may use the GPU");
    cr_assert(strstr(found.all, "not so: ") == NULL, "%s", found.all);

    found = selftest_run((selftest_words){"doctor", "--driver=emulated", "--verbose", NULL}, NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "D10  note    the emulated driver is in use");
    selftest_expect_text(&found, "D16  not so: ");
    selftest_expect_text(&found, "causes looked for: 0 block");

    found = selftest_run((selftest_words){"doctor", "now", NULL}, NULL);
    selftest_expect_code(&found, 2);
}

/* It says nothing about the installed driver, which is another file. */
Test(selftest, doctor_says_that_a_library_that_was_named_is_not_there) {
    char folder[4096];
    char option[sizeof(folder) + 64];
    cr_assert(system_own_folder(folder, sizeof(folder)));
    (void)snprintf(option, sizeof(option), "--driver=%s" SYSTEM_SEPARATOR "nowhere", folder);
    const selftest_outcome found = selftest_run((selftest_words){"doctor", option, NULL}, NULL);
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "D39  blocks  the library that was named as the CUDA driver");
    selftest_expect_text(&found, "found:    there is no ");
    cr_assert(strstr(found.all, "D03  ") == NULL, "%s", found.all);
}

/* The pairs that can are tested, those that cannot are named. */
Test(selftest, skips_what_cannot_reach_each_other) {
    selftest_outcome found =
        selftest_run((selftest_words){"--driver=emulated", "--size=1M", "--verbose", NULL},
                     (selftest_words){"GPUIPC_EMULATED_MACHINE=devices=3;p2p=0-1", NULL});
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "skip  device 0 -> device 2: ");
    selftest_expect_text(&found, "skip  device 2 -> device 1: ");
    selftest_expect_text(&found, "pass  device 1 -> device 0, 1 MiB");
    selftest_expect_text(&found, "11 passed, 0 failed, 4 skipped");
}

/* A failure of the driver, wherever it comes, is a failure of the test, and one that says where. (But for the
 * second cuMemCreate and the first export, which are the context's: what it cannot keep alive costs time only.) */
Test(selftest, fails_when_the_driver_fails) {
    static const struct {
        const char *fault;
        const char *said;
    } rows[] = {
        {"GPUIPC_EMULATED_FAIL=cuMemCreate:1=2", "CUDA_ERROR_OUT_OF_MEMORY"},
        {"GPUIPC_EMULATED_FAIL=cuMemCreate:3=999", "CUDA_ERROR_UNKNOWN"},
        {"GPUIPC_EMULATED_FAIL=cuMemExportToShareableHandle:3=1", "GPUIPC_ERR_NOT_SHAREABLE"},
        {"GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:2=999", "GPUIPC_ERR_NOT_GPU_MEMORY"},
        {"GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:3=999", "opening the ticket"},
        {"GPUIPC_EMULATED_FAIL=cuMemcpyDtoH:2=700", "cuMemcpyDtoH"},
        {"GPUIPC_EMULATED_FAIL=cuDeviceCanAccessPeer:*=999", "whether one device reaches another"},
        {"GPUIPC_EMULATED_FAIL=cuMemSetAccess:1=die", "the producer ended"},
        {"GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:2=die", "the consumer ended"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        selftest_outcome found =
            selftest_run((selftest_words){"--driver=emulated", SELFTEST_ONE_CASE, NULL},
                         (selftest_words){rows[i].fault, NULL});
        cr_assert_eq(found.code, 1, "%s: exit code %d\n%s", rows[i].fault, found.code, found.all);
        selftest_expect_text(&found, "FAIL  device 0 -> device 1");
        selftest_expect_text(&found, rows[i].said);
        selftest_expect_text(&found, "1 failed");
    }
    selftest_outcome found =
        selftest_run((selftest_words){"--driver=emulated", NULL},
                     (selftest_words){"GPUIPC_EMULATED_FAIL=cuInit:1=999", NULL});
    selftest_expect_code(&found, 1);
}

Test(selftest, kills_what_hangs_and_says_in_which_step) {
    selftest_outcome found = selftest_run(
        (selftest_words){"--driver=emulated", SELFTEST_ONE_CASE, NULL},
        (selftest_words){"GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:2=delay60000", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(
        &found, "the consumer hung and was killed; its last step: waiting for the producer, "
                "and opening what it sends");
}

/* Asked for a CUDA driver, it never takes another, whatever the reason why there is none. */
Test(selftest, never_turns_to_the_emulated_driver_when_told_not_to) {
    char line[CHILD_LINE_MAX];
    selftest_outcome any = selftest_run(
        (selftest_words){"--driver=auto", "--size=1M", "--device=0", "--peer=0", NULL}, NULL);
    (void)snprintf(line, sizeof(line), "%s", any.first);
    if (strstr(line, "emulated") == NULL) {
        cr_skip_test("there is a CUDA driver here, so it cannot be missing");
    }
    cr_assert_eq(any.code, 0, "%s", any.all);
    cr_assert(strstr(line, "because ") != NULL, "%s", line);

    /* what would have hidden the GPUs does not hide the emulated ones */
    any = selftest_run((selftest_words){"--driver=auto", SELFTEST_ONE_CASE, NULL},
                       (selftest_words){"CUDA_VISIBLE_DEVICES=7", NULL});
    cr_assert_eq(any.code, 0, "%s", any.all);

    selftest_outcome found = selftest_run((selftest_words){"--driver=cuda", NULL}, NULL);
    selftest_expect_code(&found, 1);
    cr_assert(strstr(found.all, "emulated") == NULL, "%s", found.all);
    found = selftest_run((selftest_words){"--driver=/nowhere/libcuda.so.1", NULL}, NULL);
    selftest_expect_code(&found, 1);
    found = selftest_run((selftest_words){NULL}, (selftest_words){"GPUIPC_CUDA_DRIVER=cuda", NULL});
    selftest_expect_code(&found, 1);
}

/* A driver call has no deadline: the tool that made it ends itself. */
Test(selftest, ends_when_its_own_driver_call_hangs) {
    selftest_outcome found =
        selftest_run((selftest_words){"--driver=emulated", SELFTEST_ONE_CASE, NULL},
                     (selftest_words){"GPUIPC_EMULATED_FAIL=cuInit:1=delay60000", NULL});
    selftest_expect_code(&found, 1);
    cr_assert_str_empty(found.all);
}

/* 9 MiB are free beside the 2 MiB that the context keeps alive, but memory is made in units of 2 MiB. */
Test(selftest, skips_what_does_not_fit_when_rounded_up) {
    selftest_words small = {"GPUIPC_EMULATED_MACHINE=memory=11M", NULL};
    selftest_words tiny = {"GPUIPC_EMULATED_MACHINE=memory=8M", NULL};
    selftest_outcome found = selftest_run(
        (selftest_words){"--driver=emulated", "--device=0", "--peer=0", "--size=9M", NULL}, small);
    selftest_expect_code(&found, 77);
    selftest_expect_text(&found,
                         "skip  device 0 -> device 0, 9 MiB: device 0 has 9 MiB of memory free");
    found = selftest_run((selftest_words){"--driver=emulated", "--device=0", "--peer=0",
                                          "--size=2M", "--bench-copy", NULL},
                         tiny);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "too little free memory to measure copies");
}

/* The path reaches the two roles as it was given. */
Test(selftest, takes_a_driver_from_any_path) {
    char directory[RUNTIME_DIRECTORY_MAX];
    char folder[4096];
    char from[sizeof(folder) + 64];
    char to[sizeof(directory) + 128];
    char driver[sizeof(to) + 16];
    cr_assert(runtime_directory_make(directory));
    cr_assert(system_own_folder(folder, sizeof(folder)));
    (void)snprintf(from, sizeof(from), "%s" SYSTEM_SEPARATOR "%s", folder, os_emulated_driver_name);
    (void)snprintf(to, sizeof(to),
                   "%s" SYSTEM_SEPARATOR "tr\xC3\xBC"
                   "b, 'of  ours' \xE6\x97\xA5 %s",
                   directory, os_emulated_driver_name);
    (void)snprintf(driver, sizeof(driver), "--driver=%s", to);
    cr_assert(system_copy_file(from, to));
    selftest_outcome found = selftest_run((selftest_words){driver, SELFTEST_ONE_CASE, NULL}, NULL);
    system_remove_file(to);
    runtime_directory_remove(directory);
    selftest_expect_code(&found, 0);
    cr_assert(strstr(found.first, to) != NULL, "%s", found.first);
}

/* Asked for by its path, it is the one: there is no other to turn to. */
Test(selftest, fails_when_a_driver_that_is_named_does_not_start) {
    char folder[4096];
    char driver[sizeof(folder) + 96];
    char variable[sizeof(driver)];
    static const char *const codes[] = {"STAND_IN_INIT=100", "STAND_IN_INIT=803"};
    static const char file[] = SYSTEM_SEPARATOR "stand-in" SYSTEM_SEPARATOR STAND_IN_FILE;
    cr_assert(system_own_folder(folder, sizeof(folder)));
    (void)snprintf(driver, sizeof(driver), "--driver=%s%s", folder, file);
    (void)snprintf(variable, sizeof(variable), "GPUIPC_CUDA_DRIVER=%s%s", folder, file);
    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
        selftest_outcome found =
            selftest_run((selftest_words){driver, NULL}, (selftest_words){codes[i], NULL});
        selftest_expect_code(&found, 1);
        cr_assert_str_empty(found.all);
        found = selftest_run((selftest_words){NULL}, (selftest_words){variable, codes[i], NULL});
        selftest_expect_code(&found, 1);
        cr_assert_str_empty(found.all);
    }
}

/* The two roles by themselves, as in two terminals. */
Test(selftest, produce_and_consume_by_hand) {
    char name[UNIQUE_NAME_MAX];
    char line[CHILD_LINE_MAX];
    char all[8192] = "";
    child_process *consumer;
    child_end how;
    unique_name(name);
    check_ok(child_start(SELFTEST_TOOL,
                         (selftest_words){"consume", name, "--driver=emulated", "--peer=1", NULL},
                         NULL, &consumer));
    selftest_outcome found =
        selftest_run((selftest_words){"produce", "--name", name, "--driver=emulated", "--size=8M",
                                      "--bench-copy", NULL},
                     NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found,
                         "pass  device 0 -> device 1, 8 MiB: all 2097152 words right both ways");
    selftest_expect_text(&found, "ratio ");
    while (child_read_line(consumer, line, sizeof(line), PATIENCE_MS) == GPUIPC_OK) {
        (void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s\n", line);
    }
    check_ok(child_wait(consumer, PATIENCE_MS, &how));
    cr_assert(how.exited && how.code == 0, "%d", how.code);
    cr_assert(strstr(all, "done: everything") != NULL, "%s", all);
    child_destroy(consumer);
}

/* Up to the line that begins so. */
static void read_up_to(child_process *from, const char *beginning, char line[CHILD_LINE_MAX]) {
    do {
        check_ok(child_read_line(from, line, CHILD_LINE_MAX, PATIENCE_MS));
    } while (strncmp(line, beginning, strlen(beginning)) != 0);
}

static void expect_end(child_process *one, int code) {
    child_end how;
    check_ok(child_wait(one, PATIENCE_MS, &how));
    cr_assert(how.exited && how.code == code, "%d", how.code);
    child_destroy(one);
}

/* The text of the ticket is all that the consumers get. */
Test(selftest, produce_and_consume_by_a_ticket) {
    char line[CHILD_LINE_MAX];
    char option[CHILD_LINE_MAX + 16];
    child_process *producer;
    check_ok(child_start(SELFTEST_TOOL,
                         (selftest_words){"produce", "--ticket", "--driver=emulated", "--size=8M",
                                          "--device=1", "--timeout=10", NULL},
                         NULL, &producer));
    read_up_to(producer, "ticket ", line);
    cr_assert_eq(strlen(line), strlen("ticket ") + GPUIPC_TICKET_TEXT_SIZE - 1, "%s", line);
    (void)snprintf(option, sizeof(option), "--ticket=%s", line + strlen("ticket "));
    selftest_outcome found = selftest_run(
        (selftest_words){"consume", option, "--driver=emulated", "--peer=0", NULL}, NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "opened 8 MiB in ");
    selftest_expect_text(&found, "done: all 2097151 words were right");
    read_up_to(producer, "pass  ", line);
    cr_assert_str_eq(line, "pass  device 1, 8 MiB by ticket: opened, verified and released");
    expect_end(producer, 0);

    /* the server is gone, and a letter of the text is another one */
    found = selftest_run((selftest_words){"consume", option, "--driver=emulated", NULL}, NULL);
    selftest_expect_code(&found, 1);
    option[strlen(option) - 40] ^= 1;
    found = selftest_run((selftest_words){"consume", option, "--driver=emulated", NULL}, NULL);
    selftest_expect_code(&found, 2);
}

/* Memory that may be anybody's is not written. */
Test(selftest, a_ticket_of_another_program_is_refused) {
    const gpuipc_buffer_config memory = {.struct_size = sizeof(memory), .bytes = 4096};
    const uint32_t theirs = 0x12345678;
    char option[GPUIPC_TICKET_TEXT_SIZE + 16] = "--ticket=";
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_server *server;
    gpuipc_ticket ticket;
    uint32_t word = 0;
    check_ok(gpuipc_context_create(NULL, &context));
    check_ok(gpuipc_buffer_create(context, &memory, &buffer));
    check_ok(gpuipc_buffer_write(buffer, 4096 - sizeof(theirs), &theirs, sizeof(theirs)));
    check_ok(gpuipc_server_create(context, NULL, &server));
    check_ok(gpuipc_buffer_share(server, buffer, NULL, &ticket));
    check_ok(gpuipc_ticket_to_text(&ticket, option + strlen(option)));
    selftest_outcome found =
        selftest_run((selftest_words){"consume", option, "--driver=emulated", NULL}, NULL);
    selftest_expect_code(&found, 1);
    check_ok(gpuipc_buffer_read(buffer, 4096 - sizeof(word), &word, sizeof(word)));
    cr_assert_eq(word, theirs);
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_context_destroy(context));
}

Test(selftest, a_role_without_the_other_gives_up_in_time) {
    char name[UNIQUE_NAME_MAX];
    unique_name(name);
    selftest_outcome found = selftest_run(
        (selftest_words){"produce", name, "--driver=emulated", "--timeout=1", NULL}, NULL);
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "GPUIPC_ERR_TIMEOUT");
    found = selftest_run(
        (selftest_words){"consume", name, "--driver=emulated", "--timeout=1", NULL}, NULL);
    selftest_expect_code(&found, 1);
    found = selftest_run(
        (selftest_words){"produce", "--ticket", "--driver=emulated", "--timeout=1", NULL}, NULL);
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "by ticket: nobody verified the memory within 1 seconds");
}
