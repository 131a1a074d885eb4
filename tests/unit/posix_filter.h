/* SPDX-License-Identifier: MIT */
/** @file System calls that answer what a test wants them to: seccomp(2) filters, for a helper. */
#ifndef GPUIPC_TEST_POSIX_FILTER_H
#define GPUIPC_TEST_POSIX_FILTER_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>

/* The low half of an argument, which is all that these calls use: linux/seccomp.h. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ARGUMENT(index) offsetof(struct seccomp_data, args[index])
#else
#define ARGUMENT(index) (offsetof(struct seccomp_data, args[index]) + 4)
#endif
#define LOAD(offset)            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)(offset))
#define UNLESS(value, skip)     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(value), 0, (skip))
#define UNLESS_BIT(value, skip) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (unsigned)(value), 0, (skip))
#define ANSWER(code)            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)(code))
#define ALLOW                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/** From now on, in this process. False where that is not allowed. */
static inline bool posix_filter_install(struct sock_filter *filter, size_t count) {
    struct sock_fprog program = {(unsigned short)count, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#endif
