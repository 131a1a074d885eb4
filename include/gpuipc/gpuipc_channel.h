/* SPDX-License-Identifier: MIT */
/**
 * @file Channels: frames flow from one process to many, in memory that all have open. Part of gpuipc.h, which
 * includes it by gpuipc_ticket.h. The rules that hold everywhere stand there.
 *
 * A channel has a fixed number of slots, which are equal parts of one buffer. The writer loans a slot, fills it and publishes
 * it. A reader takes the frame, uses it and gives it back. None of these calls sends a message, exports or maps
 * anything. Without a stream none calls the driver, and none makes a system call but to wake or to wait.
 *
 * With a stream, each call is in the order of that stream. The contents are ready when the writer's stream comes to the
 * publication. A slot is free when the reader's stream comes to where it was given back. With ::GPUIPC_NO_STREAM the
 * caller has done his work on the slot when he calls. Either side may use either way, for each frame anew.
 *
 * A reader waits in gpuipc_subscription_take(), or in an event loop of its own
 * (gpuipc_subscription_get_wait_handle()); a writer waits in gpuipc_channel_loan().
 *
 * A stream that is being captured into a graph is refused (::GPUIPC_ERR_CUDA): the words of a channel go up, and a
 * graph would write the same value at each launch. A channel of turns is for that (gpuipc_channel_config::turns). It has
 * one slot. The writer and its readers have it by turns, and each turn is said by words that are set back. So the four
 * calls put the same words on a stream each time, and a CUDA graph can repeat them:
 * - The writer captures gpuipc_channel_loan(), the work that fills the slot, and gpuipc_channel_publish(). A reader
 *   captures gpuipc_subscription_take(), its work, and gpuipc_subscription_give_back(). Either may also call them on a
 *   stream that is not captured. Without a stream they are refused (::GPUIPC_ERR_INVALID_ARGUMENT).
 * - It is the stream that waits, until each reader has given the slot back, or until the writer has published. Every reader
 *   gets every turn.
 * - The stream is given that wait before the other end's stream is given its part. So the two ends must not have one stream, and a
 *   stream must not wait for a turn in front of work that this turn needs.
 * - A host that is not captured may be 31 turns ahead of its streams, and is at most 62. Then a loan, or a take, waits for them
 *   until its timeout (::GPUIPC_ERR_TIMEOUT). So who stands still does not fill the queue of the other end's stream. What the
 *   program puts there besides may. Then the driver waits in the call that comes next, and nothing else of the library
 *   waits for that call but gpuipc_subscription_close() for a take. The end of the channel, or of the subscription, lets it
 *   go where its stream waits for the other end.
 * - While a give-back, or a publication, has not returned, its end still has the slot (::GPUIPC_ERR_LIMIT).
 * - All turns of one end are in one order. What is not captured the library orders. Launches on several streams, and
 *   launches beside calls, the program orders.
 * - A loan that is discarded changes no word, and neither does a take that is given back with ::GPUIPC_NO_STREAM: the turn
 *   is begun again. That is also the way out when a capture has failed in between.
 * - A frame is the whole slot. It has no header and no sequence number.
 * - A reader that comes after a capture is not in that graph: it gets nothing of it, and keeps nobody waiting.
 *   gpuipc_reader_info::captured says so. Who captures anew takes it in.
 * - Who ends, or closes, keeps nobody waiting: neither in the launch that waits nor in any later one. The writer sees it in
 *   gpuipc_channel_readers(), a reader in gpuipc_subscription_check(). A process that stands still is waited for. A
 *   writer that will not wait for it any more destroys the channel.
 * - A graph may be launched until the channel is destroyed, or the subscription closed, and no longer. What was launched by
 *   then goes on, without the other side. A launch that comes later by mistake finds the words for a while. The slot may
 *   be gone; and after gpuipc_context_destroy() the words are, so that the CUDA context fails.
 * - Until then the whole process puts off what has to wait for all streams, as for marks in graphs
 *   (gpuipc_buffer_await_mark_async()).
 */
#ifndef GPUIPC_GPUIPC_CHANNEL_H
#define GPUIPC_GPUIPC_CHANNEL_H

#include "gpuipc.h"

#include "gpuipc_ticket.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpuipc_channel gpuipc_channel;           /**< the writer's end */
typedef struct gpuipc_subscription gpuipc_subscription; /**< a reader's end */

