/* SPDX-License-Identifier: MIT */
/**
 * @file Listeners, connections and messages: the second half of gpuipc.h, which includes it. The rules
 * that hold everywhere stand there.
 */
/* Before the guard: gpuipc.h brings what needs this header, which is to be there by then. */
#include "gpuipc.h"

#ifndef GPUIPC_GPUIPC_CONNECTION_H
#define GPUIPC_GPUIPC_CONNECTION_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpuipc_listener gpuipc_listener;     /**< a named local endpoint */
typedef struct gpuipc_connection gpuipc_connection; /**< a conversation with one process */

/** The longest name of an endpoint, in characters. */
#define GPUIPC_NAME_MAX 64
/** The most bytes that one message carries beside its buffers. The receiver allocates as many as come, and
 *  keeps them until the message is received. More than about 64 KiB go in several parts, so that the sender
 *  may have to wait for the receiver to read. */
#define GPUIPC_MESSAGE_BYTES_MAX 16777216

/** Who is at the other end, as the operating system says (never as the peer says). */
typedef struct gpuipc_peer_info {
    size_t struct_size;  /**< sizeof(gpuipc_peer_info), set by the caller */
    uint64_t process_id; /**< as this process's PID namespace numbers it; 0: not in it */
    char user[192];    /**< Linux: decimal user id; Windows: SID text, "unknown" where this process
                            may not look at the other */
    int32_t same_user; /**< 1: the user this process runs as */
    /** 1: it lives, 0: it has ended, -1: cannot be known. A process that called execve() counts as ended only when
     *  the two have a shared page: after the first buffer or ring, within the limits for a peer (SECURITY.md). */
    int32_t is_running;
} gpuipc_peer_info;
/** The start of a ::gpuipc_peer_info: struct_size is set, all else is zero. */
#define GPUIPC_PEER_INFO_INIT GPUIPC_SIZED(gpuipc_peer_info)

/** Decides whether a peer may talk to us. Returns 0 to refuse. Called inside accept and open, on
 *  their thread; must not call gpuipc. On Windows a pipe is open to its own user only. */
typedef int (*gpuipc_peer_policy)(void *user_data, const gpuipc_peer_info *peer);

/** How a listener or a connection is opened. NULL in place of it: the same user only. */
typedef struct gpuipc_endpoint_config {
    size_t struct_size;        /**< sizeof(gpuipc_endpoint_config) */
    gpuipc_peer_policy policy; /**< NULL: only processes of the same user */
    void *policy_user_data;    /**< given to policy */
} gpuipc_endpoint_config;
/** The start of a ::gpuipc_endpoint_config: struct_size is set, all else is zero. */
#define GPUIPC_ENDPOINT_CONFIG_INIT GPUIPC_SIZED(gpuipc_endpoint_config)

