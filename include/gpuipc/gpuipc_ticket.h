/* SPDX-License-Identifier: MIT */
/**
 * @file Tickets: 64 bytes that stand for a range of a buffer and go through whatever channel two programs
 * already have, a queue, a pickle, a command line. Who has the ticket and is allowed opens the buffer,
 * through the server that gave it out. Part of gpuipc.h, which includes it. The rules that hold everywhere stand
 * there.
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
    size_t struct_size;        /**< sizeof(gpuipc_server_config) */
    uint32_t flags;            /**< GPUIPC_SERVER_* */
    uint32_t max_connections;  /**< clients of all users together; 0: 4096 */
    gpuipc_peer_policy policy; /**< NULL: only processes of the same user. Called on the thread that
                                    serves */
    void *policy_user_data;    /**< given to policy */
    /** Most clients of one user; 0: 128. One more is told ::GPUIPC_ERR_SERVER_BUSY. A process that opens tickets is
     *  one client for each context, from its first ticket until its connection has ended and it has nothing open any
     *  more. On Linux a client costs this process up to three descriptors: raise RLIMIT_NOFILE for many. */
    uint32_t max_connections_per_user;
    uint32_t reserved; /**< 0 */
} gpuipc_server_config;

/**
 * Starts to answer tickets, under a name that is made of random numbers, in the context's runtime directory.
 * @errors ::GPUIPC_ERR_UNSAFE_DIRECTORY, ::GPUIPC_ERR_NAME_TOO_LONG, ::GPUIPC_ERR_TOO_MANY_HANDLES,
 *         ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership the caller's; gpuipc_server_destroy() ends it. It keeps its context  @threads any
 * @blocking as gpuipc_listener_open()
 * @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_server_create(gpuipc_context *context,
                                              const gpuipc_server_config *config,
                                              gpuipc_server **out_server);

/**
 * Ends the server: nobody opens its tickets any more. What is open stays open; this process gives its hold on
 * the buffers up, so that they end as gpuipc_buffer_release() says.
 * @param server NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED, ::GPUIPC_ERR_BUSY (by the thread that is just serving, from the policy or the log
 *         callback: the server goes on)  @ownership takes the server
 * @threads any, but that one  @blocking until the request that is just being answered is, at most a second
 * @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_server_destroy(gpuipc_server *server);

/**
 * Answers what has come: new connections, requests, connections that ended.
 * @errors ::GPUIPC_ERR_TIMEOUT (nothing came), ::GPUIPC_ERR_BUSY (another thread is in it, or the server has a
 *         thread of its own), ::GPUIPC_ERR_RELEASED (also when it is destroyed meanwhile)
 * @ownership borrows  @threads one at a time  @blocking up to timeout_ms for something to come; then until it is
 *         answered (at most a second)  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_server_poll(gpuipc_server *server, int timeout_ms);

/**
 * What the caller's own event loop waits for: a descriptor that becomes readable (Linux), or an event that
 * becomes signalled (Windows), when gpuipc_server_poll() has something to do. It stays so until that call has found
 * nothing more to do (::GPUIPC_ERR_TIMEOUT with a timeout of 0).
 * @errors ::GPUIPC_ERR_BUSY (the server has a thread of its own)
 * @ownership the server's: wait for it, do nothing else with it, and not after the server has ended
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_server_get_wait_handle(gpuipc_server *server, intptr_t *out_handle);

/** What a ticket stands for. Zero everywhere (or NULL): all of the buffer, for any number of processes, until it
 *  is revoked. */
typedef struct gpuipc_share_config {
    size_t struct_size; /**< sizeof(gpuipc_share_config) */
    uint64_t offset;    /**< where the range begins in the buffer */
    uint64_t bytes; /**< its length; 0: to the end. Whole allocations travel, as always: the process
                             that opens it can reach what lies beside the range */
    gpuipc_access access; /**< the most that those who open it may do; default: all */
    uint32_t flags; /**< ::GPUIPC_SEND_READY, ::GPUIPC_SEND_ASYNC, ::GPUIPC_SEND_STAGED, as there */
    uint64_t expires_ms; /**< from now on; 0: never */
    uint32_t
        max_processes; /**< how many different processes may open it, one after the other or at once;
                                 0: any number. One that comes again does not count again */
    uint32_t reserved; /**< 0 */
    const void
        *attachment; /**< bytes that everybody who opens it gets: gpuipc_buffer_get_attachment() */
    size_t attachment_bytes; /**< at most ::GPUIPC_MESSAGE_BYTES_MAX - 64 */
    gpuipc_stream stream;    /**< as gpuipc_outgoing::stream */
} gpuipc_share_config;

