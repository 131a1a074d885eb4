/* SPDX-License-Identifier: MIT */
/**
 * @file gpuipc: one process uses another process's GPU memory, without copying it.
 *
 * In the order of a first lesson: context, device, buffer, listener and connection, message.
 *
 * Rules that hold everywhere:
 * - Every call that can fail returns a ::gpuipc_status. Results come last, are called out_x, and
 *   are written only on success. After a failure gpuipc_error_get() has the particulars.
 * - Structs passed in start with struct_size, which the caller sets to sizeof the struct. Zero in
 *   any other field means the default. A longer struct than the library knows is accepted when
 *   the part it does not know is zero, and refused with ::GPUIPC_ERR_STRUCT_SIZE otherwise.
 * - Sizes are in bytes, times in milliseconds. A timeout of 0 tries once, -1 waits for ever; a
 *   call never waits longer than its timeout.
 * - Objects may be used from any thread at the same time, but for a connection: one sending and
 *   one receiving thread at a time (a second one gets ::GPUIPC_ERR_BUSY). A released object is
 *   recognised: using it answers ::GPUIPC_ERR_RELEASED.
 * - After fork() a child cannot use its parent's objects (CUDA does not survive fork): its calls
 *   answer ::GPUIPC_ERR_FORKED, and the library's descriptors are closed in the child at once. (One
 *   that is just being exported or closed in another thread at that moment stays until exec.)
 * - The calling thread's current CUDA context is the same after a call as before it. Where a call
 *   uses a default stream it is that of the device's primary context, the one that the CUDA runtime
 *   and most programs use; as everywhere in CUDA, that ends a stream capture of a blocking stream.
 * - Any call may answer ::GPUIPC_ERR_INVALID_ARGUMENT, ::GPUIPC_ERR_RELEASED,
 *   ::GPUIPC_ERR_FORKED, ::GPUIPC_ERR_OUT_OF_MEMORY, ::GPUIPC_ERR_CUDA and ::GPUIPC_ERR_OS; only
 *   what is particular to a call is listed with it.
 */
#ifndef GPUIPC_H
#define GPUIPC_H

#include <stddef.h>
#include <stdint.h>

#include "gpuipc_export.h"
#include "gpuipc_status.h"
#include "gpuipc_version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The stream type of cuda.h (CUstream) and of the runtime (cudaStream_t), without either header. */
struct CUstream_st;
/** A CUDA stream; ::CUstream and cudaStream_t pass without a cast. */
typedef struct CUstream_st *gpuipc_stream;

typedef struct gpuipc_context gpuipc_context;       /**< one process's use of gpuipc */
typedef struct gpuipc_buffer gpuipc_buffer;         /**< a range of device memory */
typedef struct gpuipc_listener gpuipc_listener;     /**< a named local endpoint */
typedef struct gpuipc_connection gpuipc_connection; /**< a conversation with one process */

/** "No device": a GPU that this process does not see. */
#define GPUIPC_DEVICE_NONE UINT32_MAX
/** In gpuipc_incoming::device, "the GPU that owns the memory". */
#define GPUIPC_DEVICE_OWNER 0u
/** In gpuipc_incoming::device, device number @p index. Not of ::GPUIPC_DEVICE_NONE. */
#define GPUIPC_DEVICE(index) ((uint32_t)(index) + 1u)
/** The longest name of an endpoint, in characters. */
#define GPUIPC_NAME_MAX 64
/** The most bytes that one message carries beside its buffers. */
#define GPUIPC_MESSAGE_BYTES_MAX 65536

/** 128 bits that name a GPU, as the CUDA driver gives them. */
typedef struct gpuipc_uuid {
    uint8_t bytes[16];
} gpuipc_uuid;

/** How much a log line matters. */
typedef enum gpuipc_log_level {
    GPUIPC_LOG_INFO = 0,   /**< something a person may want to know */
    GPUIPC_LOG_WARNING = 1 /**< something that was worked around or refused */
} gpuipc_log_level;

/** Receives what the library has to say; it prints nothing itself. May be called from any thread
 *  that is inside a gpuipc call; must not call gpuipc. */
