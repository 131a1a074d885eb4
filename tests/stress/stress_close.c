/* SPDX-License-Identifier: MIT */
/**
 * @file Two processes that close their connection at the same time, while threads of both send and receive messages and
 * contents, with unread ones in both directions. Every thread comes back, every stream goes on, and every buffer returns.
 * What is sent and what is received is on two streams: on one, the two processes would wait for each other by themselves.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "driver.h"
#include "helper.h"
#include "os.h"
#include "stress.h"
#include "unique.h"

#define BUFFERS 3
#define MIB     (UINT64_C(1) << 20)
#define BYTES   (2 * MIB)
#define KEPT    8
/* Actors of the watch. */
#define CLOSER   0u
#define SENDER   1u
#define RECEIVER 2u

/* One side of a round. */
typedef struct side {
    gpuipc_context *context;
    gpuipc_connection *connection;
    gpuipc_buffer *buffers[BUFFERS]; /* what it sends */
    gpuipc_buffer *into;             /* what contents are received into */
    CUstream sends;
    CUstream receives;
    uint64_t random[3];
    atomic_uint sent;
    atomic_uint received;
    os_thread *threads[2];
} side;

static char directory[RUNTIME_DIRECTORY_MAX];
static driver drv;

/* What ends a thread. */
static const gpuipc_status closed[] = {GPUIPC_ERR_RELEASED, GPUIPC_ERR_PEER_CLOSED,
                                       GPUIPC_ERR_CONNECTION_BROKEN, GPUIPC_OK};

/* ---- sending --------------------------------------------------------------------------------- */

static gpuipc_status send_message(side *self, uint64_t *random) {
    static const uint32_t flags[] = {0, GPUIPC_SEND_READY, GPUIPC_SEND_ASYNC};
    static uint8_t bytes[20000];
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = bytes,
                                     .bytes_size = stress_random(random, sizeof(bytes)),
                                     .buffers = self->buffers,
                                     .buffer_count = stress_random(random, BUFFERS + 1),
                                     .flags = flags[stress_random(random, 3)],
                                     .stream = self->sends};
    stress_now(SENDER, "gpuipc_connection_send");
    return stress_allow(gpuipc_connection_send(self->connection, &message, -1),
                        "gpuipc_connection_send", closed);
}

static gpuipc_status send_contents(side *self, uint64_t *random) {
    const gpuipc_contents contents = {
        .struct_size = sizeof(contents),
        .buffer = self->buffers[stress_random(random, BUFFERS)],
        .bytes = BYTES,
        .stream = self->sends,
        .transport = stress_random(random, 2) == 0 ? GPUIPC_TRANSPORT_VMM : GPUIPC_TRANSPORT_HOST};
    stress_now(SENDER, "gpuipc_connection_send_contents");
    return stress_allow(gpuipc_connection_send_contents(self->connection, &contents, -1),
                        "gpuipc_connection_send_contents", closed);
}

static void send_until_closed(void *argument) {
    side *self = argument;
    uint64_t *random = &self->random[0];
    gpuipc_status status;
    do {
        status = stress_random(random, 3) == 0 ? send_contents(self, random)
                                               : send_message(self, random);
        atomic_fetch_add(&self->sent, status == GPUIPC_OK);
    } while (status == GPUIPC_OK);
    stress_now(SENDER, NULL);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void give_back(const side *self, gpuipc_buffer **buffers, size_t count, uint64_t *random) {
    for (size_t i = 0; i < count; i++) {
        if (stress_random(random, 2) == 0) {
            stress_now(RECEIVER, "gpuipc_buffer_return_async");
            STRESS_OK(gpuipc_buffer_return_async(buffers[i], self->receives));
        }
        stress_now(RECEIVER, "gpuipc_buffer_release");
        STRESS_OK(gpuipc_buffer_release(buffers[i]));
    }
}

static const gpuipc_status other_kind[] = {GPUIPC_ERR_OTHER_KIND,  GPUIPC_ERR_RELEASED,
                                           GPUIPC_ERR_PEER_CLOSED, GPUIPC_ERR_CONNECTION_BROKEN,
                                           GPUIPC_ERR_LOST,        GPUIPC_OK};

static gpuipc_status receive_message(side *self, uint64_t *random) {
    static uint8_t bytes[20000];
    gpuipc_buffer *buffers[BUFFERS];
    gpuipc_incoming room = {.struct_size = sizeof(room),
                            .bytes = bytes,
                            .bytes_capacity = sizeof(bytes),
                            .buffers = buffers,
                            .buffer_capacity = BUFFERS,
                            .flags = stress_random(random, 2) == 0 ? GPUIPC_RECEIVE_ASYNC : 0,
                            .stream = self->receives};
    stress_now(RECEIVER, "gpuipc_connection_receive");
    const gpuipc_status status =
        stress_allow(gpuipc_connection_receive(self->connection, &room, -1),
                     "gpuipc_connection_receive", other_kind);
    if (status == GPUIPC_OK) {
        give_back(self, buffers, room.buffer_count, random);
    }
    return status;
}

static gpuipc_status receive_contents(side *self) {
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = self->into,
                                      .bytes = BYTES,
                                      .stream = self->receives};
    stress_now(RECEIVER, "gpuipc_connection_receive_contents");
    return stress_allow(gpuipc_connection_receive_contents(self->connection, &contents, -1),
                        "gpuipc_connection_receive_contents", other_kind);
}

