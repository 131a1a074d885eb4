/* SPDX-License-Identifier: MIT */
/** @file See pair.h. */
#include "pair.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "rest.h"
#include "system.h"

#define LINE_MAX_BYTES 512
#define ALIGN          (2 * MIB)

/* ---- processes ---------------------------------------------------------------------------- */

child_process *pair_start_process(const options *given, const char *as, const char *name) {
    char directory[RUNTIME_DIRECTORY_MAX + 16];
    char given_role[32];
    char where[UNIQUE_NAME_MAX + 16];
    child_process *child = NULL;
    (void)snprintf(given_role, sizeof(given_role), "--role=%s", as);
    (void)snprintf(directory, sizeof(directory), "--directory=%s", given->directory);
    (void)snprintf(where, sizeof(where), "--name=%s", name);
    const char *const arguments[] = {given_role, directory, where, NULL};
    bench_check(child_start("gpuipc-bench", arguments, NULL, &child), "another process");
    return child;
}

void pair_end_process(child_process *child) {
    child_end how;
    child_close_input(child);
    bench_check(child_wait(child, PATIENCE_MS, &how), "the end of another process");
    if (!how.exited || how.code != 0) {
        bench_fail("another process ended with %d", how.code);
    }
    child_destroy(child);
}

void pair_tell(child_process *child, const char *format, ...) {
    char line[LINE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    bench_check(child_write_line(child, line), "telling another process");
}

static void hear_line(child_process *child, char line[LINE_MAX_BYTES]) {
    bench_check(child_read_line(child, line, LINE_MAX_BYTES, PATIENCE_MS),
                "hearing another process");
}

void pair_hear(child_process *child, uint64_t *numbers, size_t count) {
    char line[LINE_MAX_BYTES];
    hear_line(child, line);
    char *at = line;
    for (size_t i = 0; i < count; i++) {
        char *end = at;
        numbers[i] = strtoull(at, &end, 10);
        if (end == at) {
            bench_fail("another process said \"%s\", not %zu numbers", line, count);
        }
        at = end;
    }
}

void pair_hear_ready(child_process *child) {
    char line[LINE_MAX_BYTES];
    hear_line(child, line);
    if (strcmp(line, "ready") != 0) {
        bench_fail("another process said \"%s\", not that it is ready", line);
    }
}

/* ---- beginning and end -------------------------------------------------------------------- */

static void choose_devices(bench_pair *self) {
    uint32_t count = 0;
    bench_check(gpuipc_device_count(self->context, &count), "devices");
    self->owner = self->options->owner == DEVICE_ANY ? 0 : self->options->owner;
    self->opener =
        self->options->opener == DEVICE_ANY ? (count > 1 ? 1 : 0) : self->options->opener;
    if (self->owner >= count || self->opener >= count) {
        bench_fail("there are %u devices", (unsigned)count);
    }
}

static void begin_gpuipc(bench_pair *self) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = self->options->directory};
    bench_check(gpuipc_context_create(&config, &self->context), "a context");
    bench_check(gpuipc_listener_open(self->context, self->name, NULL, &self->listener),
                "a listener");
}

static void accept_partner(bench_pair *self) {
    bench_check(gpuipc_listener_accept(self->listener, PATIENCE_MS, &self->connection),
                "a connection");
}

static void end_gpuipc(bench_pair *self) {
    if (self->context != NULL) {
        bench_check(gpuipc_connection_close(self->connection), "a connection");
        bench_check(gpuipc_listener_close(self->listener), "a listener");
        bench_check(gpuipc_context_destroy(self->context), "the context");
        self->context = NULL;
    }
}

void pair_begin(bench_pair *self, const options *given) {
    *self = (bench_pair){.options = given, .is_quick = given->quick};
    system_raise_limits();
    bench_driver_open();
    self->is_emulated = bench_driver.is_emulated;
    unique_name(self->name);
    begin_gpuipc(self);
    choose_devices(self);
    if (courier_why_not() == NULL) {
        self->courier = courier_listen(given->directory, self->name);
    }
    self->partner = pair_start_process(given, "partner", self->name);
    accept_partner(self);
    if (self->courier != NULL) {
        courier_accept(self->courier);
    }
    pair_hear_ready(self->partner);
}

void pair_end(bench_pair *self) {
    if (self->floor != NULL) {
        pair_end_process(self->floor);
    }
    pair_end_process(self->partner);
    courier_end(self->courier);
    end_gpuipc(self);
}

void pair_quiet(bench_pair *self) {
    bench_enter((int)self->owner); /* primary contexts are slow to make: they stay */
    bench_enter((int)self->opener);
    pair_tell(self->partner, "quiet %u %u", (unsigned)self->owner, (unsigned)self->opener);
    pair_hear_ready(self->partner);
    end_gpuipc(self);
    bench_check_nothing_kept();
}

