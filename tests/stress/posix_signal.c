/* SPDX-License-Identifier: MIT */
/**
 * @file A storm of signals, whose handler interrupts system calls, during every call that waits. Each waits as long as it may,
 * neither less nor much more, when nothing comes; and notices what comes. signal(7): poll() and its like are never restarted.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "child.h"
#include "helper.h"
#include "os.h"
#include "stress.h"
#include "unique.h"

/* How much longer than it may a call may take on a busy machine. */
#define LATE_NS UINT64_C(5000000000)
#define MAIN    0u
#define WAITER  1u

static char directory[RUNTIME_DIRECTORY_MAX];

/* What the calls wait for. */
static struct {
    gpuipc_context *context;
    gpuipc_listener *listener;
    char name[UNIQUE_NAME_MAX];
    char absent[UNIQUE_NAME_MAX]; /* nobody listens there until somebody is to */
    gpuipc_listener *late;
    gpuipc_connection *near_end;
    gpuipc_connection *far_end;
    gpuipc_connection *made;
    gpuipc_server *polled;
    gpuipc_buffer *exported; /* to this process itself */
    gpuipc_buffer *imported;
    gpuipc_buffer *behind; /* sent behind what the default stream waits for */
    gpuipc_buffer *opened;
    gpuipc_ticket ticket; /* of this process's own polled server, or of the silent process */
    child_process *silent;
    bool is_silent_polling;
    unsigned filled;
} stage;

static uint8_t filler[32768];

/* ---- the storm ------------------------------------------------------------------------------- */

static atomic_uint signals_come;
static pthread_mutex_t storm_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_t target;
static bool has_target;
static atomic_bool is_storm_over;

static void on_signal(int number) {
    (void)number;
    atomic_fetch_add_explicit(&signals_come, 1u, memory_order_relaxed);
}

/* Most go to the thread that waits; some to any thread of the process. */
static void *storm(void *argument) {
    uint64_t random = stress_state(77);
    (void)argument;
    while (!atomic_load(&is_storm_over)) {
        const struct timespec pause = {.tv_nsec = 20000 + (long)stress_random(&random, 300000)};
        (void)pthread_mutex_lock(&storm_mutex);
        if (has_target && stress_random(&random, 8) != 0) {
            (void)pthread_kill(target, SIGUSR1);
        } else {
            (void)kill(getpid(), SIGUSR1);
        }
        (void)pthread_mutex_unlock(&storm_mutex);
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

static void aim(const pthread_t *at) {
    (void)pthread_mutex_lock(&storm_mutex);
    has_target = at != NULL;
    if (at != NULL) {
        target = *at;
    }
    (void)pthread_mutex_unlock(&storm_mutex);
}

/* ---- the calls: what is there before, the call, what it waits for, what is undone ---------------- */

static gpuipc_status accept_one(int timeout_ms) {
    return gpuipc_listener_accept(stage.listener, timeout_ms, &stage.made);
}

static void connect_late(void) {
    gpuipc_connection *client = NULL;
    STRESS_OK(gpuipc_connection_open(stage.context, stage.name, NULL, STRESS_SOON_MS, &client));
    STRESS_OK(gpuipc_connection_close(client));
}

static void close_made(void) {
    STRESS_OK(gpuipc_connection_close(stage.made));
    stage.made = NULL;
}

static gpuipc_status open_absent(int timeout_ms) {
    return gpuipc_connection_open(stage.context, stage.absent, NULL, timeout_ms, &stage.made);
}

static void listen_late(void) {
    STRESS_OK(gpuipc_listener_open(stage.context, stage.absent, NULL, &stage.late));
}

static void close_late(void) {
    close_made();
    STRESS_OK(gpuipc_listener_close(stage.late));
    stage.late = NULL;
}

static gpuipc_status receive(gpuipc_connection *from, gpuipc_buffer **buffers, size_t capacity,
                             int timeout_ms) {
    static uint8_t bytes[sizeof(filler)];
    gpuipc_incoming room = {.struct_size = sizeof(room),
                            .bytes = bytes,
                            .bytes_capacity = sizeof(bytes),
                            .buffers = buffers,
                            .buffer_capacity = capacity};
    return gpuipc_connection_receive(from, &room, timeout_ms);
}

static gpuipc_status send_filler(int timeout_ms) {
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .bytes = filler, .bytes_size = sizeof(filler)};
    return gpuipc_connection_send(stage.near_end, &message, timeout_ms);
}

static gpuipc_status receive_nothing(int timeout_ms) {
    return receive(stage.far_end, NULL, 0, timeout_ms);
}

static void send_one(void) {
    STRESS_OK(send_filler(STRESS_SOON_MS));
}

static void fill_way(void) {
    static const gpuipc_status full[] = {GPUIPC_ERR_TIMEOUT, GPUIPC_OK};
    stage.filled = 0;
    while (stress_allow(send_filler(0), "send", full) == GPUIPC_OK) {
        stage.filled++;
    }
}

static void take_one(void) {
    STRESS_OK(receive_nothing(STRESS_SOON_MS));
}

/* Not one alone: poll() says that there is room when a quarter of the socket's memory is taken at most (Linux,
 * unix_writable()). */
static void empty_way(void) {
    for (; stage.filled > 0; stage.filled--) {
        take_one();
    }
}

static gpuipc_status hand_over(gpuipc_buffer *buffer, uint32_t flags, int timeout_ms) {
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .buffers = &buffer, .buffer_count = 1, .flags = flags};
    return gpuipc_connection_send(stage.near_end, &message, timeout_ms);
}

