/* SPDX-License-Identifier: MIT */
/**
 * @file See produce.h. The producer leads the conversation: it says what comes next, and the
 * consumer (consume.c) answers each line with one line.
 */
#include "produce.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench_copy.h"
#include "pair.h"
#include "pattern.h"
#include "quantity.h"
#include "ticket.h"
#include "wrap.h"

#define MIB (UINT64_C(1) << 20)
/* How large the copies of --bench-copy are at most. */
#define BENCH_BYTES_MAX          (1024 * MIB)
#define BENCH_BYTES_MAX_EMULATED (8 * MIB)
/* Shared, own and local buffer may be on one device; a fourth part stays free. */
#define BENCH_PARTS 4
/* A ratio below what is wanted counts only when it repeats: others use the machine meanwhile. */
#define BENCH_TRIES 3

typedef struct producer {
    role role;
    uint32_t device;      /* owner of the memory */
    uint32_t peer_device; /* the consumer's, as the consumer numbers it */
    uint64_t granularity;
    pair pairs[PAIRS_MAX];
    size_t pair_count;
    const char *label; /* of every figure: " (emulated)" or nothing */
    unsigned passed;
    unsigned failed;
    unsigned skipped;
} producer;

/* What one case found, for its line. */
typedef struct findings {
    uint64_t bytes;
    uint64_t allocated;
    uint64_t handover_ns;
    uint64_t ticket_ns;
    char memory[160];
    char kernel[160];
} findings;

size_t produce_sizes(const options *wanted, bool is_emulated, uint64_t *sizes) {
    /* The last one of a GPU takes seconds. */
    static const uint64_t gpu[] = {MIB, 64 * MIB, 1024 * MIB};
    static const uint64_t emulated[] = {MIB, 8 * MIB};
    const uint64_t *from = is_emulated ? emulated : gpu;
    size_t count = is_emulated || !wanted->is_full ? 2 : 3;
    if (wanted->size_count > 0) {
        from = wanted->sizes;
        count = wanted->size_count;
    }
    memcpy(sizes, from, count * sizeof(*sizes));
    return count;
}

/* "device 0 -> device 1, 64 MiB"
 * @param kind of the case's id: "share", "copy" */
static void print_case(const producer *self, const char *kind, const char *verdict,
                       uint64_t bytes) {
    char size[QUANTITY_MAX];
    role_note(&self->role, "id %s/%" PRIu32 "-%" PRIu32 "/%" PRIu64, kind, self->device,
              self->peer_device, bytes);
    wrap_say("%sdevice %u -> device %u, %s", verdict, self->device, self->peer_device,
             quantity_bytes(bytes, size));
}

static void print_pass(producer *self, const findings *found) {
    char size[QUANTITY_MAX];
    char unit[QUANTITY_MAX];
    role_note(&self->role, "value hand_over_us %.3f", (double)found->handover_ns / 1000.0);
    role_note(&self->role, "value ticket_us %.3f", (double)found->ticket_ns / 1000.0);
    print_case(self, "share", ROLE_PASS, found->bytes);
    if (found->allocated != found->bytes) {
        wrap_say(" (rounded up to %s: the granularity is %s)",
                 quantity_bytes(found->allocated, size), quantity_bytes(self->granularity, unit));
    }
    wrap_say(": all %" PRIu64
             " words right both ways; %s; %s; hand-over %.1f us%s; opened by ticket in "
             "%.1f us%s\n",
             found->bytes / sizeof(uint32_t), found->memory, found->kernel,
             (double)found->handover_ns / 1000.0, self->label, (double)found->ticket_ns / 1000.0,
             self->label);
    self->passed++;
}

static void print_fail(producer *self, uint64_t bytes) {
    print_case(self, "share", ROLE_FAIL, bytes);
    wrap_say(": %s\n", self->role.failure);
    self->failed++;
}