static bool may_go_on(gpuipc_status status) {
    return status == GPUIPC_OK || status == GPUIPC_ERR_OTHER_KIND || status == GPUIPC_ERR_LOST;
}

/* Less than comes, so that there are always some that nobody has read. */
static void receive_some(void *argument) {
    side *self = argument;
    uint64_t *random = &self->random[1];
    gpuipc_status status = GPUIPC_OK;
    for (uint32_t left = stress_random(random, 40); left > 0 && may_go_on(status); left--) {
        status = receive_message(self, random);
        if (status == GPUIPC_ERR_OTHER_KIND) {
            status = receive_contents(self);
        }
        atomic_fetch_add(&self->received, status == GPUIPC_OK);
    }
    stress_now(RECEIVER, NULL);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void expect_success(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        stress_fail("%s answered CUresult %d", what, (int)result);
    }
}

static void enter_device(void) {
    const char *choice = os_environment("GPUIPC_CUDA_DRIVER");
    CUcontext primary;
    STRESS_OK(driver_open(choice == NULL ? "auto" : choice, &drv));
    expect_success(drv.cuDevicePrimaryCtxRetain(&primary, 0), "cuDevicePrimaryCtxRetain");
    expect_success(drv.cuCtxSetCurrent(primary), "cuCtxSetCurrent");
}

static void leave_device(void) {
    expect_success(drv.cuCtxSetCurrent(NULL), "cuCtxSetCurrent");
    expect_success(drv.cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
}

static CUstream make_stream(void) {
    CUstream made = NULL;
    expect_success(drv.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return made;
}

static void end_stream(CUstream stream, const char *what) {
    stress_now(CLOSER, what);
    expect_success(drv.cuStreamSynchronize(stream), what);
    expect_success(drv.cuStreamDestroy(stream), "cuStreamDestroy");
}

/* ---- a side ---------------------------------------------------------------------------------- */

static gpuipc_buffer *make(gpuipc_context *within) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = BYTES};
    gpuipc_buffer *made = NULL;
    STRESS_OK(gpuipc_buffer_create(within, &config, &made));
    return made;
}

static void side_begin(side *self, gpuipc_context *context, uint64_t *random) {
    *self = (side){.context = context};
    for (size_t i = 0; i < BUFFERS; i++) {
        self->buffers[i] = make(context);
    }
    self->into = make(context);
    self->sends = make_stream();
    self->receives = make_stream();
    for (size_t i = 0; i < 3; i++) {
        self->random[i] = ((uint64_t)stress_random(random, UINT32_MAX) << 20) + i;
    }
}

static void side_start(side *self) {
    STRESS_OK(os_thread_start(send_until_closed, self, &self->threads[0]));
    STRESS_OK(os_thread_start(receive_some, self, &self->threads[1]));
}

/* The peer does the same at the same time, about. */
static void side_close(side *self) {
    os_sleep_ms(stress_random(&self->random[2], 6));
    stress_now(CLOSER, "gpuipc_connection_close");
    STRESS_OK(gpuipc_connection_close(self->connection));
    for (size_t i = 0; i < 2; i++) {
        stress_now(CLOSER, i == 0 ? "joining the sender" : "joining the receiver");
        os_thread_join(self->threads[i]);
    }
}

