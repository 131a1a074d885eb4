/* SPDX-License-Identifier: MIT */
/** @file See mark.h. */
#include "sync/mark.h"

#include <stdlib.h>

#include "cuda/context.h"
#include "sync/export_record.h"
#include "sync/loan.h"
#include "sync/watch.h"

#define VERSION 1u
/* Behind the words of points: who made the page, its number among the first pages of that context, and the marks. */
#define EXPORTER_WORD (POINT_WORDS_END)
#define NUMBER_WORD   (POINT_WORDS_END + 1u)
#define SLOTS         (MARK_SLOTS + LOAN_SLOTS)
/* Of these, so many for marks that repeat. Their words go down again, so they are never used for others. */
#define REPEATED 254u

typedef struct mark_capture {
    list_link link;
    uint32_t slot;
    point_words
        words; /* their pages stay mapped and registered, since a graph may write them at any time */
} mark_capture;

typedef struct mark_slot {
    uint32_t value;     /* given out last */
    point_word passage; /* reached when its stream has made it */
    bool is_captured;
} mark_slot;

typedef struct mark_table {
    os_mutex
        mutex; /* before that of points; the driver is not called under it, since it may wait */
    uint32_t exporter;
    uint32_t page_number; /* of the newest page */
    uint32_t next;        /* where the search for a slot goes on */
    mark_slot slots[SLOTS];
} mark_table;

static gpuipc_status begin(context *ctx) {
    mark_table *self = ctx->marks;
    for (int i = 0; i < 4; i++) {
        self->exporter = self->exporter << 8 | ctx->instance_id[i];
    }
    self->exporter |= 1u; /* a page without one has 0 */
    self->next = REPEATED;
    return GPUIPC_OK;
}

const context_part mark_part = {CONTEXT_PART(marks, mark_table), .begin = begin};

/* ---- 16 bytes: docs/wire-format.md ---------------------------------------------------------- */

static void put(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint32_t get(const uint8_t *from) {
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

/* Each 16 bits count by their place, modulo a prime: no bit can change alone. */
static uint32_t checksum(const uint8_t *bytes) {
    uint32_t sum = VERSION;
    for (uint32_t place = 1; place <= 7; place++, bytes += 2) {
        sum += place * (bytes[0] | (uint32_t)bytes[1] << 8);
    }
    return sum % 65521u;
}

static uint32_t kind_of(const mark *self) {
    return self->repeats ? 1u : self->slot >= MARK_SLOTS ? 2u : 0;
}

void mark_encode(const mark *self, gpuipc_mark *out_bytes) {
    uint8_t *to = out_bytes->bytes;
    put(to, VERSION | kind_of(self) << 8 | self->slot << 16);
    put(to + 4, self->exporter);
    put(to + 8, self->value);
    put(to + 12, self->secret);
    put(to + 12, self->secret | checksum(to) << 16);
}

gpuipc_status mark_decode(const gpuipc_mark *bytes, mark *out_mark) {
    const uint8_t *from = bytes->bytes;
    const uint32_t head = get(from);
    const uint32_t tail = get(from + 12);
    const mark read = {.repeats = (head >> 8 & 0xFFu) == 1u,
                       .slot = head >> 16,
                       .exporter = get(from + 4),
                       .value = get(from + 8),
                       .secret = (uint16_t)tail};
    if (tail >> 16 != checksum(from) || (head & 0xFFu) != VERSION ||
        (head >> 8 & 0xFFu) != kind_of(&read) || read.slot >= SLOTS ||
        read.repeats != (read.slot < REPEATED) || (read.slot < MARK_SLOTS && read.secret != 0)) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "the 16 bytes are no mark, or damaged");
    }
    *out_mark = read;
    return GPUIPC_OK;
}

/* ---- words ---------------------------------------------------------------------------------- */

static point_word word_of(point_page *page, uint32_t slot, uint64_t value) {
    return (point_word){page, MARK_WORDS_BEGIN + slot, value};
}

static uint64_t word_value(const point_page *page, uint32_t at) {
    return atomic_load_explicit(&page->words[at], memory_order_acquire);
}

gpuipc_status mark_word(const import_record *of, const mark *self, point_word *out_word) {
    if (of == NULL || of->marks == NULL) {
        return status_fail(
            GPUIPC_ERR_INVALID_ARGUMENT,
            "the buffer was not received, or it was opened by a ticket of this same process; where memory is "
            "this process's own, an event of CUDA does what a mark does");
    }
    if (word_value(of->marks, EXPORTER_WORD) != self->exporter) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "the mark was not made by the context that the buffer came from");
    }
    if (self->repeats && word_value(of->marks, NUMBER_WORD) > self->value) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "the mark was captured before there was a connection to this process, "
                           "so the graph does not write it here");
    }
    *out_word = word_of(of->marks, self->slot, self->repeats ? 1 : self->value);
    return GPUIPC_OK;
}

/* What the word of a mark that repeats has before it is made anew. */
static point_word before(const point_word *word) {
    return (point_word){word->page, word->at, 0};
}

/* ---- slots: the mutex is held ------------------------------------------------------------------ */