void pair_wake(bench_pair *self) {
    if (self->context == NULL) {
        begin_gpuipc(self);
        pair_tell(self->partner, "wake");
        accept_partner(self);
        pair_hear_ready(self->partner);
    }
}

uint32_t pair_rounds(const bench_pair *self, uint32_t usual) {
    if (self->options->rounds != 0) {
        return self->options->rounds;
    }
    return self->is_quick ? 3 : usual;
}

uint64_t pair_bytes(const bench_pair *self, uint64_t bytes) {
    if (!self->is_emulated) {
        return bytes;
    }
    const uint64_t small = bytes / 128 / ALIGN * ALIGN;
    if (self->is_quick && small > 2 * ALIGN) {
        return 2 * ALIGN;
    }
    return small == 0 ? ALIGN : small;
}

uint32_t pair_device(const bench_pair *self, bool is_peer) {
    return is_peer ? self->opener : self->owner;
}

/* ---- the driver's calls by hand ------------------------------------------------------------ */

static void fill(CUdeviceptr address, uint64_t bytes, uint32_t value, uint32_t device) {
    bench_enter((int)device);
    bench_check_cuda(bench_driver.cuMemsetD32(address, value, bytes / sizeof(value)), "filling");
    bench_check_cuda(bench_driver.cuCtxSynchronize(), "filling");
}

/* @param answer of the partner: when all was open, and when the last packet had come */
static pair_times hand_over_times(uint64_t begin_ns, uint64_t sent_ns, const uint64_t *answer,
                                  uint64_t calls_ns) {
    return (pair_times){answer[0] - begin_ns, sent_ns - begin_ns, answer[1] - begin_ns,
                        answer[0] - answer[1], calls_ns};
}

static floor_memory *make_by_hand(const floor_plan *plan, uint32_t owner, const uint32_t *value) {
    bench_enter((int)owner);
    floor_memory *memory = floor_make(plan, (int)owner);
    for (uint32_t i = 0; value != NULL && i < plan->count; i++) {
        fill(memory[i].address, plan->bytes, *value, owner);
    }
    return memory;
}

/* Shares memory with the process at the other end of the courier. */
static pair_times share_by_hand(child_process *partner, courier *by, floor_memory *memory,
                                const floor_plan *plan, uint32_t device, uint32_t value,
                                bool keep) {
    uint64_t answer[3];
    pair_tell(partner, "open_by_hand %u %llu %llu %u %u %d", (unsigned)plan->count,
              (unsigned long long)plan->bytes, (unsigned long long)plan->segment_bytes,
              (unsigned)device, (unsigned)value, (int)keep);
    pair_hear_ready(partner);
    const floor_times times = floor_share(by, memory, plan->count);
    pair_hear(partner, answer, 3);
    return hand_over_times(times.begin_ns, times.end_ns, answer, times.calls_ns + answer[2]);
}

floor_memory *pair_memory(bench_pair *self, const floor_plan *plan, const uint32_t *value) {
    return make_by_hand(plan, self->owner, value);
}

pair_times pair_bare(bench_pair *self, floor_memory *memory, const floor_plan *plan,
                     uint32_t device, uint32_t value, bool keep) {
    bench_enter((int)self->owner);
    return share_by_hand(self->partner, self->courier, memory, plan, device, value, keep);
}

uint64_t pair_floor(bench_pair *self, const floor_plan *plan, uint32_t device, uint32_t value,
                    uint32_t ahead) {
    uint64_t nanoseconds;
    if (self->floor == NULL) {
        char name[UNIQUE_NAME_MAX];
        unique_name(name);
        self->floor = pair_start_process(self->options, "floor", name);
    }
    pair_tell(self->floor, "%u %llu %llu %u %u %u %u", (unsigned)plan->count,
              (unsigned long long)plan->bytes, (unsigned long long)plan->segment_bytes,
              (unsigned)self->owner, (unsigned)device, (unsigned)value, (unsigned)ahead);
    pair_hear(self->floor, &nanoseconds, 1);
    return nanoseconds;
}

void pair_drop(bench_pair *self, uint32_t count) {
    uint64_t before;
    pair_tell(self->partner, "drop %u", (unsigned)count);
    pair_hear(self->partner, &before, 1);
}

/* The floor owner's memory: how it is made. */
typedef struct floor_order {
    floor_plan plan;
    uint32_t owner;
    bool is_new;
} floor_order;

static void *make_for_floor(void *order_of, uint32_t value) {
    const floor_order *order = order_of;
    return make_by_hand(&order->plan, order->owner, order->is_new ? NULL : &value);
}

static void end_for_floor(void *order_of, void *made) {
    const floor_order *order = order_of;
    floor_end(made, order->plan.count);
}