/** In place of a stream: there is none; what is to be waited for, the calling thread waits for. */
#define GPUIPC_NO_STREAM ((gpuipc_stream)(intptr_t)-1)
/** The most slots of a channel. */
#define GPUIPC_CHANNEL_SLOTS_MAX 64
/** The most readers of a channel at a time. */
#define GPUIPC_CHANNEL_READERS_MAX 32
/** The most bytes of the header that goes with a frame. */
#define GPUIPC_FRAME_HEADER_MAX 512

/** A frame, as its writer has it on loan, or its reader has taken it. */
typedef struct gpuipc_frame {
    size_t struct_size; /**< sizeof(gpuipc_frame), set by the caller */
    uint64_t id;        /**< the library's own: leave it as it is */
    uint64_t address;   /**< of the slot, for the device of this end (CUdeviceptr) */
    uint64_t capacity;  /**< of the slot, in bytes */
    /** How much of it is used: the writer says so before he publishes (a loan begins with the capacity); to the reader it
     *  is told. At most the capacity. */
    uint64_t bytes;
    uint64_t
        sequence; /**< to the reader: from 1 on, and one more for each frame that the writer made or skipped */
    uint64_t
        missed; /**< to the reader: so many he has not seen between the one that he took before, or his beginning, and this one */
    /** The caller's own bytes beside the frame (time, shape, names). The writer points to them before he publishes, and
     *  they are copied. To the reader: the library's copy, until he gives the frame back. */
    const void *header;
    size_t header_bytes; /**< how many; at most gpuipc_channel_config::header_bytes */
} gpuipc_frame;
/** The start of a ::gpuipc_frame: struct_size is set, all else is zero. */
#define GPUIPC_FRAME_INIT GPUIPC_SIZED(gpuipc_frame)

/* ---- the writer ------------------------------------------------------------------------------ */

/** What the writer does while readers that want every frame have all slots. */
typedef enum gpuipc_full_policy {
    GPUIPC_FULL_WAIT = 0, /**< a loan waits, until its timeout */
    GPUIPC_FULL_SKIP =
        1, /**< where readers have all slots a loan fails at once (::GPUIPC_ERR_BUSY), and they count a frame as missed */
    GPUIPC_FULL_DROP =
        2 /**< a loan waits, and drops the readers in its way when there was no slot for drop_after_ms */
} gpuipc_full_policy;

/** How a channel is made. */
typedef struct gpuipc_channel_config {
    size_t struct_size; /**< sizeof(gpuipc_channel_config) */
    /** Whose memory the slots are, from its start on: of the server's context, one that can be shared. The channel keeps
     *  it. Whoever may open the channel can reach all of it. */
    gpuipc_buffer *buffer;
    uint32_t slots;       /**< how many; 1 to ::GPUIPC_CHANNEL_SLOTS_MAX */
    uint32_t max_readers; /**< at a time; 0: ::GPUIPC_CHANNEL_READERS_MAX, which is the most */
    uint64_t slot_bytes;  /**< of each; slots times this is at most the buffer's size */
    uint32_t
        header_bytes; /**< the most that goes with a frame; at most ::GPUIPC_FRAME_HEADER_MAX */
    uint32_t
        max_held; /**< the most frames that a reader may hold at a time; 0: one less than slots, but 1 at least */
    gpuipc_full_policy full; /**< what a loan does when there is no slot */
    /** With ::GPUIPC_FULL_DROP: how long slow readers are waited for, from the first loan on that found no slot, and from
     *  when what they have is ready. So it passes also where each loan waits for less. */
    uint32_t drop_after_ms;
    /** By which readers find it, in the runtime directory of the server's context; NULL: by its ticket alone. As a
     *  listener's, without '@'. A listener may have the same name, but none may be called "channel-" and that name. Whoever
     *  the server lets in can open it. The name is free again when the channel, its server or the process ends. */
    const char *name;
    /** 1: a channel of turns, whose calls can be captured into CUDA graphs (see the top). It has one slot, no headers, and
     *  ::GPUIPC_FULL_WAIT. 0: any other. */
    uint32_t turns;
    uint32_t reserved; /**< 0 */
} gpuipc_channel_config;
/** The start of a ::gpuipc_channel_config: struct_size is set, all else is zero. */
#define GPUIPC_CHANNEL_CONFIG_INIT GPUIPC_SIZED(gpuipc_channel_config)