static void export_one(void) {
    stage.exported = stress_buffer(stage.context, GPUIPC_TRANSPORT_DEFAULT, 5);
    STRESS_OK(hand_over(stage.exported, GPUIPC_SEND_READY, STRESS_SOON_MS));
    STRESS_OK(receive(stage.far_end, &stage.imported, 1, STRESS_SOON_MS));
}

static gpuipc_status await_returns(int timeout_ms) {
    return gpuipc_buffer_await_returns(stage.exported, timeout_ms);
}

static void give_back(void) {
    STRESS_OK(gpuipc_buffer_release(stage.imported));
    stage.imported = NULL;
}

static void end_exported(void) {
    if (stage.imported != NULL) {
        give_back();
    }
    STRESS_OK(gpuipc_buffer_await_returns(stage.exported, STRESS_SOON_MS));
    STRESS_OK(gpuipc_buffer_release(stage.exported));
    stage.exported = NULL;
}

/* The default stream waits for the buffer that is exported. */
static void hold_stream(void) {
    export_one();
    stage.behind = stress_buffer(stage.context, GPUIPC_TRANSPORT_DEFAULT, 6);
    STRESS_OK(gpuipc_buffer_await_returns_async(stage.exported, NULL));
}

static void end_behind(void) {
    end_exported();
    STRESS_OK(gpuipc_buffer_release(stage.opened));
    stage.opened = NULL;
    STRESS_OK(gpuipc_buffer_await_returns(stage.behind, STRESS_SOON_MS));
    STRESS_OK(gpuipc_buffer_release(stage.behind));
}

static void send_late_contents(void) {
    hold_stream();
    STRESS_OK(hand_over(stage.behind, GPUIPC_SEND_ASYNC, STRESS_SOON_MS));
}

static gpuipc_status receive_late_contents(int timeout_ms) {
    return receive(stage.far_end, &stage.opened, 1, timeout_ms);
}

static void end_late_contents(void) {
    if (stage.imported != NULL) {
        give_back();
    }
    if (stage.opened == NULL) { /* the message waits for the next call */
        STRESS_OK(receive_late_contents(STRESS_SOON_MS));
    }
    end_behind();
}

/* Waits for the stream without bound. */
static gpuipc_status send_behind(int timeout_ms) {
    return hand_over(stage.behind, 0, timeout_ms);
}

static void end_send_behind(void) {
    STRESS_OK(receive(stage.far_end, &stage.opened, 1, STRESS_SOON_MS));
    end_behind();
}

