/* SPDX-License-Identifier: MIT */
/** @file See partner.h. */
#include "partner.h"

#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "lane.h"
#include "packets.h"
#include "pair.h"
#include "rest.h"
#include "system.h"

#define LINE_MAX_BYTES 512
#define SAMPLES        16u

/* ---- what is common ------------------------------------------------------------------------ */

uint64_t partner_number(const partner_words *words, size_t index) {
    char *end = NULL;
    if (index >= words->count) {
        bench_fail("a line has too few words");
    }
    const uint64_t number = strtoull(words->word[index], &end, 10);
    if (*end != '\0') {
        bench_fail("\"%s\" is not a number", words->word[index]);
    }
    return number;
}

void partner_verify(CUdeviceptr address, uint64_t bytes, uint32_t value, uint32_t device) {
    bench_enter((int)device);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        const uint64_t at = (bytes - sizeof(value)) / (SAMPLES - 1) * i / sizeof(value);
        uint32_t found = ~value;
        bench_check_cuda(
            bench_driver.cuMemcpyDtoH(&found, address + at * sizeof(value), sizeof(found)),
            "reading what was opened");
        if (found != value) {
            bench_fail("word %llu is %u in place of %u", (unsigned long long)at, (unsigned)found,
                       (unsigned)value);
        }
    }
}

void partner_verify_buffer(gpuipc_buffer *buffer, uint32_t value, uint32_t device) {
    const gpuipc_buffer_info info = pair_info(buffer);
    partner_verify(info.address, info.bytes, value, device);
}

static void keep(partner *self, partner_kept kept) {
    if (self->kept_count == self->kept_capacity) {
        const size_t capacity = self->kept_capacity == 0 ? 64 : self->kept_capacity * 2;
        partner_kept *more = realloc(self->kept, capacity * sizeof(*more));
        if (more == NULL) {
            bench_fail("no memory to remember what is open");
        }
        self->kept = more;
        self->kept_capacity = capacity;
    }
    self->kept[self->kept_count++] = kept;
}

static void drop(const partner_kept *kept) {
    if (kept->memory != NULL) {
        floor_end(kept->memory, kept->memory_count);
    } else {
        bench_check(gpuipc_buffer_release(kept->buffer), "releasing");
    }
}

/* ---- verbs --------------------------------------------------------------------------------- */

/* receive COUNT DEVICE VALUE KEEP: answers when they were open, and when the message had come */
static void receive(partner *self, const partner_words *words) {
    const size_t count = (size_t)partner_number(words, 0);
    const uint32_t device = (uint32_t)partner_number(words, 1);
    gpuipc_buffer **buffers = calloc(count, sizeof(*buffers));
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = buffers,
                               .buffer_capacity = count,
                               .device = GPUIPC_DEVICE(device)};
    if (buffers == NULL) {
        bench_fail("no memory for %zu buffers", count);
    }
    helper_say("ready");
    bench_check(gpuipc_connection_receive(self->connection, &message, PATIENCE_MS), "receiving");
    const uint64_t end = os_clock_ns();
    const uint64_t came = packets_came_ns();
    for (size_t i = 0; i < message.buffer_count; i++) {
        partner_verify_buffer(buffers[i], (uint32_t)partner_number(words, 2), device);
        if (partner_number(words, 3) != 0) {
            keep(self, (partner_kept){buffers[i], NULL, 0});
        } else {
            bench_check(gpuipc_buffer_release(buffers[i]), "releasing");
        }
    }
    free(buffers);
    helper_say("%llu %llu", (unsigned long long)end, (unsigned long long)came);
}

/* open_by_hand COUNT BYTES SEGMENT_BYTES DEVICE VALUE KEEP: likewise, and the time in calls of the driver */
static void open_by_hand(partner *self, const partner_words *words) {
    const floor_plan plan = {(uint32_t)partner_number(words, 0), partner_number(words, 1),
                             partner_number(words, 2)};
    const uint32_t device = (uint32_t)partner_number(words, 3);
    floor_memory *memory;
    bench_enter((int)device);
    helper_say("ready");
    const floor_times times = floor_open(self->courier, &plan, (int)device, &memory);
    for (uint32_t i = 0; i < plan.count; i++) {
        partner_verify(memory[i].address, plan.bytes, (uint32_t)partner_number(words, 4), device);
    }
    if (partner_number(words, 5) != 0) {
        keep(self, (partner_kept){NULL, memory, plan.count});
    } else {
        floor_end(memory, plan.count);
    }
    helper_say("%llu %llu %llu", (unsigned long long)times.end_ns,
               (unsigned long long)times.begin_ns, (unsigned long long)times.calls_ns);
}

/* Releases what was kept after the first @p count. */
static void drop_to(partner *self, size_t count) {
    while (self->kept_count > count) {
        drop(&self->kept[--self->kept_count]);
    }
}

/* drop COUNT: answers how many there were */
static void drop_now(partner *self, const partner_words *words) {
    const size_t before = self->kept_count;
    drop_to(self, (size_t)partner_number(words, 0));
    helper_say("%zu", before);
}

static void begin_gpuipc(partner *self) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = self->options->directory};
    bench_check(gpuipc_context_create(&config, &self->context), "a context");
    bench_check(gpuipc_connection_open(self->context, self->options->name, NULL, PATIENCE_MS,
                                       &self->connection),
                "a connection");
}

