/* SPDX-License-Identifier: MIT */
/** @file The cases of test_process_selftest_peer.c in which the two ends are not in one place. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "check.h"
#include "posix_system.h"
#include "selftest_peer.h"
#include "system.h"
#include "unique.h"

#define EMULATED   "--driver=emulated"
#define OTHER_USER 1234u /* and his group; no such account is needed */

/* As two containers without a common mount. */
Test(selftest_peer, two_directories_are_found_to_be_two, .timeout = 100) {
    char option[SELFTEST_OPTION_MAX];
    child_process *giver = selftest_peer_start(option);
    const selftest_outcome found =
        selftest_run((selftest_words){"doctor", option, EMULATED, "--timeout=1", NULL},
                     (selftest_words){"GPUIPC_RUNTIME_DIR=/", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "differs  D27  blocks  runtime directory: here ");
    selftest_expect_text(&found, "FAIL  verdict: INCONCLUSIVE: ");
    child_kill(giver);
    child_destroy(giver);
}

/* What a program printed up to its end. */
static void read_all(child_process *program, char *all, size_t capacity) {
    char line[CHILD_LINE_MAX];
    while (child_read_line(program, line, sizeof(line), PATIENCE_MS) == GPUIPC_OK) {
        const size_t used = strlen(all);
        (void)snprintf(all + used, capacity - used, "%s\n", line);
    }
}

/* A copy that every user may run, wherever this one lies. */
static void copy_program(const char *name, const char *into, char *path, size_t capacity) {
    char folder[4096];
    char from[sizeof(folder) + 64];
    cr_assert(system_own_folder(folder, sizeof(folder)));
    (void)snprintf(from, sizeof(from), "%s/%s", folder, name);
    (void)snprintf(path, capacity, "%s/%s", into, name);
    cr_assert(system_copy_file(from, path) && chmod(path, 0755) == 0, "%s", from);
}

/* The other end: as another user, in the directory of the first one.
 *  @param container as process_helper has it; NULL: none
 *  @return its exit code */
static int lead_as_other(const char *container, const char *const *words,
                         const char *const *environment, char *all, size_t capacity) {
    char programs[RUNTIME_DIRECTORY_MAX];
    char tool[RUNTIME_DIRECTORY_MAX + 64];
    char driver[RUNTIME_DIRECTORY_MAX + 64];
    char user[16];
    const char *arguments[16] = {"/nowhere"};
    size_t count = 1;
    child_process *leader;
    child_end how;
    cr_assert(runtime_directory_make(programs) && chmod(programs, 0755) == 0);
    copy_program(SELFTEST_TOOL, programs, tool, sizeof(tool));
    copy_program("libgpuipc-emulated-cuda.so", programs, driver, sizeof(driver));
    (void)snprintf(user, sizeof(user), "%u", OTHER_USER);
    if (container != NULL) {
        arguments[count++] = container;
    }
    arguments[count++] = "become-user";
    arguments[count++] = user;
    arguments[count++] = tool;
    for (size_t i = 0; words[i] != NULL; i++) {
        arguments[count++] = words[i];
    }
    check_ok(child_start("process_helper", arguments, environment, &leader));
    read_all(leader, all, capacity);
    check_ok(child_wait(leader, PATIENCE_MS, &how));
    child_destroy(leader);
    runtime_directory_remove(programs);
    cr_assert(how.exited, "%s", all);
    return how.code;
}

typedef struct admitted {
    char directory[RUNTIME_DIRECTORY_MAX];
    char variable[RUNTIME_DIRECTORY_MAX + 32];
    char option[SELFTEST_OPTION_MAX];
    char all[32768];
    child_process *giver;
} admitted;

static admitted two;

/* The end that prints the line, in a directory of the other user's group. */
static void begin_admitted(const char *admit, unsigned group) {
    if (!system_is_root()) {
        cr_skip_test("only root can start a process of another user");
    }
    cr_assert(runtime_directory_make(two.directory) &&
              system_share_directory(two.directory, group));
    (void)snprintf(two.variable, sizeof(two.variable), "GPUIPC_RUNTIME_DIR=%s", two.directory);
    two.giver = selftest_peer_start_as((selftest_words){admit, "--timeout=10", NULL},
                                       (selftest_words){two.variable, NULL}, two.option);
}

/* Each end admits the other: by its number, or as one of the group. */
static void check_admitted(const char *of_giver, const char *of_leader) {
    begin_admitted(of_giver, OTHER_USER);
    const int code =
        lead_as_other(NULL, (selftest_words){"doctor", two.option, of_leader, EMULATED, NULL},
                      (selftest_words){two.variable, NULL}, two.all, sizeof(two.all));
    cr_assert_eq(code, 0, "%d: %s", code, two.all);
    cr_assert(strstr(two.all, "differs  -    note    user: here 1234, there 0") != NULL, "%s",
              two.all);
    cr_assert(strstr(two.all, "pass  vmm, rung 5, ") != NULL, "%s", two.all);
    selftest_peer_expect(two.giver, "done: every rung was climbed", 0);
    runtime_directory_remove(two.directory);
}

Test(selftest_peer, a_user_who_is_admitted_climbs_every_rung, .timeout = 100) {
    check_admitted("--admit=1234", "--admit=0");
}

Test(selftest_peer, the_group_that_is_admitted_climbs_every_rung, .timeout = 100) {
    check_admitted("--admit=group", "--admit=group");
}

/* Two containers, as a daemon of the system makes them: to the first end the other's user has another number than he has
 * himself, and to him the first end's user is none of his. */
Test(selftest_peer, another_user_of_another_user_namespace_climbs_every_rung, .timeout = 100) {
    begin_admitted("--admit=101234", SYSTEM_MAPPED_FIRST + OTHER_USER);
    const int code = lead_as_other(
        "contained-mapped", (selftest_words){"doctor", two.option, "--admit=65534", EMULATED, NULL},
        (selftest_words){two.variable, "ASAN_OPTIONS=detect_leaks=0", NULL}, two.all,
        sizeof(two.all));
    if (strncmp(two.all, "not possible", strlen("not possible")) == 0) {
        child_kill(two.giver);
        child_destroy(two.giver);
        runtime_directory_remove(two.directory);
        cr_skip_test("namespaces of one's own are not to be had here");
    }
    cr_assert_eq(code, 0, "%d: %s", code, two.all);
    cr_assert(strstr(two.all, "differs  D29  note    user namespace: here ") != NULL, "%s",
              two.all);
    cr_assert(strstr(two.all, "pass  vmm, rung 5, ") != NULL, "%s", two.all);
    selftest_peer_expect(two.giver, "done: every rung was climbed", 0);
    runtime_directory_remove(two.directory);
}

/* Another one than the one that comes. */
Test(selftest_peer, a_user_who_is_not_admitted_does_not_meet_it, .timeout = 100) {
    begin_admitted("--admit=4711", OTHER_USER);
    const int code = lead_as_other(
        NULL, (selftest_words){"doctor", two.option, "--admit=0", "--timeout=5", EMULATED, NULL},
        (selftest_words){two.variable, NULL}, two.all, sizeof(two.all));
    cr_assert_eq(code, 1, "%d: %s", code, two.all);
    cr_assert(strstr(two.all, "FAIL  host, rung 1, the other end answers: ") != NULL, "%s",
              two.all);
    cr_assert(strstr(two.all, "the user differs: run both as one user") != NULL, "%s", two.all);
    child_kill(two.giver);
    child_destroy(two.giver);
    runtime_directory_remove(two.directory);
}

/* Neither sees the other's process, users, network or mounts: it works all the same, and each is named. */
Test(selftest_peer, between_namespaces_everything_works_and_is_named, .timeout = 100) {
    static const char *const labels[] = {"PID namespace",     "user namespace",  "IPC namespace",
                                         "network namespace", "mount namespace", "seccomp mode",
                                         "/dev/shm"};
    char option[SELFTEST_OPTION_MAX];
    char all[32768] = "";
    char line[CHILD_LINE_MAX];
    child_process *leader;
    child_end how;
    child_process *giver = selftest_peer_start(option);
    check_ok(
        child_start("process_helper",
                    (selftest_words){"/nowhere", "contained-users", "become", SELFTEST_TOOL,
                                     "doctor", option, EMULATED, NULL},
                    /* LeakSanitizer reads its own process by ptrace, which is refused there. */
                    (selftest_words){"ASAN_OPTIONS=detect_leaks=0", NULL}, &leader));
    read_all(leader, all, sizeof(all));
    check_ok(child_wait(leader, PATIENCE_MS, &how));
    child_destroy(leader);
    if (strncmp(all, "not possible", strlen("not possible")) == 0) {
        child_kill(giver);
        child_destroy(giver);
        cr_skip_test("namespaces of one's own are not to be had here");
    }
    cr_assert(how.exited && how.code == 0, "%d: %s", how.code, all);
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        (void)snprintf(line, sizeof(line), "  %s: here ", labels[i]);
        cr_assert(strstr(all, line) != NULL, "\"%s\" is not in:\n%s", line, all);
    }
    cr_assert(strstr(all, "differs  D28  note    PID namespace: here ") != NULL, "%s", all);
    cr_assert(strstr(all, "pass  vmm, rung 5, ") != NULL, "%s", all);
    selftest_peer_expect(giver, "done: every rung was climbed", 0);
}

