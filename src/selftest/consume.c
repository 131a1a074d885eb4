/* SPDX-License-Identifier: MIT */
/** @file See consume.h: each line of the producer's (produce.c) has a function here. */
#include "consume.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench_copy.h"
#include "copy_check.h"
#include "kernel.h"
#include "pattern.h"
#include "quantity.h"
#include "ticket.h"
#include "wrap.h"

/* Other programs allocate on the same device meanwhile: only what repeats is a failure. */
#define FREE_TRIES 3

typedef struct consumer {
    role role;
    gpuipc_buffer *buffer; /* the one of this case; NULL: none */
    gpuipc_buffer_info info;
    uint64_t bytes;
    uint64_t free_before;
    unsigned tries;
    pattern written; /* what is in the memory now */
    bool ended;
} consumer;

static bool drop_buffer(consumer *self) {
    gpuipc_buffer *buffer = self->buffer;
    self->buffer = NULL;
    return role_check(&self->role, gpuipc_buffer_release(buffer), "releasing the memory");
}

static bool describe_buffer(consumer *self) {
    self->info = (gpuipc_buffer_info){.struct_size = sizeof(self->info)};
    return role_check(&self->role, gpuipc_buffer_get_info(self->buffer, &self->info),
                      "describing the memory");
}

/* "The owner's free memory" means nothing to a program that does not see the owner. */
static bool sees_owner(const consumer *self) {
    return self->info.device != GPUIPC_DEVICE_NONE;
}

/* Of the owner and of the device that opens it, in sum: a copy would be on one of the two. */
static bool note_free_memory(consumer *self, uint64_t *out_bytes) {
    uint64_t owner_bytes = 0;
    uint64_t peer_bytes = 0;
    gpuipc_status status = GPUIPC_OK;
    if (sees_owner(self)) {
        status = session_free_memory(&self->role.session, self->info.device, &owner_bytes);
    }
    if (status == GPUIPC_OK && self->info.access_device != self->info.device) {
        status = session_free_memory(&self->role.session, self->info.access_device, &peer_bytes);
    }
    *out_bytes = owner_bytes + peer_bytes;
    return role_check(&self->role, status, "asking for free memory");
}

static bool verify(consumer *self, uint64_t bytes, pattern of, const char *what) {
    pattern_result result;
    role_step(&self->role, "reading %s", what);
    if (!role_check(&self->role, pattern_verify(self->buffer, bytes, of, &result),
                    "reading the memory")) {
        return false;
    }
    return result.wrong == 0 ||
           role_fail(&self->role,
                     "%s: %" PRIu64 " words are wrong; word %" PRIu64 " is 0x%08" PRIx32
                     ", not 0x%08" PRIx32,
                     what, result.wrong, result.first, result.found, result.expected);
}

/* The contexts of both devices are there after this, and memory has been opened once. */
static bool hear_warm_up(consumer *self, const char *arguments) {
    (void)arguments;
    uint64_t unused;
    if (!describe_buffer(self) ||
        !verify(self, self->info.bytes, pattern_producer, "what the producer wrote") ||
        !note_free_memory(self, &unused)) {
        return false;
    }
    return drop_buffer(self) &&
           role_say(&self->role, NULL, "warm %" PRIu32, self->info.access_device);
}

/* The producer has several pairs of devices, and says on which one this end opens what comes. */
static bool hear_on(consumer *self, const char *arguments) {
    uint64_t device;
    if (!quantity_take_number(&arguments, &device) ||
        device >= self->role.session.info.device_count) {
        return role_fail(&self->role, "the producer said device \"%.60s\"", arguments);
    }
    self->role.receive_device = GPUIPC_DEVICE((uint32_t)device);
    return role_say(&self->role, NULL, "on");
}

static bool hear_case(consumer *self, const char *arguments) {
    if (!quantity_take_number(&arguments, &self->bytes)) {
        return role_fail(&self->role, "the producer said a case of \"%.60s\" bytes", arguments);
    }
    self->tries = 0;
    return note_free_memory(self, &self->free_before) && role_say(&self->role, NULL, "ready");
}

