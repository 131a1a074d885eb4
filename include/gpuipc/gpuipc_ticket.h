/* SPDX-License-Identifier: MIT */
/**
 * @file Tickets: 64 bytes that stand for a range of a buffer. They go through whatever channel two programs already
 * have: a queue, a pickle, a command line. Whoever has a ticket and is allowed opens the buffer, through the server that
 * gave it out. Part of gpuipc.h, which includes it and has the rules that hold everywhere.
 */
#ifndef GPUIPC_GPUIPC_TICKET_H
#define GPUIPC_GPUIPC_TICKET_H

#include "gpuipc.h"

#include "gpuipc_connection.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpuipc_server gpuipc_server; /**< answers tickets */

/** Size of a ticket, that of a cudaIpcMemHandle_t. */
#define GPUIPC_TICKET_BYTES 64
/** Size of a ticket's text with its end: "gpuipc1:" and 86 of A-Z a-z 0-9 - _. */
#define GPUIPC_TICKET_TEXT_SIZE 95

/** A ticket. It is a secret: whoever reads it, and may connect to the server, may open the range. */
typedef struct gpuipc_ticket {
    uint8_t
        bytes[GPUIPC_TICKET_BYTES]; /**< copy them, compare them; their layout is gpuipc's own */
} gpuipc_ticket;

/* ---- the process that shares ----------------------------------------------------------------- */

/** The server answers from a thread of its own, which sleeps until somebody asks. Without it the program
 *  calls gpuipc_server_poll(). */
#define GPUIPC_SERVER_THREAD 0x1u

/** How a server is made. NULL in place of it: the same user only, with a thread of its own. */
typedef struct gpuipc_server_config {
    size_t struct_size; /**< sizeof(gpuipc_server_config) */
    uint32_t flags;     /**< GPUIPC_SERVER_* */
    uint32_t
        max_connections; /**< clients of all users together; 0: 4096. Fewer where handles end: see below */
    gpuipc_peer_policy policy; /**< NULL: only processes of the same user. Called on the thread that
                                    serves */
    void *policy_user_data;    /**< given to policy */
    /** Most clients of one user; 0: 1024. One more gets
     *  ::GPUIPC_ERR_SERVER_BUSY, and its error record has the number and the setting. A process that opens tickets is
     *  one client for each context, from its first ticket until its connection has ended and it has nothing open any
     *  more. On Linux a client costs this process a descriptor, and each process that has clients another one, or two where
     *  it opens shares with a limit. While the user has less than half of what it may have, a client
     *  costs one more, by which the server sees execve(2) of that process. A user may have half of all handles
     *  (SECURITY.md). With 1,024 descriptors that is 384 clients of one process. It is 213 where each
     *  is a process, or 149 with such shares. The 512 processes of 8 GPUs with 64 workers each need 2,460 descriptors, or
     *  3,520 with such shares. Raise RLIMIT_NOFILE in this process for more, which the error record of a refused client asks
     *  for. */
    uint32_t max_connections_per_user;
    uint32_t reserved; /**< 0 */
} gpuipc_server_config;
/** The start of a ::gpuipc_server_config: struct_size is set, all else is zero. */
#define GPUIPC_SERVER_CONFIG_INIT GPUIPC_SIZED(gpuipc_server_config)