/**
 * Opens an endpoint that other processes reach by name.
 * @param context the context that it is done in
 * @param config NULL: only processes of the same user
 * @param out_listener the new listener
 * @param name 1 to ::GPUIPC_NAME_MAX of A-Z a-z 0-9 . _ - and no leading dot. A leading '@' (Linux)
 *        asks for an abstract socket, which has no directory to guard it and ends at the network
 *        namespace; other users are still refused. On Windows capitals and small letters of a name
 *        are the same.
 * @errors ::GPUIPC_ERR_NAME_INVALID, ::GPUIPC_ERR_NAME_TOO_LONG, ::GPUIPC_ERR_NAME_IN_USE,
 *         ::GPUIPC_ERR_UNSAFE_DIRECTORY, ::GPUIPC_ERR_ACCESS_DENIED (this user may not enter the directory),
 *         ::GPUIPC_ERR_NOT_FOUND (somebody removed the directory, or the name, while the call was in it),
 *         ::GPUIPC_ERR_TOO_MANY_HANDLES, ::GPUIPC_ERR_TIMEOUT, ::GPUIPC_ERR_STRUCT_SIZE,
 *         ::GPUIPC_ERR_NOT_SUPPORTED ('@' or a shared directory on Windows; on Linux without /proc, where
 *         unshare(CLONE_FS) is forbidden too)
 * @ownership the caller's; gpuipc_listener_close() ends it and frees the name
 * @threads any
 * @blocking no. When another process keeps the directory locked (Linux), up to 2 s and then
 *         ::GPUIPC_ERR_TIMEOUT. When one keeps the name's last file open (Windows), up to 2 s and
 *         then ::GPUIPC_ERR_NAME_IN_USE  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_listener_open(gpuipc_context *context,
                                                             const char *name,
                                                             const gpuipc_endpoint_config *config,
                                                             gpuipc_listener **out_listener);

/**
 * Waits for a process to connect. One that the policy refuses costs its own connection and
 * nothing else: the wait goes on. On Windows so does one that has ended by now, whatever it sent.
 *
 * On Linux another program can remove the listener's name from the runtime directory, as a logout and cleaners of old files
 * do. This call then makes it again: at once, and once a second while it waits. It does not wait for a directory that
 * another process keeps locked. docs/troubleshooting.md has the details.
 * @param listener a live listener
 * @param timeout_ms milliseconds; 0 tries once, -1 waits for ever
 * @param out_connection the connection to who connected
 * @errors ::GPUIPC_ERR_TIMEOUT, ::GPUIPC_ERR_TOO_MANY_HANDLES,
 *         ::GPUIPC_ERR_NOT_FOUND (after timeout_ms: another program removed the name, which cannot be made again; the
 *         record has the reason)
 * @ownership the connection is the caller's; gpuipc_connection_close() ends it
 * @threads any number at once  @blocking up to timeout_ms  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_listener_accept(gpuipc_listener *listener,
                                                               int timeout_ms,
                                                               gpuipc_connection **out_connection);

/**
 * What the caller's own event loop waits for: a descriptor that becomes readable (Linux, also for epoll), or an event
 * that becomes signalled (Windows). It is so while gpuipc_listener_accept() would not wait: somebody has connected, or
 * the listener is closed. After the call that takes the last client it is so no more. It may be so for nothing (a
 * client was refused, or another thread was quicker): accept with a timeout of 0 then answers ::GPUIPC_ERR_TIMEOUT
 * and sets it right. On Windows threads that wait in accept look every 20 ms from then on.
 *
 * On Linux the handle does not become ready for a client while the listener's name is removed. A program that waits for
 * the handle alone must call gpuipc_listener_accept() with a timeout of 0 about once a second, which makes the name again.
 * @param listener that is waited for
 * @param out_handle the same at each call
 * @errors ::GPUIPC_ERR_TOO_MANY_HANDLES
 * @ownership the listener's: wait for it, do nothing else with it, and not after the listener was closed
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_listener_get_wait_handle(gpuipc_listener *listener,
                                                                        intptr_t *out_handle);

/**
 * Ends the endpoint; connections already accepted stay. Threads that wait in accept return
 * ::GPUIPC_ERR_RELEASED. The name is free at once; an abstract one when those threads have returned.
 * @param listener NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED  @ownership takes the listener  @threads any
 * @blocking no. When another process keeps the directory locked (Linux), up to 50 ms, and then the name's file stays there,
 *         for the next listener of that name to replace  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_listener_close(gpuipc_listener *listener);

/**
 * Connects to a listener; waits for one to appear while there is time. Success does not mean that the other process has
 * accepted: on Linux some 128 connections stand in a row for that, and what is sent meanwhile waits there.
 * @param context the context that it is done in
 * @param name of the listener, as gpuipc_listener_open() takes it
 * @param config NULL: only a listener of the same user
 * @param timeout_ms milliseconds; 0 tries once, -1 waits for ever
 * @param out_connection the new connection
 * @errors ::GPUIPC_ERR_NOT_FOUND (nobody listened before the time ran out),
 *         ::GPUIPC_ERR_TIMEOUT (somebody listens, but the row of those to be accepted stays full), ::GPUIPC_ERR_ACCESS_DENIED,
 *         ::GPUIPC_ERR_PROTOCOL (the name is another program's), ::GPUIPC_ERR_NAME_INVALID,
 *         ::GPUIPC_ERR_NAME_TOO_LONG, ::GPUIPC_ERR_UNSAFE_DIRECTORY, ::GPUIPC_ERR_TOO_MANY_HANDLES,
 *         ::GPUIPC_ERR_STRUCT_SIZE, ::GPUIPC_ERR_NOT_SUPPORTED (as for gpuipc_listener_open(); a 32-bit listener),
 *         ::GPUIPC_ERR_LIMIT (the listener's process, or its user, has as much of this one as it may: SECURITY.md),
 *         ::GPUIPC_ERR_PEER_CLOSED (the listener ended in that moment)
 * @ownership the caller's; gpuipc_connection_close() ends it
 * @threads any  @blocking up to timeout_ms  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_connection_open(gpuipc_context *context,
                                                               const char *name,
                                                               const gpuipc_endpoint_config *config,
                                                               int timeout_ms,
                                                               gpuipc_connection **out_connection);

/**
 * Who is at the other end.
 * @param connection a live connection
 * @param out_peer filled in; struct_size is set by the caller
 * @errors ::GPUIPC_ERR_STRUCT_SIZE  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_connection_get_peer(gpuipc_connection *connection,
                                                                   gpuipc_peer_info *out_peer);

/**
 * What the caller's own event loop waits for, to receive: a descriptor that becomes readable (Linux), or an event that
 * becomes signalled (Windows). It is so while a call that receives on this connection has something to do. That is when
 * a part of a message, contents or the end of the peer has come and was not received. It also is while a whole message
 * waits that was not taken (::GPUIPC_ERR_TOO_SMALL, ::GPUIPC_ERR_OTHER_KIND, contents that are not ready yet). It is so
 * no more after a call that received all there was, or answered ::GPUIPC_ERR_TIMEOUT with nothing left. It may be so
 * for nothing: receive with a timeout of 0, which sets it right.
 * @param connection on which is received
 * @param out_handle the same at each call
 * @errors ::GPUIPC_ERR_BUSY (another thread is receiving), ::GPUIPC_ERR_TOO_MANY_HANDLES
 * @ownership the connection's: wait for it, do nothing else with it, and not after the connection was closed
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status
gpuipc_connection_get_wait_handle(gpuipc_connection *connection, intptr_t *out_handle);

/**
 * Ends the conversation. Buffers that came through it stay; threads that wait in it return
 * ::GPUIPC_ERR_RELEASED, or ::GPUIPC_ERR_CONNECTION_BROKEN with a part of a message sent.
 * @param connection NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED  @ownership takes the connection  @threads any
 * @blocking no. When more than 64 MiB or 64 pieces of released memory are kept because freeing them waits, for what
 *         the devices have been given to do  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_connection_close(gpuipc_connection *connection);

/** The contents are ready already: send waits for no GPU work. Wrong data if that is not true. */
#define GPUIPC_SEND_READY 0x1u

