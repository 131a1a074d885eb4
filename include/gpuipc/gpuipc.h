/* SPDX-License-Identifier: MIT */
/**
 * @file gpuipc: one process uses another process's GPU memory, without copying it.
 *
 * In the order of a first lesson: context, device, buffer, server and ticket, listener and connection, message.
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
 * - The library starts no thread, but for that of a server which asks for one (::GPUIPC_SERVER_THREAD), and
 *   one of a context while a stream waits for another process
 *   (::GPUIPC_RECEIVE_ASYNC, gpuipc_buffer_await_returns_async()): it sees to it that the stream goes on
 *   when that process ends, and ends itself when no stream waits any more.
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

typedef struct gpuipc_context gpuipc_context; /**< one process's use of gpuipc */
typedef struct gpuipc_buffer gpuipc_buffer;   /**< a range of device memory */

/** "No device": a GPU that this process does not see. */
#define GPUIPC_DEVICE_NONE UINT32_MAX

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
 *  still refused. Linux only: on Windows no handle reaches another user's process, and calls that
 *  need the directory answer ::GPUIPC_ERR_NOT_SUPPORTED. */
#define GPUIPC_CONTEXT_SHARED_DIRECTORY 0x1u

/** Without the two small things that a context otherwise keeps alive because they make every hand-over
 *  faster (measured on an H200: 0.5 ms for each buffer sent, 1 ms for each one opened on another device
 *  than its own): a 2 MiB allocation with one exported handle, made when memory is first shared; and
 *  2 MiB of each device whose memory is opened here for another device, mapped there, made when that first
 *  happens. They end with the context. Where one cannot be made, hand-overs are only slower: the log says so
 *  once, and while memory or handles are short it is tried again, a second later at the earliest. */
#define GPUIPC_CONTEXT_NO_KEEP_ALIVE 0x2u

/** How a context is made. Zero everywhere (or NULL) is the right choice for most programs. */
typedef struct gpuipc_context_config {
    size_t struct_size; /**< sizeof(gpuipc_context_config) */
    /** Which driver: "auto" (the installed one), "emulated" (in software, for tests, no GPU needed)
     *  or the absolute path of a library. NULL: the environment variable GPUIPC_CUDA_DRIVER, which
     *  is not read in a set-uid program, else "auto". "auto" never turns to the emulated driver. */
    const char *driver;
    /** Directory in which names live, as an absolute path in UTF-8. It must be the user's own: with
     *  mode 0700 on Linux; on Windows, which wants a local drive, with no right to change it for
     *  anybody but the user, the system and the administrators. NULL: the environment variable
     *  GPUIPC_RUNTIME_DIR, else $XDG_RUNTIME_DIR/gpuipc or /tmp/gpuipc-UID on Linux and
     *  %LOCALAPPDATA%\gpuipc on Windows. Made when it is missing. */
    const char *runtime_directory;
    uint32_t flags; /**< GPUIPC_CONTEXT_* */
    /** Most buffers accepted in one message; 0: 4096. */
    uint32_t max_buffers_per_message;
    /** Most handles (one per segment) accepted in one message; 0: 8192. */
    uint32_t max_handles_per_message;
    gpuipc_log_callback log; /**< NULL: the library is silent */
    void *log_user_data;     /**< given to log */
    /** Most handles of this process's own buffers that are kept from their first hand-over on, so that
     *  the next one needs no call of the driver: one descriptor or HANDLE per segment, until the buffer is
     *  released. Beyond that they are made anew each time (some 20 us each). 0: 128;
     *  ::GPUIPC_KEEP_NONE: none. */
    uint32_t max_kept_handles;
    /** Most buffers of other processes whose memory stays mapped here after they were released, so that they
     *  open faster when they come again; the ones not used for longest go first. That keeps the memory
     *  taken although its owner has released it. Memory that ends with its owner (fabric) does not stay.
     *  0: none. */
    uint32_t max_cached_imports;
} gpuipc_context_config;

/** In gpuipc_context_config::max_kept_handles, "none". */
#define GPUIPC_KEEP_NONE UINT32_MAX

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
 * @blocking for the driver's release of the devices used, when it was the last hold, and for what the devices
 *           have been given to do; up to a second for streams that wait for another process, after which
 *           their memory is left to the end of the process  @since 0.1
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

