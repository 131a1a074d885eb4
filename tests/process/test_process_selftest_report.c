/* SPDX-License-Identifier: MIT */
/** @file What gpuipc-selftest makes of what it found, for people and for programs, and what may be demanded of it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "selftest_run.h"

TestSuite(selftest_report, .timeout = 100);

#define EMULATED "--driver=emulated"
#define ONE_PAIR "--device=0", "--peer=1"

static unsigned lines_with(const selftest_outcome *found, const char *beginning) {
    unsigned count = 0;
    for (const char *line = found->all; line != NULL && *line != '\0';) {
        count += strncmp(line, beginning, strlen(beginning)) == 0;
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return count;
}

Test(selftest_report, a_run_says_what_the_machine_is_and_which_ways_there_are) {
    const selftest_outcome found =
        selftest_run((selftest_words){EMULATED, "--quick", "--verbose", NULL}, NULL);
    selftest_expect_code(&found, 0);
    cr_assert_eq(lines_with(&found, "platform: "), 1);
    cr_assert_eq(lines_with(&found, "device 0: gpuipc emulated GPU; GPU-"), 1);
    cr_assert_eq(lines_with(&found, "device 1: gpuipc emulated GPU; GPU-"), 1);
    cr_assert_eq(lines_with(&found, "pass  device "), 4, "one size, four pairs:\n%s", found.all);
    cr_assert_eq(lines_with(&found, "    vmm     yes  zero-copy, tried"), 4);
    cr_assert(strstr(found.all, "estimated") == NULL, "%s", found.all);
    cr_assert_eq(lines_with(&found, "    fabric  "), 4);
    cr_assert(strchr(found.all, '\x1b') == NULL, "colours are for a terminal");
}

#define WITHOUT_MODEL "GPUIPC_EMULATED_MACHINE=driver-model=none"

/* The whole line, so that whoever reads it has all of it in one place. */
Test(selftest_report, the_platform_is_one_line) {
    static const struct {
        const char *machine;
        const char *model;
    } rows[] = {{WITHOUT_MODEL, NULL},
                {"GPUIPC_EMULATED_MACHINE=driver-model=none;nvml=0", NULL},
                {"GPUIPC_EMULATED_MACHINE=driver-model=wddm", "WDDM"},
                {"GPUIPC_EMULATED_MACHINE=driver-model=tcc", "TCC"},
                {"GPUIPC_EMULATED_MACHINE=driver-model=mcdm", "MCDM"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char line[128];
        const selftest_outcome found = selftest_run((selftest_words){EMULATED, "transports", NULL},
                                                    (selftest_words){rows[i].machine, NULL});
        /* On Windows the driver's attributes know two models, and nothing that is neither. */
        const char *none = strstr(found.all, "; system: Windows ") != NULL ? "WDDM" : "emulated";
        (void)snprintf(line, sizeof(line),
                       "platform: gpuipc: 0.1.0; driver: emulated; driver model: %s; system: ",
                       rows[i].model != NULL ? rows[i].model : none);
        cr_assert_eq(lines_with(&found, line), 1, "%s: %s", rows[i].machine, found.all);
        selftest_expect_text(&found, "; container: ");
        selftest_expect_text(&found, "; PID namespace: ");
    }
}

/* What every format has of it, but JSON and the page, which is made of that. */
Test(selftest_report, the_platform_is_in_every_format) {
    selftest_words mcdm = {"GPUIPC_EMULATED_MACHINE=driver-model=mcdm", NULL};
    selftest_outcome found =
        selftest_run((selftest_words){EMULATED, "transports", "--csv", NULL}, mcdm);
    selftest_expect_text(&found, "\nplatform,driver_model,,,,,,,,,\"MCDM\",\r\n");
    cr_assert_eq(lines_with(&found, "platform,"), 6, "%s", found.all);
    found = selftest_run((selftest_words){EMULATED, "transports", "--markdown", NULL}, mcdm);
    selftest_expect_text(&found, "\n- driver: emulated\n- driver model: MCDM\n- system: ");
    selftest_expect_text(&found, "\n- PID namespace: ");
    selftest_expect_text(&found, "\n- CUDA: 13.0, emulated, no GPU\n");
}

Test(selftest_report, only_some_checks) {
    selftest_outcome found =
        selftest_run((selftest_words){EMULATED, "--quick", "--only=share/0-1", NULL}, NULL);
    selftest_expect_code(&found, 0);
    cr_assert_eq(lines_with(&found, "pass  device 0 -> device 1, 1 MiB"), 1);
    cr_assert_eq(lines_with(&found, "pass  "), 1, "%s", found.all);
    cr_assert_eq(lines_with(&found, "memory of device"), 0);

    found = selftest_run((selftest_words){EMULATED, "--quick", "--only=transports,share/1-1", NULL},
                         NULL);
    selftest_expect_code(&found, 0);
    cr_assert_eq(lines_with(&found, "pass  "), 1, "%s", found.all);
    cr_assert_eq(lines_with(&found, "memory of device"), 4);

    found = selftest_run((selftest_words){EMULATED, "--only=share/0-0/8388608", NULL}, NULL);
    selftest_expect_code(&found, 0);
    cr_assert_eq(lines_with(&found, "pass  device 0 -> device 0, 8 MiB"), 1);
    cr_assert_eq(lines_with(&found, "pass  "), 1, "%s", found.all);

    found = selftest_run((selftest_words){EMULATED, "--quick", "--only=transports", NULL}, NULL);
    selftest_expect_code(&found, 0);
    cr_assert_eq(lines_with(&found, "memory of device"), 4);
    cr_assert_eq(lines_with(&found, "nothing to test"), 0);

    found = selftest_run(
        (selftest_words){EMULATED, "--device=1", "--peer=0", "--only=peer,refused", NULL}, NULL);
    selftest_expect_code(&found, 0);
    cr_assert_eq(lines_with(&found, "pass  vmm, rung "), 5, "%s", found.all);
    cr_assert_eq(lines_with(&found, "pass  wrong input, device 1: "), 1, "%s", found.all);
    cr_assert_eq(lines_with(&found, "pass  "), 6, "%s", found.all);

    /* Streams that cannot wait for each other are no success, whatever copies say. */
    found = selftest_run((selftest_words){EMULATED, "--quick", ONE_PAIR, "--timeout=5", NULL},
                         (selftest_words){"GPUIPC_EMULATED_FAIL=cuStreamWaitValue64:*=999", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "FAIL  vmm, rung 4, streams of both wait for each other: ");

    found = selftest_run((selftest_words){EMULATED, "--quick", "--only=share/0-10", NULL}, NULL);
    selftest_expect_code(&found, 77);
    cr_assert_eq(lines_with(&found, "pass  "), 0, "%s", found.all);
}

Test(selftest_report, everything) {
    const selftest_outcome found =
        selftest_run((selftest_words){EMULATED, ONE_PAIR, "--size=1M", "--full", NULL}, NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "through the shared mapping ");
    selftest_expect_text(&found, " GB/s (measured)");
    selftest_expect_text(&found, "passed on the emulated driver, no GPU was used: 8 passed, 0");
}

Test(selftest_report, what_is_demanded_of_a_transport) {
    selftest_outcome found = selftest_run(
        (selftest_words){"transports", EMULATED, ONE_PAIR, "--require=vmm", NULL}, NULL);
    selftest_expect_code(&found, 0);
    cr_assert_eq(lines_with(&found, "pass  require vmm: 1 of 1 pairs"), 1, "%s", found.all);

    found = selftest_run((selftest_words){EMULATED, "--quick", "--require=p2p", NULL},
                         (selftest_words){"GPUIPC_EMULATED_MACHINE=devices=3;p2p=0-1", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "FAIL  require p2p: device 0 -> device 2: ");
    selftest_expect_text(&found, "1 failed");

    found = selftest_run(
        (selftest_words){"transports", EMULATED, ONE_PAIR, "--min-gbps=vmm=0.000001", NULL}, NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "pass  min-gbps vmm: ");
    found = selftest_run(
        (selftest_words){"transports", EMULATED, ONE_PAIR, "--min-gbps=vmm=99999999", NULL}, NULL);
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "FAIL  min-gbps vmm: device 0 -> device 1: ");
    selftest_expect_text(&found, "(measured), and 99999999.0 are wanted");
}

Test(selftest_report, a_matrix) {
    selftest_outcome found = selftest_run((selftest_words){"matrix", EMULATED, NULL}, NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "\nvmm, GB/s one way (emulated)\n            0         1\n  0  ");
    selftest_expect_text(&found, "vmm, GB/s both ways together (emulated)");
    selftest_expect_text(&found, "host, latency in us (emulated)");
    selftest_expect_text(
        &found,
        "\nvmm, wrong words (emulated)\n            0         1\n  0         0         0\n");
    selftest_expect_text(&found, "fabric: not available between any two devices");
    selftest_expect_text(&found, "Row: the device that owns the memory.");
    cr_assert_eq(lines_with(&found, "pass  vmm, device 1 -> device 0: measured and verified"), 1);
    selftest_expect_text(&found, " passed, 0 failed, 0 skipped\n");

    found = selftest_run((selftest_words){"matrix", EMULATED, NULL},
                         (selftest_words){"GPUIPC_EMULATED_MACHINE=p2p=none", NULL});
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "         -");

    found = selftest_run((selftest_words){"matrix", EMULATED, ONE_PAIR, NULL},
                         (selftest_words){"GPUIPC_EMULATED_FAIL=cuEventElapsedTime:*=999", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "FAIL  vmm, device 0 -> device 1: ");
    selftest_expect_text(&found, "one way (emulated)\n            1\n  0      FAIL\n");
    selftest_expect_text(&found, "fabric: not available between the devices that were asked for");
}

/* Over and over: each check is told once, and counted each time. */
Test(selftest_report, a_duration) {
    selftest_outcome found = selftest_run(
        (selftest_words){EMULATED, "--quick", ONE_PAIR, "--only=share", "--duration=2", NULL},
        NULL);
    selftest_expect_code(&found, 0);
    cr_assert_eq(lines_with(&found, "pass  device 0 -> device 1, 1 MiB"), 1, "%s", found.all);
    selftest_expect_text(&found, "rounds: ");
    found =
        selftest_run((selftest_words){"matrix", EMULATED, ONE_PAIR, "--duration=2", NULL}, NULL);
    selftest_expect_code(&found, 0);
    cr_assert_eq(lines_with(&found, "pass  vmm, device 0 -> device 1"), 1, "%s", found.all);
    selftest_expect_text(&found, "rounds: ");
}

/* Each meets its own programs, under random names. */
Test(selftest_report, two_runs_at_once) {
    child_process *other;
    child_end how;
    char line[CHILD_LINE_MAX];
    check_ok(child_start(SELFTEST_TOOL, (selftest_words){EMULATED, "--quick", NULL}, NULL, &other));
    const selftest_outcome found = selftest_run((selftest_words){EMULATED, "--quick", NULL}, NULL);
    while (child_read_line(other, line, sizeof(line), PATIENCE_MS) == GPUIPC_OK) {
    }
    check_ok(child_wait(other, PATIENCE_MS, &how));
    child_destroy(other);
    selftest_expect_code(&found, 0);
    cr_assert(how.exited && how.code == 0, "%d", how.code);
}

Test(selftest_report, a_machine_with_eight_gpus) {
    const selftest_outcome found =
        selftest_run((selftest_words){EMULATED, "--quick", "--only=share/7-0,share/0-7", NULL},
                     (selftest_words){"GPUIPC_EMULATED_MACHINE=devices=8;memory=64M", NULL});
    selftest_expect_code(&found, 0);
    cr_assert_eq(lines_with(&found, "device 7: "), 1);
    cr_assert_eq(lines_with(&found, "pass  "), 2, "%s", found.all);
}

Test(selftest_report, a_list_of_checks) {
    const selftest_outcome found = selftest_run((selftest_words){"list", NULL}, NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "share/A-B/BYTES");
    selftest_expect_text(&found, "measure/NAME/A-B");
    selftest_expect_text(&found, "D38");
}

/* Of a command its own options, and every command is in the general help. */
Test(selftest_report, help_of_each_command) {
    static const char *const names[] = {"doctor", "transports", "matrix", "ring",
                                        "list",   "produce",    "consume"};
    const selftest_outcome all = selftest_run((selftest_words){"--help", NULL}, NULL);
    selftest_expect_code(&all, 0);
    cr_assert_eq(lines_with(&all, "  --quick"), 1);
    cr_assert_eq(lines_with(&all, "  --members"), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char line[64];
        const selftest_outcome found =
            selftest_run((selftest_words){names[i], "--help", NULL}, NULL);
        selftest_expect_code(&found, 0);
        (void)snprintf(line, sizeof(line), "usage: gpuipc-selftest %s", names[i]);
        cr_assert_eq(lines_with(&found, line), 1, "%s", found.all);
        cr_assert_eq(lines_with(&found, "  --members"), strcmp(names[i], "ring") == 0);
        cr_assert_eq(lines_with(&found, "  --quick"), 0);
        (void)snprintf(line, sizeof(line), "  gpuipc-selftest %s ", names[i]);
        cr_assert_eq(lines_with(&all, line), 1, "%s", names[i]);
    }
    const selftest_outcome frames = selftest_run((selftest_words){"channel", "--help", NULL}, NULL);
    selftest_expect_text(&frames, "(default: 8M; on the");
    cr_assert(strstr(frames.all, "64M and 1G") == NULL, "%s", frames.all);
}

Test(selftest_report, tap) {
    selftest_outcome found =
        selftest_run((selftest_words){EMULATED, "--quick", "--tap", NULL},
                     (selftest_words){"GPUIPC_EMULATED_MACHINE=p2p=none", NULL});
    selftest_expect_code(&found, 0);
    cr_assert_str_eq(found.first, "TAP version 13");
    selftest_expect_text(&found, "\n1..10\nok 1 - share/0-1 # SKIP ");
    selftest_expect_text(&found, "ok 3 - share/0-0/1048576: ");
    selftest_expect_text(&found, "\n# D18 NO_P2P: ");
    found = selftest_run((selftest_words){EMULATED, "--quick", ONE_PAIR, "--tap", NULL},
                         (selftest_words){"GPUIPC_EMULATED_FAIL=cuMemCreate:1=2", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "\nnot ok 1 - share/0-1/1048576: ");
    cr_assert_eq(lines_with(&found, "Bail out!"), 0, "%s", found.all);

    /* "1..0" alone would be a success. */
    found = selftest_run((selftest_words){EMULATED, "--tap", NULL},
                         (selftest_words){"GPUIPC_EMULATED_FAIL=cuInit:*=999", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "\n1..0\nBail out! driver \"emulated\": ");
    found = selftest_run((selftest_words){EMULATED, "--device=9", "--tap", NULL}, NULL);
    selftest_expect_code(&found, 2);
    selftest_expect_text(&found, "\nBail out! wrong usage\n");
    found = selftest_run((selftest_words){EMULATED, "--tap", NULL},
                         (selftest_words){"GPUIPC_EMULATED_MACHINE=devices=0", NULL});
    selftest_expect_code(&found, 77);
    selftest_expect_text(&found, "\n1..0 # SKIP driver \"emulated\": ");
    cr_assert_eq(lines_with(&found, "Bail out!"), 0, "%s", found.all);
}

Test(selftest_report, csv) {
    const selftest_outcome found =
        selftest_run((selftest_words){EMULATED, "--quick", ONE_PAIR, "--csv", NULL}, NULL);
    selftest_expect_code(&found, 0);
    cr_assert_eq(strncmp(found.first, "kind,name,owner,user,status,gb_per_s,", 37), 0);
    cr_assert_eq(lines_with(&found, "transport,vmm,0,1,yes,,,,"), 1, "%s", found.all);
    cr_assert_eq(lines_with(&found, "check,\"share/0-1/1048576\",,,pass,"), 1, "%s", found.all);
}

Test(selftest_report, markdown) {
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", EMULATED, "--markdown", NULL},
                     (selftest_words){"GPUIPC_EMULATED_MACHINE=p2p=none", NULL});
    selftest_expect_code(&found, 0);
    cr_assert_str_eq(found.first, "**gpuipc-selftest doctor** 0.1.0, exit code 0");
    selftest_expect_text(&found, "\n| D18 | slows | two GPUs have no peer access: ");
    cr_assert(strstr(found.all, "GPUIPC_CUDA_DRIVER") == NULL, "it would be set in italics");
    selftest_expect_text(&found, "GPUIPC\\_CUDA\\_DRIVER");
}

Test(selftest_report, wrong_usage) {
    static const char *const lines[][4] = {{"--json", "--csv", NULL},
                                           {"--only=dance", NULL},
                                           {"--only=", NULL},
                                           {"--only=sharex", NULL},
                                           {"ring-member", NULL},
                                           {"--require=nvlink", NULL},
                                           {"--require=vmm=3", NULL},
                                           {"--min-gbps=vmm", NULL},
                                           {"--min-gbps=vmm=0", NULL},
                                           {"--min-gbps=vmm=-1", NULL},
                                           {"--min-gbps=vmm=fast", NULL},
                                           {"--min-gbps=vmm=nan", NULL},
                                           {"--html=/nowhere/at/all.html", NULL},
                                           {"--junit=/nowhere/at/all.xml", NULL},
                                           {"--duration=0", NULL},
                                           {"--duration=soon", NULL},
                                           {"doctor", "--duration=3", NULL},
                                           {"doctor", "--require=vmm", NULL},
                                           {"matrix", "--quick", NULL},
                                           {"matrix", "--only=share", NULL},
                                           {"ring", "--measure", NULL},
                                           {"matrix", "--measure", NULL},
                                           {"ring", "--device=0", NULL},
                                           {"doctor", "--device=0", NULL},
                                           {"transports", "--ticket", NULL},
                                           {"list", "--csv", NULL},
                                           {"produce", "--tap", NULL}};
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        const selftest_outcome found = selftest_run(lines[i], NULL);
        cr_assert_eq(found.code, 2, "%s: exit code %d", lines[i][0], found.code);
        cr_assert_str_empty(found.all);
    }
}