/**
 * Makes a channel, and a ticket for its readers. Slots begin empty.
 * @param server answers the ticket; when it ends, nobody opens the channel any more, and who has it open goes on
 * @param config with buffer, slots and slot_bytes
 * @param out_channel the new channel
 * @param out_ticket goes to the readers through any channel that the programs have. gpuipc_server_revoke() ends it alone
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE (the slots do not lie in the buffer), ::GPUIPC_ERR_LIMIT (too many slots, readers or
 *         bytes of headers), ::GPUIPC_ERR_NOT_SHAREABLE, ::GPUIPC_ERR_NAME_IN_USE (a living channel has the name),
 *         ::GPUIPC_ERR_NAME_INVALID, ::GPUIPC_ERR_NAME_TOO_LONG, ::GPUIPC_ERR_TIMEOUT (as gpuipc_listener_open()),
 *         ::GPUIPC_ERR_UNSAFE_DIRECTORY and ::GPUIPC_ERR_ACCESS_DENIED (with a name: as gpuipc_listener_open()),
 *         ::GPUIPC_ERR_NOT_FOUND (as gpuipc_buffer_share()), ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership the caller's; gpuipc_channel_destroy() ends it  @threads any
 * @blocking no. With a name as gpuipc_listener_open()  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_channel_create(gpuipc_server *server,
                                                              const gpuipc_channel_config *config,
                                                              gpuipc_channel **out_channel,
                                                              gpuipc_ticket *out_ticket);

/**
 * Ends a channel. Readers get what was published, and then ::GPUIPC_ERR_PEER_CLOSED. Readers never see a frame that is on loan, or
 * whose kernel was not said to be launched. A reader of every frame then sees no later frame either.
 * @param channel NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED  @ownership takes the channel, and gives its hold on the buffer up
 * @threads any  @blocking some 20 ms, until the thread that looked after readers has ended. For much that is kept, as
 *          gpuipc_connection_close()  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_channel_destroy(gpuipc_channel *channel);

/**
 * Loans a slot: of those that no reader has, the one that was published longest ago. With a stream, a slot will do that
 * readers give back in the order of their streams: this stream waits for those, and for nobody who has given back
 * already. When such a reader ends, or is dropped, the stream goes on.
 *
 * A slot is not loaned before the stream that published in it has come to that. For the same stream it is, where a reader
 * has given that frame back. So a writer whose frames nobody takes is ahead of its stream by as many as there are slots.
 *
 * Where there is none, what gpuipc_channel_config::full says is done.
 *
 * Streams are at most some 62 frames behind the host. So a reader that has given back in the order of its stream, and whose
 * stream does not come to it, does not fill the queue of the writer's. Then this call waits, up to its timeout. Nobody is
 * dropped or skipped for that: it may be the writer's own work that takes so long. What the program puts on the stream
 * besides may fill the queue. Then the driver waits in the call that comes next, and other calls of this channel wait
 * for that one.
 * @param channel a live channel
 * @param stream a CUstream, which is to fill the slot; NULL: the default stream of the buffer's device;
 *        ::GPUIPC_NO_STREAM: the caller fills it when the call returns
 * @param timeout_ms for readers to give something back, or for streams that are too far behind
 * @param out_frame its struct_size is set by the caller; receives id, address, capacity and bytes
 * @errors ::GPUIPC_ERR_TIMEOUT (the sentence says who has something), ::GPUIPC_ERR_BUSY (that as well, with
 *         ::GPUIPC_FULL_SKIP), ::GPUIPC_ERR_LIMIT (all slots are on loan; or, captured: graphs of this channel have
 *         waited for 256 readers, with those that have ended), ::GPUIPC_ERR_CUDA (also for a stream that is being captured,
 *         but of a channel of turns), ::GPUIPC_ERR_NOT_SUPPORTED (turns, where streams cannot wait for words),
 *         ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership gpuipc_channel_publish() or gpuipc_channel_discard() is owed
 * @threads any
 * @blocking up to timeout_ms; while the stream's queue is full; where streams cannot wait for words, the host waits for them
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_channel_loan(gpuipc_channel *channel,
                                                            gpuipc_stream stream, int timeout_ms,
                                                            gpuipc_frame *out_frame);

/**
 * Publishes what was loaned: all readers see it from now on, and it is ready when the stream comes to this.
 * @param channel the one that it was loaned of
 * @param frame as it was loaned, with bytes, header and header_bytes set
 * @param stream a CUstream, which fills the slot; NULL: the default stream of the buffer's device; ::GPUIPC_NO_STREAM: it
 *        is filled
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (it is not on loan: it was never, or was published or discarded),
 *         ::GPUIPC_ERR_INVALID_ARGUMENT (it is published without a stream, and was loaned for one that has not come to it,
 *         while a reader that this waits for has the frame before), ::GPUIPC_ERR_INVALID_ARGUMENT (of turns: only one of the two calls was captured),
 *         ::GPUIPC_ERR_OUT_OF_RANGE (more bytes than the capacity; of turns, also fewer), ::GPUIPC_ERR_LIMIT (a header
 *         longer than was said), ::GPUIPC_ERR_CUDA, ::GPUIPC_ERR_STRUCT_SIZE. After an error it is still on loan
 * @ownership ends the loan  @threads any
 * @blocking while the stream's queue is full; for the stream where the driver has neither words nor host functions. Without a
 *           stream: up to 100 ms for one that the frame was loaned for, and for one that published in its slot before
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_channel_publish(gpuipc_channel *channel,
                                                               const gpuipc_frame *frame,
                                                               gpuipc_stream stream);

/**
 * Gives a loan up: nobody sees it. No stream may write the slot any more.
 * @param channel the one that it was loaned of
 * @param frame as it was loaned
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (it is not on loan), ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership ends the loan  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_channel_discard(gpuipc_channel *channel,
                                                               const gpuipc_frame *frame);

/** How a reader stands. */
typedef enum gpuipc_reader_state {
    GPUIPC_READER_ACTIVE = 1, /**< it reads */
    GPUIPC_READER_CLOSED = 2, /**< it has closed its subscription */
    GPUIPC_READER_DROPPED =
        3,                  /**< it was too slow (::GPUIPC_FULL_DROP), or took more than it may */
    GPUIPC_READER_ENDED = 4 /**< its process has ended */
} gpuipc_reader_state;

