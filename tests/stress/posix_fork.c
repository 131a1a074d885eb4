/* SPDX-License-Identifier: MIT */
/**
 * @file fork() again and again while other threads are in calls of every kind. A child finds no lock held: its calls on what
 * its parent has answer GPUIPC_ERR_FORKED, it releases all of it, and some of them go on as another program, which uses
 * gpuipc as any does. The parent notices nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os.h"
#include "stress.h"
#include "unique.h"

#define THREADS 5
/* A child that takes longer hangs; the signal ends it, and it says where it was. */
#define CHILD_SECONDS 30
#define HUNG          4

static char directory[RUNTIME_DIRECTORY_MAX];
static char *own_path;

/* What all threads, and each child, have. */
static gpuipc_context *context;
static gpuipc_server *server;
static gpuipc_buffer *shared;
static gpuipc_listener *listener;
static gpuipc_connection *near_end;
static gpuipc_connection *far_end;
static char name[UNIQUE_NAME_MAX];

static atomic_bool is_over;
static atomic_uint calls;

typedef struct actor {
    unsigned number;
    uint64_t random;
    os_thread *thread;
} actor;

/* ---- what the threads do ----------------------------------------------------------------------- */

static gpuipc_transport pick_transport(uint64_t *random) {
    static const gpuipc_transport each[] = {GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_LEGACY,
                                            GPUIPC_TRANSPORT_HOST, GPUIPC_TRANSPORT_POOL};
    return each[stress_random(random, 4)];
}

static void make_and_release(uint64_t *random) {
    uint32_t word = 0;
    gpuipc_buffer *made = stress_buffer(context, pick_transport(random), 7);
    STRESS_OK(gpuipc_buffer_read(made, 0, &word, sizeof(word)));
    STRESS_EXPECT(word == 7);
    STRESS_OK(gpuipc_buffer_release(made));
}

static void send_and_receive(uint64_t *random) {
    gpuipc_buffer *made = stress_buffer(context, pick_transport(random), 8);
    gpuipc_buffer *opened = NULL;
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = &made,
                                     .buffer_count = 1,
                                     .flags = stress_random(random, 2) ? GPUIPC_SEND_ASYNC : 0};
    gpuipc_incoming room = {.struct_size = sizeof(room), .buffers = &opened, .buffer_capacity = 1};
    STRESS_OK(gpuipc_connection_send(near_end, &message, STRESS_SOON_MS));
    STRESS_OK(gpuipc_connection_receive(far_end, &room, STRESS_SOON_MS));
    if (stress_random(random, 2) == 0) {
        STRESS_OK(gpuipc_buffer_return_async(opened, NULL));
    }
    STRESS_OK(gpuipc_buffer_release(opened));
    STRESS_OK(gpuipc_buffer_await_returns(made, STRESS_SOON_MS));
    STRESS_OK(gpuipc_buffer_release(made));
}

static void share_and_open(uint64_t *random) {
    gpuipc_ticket made;
    gpuipc_buffer *opened = NULL;
    STRESS_OK(gpuipc_buffer_share(server, shared, NULL, &made));
    STRESS_OK(gpuipc_buffer_open(context, &made, NULL, &opened));
    STRESS_OK(gpuipc_buffer_release(opened));
    if (stress_random(random, 2) == 0) {
        STRESS_OK(gpuipc_server_revoke(server, &made));
    }
}

static void connect_and_close(uint64_t *random) {
    gpuipc_connection *ends[2] = {NULL, NULL};
    STRESS_OK(gpuipc_connection_open(context, name, NULL, STRESS_SOON_MS, &ends[0]));
    STRESS_OK(gpuipc_listener_accept(listener, STRESS_SOON_MS, &ends[1]));
    const uint32_t first = stress_random(random, 2);
    STRESS_OK(gpuipc_connection_close(ends[first]));
    STRESS_OK(gpuipc_connection_close(ends[1 - first]));
}

static void make_context(uint64_t *random) {
    gpuipc_context *other = stress_context(directory);
    gpuipc_buffer *made = stress_buffer(other, pick_transport(random), 9);
    STRESS_OK(gpuipc_buffer_release(made));
    STRESS_OK(gpuipc_context_destroy(other));
}

static void act(void *argument) {
    static void (*const acts[THREADS])(uint64_t * random) = {
        make_and_release, send_and_receive, share_and_open, connect_and_close, make_context};
    static const char *const names[THREADS] = {"make_and_release", "send_and_receive",
                                               "share_and_open", "connect_and_close",
                                               "make_context"};
    actor *self = argument;
    while (!atomic_load(&is_over)) {
        stress_now(self->number, names[self->number]);
        acts[self->number](&self->random);
        atomic_fetch_add(&calls, 1u);
    }
    stress_now(self->number, NULL);
}

/* ---- what a child does ------------------------------------------------------------------------- */

static const char *volatile step;

static void say_where(int number) {
    const char *const at = step;
    (void)number;
    (void)!write(STDERR_FILENO, "hung: ", 6);
    (void)!write(STDERR_FILENO, at, strlen(at));
    (void)!write(STDERR_FILENO, "\n", 1);
    _exit(HUNG);
}

static void begin_steps(const char *first) {
    step = first;
    (void)signal(SIGALRM, say_where);
    (void)alarm(CHILD_SECONDS);
}

static void expect_forked(gpuipc_status status, const char *what) {
    if (status != GPUIPC_ERR_FORKED) {
        stress_fail("in a child %s answered %s", what, gpuipc_status_name(status));
    }
}