/**
 * Starts a server, which answers tickets. Its name in the context's runtime directory is made of random numbers. What
 * servers that were killed have left there is removed, some of it at a time.
 *
 * On Linux another program can remove the server's name, as a logout and cleaners of old files do. The server makes it
 * again when it gives a ticket out, and once a second while it waits for clients. Older tickets then work as well.
 * @param context whose buffers it shares; it is kept until the server has ended
 * @param config NULL for the defaults: the same user only, with a thread of its own
 * @param out_server the new server
 * @errors ::GPUIPC_ERR_UNSAFE_DIRECTORY, ::GPUIPC_ERR_ACCESS_DENIED (this user may not enter the directory),
 *         ::GPUIPC_ERR_NAME_TOO_LONG, ::GPUIPC_ERR_TOO_MANY_HANDLES,
 *         ::GPUIPC_ERR_NOT_FOUND (somebody removed the runtime directory while the call was in it),
 *         ::GPUIPC_ERR_NAME_IN_USE (Windows: it lets nobody make the server's pipe),
 *         ::GPUIPC_ERR_TIMEOUT, ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership the caller's; gpuipc_server_destroy() ends it  @threads any
 * @blocking as gpuipc_listener_open()
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_server_create(gpuipc_context *context,
                                                             const gpuipc_server_config *config,
                                                             gpuipc_server **out_server);

/**
 * Ends a server: nobody opens its tickets any more. What is open stays open. This process gives its hold on the
 * buffers up, so that they end as gpuipc_buffer_release() says.
 * @param server NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED, ::GPUIPC_ERR_BUSY (by the thread that is just serving, from the policy or the log
 *         callback: the server goes on)  @ownership takes the server
 * @threads any, but that one  @blocking until the request that is just being answered is, at most a second
 * @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_server_destroy(gpuipc_server *server);

/**
 * Answers what has come: new connections, requests, connections that ended. It also gives up what has expired, and
 * wakes for that.
 * @param server one without a thread of its own
 * @param timeout_ms how long to wait for something to come; 0: not at all; -1: for ever
 * @errors ::GPUIPC_ERR_TIMEOUT (nobody has asked), ::GPUIPC_ERR_BUSY (another thread is in it, or the server has a
 *         thread of its own), ::GPUIPC_ERR_RELEASED (also when it is destroyed meanwhile)
 * @ownership borrows  @threads one at a time  @blocking up to timeout_ms for something to come; then until it is
 *         answered (at most a second)  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_server_poll(gpuipc_server *server, int timeout_ms);

/**
 * Gives what the caller's own event loop waits for: a descriptor that becomes readable (Linux), or an event that
 * becomes signalled (Windows). It does so when gpuipc_server_poll() has something to do. It stays so until that call,
 * with a timeout of 0, answers ::GPUIPC_ERR_TIMEOUT.
 *
 * On Linux the handle does not become ready when another program removes the server's name. Call gpuipc_server_poll()
 * about once a second, too, which makes the name again.
 * @param server one without a thread of its own
 * @param out_handle the descriptor, or the HANDLE
 * @errors ::GPUIPC_ERR_BUSY (the server has a thread of its own)
 * @ownership the server's: wait for it, do nothing else with it, and not after the server has ended
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_server_get_wait_handle(gpuipc_server *server,
                                                                      intptr_t *out_handle);

/** The share is for gpuipc_share_config::max_processes processes (0: for one) and ends with the last of them. When the
 *  buffer has left for that one, the ticket is ::GPUIPC_ERR_TICKET_USED_UP for all others. When all of them have it open,
 *  the server gives its hold on the buffer up, and the ticket is so for everybody who has not got it open.
 *
 *  A process whose opening fails after the buffer has left, whatever the error, still counts and may open it again. When
 *  it could not map the buffer, it has ten seconds from the time that the last process was handed it; then the server
 *  gives its hold up as well. When it failed to wait for the contents (as by ::GPUIPC_ERR_TIMEOUT or
 *  ::GPUIPC_ERR_INTERRUPTED), its context keeps the buffer. It does so until it is opened by the same ticket, device and
 *  access, or until the context is destroyed. Only ::GPUIPC_ERR_LOST is final. */
#define GPUIPC_SHARE_ONE_SHOT 0x100u

/** What a ticket stands for. Zero everywhere (or NULL): all of the buffer, for any number of processes, until it
 *  is revoked. */
typedef struct gpuipc_share_config {
    size_t struct_size; /**< sizeof(gpuipc_share_config) */
    uint64_t offset;    /**< where the range begins in the buffer */
    uint64_t bytes; /**< its length; 0: to the end. Whole allocations travel, as always: the process
                             that opens it can reach what lies beside the range */
    gpuipc_access access; /**< the most that those who open it may do; default: all */
    uint32_t flags; /**< ::GPUIPC_SEND_READY, ::GPUIPC_SEND_ASYNC, ::GPUIPC_SEND_STAGED, as there;
                         ::GPUIPC_SHARE_ONE_SHOT */
    uint64_t expires_ms; /**< from now on; 0: never */
    /** How many different processes may open it, one after the other or at once; 0: any number. One that comes again
     *  does not count again. The process that shares never counts. */
    uint32_t max_processes;
    uint32_t reserved; /**< 0 */
    const void *
        attachment; /**< bytes that everybody who opens all of it gets: gpuipc_buffer_info::attachment */
    /** At most ::GPUIPC_MESSAGE_BYTES_MAX - 64. A server sends more than 64 KiB to the processes of one user for half of each
     *  second at most; gpuipc_buffer_open() then waits for the next second. */
    size_t attachment_bytes;
    gpuipc_stream stream; /**< as gpuipc_outgoing::stream */
} gpuipc_share_config;
/** The start of a ::gpuipc_share_config: struct_size is set, all else is zero. */
#define GPUIPC_SHARE_CONFIG_INIT GPUIPC_SIZED(gpuipc_share_config)

