/* SPDX-License-Identifier: MIT */
/** @file See drop.h. */
#include "sync/drop.h"

#include <stdlib.h>

#include "cuda/context.h"
#include "cuda/device_event.h"
#include "sync/deferred.h"

/* After the driver has refused a mark because a stream is being captured: each try ends the captures of the CUDA
 * context (cuda.h, cuCtxRecordEvent; measured on an H100, driver 580), so tries are rare. */
#define REFUSED_NS UINT64_C(1000000000)
/* In so many looks in a row, some 20 ms apart, each device must have been idle before the thread frees memory. To free waits
 * for work that was given meanwhile, and that may wait for a call which waits for the free: a program at work is to free by
 * its own calls. */
#define IDLE_LOOKS 5u
/* After so many looks at a device that is at work, each twice as late as the one before, the memory is left to such calls: a
 * look is a mark, which could meet a capture. That is 1.3 s. */
#define BUSY_LOOKS 6u
#define LOOK_NS    UINT64_C(20000000)
/* An idle device comes to a mark within this time. */
#define MARK_NS UINT64_C(1000000)
/* So long one look frees at most: others wait for the thread. */
#define FREEING_NS UINT64_C(50000000)

/* What is dropped behind the work of one device. One mark at a time: what comes meanwhile waits for the next, so that
 * all that was dropped in between shares the cost of one. */
typedef struct drop_queue {
    linked_list fresh;
    linked_list marked;   /* given up when the event has passed */
    CUevent event;        /* NULL until used; of whoever is busy with the table, as the rest */
    bool is_recorded;     /* it stands behind what is marked */
    uint64_t not_till_ns; /* when it is tried again, after the driver refused */
} drop_queue;

/* What a context has of it. */
typedef struct drop_table {
    monitored monitored; /* while it has something */
    linked_list passing;
    size_t count;     /* of drops in queues, and of places in streams */
    bool is_busy;     /* a thread is at work here */
    bool is_attended; /* a thread looks after what is in it */
    unsigned
        idle; /* looks in a row that have found all devices idle; of the thread, as the next three */
    unsigned busy;      /* other looks since something came to the deferred list */
    uint64_t look_ns;   /* no look before that */
    uint64_t additions; /* to that list, as far as is known here */
    drop_queue *queues; /* one for each device */
} drop_table;

/* A place that a stream has not passed yet. */
typedef struct drop_passing {
    list_link link;
    void *what;
    void (*give_up)(void *what);
    CUevent event;
    uint32_t device; /* of the event */
} drop_passing;

/* A child leaves its parent's contexts alone. */
static struct {
    os_static_mutex
        mutex; /* guards the rest, and all tables; never held over a driver call; before that of monitor.c */
    uint32_t fork_generation;
    size_t pauses;   /* of gpuipc_drops_pause() */
    size_t markings; /* threads that are just marking */
} all;

static void lock(void) {
    os_static_mutex_lock(&all.mutex);
    if (all.fork_generation != os_fork_generation()) {
        all.fork_generation = os_fork_generation();
        all.pauses = all.markings = 0;
    }
}

static void unlock(void) {
    os_static_mutex_unlock(&all.mutex);
}

/* ---- marking ----------------------------------------------------------------------------------- */

typedef enum passage {
    PASSAGE_REFUSED, /* not now */
    PASSAGE_AHEAD,   /* the event is recorded */
    PASSAGE_OVER     /* nothing runs there any more */
} passage;

static bool marking_begins(void) {
    lock();
    const bool may = all.pauses == 0;
    all.markings += may ? 1 : 0;
    unlock();
    return may;
}

static void marking_ends(void) {
    lock();
    all.markings--;
    unlock();
}

/* What else a driver answers says that the CUDA context has ended or is dead, and nothing runs there: an error that
 * ended it is answered to every call (cuda.h, CUDA_ERROR_ILLEGAL_ADDRESS and its kin). */
static bool may_pass_later(CUresult result) {
    return result == CUDA_ERROR_OUT_OF_MEMORY || device_is_capture_error(result);
}

/* In the primary context. A capture of a blocking stream is seen here without harm, as an error: the legacy stream
 * itself cannot be captured (cuda.h, cuStreamIsCapturing). Of others the program must tell (gpuipc_drops_pause()). */
static CUresult record(const driver *drv, CUcontext primary, drop_queue *queue) {
    CUstreamCaptureStatus capture;
    CUresult result = drv->cuStreamIsCapturing(CU_STREAM_LEGACY, &capture);
    if (result == CUDA_SUCCESS && queue->event == NULL) {
        result = drv->cuEventCreate(&queue->event, CU_EVENT_DISABLE_TIMING);
    }
    return result == CUDA_SUCCESS ? drv->cuCtxRecordEvent(primary, queue->event) : result;
}

