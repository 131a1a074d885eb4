/* SPDX-License-Identifier: MIT */
/** @file The helper's commands about users and forks. */
#include <errno.h>
#include <gpuipc/gpuipc_native.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulated.h"
#include "helper.h"
#include "helper_commands.h"
#include "os.h"
#include "posix_system.h"

/* user NUMBER: of this process from now on */
static void become_user(helper_state *self, const char *arguments) {
    unsigned user = 0;
    (void)self;
    (void)sscanf(arguments, " %u", &user);
    bool done = system_become_user(user);
    helper_begin(); /* a change of user undoes it: prctl(2) */
    helper_say(done ? "GPUIPC_OK" : "this process cannot become another user");
}

/* no-shm: an empty /dev/shm of this process's own, as a container has it */
static void hide_shm(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    /* Private, so that the mount does not reach the others: mount_namespaces(7). EINVAL: "/" is no mount point,
     * as after chroot(2). */
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        bool refused = errno == EPERM || errno == EACCES || errno == EINVAL;
        helper_say("%s: %s", refused ? "not possible" : "failed", strerror(errno));
        return;
    }
    bool done = mount("none", "/dev/shm", "tmpfs", 0, NULL) == 0;
    helper_say("%s", done ? "GPUIPC_OK" : strerror(errno));
}

/* Of the parent's, with a thread; and a ticket of it. */
static gpuipc_server *server;
static gpuipc_ticket shared;

/* Every call on an object of the parent's; says the first that answers anything but FORKED. */
static const char *try_all_calls(helper_state *self) {
    gpuipc_context_info context_info = {.struct_size = sizeof(context_info)};
    gpuipc_buffer_info buffer_info = {.struct_size = sizeof(buffer_info)};
    gpuipc_peer_info peer = {.struct_size = sizeof(peer)};
    gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 4096};
    gpuipc_outgoing outgoing = {.struct_size = sizeof(outgoing)};
    gpuipc_incoming incoming = {.struct_size = sizeof(incoming)};
    gpuipc_native_segment segment;
    gpuipc_native_layout layout = {.struct_size = sizeof(layout)};
    gpuipc_connection *connection;
    gpuipc_listener *listener;
    gpuipc_server *unwanted;
    gpuipc_buffer *buffer;
    intptr_t wait_handle;
    uint32_t count;
    uint32_t word = 0;
    size_t segments;
    const struct {
        const char *name;
        gpuipc_status status;
    } answers[] = {
        {"context_get_info", gpuipc_context_get_info(self->context, &context_info)},
        {"device_count", gpuipc_device_count(self->context, &count)},
        {"buffer_create", gpuipc_buffer_create(self->context, &config, &buffer)},
        {"buffer_wrap", gpuipc_buffer_wrap(self->context, 1 << 20, 4096, &buffer)},
        {"buffer_retain", gpuipc_buffer_retain(self->buffers[0])},
        {"buffer_get_info", gpuipc_buffer_get_info(self->buffers[0], &buffer_info)},
        {"buffer_set_access", gpuipc_buffer_set_access(self->buffers[0], 0, GPUIPC_ACCESS_DEFAULT)},
        {"buffer_read", gpuipc_buffer_read(self->buffers[0], 0, &word, sizeof(word))},
        {"buffer_write", gpuipc_buffer_write(self->buffers[0], 0, &word, sizeof(word))},
        {"buffer_fill", gpuipc_buffer_fill_async(self->buffers[0], 0, 4, 0, 4, NULL)},
        {"buffer_copy",
         gpuipc_buffer_copy_async(self->buffers[0], 0, self->buffers[0], 8, 4, NULL)},
        {"native_export", gpuipc_native_export(self->buffers[0], &segment, 1, &layout, &segments)},
        {"listener_open", gpuipc_listener_open(self->context, "child", NULL, &listener)},
        {"listener_accept", gpuipc_listener_accept(self->listener, 0, &connection)},
        {"connection_open", gpuipc_connection_open(self->context, "x", NULL, 0, &connection)},
        {"connection_get_peer", gpuipc_connection_get_peer(self->connection, &peer)},
        {"connection_send", gpuipc_connection_send(self->connection, &outgoing, 0)},
        {"connection_receive", gpuipc_connection_receive(self->connection, &incoming, 0)},
        {"server_create", gpuipc_server_create(self->context, NULL, &unwanted)},
        {"server_poll", gpuipc_server_poll(server, 0)},
        {"server_get_wait_handle", gpuipc_server_get_wait_handle(server, &wait_handle)},
        {"buffer_share", gpuipc_buffer_share(server, self->buffers[0], NULL, &shared)},
        {"server_revoke", gpuipc_server_revoke(server, &shared)},
        {"server_holders", gpuipc_server_holders(server, &shared, NULL, 0, &segments)}};
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
        if (answers[i].status != GPUIPC_ERR_FORKED) {
            return answers[i].name;
        }
    }
    return NULL;
}

static uint64_t no_calls(const char *name) {
    (void)name;
    return 0;
}

/* What counts the emulated driver's calls in this process; another driver's are not counted. Found
 * before the fork: a child of a program with threads should load nothing. */
