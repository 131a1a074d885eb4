/* SPDX-License-Identifier: MIT */
/** @file Helper programs: started by a test, talked to line by line, and never outliving it. */
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
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "os.h"

struct child_process {
    pid_t process_id;
    int process; /**< pidfd */
    int input;   /**< its standard input; -1: ended */
    int output;
    char pending[4096]; /**< what was read behind the last line */
    size_t pending_count;
    bool ended;
    child_end end;
};

static gpuipc_status child_failed(const char *operation) {
    gpuipc_status status = errno == EPIPE ? GPUIPC_ERR_PEER_CLOSED : GPUIPC_ERR_OS;
    return status_fail_os(status, errno, operation, "helper program: %s", strerror(errno));
}

static bool same_variable(const char *entry, const char *change) {
    size_t length = strcspn(change, "=");
    return strncmp(entry, change, length) == 0 && entry[length] == '=';
}

static size_t list_length(const char *const *list) {
    size_t count = 0;
    while (list != NULL && list[count] != NULL) {
        count++;
    }
    return count;
}

/** The present environment with the changes, and the number of this process for helper_begin().
 *  The list is the caller's to free; its texts are not. */
static const char **environment_make(const char *const *changes, const char *parent) {
    size_t change_count = list_length(changes);
    size_t present = list_length((const char *const *)environ);
    const char **list = calloc(present + change_count + 2, sizeof(*list));
    if (list == NULL) {
        return NULL;
    }
    size_t count = 0;
    for (size_t i = 0; i < present; i++) {
        bool changed = same_variable(environ[i], parent);
        for (size_t j = 0; j < change_count; j++) {
            changed = changed || same_variable(environ[i], changes[j]);
        }
        if (!changed) {
            list[count++] = environ[i];
        }
    }
    for (size_t j = 0; j < change_count; j++) {
        if (strchr(changes[j], '=') != NULL) {
            list[count++] = changes[j];
        }
    }
    list[count] = parent;
    return list;
}

static bool program_path(const char *name, char *path, size_t capacity) {
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    if (length <= 0) {
        return false;
    }
    own[length] = '\0';
    *strrchr(own, '/') = '\0';
    int written = snprintf(path, capacity, "%s/%s", own, name);
    return written > 0 && (size_t)written < capacity;
}

/** Starts @p path with these two descriptors as its standard input and output. */
static gpuipc_status child_spawn(child_process *started, const char *path,
                                 const char *const *arguments, const char *const *environment,
                                 int input, int output) {
    char parent[48];
    snprintf(parent, sizeof(parent), "GPUIPC_TEST_PARENT=%ld", (long)getpid());
    const char **variables = environment_make(environment, parent);
    size_t count = list_length(arguments);
    const char **words = calloc(count + 2, sizeof(*words));
    gpuipc_status status = GPUIPC_OK;
    if (variables == NULL || words == NULL) {
        status = status_out_of_memory(0);
        goto free_lists;
    }
    words[0] = path;
    for (size_t i = 0; i < count; i++) {
        words[i + 1] = arguments[i];
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    errno = posix_spawn(&started->process_id, path, &actions, NULL, (char *const *)(uintptr_t)words,
                        (char *const *)(uintptr_t)variables);
    if (errno != 0) {
        status = child_failed("posix_spawn");
    }
    posix_spawn_file_actions_destroy(&actions);

free_lists:
    free(words);
    free(variables);
    return status;
}

gpuipc_status child_start(const char *name, const char *const *arguments,
                          const char *const *environment, child_process **out_child) {
    char path[PATH_MAX];
    int input[2];
    int output[2];
    if (!program_path(name, path, sizeof(path))) {
        return status_fail(GPUIPC_ERR_OS, "where this program lies is unknown");
    }
    child_process *started = calloc(1, sizeof(*started));
    if (started == NULL) {
        return status_out_of_memory(sizeof(*started));
    }
    gpuipc_status status;
    /* Sockets, because writing to a pipe that nobody reads raises SIGPIPE. */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0) {
        status = child_failed("socketpair");
        goto free_child;
    }
    if (pipe2(output, O_CLOEXEC) != 0) {
        status = child_failed("pipe2");
        goto close_input;
    }
    status = child_spawn(started, path, arguments, environment, input[0], output[1]);
    if (status != GPUIPC_OK) {
        goto close_output;
    }
    /* Our child, not waited for yet: its number is its own until then. */
    started->process = (int)syscall(SYS_pidfd_open, started->process_id, 0);
    if (started->process < 0) {
        status = child_failed("pidfd_open");
        goto kill_child;
    }
    close(input[0]);
    close(output[1]);
    started->input = input[1];
    started->output = output[0];
    *out_child = started;
    return GPUIPC_OK;

kill_child:
    kill(started->process_id, SIGKILL);
    waitpid(started->process_id, NULL, 0);
close_output:
    close(output[0]);
    close(output[1]);
close_input:
    close(input[0]);
    close(input[1]);
free_child:
    free(started);
    return status;
}

