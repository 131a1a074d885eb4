/* SPDX-License-Identifier: MIT */
/**
 * @file The processes of one row: this one, which owns the memory; its partner, which opens it; and, started when
 * first wanted, two more that share memory without gpuipc and so without anything that gpuipc keeps alive.
 */
#ifndef GPUIPC_BENCH_PAIR_H
#define GPUIPC_BENCH_PAIR_H

#include "child.h"
#include "floor.h"
#include "options.h"
#include "stock.h"
#include "unique.h"

#define MIB         UINT64_C(1048576)
#define GIB         (1024 * MIB)
#define PATIENCE_MS 60000

typedef struct bench_pair {
    const options *options;
    char name[UNIQUE_NAME_MAX]; /**< of the listener */
    gpuipc_context *context;    /**< NULL: see pair_quiet() */
    gpuipc_listener *listener;
    gpuipc_connection *connection; /**< to the partner */
    courier *courier; /**< likewise, of the driver's calls by hand; NULL: there is none */
    child_process *partner;
    child_process *floor; /**< NULL: not wanted yet */
    uint32_t owner;       /**< device */
    uint32_t opener;      /**< the other device, or the same where there is one */
    bool is_emulated;
    bool is_quick;
} bench_pair;

/** Starts the partner and connects to it. */
void pair_begin(bench_pair *self, const options *given);
void pair_end(bench_pair *self);

/** How often to measure: as told, or @p usual times, or a few. */
uint32_t pair_rounds(const bench_pair *self, uint32_t usual);
/** On the emulated driver a 128th of it, since host memory stands for a GPU's; at least 2 MiB,
 *  and of a quick run at most 4 MiB. */
uint64_t pair_bytes(const bench_pair *self, uint64_t bytes);
/** The device that opens. */
uint32_t pair_device(const bench_pair *self, bool is_peer);

/** Says a line to a process. */
void pair_tell(child_process *child, const char *format, ...) GPUIPC_PRINTF(2, 3);
/** Waits for a line of @p count numbers. */
void pair_hear(child_process *child, uint64_t *numbers, size_t count);
/** Waits until the process says that it is about to wait for the hand-over. */
void pair_hear_ready(child_process *child);

/** Starts this program in another role, to be met at @p name. */
child_process *pair_start_process(const options *given, const char *as, const char *name);
/** Ends its input and waits for its end. */
void pair_end_process(child_process *child);

/** Neither this process nor its partner keeps anything of gpuipc alive any more: no context, and so no exported
 *  handle. One that anybody on the machine has open makes everybody's exports fast (measured on an H200, driver
 *  580: 1.1 in place of 1.7 ms for a hand-over), so the floor is measured while they are so. */
void pair_quiet(bench_pair *self);
/** They have contexts and a connection again. Nothing happens when they have. */
void pair_wake(bench_pair *self);

/** Where the time of a hand-over went. */
typedef struct pair_times {
    uint64_t total_ns; /**< from the owner's first call until all is open in the partner */
    uint64_t send_ns;  /**< until the owner's last call returned */
    uint64_t come_ns;  /**< until the partner had the last packet */
    uint64_t open_ns;  /**< from then on */
    uint64_t calls_ns; /**< by hand: in calls of the driver, of both */
} pair_times;

/** Memory of this process's, made by hand and full of @p value.
 *  @param value NULL: as it was made, which is full of 0 */
floor_memory *pair_memory(bench_pair *self, const floor_plan *plan, const uint32_t *value);

/** The straightforward way, in the two processes that keep nothing alive: seconds are too long for it,
 *  so nanoseconds from the first call until the last memory is open.
 *  @param ahead as for stock_take(); 0: memory just made, and not filled: @p value is 0 */
uint64_t pair_floor(bench_pair *self, const floor_plan *plan, uint32_t device, uint32_t value,
                    uint32_t ahead);
/** The driver's calls by hand in this process and its partner, where gpuipc keeps something alive.
 *  @param memory of pair_memory(), full of @p value; the caller ends it, by floor_end()
 *  @param keep the partner keeps it open until pair_drop() */
pair_times pair_bare(bench_pair *self, floor_memory *memory, const floor_plan *plan,
                     uint32_t device, uint32_t value, bool keep);
/** The partner releases what it kept, but for the first @p count. */
void pair_drop(bench_pair *self, uint32_t count);

/** A new buffer of this process's.
 *  @param device that will open it  @param segment_bytes 0: as the library lays it out for that device
 *  @param value what it is filled with; NULL: it stays as it was made, which is full of 0
 *  @param out_create_ns what making it took, without filling it; may be NULL */
gpuipc_buffer *pair_buffer_make(bench_pair *self, uint64_t bytes, uint64_t segment_bytes,
                                uint32_t device, const uint32_t *value, uint64_t *out_create_ns);
/** The same as the library lays it out, full of @p value. */
gpuipc_buffer *pair_buffer(bench_pair *self, uint64_t bytes, uint32_t device, uint32_t value);
gpuipc_buffer_info pair_info(gpuipc_buffer *buffer);
/** Sends buffers in one message. */
pair_times pair_send(bench_pair *self, gpuipc_buffer *const *buffers, uint32_t count,
                     uint32_t device, uint32_t value, bool keep);
/** Makes a buffer while the partner waits for it, and sends that when he has slept for half a millisecond. */
pair_times pair_send_late(bench_pair *self, uint64_t bytes, uint32_t device, uint32_t value);

/** The floor owner's side of pair_floor(): this program in the role floor. @return its exit code */
int pair_floor_run(const options *given);

#endif