/** A way to reach GPU memory. gpuipc_transport_query() says which ones work here. */
typedef enum gpuipc_transport {
    GPUIPC_TRANSPORT_DEFAULT = 0, /**< ::GPUIPC_TRANSPORT_VMM */
    GPUIPC_TRANSPORT_VMM = 1,     /**< virtual memory management: fd or HANDLE per allocation */
    GPUIPC_TRANSPORT_POOL = 2,   /**< stream-ordered memory: a pool's fd once, then 64 bytes each */
    GPUIPC_TRANSPORT_LEGACY = 3, /**< cuIpcGetMemHandle, for memory of cuMemAlloc */
    GPUIPC_TRANSPORT_P2P = 4,    /**< peer access to cuMemAlloc memory inside one process */
    GPUIPC_TRANSPORT_HOST = 5,   /**< pinned host memory that both processes have: always works, and
                                       is slower; never chosen unless asked for */
    GPUIPC_TRANSPORT_FABRIC = 6  /**< 64-byte handles across hosts of one NVLink domain (IMEX) */
} gpuipc_transport;

/** How a buffer is made. */
typedef struct gpuipc_buffer_config {
    size_t struct_size; /**< sizeof(gpuipc_buffer_config) */
    uint32_t device; /**< the device that owns the memory; of host memory, the one that uses it */
    gpuipc_transport transport; /**< which kind of memory is made; default: vmm. p2p and legacy: of
                                     cuMemAlloc */
    uint64_t bytes; /**< wanted size, above 0; the allocation is rounded up to the granularity */
    /** Size of one physical allocation; 0: as openers wants it. Rounded up to the
     *  granularity. A buffer needs one handle per segment. */
    uint64_t segment_bytes;
    /** The GPUs for which other processes will open the buffer, as far as that is known. With another GPU than
     *  the owner among them a buffer of 512 MiB or more is made of several allocations side by side, since
     *  opening one so large from another GPU takes 8.5 ms (measured on H200s). Other libraries that are
     *  given its address share the first of them only. And the handles are made at once, as far as they are kept
     *  (gpuipc_context_config::max_kept_handles), so that the first hand-over need not. NULL: one allocation, and
     *  handles when it is handed over first. */
    const gpuipc_uuid *openers;
    uint32_t opener_count; /**< how many openers there are */
    uint32_t reserved;     /**< 0 */
} gpuipc_buffer_config;

/**
 * Makes shareable memory on a device, readable and writable there. Its contents are undefined.
 * Memory of the transports legacy, pool and p2p stays allocated until every process that it was sent to
 * has returned it or has ended, also when it is released before.
 * @errors ::GPUIPC_ERR_NOT_SUPPORTED (the transport's memory cannot be made here),
 *          ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_VMM_UNSUPPORTED,
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
 * Makes a buffer of memory that the caller allocated: with cuMemCreate and cuMemMap (with this system's
 * handle type among its requestedHandleTypes; the range may lie inside one mapping or span several that
 * touch, and all of them are shared), with cuMemAlloc or cudaMalloc (travels by legacy IPC), or from a
 * stream-ordered pool that was made with a handle type. Of memory without a handle type, and of managed or
 * pinned host memory, only copies travel: ::GPUIPC_SEND_STAGED, gpuipc_connection_send_contents().
 * gpuipc_pointer_classify() tells which it is. Whole allocations travel: the receiver can reach what lies
 * beside the range.
 * @param address device address of the first byte; for host memory, its host address
 * @param bytes length of the range
 * @errors ::GPUIPC_ERR_NOT_DEVICE_MEMORY (also mapped memory that no device has been given access
 *         to), ::GPUIPC_ERR_NOT_SHAREABLE (opened from another process by legacy IPC or from a pool; a
 *         range over several devices or kinds of memory), ::GPUIPC_ERR_OUT_OF_RANGE (part of it is not
 *         mapped), ::GPUIPC_ERR_DEVICE_NOT_FOUND (its device is not visible)
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
 * @blocking for the driver's unmapping; the last of legacy, p2p and host memory for what the devices have been
 *           given to do, unless a stream of this process waits for another process: then a later call frees
 *           it (another such release, gpuipc_buffer_await_returns(), gpuipc_connection_close(),
 *           gpuipc_context_destroy(), or a creation that finds no memory)  @since 0.1
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
    size_t struct_size;       /**< sizeof(gpuipc_buffer_info), set by the caller */
    uint64_t address;         /**< device address of the first byte (CUdeviceptr) */
    uint64_t bytes;           /**< length asked for */
    uint64_t allocated_bytes; /**< of the allocations behind it: a multiple of the granularity */
    uint32_t segment_count;   /**< physical allocations behind it */
    uint32_t device;          /**< owning device here, or ::GPUIPC_DEVICE_NONE when not visible */
    gpuipc_uuid device_uuid;  /**< the owning device everywhere */
    uint32_t access_device;   /**< the device it was mapped for */
    gpuipc_access access;     /**< what access_device may do; 0: nothing (wrapped) */
    gpuipc_buffer_origin origin; /**< see the type */
    uint8_t exporter_id[16];     /**< the instance id of the context that made or wrapped it */
    uint64_t buffer_id;          /**< its number there; the two together name a buffer, and travel
                                     with it; one from native handles gets new ones */
    gpuipc_transport transport;  /**< how its memory reaches another process */
    uint32_t
        lent_count;    /**< hand-overs of it that are not returned yet; where none was counted: 0 */
    int32_t is_lost;   /**< 1: the sender of its contents ended before they were ready or had come
                              (gpuipc_connection_receive_contents()), so they are not valid */
    uint32_t reserved; /**< 0 */
} gpuipc_buffer_info;