/** A reader of a channel, or one of the last that are none any more. */
typedef struct gpuipc_reader_info {
    uint64_t process_id;  /**< as this process's PID namespace numbers it; 0: not in it */
    uint64_t since_ms;    /**< when it came, in milliseconds since 1970 (UTC) */
    uint64_t passed_over; /**< frames that it did not take in time, since it wants the newest */
    uint32_t lag;         /**< frames that wait for it */
    uint32_t
        held; /**< frames that it has taken and not given back; of turns: 1 while the slot is its own */
    gpuipc_reader_state state; /**< see the type */
    uint32_t delivery;         /**< ::gpuipc_delivery */
    /** Of a channel of turns: so many publications that were captured go to it. 0: graphs that were captured before it
     *  came pass it by, and one that is captured now takes it in. */
    uint32_t captured;
    uint32_t reserved; /**< 0 */
} gpuipc_reader_info;

/**
 * Lists the readers. Those that are none any more stay in the list until their place is needed. Asks the system whether
 * each lives.
 * @param channel a live channel
 * @param readers room for @p capacity of them; may be NULL when that is 0
 * @param capacity how many of them there is room for
 * @param out_count how many there are; also written with ::GPUIPC_ERR_TOO_SMALL
 * @errors ::GPUIPC_ERR_TOO_SMALL  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_channel_readers(gpuipc_channel *channel,
                                                               gpuipc_reader_info *readers,
                                                               size_t capacity, size_t *out_count);

/* ---- the reader ------------------------------------------------------------------------------ */

/** Which frames a reader gets. */
typedef enum gpuipc_delivery {
    GPUIPC_DELIVERY_ALL = 0,   /**< every frame, in order: a slot waits for it */
    GPUIPC_DELIVERY_NEWEST = 1 /**< the newest there is; what it passes over is counted, and free */
} gpuipc_delivery;

/** Where a reader begins. */
typedef enum gpuipc_first {
    GPUIPC_FIRST_NEXT = 0,   /**< with the next frame that is published */
    GPUIPC_FIRST_NEWEST = 1, /**< with the last one that is ready, if it is still in its slot */
    GPUIPC_FIRST_OLDEST =
        2 /**< with those that are ready and still in their slots, the oldest first, from where on none is left out */
} gpuipc_first;

/** The most that gpuipc_subscription_config::look_us may be: a second. */
#define GPUIPC_LOOK_US_MAX 1000000u

/** How a subscription is opened. NULL in place of it, or zero everywhere: every frame from the next on, one at a time, for
 *  the GPU that owns the memory. */