/**
 * Makes a ticket for a range of a buffer. The server keeps the buffer alive until the ticket is revoked or expires, a
 * one-shot share is used up, or the server ends. A server without a thread gives up what has expired while it is polled.
 * The call waits for the GPU work that makes the contents, as gpuipc_connection_send() does. While a stream of this process
 * waits for another process, nobody knows how long that takes: then it waits for five seconds at most, or until the server
 * is destroyed. With ::GPUIPC_SEND_ASYNC those who open it wait instead.
 *
 * The server's name can be missing from the runtime directory because another program removed it. The call then makes it
 * again. If that fails and no client is connected, the call fails. If clients are connected, it logs a warning and goes on.
 * @param server which answers the ticket
 * @param buffer of the server's context
 * @param config NULL for all of the buffer, any number of processes, without an end
 * @param out_ticket the new ticket
 * @errors ::GPUIPC_ERR_NOT_SHAREABLE, ::GPUIPC_ERR_OUT_OF_RANGE, ::GPUIPC_ERR_LIMIT (attachment),
 *         ::GPUIPC_ERR_STRUCT_SIZE, ::GPUIPC_ERR_RELEASED (also when the server is destroyed meanwhile),
 *         ::GPUIPC_ERR_TIMEOUT (after the five seconds),
 *         ::GPUIPC_ERR_NOT_FOUND (the server's name cannot be made again; the record has the reason)
 * @ownership borrows; copies the attachment  @threads any
 * @blocking for the GPU work; five seconds where that may wait for another process. To make the name again, as
 *         gpuipc_listener_open()  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_share(gpuipc_server *server,
                                                            gpuipc_buffer *buffer,
                                                            const gpuipc_share_config *config,
                                                            gpuipc_ticket *out_ticket);

/**
 * Revokes a ticket: nobody opens it from now on. A mapping cannot be taken away: processes that have it open keep it, and
 * the memory stays until they release it. gpuipc_server_holders() tells who they are, also afterwards.
 * @param server which gave it out
 * @param ticket the ticket, or one that was narrowed from it
 * @errors ::GPUIPC_ERR_TICKET_UNKNOWN (not this server's, or revoked or expired before 4,096 others),
 *         ::GPUIPC_ERR_TICKET_REVOKED (already), ::GPUIPC_ERR_TICKET_DAMAGED, ::GPUIPC_ERR_TICKET_VERSION,
 *         ::GPUIPC_ERR_RELEASED (also when the server is destroyed meanwhile)
 * @ownership borrows  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_server_revoke(gpuipc_server *server,
                                                             const gpuipc_ticket *ticket);

/** A process that has a ticket's buffer open. */
typedef struct gpuipc_holder {
    uint64_t process_id; /**< as this process's PID namespace numbers it; 0: not in it */
    uint64_t since_ms;   /**< when it opened it first, in milliseconds since 1970 (UTC) */
    uint32_t
        openings; /**< how often it has been handed out to it and not come back. With more than 64 of them, one
                            that came back between others may count a while longer; that all did is seen at once */
    int32_t is_running; /**< as gpuipc_peer_info::is_running */
    char user[192];     /**< as gpuipc_peer_info::user */
} gpuipc_holder;

/**
 * Lists who opened the buffer through this ticket and has it open still: one entry for each process and context. What
 * this process itself opened is not among them.
 * @param server which gave it out
 * @param ticket the ticket, or one that was narrowed from it
 * @param holders room for @p capacity of them; may be NULL when that is 0
 * @param capacity how many of them there is room for
 * @param out_count how many there are; also written with ::GPUIPC_ERR_TOO_SMALL
 * @errors ::GPUIPC_ERR_TOO_SMALL, ::GPUIPC_ERR_TICKET_UNKNOWN (as gpuipc_server_revoke()),
 *         ::GPUIPC_ERR_TICKET_DAMAGED, ::GPUIPC_ERR_TICKET_VERSION,
 *         ::GPUIPC_ERR_RELEASED (also when the server is destroyed meanwhile)
 * @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_server_holders(gpuipc_server *server,
                                                              const gpuipc_ticket *ticket,
                                                              gpuipc_holder *holders,
                                                              size_t capacity, size_t *out_count);

/* ---- the process that opens ------------------------------------------------------------------ */

