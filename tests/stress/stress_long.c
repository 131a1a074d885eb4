/* SPDX-License-Identifier: MIT */
/**
 * @file Two processes that share, open and close a new buffer again and again, and connect again and again. Nothing of
 * either grows: not what it has open and mapped, not the addresses that it takes, not what it holds of the driver, and not
 * its memory. Row 4 of docs/reliability.md.
 *
 *     stress_long [--frames CYCLES] [--plant WHAT]
 *
 * --plant leaves something behind in each cycle, which must be seen: "memory" or "handle".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "form.h"
#include "growth.h"
#include "helper.h"
#include "os.h"
#include "stress.h"
#include "unique.h"

#define NAME "long"
/* So many make what a process keeps: a server remembers the last 4,096 tickets that are over (share.c). */
#define WARM_CYCLES 5000u
/* One connection for so many cycles: 10^5 for 10^6. */
#define PER_CONNECTION 10u
/* What each cycle leaves behind that is planted. */
#define PLANTED_BYTES 512u
/* In how many cycles a handle is left behind: a process may have 1,024. */
#define PLANT_EVERY  16u
#define SHORT_CYCLES 7000u
#define FULL_CYCLES  1000000u
/* Much more than they take: after that, and a minute, the watch takes them for hung. */
#define SHORT_SECONDS 300u
#define FULL_SECONDS  7200u

/* ---- what is done ------------------------------------------------------------------------------------ */

static struct {
    uint64_t cycles; /* in all */
    uint64_t done;
    const char *plant;
} run;

static void leave_behind(void) {
    if (run.plant == NULL) {
        return;
    }
    if (strcmp(run.plant, "memory") == 0) {
        void *volatile lost = malloc(PLANTED_BYTES);
        STRESS_EXPECT(lost != NULL);
        memset(lost, 1, PLANTED_BYTES);
    } else if (strcmp(run.plant, "handle") == 0) {
        os_handle lost;
        if (run.done % PLANT_EVERY == 0) {
            STRESS_OK(os_memory_create("planted", 4096, &lost));
        }
    } else {
        stress_fail("nothing called \"%s\" can be planted", run.plant);
    }
}

static void end_cycle(void) {
    growth_look(++run.done);
}

/* ---- messages ------------------------------------------------------------------------------------- */

static void send(gpuipc_connection *to, const void *bytes, size_t size) {
    const gpuipc_outgoing message = {
        .struct_size = sizeof(message), .bytes = bytes, .bytes_size = size};
    STRESS_OK(gpuipc_connection_send(to, &message, STRESS_SOON_MS));
}

static void receive(gpuipc_connection *from, void *bytes, size_t size) {
    gpuipc_incoming message = {
        .struct_size = sizeof(message), .bytes = bytes, .bytes_capacity = size};
    STRESS_OK(gpuipc_connection_receive(from, &message, STRESS_SOON_MS));
    STRESS_EXPECT(message.bytes_size == size);
}

/* ---- who opens ------------------------------------------------------------------------------------ */

static void open_one(gpuipc_context *within, gpuipc_connection *with) {
    const gpuipc_open_config config = {.struct_size = sizeof(config), .timeout_ms = STRESS_SOON_MS};
    gpuipc_ticket ticket;
    gpuipc_buffer *opened = NULL;
    uint32_t word = 0;
    receive(with, &ticket, sizeof(ticket));
    STRESS_OK(gpuipc_buffer_open(within, &ticket, &config, &opened));
    STRESS_OK(gpuipc_buffer_read(opened, 0, &word, sizeof(word)));
    STRESS_OK(gpuipc_buffer_release(opened));
    send(with, &word, sizeof(word));
    end_cycle();
}

/* opener DIRECTORY CYCLES SEED SECONDS */
static int run_opener(char **arguments) {
    helper_begin();
    stress_begin_peer("long", strtoull(arguments[2], NULL, 10),
                      (unsigned)strtoul(arguments[3], NULL, 10));
    run.cycles = strtoull(arguments[1], NULL, 10);
    growth_begin(WARM_CYCLES, run.cycles);
    gpuipc_context *within = stress_context(arguments[0]);
    while (run.done < run.cycles) {
        gpuipc_connection *with = NULL;
        STRESS_OK(gpuipc_connection_open(within, NAME, NULL, STRESS_SOON_MS, &with));
        for (unsigned i = 0; i < PER_CONNECTION; i++) {
            open_one(within, with);
        }
        STRESS_OK(gpuipc_connection_close(with));
    }
    growth_judge("opener");
    STRESS_OK(gpuipc_context_destroy(within));
    return stress_end("over");
}