static bool ask_again(consumer *self, int64_t change) {
    char text[QUANTITY_MAX];
    quantity_change(change, text);
    if (!drop_buffer(self)) {
        return false;
    }
    if (self->tries == FREE_TRIES) {
        return role_fail(&self->role,
                         "opening the memory changed the free memory of the devices by %s, %d "
                         "times in a row: that is a copy",
                         text, FREE_TRIES);
    }
    role_step(&self->role, "free memory changed by %s; once more", text);
    return note_free_memory(self, &self->free_before) &&
           role_say(&self->role, NULL, "again %s", text);
}

static bool say_opened(consumer *self, uint64_t handover_ns, int64_t change) {
    char text[QUANTITY_MAX];
    if (!sees_owner(self)) {
        return role_say(&self->role, NULL,
                        "opened %" PRIu64 " free memory not checked (the consumer does not see "
                        "the owner)",
                        handover_ns);
    }
    return role_say(
        &self->role, NULL, "opened %" PRIu64 " opening changed free memory by %s%s", handover_ns,
        quantity_change(change, text),
        self->role.session.info.is_emulated ? " (emulated: of the consumer's process alone)" : "");
}

static bool hear_memory(consumer *self, const char *arguments) {
    uint64_t sent_at_ns;
    uint64_t free_after;
    if (!quantity_take_number(&arguments, &sent_at_ns)) {
        return role_fail(&self->role, "the producer said \"%.60s\" with the memory", arguments);
    }
    uint64_t handover_ns = self->role.heard_at_ns - sent_at_ns;
    if (!describe_buffer(self) || !note_free_memory(self, &free_after)) {
        return false;
    }
    if (self->info.bytes != self->bytes) {
        return role_fail(&self->role, "the buffer has %" PRIu64 " bytes, not %" PRIu64,
                         self->info.bytes, self->bytes);
    }
    int64_t change = (int64_t)free_after - (int64_t)self->free_before;
    if (copy_check_is_copy(change)) {
        self->tries++;
        return ask_again(self, change);
    }
    return say_opened(self, handover_ns, change);
}

static bool hear_check(consumer *self, const char *arguments) {
    (void)arguments;
    if (!verify(self, self->bytes, pattern_producer, "what the producer wrote")) {
        return false;
    }
    role_step(&self->role, "writing another pattern");
    self->written = pattern_consumer;
    return role_check(&self->role, pattern_fill(self->buffer, self->bytes, pattern_consumer),
                      "writing into the memory") &&
           role_say(&self->role, NULL, "written");
}

static bool hear_kernel(consumer *self, const char *arguments) {
    (void)arguments;
    if (self->role.session.info.is_emulated) {
        return role_say(&self->role, NULL, "kernel not run (emulated driver)");
    }
    if (!self->role.session.driver.has_kernel) {
        return role_fail(&self->role, "the driver has no calls to run a kernel");
    }
    role_step(&self->role, "running a kernel on the memory");
    self->written = pattern_transformed;
    return role_check(&self->role,
                      kernel_transform(&self->role.session, self->info.access_device,
                                       self->info.address, self->bytes / sizeof(uint32_t)),
                      "running a kernel") &&
           role_say(&self->role, NULL,
                    "kernel ran on device %" PRIu32 ", read and wrote every word in place",
                    self->info.access_device);
}

static bool hear_release(consumer *self, const char *arguments) {
    (void)arguments;
    return drop_buffer(self) && role_say(&self->role, NULL, "released");
}

/* Once more the same memory, or the beginning of it: what was written there last is there. */
static bool hear_ticket(consumer *self, const char *arguments) {
    uint64_t bytes;
    uint64_t opened_ns;
    if (self->written == NULL || arguments[0] != ' ') {
        return role_fail(&self->role, "the producer said a ticket where none was expected");
    }
    return ticket_open(&self->role, arguments + 1, &self->buffer, &bytes, &opened_ns) &&
           verify(self, bytes, self->written, "what a ticket stands for") && drop_buffer(self) &&
           role_say(&self->role, NULL, "ticket %" PRIu64, opened_ns);
}

static bool hear_room(consumer *self, const char *arguments) {
    (void)arguments;
    uint64_t free_bytes;
    return role_check(
               &self->role,
               session_free_memory(&self->role.session, self->info.access_device, &free_bytes),
               "asking for free memory") &&
           role_say(&self->role, NULL, "room %" PRIu64, free_bytes);
}