static bool make_buffer(producer *self, uint64_t bytes, gpuipc_buffer **out_buffer,
                        uint64_t *out_allocated) {
    gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(self->device), .bytes = bytes};
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    gpuipc_buffer *buffer;
    if (!role_check(&self->role, gpuipc_buffer_create(self->role.session.context, &config, &buffer),
                    "making the memory")) {
        return false;
    }
    if (!role_check(&self->role, gpuipc_buffer_get_info(buffer, &info), "describing the memory")) {
        (void)gpuipc_buffer_release(buffer);
        return false;
    }
    *out_buffer = buffer;
    *out_allocated = info.allocated_bytes;
    return true;
}

static bool verify(producer *self, gpuipc_buffer *buffer, uint64_t bytes, pattern of,
                   const char *what) {
    pattern_result result;
    role_step(&self->role, "reading %s", what);
    if (!role_check(&self->role, pattern_verify(buffer, bytes, of, &result), "reading back")) {
        return false;
    }
    return result.wrong == 0 ||
           role_fail(&self->role,
                     "%s: %" PRIu64 " words are wrong; word %" PRIu64 " is 0x%08" PRIx32
                     ", not 0x%08" PRIx32,
                     what, result.wrong, result.first, result.found, result.expected);
}

/* Sends the memory until the consumer is content: it asks again when the device's free memory
 * changed more by opening than it may, which another program can have done. */
static bool hand_over(producer *self, gpuipc_buffer *buffer, findings *found) {
    char line[ROLE_LINE_MAX];
    const char *answer;
    role_step(&self->role, "handing the memory over");
    do {
        if (!role_say(&self->role, buffer, "memory %" PRIu64, os_clock_ns()) ||
            (answer = role_hear(&self->role, NULL, line, NULL)) == NULL) {
            return false;
        }
    } while (role_begins_with(answer, "again"));
    const char *rest = answer + strlen("opened");
    if (!role_begins_with(answer, "opened") || !quantity_take_number(&rest, &found->handover_ns) ||
        rest[0] != ' ') {
        return role_fail(&self->role, "the consumer said \"%.60s\" to the memory", answer);
    }
    (void)snprintf(found->memory, sizeof(found->memory), "%s", rest + 1);
    return true;
}

/* A kernel of the consumer's device changes every word in place. */
static bool run_kernel(producer *self, gpuipc_buffer *buffer, findings *found) {
    char line[ROLE_LINE_MAX];
    const char *answer;
    role_step(&self->role, "waiting for the consumer's kernel");
    if (!role_say(&self->role, NULL, "kernel") ||
        (answer = role_hear(&self->role, "kernel", line, NULL)) == NULL) {
        return false;
    }
    bool did_run = role_begins_with(answer, " ran");
    (void)snprintf(found->kernel, sizeof(found->kernel), "kernel:%s", answer);
    return did_run ? verify(self, buffer, found->bytes, pattern_transformed,
                            "what the consumer's kernel wrote")
                   : true;
}

static bool check_buffer(producer *self, gpuipc_buffer *buffer, findings *found) {
    char line[ROLE_LINE_MAX];
    role_step(&self->role, "filling the memory");
    if (!role_check(&self->role, pattern_fill(buffer, found->bytes, pattern_producer),
                    "filling the memory") ||
        !role_say(&self->role, NULL, "case %" PRIu64, found->bytes) ||
        role_hear(&self->role, "ready", line, NULL) == NULL || !hand_over(self, buffer, found)) {
        return false;
    }
    role_step(&self->role, "waiting for the consumer to read and write every word");
    return role_say(&self->role, NULL, "check") &&
           role_hear(&self->role, "written", line, NULL) != NULL &&
           verify(self, buffer, found->bytes, pattern_consumer, "what the consumer wrote") &&
           run_kernel(self, buffer, found) && role_say(&self->role, NULL, "release") &&
           role_hear(&self->role, "released", line, NULL) != NULL &&
           ticket_offer(&self->role, buffer, found->bytes, &found->ticket_ns);
}

