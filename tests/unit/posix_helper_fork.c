/* SPDX-License-Identifier: MIT */
/** @file Roles in which the process forks: what the child of a program that uses gpuipc finds. */
#include "posix_helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper.h"
#include "os.h"

/** All that a process of gpuipc's may have open when it forks. */
typedef struct estate {
    int plain[2]; /**< a pipe of the program's own, by which the child is told to end */
    int pipe_end; /**< the reading end of a pipe whose writing end is the library's */
    os_handle handle;
    os_listener *listener;
    os_connection *client;
    os_connection *server;
    os_poller *poller; /**< with the last two in it */
} estate;

static bool child_check_poller(estate *own) {
    void *tag;
    size_t count;
    os_deadline now = os_deadline_after(0);
    os_poller *made = NULL;
    bool good = os_poller_wait(own->poller, now, &tag, 1, &count) == GPUIPC_ERR_FORKED &&
                os_poller_add_connection(own->poller, own->client, own) == GPUIPC_ERR_FORKED &&
                os_poller_add_listener(own->poller, own->listener, own) == GPUIPC_ERR_FORKED &&
                os_poller_native(own->poller) == -1 && os_poller_create(&made) == GPUIPC_OK;
    /* One that the child has made takes nothing that is the parent's, nor do these reach that. */
    good = good && os_poller_add_connection(made, own->client, own) == GPUIPC_ERR_FORKED &&
           os_poller_add_listener(made, own->listener, own) == GPUIPC_ERR_FORKED;
    os_poller_wake(own->poller);
    os_listener_refuse(own->listener);
    os_poller_remove_connection(own->poller, own->server);
    os_poller_destroy(own->poller);
    if (made == NULL) {
        return false;
    }
    os_poller_wake(made);
    good = good && os_poller_wait(made, now, &tag, 1, &count) == GPUIPC_OK && count == 1;
    os_poller_destroy(made);
    return good;
}

/** One bit in the exit code for each thing that is not as it should be in the child. */
static int child_check(estate *own, const os_directory *directory, const char *name) {
    int wrong = 0;
    char byte;
    size_t size;
    size_t count;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    os_deadline now = os_deadline_after(0);
    os_connection *connection = NULL;
    os_peer peer;
    int number = (int)own->handle.value;
    wrong |= os_fork_generation() == 1 ? 0 : 1;
    wrong |= fcntl(number, F_GETFD) < 0 ? 0 : 2;
    wrong |= os_connection_send(own->client, "x", 1, NULL, 0, now) == GPUIPC_ERR_FORKED &&
                     os_connection_receive(own->client, &byte, 1, &size, handles, &count, now) ==
                         GPUIPC_ERR_FORKED &&
                     os_connection_get_peer(own->client, &peer) == GPUIPC_ERR_FORKED &&
                     os_listener_accept(own->listener, now, &connection) == GPUIPC_ERR_FORKED
                 ? 0
                 : 4;
    wrong |= child_check_poller(own) ? 0 : 32;
    /* The number belongs to the child's own file now; the stale handle must not close it. */
    int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(file, number);
    os_handle_close(&own->handle);
    wrong |= fcntl(number, F_GETFD) >= 0 ? 0 : 8;
    /* None of these reaches the parent's end, and the name stays. */
    os_connection_interrupt(own->client);
    os_connection_destroy(own->client);
    os_connection_destroy(own->server);
    os_listener_interrupt(own->listener);
    os_listener_destroy(own->listener);
    /* What the child makes itself works. */
    wrong |= os_connection_open(directory, name, os_deadline_after(20000), &connection) == GPUIPC_OK
                 ? 0
                 : 16;
    if (connection != NULL) {
        os_connection_destroy(connection);
    }
    while (read(own->plain[0], &byte, 1) == 1) {
    }
    return wrong;
}

/** By the packet alone, before the child has connected or afterwards. */
static void say_polled(estate *own) {
    void *tags[4];
    size_t count = 0;
    bool woken = false;
    bool ready = false;
    gpuipc_status status = os_poller_wait(own->poller, os_deadline_after(20000), tags, 4, &count);
    for (size_t i = 0; i < count; i++) {
        woken |= tags[i] == OS_POLLER_WOKEN;
        ready |= tags[i] == own->server;
    }
    helper_say("%s %s %s", gpuipc_status_name(status), ready ? "ready" : "not ready",
               woken ? "woken" : "not woken");
}

