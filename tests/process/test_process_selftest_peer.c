/* SPDX-License-Identifier: MIT */
/** @file `gpuipc-selftest doctor --peer`: two ends that compare, climb and judge. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "selftest_peer.h"

#define EMULATED "--driver=emulated"
#define BEGINS   "gpuipc-selftest doctor --peer="

TestSuite(selftest_peer, .timeout = 100);

child_process *selftest_peer_start_as(const char *const *more, const char *const *environment,
                                      char option[SELFTEST_OPTION_MAX]) {
    char line[SELFTEST_OPTION_MAX - 8];
    child_process *giver;
    const char *arguments[6] = {"doctor", "--peer", EMULATED};
    for (size_t i = 0; more[i] != NULL; i++) {
        cr_assert_lt(i, 2);
        arguments[i + 3] = more[i];
    }
    check_ok(child_start(SELFTEST_TOOL, arguments, environment, &giver));
    do {
        check_ok(child_read_line(giver, line, sizeof(line), PATIENCE_MS));
    } while (strncmp(line, BEGINS, strlen(BEGINS)) != 0);
    (void)snprintf(option, SELFTEST_OPTION_MAX, "--peer=%s", line + strlen(BEGINS));
    option[strcspn(option, " ")] = '\0';
    return giver;
}

child_process *selftest_peer_start(char option[SELFTEST_OPTION_MAX]) {
    return selftest_peer_start_as((selftest_words){NULL}, NULL, option);
}

void selftest_peer_expect(child_process *giver, const char *line, int code) {
    char heard[CHILD_LINE_MAX];
    child_end how;
    do {
        check_ok(child_read_line(giver, heard, sizeof(heard), PATIENCE_MS));
    } while (strncmp(heard, line, strlen(line)) != 0);
    check_ok(child_wait(giver, PATIENCE_MS, &how));
    cr_assert(how.exited && how.code == code, "%d", how.code);
    child_destroy(giver);
}

/* Both ends, each as it is without an option. */
static selftest_outcome lead(child_process **out_giver) {
    char option[SELFTEST_OPTION_MAX];
    *out_giver = selftest_peer_start(option);
    return selftest_run((selftest_words){"doctor", option, EMULATED, NULL}, NULL);
}

Test(selftest_peer, every_rung_is_climbed) {
    child_process *giver;
    const selftest_outcome found = lead(&giver);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "pass  facts: compared; different: none");
    selftest_expect_text(&found, "pass  host, rung 4, streams of both wait for each other: yes");
    selftest_expect_text(&found, "pass  vmm, rung 3, bytes move both ways: yes");
    selftest_expect_text(&found, "pass  vmm, rung 4, streams of both wait for each other: yes");
    selftest_expect_text(&found, "pass  vmm, rung 5, the death of either is noticed: yes");
    selftest_expect_text(&found, "PASS: every rung was climbed, on the emulated driver");
    selftest_peer_expect(giver, "done: every rung was climbed", 0);
}

/* One device with itself, and then with the other one that both ends see. */
Test(selftest_peer, another_device_is_climbed_with_as_well) {
    child_process *giver;
    const selftest_outcome found = lead(&giver);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "\npass  verdict: PASS: every rung was climbed");
    selftest_expect_text(&found, "\npass  device 0 -> device 1, host, rung 4, streams of both ");
    selftest_expect_text(&found, "\npass  device 0 -> device 1, vmm, rung 4, streams of both ");
    selftest_expect_text(&found, "\npass  device 0 -> device 1, vmm, rung 5, the death of either ");
    selftest_expect_text(&found, "\npass  device 0 -> device 1, verdict: PASS: every rung ");
    selftest_expect_text(&found, "\ndevice 0 -> device 1, vmm: all 5 rungs\n");
    selftest_peer_expect(giver, "done: every rung was climbed", 0);
}

/* Each end says which device takes part. */
Test(selftest_peer, the_devices_are_those_that_were_asked_for) {
    char option[SELFTEST_OPTION_MAX];
    child_process *giver =
        selftest_peer_start_as((selftest_words){"--device=1", NULL}, NULL, option);
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", option, "--device=0", EMULATED, NULL}, NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "pass  facts: compared; different: none");
    selftest_expect_text(&found, "\npass  device 1 -> device 0, vmm, rung 4, streams of both ");
    selftest_expect_text(&found, "\npass  device 1 -> device 0, verdict: PASS: every rung ");
    selftest_peer_expect(giver, "done: every rung was climbed", 0);
}

/* The other end's device takes part in any case; there is no second one then. */
Test(selftest_peer, the_other_ends_device_makes_no_pair) {
    char option[SELFTEST_OPTION_MAX];
    child_process *giver = selftest_peer_start(option);
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", option, "--device=0", EMULATED, NULL}, NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "\npass  verdict: PASS: every rung was climbed");
    cr_assert_null(strstr(found.all, "device 0 ->"));
    selftest_peer_expect(giver, "done: every rung was climbed", 0);
}