/* True when the case is too large for what the device has free, with a line that says so. */
static bool skip_if_too_large(producer *self, uint64_t bytes) {
    char size[QUANTITY_MAX];
    uint64_t free_bytes;
    uint64_t units = bytes / self->granularity + (bytes % self->granularity != 0);
    if (session_free_memory(&self->role.session, self->device, &free_bytes) != GPUIPC_OK ||
        units <= free_bytes / self->granularity) {
        return false; /* if it cannot be asked, the case itself will fail */
    }
    print_case(self, "share", ROLE_SKIP, bytes);
    wrap_say(": device %u has %s of memory free\n", self->device, quantity_bytes(free_bytes, size));
    self->skipped++;
    return true;
}

/* @return whether the conversation can go on */
static bool run_case(producer *self, uint64_t bytes) {
    findings found = {.bytes = bytes};
    gpuipc_buffer *buffer;
    bool passed = false;
    if (skip_if_too_large(self, bytes)) {
        return true;
    }
    role_step(&self->role, "making %" PRIu64 " bytes of memory", bytes);
    if (make_buffer(self, bytes, &buffer, &found.allocated)) {
        passed = check_buffer(self, buffer, &found);
        passed = role_check(&self->role, gpuipc_buffer_release(buffer), "releasing the memory") &&
                 passed;
    }
    if (passed) {
        print_pass(self, &found);
    } else {
        print_fail(self, bytes);
    }
    return passed;
}

/* As large as there is room for on both devices; 0: there is none. */
static bool choose_bench_bytes(producer *self, uint64_t *out_bytes) {
    char line[ROLE_LINE_MAX];
    uint64_t here = 0;
    uint64_t there = 0;
    uint64_t bytes =
        self->role.session.info.is_emulated ? BENCH_BYTES_MAX_EMULATED : BENCH_BYTES_MAX;
    if (!role_check(&self->role, session_free_memory(&self->role.session, self->device, &here),
                    "asking for free memory") ||
        !role_say(&self->role, NULL, "room")) {
        return false;
    }
    const char *answer = role_hear(&self->role, "room", line, NULL);
    if (answer == NULL) {
        return false;
    }
    if (!quantity_take_number(&answer, &there)) {
        return role_fail(&self->role, "the consumer said \"%.60s\" about its memory", answer);
    }
    uint64_t room = (here < there ? here : there) / BENCH_PARTS;
    bytes = bytes < room ? bytes : room;
    bytes -= bytes % self->granularity;
    *out_bytes = bytes;
    return true;
}

static bool measure_copies(producer *self, gpuipc_buffer *buffer, uint64_t *shared_ns,
                           uint64_t *own_ns) {
    char line[ROLE_LINE_MAX];
    if (!role_say(&self->role, buffer, "bench")) {
        return false;
    }
    const char *answer = role_hear(&self->role, "bench", line, NULL);
    if (answer == NULL) {
        return false;
    }
    return (quantity_take_number(&answer, shared_ns) && quantity_take_number(&answer, own_ns) &&
            *shared_ns > 0) ||
           role_fail(&self->role, "the consumer said \"%.60s\" of its copies", answer);
}

static bool bench(producer *self, uint64_t bytes, uint64_t *shared_ns, uint64_t *own_ns) {
    gpuipc_buffer *buffer;
    uint64_t allocated;
    if (!make_buffer(self, bytes, &buffer, &allocated)) {
        return false;
    }
    bool done = role_check(&self->role, pattern_fill(buffer, bytes, pattern_producer),
                           "filling the memory");
    for (int i = 0; done && i < BENCH_TRIES; i++) {
        done = measure_copies(self, buffer, shared_ns, own_ns);
        if (done && bench_copy_ratio(*shared_ns, *own_ns) >= BENCH_COPY_RATIO_MIN) {
            break;
        }
    }
    return role_check(&self->role, gpuipc_buffer_release(buffer), "releasing the memory") && done;
}

/* A byte a nanosecond is a gigabyte a second. */
static double gigabytes_per_second(uint64_t bytes, uint64_t ns) {
    return (double)bytes / (double)ns;
}