static passage mark_in_scope(context *ctx, drop_queue *queue, uint32_t index, bool is_thread) {
    const driver *drv = &ctx->driver;
    CUresult result = CUDA_SUCCESS;
    const bool by_event = drv->has_ctxevent;
    if (by_event) {
        result = record(drv, ctx->devices[index].primary, queue);
    } else if (is_thread && deferred_is_quiet()) {
        result =
            drv->cuCtxSynchronize(); /* before CUDA 12.5: the thread has nothing better to do */
    } else {
        return PASSAGE_REFUSED;
    }
    if (may_pass_later(result)) {
        queue->not_till_ns = os_clock_ns() + REFUSED_NS;
        return PASSAGE_REFUSED;
    }
    return result == CUDA_SUCCESS && by_event ? PASSAGE_AHEAD : PASSAGE_OVER;
}

static passage mark(context *ctx, drop_queue *queue, uint32_t index, bool is_thread) {
    device_scope scope;
    if (!device_is_active(ctx, index)) {
        return PASSAGE_OVER;
    }
    if (os_clock_ns() < queue->not_till_ns || !marking_begins()) {
        return PASSAGE_REFUSED;
    }
    passage found = PASSAGE_OVER;
    const gpuipc_status status = device_enter(ctx, index, &scope);
    if (status == GPUIPC_OK) {
        found = mark_in_scope(ctx, queue, index, is_thread);
        device_leave(&scope);
    } else if (status == GPUIPC_ERR_OUT_OF_DEVICE_MEMORY) {
        found = PASSAGE_REFUSED;
    }
    marking_ends();
    return found;
}

/* Whether an event is behind us; where the driver knows nothing of it, so is what it stood behind. */
static bool has_event_passed(const driver *drv, CUevent *event) {
    const CUresult result = drv->cuEventQuery(*event);
    if (result == CUDA_ERROR_NOT_READY || may_pass_later(result)) {
        return false;
    }
    if (result != CUDA_SUCCESS) {
        (void)drv->cuEventDestroy(*event);
        *event = NULL;
    }
    return true;
}

static bool has_passed(context *ctx, drop_queue *queue, uint32_t index, bool is_thread) {
    if (!queue->is_recorded) {
        const passage found = mark(ctx, queue, index, is_thread);
        if (found != PASSAGE_AHEAD) {
            return found == PASSAGE_OVER;
        }
        queue->is_recorded = true;
    }
    return has_event_passed(&ctx->driver, &queue->event);
}

/* ---- giving up --------------------------------------------------------------------------------- */

/* What was dropped until now waits for the next mark. @return whether there is something */
static bool begin_mark(drop_queue *self) {
    lock();
    if (self->marked.count == 0) {
        for (list_link *at; (at = list_take(&self->fresh)) != NULL;) {
            list_append(&self->marked, at);
        }
        self->is_recorded = false;
    }
    const bool are_some = self->marked.count > 0;
    unlock();
    return are_some;
}

/* Takes one that is marked out, unless it goes to the next device. False: none is left. */
static bool take_marked(context *ctx, uint32_t index, dropped *out_taken) {
    drop_table *self = ctx->drops;
    bool is_taken = false;
    lock();
    for (list_link *link; !is_taken && (link = list_take(&self->queues[index].marked)) != NULL;) {
        dropped *at = LIST_ITEM(link, dropped, link);
        if (at->everywhere && index + 1 < ctx->device_count) {
            list_append(&self->queues[index + 1].fresh, link);
            continue;
        }
        *out_taken = *at;
        *at = (dropped){0};
        self->count--;
        is_taken = true;
    }
    unlock();
    return is_taken;
}

static bool run_device(context *ctx, uint32_t index, bool is_thread) {
    drop_queue *queue = &ctx->drops->queues[index];
    bool were_some = false;
    while (begin_mark(queue) && has_passed(ctx, queue, index, is_thread)) {
        dropped taken;
        while (take_marked(ctx, index, &taken)) {
            taken.give_up(taken.what);
        }
        were_some = true;
    }
    return were_some;
}

static drop_passing *take_passing(drop_table *self) {
    lock();
    drop_passing *first = LIST_ITEM(list_take(&self->passing), drop_passing, link);
    unlock();
    return first;
}

/* Each once: those that have not passed go to the end. */
static bool run_streams(context *ctx) {
    drop_table *self = ctx->drops;
    bool were_some = false;
    lock();
    size_t left = self->passing.count;
    unlock();
    for (drop_passing *at; left > 0 && (at = take_passing(self)) != NULL; left--) {
        const bool is_over = has_event_passed(&ctx->driver, &at->event);
        lock();
        if (is_over) {
            self->count--;
        } else {
            list_append(&self->passing, &at->link);
        }
        unlock();
        if (is_over) {
            at->give_up(at->what);
            drop_passing_destroy(ctx, at);
            were_some = true;
        }
    }
    return were_some;
}