typedef struct gpuipc_subscription_config {
    size_t struct_size;       /**< sizeof(gpuipc_subscription_config) */
    uint32_t device;          /**< as gpuipc_open_config::device */
    int32_t timeout_ms;       /**< for the server's answer; 0: five seconds; -1: for ever */
    gpuipc_delivery delivery; /**< which frames */
    gpuipc_first first;       /**< beginning with which */
    uint32_t max_held;        /**< the most frames that it has at a time; 0: 1 */
    /** In microseconds. Who waits for a frame looks for so long before it sleeps; 0: 50; up to ::GPUIPC_LOOK_US_MAX. A
     *  processor is busy meanwhile. For that the writer need not wake it. A take that runs out of time leaves the next one the
     *  rest. A signal handler that runs while it looks is not noticed (::GPUIPC_CONTEXT_INTERRUPTIBLE). */
    uint32_t look_us;
    gpuipc_peer_policy policy; /**< whose channel it may be; NULL: only the same user's */
    void *policy_user_data;    /**< given to policy */
} gpuipc_subscription_config;
/** The start of a ::gpuipc_subscription_config: struct_size is set, all else is zero. */
#define GPUIPC_SUBSCRIPTION_CONFIG_INIT GPUIPC_SIZED(gpuipc_subscription_config)