/**
 * Makes a ticket for a range of a buffer. The server keeps the buffer alive until the ticket is revoked, its time
 * is over (a server without a thread gives it up at its next poll) or the server ends. Waits for the GPU work that makes
 * the contents, as gpuipc_connection_send() does; with ::GPUIPC_SEND_ASYNC those who open it wait.
 * @errors ::GPUIPC_ERR_NOT_SHAREABLE, ::GPUIPC_ERR_OUT_OF_RANGE, ::GPUIPC_ERR_LIMIT (attachment),
 *         ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership borrows; copies the attachment  @threads any
 * @blocking for the GPU work  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_share(gpuipc_server *server, gpuipc_buffer *buffer,
                                             const gpuipc_share_config *config,
                                             gpuipc_ticket *out_ticket);

/**
 * Nobody opens the ticket from now on. A mapping cannot be taken away: processes that have it open keep it, and
 * the memory stays until they release it. gpuipc_server_holders() tells who they are, also afterwards.
 * @errors ::GPUIPC_ERR_TICKET_UNKNOWN (not this server's, or revoked or expired before 4,096 others),
 *         ::GPUIPC_ERR_TICKET_REVOKED (already), ::GPUIPC_ERR_TICKET_DAMAGED, ::GPUIPC_ERR_TICKET_VERSION
 * @ownership borrows  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_server_revoke(gpuipc_server *server, const gpuipc_ticket *ticket);

/** A process that has a ticket's buffer open. */
typedef struct gpuipc_holder {
    uint64_t process_id; /**< as this process's PID namespace numbers it; 0: not in it */
    uint64_t since_ms;   /**< when it opened it first, in milliseconds since 1970 (UTC) */
    uint32_t openings;   /**< how often it has been handed out to it and not come back */
    int32_t is_running;  /**< as gpuipc_peer_info::is_running */
    char user[192];      /**< as gpuipc_peer_info::user */
} gpuipc_holder;

/**
 * Who has what this ticket stands for open, as far as they opened it by the ticket: an entry for each process, and
 * for each context of one that has several. What this process itself opened is not among them.
 * @param holders room for @p capacity of them; may be NULL when that is 0
 * @param out_count how many there are; also written with ::GPUIPC_ERR_TOO_SMALL
 * @errors ::GPUIPC_ERR_TOO_SMALL, ::GPUIPC_ERR_TICKET_UNKNOWN (as gpuipc_server_revoke()),
 *         ::GPUIPC_ERR_TICKET_DAMAGED, ::GPUIPC_ERR_TICKET_VERSION
 * @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_server_holders(gpuipc_server *server, const gpuipc_ticket *ticket,
                                               gpuipc_holder *holders, size_t capacity,
                                               size_t *out_count);

/* ---- the process that opens ------------------------------------------------------------------ */

/** How a ticket is opened. NULL in place of it, or zero everywhere: for the GPU that owns the memory. */
typedef struct gpuipc_open_config {
    size_t struct_size;   /**< sizeof(gpuipc_open_config) */
    uint32_t flags;       /**< ::GPUIPC_RECEIVE_ASYNC, ::GPUIPC_RECEIVE_KEEP_HANDLES, as there */
    uint32_t device;      /**< as gpuipc_incoming::device */
    gpuipc_access access; /**< what that device may do; never more than the ticket offers */
    int32_t timeout_ms;   /**< for the server's answer; 0: five seconds; -1: for ever */
    gpuipc_stream stream; /**< as gpuipc_incoming::stream */
    gpuipc_peer_policy policy; /**< whose server it may be; NULL: only the same user's */
    void *policy_user_data;    /**< given to policy */
} gpuipc_open_config;