typedef void (*gpuipc_log_callback)(void *user_data, gpuipc_log_level level, const char *sentence);

/* ---- context ---------------------------------------------------------------------------- */

/** Other users of a group may share the runtime directory: it may belong to another user and admit
 *  its group, but nobody else. Combine with a ::gpuipc_peer_policy; without one, other users are
 *  still refused. */
#define GPUIPC_CONTEXT_SHARED_DIRECTORY 0x1u

/** How a context is made. Zero everywhere (or NULL) is the right choice for most programs. */
typedef struct gpuipc_context_config {
    size_t struct_size; /**< sizeof(gpuipc_context_config) */
    /** Which driver: "auto" (the installed one), "emulated" (in software, for tests, no GPU needed)
     *  or the absolute path of a library. NULL: the environment variable GPUIPC_CUDA_DRIVER, which
     *  is not read in a set-uid program, else "auto". "auto" never turns to the emulated driver. */
    const char *driver;
    /** Directory of the sockets, which must be the user's own with mode 0700. NULL: the environment
     *  variable GPUIPC_RUNTIME_DIR, else $XDG_RUNTIME_DIR/gpuipc, else /tmp/gpuipc-UID. Made when
     *  it is missing. Linux only. */
    const char *runtime_directory;
    uint32_t flags; /**< GPUIPC_CONTEXT_* */
    /** Most buffers accepted in one message; 0: 4096. */
    uint32_t max_buffers_per_message;
    /** Most handles (one per segment) accepted in one message; 0: 8192. */
    uint32_t max_handles_per_message;
    gpuipc_log_callback log; /**< NULL: the library is silent */
    void *log_user_data;     /**< given to log */
} gpuipc_context_config;

/**
 * Loads and starts the CUDA driver and notes which devices there are. No CUDA context is made
 * until a device is used.
 * @param config NULL for the defaults
 * @errors ::GPUIPC_ERR_NO_DRIVER, ::GPUIPC_ERR_DRIVER_TOO_OLD, ::GPUIPC_ERR_DRIVER_FAILED,
 *         ::GPUIPC_ERR_NO_DEVICE, ::GPUIPC_ERR_NAME_TOO_LONG (runtime_directory),
 *         ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership the caller's; end it with gpuipc_context_destroy()
 * @threads any  @blocking for as long as the driver takes to start  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_context_create(const gpuipc_context_config *config,
                                               gpuipc_context **out_context);

/**
 * Gives up the caller's hold. Buffers, listeners and connections made from the context stay usable
 * and keep what they need of it alive; the last of them ends it.
 * @param context NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED  @ownership takes the caller's hold  @threads any
 * @blocking for the driver's release of the devices used, when it was the last hold  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_context_destroy(gpuipc_context *context);

/** What a context found. */
typedef struct gpuipc_context_info {
    size_t struct_size;      /**< sizeof(gpuipc_context_info), set by the caller */
    uint32_t device_count;   /**< devices are numbered 0 .. device_count - 1 */
    int32_t driver_version;  /**< 1000 * major + 10 * minor, such as 13000 for CUDA 13.0 */
    int32_t is_emulated;     /**< 1: the emulated driver, on which nothing is a real GPU */
    char driver_path[512];   /**< the driver's library, cut when longer */
    uint8_t instance_id[16]; /**< random, different in every context */
} gpuipc_context_info;

/**
 * What the context found.
 * @errors ::GPUIPC_ERR_STRUCT_SIZE  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_context_get_info(gpuipc_context *context,
                                                 gpuipc_context_info *out_info);

/* ---- device ----------------------------------------------------------------------------- */

/** Which kind of Windows driver runs the GPU. */
typedef enum gpuipc_driver_model {
    GPUIPC_DRIVER_MODEL_NOT_WINDOWS = 0, /**< not Windows */
    GPUIPC_DRIVER_MODEL_WDDM = 1,        /**< has virtual memory management */
    GPUIPC_DRIVER_MODEL_TCC = 2          /**< has not: memory cannot be shared through handles */
} gpuipc_driver_model;