Test(selftest_peer, a_device_that_is_not_there_is_refused_at_either_end) {
    char option[SELFTEST_OPTION_MAX];
    selftest_outcome found =
        selftest_run((selftest_words){"doctor", "--peer", "--device=2", EMULATED, NULL}, NULL);
    selftest_expect_code(&found, 2);
    child_process *giver = selftest_peer_start(option);
    found = selftest_run((selftest_words){"doctor", option, "--device=2", EMULATED, NULL}, NULL);
    selftest_expect_code(&found, 2);
    child_destroy(giver);
    found = selftest_run((selftest_words){"doctor", "--device=0", EMULATED, NULL}, NULL);
    selftest_expect_code(&found, 2);
}

/* The first end's device does not reach the other one, against what the second end's driver promises. */
Test(selftest_peer, a_broken_way_between_two_devices_fails_for_them_alone) {
    char option[SELFTEST_OPTION_MAX];
    child_process *giver = selftest_peer_start_as(
        (selftest_words){NULL}, (selftest_words){"GPUIPC_EMULATED_MACHINE=p2p=none", NULL}, option);
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", option, EMULATED, NULL}, NULL);
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "\npass  verdict: PASS: every rung was climbed");
    selftest_expect_text(&found, "\npass  device 0 -> device 1, host, rung 4, ");
    selftest_expect_text(&found, "\npass  device 0 -> device 1, vmm, rung 3, ");
    selftest_expect_text(&found, "\nFAIL  device 0 -> device 1, vmm, rung 4, streams of both wait "
                                 "for each other: other end: ");
    selftest_expect_text(&found, "GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED");
    selftest_expect_text(&found,
                         "\nFAIL  device 0 -> device 1, verdict: FAIL: transport vmm fails at "
                         "rung 4 (");
    selftest_peer_expect(giver, "verdict of the other end: FAIL: transport vmm fails at rung 4", 1);
}

Test(selftest_peer, two_devices_that_do_not_reach_each_other_are_left_out) {
    char option[SELFTEST_OPTION_MAX];
    child_process *giver = selftest_peer_start(option);
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", option, EMULATED, NULL},
                     (selftest_words){"GPUIPC_EMULATED_MACHINE=p2p=none", NULL});
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "\nskip  device 0 -> device 1: device 1 cannot reach memory of ");
    selftest_expect_text(&found, "\ndevice 0 -> device 1: not tried\n");
    selftest_peer_expect(giver, "done: every rung was climbed", 0);
}

Test(selftest_peer, one_device_is_climbed_with_itself_alone) {
    char option[SELFTEST_OPTION_MAX];
    child_process *giver = selftest_peer_start(option);
    const selftest_outcome found = selftest_run((selftest_words){"doctor", option, EMULATED, NULL},
                                                (selftest_words){"CUDA_VISIBLE_DEVICES=0", NULL});
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "\nvmm: all 5 rungs\n");
    cr_assert(strstr(found.all, "device 0 -> ") == NULL, "%s", found.all);
    selftest_peer_expect(giver, "done: every rung was climbed", 0);
}