/* It is asked to end while it waits for somebody who does not come, for minutes. */
static void interrupt_waiting(child_process *waiting, char all[32768]) {
    child_end how;
    cr_assert_eq(kill((pid_t)child_process_id(waiting), SIGINT), 0);
    read_all(waiting, all, 32768);
    check_ok(child_wait(waiting, PATIENCE_MS, &how));
    child_destroy(waiting);
    cr_assert(how.exited && how.code == 1, "%d", how.code);
    cr_assert(strstr(all, "interrupted: this is what was found until then\n") != NULL, "%s", all);
}

Test(selftest_peer, an_interrupt_ends_the_wait_for_the_other_end, .timeout = 60) {
    char option[SELFTEST_OPTION_MAX];
    char all[32768] = "";
    interrupt_waiting(selftest_peer_start(option), all);
}

/* The other end is gone. Nothing was learned, so there is no verdict. */
Test(selftest_peer, an_interrupt_ends_the_search_for_the_other_end, .timeout = 60) {
    char option[SELFTEST_OPTION_MAX];
    char line[CHILD_LINE_MAX];
    char all[32768] = "";
    child_process *leader;
    child_process *giver = selftest_peer_start(option);
    child_kill(giver);
    child_destroy(giver);
    check_ok(child_start(SELFTEST_TOOL, (selftest_words){"doctor", option, EMULATED, NULL}, NULL,
                         &leader));
    do {
        check_ok(child_read_line(leader, line, sizeof(line), PATIENCE_MS));
    } while (strncmp(line, "pass  facts", strlen("pass  facts")) != 0);
    interrupt_waiting(leader, all);
    cr_assert(strstr(all, "verdict") == NULL, "%s", all);
    cr_assert(strstr(all, "FAIL") == NULL, "%s", all);
}