/** What is known of a GPU. */
typedef struct gpuipc_device_info {
    size_t struct_size;         /**< sizeof(gpuipc_device_info), set by the caller */
    gpuipc_uuid uuid;           /**< names the GPU outside this process; of the MIG slice, if one */
    char name[256];             /**< the maker's name for it */
    uint64_t memory_bytes;      /**< all memory of the device */
    uint64_t granularity_bytes; /**< shareable memory is made in multiples of this; 0: no VMM */
    int32_t compute_major;      /**< compute capability */
    int32_t compute_minor;      /**< compute capability */
    gpuipc_driver_model driver_model; /**< see the type */
    int32_t is_mig;    /**< 1: a slice of a GPU (MIG), as the driver's name for it tells */
    int32_t can_share; /**< 1: memory made here can be exported as this system's handle */
    char why_not[160]; /**< if can_share is 0, the reason; else empty */
} gpuipc_device_info;

/**
 * How many devices this process sees.
 * @errors none particular  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_device_count(gpuipc_context *context, uint32_t *out_count);

/**
 * What is known of device number @p device.
 * @errors ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_STRUCT_SIZE  @ownership copies
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_device_get_info(gpuipc_context *context, uint32_t device,
                                                gpuipc_device_info *out_info);

/**
 * The number, in this process, of the GPU with this UUID.
 * @errors ::GPUIPC_ERR_DEVICE_NOT_FOUND  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_device_find(gpuipc_context *context, const gpuipc_uuid *uuid,
                                            uint32_t *out_device);

/* ---- buffer ----------------------------------------------------------------------------- */

/** What a device may do with a buffer. Read-only guards against mistakes; it is no security
 *  boundary, because the driver lets an importer raise its own access. */
typedef enum gpuipc_access {
    GPUIPC_ACCESS_DEFAULT = 0,   /**< read-write, or what the sender offers */
    GPUIPC_ACCESS_READ = 1,      /**< writes by the driver's copies and fills are refused */
    GPUIPC_ACCESS_READ_WRITE = 3 /**< both */
} gpuipc_access;

/** How a buffer is made. */
typedef struct gpuipc_buffer_config {
    size_t struct_size; /**< sizeof(gpuipc_buffer_config) */
    uint32_t device;    /**< the device that owns the memory */
    uint32_t reserved;  /**< 0 */
    uint64_t bytes; /**< wanted size, above 0; the allocation is rounded up to the granularity */
    /** Size of one physical allocation; 0: one for the whole buffer. Rounded up to the
     *  granularity. A buffer needs one handle per segment. */
    uint64_t segment_bytes;
} gpuipc_buffer_config;

/**
 * Makes shareable memory on a device, readable and writable there. Its contents are undefined.
 * @errors ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_VMM_UNSUPPORTED,
 *         ::GPUIPC_ERR_HANDLE_TYPE_UNSUPPORTED, ::GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
 *         ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership the caller holds one reference; gpuipc_buffer_release() gives it up
 * @threads any  @blocking for the driver's allocation (tens of microseconds to milliseconds)
 * @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_create(gpuipc_context *context,
                                              const gpuipc_buffer_config *config,
                                              gpuipc_buffer **out_buffer);

/**
 * Makes a buffer of memory that the caller mapped with cuMemCreate and cuMemMap, with this system's
 * handle type among its requestedHandleTypes. The range may lie inside one mapping or span
 * several that touch; all of them are shared. Whole allocations travel: the receiver can reach
 * what lies beside the range.
 * @param address device address of the first byte  @param bytes length of the range
 * @errors ::GPUIPC_ERR_NOT_DEVICE_MEMORY, ::GPUIPC_ERR_NOT_SHAREABLE (memory of another kind, or
 *         opened from another process), ::GPUIPC_ERR_OUT_OF_RANGE (part of it is not mapped),
 *         ::GPUIPC_ERR_VMM_UNSUPPORTED, ::GPUIPC_ERR_DEVICE_NOT_FOUND (its device is not visible)
 * @ownership the buffer keeps the physical memory alive, but not the caller's mapping, which must
 *         stay until the buffer is released
 * @threads any
 * @blocking for the driver, when the device is used first (some 100 ms)  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_wrap(gpuipc_context *context, uint64_t address,
                                            uint64_t bytes, gpuipc_buffer **out_buffer);

/**
 * Adds a reference.
 * @errors none particular  @ownership one more gpuipc_buffer_release() is owed  @threads any
 * @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_retain(gpuipc_buffer *buffer);

/**
 * Gives up a reference; the last one unmaps and frees. Work that uses the memory must have ended:
 * on a GPU, work whose memory is unmapped ends its CUDA context with CUDA_ERROR_ILLEGAL_ADDRESS.
 * Memory that another process has open stays alive there.
 * @param buffer NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED  @ownership takes one reference  @threads any
 * @blocking for the driver's unmapping  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_release(gpuipc_buffer *buffer);

/** Where a buffer's memory came from. */
typedef enum gpuipc_buffer_origin {
    GPUIPC_BUFFER_CREATED = 1, /**< gpuipc_buffer_create() */
    GPUIPC_BUFFER_WRAPPED = 2, /**< gpuipc_buffer_wrap() */
    GPUIPC_BUFFER_OPENED = 3   /**< opened from another process, or from native handles */
} gpuipc_buffer_origin;