/** How a ticket is opened. NULL in place of it, or zero everywhere: for the GPU that owns the memory. */
typedef struct gpuipc_open_config {
    size_t struct_size;        /**< sizeof(gpuipc_open_config) */
    uint32_t flags;            /**< ::GPUIPC_RECEIVE_ASYNC, ::GPUIPC_RECEIVE_DEFERRED,
                               ::GPUIPC_RECEIVE_KEEP_HANDLES, as there */
    uint32_t device;           /**< as gpuipc_incoming::device */
    gpuipc_access access;      /**< what that device may do; never more than the ticket offers */
    int32_t timeout_ms;        /**< for the server's answer; 0: five seconds; -1: for ever */
    gpuipc_stream stream;      /**< as gpuipc_incoming::stream */
    gpuipc_peer_policy policy; /**< whose server it may be; NULL: only the same user's */
    void *policy_user_data;    /**< given to policy */
    /** NULL, or what gpuipc_buffer_get_info() would say of the buffer, filled in by the same call; struct_size set by
     *  the caller. */
    gpuipc_buffer_info *info;
} gpuipc_open_config;
/** The start of a ::gpuipc_open_config: struct_size is set, all else is zero. */
#define GPUIPC_OPEN_CONFIG_INIT GPUIPC_SIZED(gpuipc_open_config)

/**
 * Opens what a ticket stands for. Every opening is released on its own.
 *
 * Opened again while it is open it costs a look-up: no system call, no driver call, and the server is not asked. So what
 * was revoked meanwhile is opened as well. Again means: the same 64 bytes, in the same context, for the same device, which
 * may do now what it would be given. After gpuipc_buffer_set_access() another opening may so need the server. It also
 * means: with the handles kept, if ::GPUIPC_RECEIVE_KEEP_HANDLES asks for them. A policy that was not asked when it was
 * opened is asked now.
 *
 * The first ticket of a server connects to it; the context keeps that connection for all its tickets. When it
 * ends, what is open stays open, and stays this process's own until it is released. The memory stays readable when the
 * process that shared it has ended, unless its transport says otherwise (gpuipc_buffer_info::is_lost).
 *
 * The buffer keeps its address until its last reference in this process is released. Opened again after that, it may have
 * another address. A CUDA graph that was captured over the old address must be captured again.
 * @param context that the buffer is of
 * @param ticket what to open
 * @param config NULL for the defaults: for the GPU that owns the memory, within five seconds
 * @param out_buffer the open buffer
 * @errors ::GPUIPC_ERR_TICKET_DAMAGED, ::GPUIPC_ERR_TICKET_VERSION, ::GPUIPC_ERR_TICKET_EXPIRED,
 *         ::GPUIPC_ERR_TICKET_REVOKED, ::GPUIPC_ERR_TICKET_USED_UP, ::GPUIPC_ERR_TICKET_UNKNOWN,
 *         ::GPUIPC_ERR_TICKET_OTHER_BOOT, ::GPUIPC_ERR_TICKET_OTHER_USER,
 *         ::GPUIPC_ERR_EXPORTER_GONE (at once, without waiting for timeout_ms; also when a server of this very process
 *         is destroyed meanwhile),
 *         ::GPUIPC_ERR_SERVER_BUSY (also when the server's policy refuses this process, it has as much open there as
 *         one may, or the server has no time for a long attachment until timeout_ms),
 *         ::GPUIPC_ERR_OUT_OF_RANGE, ::GPUIPC_ERR_OTHER_KIND (the ticket of a channel),
 *         ::GPUIPC_ERR_NOT_SHAREABLE (the server could not hand the buffer over; its log says why),
 *         ::GPUIPC_ERR_ACCESS_DENIED, ::GPUIPC_ERR_TIMEOUT, ::GPUIPC_ERR_STRUCT_SIZE,
 *         ::GPUIPC_ERR_DEVICE_NOT_FOUND (of gpuipc_open_config::device), ::GPUIPC_ERR_UNSAFE_DIRECTORY,
 *         ::GPUIPC_ERR_LOST (without ::GPUIPC_RECEIVE_ASYNC and ::GPUIPC_RECEIVE_DEFERRED: the contents will never be ready),
 *         ::GPUIPC_ERR_RELEASED (also when the context is destroyed meanwhile);
 *         and, where a server answers what none of gpuipc's would, or this process cannot open the memory:
 *         ::GPUIPC_ERR_PROTOCOL, ::GPUIPC_ERR_VERSION, ::GPUIPC_ERR_LIMIT, ::GPUIPC_ERR_HANDLE_COUNT,
 *         ::GPUIPC_ERR_TOO_MANY_HANDLES, ::GPUIPC_ERR_NOT_GPU_MEMORY, ::GPUIPC_ERR_NOT_SUPPORTED,
 *         ::GPUIPC_ERR_SIZE_MISMATCH, ::GPUIPC_ERR_DEVICE_NOT_VISIBLE, ::GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED
 * @ownership the caller holds one reference  @threads any; requests to one server go one after the other, and who waits
 *         for contents keeps nobody else waiting
 * @blocking up to timeout_ms in all, for the server and until the contents are ready, and for the driver's mapping.
 *         A first opening also for much memory that was given up before and is still kept, as gpuipc_connection_close().
 *         With ::GPUIPC_RECEIVE_ASYNC or ::GPUIPC_RECEIVE_DEFERRED it does not wait for contents, but for what is
 *         excepted there; with the former also while memory is freed in another thread, whatever timeout_ms is
 *         @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_open(gpuipc_context *context,
                                                           const gpuipc_ticket *ticket,
                                                           const gpuipc_open_config *config,
                                                           gpuipc_buffer **out_buffer);

/* ---- bytes and text -------------------------------------------------------------------------- */

