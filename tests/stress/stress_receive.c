/* SPDX-License-Identifier: MIT */
/**
 * @file A process that only receives: it opens new buffers again and again, by message and by ticket, of every transport, and
 * gives each up in one of the ways that there are. It calls nothing else. Its handles, mappings and driver objects stay below
 * a limit while it does so, and come back to where they were when it is idle. Row 15 of docs/reliability.md.
 *
 *     stress_receive [--frames OPENINGS]    (of each transport)
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "form.h"
#include "helper.h"
#include "os.h"
#include "process_size.h"
#include "stress.h"
#include "unique.h"

#define NAME           "receive"
#define OPENINGS_SHORT 600u
#define OPENINGS_FULL  50000u
/* The process is idle so often. What the first time finds is what the others must find. */
#define RESTS 3u
/* So much more than at rest a process that is at work may have: what is dropped, and not freed yet. */
#define MOST_MAPPINGS 4096u
/* The C library's own memory may take some. That of a sanitizer takes any number. */
#define SPARE_MAPPINGS (IS_SANITIZED ? MOST_MAPPINGS : 8u)
#define SHORT_SECONDS  300u
#define FULL_SECONDS   7200u

static const gpuipc_transport transports[] = {GPUIPC_TRANSPORT_VMM, GPUIPC_TRANSPORT_POOL,
                                              GPUIPC_TRANSPORT_LEGACY, GPUIPC_TRANSPORT_HOST};
#define TRANSPORTS (sizeof(transports) / sizeof(transports[0]))

/* ---- messages -------------------------------------------------------------------------------------- */

/* Each names a buffer by its ticket, or brings it; or says that there is no such memory here. */
typedef struct news {
    uint32_t word; /* that the buffer begins with; 0: none */
    uint32_t has_ticket;
    gpuipc_ticket ticket;
} news;

static void send(gpuipc_connection *to, const void *bytes, size_t size, gpuipc_buffer *buffer) {
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .bytes = bytes,
                                     .bytes_size = size,
                                     .buffers = &buffer,
                                     .buffer_count = buffer != NULL};
    STRESS_OK(gpuipc_connection_send(to, &message, STRESS_SOON_MS));
}

static gpuipc_buffer *receive(gpuipc_connection *from, void *bytes, size_t size) {
    gpuipc_buffer *buffer = NULL;
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .bytes = bytes,
                               .bytes_capacity = size,
                               .buffers = &buffer,
                               .buffer_capacity = 1};
    STRESS_OK(gpuipc_connection_receive(from, &message, STRESS_SOON_MS));
    STRESS_EXPECT(message.bytes_size == size);
    return buffer;
}

/* ---- the process that sends ------------------------------------------------------------------------- */

static gpuipc_buffer *make(gpuipc_context *within, gpuipc_transport transport, uint32_t word) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = transport, .bytes = 4096};
    const gpuipc_status may_be[] = {GPUIPC_ERR_NOT_SUPPORTED, GPUIPC_ERR_HANDLE_TYPE_UNSUPPORTED,
                                    GPUIPC_OK};
    gpuipc_buffer *made = NULL;
    if (stress_allow(gpuipc_buffer_create(within, &config, &made), "making a buffer", may_be) ==
        GPUIPC_OK) {
        STRESS_OK(gpuipc_buffer_write(made, 0, &word, sizeof(word)));
    }
    return made;
}

static void send_one(gpuipc_connection *to, gpuipc_server *server, gpuipc_buffer *made,
                     uint32_t word) {
    news what;
    uint32_t seen = 0;
    memset(&what, 0, sizeof(what));
    what.word = word;
    what.has_ticket = word % 2;
    if (what.has_ticket) {
        STRESS_OK(gpuipc_buffer_share(server, made, NULL, &what.ticket));
    }
    send(to, &what, sizeof(what), what.has_ticket ? NULL : made);
    STRESS_EXPECT(receive(to, &seen, sizeof(seen)) == NULL && seen == word);
    if (what.has_ticket) {
        STRESS_OK(gpuipc_server_revoke(server, &what.ticket));
    }
    STRESS_OK(gpuipc_buffer_release(made));
}