/** What is known of a buffer. */
typedef struct gpuipc_buffer_info {
    size_t struct_size; /**< sizeof(gpuipc_buffer_info), set by the caller */
    uint64_t address;   /**< device address of the first byte (CUdeviceptr) */
    uint64_t bytes;     /**< length asked for */
    uint64_t
        allocated_bytes; /**< length of the allocations behind it, a multiple of the granularity */
    uint32_t segment_count;  /**< physical allocations behind it */
    uint32_t device;         /**< owning device here, or ::GPUIPC_DEVICE_NONE when not visible */
    gpuipc_uuid device_uuid; /**< the owning device everywhere */
    uint32_t access_device;  /**< the device it was mapped for */
    gpuipc_access access;    /**< what access_device may do; 0: nothing (wrapped memory) */
    gpuipc_buffer_origin origin; /**< see the type */
    uint8_t exporter_id[16];     /**< the instance id of the context that made or wrapped it */
    uint64_t buffer_id;          /**< its number there; the two together name a buffer, and travel
                                     with it; one from native handles gets new ones */
} gpuipc_buffer_info;

/**
 * What is known of a buffer.
 * @errors ::GPUIPC_ERR_STRUCT_SIZE  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_get_info(gpuipc_buffer *buffer,
                                                gpuipc_buffer_info *out_info);

/**
 * Lets another device reach the buffer, or changes what one may do. The whole of every segment is
 * affected, not only the range. No work may be using the buffer: a copy whose access changes while it
 * runs ends its CUDA context with CUDA_ERROR_ILLEGAL_ADDRESS (measured on an H200, driver 580).
 * @errors ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
 *         ::GPUIPC_ERR_ACCESS_DENIED (more than the sender of an opened buffer offers)
 * @ownership borrows  @threads any  @blocking for the driver (a first peer: about 1 ms)  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_set_access(gpuipc_buffer *buffer, uint32_t device,
                                                  gpuipc_access access);

/**
 * Copies between two buffers of one context, on a stream.
 * @param stream NULL: the default stream of the destination's device
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE
 * @ownership borrows; both buffers must stay until the stream has passed the copy
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_copy_async(gpuipc_buffer *destination,
                                                  uint64_t destination_offset,
                                                  gpuipc_buffer *source, uint64_t source_offset,
                                                  uint64_t bytes, gpuipc_stream stream);

/**
 * Fills with a value, on a stream.
 * @param value the lowest @p width bytes of it are written  @param width 1, 2 or 4; the address to
 *        be filled and @p bytes must be multiples of it  @param stream NULL: the default stream of the buffer's device
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE
 * @ownership borrows; the buffer must stay until the stream has passed the fill
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_fill_async(gpuipc_buffer *buffer, uint64_t offset,
                                                  uint64_t bytes, uint32_t value, uint32_t width,
                                                  gpuipc_stream stream);

/**
 * Copies from host memory into the buffer and waits until it is there.
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE  @ownership borrows  @threads any
 * @blocking until the copy is done  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_write(gpuipc_buffer *buffer, uint64_t offset,
                                             const void *host, uint64_t bytes);

/**
 * Copies from the buffer into host memory and waits until it is there.
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE  @ownership borrows  @threads any
 * @blocking until the copy is done  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_read(gpuipc_buffer *buffer, uint64_t offset, void *host,
                                            uint64_t bytes);

/* ---- listener and connection ------------------------------------------------------------ */