/**
 * Opens a channel. Each call makes a reader of its own, also in the process that writes. The slots are opened for reading.
 * @param context that it is of
 * @param ticket as gpuipc_channel_create() made it, and not narrowed
 * @param config NULL for the defaults
 * @param out_subscription the new reader
 * @errors ::GPUIPC_ERR_OTHER_KIND (the ticket of a buffer), ::GPUIPC_ERR_LIMIT (as many readers as may be, or
 *         max_held is more than the channel lets),
 *         ::GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED (the device cannot reach the slots),
 *         ::GPUIPC_ERR_STRUCT_SIZE, and as gpuipc_buffer_open(). Where the first take does not say so,
 *         ::GPUIPC_ERR_CONNECTION_BROKEN (the writer has dropped the reader before it was open: it may try again),
 *         ::GPUIPC_ERR_PEER_CLOSED (the channel has ended meanwhile)
 * @ownership the caller's; gpuipc_subscription_close() ends it  @threads any
 * @blocking up to timeout_ms for the server, and for the driver's mapping  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_subscription_open(
    gpuipc_context *context, const gpuipc_ticket *ticket, const gpuipc_subscription_config *config,
    gpuipc_subscription **out_subscription);

/**
 * Opens the channel that has a name at this moment; waits for one to appear while there is time. Whoever has the name
 * later is another channel: a subscription stays with the one that it has opened, and learns of its end.
 * @param context in whose runtime directory the name is
 * @param name as gpuipc_channel_config::name
 * @param config NULL for the defaults; its policy is asked at each try, so more than once about one process
 * @param out_subscription the new reader
 * @errors ::GPUIPC_ERR_NOT_FOUND (nobody had the name before the time ran out), ::GPUIPC_ERR_TIMEOUT (who has it does not
 *         answer), ::GPUIPC_ERR_ACCESS_DENIED, ::GPUIPC_ERR_PROTOCOL (the name is another program's),
 *         ::GPUIPC_ERR_NAME_INVALID, ::GPUIPC_ERR_NAME_TOO_LONG, ::GPUIPC_ERR_UNSAFE_DIRECTORY,
 *         ::GPUIPC_ERR_RELEASED (also when the context is destroyed meanwhile), and as gpuipc_subscription_open()
 * @ownership the caller's; gpuipc_subscription_close() ends it  @threads any
 * @blocking up to timeout_ms for the name and the server, and for the driver's mapping  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_subscription_open_named(
    gpuipc_context *context, const char *name, const gpuipc_subscription_config *config,
    gpuipc_subscription **out_subscription);

/**
 * Ends a subscription, and gives back what it still has, as gpuipc_subscription_give_back() without a stream does.
 * @param subscription NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED  @ownership takes the subscription  @threads any
 * @blocking as gpuipc_buffer_release() of the slots, up to 20 ms for the thread of a wait handle, and for much that is
 *           kept as gpuipc_connection_close(). Of turns: while another
 *           thread's take waits for room on its stream  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_subscription_close(gpuipc_subscription *subscription);

/**
 * Takes a frame. With a stream, it is the stream that waits for the contents, and only where they are not ready
 * yet. Several may be taken before any is given back, up to gpuipc_subscription_config::max_held.
 *
 * A thread that waits looks for some 50 us, and then sleeps until it is woken.
 * @param subscription a live subscription
 * @param stream a CUstream, which is to use the frame; NULL: the default stream of the subscription's device;
 *        ::GPUIPC_NO_STREAM: the contents are ready when the call returns
 * @param timeout_ms for a frame to be there, and its contents where no stream waits for them. What was there and not
 *        ready is the next call's. Also for streams of this reader, once they are more than 31 frames behind the host
 * @param out_frame its struct_size is set by the caller; receives all else
 * @errors ::GPUIPC_ERR_TIMEOUT, ::GPUIPC_ERR_LIMIT (it has as many as it may; or the next is in the slot of one that it has),
 *         ::GPUIPC_ERR_PEER_CLOSED (the writer has ended, and there are no more frames),
 *         ::GPUIPC_ERR_CONNECTION_BROKEN (the writer has dropped this reader, which was too slow), ::GPUIPC_ERR_BUSY
 *         (another thread is taking), ::GPUIPC_ERR_PROTOCOL (the writer says of a frame what cannot be),
 *         ::GPUIPC_ERR_CUDA (also for a stream that is being captured, but of a channel of turns), ::GPUIPC_ERR_RELEASED
 *         (also when another thread closes it meanwhile), ::GPUIPC_ERR_NOT_SUPPORTED (turns, where streams cannot wait for
 *         words), ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership gpuipc_subscription_give_back() is owed  @threads one at a time; the others of this object any
 * @blocking up to timeout_ms; while the stream's queue is full; where streams cannot wait for words, the host waits for them
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_subscription_take(gpuipc_subscription *subscription,
                                                                 gpuipc_stream stream,
                                                                 int timeout_ms,
                                                                 gpuipc_frame *out_frame);

/**
 * Asks whether the writer is there. Frames that were published before its end can still be taken.
 *
 * A reader whose graph runs learns it by this: when it answers ::GPUIPC_OK after a launch is done, the turns of that launch
 * were the writer's. Else a launch may have gone on without a new frame.
 * @param subscription a live subscription
 * @errors ::GPUIPC_ERR_PEER_CLOSED (the writer has ended the channel, or its process has ended),
 *         ::GPUIPC_ERR_CONNECTION_BROKEN (the writer has dropped this reader, which was too slow)
 * @ownership borrows  @threads any  @blocking no; a question to the system  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status
gpuipc_subscription_check(gpuipc_subscription *subscription);

/**
 * Gives a frame back, in any order: its slot may be written when the stream comes to this.
 * @param subscription the one that took it
 * @param frame as it was taken
 * @param stream a CUstream, which uses the frame; NULL: the default stream of the subscription's device;
 *        ::GPUIPC_NO_STREAM: nothing uses it any more. In a channel of turns: the take is given up, and the turn is still
 *        this reader's
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (it has not got it: another took it, or it was given back),
 *         ::GPUIPC_ERR_INVALID_ARGUMENT (it still has it: it is given back without a stream, and one that had the slot
 *         before has not come to that), ::GPUIPC_ERR_INVALID_ARGUMENT (of turns: only one of the two calls was
 *         captured), ::GPUIPC_ERR_LOST (it is given back, and the writer, or its channel, had ended before it was ready: what was read
 *         is no frame), ::GPUIPC_ERR_CUDA (it still has it), ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership ends what gpuipc_subscription_take() began  @threads any
 * @blocking while the stream's queue is full. Without a stream: up to 100 ms for one that gave the same slot back
 *           before, where the writer did not wait for it. Other calls of this subscription wait as long. Where the
 *           driver has neither words nor host functions: for the stream  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_subscription_give_back(
    gpuipc_subscription *subscription, const gpuipc_frame *frame, gpuipc_stream stream);

/**
 * What the caller's own event loop waits for: a descriptor that becomes readable (Linux, also for epoll), or an event
 * that becomes signalled (Windows). It is so while gpuipc_subscription_take() would not wait: a frame is there, or the
 * end. After the call that took the last frame it is so no more, and neither while the reader has as many frames as it
 * may. It may be so for nothing: take with a timeout of 0 then answers ::GPUIPC_ERR_TIMEOUT and sets it right.
 *
 * A frame whose contents are not ready makes it ready once, for those who take with a stream. Who takes it without one is
 * told again when the contents are there, which is looked for every 20 ms at most. The end of the writer's process is seen
 * within 50 ms.
 *
 * The first call starts a thread, which is what the writer wakes, and only when it sleeps. A publication that nobody
 * waits for costs the writer nothing more.
 *
 * A channel of turns has none: a take there waits for nothing that the host could be told of.
 * @param subscription a live subscription
 * @param out_handle the same at each call
 * @errors ::GPUIPC_ERR_BUSY (another thread is taking), ::GPUIPC_ERR_NOT_SUPPORTED (a channel of turns),
 *         ::GPUIPC_ERR_TOO_MANY_HANDLES
 * @ownership the subscription's: wait for it, do nothing else with it, and not after the subscription was closed
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status
gpuipc_subscription_get_wait_handle(gpuipc_subscription *subscription, intptr_t *out_handle);

/* ---- kernels that wait and signal by themselves ---------------------------------------------- */