/* sender DIRECTORY OPENINGS SEED SECONDS */
static int run_sender(char **arguments) {
    const uint32_t openings = (uint32_t)strtoul(arguments[1], NULL, 10);
    const news none = {.word = 0};
    gpuipc_connection *to = NULL;
    gpuipc_server *server = NULL;
    helper_begin();
    stress_begin_peer(NAME, strtoull(arguments[2], NULL, 10),
                      (unsigned)strtoul(arguments[3], NULL, 10));
    gpuipc_context *within = stress_context(arguments[0]);
    STRESS_OK(gpuipc_server_create(within, NULL, &server));
    STRESS_OK(gpuipc_connection_open(within, NAME, NULL, STRESS_SOON_MS, &to));
    for (size_t t = 0; t < TRANSPORTS; t++) {
        gpuipc_buffer *made = NULL;
        for (uint32_t i = 1; i <= openings && (made = make(within, transports[t], i)) != NULL;
             i++) {
            send_one(to, server, made, i);
        }
        if (made == NULL) {
            send(to, &none, sizeof(none), NULL);
        }
    }
    STRESS_OK(gpuipc_connection_close(to));
    STRESS_OK(gpuipc_server_destroy(server));
    STRESS_OK(gpuipc_context_destroy(within));
    return stress_end("over");
}

/* ---- the process that receives ---------------------------------------------------------------------- */

typedef struct amounts {
    process_size size;
    uint64_t objects; /* of the driver */
} amounts;

static amounts look(void) {
    amounts now;
    STRESS_EXPECT(process_size_get(&now.size));
    now.objects = stress_driver_objects();
    return now;
}

/* By each way in turn. Not by one alone, which frees at once what the others leave. */
static void give_up(gpuipc_buffer *opened, uint32_t word) {
    switch (word / 2 % 4) {
    case 0:
        STRESS_OK(gpuipc_buffer_release_async(opened, NULL));
        break;
    default:
        STRESS_OK(gpuipc_buffer_drop(opened));
        break;
    }
}

/* False: the sender cannot make such memory. */
static bool open_one(gpuipc_context *within, gpuipc_connection *from) {
    const gpuipc_open_config config = {.struct_size = sizeof(config), .timeout_ms = STRESS_SOON_MS};
    news what;
    uint32_t seen = 0;
    gpuipc_buffer *opened = receive(from, &what, sizeof(what));
    if (what.word == 0) {
        return false;
    }
    if (what.has_ticket) {
        STRESS_OK(gpuipc_buffer_open(within, &what.ticket, &config, &opened));
    }
    STRESS_OK(gpuipc_buffer_read(opened, 0, &seen, sizeof(seen)));
    STRESS_EXPECT(seen == what.word);
    give_up(opened, what.word);
    send(from, &seen, sizeof(seen), NULL);
    return true;
}

static bool is_at_rest(const amounts *now, const amounts *rest) {
    return now->objects <= rest->objects && now->size.handles <= rest->size.handles &&
           now->size.mappings <= rest->size.mappings + SPARE_MAPPINGS;
}

