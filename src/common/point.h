/* SPDX-License-Identifier: MIT */
/**
 * @file Ready and done points: 64-bit words in a page of shared memory, one page for each direction of a
 * connection (docs/adr/0007). Streams write them and wait for them; the host can do both as well. What
 * the peer has written into a page is a number to compare with and nothing else.
 */
#ifndef GPUIPC_POINT_H
#define GPUIPC_POINT_H

#include <gpuipc/gpuipc.h>
#include <stdatomic.h>

#include "driver.h"
#include "os.h"

struct context;

#define POINT_PAGE_BYTES 65536u
/** How many points a page has: two words each. The last word of a page is 1 when the other side has taken
 *  it in. */
#define POINT_COUNT 4095u

typedef struct point_page point_page;

/** One point, and the value that its words reach. A point is given out with the next value but one. */
typedef struct point {
    uint32_t index; /**< 1 + its number; 0: none */
    uint64_t value;
} point;

/** A word of a page, and the value that is written there or waited for. */
typedef struct point_word {
    uint32_t at; /**< its number in the page */
    uint64_t value;
} point_word;

/** The contents are there. */
point_word point_ready_word(const point *at);
/** The receiver no longer uses the memory. */
point_word point_returned_word(const point *at);
/** And no longer has it open: the same word, with the value after that. Only then is the point given
 *  out again. */
point_word point_released_word(const point *at);

/** What a context has of them. */
typedef struct point_context {
    os_mutex mutex;  /**< guards all pages, and the lists of lends */
    point_page *own; /**< of this process alone, whose words tell of passages; NULL until used */
    struct ready_event *events;     /**< that receivers may still wait for */
    struct ready_event *last_event; /**< of those, where there are any */
    struct lend_list *lent;         /**< of buffers that are not returned everywhere */
    struct lend_list *next_lent;    /**< the one to look at next; NULL: the first */
    uint64_t asked_ns;              /**< when a hand-over last asked whether a process lives */
    point_page *orphans;     /**< own ones whose connection is over, of peers that lived then */
    point_page *next_orphan; /**< the one to ask about next; NULL: the first */
} point_context;

gpuipc_status point_context_init(point_context *self);
/** With all that is deferred. Waits for streams that are just passing a word.
 *  @param forked no driver calls  @return as deferred_end() */
bool point_context_end(struct context *ctx, os_deadline deadline, bool forked);

/* ---- pages: point.c ---------------------------------------------------------------------- */

/** Makes the page of this side's points.
 *  @param peer who is to have it; copied. NULL: nobody else */
gpuipc_status point_page_create(struct context *ctx, const os_peer *peer, point_page **out_page);

/** Takes in the page of the peer's points. The handle stays the caller's. ERR_PROTOCOL when it is no
 *  memory of this size that keeps its size. */
gpuipc_status point_page_open(struct context *ctx, const os_peer *peer, os_handle handle,
                              point_page **out_page);

struct context *point_page_context(const point_page *self);

/** Whose it is, or who is to have it. */
const os_peer *point_page_peer(const point_page *self);

/** The handle of an own page, which is there until it has been sent; then none. */
os_handle point_page_handle(const point_page *self);
void point_page_sent(point_page *self);

void point_page_reference(point_page *self);
/** The last one unmaps the page, or defers that (deferred.h). Makes no driver call.
 *  NULL does nothing. */
void point_page_unreference(point_page *self, bool forked);
/** The same, where the mutex is held. NULL does nothing. */
void point_page_unreference_locked(point_page *self);

/** From now on the connection's end is the peer's, where the system cannot say whether its process
 *  lives. NULL: it has come. */
void point_page_set_connection(point_page *self, os_connection *connection);
/** Of a page of the peer's, after which no more records come: what nobody here has borrowed is
 *  returned. */
void point_page_return_rest(point_page *self);

/** Whether one of the next two has found it gone. The mutex is held. */
bool point_page_is_known_gone(const point_page *self);
/** Whether the process at the other end is gone; where the system cannot say, the connection. */
bool point_page_peer_is_gone(point_page *self);
/** The same, where the mutex is held. */
bool point_page_peer_is_gone_locked(point_page *self);

/* ---- what is over: point_collect.c ---------------------------------------------------------- */

/** At each hand-over: forgets what peers have returned, and events that are over. Looks at some of them, in turn,
 *  and makes a system call now and then. */
void point_collect_some(struct context *ctx);
/** At the end of a connection that had pages: looks at more of them, and asks about some processes whose
 *  connections ended before they did, so that what dead ones leave does not grow with their number. */
void point_collect_more(struct context *ctx);

/** An own page's connection is over. Its peer is asked about from now on, if it lives still. */
void point_page_leave(point_page *self);

/* ---- points and words: point.c ------------------------------------------------------------- */

/** Takes a free point of an own page. False when there is none; or hardly any, since where that is so for long it
 *  looks at some of them each time. */
bool point_take(point_page *self, point *out_point);
/** The point is not given out again before the stream has passed this place. */
void point_set_passage(point_page *self, const point *at, const point_word *passage);

/** Whether a peer's record names a point that a page has. */
bool point_is_valid(const point *at);
/** A borrower of a peer's point comes (true) or goes. */
void point_borrow(point_page *self, const point *at, bool comes);

bool point_is_reached(const point_page *self, const point_word *word);
void point_store(point_page *self, const point_word *word);

/** Waits on the host. ERR_TIMEOUT; ERR_LOST when the peer is gone first; ERR_RELEASED when
 *  *interrupted becomes true (may be NULL). */
gpuipc_status point_await(point_page *self, const point_word *word, const atomic_bool *interrupted,
                          os_deadline deadline, const char *operation);

/* ---- words and streams: point_stream.c ----------------------------------------------------- */

/** Where a page is for the current CUDA context, in whose device's primary context it is registered
 *  unless that has been done. */
gpuipc_status point_page_address(point_page *self, CUdeviceptr *out_address);

/** Whether streams of the current CUDA context wait for words by themselves. */
bool point_has_stream_waits(const struct context *ctx);

/** Lets a stream of the current CUDA context write words when it comes there. Where nothing does
 *  that by itself (a word operation, a host function), the calling thread waits for the stream.
 *  @param out_passage that it has done so */
gpuipc_status point_write_async(point_page *self, const point_word *words, size_t count,
                                gpuipc_stream stream, point_word *out_passage);

/** Lets a stream of the current CUDA context wait for words, where point_has_stream_waits().
 *  @param passage of point_passage_take(), which this call uses up also when it fails
 *  @param may_store they are awaited by this stream alone, so that a failure may let it go on by
 *         storing them; else the failure waits for the stream */
gpuipc_status point_wait_async(point_page *self, const point_word *words, size_t count,
                               gpuipc_stream stream, const point_word *passage, bool may_store);

/** A word that says whether a stream has passed a place, and which no other process can write. As long
 *  as it does not say so, the page @p of stays mapped. ERR_LIMIT: there are no more, wait on the host. */
gpuipc_status point_passage_take(point_page *of, point_word *out_passage);
/** It did not come to it. */
void point_passage_cancel(struct context *ctx, const point_word *passage);
bool point_has_passed(struct context *ctx, const point_word *passage);

#endif