static void check_calls(void) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    const gpuipc_outgoing message = {.struct_size = sizeof(message)};
    gpuipc_incoming room = {.struct_size = sizeof(room)};
    gpuipc_connection *made = NULL;
    gpuipc_ticket ticket;
    gpuipc_buffer *created = NULL;
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 1};
    expect_forked(gpuipc_buffer_get_info(shared, &info), "get_info");
    expect_forked(gpuipc_buffer_await_returns(shared, -1), "await_returns");
    expect_forked(gpuipc_buffer_create(context, &config, &created), "buffer_create");
    expect_forked(gpuipc_connection_send(near_end, &message, -1), "send");
    expect_forked(gpuipc_connection_receive(far_end, &room, -1), "receive");
    expect_forked(gpuipc_listener_accept(listener, -1, &made), "accept");
    expect_forked(gpuipc_connection_open(context, name, NULL, -1, &made), "connection_open");
    expect_forked(gpuipc_buffer_share(server, shared, NULL, &ticket), "share");
    expect_forked(gpuipc_server_poll(server, -1), "poll");
}

/* In whatever order: nothing of it waits for the threads that are not here. */
static void release_all(uint64_t *random) {
    static const char *const names[] = {"server_destroy",       "close of the near end",
                                        "close of the far end", "listener_close",
                                        "buffer_release",       "context_destroy"};
    for (uint32_t i = 0, first = stress_random(random, 6); i < 6; i++) {
        step = names[(first + i) % 6];
        switch ((first + i) % 6) {
        case 0:
            STRESS_OK(gpuipc_server_destroy(server));
            break;
        case 1:
            STRESS_OK(gpuipc_connection_close(near_end));
            break;
        case 2:
            STRESS_OK(gpuipc_connection_close(far_end));
            break;
        case 3:
            STRESS_OK(gpuipc_listener_close(listener));
            break;
        case 4:
            STRESS_OK(gpuipc_buffer_release(shared));
            break;
        default:
            STRESS_OK(gpuipc_context_destroy(context));
        }
    }
}

static _Noreturn void run_child(uint64_t random) {
    gpuipc_context *none = NULL;
    begin_steps("calls on what is the parent's");
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = directory};
    const uint32_t what = stress_random(&random, 4);
    if (what != 0) {
        check_calls();
        /* CUDA does not survive fork(): no context of the child's own either */
        expect_forked(gpuipc_context_create(&config, &none), "context_create");
    }
    if (what >= 2) {
        release_all(&random);
    }
    step = "exec or exit";
    if (what % 2 == 0) {
        (void)execl(own_path, own_path, "after-exec", directory, (char *)NULL);
        _exit(3);
    }
    _exit(0);
}

/* after-exec DIRECTORY: another program, which the alarm ends as well. */
static int run_after_exec(const char *path) {
    begin_steps("after exec");
    gpuipc_context *fresh = stress_context(path);
    gpuipc_buffer *made = stress_buffer(fresh, GPUIPC_TRANSPORT_DEFAULT, 1);
    STRESS_OK(gpuipc_buffer_release(made));
    STRESS_OK(gpuipc_context_destroy(fresh));
    step = "the end of main, after exec";
    return 0;
}

/* ---- the parent -------------------------------------------------------------------------------- */

static void fork_once(uint64_t *random) {
    const uint64_t childs = stress_random(random, UINT32_MAX);
    int how = 0;
    stress_now(THREADS, "fork");
    const pid_t child = fork();
    if (child == 0) {
        run_child(childs);
    }
    STRESS_EXPECT(child > 0);
    stress_now(THREADS, "waiting for a child");
    while (waitpid(child, &how, 0) < 0) {
        STRESS_EXPECT(errno == EINTR);
    }
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0) {
        stress_fail("a child ended with %s %d%s", WIFEXITED(how) ? "code" : "signal",
                    WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how),
                    WIFEXITED(how) && WEXITSTATUS(how) == HUNG ? ": it hung" : "");
    }
}

static void begin_all(void) {
    context = stress_context(directory);
    shared = stress_buffer(context, GPUIPC_TRANSPORT_DEFAULT, 1);
    STRESS_OK(gpuipc_server_create(context, NULL, &server));
    unique_name(name);
    STRESS_OK(gpuipc_listener_open(context, name, NULL, &listener));
    STRESS_OK(gpuipc_connection_open(context, name, NULL, STRESS_SOON_MS, &near_end));
    STRESS_OK(gpuipc_listener_accept(listener, STRESS_SOON_MS, &far_end));
}

static void end_all(void) {
    STRESS_OK(gpuipc_connection_close(near_end));
    STRESS_OK(gpuipc_connection_close(far_end));
    STRESS_OK(gpuipc_listener_close(listener));
    STRESS_OK(gpuipc_server_destroy(server));
    STRESS_OK(gpuipc_buffer_release(shared));
    STRESS_OK(gpuipc_context_destroy(context));
}

int main(int argc, char **argv) {
    actor actors[THREADS];
    unsigned forks = 0;
    own_path = argv[0];
    if (argc == 3 && strcmp(argv[1], "after-exec") == 0) {
        return run_after_exec(argv[2]);
    }
    stress_begin("fork", argc, argv);
    STRESS_EXPECT(runtime_directory_make(directory));
    begin_all();
    uint64_t random = stress_state(THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        actors[i] = (actor){.number = i, .random = stress_state(i)};
        STRESS_OK(os_thread_start(act, &actors[i], &actors[i].thread));
    }
    for (; stress_goes_on(); forks++) {
        fork_once(&random);
    }
    atomic_store(&is_over, true);
    for (unsigned i = 0; i < THREADS; i++) {
        os_thread_join(actors[i].thread);
    }
    end_all();
    runtime_directory_remove(directory);
    return stress_end("%u forks amid %u rows of calls", forks, atomic_load(&calls));
}