static gpuipc_status poll_server(int timeout_ms) {
    return gpuipc_server_poll(stage.polled, timeout_ms);
}

static void connect_to_polled(void) {
    /* Which makes a connection and then waits for nobody: the server has something to answer. */
    char line[CHILD_LINE_MAX];
    STRESS_OK(child_write_line(stage.silent, "ask"));
    STRESS_OK(child_read_line(stage.silent, line, sizeof(line), STRESS_SOON_MS));
}

/* What came is answered, until nothing more comes. */
static void drain_polled(void) {
    static const gpuipc_status nothing[] = {GPUIPC_ERR_TIMEOUT, GPUIPC_OK};
    while (stress_allow(gpuipc_server_poll(stage.polled, 0), "poll", nothing) == GPUIPC_OK) {
    }
}

static gpuipc_status open_ticket(int timeout_ms) {
    const gpuipc_open_config config = {.struct_size = sizeof(config),
                                       .timeout_ms = timeout_ms == 0 ? 1 : timeout_ms};
    return gpuipc_buffer_open(stage.context, &stage.ticket, &config, &stage.opened);
}

static void poll_there(void) {
    STRESS_OK(child_write_line(stage.silent, "poll"));
    stage.is_silent_polling = true;
}

static void end_open(void) {
    char line[CHILD_LINE_MAX];
    if (stage.is_silent_polling) {
        STRESS_OK(child_read_line(stage.silent, line, sizeof(line), STRESS_SOON_MS));
        stage.is_silent_polling = false;
    }
    STRESS_OK(gpuipc_buffer_release(stage.opened));
    stage.opened = NULL;
}

static void nothing(void) {
}

typedef struct wait_case {
    const char *name;
    void (*prepare)(void);
    gpuipc_status (*call)(int timeout_ms);
    gpuipc_status in_vain; /* GPUIPC_OK: it is never made in vain */
    void (*fulfil)(void);
    void (*finish)(void);         /* after it was fulfilled */
    void (*finish_in_vain)(void); /* after it was not */
} wait_case;