static uint32_t word_number(const mark_table *self, const mark_slot *one) {
    return MARK_WORDS_BEGIN + (uint32_t)(one - self->slots);
}

/* A slot is used again when its stream has come to what it was used for last. */
static mark_slot *take(mark_table *self) {
    for (uint32_t i = 0; i < MARK_SLOTS - REPEATED; i++) {
        mark_slot *one = &self->slots[self->next];
        self->next = self->next + 1 < MARK_SLOTS ? self->next + 1 : REPEATED;
        if (one->value < UINT32_MAX && point_is_reached(&one->passage)) {
            one->value++;
            return one;
        }
    }
    return NULL;
}

/* ---- making: the stream is given something without the mutex, since that waits while its queue has no room ---- */

/* What a stream is to write for one: the word of each page, whose references go when the stream has been given them. */
typedef struct writing {
    point_words words;
    point_word passage;
} writing;

/* The mutex is held. From here on the passage says of the slot that its stream has not come to it, also to pages that come
 * before the stream has been given anything. Where there is no page yet, it alone is written. */
static gpuipc_status writing_begin(struct context *ctx, mark_slot *one, writing *out_writing) {
    point_words *words = &out_writing->words;
    point_word passage;
    gpuipc_status status = export_copy_words(ctx, word_number(ctx->marks, one), one->value, words);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = point_write_begin(ctx, words->words, words->count, &passage);
    if (status != GPUIPC_OK) {
        point_words_destroy(words, false);
        return status;
    }
    one->passage = out_writing->passage = passage;
    return GPUIPC_OK;
}

static gpuipc_status writing_submit(struct context *ctx, writing *self, gpuipc_stream stream) {
    gpuipc_status status =
        point_submit_writes(ctx, self->words.words, self->words.count, stream, &self->passage);
    point_words_destroy(&self->words, false);
    return status;
}

gpuipc_status mark_write(struct context *ctx, gpuipc_stream stream, mark *out_mark) {
    mark_table *self = ctx->marks;
    mark made = {.exporter = self->exporter};
    writing words = {0};
    os_mutex_lock(&self->mutex);
    mark_slot *one = take(self);
    gpuipc_status status =
        one != NULL
            ? writing_begin(ctx, one, &words)
            : status_fail(GPUIPC_ERR_LIMIT,
                          "streams have not come to %u marks yet; let them, before more are made",
                          MARK_SLOTS - REPEATED);
    if (status == GPUIPC_OK) {
        made.slot = (uint32_t)(one - self->slots);
        made.value = one->value;
    }
    os_mutex_unlock(&self->mutex);
    if (status == GPUIPC_OK) {
        status = writing_submit(ctx, &words, stream);
    }
    if (status == GPUIPC_OK) {
        *out_mark = made;
    }
    return status;
}

gpuipc_status mark_write_loan(struct context *ctx, const mark *self, gpuipc_stream stream,
                              point_word *out_passage) {
    mark_slot *one = &ctx->marks->slots[self->slot];
    writing words = {0};
    os_mutex_lock(&ctx->marks->mutex);
    one->value = self->value;
    gpuipc_status status = writing_begin(ctx, one, &words);
    *out_passage = one->passage;
    os_mutex_unlock(&ctx->marks->mutex);
    return status == GPUIPC_OK ? writing_submit(ctx, &words, stream) : status;
}

void mark_store_loan(struct context *ctx, const mark *self) {
    mark_slot *one = &ctx->marks->slots[self->slot];
    os_mutex_lock(&ctx->marks->mutex);
    one->value = self->value;
    one->passage = POINT_PASSED;
    export_store_words(ctx, word_number(ctx->marks, one), one->value);
    os_mutex_unlock(&ctx->marks->mutex);
}

uint32_t mark_exporter(const struct context *ctx) {
    return ctx->marks->exporter;
}

/* ---- pages that come later -------------------------------------------------------------------- */

/* What has been made is there; what is not yet made is stored when its stream has come to it, unless a later one was
 * made meanwhile. */
static gpuipc_status catch_up(struct context *ctx, const mark_slot *one, point_page *page) {
    const uint32_t slot = (uint32_t)(one - ctx->marks->slots);
    const point_word word = word_of(page, slot, one->value);
    if (point_is_reached(&one->passage)) {
        point_raise(&word);
        return GPUIPC_OK;
    }
    const point_word last = word_of(page, slot, one->value - 1);
    point_raise(&last);
    return watch_add_store(ctx, &word, &one->passage);
}

gpuipc_status mark_page_begin(struct context *ctx, point_page *page) {
    mark_table *self = ctx->marks;
    gpuipc_status status = GPUIPC_OK;
    os_mutex_lock(&self->mutex);
    if (word_value(page, EXPORTER_WORD) == 0) {
        for (uint32_t i = REPEATED; i < SLOTS && status == GPUIPC_OK; i++) {
            if (self->slots[i].value != 0) {
                status = catch_up(ctx, &self->slots[i], page);
            }
        }
        if (status == GPUIPC_OK) {
            status = loan_page_begin(ctx, page);
        }
        if (status == GPUIPC_OK) {
            const point_word number = {page, NUMBER_WORD, ++self->page_number};
            const point_word exporter = {page, EXPORTER_WORD, self->exporter};
            point_store(&number);
            point_store(&exporter);
        }
    }
    os_mutex_unlock(&self->mutex);
    return status;
}