/** Send does not wait for the GPU work: the stream itself marks the point at which the contents are ready. A receiver's
 *  stream (::GPUIPC_RECEIVE_ASYNC) or its call waits for that. Send does wait where the device has neither 64-bit
 *  stream memory operations nor host functions. A stream that is being captured cannot mark anything: the call answers
 *  ::GPUIPC_ERR_CUDA, nothing leaves, and the capture goes on. A stream that has done all that it was given is given
 *  nothing. */
#define GPUIPC_SEND_ASYNC 0x2u
/** Memory that no transport carries without a copy (managed, pinned, of a pool without handle type)
 *  may travel as a copy in pinned host memory. Without it such a buffer is refused, with the reason. */
#define GPUIPC_SEND_STAGED 0x8u

/** A message to send. */
typedef struct gpuipc_outgoing {
    size_t struct_size;            /**< sizeof(gpuipc_outgoing) */
    const void *bytes;             /**< may be NULL when bytes_size is 0 */
    size_t bytes_size;             /**< at most ::GPUIPC_MESSAGE_BYTES_MAX */
    gpuipc_buffer *const *buffers; /**< may be NULL when buffer_count is 0 */
    size_t buffer_count;           /**< any number, in the receiver's limits */
    uint32_t flags;                /**< GPUIPC_SEND_* */
    gpuipc_access access;          /**< the most that the receiver may do; default: all */
    /** The stream whose work so far makes the contents: send waits for it. NULL (or CU_STREAM_LEGACY):
     *  the default stream of every device that one of the buffers is mapped for, and with it all
     *  streams of their primary contexts that are not CU_STREAM_NON_BLOCKING. Contents made on a
     *  non-blocking stream, or in a CUDA context of the caller's own, need their stream here. */
    gpuipc_stream stream;
} gpuipc_outgoing;
/** The start of a ::gpuipc_outgoing: struct_size is set, all else is zero. */
#define GPUIPC_OUTGOING_INIT GPUIPC_SIZED(gpuipc_outgoing)