/**
 * A word of one frame, for a kernel of the caller's that waits or signals in place of its stream. A kernel that spins has
 * its multiprocessor while it does. On one GPU kernels of two processes do not run at the same time: one that awaits
 * another process's costs whole time slices, some 2.5 ms each. There let the streams wait. This is for two GPUs.
 *
 * **How it is awaited.** `ld.acquire.sys.u64` until the word, less the value, is below 2^63 without a sign. That is "at
 * least", as CU_STREAM_WAIT_VALUE_GEQ has it. A word is 64 bits wide, and lies on a multiple of 8.
 *
 * **How it is stored.** `st.release.sys.u64` of exactly the value, once, by one thread, behind all that the kernel does
 * with the slot. What other threads did must come before that store in the causality order of the PTX memory model. In
 * one block a barrier (`bar.sync`) does that. Between blocks it takes a counter that each adds to with
 * `atom.acq_rel.gpu`, and the last one stores; or a kernel of its own behind the others in the stream. A word is
 * atomic at system scope only with `.sys`: neither `.gpu` nor a plain or `volatile` access will do. What bulk copies
 * (`cp.async.bulk`) wrote takes a fence of their proxy before.
 *
 * **How the slot is read** by a kernel that has awaited its word: by ordinary loads, and never by `ld.global.nc`, which
 * compilers make of `const __restrict__`. The slot changes while that kernel runs.
 *
 * **What it must not do.** It stores nothing but the one value at the one address of a word that is given out to be
 * stored. Words only go up, and no other one of the page is the kernel's. It stores no ready word as a reader, and no slot
 * that it reads. Who does otherwise harms his own channel. What the other side writes into a word lets a kernel go too
 * early, or not at all, and no more: no address or size comes from there.
 *
 * **How long, and for whom.** The address is for kernels in the stream that was named, and for its device. It stays mapped
 * until that stream comes to the call that says that the kernel was launched.
 *
 * **When the writer ends** while a kernel waits, the reader's context stores the value itself, some 20 ms later, and the
 * kernel goes on. The writer
 * would have stored one more than that value. So a word that equals the value says: there are no contents. The host
 * learns it from gpuipc_subscription_kernel_launched() (::GPUIPC_ERR_LOST) where that comes later, and from the next take in
 * any case (::GPUIPC_ERR_PEER_CLOSED; dropped: ::GPUIPC_ERR_CONNECTION_BROKEN). A kernel that never stores is like a
 * stream that never comes to its word. The other side's calls end with their time-outs, and a writer may drop such a reader.
 */
typedef struct gpuipc_word {
    uint64_t address; /**< of the word, for the device (CUdeviceptr) */
    uint64_t value;   /**< to be awaited, or to be stored */
} gpuipc_word;