static const wait_case cases[] = {
    {"gpuipc_listener_accept", nothing, accept_one, GPUIPC_ERR_TIMEOUT, connect_late, close_made,
     nothing},
    {"gpuipc_connection_open", nothing, open_absent, GPUIPC_ERR_NOT_FOUND, listen_late, close_late,
     nothing},
    {"gpuipc_connection_receive", nothing, receive_nothing, GPUIPC_ERR_TIMEOUT, send_one, nothing,
     nothing},
    {"gpuipc_connection_send", fill_way, send_filler, GPUIPC_ERR_TIMEOUT, empty_way, take_one,
     empty_way},
    {"gpuipc_buffer_await_returns", export_one, await_returns, GPUIPC_ERR_TIMEOUT, give_back,
     end_exported, end_exported},
    {"gpuipc_connection_receive, contents that are not ready", send_late_contents,
     receive_late_contents, GPUIPC_ERR_TIMEOUT, give_back, end_late_contents, end_late_contents},
    {"gpuipc_connection_send, work that is not done", hold_stream, send_behind, GPUIPC_OK,
     give_back, end_send_behind, nothing},
    {"gpuipc_server_poll", drain_polled, poll_server, GPUIPC_ERR_TIMEOUT, connect_to_polled,
     drain_polled, drain_polled},
    {"gpuipc_buffer_open", nothing, open_ticket, GPUIPC_ERR_TIMEOUT, poll_there, end_open, nothing},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

/* ---- a round --------------------------------------------------------------------------------- */

typedef struct waiter {
    const wait_case *of;
    int timeout_ms;
    gpuipc_status status;
    gpuipc_error error;
    uint64_t took_ns;
    atomic_bool is_done;
} waiter;

static void *wait_for_it(void *argument) {
    waiter *self = argument;
    stress_now(WAITER, self->of->name);
    const uint64_t begun = os_clock_ns();
    self->status = self->of->call(self->timeout_ms);
    self->took_ns = os_clock_ns() - begun;
    self->error = *gpuipc_error_get();
    stress_now(WAITER, NULL);
    atomic_store(&self->is_done, true);
    return NULL;
}

static void check(const waiter *self, gpuipc_status expected) {
    if (self->status != expected) {
        stress_fail("%s with %d ms answered %s (%s), not %s", self->of->name, self->timeout_ms,
                    gpuipc_status_name(self->status), self->error.sentence,
                    gpuipc_status_name(expected));
    }
}

static void run_case(const wait_case *of, bool in_vain, uint64_t *random) {
    waiter self = {.of = of,
                   .timeout_ms = in_vain ? (int)stress_random(random, 30) + 1 : STRESS_SOON_MS};
    pthread_t thread;
    stress_now(MAIN, of->name);
    of->prepare();
    STRESS_EXPECT(pthread_create(&thread, NULL, wait_for_it, &self) == 0);
    aim(&thread);
    if (!in_vain) {
        os_sleep_ms(stress_random(random, 10));
        of->fulfil();
    }
    while (!atomic_load(&self.is_done)) {
        os_sleep_ms(1);
    }
    aim(NULL);
    STRESS_EXPECT(pthread_join(thread, NULL) == 0);
    check(&self, in_vain ? of->in_vain : GPUIPC_OK);
    const uint64_t least_ns = (uint64_t)self.timeout_ms * 1000000;
    if (in_vain && (self.took_ns < least_ns || self.took_ns > least_ns + LATE_NS)) {
        stress_fail("%s with %d ms took %" PRIu64 " us", of->name, self.timeout_ms,
                    self.took_ns / 1000);
    }
    if (in_vain) {
        of->finish_in_vain();
    } else {
        of->finish();
    }
}

/* ---- the silent process ------------------------------------------------------------------------ */

static void answer_one(gpuipc_server *server, const gpuipc_ticket *of) {
    static const gpuipc_status none[] = {GPUIPC_ERR_TIMEOUT, GPUIPC_OK};
    static const gpuipc_status some[] = {GPUIPC_ERR_TOO_SMALL, GPUIPC_OK};
    size_t count = 0;
    while (count == 0) {
        (void)stress_allow(gpuipc_server_poll(server, 1), "poll", none);
        (void)stress_allow(gpuipc_server_holders(server, of, NULL, 0, &count), "holders", some);
    }
}

/* Asks this process's parent for a ticket, and goes before it is answered. */
static void ask(gpuipc_context *within, const gpuipc_ticket *of) {
    static const gpuipc_status late[] = {GPUIPC_ERR_TIMEOUT, GPUIPC_OK};
    const gpuipc_open_config config = {.struct_size = sizeof(config), .timeout_ms = 1};
    gpuipc_buffer *opened = NULL;
    if (stress_allow(gpuipc_buffer_open(within, of, &config, &opened), "open", late) == GPUIPC_OK) {
        STRESS_OK(gpuipc_buffer_release(opened));
    }
}

/* silent DIRECTORY SEED SECONDS TICKET: has a server that answers when it is told to, and no sooner. */
static int run_silent(char **arguments) {
    gpuipc_server *server = NULL;
    const gpuipc_server_config config = {.struct_size = sizeof(config)};
    gpuipc_ticket made;
    gpuipc_ticket parents;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    char line[64];
    helper_begin();
    stress_begin_peer("signal", strtoull(arguments[1], NULL, 10),
                      (unsigned)strtoul(arguments[2], NULL, 10));
    gpuipc_context *context = stress_context(arguments[0]);
    gpuipc_buffer *shared = stress_buffer(context, GPUIPC_TRANSPORT_DEFAULT, 4);
    STRESS_OK(gpuipc_ticket_from_text(arguments[3], &parents));
    STRESS_OK(gpuipc_server_create(context, &config, &server));
    STRESS_OK(gpuipc_buffer_share(server, shared, NULL, &made));
    STRESS_OK(gpuipc_ticket_to_text(&made, text));
    helper_say("%s", text);
    while (helper_hear(line, sizeof(line))) {
        if (strcmp(line, "poll") == 0) {
            answer_one(server, &made);
        } else {
            ask(context, &parents);
        }
        helper_say("done");
    }
    STRESS_OK(gpuipc_server_destroy(server));
    STRESS_OK(gpuipc_buffer_release(shared));
    STRESS_OK(gpuipc_context_destroy(context));
    return stress_end("over");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static gpuipc_buffer *begin_all(void) {
    const gpuipc_server_config config = {.struct_size = sizeof(config)};
    char text[GPUIPC_TICKET_TEXT_SIZE];
    char line[CHILD_LINE_MAX];
    char seed[32];
    char seconds[32];
    const char *const arguments[] = {"silent", directory, seed, seconds, text, NULL};
    gpuipc_ticket made;
    stage.context = stress_context(directory);
    unique_name(stage.name);
    unique_name(stage.absent);
    gpuipc_buffer *shared = stress_buffer(stage.context, GPUIPC_TRANSPORT_DEFAULT, 3);
    STRESS_OK(gpuipc_server_create(stage.context, &config, &stage.polled));
    STRESS_OK(gpuipc_buffer_share(stage.polled, shared, NULL, &made));
    STRESS_OK(gpuipc_ticket_to_text(&made, text));
    STRESS_OK(gpuipc_listener_open(stage.context, stage.name, NULL, &stage.listener));
    STRESS_OK(
        gpuipc_connection_open(stage.context, stage.name, NULL, STRESS_SOON_MS, &stage.near_end));
    STRESS_OK(gpuipc_listener_accept(stage.listener, STRESS_SOON_MS, &stage.far_end));
    (void)snprintf(seed, sizeof(seed), "%" PRIu64, stress_seed());
    (void)snprintf(seconds, sizeof(seconds), "%u", stress_seconds());
    STRESS_OK(child_start("stress_signal", arguments, NULL, &stage.silent));
    STRESS_OK(child_read_line(stage.silent, line, sizeof(line), STRESS_SOON_MS));
    STRESS_OK(gpuipc_ticket_from_text(line, &stage.ticket));
    return shared;
}

static void end_all(gpuipc_buffer *shared) {
    child_end end = {.exited = false};
    child_close_input(stage.silent);
    STRESS_OK(child_wait(stage.silent, STRESS_SOON_MS, &end));
    child_destroy(stage.silent);
    STRESS_EXPECT(end.exited && end.code == 0);
    STRESS_OK(gpuipc_server_destroy(stage.polled));
    STRESS_OK(gpuipc_connection_close(stage.near_end));
    STRESS_OK(gpuipc_connection_close(stage.far_end));
    STRESS_OK(gpuipc_listener_close(stage.listener));
    STRESS_OK(gpuipc_buffer_release(shared));
    STRESS_OK(gpuipc_context_destroy(stage.context));
}

int main(int argc, char **argv) {
    const struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART */
    pthread_t thread;
    unsigned rounds = 0;
    if (argc == 6 && strcmp(argv[1], "silent") == 0) {
        return run_silent(argv + 2);
    }
    stress_begin("signal", argc, argv);
    STRESS_EXPECT(runtime_directory_make(directory));
    gpuipc_buffer *shared = begin_all();
    uint64_t random = stress_state(0);
    STRESS_EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
    STRESS_EXPECT(pthread_create(&thread, NULL, storm, NULL) == 0);
    for (; stress_goes_on() || rounds < 2 * CASES; rounds++) { /* each at least once either way */
        const wait_case *of = &cases[rounds % CASES];
        run_case(of, rounds / CASES % 2 == 0 && of->in_vain != GPUIPC_OK, &random);
    }
    atomic_store(&is_storm_over, true);
    STRESS_EXPECT(pthread_join(thread, NULL) == 0);
    end_all(shared);
    runtime_directory_remove(directory);
    return stress_end("%u waits amid %u signals", rounds, atomic_load(&signals_come));
}