/**
 * Sends bytes and buffers as one message, after the GPU work that makes the contents (see
 * gpuipc_outgoing::stream) or, with ::GPUIPC_SEND_ASYNC, while it runs. Returns when the message is with the
 * operating system. The buffers may be released at once, since a sent handle keeps the memory alive. (Memory that
 * the caller allocated and wrapped stays his to keep until it has been returned.) With
 * ::GPUIPC_SEND_ASYNC the work of the stream still uses them: release them when the stream has passed, as
 * gpuipc_buffer_release() says. To write into a buffer again, wait for gpuipc_buffer_await_returns() first.
 * @param connection a live connection
 * @param message what is sent; it is only read
 * @param timeout_ms milliseconds; 0 tries once, -1 waits for ever
 * @errors ::GPUIPC_ERR_TIMEOUT (also while the peer does not read; nothing has left), ::GPUIPC_ERR_PEER_CLOSED,
 *         ::GPUIPC_ERR_NOT_SHAREABLE, ::GPUIPC_ERR_BUSY, ::GPUIPC_ERR_LIMIT (also when 262,080 buffers that were
 *         sent over this connection are not returned yet; nothing has left then), ::GPUIPC_ERR_RELEASED,
 *         ::GPUIPC_ERR_TOO_MANY_HANDLES, ::GPUIPC_ERR_TOO_MANY_IN_FLIGHT,
 *         ::GPUIPC_ERR_CONNECTION_BROKEN (also when the time ran out, or anything failed, after part of the message
 *         had left; the record says what), ::GPUIPC_ERR_STRUCT_SIZE,
 *         ::GPUIPC_ERR_ACCESS_DENIED (Windows: this process may not put handles into the peer's)
 * @ownership borrows  @threads one sender at a time
 * @blocking up to timeout_ms for the connection, and without bound for the GPU work  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_connection_send(gpuipc_connection *connection,
                                                               const gpuipc_outgoing *message,
                                                               int timeout_ms);

/** Keep the handles of opened buffers, so that they can be sent on to a third process; costs one
 *  handle per segment for as long as the buffer lives. Set it from the first call that may see the
 *  message: what came before, in a call that timed out or had too little room, is not kept. */
#define GPUIPC_RECEIVE_KEEP_HANDLES 0x1u

/** The call does not wait for contents that are not ready yet: gpuipc_incoming::stream does. Where the
 *  device has no 64-bit stream memory operations the call does wait. */
#define GPUIPC_RECEIVE_ASYNC 0x2u

/** Neither the call nor a stream waits for contents that are not ready yet. Wait for them before use:
 *  gpuipc_buffer_await_ready(), gpuipc_buffer_await_ready_async(). Goes before ::GPUIPC_RECEIVE_ASYNC. */
#define GPUIPC_RECEIVE_DEFERRED 0x4u

/** A message to receive: the caller gives room, the call fills in what came. */
typedef struct gpuipc_incoming {
    size_t struct_size;      /**< sizeof(gpuipc_incoming) */
    void *bytes;             /**< room for bytes_capacity bytes */
    size_t bytes_capacity;   /**< ::GPUIPC_MESSAGE_BYTES_MAX is always enough */
    size_t bytes_size;       /**< out: bytes that came */
    gpuipc_buffer **buffers; /**< room for buffer_capacity buffers */
    size_t buffer_capacity;  /**< buffers there is room for */
    size_t buffer_count;     /**< out: buffers that came */
    uint32_t flags;          /**< GPUIPC_RECEIVE_* */
    /** The device that will use the buffers: ::GPUIPC_DEVICE (number), or ::GPUIPC_DEVICE_OWNER (0, the
     *  default). Only this device is given access. */
    uint32_t device;
    gpuipc_access access; /**< what that device may do; never more than the sender offers */
    uint32_t reserved;    /**< 0 */
    /** With ::GPUIPC_RECEIVE_ASYNC, the stream that will use the buffers: what is put on it after this
     *  call runs when the contents are ready. When the sender ends before that, the stream goes on, and
     *  gpuipc_buffer_info::is_lost tells. NULL: the default stream of the device they are opened for. */
    gpuipc_stream stream;
    /** NULL, or room for buffer_capacity: what gpuipc_buffer_get_info() would say of each buffer, without a call for
     *  each. The first one's struct_size counts for all. */
    gpuipc_buffer_info *infos;
} gpuipc_incoming;
/** The start of a ::gpuipc_incoming: struct_size is set, all else is zero. */
#define GPUIPC_INCOMING_INIT GPUIPC_SIZED(gpuipc_incoming)