static void parent_check(estate *own) {
    char byte;
    size_t size = 0;
    size_t count = 0;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    /* The child lives; had it kept the writing end or the socket, these two would not end. */
    os_handle_close(&own->handle);
    struct pollfd end = {.fd = own->pipe_end, .events = POLLIN};
    helper_say("pipe %s", poll(&end, 1, 20000) == 1 && read(own->pipe_end, &byte, 1) == 0
                              ? "ended"
                              : "still open");
    helper_say_status(os_connection_send(own->client, "x", 1, NULL, 0, os_deadline_after(20000)));
    say_polled(own);
    os_connection_destroy(own->client);
    helper_say_status(os_connection_receive(own->server, &byte, 1, &size, handles, &count,
                                            os_deadline_after(20000)));
    helper_say("%s", gpuipc_status_name(os_connection_receive(own->server, &byte, 1, &size, handles,
                                                              &count, os_deadline_after(20000))));
    os_connection *connection;
    gpuipc_status status = os_listener_accept(own->listener, os_deadline_after(20000), &connection);
    helper_say_status(status);
    if (status == GPUIPC_OK) {
        os_connection_destroy(connection);
    }
}

static gpuipc_status estate_make(estate *own, const os_directory *directory, const char *name) {
    int ends[2];
    os_deadline soon = os_deadline_after(20000);
    if (pipe2(ends, O_CLOEXEC) != 0 || pipe2(own->plain, O_CLOEXEC) != 0) {
        return GPUIPC_ERR_OS;
    }
    own->pipe_end = ends[0];
    gpuipc_status status = os_handle_adopt(ends[1], &own->handle);
    status = status ? status : os_listener_open(directory, name, NULL, &own->listener);
    status = status ? status : os_connection_open(directory, name, soon, &own->client);
    status = status ? status : os_listener_accept(own->listener, soon, &own->server);
    status = status ? status : os_poller_create(&own->poller);
    status = status ? status : os_poller_add_connection(own->poller, own->server, own->server);
    return status ? status : os_poller_add_listener(own->poller, own->listener, own->listener);
}

/** fork-closes DIRECTORY NAME */
int role_fork_closes(char **arguments) {
    os_directory directory = {arguments[0], false};
    estate own;
    gpuipc_status status = estate_make(&own, &directory, arguments[1]);
    helper_say_status(status);
    if (status != GPUIPC_OK) {
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        close(own.plain[1]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(child_check(&own, &directory, arguments[1]));
    }
    parent_check(&own);
    close(own.plain[1]);
    int how = -1;
    waitpid(child, &how, 0);
    helper_say("child %d, generation %u", WIFEXITED(how) ? WEXITSTATUS(how) : -1,
               (unsigned)os_fork_generation());
    os_connection_destroy(own.server);
    os_poller_destroy(own.poller);
    os_listener_destroy(own.listener);
    close(own.plain[0]);
    close(own.pipe_end);
    return 0;
}

static os_static_mutex outer;
static os_static_mutex inner;
static atomic_bool finished;

static void lock_and_unlock(void *argument) {
    (void)argument;
    while (!atomic_load(&finished)) {
        os_static_mutex_lock(&outer);
        os_static_mutex_lock(&inner);
        os_handle handle;
        if (os_memory_create("busy", 4096, &handle) == GPUIPC_OK) {
            os_handle_close(&handle);
        }
        os_static_mutex_unlock(&inner);
        os_static_mutex_unlock(&outer);
    }
}

/** What a child does with mutexes that another thread may have had when it was made. */
static int child_lock(void) {
    os_handle handle;
    os_static_mutex_lock(&inner);
    os_static_mutex_unlock(&inner);
    os_static_mutex_lock(&outer);
    os_static_mutex_unlock(&outer);
    if (os_memory_create("child", 4096, &handle) != GPUIPC_OK) {
        return 1;
    }
    os_handle_close(&handle);
    return os_fork_generation() == 1 ? 0 : 2;
}

/** fork-mutex: forks again and again while other threads hold the library's mutexes. */
int role_fork_mutex(char **arguments) {
    (void)arguments;
    enum {
        THREADS = 2,
        FORKS = 200
    };
    os_thread *threads[THREADS];
    if (os_fork_watch() != GPUIPC_OK) {
        return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        if (os_thread_start(lock_and_unlock, NULL, &threads[i]) != GPUIPC_OK) {
            return 1;
        }
    }
    int good = 0;
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20); /* a mutex that nobody will ever unlock */
            _exit(child_lock());
        }
        int how = -1;
        waitpid(child, &how, 0);
        good += WIFEXITED(how) && WEXITSTATUS(how) == 0;
    }
    atomic_store(&finished, true);
    for (int i = 0; i < THREADS; i++) {
        os_thread_join(threads[i]);
    }
    helper_say("%d of %d", good, FORKS);
    return 0;
}
