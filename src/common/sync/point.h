/* SPDX-License-Identifier: MIT */
/**
 * @file Ready and done points. Each is a word of a timeline semaphore (as in Vulkan's VK_KHR_timeline_semaphore): 64
 * bits that go up, written by one process and waited for by the other until they have a value. The words lie in pages of
 * shared memory, as many for each direction of a connection as there are hand-overs (docs/adr/0007, 0010). Streams write
 * them and wait for them; the host can do both as well. What the peer has written into a page is a number to compare with
 * and nothing else.
 */
#ifndef GPUIPC_POINT_H
#define GPUIPC_POINT_H

#include <gpuipc/gpuipc.h>
#include <stdatomic.h>

#include "base/list.h"
#include "driver.h"
#include "os.h"
#include "sync/deferred.h"
#include "sync/passage.h"
#include "sync/point_peer.h"
#include "sync/trail.h"

struct context;

#define POINT_PAGE_BYTES 106496u
/** How many points a page has: two words each. Of the two words behind them the first says how many were given out, and
 *  the last is 1 when the other side has taken the page in. */
#define POINT_COUNT 4095u
/** The number of the first word behind them. These are the exporter's marks (mark.h) and loans (loan.h). */
#define POINT_WORDS_END 8192u
/** How many pages each direction of a connection has at most, on both sides. */
#define POINT_PAGES_MAX 64u

/** The latest hand-over under a point that was opened here. The peer may have used the point for others since, when it was
 *  returned on a stream. */
typedef struct point_opened {
    uint64_t value;
    bool is_open;
} point_opened;

struct point_page {
    deferred deferred; /**< the first: nothing holds it but streams that may still touch it */
    atomic_uint references;
    struct context *context; /**< no reference: whoever holds a page holds the context */
    atomic_uint_least64_t *words;
    point_peer *peer;     /**< a reference; NULL: nobody has it */
    quota_charge charge;  /**< of that peer, for the mapping */
    point_opened *opened; /**< of a peer's: what is open here under each point; else NULL */
    uint32_t looked_at;   /**< of a peer's: as far as point_page_return_rest() has come */
    os_handle handle;     /**< of an own one, until it has been sent, or as long as it is lasting */
    bool
        is_lasting; /**< its memory may be another page's afterwards: point_page_create_lasting() */
    uint32_t
        farewell; /**< number of a word that is 2 when who has it open touches it no more; 0: there is none */
    list_link spare; /**< of point_context::spares, or leaving: of those that nobody has any more */
    linked_list passages; /**< of streams that may still touch it: passage.c keeps them */
    trail *trail;         /**< likewise, of a channel's page, a reference; or NULL */
    trail_set seen;       /**< of the trail, since nothing else holds the page */
    struct watch_page
        *watched; /**< what watch.c keeps of a channel's page, guarded by the watch's mutex */
    atomic_bool
        is_captured; /**< a graph may touch it at any time: the watch looks after it until that is over */
    atomic_bool
        was_captured;  /**< that graph may still be launched, if by mistake: point_page_is_kept() */
    uint64_t ended_as; /**< of such a one: how many had ended when it did */
    atomic_bool
        is_given_up; /**< nothing is expected of the peer any more: streams do not wait for it */
    atomic_bool
        has_turns; /**< its words are set back (turn.h), so that streams are let go whatever stands there */
    void *
        loans; /**< what loan.c or loan_taken.c keeps of it, guarded by the mutex and freed with the page; or NULL */
    uint32_t device; /**< in whose primary context it is registered (point_stream.c); or _NONE */
    _Atomic(CUdeviceptr) address; /**< where it is there, stored behind it; 0: nobody has asked */
};

/** One hand-over's point, and the value that its words reach. A point is given out with the next value but one. */
typedef struct point {
    point_page *page; /**< NULL: none */
    uint32_t index;   /**< in the page */
    uint64_t value;
} point;

/** The contents are there. */
point_word point_ready_word(const point *at);
/** The receiver no longer uses the memory. */
point_word point_returned_word(const point *at);
/** The receiver no longer has it open either: the same word, with the value after that. Only then is the point given
 *  out again. */
point_word point_released_word(const point *at);