/**
 * Receives one message and opens its buffers: all of them or none. Waits until their contents are ready,
 * unless ::GPUIPC_RECEIVE_ASYNC leaves that to the stream, or ::GPUIPC_RECEIVE_DEFERRED to later calls.
 * @param connection a live connection
 * @param timeout_ms milliseconds; 0 tries once, -1 waits for ever
 * @param message with ::GPUIPC_ERR_TOO_SMALL, bytes_size and buffer_count say what is needed, and
 *        the message waits for the next call
 * @errors ::GPUIPC_ERR_TIMEOUT (part of a message that has come is kept for the next call),
 *         ::GPUIPC_ERR_PEER_CLOSED, ::GPUIPC_ERR_TOO_SMALL, ::GPUIPC_ERR_BUSY,
 *         ::GPUIPC_ERR_PROTOCOL, ::GPUIPC_ERR_VERSION, ::GPUIPC_ERR_LIMIT (the message is
 *         larger than this side accepts, or its sender has too many bytes of unfinished messages here, which breaks the
 *         connection), ::GPUIPC_ERR_HANDLE_COUNT,
 *         ::GPUIPC_ERR_TOO_MANY_HANDLES (this process's own limit cut the message, which breaks the connection),
 *         ::GPUIPC_ERR_CONNECTION_BROKEN,
 *         ::GPUIPC_ERR_STRUCT_SIZE, ::GPUIPC_ERR_DEVICE_NOT_FOUND (of gpuipc_incoming::device);
 *         and, dropping the message but keeping the connection: ::GPUIPC_ERR_NOT_GPU_MEMORY,
 *         ::GPUIPC_ERR_LIMIT (the sender's process, or its user, has as much of this one as it may: SECURITY.md),
 *         ::GPUIPC_ERR_NOT_SUPPORTED (this process cannot open memory of that transport),
 *         ::GPUIPC_ERR_VMM_UNSUPPORTED (the driver here has no virtual memory management),
 *         ::GPUIPC_ERR_ACCESS_DENIED (legacy, pool or fabric memory of another user's process: the driver
 *         does not check the names that it travels by),
 *         ::GPUIPC_ERR_SIZE_MISMATCH, ::GPUIPC_ERR_DEVICE_NOT_VISIBLE,
 *         ::GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
 *         ::GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, ::GPUIPC_ERR_LOST (the sender ended before the contents
 *         were ready); and ::GPUIPC_ERR_OTHER_KIND (contents come next)
 * @ownership the buffers are the caller's, one reference each  @threads one receiver at a time
 * @blocking up to timeout_ms for the message, and for the driver's mapping of its buffers. With buffers, also for much
 *           memory that was given up before and is still kept, as gpuipc_connection_close(). With
 *           ::GPUIPC_RECEIVE_ASYNC also while memory is freed in another thread, whatever timeout_ms is
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_connection_receive(gpuipc_connection *connection,
                                                                  gpuipc_incoming *message,
                                                                  int timeout_ms);

/* ---- ready later -------------------------------------------------------------------------- */

/**
 * Lets a stream wait until the contents of a buffer are ready. What is put on the stream afterwards runs then. When they
 * are ready already nothing is put on it. May be called any number of times, for any streams. When the sender ends
 * before that, the stream goes on, and gpuipc_buffer_info::is_lost tells. A buffer that was made or wrapped here is
 * ready; a view (gpuipc_buffer_wrap() of opened memory, a ticket of this process) is when what it is over is.
 * @param buffer a live buffer, which has not been returned
 * @param stream NULL: the default stream of the device that the buffer was opened for
 * @errors ::GPUIPC_ERR_LOST (it is known already that the contents never come; nothing is put on the stream),
 *         ::GPUIPC_ERR_CUDA (also for a stream that is being captured),
 *         ::GPUIPC_ERR_INVALID_ARGUMENT (it has been returned)
 * @ownership borrows; the buffer must stay until the stream has passed  @threads any
 * @blocking while memory is freed in another thread; without 64-bit stream memory operations on the device, until the
 *           contents are ready or the sender has ended
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_await_ready_async(gpuipc_buffer *buffer,
                                                                        gpuipc_stream stream);

/**
 * Waits until the contents of a buffer are ready: the same, by the calling thread.
 * @param buffer a live buffer, which has not been returned
 * @param timeout_ms milliseconds; 0 tries once, -1 waits for ever
 * @errors ::GPUIPC_ERR_TIMEOUT, ::GPUIPC_ERR_LOST (the sender ended before they were ready),
 *         ::GPUIPC_ERR_INVALID_ARGUMENT (it has been returned)
 * @ownership borrows  @threads any  @blocking up to timeout_ms  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_await_ready(gpuipc_buffer *buffer,
                                                                  int timeout_ms);

/* ---- giving back -------------------------------------------------------------------------- */