static bool hear_bench(consumer *self, const char *arguments) {
    (void)arguments;
    bench_copy_result result;
    if (!describe_buffer(self)) {
        return false;
    }
    if (!sees_owner(self)) {
        return role_fail(&self->role, "the consumer must see the owner to compare copies");
    }
    role_step(&self->role, "measuring copies");
    return role_check(&self->role,
                      bench_copy_measure(&self->role.session, self->buffer, self->info.bytes,
                                         self->info.device, self->info.access_device, &result),
                      "measuring copies") &&
           drop_buffer(self) &&
           role_say(&self->role, NULL, "bench %" PRIu64 " %" PRIu64, result.shared_ns,
                    result.own_ns);
}

static bool hear_end(consumer *self, const char *arguments) {
    (void)arguments;
    self->ended = true;
    return role_say(&self->role, NULL, "ended");
}

typedef struct reaction {
    const char *word;
    bool brings_buffer;
    bool (*hear)(consumer *self, const char *arguments);
} reaction;

static const reaction reactions[] = {
    {"on", false, hear_on},           {"warm-up", true, hear_warm_up},
    {"case", false, hear_case},       {"memory", true, hear_memory},
    {"check", false, hear_check},     {"kernel", false, hear_kernel},
    {"release", false, hear_release}, {"ticket", false, hear_ticket},
    {"room", false, hear_room},       {"bench", true, hear_bench},
    {"end", false, hear_end}};

static bool react(consumer *self, const char *line, gpuipc_buffer *buffer) {
    for (size_t i = 0; i < sizeof(reactions) / sizeof(*reactions); i++) {
        const reaction *by = &reactions[i];
        if (role_begins_with(line, by->word) && by->brings_buffer == (buffer != NULL)) {
            if (buffer != NULL) {
                (void)gpuipc_buffer_release(self->buffer);
                self->buffer = buffer;
            }
            return by->hear(self, line + strlen(by->word));
        }
    }
    (void)gpuipc_buffer_release(buffer);
    return role_fail(&self->role, "the producer said \"%.60s\", which is nothing known", line);
}

static bool converse(consumer *self) {
    char line[ROLE_LINE_MAX];
    const options *wanted = self->role.options;
    role_step(&self->role, "looking for a producer at \"%s\"", wanted->name);
    if (!role_check(&self->role,
                    gpuipc_connection_open(self->role.session.context, wanted->name, NULL,
                                           wanted->timeout_ms, &self->role.connection),
                    "connecting to the producer")) {
        return false;
    }
    while (!self->ended) {
        gpuipc_buffer *buffer = NULL;
        if (wanted->parent != 0) {
            /* what a hang is blamed on; a person would see it between any two lines */
            role_step(&self->role, "waiting for the producer, and opening what it sends");
        }
        if (role_hear(&self->role, NULL, line, &buffer) == NULL || !react(self, line, buffer)) {
            return false;
        }
    }
    return true;
}

int consume_choose_device(role *self) {
    const options *wanted = self->options;
    const uint32_t count = self->session.info.device_count;
    uint32_t device = wanted->peer != DEVICE_ANY ? wanted->peer : wanted->device;
    if (device != DEVICE_ANY && device >= count) {
        wrap_complain("there is no device %" PRIu32 ", only %" PRIu32 " of them", device, count);
        return EXIT_USAGE;
    }
    self->receive_device = device == DEVICE_ANY ? GPUIPC_DEVICE_OWNER : GPUIPC_DEVICE(device);
    return EXIT_PASS;
}

int consume(const options *wanted) {
    consumer self = {0};
    int code = role_begin(&self.role, wanted, "producer");
    if (code != EXIT_PASS) {
        return code;
    }
    code = consume_choose_device(&self.role);
    if (code == EXIT_PASS && !converse(&self)) {
        wrap_complain("consumer: %s", self.role.failure);
        role_say_failed(&self.role);
        code = EXIT_FAIL;
    }
    (void)gpuipc_buffer_release(self.buffer);
    role_end(&self.role);
    if (code == EXIT_PASS) {
        role_step(&self.role, "done: everything that the producer asked for was right");
    }
    return code;
}