/**
 * Makes a ticket of bytes that came from elsewhere.
 * @param bytes the ticket's bytes
 * @param size how many there are; 64 is right
 * @param out_ticket the ticket
 * @errors ::GPUIPC_ERR_TICKET_SIZE (not 64), ::GPUIPC_ERR_TICKET_DAMAGED, ::GPUIPC_ERR_TICKET_VERSION
 * @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_ticket_from_bytes(const void *bytes, size_t size,
                                                                 gpuipc_ticket *out_ticket);

/**
 * Makes a ticket of its text.
 * @param text ended by 0: exactly what gpuipc_ticket_to_text() wrote
 * @param out_ticket the ticket
 * @errors ::GPUIPC_ERR_TICKET_TEXT, ::GPUIPC_ERR_TICKET_SIZE, ::GPUIPC_ERR_TICKET_DAMAGED,
 *         ::GPUIPC_ERR_TICKET_VERSION
 * @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_ticket_from_text(const char *text,
                                                                gpuipc_ticket *out_ticket);

/**
 * Writes a ticket as text, for a command line, a URL or a file.
 * @param ticket the ticket
 * @param text room for ::GPUIPC_TICKET_TEXT_SIZE characters
 * @errors ::GPUIPC_ERR_TICKET_DAMAGED, ::GPUIPC_ERR_TICKET_VERSION
 * @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_ticket_to_text(const gpuipc_ticket *ticket,
                                                              char text[GPUIPC_TICKET_TEXT_SIZE]);

/**
 * Makes a ticket for a part of what another one stands for, without asking anybody. It guards against mistakes
 * only: whoever has it can make the other. What is attached to the whole does not come with a part, since it may say what
 * lies where in the whole (gpuipc_buffer_info::is_attachment_withheld). Share the part itself to attach something to it.
 * @param whole the other ticket
 * @param offset of the part, in the range of @p whole, in bytes
 * @param bytes of the part; above 0
 * @param out_ticket the ticket for the part
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE, ::GPUIPC_ERR_TICKET_DAMAGED, ::GPUIPC_ERR_TICKET_VERSION
 * @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_ticket_narrow(const gpuipc_ticket *whole,
                                                             uint64_t offset, uint64_t bytes,
                                                             gpuipc_ticket *out_ticket);

#ifdef __cplusplus
}
#endif

#include "gpuipc_channel.h" /* frames from one process to many, opened by a ticket */

#endif