/** Who is at the other end, as the operating system says (never as the peer says). */
typedef struct gpuipc_peer_info {
    size_t struct_size;  /**< sizeof(gpuipc_peer_info), set by the caller */
    uint64_t process_id; /**< as this process's PID namespace numbers it; 0: not in it */
    char user[192];      /**< Linux: decimal user id; Windows: SID text */
    int32_t same_user;   /**< 1: the user this process runs as */
    int32_t is_running;  /**< 1: the process lives, 0: it has ended, -1: cannot be known */
} gpuipc_peer_info;

/** Decides whether a peer may talk to us. Returns 0 to refuse. Called inside accept and open, on
 *  their thread; must not call gpuipc. */
typedef int (*gpuipc_peer_policy)(void *user_data, const gpuipc_peer_info *peer);

/** How a listener or a connection is opened. NULL in place of it: the same user only. */
typedef struct gpuipc_endpoint_config {
    size_t struct_size;        /**< sizeof(gpuipc_endpoint_config) */
    gpuipc_peer_policy policy; /**< NULL: only processes of the same user */
    void *policy_user_data;    /**< given to policy */
} gpuipc_endpoint_config;

/**
 * Opens an endpoint that other processes reach by name.
 * @param name 1 to ::GPUIPC_NAME_MAX of A-Z a-z 0-9 . _ - and no leading dot. A leading '@' (Linux)
 *        asks for an abstract socket, which has no directory to guard it and ends at the network
 *        namespace; other users are still refused.
 * @errors ::GPUIPC_ERR_NAME_INVALID, ::GPUIPC_ERR_NAME_TOO_LONG, ::GPUIPC_ERR_NAME_IN_USE,
 *         ::GPUIPC_ERR_UNSAFE_DIRECTORY, ::GPUIPC_ERR_TOO_MANY_HANDLES, ::GPUIPC_ERR_TIMEOUT
 * @ownership the caller's; gpuipc_listener_close() ends it and frees the name
 * @threads any
 * @blocking no; when another process keeps the directory locked, up to 2 s and then
 *         ::GPUIPC_ERR_TIMEOUT  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_listener_open(gpuipc_context *context, const char *name,
                                              const gpuipc_endpoint_config *config,
                                              gpuipc_listener **out_listener);

/**
 * Waits for a process to connect. One that the policy refuses costs its own connection and
 * nothing else: the wait goes on.
 * @errors ::GPUIPC_ERR_TIMEOUT, ::GPUIPC_ERR_TOO_MANY_HANDLES
 * @ownership the connection is the caller's; gpuipc_connection_close() ends it
 * @threads any number at once  @blocking up to timeout_ms  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_listener_accept(gpuipc_listener *listener, int timeout_ms,
                                                gpuipc_connection **out_connection);

/**
 * Ends the endpoint; connections already accepted stay. Threads that wait in accept return
 * ::GPUIPC_ERR_RELEASED. The name is free at once; an abstract one when those threads have returned.
 * @param listener NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED  @ownership takes the listener  @threads any  @blocking no
 * @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_listener_close(gpuipc_listener *listener);

/**
 * Connects to a listener; waits for one to appear while there is time.
 * @errors ::GPUIPC_ERR_NOT_FOUND (nobody listened before the time ran out),
 *         ::GPUIPC_ERR_TIMEOUT (somebody listens but accepts nobody), ::GPUIPC_ERR_ACCESS_DENIED,
 *         ::GPUIPC_ERR_PROTOCOL (the name is another program's), ::GPUIPC_ERR_NAME_INVALID,
 *         ::GPUIPC_ERR_NAME_TOO_LONG, ::GPUIPC_ERR_UNSAFE_DIRECTORY, ::GPUIPC_ERR_TOO_MANY_HANDLES
 * @ownership the caller's; gpuipc_connection_close() ends it
 * @threads any  @blocking up to timeout_ms  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_connection_open(gpuipc_context *context, const char *name,
                                                const gpuipc_endpoint_config *config,
                                                int timeout_ms, gpuipc_connection **out_connection);

/**
 * Who is at the other end.
 * @errors ::GPUIPC_ERR_STRUCT_SIZE  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_connection_get_peer(gpuipc_connection *connection,
                                                    gpuipc_peer_info *out_peer);

/**
 * Ends the conversation. Buffers that came through it stay; threads that wait in it return
 * ::GPUIPC_ERR_RELEASED.
 * @param connection NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED  @ownership takes the connection  @threads any  @blocking no
 * @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_connection_close(gpuipc_connection *connection);

/** The contents are ready already: send waits for no GPU work. Wrong data if that is not true. */
#define GPUIPC_SEND_READY 0x1u

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