static void end_gpuipc(partner *self) {
    if (self->context != NULL) {
        bench_check(gpuipc_connection_close(self->connection), "a connection");
        bench_check(gpuipc_context_destroy(self->context), "the context");
        self->context = NULL;
    }
}

/* quiet DEVICE DEVICE: keeps nothing of gpuipc alive, only the devices' primary contexts, which are slow to make */
static void quiet(partner *self, const partner_words *words) {
    bench_enter((int)partner_number(words, 0));
    bench_enter((int)partner_number(words, 1));
    end_gpuipc(self);
    bench_check_nothing_kept();
    helper_say("ready");
}

static void wake(partner *self, const partner_words *words) {
    (void)words;
    begin_gpuipc(self);
    helper_say("ready");
}

/* connect NAME COUNT */
static void connect_more(partner *self, const partner_words *words) {
    const size_t count = (size_t)partner_number(words, 1);
    for (size_t i = 0; i < count && self->more_count < PARTNER_CONNECTIONS_MAX; i++) {
        bench_check(gpuipc_connection_open(self->context, words->word[0], NULL, PATIENCE_MS,
                                           &self->more[self->more_count++]),
                    "another connection");
    }
    helper_say("%zu", self->more_count);
}

gpuipc_buffer *partner_receive_one(gpuipc_connection *connection, uint32_t device) {
    gpuipc_buffer *buffer = NULL;
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = &buffer,
                               .buffer_capacity = 1,
                               .device = GPUIPC_DEVICE(device)};
    bench_check(gpuipc_connection_receive(connection, &message, PATIENCE_MS), "receiving");
    return buffer;
}

/* collect DEVICE VALUE: one message from each of the further connections */
static void collect(partner *self, const partner_words *words) {
    const uint32_t device = (uint32_t)partner_number(words, 0);
    for (size_t i = 0; i < self->more_count; i++) {
        gpuipc_buffer *buffer = partner_receive_one(self->more[i], device);
        partner_verify_buffer(buffer, (uint32_t)partner_number(words, 1), device);
        keep(self, (partner_kept){buffer, NULL, 0});
    }
    helper_say("%zu", self->kept_count);
    drop_to(self, 0);
}

/* space: answers bytes of addresses reserved and mapped */
static void tell_space(partner *self, const partner_words *words) {
    uint64_t reserved = 0;
    uint64_t mapped = 0;
    (void)self;
    (void)words;
    (void)bench_address_space(&reserved, &mapped);
    helper_say("%llu %llu", (unsigned long long)reserved, (unsigned long long)mapped);
}

/* rest MILLISECONDS */
static void rest_now(partner *self, const partner_words *words) {
    (void)self;
    rest_say((uint32_t)partner_number(words, 0));
}

/* ---- the process ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(partner *self, const partner_words *words);
} verbs[] = {{"receive", receive},
             {"open_by_hand", open_by_hand},
             {"drop", drop_now},
             {"quiet", quiet},
             {"wake", wake},
             {"connect", connect_more},
             {"collect", collect},
             {"rest", rest_now},
             {"space", tell_space},
             {"copy", partner_copy},
             {"manifest", partner_manifest},
             {"ticket", partner_ticket},
             {"explicitly", partner_explicitly},
             {"again", partner_again},
             {"board", partner_board},
             {"board_end", partner_board_end},
             {"subscribe", partner_subscribe},
             {"unsubscribe", partner_unsubscribe},
             {"stamps", partner_stamps},
             {"take_all", partner_take_all},
             {"channel_back", partner_channel_back},
             {"hops", partner_hops},
             {"hops_by_hand", partner_hops_by_hand},
             {"calls_begin", partner_calls_begin},
             {"calls", partner_calls},
             {"calls_by_hand", partner_calls_by_hand},
             {"calls_end", partner_calls_end},
             {"frames", partner_frames},
             {"copies", partner_copies}};

static void obey(partner *self, char *line) {
    partner_words words = {.count = 0};
    const char *verb = strtok(line, " ");
    char *word = strtok(NULL, " ");
    while (word != NULL && words.count < PARTNER_WORDS_MAX) {
        words.word[words.count++] = word;
        word = strtok(NULL, " ");
    }
    for (size_t i = 0; verb != NULL && i < sizeof(verbs) / sizeof(*verbs); i++) {
        if (strcmp(verb, verbs[i].name) == 0) {
            verbs[i].run(self, &words);
            return;
        }
    }
    bench_fail("\"%s\" is no verb", verb == NULL ? "" : verb);
}

static void begin(partner *self) {
    system_raise_limits();
    bench_driver_open();
    if (self->options->role == ROLE_PARTNER) {
        begin_gpuipc(self);
    }
    if (courier_why_not() == NULL) {
        self->courier = courier_connect(self->options->directory, self->options->name);
    }
    helper_say("ready");
}

int partner_run(const options *given) {
    char line[LINE_MAX_BYTES];
    partner self = {.options = given};
    helper_begin();
    begin(&self);
    while (helper_hear(line, sizeof(line))) {
        obey(&self, line);
    }
    drop_to(&self, 0);
    free(self.kept);
    courier_end(self.courier);
    for (size_t i = 0; i < self.more_count; i++) {
        bench_check(gpuipc_connection_close(self.more[i]), "a connection");
    }
    end_gpuipc(&self);
    return 0;
}