/* ---- who shares ------------------------------------------------------------------------------------ */

typedef struct sharer {
    gpuipc_context *within;
    gpuipc_server *server;
    gpuipc_listener *listener;
    child_process *opener;
} sharer;

static void share_one(const sharer *self, gpuipc_connection *with) {
    const uint32_t word = (uint32_t)run.done + 1;
    gpuipc_ticket ticket;
    uint32_t seen = 0;
    gpuipc_buffer *made = stress_buffer(self->within, GPUIPC_TRANSPORT_DEFAULT, word);
    STRESS_OK(gpuipc_buffer_share(self->server, made, NULL, &ticket));
    send(with, &ticket, sizeof(ticket));
    receive(with, &seen, sizeof(seen));
    STRESS_EXPECT(seen == word);
    STRESS_OK(gpuipc_server_revoke(self->server, &ticket));
    STRESS_OK(gpuipc_buffer_release(made));
    leave_behind();
    end_cycle();
}

static void start_opener(sharer *self, const char *directory) {
    char cycles[24];
    char seed[24];
    char seconds[24];
    const char *const arguments[] = {"opener", directory, cycles, seed, seconds, NULL};
    (void)snprintf(cycles, sizeof(cycles), "%" PRIu64, run.cycles);
    (void)snprintf(seed, sizeof(seed), "%" PRIu64, stress_seed());
    (void)snprintf(seconds, sizeof(seconds), "%u", stress_seconds());
    STRESS_OK(child_start("stress_long", arguments, NULL, &self->opener));
}

static void end_opener(const sharer *self) {
    child_end end = {.exited = false};
    STRESS_OK(child_wait(self->opener, STRESS_SOON_MS, &end));
    child_destroy(self->opener);
    if (!end.exited || end.code != 0) {
        stress_fail("the opener ended with %d", end.code);
    }
}

static void read_plant(int *argc, char **argv) {
    if (*argc >= 3 && strcmp(argv[*argc - 2], "--plant") == 0) {
        run.plant = argv[*argc - 1];
        *argc -= 2;
    }
}

int main(int argc, char **argv) {
    char directory[RUNTIME_DIRECTORY_MAX];
    sharer self;
    memset(&self, 0, sizeof(self));
    if (argc == 6 && strcmp(argv[1], "opener") == 0) {
        return run_opener(argv + 2);
    }
    read_plant(&argc, argv);
    stress_set_seconds((unsigned)form_choose(SHORT_SECONDS, FULL_SECONDS));
    stress_begin("long", argc, argv);
    run.cycles =
        stress_frames() == UINT64_MAX ? form_choose(SHORT_CYCLES, FULL_CYCLES) : stress_frames();
    run.cycles -= run.cycles % PER_CONNECTION;
    growth_begin(WARM_CYCLES, run.cycles);
    STRESS_EXPECT(runtime_directory_make(directory));
    self.within = stress_context(directory);
    STRESS_OK(gpuipc_server_create(self.within, NULL, &self.server));
    STRESS_OK(gpuipc_listener_open(self.within, NAME, NULL, &self.listener));
    start_opener(&self, directory);
    while (run.done < run.cycles) {
        gpuipc_connection *with = NULL;
        STRESS_OK(gpuipc_listener_accept(self.listener, STRESS_SOON_MS, &with));
        for (unsigned i = 0; i < PER_CONNECTION; i++) {
            share_one(&self, with);
        }
        STRESS_OK(gpuipc_connection_close(with));
    }
    growth_judge("sharer");
    end_opener(&self);
    STRESS_OK(gpuipc_listener_close(self.listener));
    STRESS_OK(gpuipc_server_destroy(self.server));
    STRESS_OK(gpuipc_context_destroy(self.within));
    runtime_directory_remove(directory);
    return stress_end("%" PRIu64 " buffers shared, opened and closed, %" PRIu64 " connections",
                      run.done, run.done / PER_CONNECTION);
}
