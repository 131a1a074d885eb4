/* SPDX-License-Identifier: MIT */
/** @file See child.h. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"

#define ARGUMENTS_MAX 64
#define KILL_WAIT_MS  5000

struct child {
    pid_t process_id; /* 0: its end has been waited for */
    int output;       /* -1: ended */
    child_end end;
    char pending[4096]; /* what was read behind the last line */
    bool has_last_line; /* the output ended without a newline, and that line is still to be taken */
    size_t pending_count;
};

static gpuipc_status failed(int code, const char *operation) {
    return status_fail_os(GPUIPC_ERR_OS, code, operation, "starting this program again: %s",
                          strerror(code));
}

/* Never fork() alone: the new process is another program before it does anything, so nothing of a
 * CUDA driver that this one may have started is used in it. */
static gpuipc_status spawn(const char *path, const char *const *arguments, int output,
                           pid_t *out_process_id) {
    const char *words[ARGUMENTS_MAX + 2] = {path};
    posix_spawn_file_actions_t actions;
    for (size_t i = 0; arguments[i] != NULL; i++) {
        if (i == ARGUMENTS_MAX) {
            return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "too many arguments");
        }
        words[i + 1] = arguments[i];
    }
    int code = posix_spawn_file_actions_init(&actions);
    if (code != 0) {
        return failed(code, "posix_spawn_file_actions_init");
    }
    code = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (code == 0) {
        code = posix_spawn(out_process_id, path, &actions, NULL, (char *const *)(uintptr_t)words,
                           environ);
    }
    posix_spawn_file_actions_destroy(&actions);
    return code == 0 ? GPUIPC_OK : failed(code, "posix_spawn");
}

void child_forget_variable(const char *name) {
    (void)unsetenv(name); /* fails for an empty name or one with '=': setenv(3) */
}

gpuipc_status child_start(const char *const *arguments, child **out_child) {
    status_enter(__func__);
    char path[PATH_MAX];
    int output[2];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (length <= 0) {
        return failed(errno, "readlink");
    }
    path[length] = '\0';
    child *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    gpuipc_status status;
    if (pipe2(output, O_CLOEXEC) != 0) {
        status = failed(errno, "pipe2");
        goto free_self;
    }
    status = spawn(path, arguments, output[1], &self->process_id);
    close(output[1]);
    if (status != GPUIPC_OK) {
        goto close_output;
    }
    self->output = output[0];
    *out_child = self;
    return GPUIPC_OK;

close_output:
    close(output[0]);
free_self:
    free(self);
    return status;
}

/* Moves the first line out of what was read; at the end of the output, what is left of one. */
static bool take_line(child *self, char *line, size_t capacity) {
    char *end = memchr(self->pending, '\n', self->pending_count);
    bool is_full = self->pending_count == sizeof(self->pending);
    bool is_last = self->output < 0 && self->pending_count > 0;
    if (end == NULL && !is_full && !is_last) {
        return false;
    }
    size_t length = end != NULL ? (size_t)(end - self->pending) : self->pending_count;
    size_t used = end != NULL ? length + 1 : length;
    size_t kept = length < capacity ? length : capacity - 1;
    memcpy(line, self->pending, kept);
    line[kept] = '\0';
    self->pending_count -= used;
    memmove(self->pending, self->pending + used, self->pending_count);
    return true;
}

/* Reads what there is. False when the output has ended. */
static bool read_more(child *self) {
    ssize_t got = read(self->output, self->pending + self->pending_count,
                       sizeof(self->pending) - self->pending_count);
    if (got < 0 && errno == EINTR) {
        return true;
    }
    if (got <= 0) {
        close(self->output);
        self->output = -1;
        return false;
    }
    self->pending_count += (size_t)got;
    return true;
}

gpuipc_status child_next(child *const *children, size_t count, os_deadline deadline, size_t *which,
                         char *line, size_t capacity) {
    status_enter(__func__);
    struct pollfd entries[CHILDREN_MAX];
    for (;;) {
        for (size_t i = 0; i < count; i++) {
            *which = i;
            if (take_line(children[i], line, capacity)) {
                return GPUIPC_OK;
            }
            if (children[i]->has_last_line) { /* it was taken: now the end is told */
                children[i]->has_last_line = false;
                return status_fail(GPUIPC_ERR_PEER_CLOSED, "its output ended");
            }
            /* poll() passes over descriptors below zero */
            entries[i] = (struct pollfd){.fd = children[i]->output, .events = POLLIN};
        }
        int ready = poll(entries, (nfds_t)count, os_deadline_left_ms(deadline));
        if (ready < 0 && errno != EINTR) {
            return failed(errno, "poll");
        }
        if (ready == 0 && os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT, "nothing was said in time");
        }
        for (size_t i = 0; i < count && ready > 0; i++) {
            *which = i;
            if (entries[i].revents == 0 || read_more(children[i])) {
                continue;
            }
            if (children[i]->pending_count == 0) {
                return status_fail(GPUIPC_ERR_PEER_CLOSED, "its output ended");
            }
            children[i]->has_last_line = true;
        }
    }
}

static bool reap(child *self, int options) {
    int status = 0;
    pid_t got;
    do {
        got = waitpid(self->process_id, &status, options);
    } while (got < 0 && errno == EINTR);
    if (got == 0) {
        return false;
    }
    self->end.exited = got > 0 && WIFEXITED(status);
    self->end.code = got < 0 ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
    self->process_id = 0;
    return true;
}

child_end child_finish(child *self, os_deadline deadline, bool *out_killed) {
    bool killed = false;
    os_deadline given_up = {.at_ns = UINT64_MAX};
    /* A child's end cannot be waited for with a deadline without a pidfd, which Linux before 5.3
     * lacks; this waits for a program that has closed its output already. */
    while (self->process_id != 0 && !reap(self, WNOHANG)) {
        if (!killed && os_deadline_passed(deadline)) {
            killed = true;
            kill(self->process_id, SIGKILL);
            given_up = os_deadline_after(KILL_WAIT_MS);
        } else if (os_deadline_passed(given_up)) {
            /* stuck in the kernel, in a call that no signal interrupts: it is left behind */
            self->process_id = 0;
        } else {
            os_sleep_ms(1);
        }
    }
    *out_killed = killed;
    return self->end;
}

void child_destroy(child *self) {
    bool killed;
    if (self == NULL) {
        return;
    }
    child_finish(self, os_deadline_after(0), &killed);
    if (self->output >= 0) {
        close(self->output);
    }
    free(self);
}

const char *child_end_text(child_end end, char text[CHILD_END_MAX]) {
    (void)snprintf(text, CHILD_END_MAX, "%s %d",
                   end.exited ? "ended with exit code" : "was ended by signal", end.code);
    return text;
}

bool child_bind_to(uint64_t process_id) {
    /* The parent may have died before this took effect: then another one is named already. */
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && (uint64_t)getppid() == process_id;
}
