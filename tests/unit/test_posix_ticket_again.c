/* SPDX-License-Identifier: MIT */
/** @file That opening a ticket again makes no system call: each is trapped and counted while it is done. */
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "posix_filter.h"
#include "ticket_server.h"

#define TIMES 1000

static ticket_server server;
static gpuipc_buffer *original;

TestSuite(posix_ticket_again, .init = core_start, .fini = core_finish, .timeout = 60);

static volatile sig_atomic_t trapped;
static volatile sig_atomic_t last_trapped;

static void count_call(int signal_number, siginfo_t *info, void *state) {
    (void)signal_number;
    (void)state;
    trapped++;
    last_trapped = info->si_syscall;
}

/* Traps all but what the handler returns by and what a thread ends with. */
static bool trap_calls(void) {
    struct sock_filter filter[] = {
        LOAD(offsetof(struct seccomp_data, nr)),
        UNLESS(SYS_rt_sigreturn, 1),
        ALLOW,
        UNLESS(SYS_exit, 1),
        ALLOW,
        UNLESS(SYS_madvise, 1),
        ALLOW,
        UNLESS(SYS_munmap, 1),
        ALLOW,
        UNLESS(SYS_rt_sigprocmask, 1),
        ALLOW,
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    return posix_filter_install(filter, sizeof(filter) / sizeof(filter[0]));
}

typedef struct opener {
    gpuipc_context *within;
    gpuipc_ticket wanted;
    bool is_trapped;
    gpuipc_status status;
    gpuipc_buffer *opened[TIMES];
} opener;

static void *open_often(void *argument) {
    opener *self = argument;
    self->is_trapped = trap_calls();
    for (size_t i = 0; i < TIMES && self->is_trapped && self->status == GPUIPC_OK; i++) {
        self->status = gpuipc_buffer_open(self->within, &self->wanted, NULL, &self->opened[i]);
    }
    for (size_t i = 0; i < TIMES && self->is_trapped && self->status == GPUIPC_OK; i++) {
        self->status = gpuipc_buffer_release(self->opened[i]);
    }
    return NULL;
}

Test(posix_ticket_again, makes_no_system_call_and_no_driver_call) {
    static const ticket_step steps[] = {{TICKET_ACCEPT, 0}, {TICKET_GRANT, 0}, {0, 0}};
    static opener self;
    static gpuipc_buffer *room[TIMES];
    const struct sigaction action = {.sa_sigaction = count_call, .sa_flags = SA_SIGINFO};
    gpuipc_buffer *first = NULL;
    pthread_t thread;
    core_need_emulated();
    if (IS_SANITIZED) {
        cr_skip_test("a sanitizer makes system calls of its own");
    }
    self.within = core_context_new();
    original = core_buffer(core_unit, 0);
    ticket_server_open(&server, core_context, original);
    self.wanted = ticket_server_ticket(&server, 0, core_unit);
    ticket_server_begin(&server, steps);
    check_ok(gpuipc_buffer_open(self.within, &self.wanted, NULL, &first));
    ticket_server_end(&server);
    for (size_t i = 0; i < TIMES; i++) { /* the table of handles grows by more than it needs */
        check_ok(gpuipc_buffer_open(self.within, &self.wanted, NULL, &room[i]));
    }
    for (size_t i = 0; i < TIMES; i++) {
        check_ok(gpuipc_buffer_release(room[i]));
    }

    cr_assert_eq(sigaction(SIGSYS, &action, NULL), 0);
    core_set_failures("");
    cr_assert_eq(pthread_create(&thread, NULL, open_often, &self), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    if (!self.is_trapped) {
        cr_skip_test("this process may not have a seccomp(2) filter");
    }
    cr_assert_eq(self.status, GPUIPC_OK, "%s", gpuipc_status_name(self.status));
    cr_assert_eq(trapped, 0, "%d system calls, the last one number %d", (int)trapped,
                 (int)last_trapped);
    cr_assert_eq(core_calls(NULL), 0);

    check_ok(gpuipc_buffer_release(first));
    check_ok(gpuipc_context_destroy(self.within));
    ticket_server_close(&server);
    check_ok(gpuipc_buffer_release(original));
}

/* What a child does: it may release what it has of the parent's, and nothing else. */
static int try_in_child(gpuipc_context *within, const gpuipc_ticket *wanted,
                        gpuipc_buffer *opened) {
    gpuipc_buffer *again = NULL;
    if (gpuipc_buffer_open(within, wanted, NULL, &again) != GPUIPC_ERR_FORKED) {
        return 1;
    }
    if (gpuipc_buffer_release(opened) != GPUIPC_OK) {
        return 2;
    }
    return gpuipc_context_destroy(within) == GPUIPC_OK ? 0 : 3;
}

Test(posix_ticket_again, a_child_frees_its_lease_and_the_parents_goes_on) {
    static const ticket_step steps[] = {{TICKET_ACCEPT, 0}, {TICKET_GRANT, 0}, {0, 0}};
    gpuipc_context *within;
    gpuipc_ticket part;
    gpuipc_buffer *opened = NULL;
    gpuipc_buffer *other = NULL;
    int how = -1;
    core_need_emulated();
    within = core_context_new();
    original = core_buffer(core_unit, 0);
    ticket_server_open(&server, core_context, original);
    const gpuipc_ticket wanted = ticket_server_ticket(&server, 0, core_unit);
    ticket_server_begin(&server, steps);
    check_ok(gpuipc_buffer_open(within, &wanted, NULL, &opened));
    ticket_server_end(&server);
    const pid_t child = fork();
    if (child == 0) {
        _exit(try_in_child(within, &wanted, opened));
    }
    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0, "the child ended with 0x%x", (unsigned)how);
    check_ok(gpuipc_ticket_narrow(&wanted, 0, 64, &part));
    ticket_server_begin(&server, steps + 1);
    check_ok(gpuipc_buffer_open(within, &part, NULL, &other));
    ticket_server_end(&server);
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_buffer_release(other));
    check_ok(gpuipc_context_destroy(within));
    ticket_server_close(&server);
    check_ok(gpuipc_buffer_release(original));
}