/**
 * Opens what a ticket stands for. Opened again while it is open it costs a look-up: no system call and no driver
 * call, and the server is not asked (so what was revoked meanwhile is opened as well). Again means: the same 64
 * bytes, in the same context, for the same device, which may do now what it would be given (so
 * gpuipc_buffer_set_access() may make another opening need the server), and with the handles kept if
 * ::GPUIPC_RECEIVE_KEEP_HANDLES asks for them. A policy that was not asked when it was opened is asked now.
 * Every opening is released on its own. The memory stays readable when the process that shared it has ended,
 * unless its transport says otherwise (gpuipc_buffer_info::is_lost).
 * The first ticket of a server connects to it; the context keeps that connection for all its tickets. When it
 * ends, what is open stays open, and stays this process's own until it is released.
 * @errors ::GPUIPC_ERR_TICKET_SIZE and the others of that group, each for what it says;
 *         ::GPUIPC_ERR_EXPORTER_GONE (at once, without waiting for timeout_ms);
 *         ::GPUIPC_ERR_SERVER_BUSY (also when this context has 65,536 tickets of the server open),
 *         ::GPUIPC_ERR_OUT_OF_RANGE,
 *         ::GPUIPC_ERR_ACCESS_DENIED, ::GPUIPC_ERR_TIMEOUT, ::GPUIPC_ERR_STRUCT_SIZE,
 *         ::GPUIPC_ERR_LOST (without ::GPUIPC_RECEIVE_ASYNC: the contents will never be ready),
 *         ::GPUIPC_ERR_RELEASED (also when the context is destroyed meanwhile), and what
 *         gpuipc_connection_receive() says of buffers
 * @ownership the caller holds one reference  @threads any; requests to one server go one after the other
 * @blocking up to timeout_ms for the server, and for the driver's mapping; without ::GPUIPC_RECEIVE_ASYNC until
 *         the contents are ready  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_open(gpuipc_context *context, const gpuipc_ticket *ticket,
                                            const gpuipc_open_config *config,
                                            gpuipc_buffer **out_buffer);

/**
 * The bytes that were attached to the ticket that a buffer was opened by.
 * @param out_bytes NULL when there are none  @param out_size 0 then
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (not opened by a ticket)
 * @ownership the buffer's, for as long as the caller holds it  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_get_attachment(gpuipc_buffer *buffer, const void **out_bytes,
                                                      size_t *out_size);

/* ---- bytes and text -------------------------------------------------------------------------- */

/**
 * A ticket of bytes that came from elsewhere.
 * @errors ::GPUIPC_ERR_TICKET_SIZE (not 64), ::GPUIPC_ERR_TICKET_DAMAGED, ::GPUIPC_ERR_TICKET_VERSION
 * @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_ticket_from_bytes(const void *bytes, size_t size,
                                                  gpuipc_ticket *out_ticket);

/**
 * A ticket of its text.
 * @param text ended by 0: exactly what gpuipc_ticket_to_text() wrote
 * @errors ::GPUIPC_ERR_TICKET_TEXT, ::GPUIPC_ERR_TICKET_SIZE, ::GPUIPC_ERR_TICKET_DAMAGED,
 *         ::GPUIPC_ERR_TICKET_VERSION
 * @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_ticket_from_text(const char *text, gpuipc_ticket *out_ticket);

/**
 * The text of a ticket, for a command line, a URL or a file.
 * @param text room for ::GPUIPC_TICKET_TEXT_SIZE characters
 * @errors ::GPUIPC_ERR_TICKET_DAMAGED, ::GPUIPC_ERR_TICKET_VERSION
 * @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_ticket_to_text(const gpuipc_ticket *ticket,
                                               char text[GPUIPC_TICKET_TEXT_SIZE]);

/**
 * A ticket for a part of what another one stands for, made without asking anybody. It guards against mistakes
 * only: whoever has it can make the other.
 * @param offset in the range of @p whole  @param bytes above 0
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE, ::GPUIPC_ERR_TICKET_DAMAGED, ::GPUIPC_ERR_TICKET_VERSION
 * @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_ticket_narrow(const gpuipc_ticket *whole, uint64_t offset,
                                              uint64_t bytes, gpuipc_ticket *out_ticket);

#ifdef __cplusplus
}
#endif

#endif