/* Every stream is through and everything comes back, although the other process lives. */
static void side_end(side *self) {
    end_stream(self->sends, "the stream that sends");
    end_stream(self->receives, "the stream that receives");
    for (size_t i = 0; i < BUFFERS; i++) {
        stress_now(CLOSER, "gpuipc_buffer_await_returns");
        STRESS_OK(gpuipc_buffer_await_returns(self->buffers[i], STRESS_SOON_MS));
        stress_now(CLOSER, "gpuipc_buffer_release");
        STRESS_OK(gpuipc_buffer_release(self->buffers[i]));
    }
    STRESS_OK(gpuipc_buffer_release(self->into));
    stress_now(CLOSER, NULL);
}

/* ---- the other process ----------------------------------------------------------------------- */

/* peer DIRECTORY NAME SEED SECONDS: a round for each line. */
static int run_peer(char **arguments) {
    char line[64];
    helper_begin();
    stress_begin_peer("close", strtoull(arguments[2], NULL, 10),
                      (unsigned)strtoul(arguments[3], NULL, 10));
    uint64_t random = stress_state(2000);
    gpuipc_context *context = stress_context(arguments[0]);
    enter_device();
    while (helper_hear(line, sizeof(line))) {
        side own;
        side_begin(&own, context, &random);
        STRESS_OK(
            gpuipc_connection_open(context, arguments[1], NULL, STRESS_SOON_MS, &own.connection));
        side_start(&own);
        side_close(&own);
        side_end(&own);
        helper_say("%u %u", atomic_load(&own.sent), atomic_load(&own.received));
    }
    leave_device();
    STRESS_OK(gpuipc_context_destroy(context));
    return stress_end("over");
}

static child_process *start_peer(const char *name) {
    char seed[32];
    char seconds[32];
    const char *const arguments[] = {"peer", directory, name, seed, seconds, NULL};
    child_process *peer = NULL;
    (void)snprintf(seed, sizeof(seed), "%" PRIu64, stress_seed());
    (void)snprintf(seconds, sizeof(seconds), "%u", stress_seconds());
    STRESS_OK(child_start("stress_close", arguments, NULL, &peer));
    return peer;
}

static void end_peer(child_process *peer) {
    child_end end = {.exited = false};
    child_close_input(peer);
    STRESS_OK(child_wait(peer, 3 * STRESS_SOON_MS, &end));
    child_destroy(peer);
    if (!end.exited || end.code != 0) {
        stress_fail("the other process ended with %d", end.code);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

int main(int argc, char **argv) {
    char name[UNIQUE_NAME_MAX];
    char answer[CHILD_LINE_MAX];
    unsigned rounds = 0;
    unsigned long long sent = 0;
    unsigned long long received = 0;
    gpuipc_listener *listener = NULL;
    if (argc == 6 && strcmp(argv[1], "peer") == 0) {
        return run_peer(argv + 2);
    }
    stress_begin("close", argc, argv);
    STRESS_EXPECT(runtime_directory_make(directory));
    unique_name(name);
    uint64_t random = stress_state(0);
    gpuipc_context *context = stress_context(directory);
    enter_device();
    STRESS_OK(gpuipc_listener_open(context, name, NULL, &listener));
    child_process *peer = start_peer(name);
    for (; stress_goes_on(); rounds++) {
        unsigned there[2] = {0, 0};
        side own;
        side_begin(&own, context, &random);
        STRESS_OK(child_write_line(peer, "round"));
        STRESS_OK(gpuipc_listener_accept(listener, STRESS_SOON_MS, &own.connection));
        side_start(&own);
        side_close(&own);
        side_end(&own);
        STRESS_OK(child_read_line(peer, answer, sizeof(answer), 3 * STRESS_SOON_MS));
        (void)sscanf(answer, "%u %u", &there[0], &there[1]);
        sent += there[0] + atomic_load(&own.sent);
        received += there[1] + atomic_load(&own.received);
    }
    end_peer(peer);
    STRESS_OK(gpuipc_listener_close(listener));
    leave_device();
    STRESS_OK(gpuipc_context_destroy(context));
    runtime_directory_remove(directory);
    return stress_end("%u rounds, %llu sent, %llu received", rounds, sent, received);
}