/** What a context has of them. */
typedef struct point_context {
    os_mutex mutex;        /**< guards all of this, and the lists of hand-overs */
    os_mutex registration; /**< held while a page is registered, which may take its time */
    passage_table passages;
    linked_list exports; /**< tables of connections */
    linked_list left;    /**< of connections that are over, while not all is returned */
    atomic_bool
        has_stranded; /**< one of these has records that are to be gone through: export_look_on() */
    uint64_t export_serial;  /**< of the last transfer */
    linked_list returned;    /**< of lingering buffers that no process has open any more */
    uint64_t captured_ended; /**< so many pages that were captured in graphs */
    linked_list spares; /**< pages whose memory waits to be unregistered, or to be used again */
    linked_list
        leaving; /**< pages of peers whose memory waits to be unregistered, and which have not been told farewell */
} point_context;

/** Ends with all that is deferred. Waits for streams that are just passing a word; what some still use is left to the end
 *  of the process, and the log says so. */
extern const struct context_part point_part;

/* ---- pages: point.c ---------------------------------------------------------------------- */

/** Makes a page of words that this side gives out.
 *  @param peer who is to have it; NULL: nobody else */
gpuipc_status point_page_create(struct context *ctx, point_peer *peer, point_page **out_page);

/** Takes in a page of the peer's. The handle stays the caller's. ERR_PROTOCOL when it is no
 *  memory of this size that keeps its size. */
gpuipc_status point_page_open(struct context *ctx, point_peer *peer, os_handle handle,
                              point_page **out_page);

/** The peer has got an own page. @param is_lifeline the peer keeps it to see the end of this program (lifeline.h) */
void point_page_sent(point_page *self, bool is_lifeline);
/** The first @p count points of an own page were given out at least once. Before a record names the last of them. */
void point_page_give_out(point_page *self, uint32_t count);

void point_page_reference(point_page *self);
/** The last one unmaps the page, or defers that (deferred.h). Makes no driver call.
 *  NULL does nothing. */
void point_page_unreference(point_page *self, bool forked);
/** The same, where the mutex is held. NULL does nothing. */
void point_page_unreference_locked(point_page *self);

/** A page that graphs have touched: no graph is to be launched any more. Does nothing to others. */
void point_page_end_capture(point_page *self);
/** Whether it is kept all the same: a graph that was launched before may not have come to its words, and one that is
 *  launched by mistake is to find them. That is so of the latest ones, until their context ends. */
bool point_page_is_kept(point_page *self);

/** Whether nobody will write a word of the peer's any more: its process is gone, or it has closed the connection and
 *  never took this side's page in. */
bool point_page_is_abandoned(point_page *self);
/** Whether the peer has taken in a page of this side's. */
bool point_page_is_taken(const point_page *self);

/** What is handed over under a peer's point is opened (true) or closed. */
void point_set_open(const point *at, bool is_open);
/** Of a page of the peer's, when no more records are taken: what was handed over and nobody here has open is returned. What
 *  the peer gave out since the last call, when it is called again.
 *  @param again from the first point on: what was open then may be released, and given out again, since */
void point_page_return_rest(point_page *self, bool again);

/* ---- pages whose memory is used again: point_spare.c ---------------------------------------- */

/** point_page_create() for a peer of this user: memory is taken over, and its registration, of such a page that no stream of
 *  this process touches, where there is one. Its process has ended, or is this peer's and has said farewell. To unregister memory would
 *  wait for the devices, and who makes pages again and again may never come to that. What a process that has ended
 *  had forked may still have it mapped, so that it goes from one process of this user to another one only.
 *  @param farewell point_page::farewell */
gpuipc_status point_page_create_lasting(struct context *ctx, point_peer *peer, uint32_t farewell,
                                        point_page **out_page);
/** What a farewell's word is then. */
#define POINT_FAREWELL 2u
/** Says farewell to some of the peers' pages that nothing here touches any more, although their memory is registered still. By who
 *  ends and begins what has such pages. No call of the driver that waits. */
void point_say_farewells(struct context *ctx);

/* ---- words: point.c ------------------------------------------------------------------------ */

/** Words of pages that stay, with a reference on the page of each. All zero is none. */
typedef struct point_words {
    point_word *words; /**< malloc */
    size_t count;
} point_words;

/** None yet, and room for so many. ERR_OUT_OF_MEMORY */
gpuipc_status point_words_new(size_t most, point_words *out_words);
/** One more, where there is room. */
void point_words_add(point_words *self, const point_word *word);
void point_words_destroy(point_words *self, bool forked);