/* @return whether the conversation can go on */
static bool run_bench(producer *self) {
    uint64_t bytes = 0;
    uint64_t shared_ns = 0;
    uint64_t own_ns = 0;
    role_step(&self->role, "measuring copies");
    bool known = choose_bench_bytes(self, &bytes);
    if (known && bytes == 0) {
        print_case(self, "copy", ROLE_SKIP, bytes);
        wrap_say(": too little free memory to measure copies\n");
        self->skipped++;
        return true;
    }
    if (!known || !bench(self, bytes, &shared_ns, &own_ns)) {
        print_fail(self, bytes);
        return false;
    }
    double ratio = bench_copy_ratio(shared_ns, own_ns);
    /* On the emulated driver the figures are of a memcpy in host memory and prove nothing. */
    bool good = self->role.session.info.is_emulated || ratio >= BENCH_COPY_RATIO_MIN;
    role_note(&self->role, "value shared_gb_per_s %.3f", gigabytes_per_second(bytes, shared_ns));
    role_note(&self->role, "value own_gb_per_s %.3f", gigabytes_per_second(bytes, own_ns));
    print_case(self, "copy", good ? ROLE_PASS : ROLE_FAIL, bytes);
    wrap_say(
        " copied to device %u: through the shared mapping %.1f GB/s%s, inside one process %.1f "
        "GB/s%s, ratio %.4f%s (wanted: %.2f; medians of %d copies, in turns, timed by events)\n",
        self->peer_device, gigabytes_per_second(bytes, shared_ns), self->label,
        gigabytes_per_second(bytes, own_ns), self->label, ratio, self->label, BENCH_COPY_RATIO_MIN,
        BENCH_COPY_SAMPLES);
    self->passed += good;
    self->failed += !good;
    return true; /* the conversation goes on, however the figures are */
}

/* A small hand-over first: contexts and the driver's own memory are there before anything counts. */
static bool warm_up(producer *self, uint32_t wanted) {
    char line[ROLE_LINE_MAX];
    gpuipc_buffer *buffer;
    uint64_t allocated;
    role_step(&self->role, "handing over a first small buffer");
    if (!make_buffer(self, self->granularity, &buffer, &allocated)) {
        return false;
    }
    bool done = role_check(&self->role, pattern_fill(buffer, self->granularity, pattern_producer),
                           "filling the memory") &&
                role_say(&self->role, buffer, "warm-up");
    const char *answer = done ? role_hear(&self->role, "warm", line, NULL) : NULL;
    uint64_t number = 0;
    if (answer != NULL && (!quantity_take_number(&answer, &number) || number >= DEVICE_ANY)) {
        role_fail(&self->role, "the consumer said \"%.60s\" to the first buffer", answer);
        answer = NULL;
    }
    if (answer != NULL && wanted != DEVICE_ANY && number != wanted) {
        role_fail(&self->role, "the consumer opened the memory on device %" PRIu64 ", not %" PRIu32,
                  number, wanted);
        answer = NULL;
    }
    if (answer != NULL) {
        self->peer_device = (uint32_t)number;
    }
    return role_check(&self->role, gpuipc_buffer_release(buffer), "releasing the memory") &&
           answer != NULL;
}

static bool await_consumer(producer *self) {
    const options *wanted = self->role.options;
    gpuipc_listener *listener;
    if (!role_check(&self->role,
                    gpuipc_listener_open(self->role.session.context, wanted->name, NULL, &listener),
                    "opening the endpoint")) {
        return false;
    }
    role_step(&self->role, "waiting for a consumer at \"%s\"", wanted->name);
    bool came = role_check(
        &self->role, gpuipc_listener_accept(listener, wanted->timeout_ms, &self->role.connection),
        "waiting for a consumer");
    (void)gpuipc_listener_close(listener);
    return came;
}

/* What is larger than the first case, when the time is over. */
static void leave_out(producer *self, uint64_t bytes) {
    print_case(self, "share", ROLE_SKIP, bytes);
    wrap_say(": left out, so that the run is short; --full tries it, and --size does\n");
    self->skipped++;
}