/* ---- marks that repeat ------------------------------------------------------------------------ */

static mark_slot *take_repeated(mark_table *self) {
    for (uint32_t i = 0; i < REPEATED; i++) {
        if (!self->slots[i].is_captured) {
            return &self->slots[i];
        }
    }
    return NULL;
}

static void capture_end(struct context *ctx, mark_capture *one, bool forked) {
    point_words_destroy(&one->words, forked);
    if (!forked) {
        os_mutex_lock(&ctx->marks->mutex);
        ctx->marks->slots[one->slot].is_captured = false;
        os_mutex_unlock(&ctx->marks->mutex);
    }
    free(one);
}

void mark_captures_end(struct context *ctx, linked_list *captures, bool forked) {
    mark_capture *one;
    while ((one = LIST_ITEM(list_take(captures), mark_capture, link)) != NULL) {
        capture_end(ctx, one, forked);
    }
}

static gpuipc_status capture_new(struct context *ctx, const mark_slot *of,
                                 mark_capture **out_capture) {
    mark_capture *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        return status_out_of_memory(sizeof(*made));
    }
    made->slot = (uint32_t)(of - ctx->marks->slots);
    gpuipc_status status = export_copy_words(ctx, word_number(ctx->marks, of), 1, &made->words);
    if (status != GPUIPC_OK) {
        free(made);
        return status;
    }
    *out_capture = made;
    return GPUIPC_OK;
}

static gpuipc_status capture_words(const point_words *self, gpuipc_stream stream) {
    gpuipc_status status = GPUIPC_OK;
    for (size_t i = 0; i < self->count && status == GPUIPC_OK; i++) {
        const point_word unmade = before(&self->words[i]);
        point_store(&unmade);
        status = point_capture_write(&self->words[i], stream);
    }
    return status;
}

gpuipc_status mark_capture_write(struct context *ctx, gpuipc_stream stream, linked_list *captures,
                                 mark *out_mark) {
    mark_table *self = ctx->marks;
    mark_capture *made = NULL;
    gpuipc_status status;
    os_mutex_lock(&self->mutex);
    mark_slot *one = take_repeated(self);
    if (one == NULL) {
        status = status_fail(GPUIPC_ERR_LIMIT,
                             "%u marks are captured in graphs already; release the buffers of some",
                             REPEATED);
    } else {
        status = capture_new(ctx, one, &made);
    }
    if (status == GPUIPC_OK) {
        one->is_captured = true;
        list_prepend(
            captures,
            &made->link); /* also after a failure: what has been captured may be launched */
        *out_mark = (mark){.repeats = true,
                           .slot = made->slot,
                           .exporter = self->exporter,
                           .value = self->page_number};
    }
    os_mutex_unlock(&self->mutex);
    return status == GPUIPC_OK ? capture_words(&made->words, stream) : status;
}

/* ---- waiting ---------------------------------------------------------------------------------- */

gpuipc_status mark_await(struct context *ctx, const mark *self, const point_word *word,
                         os_deadline deadline) {
    gpuipc_status status = point_await(word, 1, &ctx->is_over, deadline);
    if (status == GPUIPC_OK && self->repeats) {
        const point_word unmade = before(word);
        point_store(&unmade);
    }
    return status;
}

gpuipc_status mark_wait(const point_waiter *by, const mark *self, const point_word *word) {
    const point_word unmade = before(word);
    point_word passage;
    device_scope scope;
    point_waiter waiter = *by;
    waiter.goes_back = self->repeats;
    gpuipc_status status = point_wait(&waiter, word, 1, &passage);
    if (status != GPUIPC_OK || !self->repeats) {
        return status;
    }
    status = device_enter_stream(by->context, by->stream, by->device, &scope);
    if (status == GPUIPC_OK) {
        status = point_write_async(&unmade, 1, by->stream, &passage);
        device_leave(&scope);
    }
    return status;
}

/* The watch looks after the word as long as a graph may wait for it: at the end of the peer it stores it again and again. */
static gpuipc_status watch_capture(const point_waiter *by, const point_word *word) {
    point_word passage;
    if (import_record_is_captured(by->of, word)) {
        return GPUIPC_OK;
    }
    gpuipc_status status = point_wait_begin(by, word->page, word, 1, &passage);
    if (status == GPUIPC_OK &&
        (status = import_record_capture(by->of, word, &passage)) != GPUIPC_OK) {
        passage_cancel(&passage);
    }
    return status;
}

gpuipc_status mark_capture_wait(const point_waiter *by, const point_word *word) {
    const point_word unmade = before(word);
    gpuipc_status status = watch_capture(by, word);
    if (status == GPUIPC_OK) {
        status = point_capture_waits(word, 1, by->stream);
    }
    return status == GPUIPC_OK ? point_capture_write(&unmade, by->stream) : status;
}
