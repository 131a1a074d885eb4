/* SPDX-License-Identifier: MIT */
/** @file What a diagnosis sees of a Linux system: limits, namespaces, directories, filters, each as it is and as it is
 *  made to be for a test. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core_fixture.h"
#include "diagnose/diagnosis.h"
#include "posix.h"

TestSuite(posix_diagnose, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

static const gpuipc_finding *find(finding_number number) {
    static gpuipc_finding findings[GPUIPC_FINDING_COUNT];
    const gpuipc_context_config config = core_context_config();
    size_t count = 0;
    if (gpuipc_diagnose(&config, GPUIPC_DIAGNOSE_LOOK_ONLY, findings, GPUIPC_FINDING_COUNT,
                        &count) != GPUIPC_OK) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (findings[i].number == (uint32_t)number) {
            return &findings[i];
        }
    }
    return NULL;
}

Test(posix_diagnose, the_session_directory_of_another_user) {
    char path[RUNTIME_DIRECTORY_MAX + 16];
    gpuipc_finding findings[GPUIPC_FINDING_COUNT];
    size_t count = 0;
    bool found = false;
    if (geteuid() != 0) {
        cr_skip_test("only root can give a directory away");
    }
    (void)snprintf(path, sizeof(path), "%s/session", core_directory);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(chown(path, 65534, (gid_t)-1), 0);
    cr_assert_eq(unsetenv("GPUIPC_RUNTIME_DIR"), 0);
    cr_assert_eq(unsetenv("NVIDIA_DRA_LOCAL_IPC_DIR"), 0);
    cr_assert_eq(setenv("XDG_RUNTIME_DIR", path, 1), 0);
    check_ok(
        gpuipc_diagnose(NULL, GPUIPC_DIAGNOSE_LOOK_ONLY, findings, GPUIPC_FINDING_COUNT, &count));
    for (size_t i = 0; i < count; i++) {
        found = found || (findings[i].number == FINDING_RUNTIME_DIRECTORY &&
                          strstr(findings[i].evidence, "belongs to user 65534") != NULL &&
                          strstr(findings[i].evidence, "unset XDG_RUNTIME_DIR") != NULL);
    }
    cr_assert(found);
    cr_assert_eq(rmdir(path), 0); /* nothing was made in it */
}

static struct rlimit set_limit(int which, rlim_t value) {
    struct rlimit before;
    cr_assert_eq(getrlimit((__rlimit_resource_t)which, &before), 0);
    const struct rlimit limit = {value, before.rlim_max};
    cr_assert_eq(setrlimit((__rlimit_resource_t)which, &limit), 0);
    return before;
}

Test(posix_diagnose, the_limit_of_descriptors) {
    const struct rlimit before = set_limit(RLIMIT_NOFILE, 100);
    const gpuipc_finding *found = find(FINDING_HANDLE_LIMIT);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    cr_assert_not_null(found);
    cr_assert_eq(found->severity, GPUIPC_SEVERITY_BLOCKS);
    cr_assert_not_null(strstr(found->evidence, "the limit is 100"), "%s", found->evidence);
    if (before.rlim_cur >= 1024) {
        cr_assert_null(find(FINDING_HANDLE_LIMIT));
    }
}

Test(posix_diagnose, the_limit_of_locked_memory) {
    struct rlimit before = set_limit(RLIMIT_MEMLOCK, 65536);
    const gpuipc_finding *found = find(FINDING_LOCKED_MEMORY);
    cr_assert_not_null(found);
    cr_assert_not_null(strstr(found->evidence, "0.06 MiB"), "%s", found->evidence);
    before.rlim_cur = before.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &before), 0);
    if (before.rlim_max == RLIM_INFINITY) {
        cr_assert_null(find(FINDING_LOCKED_MEMORY));
    }
}