static gpuipc_emulated_calls_fn find_call_counter(void) {
    os_library *library; /* stays open for the rest of this process's life */
    gpuipc_emulated_calls_fn get_calls = no_calls;
    if (os_library_open_own(os_emulated_driver_name, &library) == GPUIPC_OK) {
        void *symbol = os_library_symbol(library, GPUIPC_EMULATED_CALLS);
        if (symbol != NULL) {
            memcpy(&get_calls, &symbol, sizeof(symbol));
        }
    }
    return get_calls;
}

/* The child's part: reports, and lives until its input ends. It returns to nobody. */
static void live_as_child(helper_state *self, gpuipc_emulated_calls_fn get_calls) {
    char line[64];
    uint64_t calls = get_calls(NULL);
    const char *wrong = try_all_calls(self);
    gpuipc_status released = helper_release(self);
    (void)gpuipc_connection_close(self->connection);
    (void)gpuipc_listener_close(self->listener);
    if (released == GPUIPC_OK) {
        released = gpuipc_server_destroy(server);
    }
    (void)gpuipc_context_destroy(self->context);
    helper_say("child: %s %s calls %" PRIu64, wrong == NULL ? "all-forked" : wrong,
               gpuipc_status_name(released), get_calls(NULL) - calls);
    while (helper_hear(line, sizeof(line))) {
        helper_say("child: %s", line);
    }
    _exit(0);
}

/* fork: the child reports, then this process ends without a word to anybody, and the child goes on
 * to answer in its place */
static void fork_child(helper_state *self, const char *arguments) {
    (void)arguments;
    int ready[2];
    char byte;
    if (pipe(ready) != 0) {
        helper_say("no pipe");
        return;
    }
    gpuipc_emulated_calls_fn get_calls = find_call_counter();
    const gpuipc_share_config config = {.struct_size = sizeof(config), .flags = GPUIPC_SEND_READY};
    if (gpuipc_server_create(self->context, NULL, &server) != GPUIPC_OK ||
        gpuipc_buffer_share(server, self->buffers[0], &config, &shared) != GPUIPC_OK) {
        helper_say("no server: %s", gpuipc_error_get()->sentence);
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ready[0]);
        close(ready[1]);
        live_as_child(self, get_calls);
    }
    close(ready[1]);
    /* The child lets go of the pipe first of all: then it is past fork() and its handlers. */
    (void)!read(ready[0], &byte, 1);
    _exit(child < 0 ? 1 : 0);
}

/* reuse: forks a child in which the numbers of this process's descriptors are free. There it opens its
 * own, gives up everything of its parent's, and says how many of its own are left. */
static void reuse_numbers(helper_state *self, const char *arguments) {
    enum {
        OWN = 64
    };
    (void)arguments;
    pid_t child = fork();
    if (child != 0) {
        int status = -1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            helper_say("the child ended with %d", status);
        }
        return;
    }
    os_handle own[OWN];
    unsigned left = 0;
    for (unsigned i = 0; i < OWN; i++) {
        if (os_memory_create("own", 4096, &own[i]) != GPUIPC_OK) {
            _exit(1);
        }
    }
    (void)helper_release(self);
    (void)gpuipc_connection_close(self->connection);
    (void)gpuipc_listener_close(self->listener);
    (void)gpuipc_context_destroy(self->context);
    for (unsigned i = 0; i < OWN; i++) {
        uint64_t bytes = 0;
        left += os_memory_inspect(own[i], &bytes) == GPUIPC_OK;
    }
    helper_say("child: %u of %u", left, (unsigned)OWN);
    _exit(0);
}

/* A child that keeps all descriptors: no handler of a fork runs in it. It ends with its parent. */
static void leave_a_copy(void) {
    if (syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0) {
            for (;;) {
                pause();
            }
        }
        _exit(1);
    }
}

/* exec, or exec-copied: this process goes on with another program, which says "another" and ends with its input */
static void replace(void) {
    char *const words[] = {"process_helper", "another", NULL};
    (void)execv("/proc/self/exe", words);
    helper_say("execv: %s", strerror(errno));
}

static void replace_program(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    replace();
}

static void replace_copied(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    leave_a_copy();
    replace();
}

/* exec-child: a forked child does, and has ended before the answer */
static void replace_in_child(helper_state *self, const char *arguments) {
    (void)self;
    (void)arguments;
    char *const words[] = {"process_helper", "another", NULL};
    const pid_t child = fork();
    if (child == 0) {
        (void)execv("/proc/self/exe",
                    words); /* which ends, since it is no child of the test: helper_begin() */
        _exit(0);
    }
    int status = -1;
    const bool is_done = child > 0 && waitpid(child, &status, 0) == child && status != 0;
    helper_say(is_done ? "GPUIPC_OK" : "the child did not");
}

const helper_command helper_system_commands[] = {{"user", become_user},
                                                 {"no-shm", hide_shm},
                                                 {"fork", fork_child},
                                                 {"reuse", reuse_numbers},
                                                 {"exec", replace_program},
                                                 {"exec-copied", replace_copied},
                                                 {"exec-child", replace_in_child},
                                                 {NULL, NULL}};