/**
 * Sends bytes and buffers as one message, after the GPU work that makes the contents (see
 * gpuipc_outgoing::stream). Returns when the message is with the operating system; the buffers may
 * be released at once, since a sent handle keeps the memory alive.
 * @errors ::GPUIPC_ERR_TIMEOUT (also while the peer does not read; if part of the message had left,
 *         the connection is broken, and the record says so), ::GPUIPC_ERR_PEER_CLOSED,
 *         ::GPUIPC_ERR_NOT_SHAREABLE, ::GPUIPC_ERR_LIMIT, ::GPUIPC_ERR_BUSY,
 *         ::GPUIPC_ERR_TOO_MANY_HANDLES, ::GPUIPC_ERR_TOO_MANY_IN_FLIGHT,
 *         ::GPUIPC_ERR_CONNECTION_BROKEN, ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership borrows  @threads one sender at a time
 * @blocking up to timeout_ms for the connection, and without bound for the GPU work  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_connection_send(gpuipc_connection *connection,
                                                const gpuipc_outgoing *message, int timeout_ms);

/** Keep the handles of opened buffers, so that they can be sent on to a third process; costs one
 *  handle per segment for as long as the buffer lives. Set it from the first call that may see the
 *  message: what came before, in a call that timed out or had too little room, is not kept. */
#define GPUIPC_RECEIVE_KEEP_HANDLES 0x1u

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
    /** The device that will use the buffers: ::GPUIPC_DEVICE_OWNER (0, the default) or
     *  ::GPUIPC_DEVICE (number). Only this device is given access. */
    uint32_t device;
    gpuipc_access access; /**< what that device may do; never more than the sender offers */
    uint32_t reserved;    /**< 0 */
} gpuipc_incoming;

/**
 * Receives one message and opens its buffers: all of them or none.
 * @param message with ::GPUIPC_ERR_TOO_SMALL, bytes_size and buffer_count say what is needed, and
 *        the message waits for the next call
 * @errors ::GPUIPC_ERR_TIMEOUT (part of a message that has come is kept for the next call),
 *         ::GPUIPC_ERR_PEER_CLOSED, ::GPUIPC_ERR_TOO_SMALL, ::GPUIPC_ERR_BUSY,
 *         ::GPUIPC_ERR_PROTOCOL, ::GPUIPC_ERR_VERSION, ::GPUIPC_ERR_LIMIT,
 *         ::GPUIPC_ERR_HANDLE_COUNT, ::GPUIPC_ERR_TOO_MANY_HANDLES (this process's own limit cut the
 *         message, which breaks the connection), ::GPUIPC_ERR_CONNECTION_BROKEN,
 *         ::GPUIPC_ERR_STRUCT_SIZE;
 *         and, dropping the message but keeping the connection: ::GPUIPC_ERR_NOT_GPU_MEMORY,
 *         ::GPUIPC_ERR_SIZE_MISMATCH, ::GPUIPC_ERR_DEVICE_NOT_VISIBLE,
 *         ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
 *         ::GPUIPC_ERR_OUT_OF_DEVICE_MEMORY
 * @ownership the buffers are the caller's, one reference each  @threads one receiver at a time
 * @blocking up to timeout_ms for the message, and for the driver's mapping of its buffers
 * @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_connection_receive(gpuipc_connection *connection,
                                                   gpuipc_incoming *message, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
