/* SPDX-License-Identifier: MIT */
/** @file The helper process: started with posix_spawn, reached through a socket pair. */
#include "conformance_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "posix_message.h"

/** How long a helper may take to answer; starting a GPU takes seconds when many do it at once. */
#define ANSWER_SECONDS 40

struct helper {
    pid_t pid;
    int socket;
};

extern char **environ;

/** The environment with CUDA_VISIBLE_DEVICES replaced; the caller frees the array, not the texts. */
static char **environment_with(char *visible) {
    size_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    char **changed = malloc((count + 2) * sizeof *changed);
    cr_assert_not_null(changed);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(environ[i], "CUDA_VISIBLE_DEVICES=", 21) != 0) {
            changed[kept++] = environ[i];
        }
    }
    changed[kept++] = visible;
    changed[kept] = NULL;
    return changed;
}

/** conformance_helper lies beside the test program; argv[0] is not usable in a Criterion worker. */
static void helper_path(char *path, size_t size) {
    const ssize_t length = readlink("/proc/self/exe", path, size - 1);
    cr_assert(length > 0, "/proc/self/exe: %s", strerror(errno));
    path[length] = '\0';
    char *const name = strrchr(path, '/') + 1;
    const size_t room = size - (size_t)(name - path);
    cr_assert(snprintf(name, room, "conformance_helper") < (int)room, "the path is too long");
}

helper *helper_start(const char *visible_devices) {
    char path[4096];
    char visible[1024];
    int ends[2];
    posix_spawn_file_actions_t actions;
    helper *process = malloc(sizeof *process);
    cr_assert_not_null(process);
    helper_path(path, sizeof path);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const struct timeval patience = {.tv_sec = ANSWER_SECONDS};
    cr_assert_eq(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    cr_assert_eq(posix_spawn_file_actions_init(&actions), 0);
    /* Clears FD_CLOEXEC even when the two numbers are one (POSIX.1-2024, posix_spawn). */
    cr_assert_eq(posix_spawn_file_actions_adddup2(&actions, ends[1], MESSAGE_HELPER_SOCKET), 0);
    char **environment = environ;
    if (visible_devices != NULL) {
        snprintf(visible, sizeof visible, "CUDA_VISIBLE_DEVICES=%s", visible_devices);
        environment = environment_with(visible);
    }
    char *arguments[] = {path, NULL};
    const int failure = posix_spawn(&process->pid, path, &actions, NULL, arguments, environment);
    cr_assert_eq(failure, 0, "%s does not start: %s", path, strerror(failure));
    if (environment != environ) {
        free(environment);
    }
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    process->socket = ends[0];
    return process;
}

void helper_tell(helper *process, os_handle handle, const char *format, ...) {
    char line[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    cr_assert(message_send(process->socket, line, handle), "\"%s\": %s", line, strerror(errno));
}

void helper_hear(helper *process, char line[MESSAGE_BYTES], os_handle *out_handle) {
    os_handle handle = OS_HANDLE_NONE;
    cr_assert(message_receive(process->socket, line, &handle), "the helper did not answer");
    if (out_handle != NULL) {
        *out_handle = handle;
    } else {
        cr_assert_not(os_handle_is_valid(handle), "an unexpected handle came with \"%s\"", line);
    }
}

void helper_await_answer(helper *process) {
    struct pollfd ready = {.fd = process->socket, .events = POLLIN};
    cr_assert_eq(poll(&ready, 1, ANSWER_SECONDS * 1000), 1, "the helper did not answer");
    cr_assert(ready.revents & POLLIN, "the helper ended without an answer");
}

static helper_ending ending_of(int status) {
    return (helper_ending){.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                           .crash = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
}

void helper_kill(helper *process) {
    int status;
    cr_assert_eq(kill(process->pid, SIGKILL), 0);
    cr_assert_eq(waitpid(process->pid, &status, 0), process->pid);
    process->pid = -1;
}

helper_ending helper_await_end(helper *process) {
    int status;
    cr_assert_eq(waitpid(process->pid, &status, 0), process->pid);
    close(process->socket);
    free(process);
    return ending_of(status);
}

helper_ending helper_end(helper *process) {
    if (process->pid == -1) { /* killed before */
        close(process->socket);
        free(process);
        return (helper_ending){.exit_code = -1, .crash = SIGKILL};
    }
    cr_assert_eq(shutdown(process->socket, SHUT_RDWR), 0);
    return helper_await_end(process);
}

void program_crash(void) {
    abort();
}