/** Waits until @p fd is ready to be read. ERR_TIMEOUT. */
static gpuipc_status wait_readable(int fd, os_deadline deadline, const char *for_what) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    for (;;) {
        int ready = poll(&entry, 1, os_deadline_left_ms(deadline));
        if (ready > 0) {
            return GPUIPC_OK;
        }
        if (ready < 0 && errno != EINTR) {
            return child_failed("poll");
        }
        if (os_deadline_passed(deadline)) {
            return status_fail(GPUIPC_ERR_TIMEOUT, "helper program: no %s", for_what);
        }
    }
}

/** Moves the first line out of what was read. False when there is none yet. */
static bool pending_take_line(child_process *child, char *line, size_t capacity) {
    char *end = memchr(child->pending, '\n', child->pending_count);
    bool full = child->pending_count == sizeof(child->pending);
    if (end == NULL && !full) {
        return false;
    }
    size_t length = end != NULL ? (size_t)(end - child->pending) : child->pending_count;
    size_t used = end != NULL ? length + 1 : length;
    size_t kept = length < capacity ? length : capacity - 1;
    memcpy(line, child->pending, kept);
    line[kept] = '\0';
    child->pending_count -= used;
    memmove(child->pending, child->pending + used, child->pending_count);
    return true;
}

gpuipc_status child_read_line(child_process *child, char *line, size_t capacity, int timeout_ms) {
    os_deadline deadline = os_deadline_after(timeout_ms);
    while (!pending_take_line(child, line, capacity)) {
        gpuipc_status status = wait_readable(child->output, deadline, "line came in time");
        if (status != GPUIPC_OK) {
            return status;
        }
        ssize_t got = read(child->output, child->pending + child->pending_count,
                           sizeof(child->pending) - child->pending_count);
        if (got == 0) {
            return status_fail(GPUIPC_ERR_PEER_CLOSED, "helper program: its output ended");
        }
        if (got < 0 && errno != EINTR) {
            return child_failed("read");
        }
        child->pending_count += got > 0 ? (size_t)got : 0;
    }
    return GPUIPC_OK;
}

static gpuipc_status write_all(int fd, const char *text, size_t size) {
    while (size > 0) {
        ssize_t sent = send(fd, text, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return child_failed("send");
        }
        if (sent > 0) {
            text += sent;
            size -= (size_t)sent;
        }
    }
    return GPUIPC_OK;
}

gpuipc_status child_write_line(child_process *child, const char *line) {
    if (child->input < 0) {
        return status_fail(GPUIPC_ERR_PEER_CLOSED, "helper program: its input was ended");
    }
    gpuipc_status status = write_all(child->input, line, strlen(line));
    return status == GPUIPC_OK ? write_all(child->input, "\n", 1) : status;
}

void child_close_input(child_process *child) {
    if (child->input >= 0) {
        close(child->input);
        child->input = -1;
    }
}

static void child_signal(child_process *child, int number) {
    if (!child->ended) {
        kill(child->process_id, number);
    }
}

void child_kill(child_process *child) {
    child_signal(child, SIGKILL);
}

void child_stop(child_process *child) {
    child_signal(child, SIGSTOP);
}

void child_continue(child_process *child) {
    child_signal(child, SIGCONT);
}

gpuipc_status child_wait(child_process *child, int timeout_ms, child_end *out_end) {
    if (!child->ended) {
        gpuipc_status status =
            wait_readable(child->process, os_deadline_after(timeout_ms), "end came in time");
        if (status != GPUIPC_OK) {
            return status;
        }
        int how;
        while (waitpid(child->process_id, &how, 0) < 0) {
            if (errno != EINTR) {
                return child_failed("waitpid");
            }
        }
        child->ended = true;
        child->end.exited = WIFEXITED(how);
        child->end.code = WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how);
    }
    if (out_end != NULL) {
        *out_end = child->end;
    }
    return GPUIPC_OK;
}

uint64_t child_process_id(const child_process *child) {
    return (uint64_t)child->process_id;
}

void child_destroy(child_process *child) {
    if (child == NULL) {
        return;
    }
    child_kill(child);
    child_wait(child, -1, NULL);
    child_close_input(child);
    close(child->output);
    close(child->process);
    free(child);
}