/* ---- freeing ----------------------------------------------------------------------------------- */

static bool passes_soon(const driver *drv, drop_queue *queue) {
    const uint64_t begun_ns = os_clock_ns();
    bool has = has_event_passed(drv, &queue->event);
    while (!has && os_clock_ns() - begun_ns < MARK_NS) {
        os_pause(begun_ns, 1, os_deadline_after(-1));
        has = has_event_passed(drv, &queue->event);
    }
    return has;
}

/* Before CUDA 12.5 to know it is to wait for the device. Other work may have begun by then, so memory is left to calls. */
static bool is_idle(context *ctx, uint32_t index) {
    drop_queue *queue = &ctx->drops->queues[index];
    if (!ctx->driver.has_ctxevent) {
        return false;
    }
    lock();
    const bool is_before_mark = queue->marked.count > 0;
    unlock();
    if (is_before_mark) {
        return false;
    }
    const passage found = mark(ctx, queue, index, true);
    return found == PASSAGE_OVER || (found == PASSAGE_AHEAD && passes_soon(&ctx->driver, queue));
}

static bool are_all_idle(context *ctx) {
    uint32_t i = 0;
    while (i < ctx->device_count && is_idle(ctx, i)) {
        i++;
    }
    return i == ctx->device_count;
}

/* Not while drops pause: the program may capture a stream, or give work that waits for its next call. */
static bool free_one(context *ctx) {
    bool was_one = false;
    if (marking_begins()) {
        was_one = deferred_run_ready(ctx->deferred);
        marking_ends();
    }
    return was_one;
}

static bool is_paused(void) {
    lock();
    const bool is = all.pauses > 0;
    unlock();
    return is;
}

/* Whether it is time for a look, which counts. */
static bool may_look(context *ctx) {
    drop_table *self = ctx->drops;
    const uint64_t additions = deferred_additions(ctx->deferred);
    if (self->additions != additions) {
        self->additions = additions;
        self->busy = 0;
        self->look_ns = 0;
    }
    return self->busy < BUSY_LOOKS && os_clock_ns() >= self->look_ns;
}

/* Keeps what it found for later looks. @return whether all devices have been idle for a while */
static bool have_been_idle(context *ctx) {
    drop_table *self = ctx->drops;
    if (!are_all_idle(ctx)) {
        self->idle = 0;
        self->look_ns = os_clock_ns() + (LOOK_NS << self->busy);
        self->busy++;
        return false;
    }
    self->idle += self->idle < IDLE_LOOKS;
    return self->idle == IDLE_LOOKS;
}

/* What was dropped, and has to wait for the devices to be freed (deferred.h): a process that only receives may make no call
 * that frees it. */
static void free_if_idle(context *ctx) {
    if (!deferred_has_ready(ctx->deferred) || !deferred_is_quiet() || is_paused()) {
        ctx->drops->idle = 0;
        return;
    }
    const uint64_t begun_ns = os_clock_ns();
    bool goes_on = may_look(ctx) && have_been_idle(ctx);
    while (goes_on) {
        goes_on = free_one(ctx) && os_clock_ns() - begun_ns < FREEING_NS && are_all_idle(ctx);
    }
}

/* Whether the thread has nothing to free, or leaves it to calls. */
static bool has_freed(const context *ctx) {
    return !deferred_has_ready(ctx->deferred) || ctx->drops->busy >= BUSY_LOOKS;
}

/* @param is_thread it frees as well */
static bool begin_run(context *ctx, bool is_thread) {
    drop_table *self = ctx->drops;
    const bool frees = is_thread && deferred_has_ready(ctx->deferred);
    lock();
    const bool may = (self->count > 0 || frees) && !self->is_busy;
    self->is_busy = self->is_busy || may;
    unlock();
    return may;
}

/* Capture mode is relaxed: to ask an event, and to unmap, would end another thread's capture otherwise. */
static bool run(context *ctx, bool is_thread) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!begin_run(ctx, is_thread)) {
        return false;
    }
    const gpuipc_error why = status_save();
    (void)ctx->driver.cuThreadExchangeStreamCaptureMode(&mode);
    bool were_some = run_streams(ctx);
    for (uint32_t i = 0; i < ctx->device_count; i++) {
        were_some = run_device(ctx, i, is_thread) || were_some;
    }
    if (is_thread) {
        free_if_idle(ctx);
    }
    (void)ctx->driver.cuThreadExchangeStreamCaptureMode(&mode);
    status_restore(&why);
    lock();
    ctx->drops->is_busy = false;
    unlock();
    return were_some;
}

