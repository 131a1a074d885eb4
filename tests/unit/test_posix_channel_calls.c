/* SPDX-License-Identifier: MIT */
/** @file That a frame costs no system call and no call of the driver where nobody sleeps: each is trapped and counted. */
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#include "channel_case.h"
#include "posix_filter.h"

TestSuite(posix_channel_calls, .init = channel_start, .fini = channel_finish, .timeout = 60);

enum {
    TRIES = 5,
    FRAMES = 200000,
    READERS = 3
};

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

typedef struct passing {
    gpuipc_subscription *readers[READERS];
    bool is_trapped;
    gpuipc_status status;
    uint64_t sequence;
} passing;

/* Nothing is asserted here: to tell that takes system calls. */
static gpuipc_status pass_one(passing *self) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    gpuipc_status status = gpuipc_channel_loan(channel_case_channel, GPUIPC_NO_STREAM, 0, &frame);
    frame.header = &self->sequence;
    frame.header_bytes = sizeof(self->sequence);
    self->sequence++;
    if (status == GPUIPC_OK) {
        status = gpuipc_channel_publish(channel_case_channel, &frame, GPUIPC_NO_STREAM);
    }
    for (size_t i = 0; i < READERS && status == GPUIPC_OK; i++) {
        status = gpuipc_subscription_take(self->readers[i], GPUIPC_NO_STREAM, 0, &frame);
        if (status == GPUIPC_OK) {
            status = frame.sequence == self->sequence
                         ? gpuipc_subscription_give_back(self->readers[i], &frame, GPUIPC_NO_STREAM)
                         : GPUIPC_ERR_WRONG_DATA;
        }
    }
    return status;
}

static void *pass_many(void *argument) {
    passing *self = argument;
    self->is_trapped = trap_calls();
    for (int i = 0; i < FRAMES && self->is_trapped && self->status == GPUIPC_OK; i++) {
        self->status = pass_one(self);
    }
    return NULL;
}

Test(posix_channel_calls, a_frame_makes_none) {
    static passing self;
    const struct sigaction action = {.sa_sigaction = count_call, .sa_flags = SA_SIGINFO};
    pthread_t thread;
    if (IS_SANITIZED) {
        cr_skip_test("a sanitizer makes system calls of its own");
    }
    channel_case_make(&(gpuipc_channel_config){.slots = 4, .header_bytes = 8});
    for (int i = 0; i < READERS; i++) {
        self.readers[i] = channel_case_open(&(gpuipc_subscription_config){
            .delivery = i == 0 ? GPUIPC_DELIVERY_NEWEST : GPUIPC_DELIVERY_ALL});
    }
    cr_assert_eq(sigaction(SIGSYS, &action, NULL), 0);
    core_set_failures("");
    /* Where the library's thread that looks after readers is set aside in the midst of a look, the writer waits for it. */
    for (int tries = 1; tries <= TRIES && (tries == 1 || trapped > 0); tries++) {
        trapped = 0;
        cr_assert_eq(pthread_create(&thread, NULL, pass_many, &self), 0);
        cr_assert_eq(pthread_join(thread, NULL), 0);
        if (!self.is_trapped) {
            cr_skip_test("this process may not have a seccomp(2) filter");
        }
        cr_assert_eq(self.status, GPUIPC_OK, "%s", gpuipc_status_name(self.status));
        cr_assert_eq(self.sequence, (uint64_t)tries * FRAMES);
    }
    cr_assert_eq(trapped, 0, "%d system calls, the last one number %d", (int)trapped,
                 (int)last_trapped);
    cr_assert_eq(core_calls(NULL), 0);
    for (int i = 0; i < READERS; i++) {
        check_ok(gpuipc_subscription_close(self.readers[i]));
    }
}