/* One hand-over, as pair_floor() asks for it. */
static void share_for_floor(child_process *partner, courier *by, stock *from, char *line) {
    uint64_t numbers[7];
    char *at = line;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        numbers[i] = strtoull(at, &at, 10);
    }
    floor_order order = {.plan = {(uint32_t)numbers[0], numbers[1], numbers[2]},
                         .owner = (uint32_t)numbers[3],
                         .is_new = numbers[6] == 0};
    const uint32_t value = (uint32_t)numbers[5];
    floor_memory *memory = stock_take(from, (uint32_t)numbers[6], make_for_floor, &order, value);
    bench_enter((int)order.owner);
    const pair_times times =
        share_by_hand(partner, by, memory, &order.plan, (uint32_t)numbers[4], value, false);
    stock_settle(from, end_for_floor, &order);
    helper_say("%llu", (unsigned long long)times.total_ns);
}

int pair_floor_run(const options *given) {
    char line[LINE_MAX_BYTES];
    stock from = {.count = 0};
    helper_begin();
    system_raise_limits();
    bench_driver_open();
    courier *by = courier_listen(given->directory, given->name);
    child_process *partner = pair_start_process(given, "floor-partner", given->name);
    courier_accept(by);
    pair_hear_ready(partner);
    while (helper_hear(line, sizeof(line))) {
        if (strncmp(line, "rest ", 5) == 0) {
            rest_say((uint32_t)strtoul(line + 5, NULL, 10));
        } else {
            share_for_floor(partner, by, &from, line);
        }
    }
    pair_end_process(partner);
    courier_end(by);
    return 0;
}

/* ---- gpuipc ------------------------------------------------------------------------------- */

gpuipc_buffer_info pair_info(gpuipc_buffer *buffer) {
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    bench_check(gpuipc_buffer_get_info(buffer, &info), "a buffer's info");
    return info;
}

gpuipc_buffer *pair_buffer_make(bench_pair *self, uint64_t bytes, uint64_t segment_bytes,
                                uint32_t device, const uint32_t *value, uint64_t *out_create_ns) {
    gpuipc_device_info opener = {.struct_size = sizeof(opener)};
    gpuipc_buffer *made = NULL;
    bench_check(gpuipc_device_get_info(self->context, device, &opener), "a device");
    gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                   .device = GPUIPC_DEVICE(self->owner),
                                   .bytes = bytes,
                                   .segment_bytes = segment_bytes};
    if (segment_bytes == 0) {
        config.openers = &opener.uuid;
        config.opener_count = 1;
    }
    const uint64_t begin = os_clock_ns();
    bench_check(gpuipc_buffer_create(self->context, &config, &made), "a buffer");
    if (out_create_ns != NULL) {
        *out_create_ns = os_clock_ns() - begin;
    }
    if (value != NULL) {
        fill(pair_info(made).address, bytes, *value, self->owner);
    }
    return made;
}

gpuipc_buffer *pair_buffer(bench_pair *self, uint64_t bytes, uint32_t device, uint32_t value) {
    return pair_buffer_make(self, bytes, 0, device, &value, NULL);
}

static void tell_to_receive(const bench_pair *self, uint32_t count, uint32_t device, uint32_t value,
                            bool keep) {
    pair_tell(self->partner, "receive %u %u %u %d", (unsigned)count, (unsigned)device,
              (unsigned)value, (int)keep);
    pair_hear_ready(self->partner);
}

static pair_times send_to_receiver(const bench_pair *self, gpuipc_buffer *const *buffers,
                                   uint32_t count) {
    uint64_t answer[2];
    const gpuipc_outgoing message = {.struct_size = sizeof(message),
                                     .buffers = buffers,
                                     .buffer_count = count,
                                     .flags = GPUIPC_SEND_READY};
    const uint64_t begin = os_clock_ns();
    bench_check(gpuipc_connection_send(self->connection, &message, PATIENCE_MS), "sending");
    const uint64_t sent = os_clock_ns();
    pair_hear(self->partner, answer, 2);
    return hand_over_times(begin, sent, answer, 0);
}

pair_times pair_send(bench_pair *self, gpuipc_buffer *const *buffers, uint32_t count,
                     uint32_t device, uint32_t value, bool keep) {
    tell_to_receive(self, count, device, value, keep);
    return send_to_receiver(self, buffers, count);
}

/* A processor of a virtual machine that has nothing to do is kept awake for some 200 us. */
#define ASLEEP_NS UINT64_C(500000)

pair_times pair_send_late(bench_pair *self, uint64_t bytes, uint32_t device, uint32_t value) {
    tell_to_receive(self, 1, device, value, false);
    gpuipc_buffer *buffer = pair_buffer(self, bytes, device, value);
    const uint64_t until_ns = os_clock_ns() + ASLEEP_NS;
    while (os_clock_ns() < until_ns) {
    }
    const pair_times took = send_to_receiver(self, &buffer, 1);
    bench_check(gpuipc_buffer_release(buffer), "releasing");
    return took;
}