/* The process makes no call. */
static void rest(gpuipc_transport transport, const amounts *before) {
    const os_deadline deadline = os_deadline_after(STRESS_SOON_MS);
    const uint64_t begun_ns = os_clock_ns();
    amounts now = look();
    const amounts first = now;
    while (!is_at_rest(&now, before) && !os_deadline_passed(deadline)) {
        os_sleep_ms(10);
        now = look();
    }
    (void)fprintf(
        stderr,
        "%s: handles %" PRIu64 ", %" PRIu64 " (at rest %" PRIu64 "); mappings %" PRIu64 ", %" PRIu64
        " (%" PRIu64 "); objects %" PRIu64 ", %" PRIu64 " (%" PRIu64 "); after %" PRIu64 " ms\n",
        gpuipc_transport_name(transport), first.size.handles, now.size.handles,
        before->size.handles, first.size.mappings, now.size.mappings, before->size.mappings,
        first.objects, now.objects, before->objects, (os_clock_ns() - begun_ns) / 1000000u);
    STRESS_EXPECT(is_at_rest(&now, before));
    STRESS_EXPECT(first.size.mappings < before->size.mappings + MOST_MAPPINGS);
    STRESS_EXPECT(first.size.handles < before->size.handles + MOST_MAPPINGS);
}

/* Nothing is dropped, and the thread that looks after that has ended: as long as nothing has changed. */
static amounts settle(void) {
    amounts now = look();
    for (unsigned same = 0; same < 12;) {
        os_sleep_ms(10);
        const amounts next = look();
        same = next.objects == now.objects && next.size.mappings == now.size.mappings &&
                       next.size.handles == now.size.handles
                   ? same + 1
                   : 0;
        now = next;
    }
    return now;
}

/* @return how many were opened */
static uint64_t receive_all(gpuipc_context *within, gpuipc_connection *from, uint32_t openings,
                            gpuipc_transport transport) {
    const uint32_t between = openings / RESTS;
    amounts before = {.objects = 0};
    for (uint32_t i = 1; i <= openings; i++) {
        if (!open_one(within, from)) {
            return 0;
        }
        if (i == between) {
            before = settle();
        } else if (i % between == 0) {
            rest(transport, &before);
        }
    }
    return openings;
}

int main(int argc, char **argv) {
    char directory[RUNTIME_DIRECTORY_MAX];
    char count[24];
    char seed[24];
    char seconds[24];
    const char *const arguments[] = {"sender", directory, count, seed, seconds, NULL};
    gpuipc_listener *listener = NULL;
    gpuipc_connection *from = NULL;
    child_process *sender;
    child_end end = {.exited = false};
    uint64_t opened = 0;
    if (argc == 6 && strcmp(argv[1], "sender") == 0) {
        return run_sender(argv + 2);
    }
    stress_set_seconds((unsigned)form_choose(SHORT_SECONDS, FULL_SECONDS));
    stress_begin(NAME, argc, argv);
    uint64_t openings = stress_frames() == UINT64_MAX ? form_choose(OPENINGS_SHORT, OPENINGS_FULL)
                                                      : stress_frames();
    openings -= openings % RESTS;
    STRESS_EXPECT(runtime_directory_make(directory));
    gpuipc_context *within = stress_context(directory);
    STRESS_OK(gpuipc_listener_open(within, NAME, NULL, &listener));
    (void)snprintf(count, sizeof(count), "%" PRIu64, openings);
    (void)snprintf(seed, sizeof(seed), "%" PRIu64, stress_seed());
    (void)snprintf(seconds, sizeof(seconds), "%u", stress_seconds());
    STRESS_OK(child_start("stress_receive", arguments, NULL, &sender));
    STRESS_OK(gpuipc_listener_accept(listener, STRESS_SOON_MS, &from));
    for (size_t t = 0; t < TRANSPORTS; t++) {
        opened += receive_all(within, from, (uint32_t)openings, transports[t]);
    }
    STRESS_OK(child_wait(sender, STRESS_SOON_MS, &end));
    child_destroy(sender);
    STRESS_EXPECT(end.exited && end.code == 0);
    STRESS_OK(gpuipc_connection_close(from));
    STRESS_OK(gpuipc_listener_close(listener));
    STRESS_OK(gpuipc_context_destroy(within));
    runtime_directory_remove(directory);
    return stress_end("%" PRIu64 " buffers opened and given up", opened);
}