/**
 * Makes what was loaned the next frame, and gives out the words by which a kernel makes that frame ready. The frame is published
 * by gpuipc_channel_kernel_launched(), which comes right after the launch. Readers see the frame from then on, in the order of
 * this call. A reader of every frame waits for it before it sees later frames.
 *
 * The kernel need await nothing: the slot is free for it when it was loaned for its stream.
 *
 * If the kernel cannot be launched, call gpuipc_channel_publish() for the same frame, with the same stream
 * or with ::GPUIPC_NO_STREAM: the frame cannot be taken back. gpuipc_channel_destroy() forgets the frame. No kernel may have its
 * words then, unless gpuipc_channel_kernel_launched() was called.
 * @param channel the one that it was loaned of
 * @param frame as it was loaned, with bytes, header and header_bytes set
 * @param stream a CUstream, in which the kernel will run; NULL: the default stream of the buffer's device
 * @param words room for @p capacity of them; receives one for each reader that there is, all to be stored. May be NULL when
 *        capacity is 0
 * @param capacity ::GPUIPC_CHANNEL_READERS_MAX is always enough
 * @param out_count how many there are; also written with ::GPUIPC_ERR_TOO_SMALL
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (it is not on loan, there is no stream, or it is of turns), ::GPUIPC_ERR_TOO_SMALL,
 *         ::GPUIPC_ERR_OUT_OF_RANGE (more bytes than the capacity), ::GPUIPC_ERR_LIMIT (a header longer than was said),
 *         ::GPUIPC_ERR_CUDA (also for a stream that is being captured), ::GPUIPC_ERR_STRUCT_SIZE. After an error it is
 *         still on loan
 * @ownership ends the loan; gpuipc_channel_kernel_launched() is owed, and until then the slot is not loaned again
 * @threads any  @blocking while the driver registers the page of a new reader  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_channel_publish_by_kernel(
    gpuipc_channel *channel, const gpuipc_frame *frame, gpuipc_stream stream, gpuipc_word *words,
    size_t capacity, size_t *out_count);

/**
 * Publishes a frame whose kernel was launched: readers see it from now on, and wait for the kernel. Call it after the launch: a
 * reader may have the same stream, and its wait must not come before the kernel there. An event behind the kernel tells when it has passed. Until then the words stay mapped, and the slot is
 * loaned for no other stream.
 * @param channel the one that it was published in
 * @param frame as it was published by gpuipc_channel_publish_by_kernel()
 * @param stream the same stream
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (no kernel has words of this frame, or it is another stream), ::GPUIPC_ERR_CUDA (the
 *         call is still owed, and readers may see the frame), ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership ends what gpuipc_channel_publish_by_kernel() began  @threads any
 * @blocking while the stream's queue is full  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_channel_kernel_launched(gpuipc_channel *channel,
                                                                       const gpuipc_frame *frame,
                                                                       gpuipc_stream stream);

/**
 * Takes a frame whose contents a kernel awaits, and which that kernel gives back: as gpuipc_subscription_take() with a
 * stream, which waits for nothing. gpuipc_subscription_kernel_launched() comes right behind the launch.
 *
 * Where no kernel gives it back, gpuipc_subscription_give_back() does, by the same stream or with ::GPUIPC_NO_STREAM, and
 * gpuipc_subscription_close() as well. With ::GPUIPC_NO_STREAM, and at the close, no kernel may have the words any more.
 * @param subscription a live subscription
 * @param stream a CUstream, in which the kernel will run; NULL: the default stream of the subscription's device
 * @param timeout_ms for a frame to be there
 * @param out_frame its struct_size is set by the caller; receives all else
 * @param out_ready to be awaited before the kernel looks at the slot, also where the contents are there already
 * @param out_returned to be stored when the kernel looks at the slot no more
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (there is no stream, or it is a channel of turns), ::GPUIPC_ERR_LIMIT (it has as many as it may; or a kernel has
 *         the slot of the next frame, and was not said to be launched), and as gpuipc_subscription_take()
 * @ownership gpuipc_subscription_kernel_launched() is owed, or gpuipc_subscription_give_back()
 * @threads as gpuipc_subscription_take()
 * @blocking up to timeout_ms, and while the driver registers the page  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_subscription_take_for_kernel(
    gpuipc_subscription *subscription, gpuipc_stream stream, int timeout_ms,
    gpuipc_frame *out_frame, gpuipc_word *out_ready, gpuipc_word *out_returned);

/**
 * Says that the kernel was launched which gives a frame back: gpuipc_subscription_give_back() that stores no word. An event
 * behind it tells when it has passed, and until then the words stay mapped.
 * @param subscription the one that took it
 * @param frame as it was taken by gpuipc_subscription_take_for_kernel()
 * @param stream the same stream
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (it has not got it, no kernel has words of it, or it is another stream),
 *         ::GPUIPC_ERR_LOST (it is given back, and the writer has ended before it was ready; who asks while the kernel waits
 *         hears of it in the kernel alone), ::GPUIPC_ERR_CUDA (it still has it), ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership ends what gpuipc_subscription_take_for_kernel() began  @threads any
 * @blocking while the stream's queue is full  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_subscription_kernel_launched(
    gpuipc_subscription *subscription, const gpuipc_frame *frame, gpuipc_stream stream);

#ifdef __cplusplus
}
#endif

#endif
