/* SPDX-License-Identifier: MIT */
/** @file The helper's end of a socket pair. */
#include "conformance_link.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "posix_message.h"

bool link_open(int argc, char **argv) {
    (void)argc;
    (void)argv;
    /* A parent that died before this call is noticed by the end of the socket. */
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
}

bool link_send(const char *line, os_handle handle) {
    return message_send(MESSAGE_HELPER_SOCKET, line, handle);
}

bool link_receive(char *line, os_handle *out_handle) {
    return message_receive(MESSAGE_HELPER_SOCKET, line, out_handle);
}

void link_expect_crash(void) {
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    /* A sanitizer's own handler would make an exit code of the signal. */
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    signal(SIGABRT, SIG_DFL);
}