static void set_pair(producer *self, const pair *between) {
    self->device = between->owner;
    self->peer_device = between->user == DEVICE_ANY ? 0 : between->user;
}

/* A consumer that the tool has started opens on the device of the pair, another one where it was told to. */
static bool begin_pair(producer *self, const pair *between) {
    char line[ROLE_LINE_MAX];
    set_pair(self, between);
    if (produce_check_device(&self->role, self->device, &self->granularity) != EXIT_PASS) {
        return role_fail(&self->role, "device %u cannot be used", self->device);
    }
    return (self->role.options->pairs == NULL ||
            (role_say(&self->role, NULL, "on %" PRIu32, between->user) &&
             role_hear(&self->role, "on", line, NULL) != NULL)) &&
           warm_up(self, between->user);
}

/* @return whether the conversation can go on */
static bool run_pair(producer *self, const pair *between) {
    uint64_t sizes[SIZES_MAX];
    const options *wanted = self->role.options;
    const size_t count = produce_sizes(wanted, self->role.session.info.is_emulated, sizes);
    if (!begin_pair(self, between)) {
        print_fail(self, sizes[0]);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && wanted->until_ns != 0 && os_clock_ns() >= wanted->until_ns) {
            leave_out(self, sizes[i]);
        } else if (!run_case(self, sizes[i])) {
            return false;
        }
    }
    return !wanted->bench_copy || run_bench(self);
}

static void converse(producer *self) {
    uint64_t sizes[SIZES_MAX];
    char line[ROLE_LINE_MAX];
    (void)produce_sizes(self->role.options, self->role.session.info.is_emulated, sizes);
    set_pair(self, &self->pairs[0]);
    if (!await_consumer(self)) {
        print_fail(self, sizes[0]);
        return;
    }
    for (size_t i = 0; i < self->pair_count; i++) {
        if (!run_pair(self, &self->pairs[i])) {
            return;
        }
    }
    if (!role_say(&self->role, NULL, "end") ||
        role_hear(&self->role, "ended", line, NULL) == NULL) {
        print_fail(self, sizes[0]);
    }
}

int produce_check_device(role *self, uint32_t device, uint64_t *out_granularity) {
    const session *at = &self->session;
    gpuipc_device_info info;
    if (device >= at->info.device_count) {
        wrap_complain("there is no device %u, only %u of them", device, at->info.device_count);
        return EXIT_USAGE;
    }
    if (!role_check(self, session_device(at, device, &info), "describing a device")) {
        wrap_complain("%s", self->failure);
        return EXIT_FAIL;
    }
    if (!info.can_share) {
        wrap_complain("nothing to test: device %u: %s", device, info.why_not);
        return EXIT_NOTHING;
    }
    *out_granularity = info.granularity_bytes;
    return EXIT_PASS;
}

int produce(const options *wanted) {
    producer self = {.pairs[0] = {.owner = wanted->device == DEVICE_ANY ? 0 : wanted->device,
                                  .user = wanted->peer},
                     .pair_count = 1};
    if (wanted->pairs != NULL &&
        (self.pair_count = pair_read_all(wanted->pairs, self.pairs)) == 0) {
        wrap_complain("--pairs is for the tool itself: such as 0-0,0-1");
        return EXIT_USAGE;
    }
    int code = role_begin(&self.role, wanted, "consumer");
    if (code != EXIT_PASS) {
        return code;
    }
    self.label = self.role.session.info.is_emulated ? " (emulated)" : "";
    code = produce_check_device(&self.role, self.pairs[0].owner, &self.granularity);
    if (code == EXIT_PASS) {
        converse(&self);
        if (self.role.failure[0] != '\0') {
            role_say_failed(&self.role);
        }
        code = self.failed > 0 ? EXIT_FAIL : self.passed > 0 ? EXIT_PASS : EXIT_NOTHING;
    }
    role_end(&self.role);
    return code;
}