Test(posix_diagnose, the_limit_of_addresses) {
    struct rlimit before;
    cr_assert_eq(getrlimit(RLIMIT_AS, &before), 0);
    if (before.rlim_max != RLIM_INFINITY) {
        cr_skip_test("addresses are limited here, and the limit cannot be raised");
    }
    const struct rlimit limit = {(rlim_t)1 << 50, before.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    const gpuipc_finding *found = find(FINDING_ADDRESS_LIMIT);
    cr_assert_not_null(found);
    cr_assert_eq(found->severity, GPUIPC_SEVERITY_NOTE);
    cr_assert_str_eq(found->evidence, "the limit is 1073741824 MiB");
    cr_assert_eq(setrlimit(RLIMIT_AS, &before), 0);
    cr_assert_null(find(FINDING_ADDRESS_LIMIT));
}

Test(posix_diagnose, a_directory_that_others_may_write_to) {
    gpuipc_context_config config = core_context_config();
    gpuipc_finding findings[GPUIPC_FINDING_COUNT];
    size_t count = 0;
    cr_assert_eq(chmod(core_directory, 0777), 0);
    check_ok(gpuipc_diagnose(&config, 0, findings, GPUIPC_FINDING_COUNT, &count));
    cr_assert_eq(chmod(core_directory, 0700), 0);
    cr_assert_eq(findings[0].number, FINDING_RUNTIME_DIRECTORY);
    cr_assert_not_null(strstr(findings[0].evidence, "mode 0777"), "%s", findings[0].evidence);
    check_ok(gpuipc_diagnose(&config, 0, findings, GPUIPC_FINDING_COUNT, &count));
    cr_assert_neq(findings[0].number, FINDING_RUNTIME_DIRECTORY);
}

/* As the kernel's driver would write it into its file. */
static const char *line_of(const char *content, size_t size) {
    static char line[64];
    char path[RUNTIME_DIRECTORY_MAX + 16];
    (void)snprintf(path, sizeof(path), "%s/version", core_directory);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(content, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
    (void)memset(line, 'x', sizeof(line));
    posix_driver_line(path, line, sizeof(line));
    cr_assert_eq(unlink(path), 0);
    return line;
}

Test(posix_diagnose, what_the_kernel_s_driver_says_of_itself) {
    static const char open[] =
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs)\n"
        "GCC version:  gcc version 12.2.0\n";
    static const char behind[] = "GCC version: 12\nNVRM version: \t NVIDIA UNIX x86_64 Kernel "
                                 "Module  535.54.03\n";
    static const char bare[] = "NVRM version:";
    static const char foreign[] = "a NVRM version: 1\nKernel Module\n";
    static const char odd[] = "NVRM version: Open\x1b[31m Kernel Module\n";
    static const char nothing[] = "NVRM version: \0 Open Kernel Module";
    cr_assert_str_eq(line_of(open, sizeof(open) - 1),
                     "NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release B");
    cr_assert_str_eq(line_of(behind, sizeof(behind) - 1),
                     "NVIDIA UNIX x86_64 Kernel Module  535.54.03");
    cr_assert_str_empty(line_of("", 0));
    cr_assert_str_empty(line_of(bare, sizeof(bare) - 1));
    cr_assert_str_empty(line_of(foreign, sizeof(foreign) - 1));
    cr_assert_str_empty(line_of(nothing, sizeof(nothing) - 1));
    cr_assert_str_eq(line_of(odd, sizeof(odd) - 1), "Open");
}

Test(posix_diagnose, a_driver_s_file_that_is_huge_or_none) {
    static char huge[1 << 20];
    char line[64];
    (void)memset(huge, 'x', sizeof(huge));
    cr_assert_str_empty(line_of(huge, sizeof(huge)));
    (void)memcpy(huge, "NVRM version: ", 14);
    const char *found = line_of(huge, sizeof(huge));
    cr_assert_eq(strlen(found), 63);
    cr_assert_eq(strspn(found, "x"), 63);
    posix_driver_line(core_directory, line, sizeof(line));
    cr_assert_str_empty(line);
    posix_driver_line("/nowhere/at/all", line, sizeof(line));
    cr_assert_str_empty(line);
}

/* What this process itself is in was decided before the test. */
Test(posix_diagnose, namespaces_are_those_of_the_machine_or_told) {
    struct stat found;
    os_facts facts;
    os_facts_find(core_directory, &facts);
    cr_assert_eq(stat("/proc/self/ns/pid", &found), 0);
    cr_assert_eq(facts.pid_namespace[0] == '\0', found.st_ino == 0xEFFFFFFCu);
    cr_assert_eq(stat("/proc/self/ns/ipc", &found), 0);
    cr_assert_eq(facts.ipc_namespace[0] == '\0', found.st_ino == 0xEFFFFFFFu);
    cr_assert_eq(stat("/proc/self/ns/user", &found), 0);
    cr_assert_eq(facts.user_namespace[0] == '\0', found.st_ino == 0xEFFFFFFDu);
    cr_assert_gt(strlen(facts.system), 5);
    cr_assert_eq(facts.has_shm, access("/dev/shm", F_OK) == 0 ? OS_YES : OS_NO);
}

/* Forks a child that looks, because what is done to it cannot be undone. It makes no call of the driver.
 * @return its answer; 99: it could not be done to it */
static int in_child(bool (*change)(void), bool (*check)(const os_facts *facts)) {
    int how = 0;
    const pid_t child = fork();
    if (child == 0) {
        os_facts facts;
        if (!change()) {
            _exit(99);
        }
        os_facts_find(core_directory, &facts);
        _exit(check(&facts) ? 0 : 1);
    }
    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_assert(WIFEXITED(how), "%d", how);
    return WEXITSTATUS(how);
}

static bool leave_ipc_and_user(void) {
    return unshare(CLONE_NEWUSER | CLONE_NEWIPC) == 0;
}

static bool has_left(const os_facts *facts) {
    diagnosis found = {0};
    rules_system(&found, facts, core_directory);
    return diagnosis_has(&found, FINDING_IPC_NAMESPACE) &&
           diagnosis_has(&found, FINDING_USER_NAMESPACE) &&
           strncmp(facts->ipc_namespace, "ipc:[", 5) == 0;
}

Test(posix_diagnose, namespaces_of_its_own) {
    const int code = in_child(leave_ipc_and_user, has_left);
    if (code == 99) {
        cr_skip_test("this machine lets nobody make namespaces");
    }
    cr_assert_eq(code, 0);
}

static bool in_pid_namespace(void) {
    int how = 0;
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        return false;
    }
    const pid_t child = fork(); /* unshare(2): the caller itself stays where it is */
    if (child == 0) {
        return true;
    }
    _exit(child > 0 && waitpid(child, &how, 0) == child && WIFEXITED(how) ? WEXITSTATUS(how) : 2);
}