bool drop_run(struct context *ctx) {
    return run(ctx, false);
}

/* ---- what others call -------------------------------------------------------------------------- */

static bool is_settled(const context *ctx) {
    lock();
    const bool is = ctx->drops->count == 0 && !ctx->drops->is_busy;
    unlock();
    return is;
}

bool drop_is_empty(const struct context *ctx) {
    lock();
    const bool is_empty = ctx->drops->count == 0;
    unlock();
    return is_empty;
}

static bool look(object *of) {
    context *ctx = (context *)of;
    (void)run(ctx, true);
    return is_settled(ctx) && has_freed(ctx);
}

/* The mutex is held: the context may end with what was dropped. Where no thread can be had, the next drop tries again,
 * and calls that may wait do its work. */
static void added(context *ctx) {
    const gpuipc_error why = status_save();
    ctx->drops->is_attended =
        monitor_begin(&ctx->drops->monitored, MONITOR_FREES, &ctx->object, look, NULL) == GPUIPC_OK;
    status_restore(&why);
}

void drop_add(struct context *ctx, dropped *self, void *what, void (*give_up)(void *what),
              uint32_t behind) {
    drop_table *table = ctx->drops;
    lock();
    self->everywhere = self->everywhere || behind >= ctx->device_count;
    linked_list *fresh = &table->queues[self->everywhere ? 0 : behind].fresh;
    if (self->link.in != NULL) {
        give_up(what); /* not the last: one is in a queue, and is taken out under the mutex alone */
    } else {
        table->count++;
        self->what = what;
        self->give_up = give_up;
    }
    if (self->link.in != fresh || !table->is_attended) {
        list_remove(&self->link); /* work was given since */
        list_append(fresh, &self->link);
        added(ctx);
    }
    unlock();
}

gpuipc_status drop_passing_new(struct context *ctx, drop_passing **out_passing) {
    drop_passing *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return status_out_of_memory(sizeof(*self));
    }
    const gpuipc_status status =
        device_event_new(ctx, CU_EVENT_DISABLE_TIMING, &self->event, &self->device);
    if (status != GPUIPC_OK) {
        free(self);
        return status;
    }
    *out_passing = self;
    return GPUIPC_OK;
}

void drop_passing_destroy(struct context *ctx, drop_passing *self) {
    if (self->event != NULL) {
        (void)ctx->driver.cuEventDestroy(self->event);
    }
    free(self);
}

bool drop_pass(struct context *ctx, drop_passing *self, void *what, void (*give_up)(void *what),
               gpuipc_stream stream) {
    const gpuipc_error why = status_save();
    if (device_event_record(ctx, self->event, self->device, stream) != GPUIPC_OK) {
        status_restore(&why);
        return false;
    }
    self->what = what;
    self->give_up = give_up;
    lock();
    list_append(&ctx->drops->passing, &self->link);
    ctx->drops->count++;
    added(ctx);
    unlock();
    return true;
}

void drop_settle(struct context *ctx, os_deadline deadline) {
    unsigned pause = 0;
    while (run(ctx, false), !is_settled(ctx) && !os_deadline_passed(deadline)) {
        os_sleep_ms(os_backoff_next(&pause, deadline));
    }
}

static gpuipc_status begin(context *ctx) {
    drop_table *self = ctx->drops;
    self->queues = calloc(ctx->device_count, sizeof(*self->queues));
    return self->queues != NULL ? GPUIPC_OK
                                : status_out_of_memory(ctx->device_count * sizeof(*self->queues));
}

static void end(context *ctx, bool is_forked) {
    drop_table *self = ctx->drops;
    monitor_end(&self->monitored);
    for (uint32_t i = 0; i < ctx->device_count && !is_forked; i++) {
        if (self->queues[i].event != NULL) {
            (void)ctx->driver.cuEventDestroy(self->queues[i].event);
        }
    }
    free(self->queues);
}

const context_part drop_part = {CONTEXT_PART(drops, drop_table), .begin = begin, .end = end};

gpuipc_status gpuipc_drops_pause(void) {
    status_enter(__func__);
    lock();
    all.pauses++;
    while (all.markings > 0) {
        unlock();
        os_sleep_ms(1);
        lock();
    }
    unlock();
    return GPUIPC_OK;
}

gpuipc_status gpuipc_drops_resume(void) {
    status_enter(__func__);
    lock();
    const bool is_paused = all.pauses > 0;
    all.pauses -= is_paused ? 1 : 0;
    unlock();
    return is_paused ? GPUIPC_OK
                     : status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                                   "gpuipc_drops_pause() was not called as often");
}