/** As a stream compares: cuda.h, CU_STREAM_WAIT_VALUE_GEQ. */
static inline bool point_is_reached(const point_word *word) {
    return word->page == NULL ||
           atomic_load_explicit(&word->page->words[word->at], memory_order_acquire) - word->value <
               UINT64_C(1) << 63;
}
static inline void point_store(const point_word *word) {
    atomic_store_explicit(&word->page->words[word->at], word->value, memory_order_release);
}
/** The same, unless the word has that value or a later one. */
void point_raise(const point_word *word);

/** Waits on the host until all have their values. ERR_TIMEOUT; ERR_LOST when the peer is gone first; ERR_RELEASED when
 *  *interrupted becomes true (may be NULL). That is a connection's flag, which its close sets, or a context's, which its end
 *  sets: who waits with the one is not told of the other. */
gpuipc_status point_await(const point_word *words, size_t count, const atomic_bool *interrupted,
                          os_deadline deadline);

/* ---- words and streams: point_stream.c ----------------------------------------------------- */

/** Where a page is for the current CUDA context, in whose device's primary context it is registered
 *  unless that has been done. */
gpuipc_status point_page_address(point_page *self, CUdeviceptr *out_address);

/** Whether the driver still knows it, if it was registered. Keeps the record. */
bool point_page_is_registered(const point_page *self);

/** Undoes the registration with the driver, if there is one. */
void point_page_unregister(point_page *self);

/** Whether streams of the current CUDA context wait for words by themselves. */
bool point_has_stream_waits(const struct context *ctx);
/** Those of the device of that number, which is the current one. GPUIPC_DEVICE_NONE: it is not known which that is */
bool point_has_stream_waits_on(const struct context *ctx, uint32_t index);

/** Lets a stream of the current CUDA context write words of one page when it comes there. Where nothing does
 *  that by itself (a word operation, a host function), the calling thread waits for the stream.
 *  @param out_passage that it has done so */
gpuipc_status point_write_async(const point_word *words, size_t count, gpuipc_stream stream,
                                point_word *out_passage);

/** The two parts of it, for words of several pages: first a passage, until which the pages stay mapped. It is to be used up
 *  by point_submit_writes() or passage_cancel().
 *  @param words each page once; none: there is the passage alone */
gpuipc_status point_write_begin(struct context *ctx, const point_word *words, size_t count,
                                point_word *out_passage);
/** Waits while the stream's queue has no room, so no lock is held. All words of up to 63 pages, and the passage behind
 *  them, are one call of the driver.
 *  @param passage is used up also when it fails; POINT_PASSED: there is none (trail.h), and after a failure nothing is left on the
 *         stream */
gpuipc_status point_submit_writes(struct context *ctx, const point_word *words, size_t count,
                                  gpuipc_stream stream, const point_word *passage);
/** The same without a passage, for a stream that can: point_has_stream_waits(). */
gpuipc_status point_submit_words(const struct context *ctx, const point_word *words, size_t count,
                                 gpuipc_stream stream);

/** Puts into a stream that is being captured that it writes a word, or waits for words. Their pages stay mapped as long as
 *  the graph may be launched: the caller sees to that. A passage is waited for in this way by any stream. */
gpuipc_status point_capture_write(const point_word *word, gpuipc_stream stream);
gpuipc_status point_capture_waits(const point_word *words, size_t count, gpuipc_stream stream);
/** Lets a stream of the current CUDA context, captured or not, write the low 32 bits of up to POINT_HALVES_MAX words, in
 *  this order, where point_has_stream_waits(). One call: after a failure nothing is left on the stream. The pages stay
 *  mapped until it has: the caller sees to that. */
gpuipc_status point_write_halves(const point_word *words, size_t count, gpuipc_stream stream);
#define POINT_HALVES_MAX 64u

/** After a failure: waits until a stream of the current CUDA context has done what it had been given. Keeps the record. */
void point_settle(const struct context *ctx, gpuipc_stream stream);

/** Lets a stream of the current CUDA context wait for words and then write its passage, where point_has_stream_waits().
 *  For point_wait.c, trail.c and contents_flow.c alone, which look after the stream.
 *  @param passage as for point_submit_writes()
 *  @param may_store the words are awaited by this stream alone, so that a failure may let it go on by
 *         storing them; else the failure waits for the stream */
gpuipc_status point_submit_waits(struct context *ctx, const point_word *words, size_t count,
                                 gpuipc_stream stream, const point_word *passage, bool may_store);

#endif