/**
 * Marks the point after which this process no longer touches a buffer that it received: when @p stream
 * has done its work so far. The sender's gpuipc_buffer_await_returns() waits for it. Neither the buffer nor
 * what was wrapped over it must be used afterwards: gpuipc's own calls on the contents answer
 * ::GPUIPC_ERR_INVALID_ARGUMENT. It is to be released when the stream has passed that point. Releasing a buffer that
 * was not returned returns it at once. A stream that is being captured cannot mark it (::GPUIPC_ERR_CUDA): a buffer is
 * returned once, and a graph may be launched again. Graphs return parts by a mark in the other direction (gpuipc_mark.h).
 * @param buffer one that was received, or opened by a ticket of another process. A ticket of this process opens a view,
 *        which is released and not returned
 * @param stream NULL: the default stream of the device it was opened for
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (not received, or returned already, or opened more than once by its
 *         ticket: it is returned when all have released it)
 * @ownership borrows  @threads any
 * @blocking no; until the stream is there where the device has neither 64-bit stream memory operations nor
 *         host functions  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_return_async(gpuipc_buffer *buffer,
                                                                   gpuipc_stream stream);

/**
 * Waits until every process that the buffer was sent to has returned it, or has ended. Then its memory
 * may be written, freed or handed out again. Of a buffer that this process had sent to itself and sent on
 * from there, the original waits for all, the one that came for what was sent by it. That a connection has ended is not enough; it is where the
 * system cannot say whether the process lives (gpuipc_peer_info::is_running is -1). What the peer had not received when it
 * closed the connection is returned by that.
 * @param buffer a live buffer
 * @param timeout_ms milliseconds; 0 tries once, -1 waits for ever
 * @errors ::GPUIPC_ERR_TIMEOUT  @ownership borrows  @threads any
 * @blocking up to timeout_ms; then, where released memory is kept because freeing it waits, for what the devices
 *           have been given to do  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_await_returns(gpuipc_buffer *buffer,
                                                                    int timeout_ms);

/**
 * What the caller's own event loop waits for until every process that the buffer was sent to has returned it, or has
 * ended. It becomes readable (Linux) or signalled (Windows) within some 20 ms after that, and stays so.
 * gpuipc_buffer_await_returns() would not wait any more then. Each call of this function begins anew: what was handed
 * over until now is waited for, and if all of it is back the handle is ready at once. While one is waited for, a thread
 * of the library looks at the words in shared memory by which returns are told: nothing else tells of them.
 * @param buffer a live buffer
 * @param out_handle the same at each call
 * @errors ::GPUIPC_ERR_TOO_MANY_HANDLES
 * @ownership the buffer's: wait for it, do nothing else with it, and not after the buffer was released
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_get_returns_wait_handle(gpuipc_buffer *buffer,
                                                                              intptr_t *out_handle);

/**
 * Lets a stream wait until every process that the buffer was sent to has returned it, or has ended. What is put on the
 * stream afterwards runs then. A stream that waits already is made to wait only for what was sent since.
 * @param buffer a live buffer
 * @param stream NULL: the default stream of the buffer's device
 * @errors ::GPUIPC_ERR_CUDA (also for a stream that is being captured)
 * @ownership borrows; the buffer must stay until the stream has passed  @threads any
 * @blocking while memory is freed in another thread; without 64-bit stream memory operations on the device, until the
 *           buffer is returned
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_await_returns_async(gpuipc_buffer *buffer,
                                                                          gpuipc_stream stream);

/* ---- contents ----------------------------------------------------------------------------- */