/**
 * What is known of a buffer.
 * @errors ::GPUIPC_ERR_STRUCT_SIZE  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_get_info(gpuipc_buffer *buffer,
                                                gpuipc_buffer_info *out_info);

/**
 * Lets another device reach the buffer, or changes what one may do. The whole of every segment is
 * affected, not only the range; of memory of transport vmm or fabric that was received, also every other
 * buffer over the same memory that came over the same connection, or by tickets of the same server, and was
 * opened for the same device and access: they share one mapping. No work may be using the buffer: a copy
 * whose access changes while it runs ends its CUDA context with CUDA_ERROR_ILLEGAL_ADDRESS (measured on an
 * H200, driver 580).
 * Where the driver does not guard memory that is only to be read (legacy, pool, p2p, host), gpuipc's own
 * copies and fills do.
 * For memory of cuMemAlloc (legacy, p2p, wrapped) this enables peer access between two CUDA contexts, unless
 * that is so already. It stays enabled when the buffer is released, and is disabled at the end of the last
 * context whose buffers wanted it, if it was gpuipc that enabled it. A program that uses it itself enables it
 * first, or keeps such a context.
 * @errors ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
 *         ::GPUIPC_ERR_ACCESS_DENIED (more than the sender of an opened buffer offers),
 *         ::GPUIPC_ERR_NOT_SUPPORTED (reading only, for another device, where the driver does not guard
 *         it; memory opened by legacy IPC, for another device than it was received for)
 * @ownership borrows  @threads any  @blocking for the driver (a first peer: about 1 ms)  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_set_access(gpuipc_buffer *buffer, uint32_t device,
                                                  gpuipc_access access);

/**
 * Copies between two buffers of one context, on a stream. Where a device reaches both, that device
 * copies. Where none does, the copy goes through pinned host memory in pieces, which one device writes
 * while the other reads: at the speed of the slower bus, and faster than the driver's own copy without
 * peer access. For a direct copy let one device reach the other's buffer with
 * gpuipc_buffer_set_access(). Copies through host memory of more than four streams at a time, from one
 * device to another, wait for each other; the 32 MiB that each of the four takes stay with the context.
 * A stream that is being captured cannot take part in one (::GPUIPC_ERR_CUDA, and the capture ends).
 * @param stream NULL: the default stream of the destination's device
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE, ::GPUIPC_ERR_ACCESS_DENIED (the destination may only be read)
 * @ownership borrows; both buffers must stay until the stream has passed the copy
 * @threads any
 * @blocking no; the first copy through host memory for its allocation (some 20 ms); one of more than
 *           2 GiB while the driver's queue is full; between two buffers in host memory, as the driver
 *           does, until it is done  @since 0.1
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

#ifdef __cplusplus
}
#endif

#include "gpuipc_connection.h" /* the rest of the lesson: listener, connection, message */
#include "gpuipc_manifest.h"   /* many tensors in one buffer */
#include "gpuipc_ticket.h"     /* 64 bytes that stand for a buffer, through any channel */
#include "gpuipc_transport.h"  /* which way works, how fast, and why not */

#endif