/* Also: the line as a word of its own. */
Test(selftest_peer, what_the_driver_refuses_is_a_failure_of_its_rung) {
    char option[SELFTEST_OPTION_MAX];
    child_process *giver = selftest_peer_start(option);
    const selftest_outcome found = selftest_run(
        (selftest_words){"doctor", "--peer", option + strlen("--peer="), EMULATED, NULL},
        (selftest_words){"GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:1=999", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "pass  host, rung 4, ");
    selftest_expect_text(&found, "FAIL  vmm, rung 2, handles pass and the driver grants: ");
    selftest_expect_text(&found, "FAIL  verdict: FAIL: transport vmm fails at rung 2 (");
    selftest_expect_text(&found, "vmm: failed at rung 2 of 5 (");
    selftest_expect_text(&found, "skip  device 0 -> device 1: not tried, since one device ");
    selftest_peer_expect(giver, "verdict of the other end: FAIL: transport vmm fails at rung 2", 1);
}

Test(selftest_peer, hidden_gpus_are_a_difference_and_their_uuids_are_not_in_what_is_pasted) {
    char option[SELFTEST_OPTION_MAX];
    child_process *giver = selftest_peer_start(option);
    const selftest_outcome found = selftest_run((selftest_words){"doctor", option, EMULATED, NULL},
                                                (selftest_words){"CUDA_VISIBLE_DEVICES=1", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "differs  D05  note    GPUs: here GPU-");
    selftest_expect_text(&found, "\ndifferent: GPUs\n");
    const char *block = strstr(found.all, "to paste");
    cr_assert(block != NULL && strstr(block, "GPU-") == NULL && strstr(block, "doctor-") == NULL,
              "%s", found.all);
    selftest_peer_expect(giver, "verdict of the other end: ", 1);
}

/* The stream stands still at its gate no longer than it is known that nothing will come. */
Test(selftest_peer, streams_that_cannot_wait_are_a_failure_of_their_rung) {
    char option[SELFTEST_OPTION_MAX];
    child_process *giver = selftest_peer_start(option);
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", option, EMULATED, "--timeout=5", NULL},
                     (selftest_words){"GPUIPC_EMULATED_FAIL=cuStreamWaitValue64:*=999", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "pass  host, rung 3, ");
    selftest_expect_text(&found, "FAIL  host, rung 4, streams of both wait for each other: ");
    selftest_expect_text(&found, "INCONCLUSIVE: host memory fails too, at rung 4 (");
    selftest_peer_expect(giver, "verdict of the other end: INCONCLUSIVE", 1);
}

/* As one who runs there as somebody else: what to do is in the verdict, and so in what is pasted. */
Test(selftest_peer, another_user_is_told_what_to_do) {
    char option[SELFTEST_OPTION_MAX];
    char other[SELFTEST_OPTION_MAX];
    child_process *giver = selftest_peer_start(option);
    char *user = strstr(option, ",user=");
    cr_assert_not_null(user, "%s", option);
    const char *rest = user + strlen(",user=");
    (void)snprintf(other, sizeof(other), "%.*s,user=4711%s", (int)(user - option), option,
                   rest + strcspn(rest, ","));
    child_kill(giver);
    child_destroy(giver);
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", other, EMULATED, "--timeout=1", NULL}, NULL);
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "\ndifferent: user\n");
    selftest_expect_text(&found, "and not the GPU; the user differs: run both as one user "
                                 "(runAsUser), or set a policy and share the directory");
    selftest_expect_text(&found, "here: --admit=USER at both ends, and a directory of a group");
}

/* It waits for four times the time-out. */
Test(selftest_peer, a_line_that_nobody_takes_is_a_failure) {
    char line[SELFTEST_OPTION_MAX];
    char last[SELFTEST_OPTION_MAX] = "";
    child_process *giver;
    child_end how;
    check_ok(child_start(SELFTEST_TOOL,
                         (selftest_words){"doctor", "--peer", EMULATED, "--timeout=1", NULL}, NULL,
                         &giver));
    while (child_read_line(giver, line, sizeof(line), PATIENCE_MS) == GPUIPC_OK) {
        (void)snprintf(last, sizeof(last), "%s", line);
    }
    cr_assert_str_eq(last, "waiting for the other end");
    check_ok(child_wait(giver, PATIENCE_MS, &how));
    cr_assert(how.exited && how.code == 1, "%d", how.code);
    child_destroy(giver);
}

/* Nobody is there any more: nothing was learned of the GPU. */
Test(selftest_peer, an_end_that_does_not_answer_is_inconclusive) {
    char option[SELFTEST_OPTION_MAX];
    child_process *giver = selftest_peer_start(option);
    child_kill(giver);
    child_destroy(giver);
    const selftest_outcome found = selftest_run(
        (selftest_words){"doctor", option, EMULATED, "--timeout=1", "--tap", NULL}, NULL);
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "not ok 2 - peer/host/answers: connecting: ");
    selftest_expect_text(&found, "not ok 3 - peer/vmm/answers: connecting: ");
    selftest_expect_text(&found, "not ok 4 - peer/verdict: INCONCLUSIVE: host memory fails too, at "
                                 "rung 1 (the other end answers)");
}

Test(selftest_peer, what_is_no_line_is_refused) {
    static const char *const lines[] = {"",
                                        "7",
                                        "gpuipc-peer2,name=a",
                                        "gpuipc-peer1",
                                        "gpuipc-peer1,",
                                        "gpuipc-peer1,name=",
                                        "gpuipc-peer1,user=0",
                                        "gpuipc-peer1,name=a,name=b",
                                        "gpuipc-peer1,name=a,other=b",
                                        "gpuipc-peer1,name=a,user",
                                        "gpuipc-peer1,name=a,user=$HOME",
                                        "gpuipc-peer1,name=a,user=0;"};
    char option[128];
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        (void)snprintf(option, sizeof(option), "--peer=%s", lines[i]);
        const selftest_outcome found =
            selftest_run((selftest_words){"doctor", option, EMULATED, NULL}, NULL);
        cr_assert_eq(found.code, 2, "\"%s\": %d", lines[i], found.code);
    }
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", "--peer", "--tap", EMULATED, NULL}, NULL);
    selftest_expect_code(&found, 2);
}

/* Numbers are compared as text, so there is one way to write them. */
Test(selftest_peer, what_is_no_user_is_refused) {
    static const char *const users[] = {"--admit=",   "--admit=alice", "--admit=007",
                                        "--admit=-1", "--admit= 1",    "--admit=4294967295",
                                        "--admit=1k", "--admit=groups"};
    for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
        const selftest_outcome found =
            selftest_run((selftest_words){"doctor", "--peer", users[i], EMULATED, NULL}, NULL);
        cr_assert_eq(found.code, 2, "\"%s\": %d", users[i], found.code);
    }
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", "--admit=1", EMULATED, NULL}, NULL);
    selftest_expect_code(&found, 2);
}

Test(selftest_peer, a_name_that_is_too_long_is_refused) {
    char option[256] = "--peer=gpuipc-peer1,name=";
    memset(option + strlen(option), 'a', 64);
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", option, EMULATED, NULL}, NULL);
    selftest_expect_code(&found, 2);
}