/** A range whose contents are sent, or into which contents are received. */
typedef struct gpuipc_contents {
    size_t struct_size;    /**< sizeof(gpuipc_contents) */
    gpuipc_buffer *buffer; /**< any buffer of this context, wrapped host memory too */
    uint64_t offset;       /**< of the range in the buffer */
    uint64_t bytes;        /**< of the range, above 0; both sides must name the same */
    gpuipc_stream stream;  /**< the transfer happens in its order; NULL: the default stream of the
                                buffer's device */
    /** When sending: ::GPUIPC_TRANSPORT_DEFAULT, or the buffer's own, such as ::GPUIPC_TRANSPORT_VMM (the
     *  receiver copies out of the sender's memory), or ::GPUIPC_TRANSPORT_HOST (both copy at once, in
     *  pieces, through pinned host memory). When receiving: ::GPUIPC_TRANSPORT_DEFAULT, whatever comes,
     *  or one that must be it. */
    gpuipc_transport transport;
    uint32_t reserved; /**< 0 */
} gpuipc_contents;
/** The start of a ::gpuipc_contents: struct_size is set, all else is zero. */
#define GPUIPC_CONTENTS_INIT GPUIPC_SIZED(gpuipc_contents)

/**
 * Sends the contents of a range. Both sides only put work on their streams: this stream has passed when
 * the receiver has all of it; the range may be written again in stream order. If the receiver ends, or
 * closes the connection without receiving, the stream goes on, whichever end is closed first. Contents through host memory follow one
 * another on a connection, whichever streams they are of. That takes 32 MiB in each direction, pinned by
 * both processes, as long as the connection lasts.
 * @param connection a live connection
 * @param contents the range whose contents are sent
 * @param timeout_ms milliseconds; 0 tries once, -1 waits for ever
 * @errors as gpuipc_connection_send(), ::GPUIPC_ERR_OUT_OF_RANGE,
 *         ::GPUIPC_ERR_NO_TRANSPORT (the transport cannot carry this memory; the record says which can),
 *         ::GPUIPC_ERR_NOT_SUPPORTED (through host memory that the device has at another address than the host),
 *         ::GPUIPC_ERR_CUDA (also for a stream that is being captured; nothing leaves then),
 *         ::GPUIPC_ERR_DRIVER_TOO_OLD (through host memory: it pins none, or has no host functions). After a
 *         failure behind which the receiver had heard of them the connection is broken, and the record says so
 * @ownership borrows; buffer and context must stay until the stream has passed
 * @threads one sender at a time
 * @blocking up to timeout_ms in all: for the connection, and while the stream has 96 contents that it has not passed, over
 *           whichever connections of the context. Through host memory likewise while 96 pieces of 1 to 8 MiB of this direction are under way.
 *           After ::GPUIPC_ERR_TIMEOUT nothing has left. Only of a range above 768 MiB through host memory a part may have: then
 *           it is ::GPUIPC_ERR_CONNECTION_BROKEN, and no gpuipc_context_wake() ends that wait. Two who each send so much before
 *           they receive wait for each other. What else the stream was given by its owner may fill its queue as well, which is
 *           waited for without bound. Further, through host memory, the first time for its pinning. Without 64-bit
 *           stream memory operations on the device, until the receiver has all of it, or ends  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_connection_send_contents(
    gpuipc_connection *connection, const gpuipc_contents *contents, int timeout_ms);

/**
 * Receives contents into a range. What is put on the stream afterwards sees them. If the sender ends
 * first, the stream goes on, and gpuipc_buffer_info::is_lost of the buffer tells, until it receives
 * others.
 * @param connection a live connection
 * @param contents the range that they come into
 * @param timeout_ms milliseconds; 0 tries once, -1 waits for ever
 * @errors ::GPUIPC_ERR_TIMEOUT, ::GPUIPC_ERR_PEER_CLOSED, ::GPUIPC_ERR_OTHER_KIND (a message comes
 *         next), ::GPUIPC_ERR_SIZE_MISMATCH (the sender's range has another size: the contents are
 *         dropped), ::GPUIPC_ERR_NO_TRANSPORT (they come by another transport than the one named: they
 *         are dropped), ::GPUIPC_ERR_OUT_OF_RANGE, and as gpuipc_connection_receive()
 * @ownership borrows; buffer and context must stay until the stream has passed
 * @threads one receiver at a time
 * @blocking up to timeout_ms for the sender's call, and for contents before, as
 *           gpuipc_connection_send_contents(): after ::GPUIPC_ERR_TIMEOUT they can be received again. Further for the driver's
 *           mapping of the sender's memory or, the first time, the pinning of the host memory. Without 64-bit stream memory operations on the
 *           device, until the contents are there, or the sender ends  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_connection_receive_contents(
    gpuipc_connection *connection, const gpuipc_contents *contents, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