/* Its /proc is still the outer one's, which has no entry for the number that it has inside: the links of "self" are
 * resolved by who asks, and are right all the same. */
static bool is_in_pid_namespace(const os_facts *facts) {
    diagnosis found = {0};
    rules_system(&found, facts, core_directory);
    return diagnosis_has(&found, FINDING_PID_NAMESPACE);
}

Test(posix_diagnose, a_pid_namespace_of_its_own) {
    const int code = in_child(in_pid_namespace, is_in_pid_namespace);
    if (code == 99) {
        cr_skip_test("this machine lets nobody make namespaces");
    }
    cr_assert_eq(code, 0);
}

/* As a container's filter refuses it: the one call, with EPERM. */
static bool filter_getfd(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_getfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool is_filtered(const os_facts *facts) {
    diagnosis found = {0};
    rules_system(&found, facts, core_directory);
    return facts->pidfd_open_code == 0 && facts->pidfd_getfd_code == EPERM &&
           diagnosis_has(&found, FINDING_SECCOMP) && !diagnosis_has(&found, FINDING_NO_PIDFD);
}

static bool change_nothing(void) {
    return true;
}

static bool is_not_filtered(const os_facts *facts) {
    diagnosis found = {0};
    rules_system(&found, facts, core_directory);
    return !diagnosis_has(&found, FINDING_SECCOMP) && !diagnosis_has(&found, FINDING_NO_PIDFD);
}

Test(posix_diagnose, a_filter_that_refuses_pidfd_getfd) {
    if (syscall(SYS_pidfd_getfd, -1, 0, 0) == 0 || errno != EBADF) {
        cr_skip_test("this kernel, or a filter around the test, has no pidfd_getfd");
    }
    cr_assert_eq(in_child(change_nothing, is_not_filtered), 0);
    const int code = in_child(filter_getfd, is_filtered);
    if (code == 99) {
        cr_skip_test("this machine lets nobody set a filter");
    }
    cr_assert_eq(code, 0);
}

static bool set_container(void) {
    core_environment_set("container", "podman");
    return true;
}

static bool is_in_container(const os_facts *facts) {
    return facts->container[0] != '\0';
}

Test(posix_diagnose, a_container_is_known_by_what_it_leaves) {
    cr_assert_eq(in_child(set_container, is_in_container), 0);
}

Test(posix_diagnose, a_process_that_was_forked_after_cuda_was_started) {
    gpuipc_context *made = core_context_new();
    int how = 0;
    const pid_t child = fork();
    if (child == 0) {
        const gpuipc_finding *found = find(FINDING_FORKED);
        _exit(found != NULL && found->severity == GPUIPC_SEVERITY_BLOCKS ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0, "%d", how);
    cr_assert_null(find(FINDING_FORKED));
    check_ok(gpuipc_context_destroy(made));
}

/* Then there is no place that could stand in for one that cannot be used, and the driver is not looked at. */
Test(posix_diagnose, a_user_without_a_home_and_a_directory) {
    gpuipc_finding findings[GPUIPC_FINDING_COUNT];
    gpuipc_context_config config = core_context_config();
    size_t count = 0;
    config.runtime_directory = "relative";
    core_environment_set("XDG_CACHE_HOME", NULL);
    core_environment_set("HOME", NULL);
    check_ok(gpuipc_diagnose(&config, 0, findings, GPUIPC_FINDING_COUNT, &count));
    cr_assert_eq(findings[0].number, FINDING_RUNTIME_DIRECTORY);
    for (size_t i = 1; i < count; i++) {
        cr_assert_neq(findings[i].number, FINDING_EMULATED);
    }
}
