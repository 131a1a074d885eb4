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
 *   call never waits longer than its timeout. Less than -1 is refused (::GPUIPC_ERR_INVALID_ARGUMENT).
 *   In gpuipc_open_config and gpuipc_subscription_config 0 is another default, of five seconds.
 * - Objects may be used from any thread at the same time, but for a connection: one sending and
 *   one receiving thread at a time (a second one gets ::GPUIPC_ERR_BUSY). A released object is
 *   recognised: using it answers ::GPUIPC_ERR_RELEASED.
 * - After fork() a child cannot use its parent's objects (CUDA does not survive fork): its calls
 *   answer ::GPUIPC_ERR_FORKED, and the library's descriptors are closed in the child at once. (One
 *   that is just being exported or closed in another thread at that moment stays until exec.) Only
 *   what ends an object works, and frees what the child has of it.
 * - A process that calls execve() has ended for its peers: what it had open is returned, and waits for it end. They see
 *   that within a second, by a lock on memory that the two share. Before execve(), wait for the GPU work that uses such
 *   memory: the driver may not end it at once.
 * - The calling thread's current CUDA context is the same after a call as before it. Where a call
 *   uses a default stream it is that of the device's primary context, the one that the CUDA runtime
 *   and most programs use. As everywhere in CUDA, that ends a stream capture of a blocking stream.
 * - The library starts threads of four kinds only. A server has one that asks for it (::GPUIPC_SERVER_THREAD). A
 *   context has one while a stream waits for another process (::GPUIPC_RECEIVE_ASYNC,
 *   gpuipc_buffer_await_ready_async(), gpuipc_buffer_await_returns_async()). It sees to it that the stream goes on when
 *   that process ends, and ends itself when no stream waits any more. After a channel of turns whose graphs were
 *   captured it goes on until the context ends, or 32 more of their pages have. The process has one while buffers are
 *   released or loans returned behind the work of devices (gpuipc_buffer_drop(), gpuipc_buffer_drop_loan(),
 *   gpuipc_connection_receive_contents()) or returns are looked for (gpuipc_buffer_get_returns_wait_handle()).
 *   It runs until dropped memory is freed, and a fifth of a second longer. The same one looks after a channel's readers. A subscription has one from the call on
 *   that gets its wait handle (gpuipc_subscription_get_wait_handle()).
 * - A call with a stream puts its work on that stream, in CUDA's order. Calls without a stream, or with ::GPUIPC_NO_STREAM,
 *   have no order with streams, apart from gpuipc_buffer_read() and gpuipc_buffer_write(), which state theirs. To release,
 *   lend, publish or export contents without a stream, first finish the work that makes or uses the contents.
 * - A call that puts something on a stream waits, as any call of CUDA does, while the driver has no room for more on
 *   that stream. It has room for 1,021 calls (measured on an H200, driver 580). "Blocking no" means: for nothing else.
 * - Waits go on when a signal handler has run, unless the context was made otherwise
 *   (::GPUIPC_CONTEXT_INTERRUPTIBLE): then any call that has a time-out may answer ::GPUIPC_ERR_INTERRUPTED.
 * - Any call may answer ::GPUIPC_ERR_INVALID_ARGUMENT, ::GPUIPC_ERR_RELEASED,
 *   ::GPUIPC_ERR_FORKED, ::GPUIPC_ERR_OUT_OF_MEMORY, ::GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
 *   ::GPUIPC_ERR_TOO_MANY_HANDLES (the driver opens some, too), ::GPUIPC_ERR_CUDA and ::GPUIPC_ERR_OS;
 *   only what is particular to a call is listed with it. Where such a list says "as" another call, all
 *   that is listed there belongs to it.
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
/** A CUDA stream; CUstream and cudaStream_t pass without a cast. */
typedef struct CUstream_st *gpuipc_stream;

typedef struct gpuipc_context gpuipc_context; /**< one process's use of gpuipc */
typedef struct gpuipc_buffer gpuipc_buffer;   /**< a range of device memory */

/** "No device": a GPU that this process does not see. */
#define GPUIPC_DEVICE_NONE UINT32_MAX
/** Device number @p number, in a field called device of a struct that is passed in. A plain number there is
 *  refused (::GPUIPC_ERR_INVALID_ARGUMENT), but for 0, the field's default. Parameters of functions, and structs that
 *  are filled in, have plain numbers. */
#define GPUIPC_DEVICE(number) (0x40000000u | (uint32_t)(number))
/** In the device of a struct by which memory is opened, "the GPU that owns it"; the default. */
#define GPUIPC_DEVICE_OWNER 0u

/** 128 bits that name a GPU, as the CUDA driver gives them. */
typedef struct gpuipc_uuid {
    uint8_t bytes[16]; /**< in the order in which nvidia-smi writes them */
} gpuipc_uuid;

/** How much a log line matters. */
typedef enum gpuipc_log_level {
    GPUIPC_LOG_INFO = 0,   /**< something a person may want to know */
    GPUIPC_LOG_WARNING = 1 /**< something that was worked around or refused */
} gpuipc_log_level;

/** Receives what the library has to say; it prints nothing itself. May be called from any thread
 *  that is inside a gpuipc call; must not call gpuipc. Of what other processes did (connections refused, requests that
 *  are none, readers dropped) a context says at most 16 sentences in each second of the monotonic clock. How many were
 *  left out is a sentence of its own, before the next of them or with the context's end. */
typedef void (*gpuipc_log_callback)(void *user_data, gpuipc_log_level level, const char *sentence);

/* ---- context ---------------------------------------------------------------------------- */

/** Other users of a group may share the runtime directory: it may belong to another user and admit
 *  its group, but nobody else. Combine with a ::gpuipc_peer_policy; without one, other users are
 *  still refused. Linux only: on Windows no handle reaches another user's process, and calls that
 *  need the directory answer ::GPUIPC_ERR_NOT_SUPPORTED. */
#define GPUIPC_CONTEXT_SHARED_DIRECTORY 0x1u

/** Without the two small things that a context otherwise keeps alive because they make every hand-over faster. One is a
 *  2 MiB allocation with one exported handle, made when memory is first shared. The other is 2 MiB of each device whose
 *  memory is opened here for another device, mapped there, made when that first happens. Measured on an H200, they save
 *  0.5 ms for each buffer sent, and 1 ms for each one opened on another device than its own. They end with the context.
 *  Where one cannot be made, hand-overs are only slower, and the log says so once. While memory or handles are short it
 *  is tried again, a second later at the earliest. */
#define GPUIPC_CONTEXT_NO_KEEP_ALIVE 0x2u

/** Waiting calls answer ::GPUIPC_ERR_INTERRUPTED when a signal handler ran in the waiting thread, or
 *  gpuipc_context_wake() was called. Nothing is lost: what a call has received in part is kept for the next one. A
 *  message of which a part has left is sent to its end first. Waits inside the driver are not interrupted, and a
 *  handler that runs just before a wait begins is not noticed: a thread can call gpuipc_context_wake() for it.
 *  A call that waits wakes up every 20 ms meanwhile. */
#define GPUIPC_CONTEXT_INTERRUPTIBLE 0x4u

/** How a context is made. Zero everywhere (or NULL) is the right choice for most programs. */
typedef struct gpuipc_context_config {
    size_t struct_size; /**< sizeof(gpuipc_context_config) */
    /** Which driver: "auto" (the installed one), "emulated" (in software, for tests, no GPU needed)
     *  or the absolute path of a library. NULL: the environment variable GPUIPC_CUDA_DRIVER, which
     *  is not read in a set-uid program, else "auto". Empty: "auto", whatever that variable says. "auto" never turns
     *  to the emulated driver. */
    const char *driver;
    /** Directory in which names live, as an absolute path in UTF-8. It must be the user's own, and on Linux have mode
     *  0700. On Windows it must be on a local drive, with no right to change it for anybody but the user, the system
     *  and the administrators. NULL: the environment variable GPUIPC_RUNTIME_DIR, else
     *  $NVIDIA_DRA_LOCAL_IPC_DIR/gpuipc, $XDG_RUNTIME_DIR/gpuipc or /tmp/gpuipc-UID on Linux and the folder gpuipc in
     *  %LOCALAPPDATA% on Windows. Made when it is missing. If XDG_RUNTIME_DIR belongs to another user, as after sudo -E,
     *  nothing is made there. Calls that need the directory then return ::GPUIPC_ERR_UNSAFE_DIRECTORY. */
    const char *runtime_directory;
    uint32_t flags; /**< GPUIPC_CONTEXT_* */
    /** Most buffers accepted in one message; 0: 4096. */
    uint32_t max_buffers_per_message;
    /** Most handles (one per segment) accepted in one message; 0: 8192. */
    uint32_t max_handles_per_message;
    gpuipc_log_callback log; /**< NULL: the library is silent */
    void
        *log_user_data; /**< given to log; to the end of the context and of everything made in it */
    /** Most handles of this process's own buffers that are kept from their first hand-over on, so that the next one
     *  needs no call of the driver. Each is one descriptor or HANDLE per segment, until the buffer is released. Beyond
     *  that they are made anew each time (some 20 us each). 0: 128; ::GPUIPC_KEEP_NONE: none. */
    uint32_t max_kept_handles;
    /** Most buffers of other processes whose memory stays mapped here after they were released, so that they
     *  open faster when they come again. The ones not used for longest go first. That keeps the memory
     *  taken although its owner has released it. Memory that ends with its owner (fabric) does not stay.
     *  0: none. */
    uint32_t max_cached_imports;
} gpuipc_context_config;
/** The start of a ::gpuipc_context_config: struct_size is set, all else is zero. */
#define GPUIPC_CONTEXT_CONFIG_INIT GPUIPC_SIZED(gpuipc_context_config)

/** In gpuipc_context_config::max_kept_handles, "none". */
#define GPUIPC_KEEP_NONE UINT32_MAX

/**
 * Loads and starts the CUDA driver and notes which devices there are. No CUDA context is made
 * until a device is used.
 * @param out_context the new context
 * @param config NULL for the defaults
 * @errors ::GPUIPC_ERR_NO_DRIVER, ::GPUIPC_ERR_DRIVER_TOO_OLD, ::GPUIPC_ERR_DRIVER_FAILED,
 *         ::GPUIPC_ERR_NO_DEVICE, ::GPUIPC_ERR_NAME_TOO_LONG (runtime_directory),
 *         ::GPUIPC_ERR_NOT_SUPPORTED (the program was linked with -static), ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership the caller's; end it with gpuipc_context_destroy()
 * @threads any  @blocking for as long as the driver takes to start  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_context_create(const gpuipc_context_config *config,
                                                              gpuipc_context **out_context);

/**
 * Gives up the caller's hold. Buffers, listeners and connections made from the context stay usable
 * and keep what they need of it alive; the last of them ends it. But calls that open a buffer, or await a mark or a loan on
 * the host, no longer wait for another process: where they had to, they answer ::GPUIPC_ERR_RELEASED.
 * @param context NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED  @ownership takes the caller's hold  @threads any
 * @blocking for the driver's release of the devices used, when it was the last hold, and for what the devices
 *           have been given to do. Up to a second for streams that wait for another process, after which
 *           their memory is left to the end of the process  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_context_destroy(gpuipc_context *context);

/**
 * Interrupts the calls that wait at this moment with objects of the context: within some 20 ms each answers
 * ::GPUIPC_ERR_INTERRUPTED. They are those with a timeout_ms, as a parameter or in their config. If none waits, the next
 * one that would wait is interrupted.
 * @param context made with ::GPUIPC_CONTEXT_INTERRUPTIBLE
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (it was not)  @ownership borrows
 * @threads any, but not in a signal handler  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_context_wake(gpuipc_context *context);

/** What a context found. */
typedef struct gpuipc_context_info {
    size_t struct_size;      /**< sizeof(gpuipc_context_info), set by the caller */
    uint32_t device_count;   /**< devices are numbered 0 .. device_count - 1 */
    int32_t driver_version;  /**< 1000 * major + 10 * minor, such as 13000 for CUDA 13.0 */
    int32_t is_emulated;     /**< 1: the emulated driver, on which nothing is a real GPU */
    char driver_path[512];   /**< the driver's library, cut when longer */
    uint8_t instance_id[16]; /**< random, different in every context */
} gpuipc_context_info;
/** The start of a ::gpuipc_context_info: struct_size is set, all else is zero. */
#define GPUIPC_CONTEXT_INFO_INIT GPUIPC_SIZED(gpuipc_context_info)

/**
 * What the context found.
 * @param context a live context
 * @param out_info filled in; struct_size is set by the caller
 * @errors ::GPUIPC_ERR_STRUCT_SIZE  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_context_get_info(gpuipc_context *context,
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
/** The start of a ::gpuipc_device_info: struct_size is set, all else is zero. */
#define GPUIPC_DEVICE_INFO_INIT GPUIPC_SIZED(gpuipc_device_info)

/**
 * How many devices this process sees.
 * @param context a live context
 * @param out_count devices are numbered from 0 to one less
 * @errors none particular  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_device_count(gpuipc_context *context,
                                                            uint32_t *out_count);

/**
 * What is known of device number @p device.
 * @param context the context that it is done in
 * @param device its number, from 0 on
 * @param out_info filled in; struct_size is set by the caller
 * @errors ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_STRUCT_SIZE  @ownership copies
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_device_get_info(gpuipc_context *context,
                                                               uint32_t device,
                                                               gpuipc_device_info *out_info);

/**
 * The number, in this process, of the GPU with this UUID.
 * @param context the context that it is done in
 * @param uuid as gpuipc_device_info::uuid, here or in another process
 * @param out_device its number
 * @errors ::GPUIPC_ERR_DEVICE_NOT_FOUND  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_device_find(gpuipc_context *context,
                                                           const gpuipc_uuid *uuid,
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
    GPUIPC_TRANSPORT_POOL =
        2, /**< stream-ordered memory: a pool's fd once, then 64 bytes each. If the exporter is killed
                                      while another GPU reads it, the reader loses its CUDA context (measured on H200) */
    GPUIPC_TRANSPORT_LEGACY = 3, /**< cuIpcGetMemHandle, for memory of cuMemAlloc */
    GPUIPC_TRANSPORT_P2P = 4,    /**< peer access to cuMemAlloc memory inside one process */
    GPUIPC_TRANSPORT_HOST = 5,   /**< pinned host memory that both processes have: always works, and
                                       is slower; never chosen unless asked for */
    GPUIPC_TRANSPORT_FABRIC = 6  /**< 64-byte handles across hosts of one NVLink domain (IMEX) */
} gpuipc_transport;

/** How a buffer is made. */
typedef struct gpuipc_buffer_config {
    size_t struct_size; /**< sizeof(gpuipc_buffer_config) */
    uint32_t device; /**< ::GPUIPC_DEVICE (number): the device that owns the memory; of host memory,
                          the one that uses it; 0: device 0 */
    gpuipc_transport transport; /**< which kind of memory is made; default: vmm. p2p and legacy: of
                                     cuMemAlloc */
    uint64_t bytes; /**< wanted size, above 0; the allocation is rounded up to the granularity */
    /** Size of one physical allocation; 0: as openers wants it. Rounded up to the
     *  granularity. A buffer needs one handle per segment. */
    uint64_t segment_bytes;
    /** The GPUs for which other processes will open the buffer, as far as that is known. With another GPU than the
     *  owner among them a buffer of 512 MiB or more is made of several allocations side by side. (Opening one so
     *  large from another GPU takes 8.5 ms, measured on H200s.) Other libraries that are
     *  given its address share the first of them only. The handles are made at once as well, as far as they are kept
     *  (gpuipc_context_config::max_kept_handles), so that the first hand-over need not. NULL: one allocation, and
     *  handles when it is handed over first. */
    const gpuipc_uuid *openers;
    uint32_t opener_count;        /**< how many openers there are */
    uint32_t access_device_count; /**< how many access_devices there are */
    /** Further devices of this process that may read and write the buffer, each as ::GPUIPC_DEVICE (number). The
     *  owner always may. As if gpuipc_buffer_set_access() were called for each of them. */
    const uint32_t *access_devices;
} gpuipc_buffer_config;
/** The start of a ::gpuipc_buffer_config: struct_size is set, all else is zero. */
#define GPUIPC_BUFFER_CONFIG_INIT GPUIPC_SIZED(gpuipc_buffer_config)

/**
 * Makes shareable memory on a device, readable and writable there. Its contents are undefined.
 * Memory of the transports legacy, pool and p2p stays allocated until every process that it was sent to
 * has returned it or has ended, also when it is released before. Calls of this library see to that, and a thread of it
 * when the context was destroyed.
 * @param context the context that it is done in
 * @param config what is to be made; bytes is not 0
 * @param out_buffer the new buffer
 * @errors ::GPUIPC_ERR_NOT_SUPPORTED (the transport's memory cannot be made here),
 *          ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_VMM_UNSUPPORTED,
 *         ::GPUIPC_ERR_HANDLE_TYPE_UNSUPPORTED, ::GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
 *         ::GPUIPC_ERR_NOT_SHAREABLE (the driver makes no handle for the openers),
 *         ::GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED (a device of access_devices cannot reach it), ::GPUIPC_ERR_TOO_MANY_HANDLES,
 *         ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership the caller holds one reference; gpuipc_buffer_release() gives it up
 * @threads any  @blocking for the driver's allocation (tens of microseconds to milliseconds), and for much that is kept as
 *           gpuipc_connection_close()
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_create(gpuipc_context *context,
                                                             const gpuipc_buffer_config *config,
                                                             gpuipc_buffer **out_buffer);

/**
 * Makes a buffer of memory that the caller allocated. It comes from cuMemCreate and cuMemMap, from cuMemAlloc or
 * cudaMalloc (it travels by legacy IPC), or from a stream-ordered pool that was made with a handle type. Memory of
 * cuMemCreate needs this system's handle type among its requestedHandleTypes. Its range may lie inside one mapping or
 * span several that touch, and all of them are shared. Of memory without a handle type, and of managed or pinned host
 * memory, only copies travel: ::GPUIPC_SEND_STAGED, gpuipc_connection_send_contents(). gpuipc_pointer_classify() tells
 * which it is. Whole allocations travel: the receiver can reach what lies beside the range. Memory that a buffer of
 * this context has already, in its own range, is not wrapped a second time. The new buffer is a view of that one, and keeps
 * its mapping. So a received one is returned when it and what was wrapped over it are released.
 * Who opens both does not map it a second time either.
 * @param context the context that it is done in
 * @param out_buffer the new buffer
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
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_wrap(gpuipc_context *context,
                                                           uint64_t address, uint64_t bytes,
                                                           gpuipc_buffer **out_buffer);

/**
 * Adds a reference.
 * @param buffer a live buffer
 * @errors none particular  @ownership one more gpuipc_buffer_release() is owed  @threads any
 * @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_retain(gpuipc_buffer *buffer);

/**
 * Gives up a reference; the last one unmaps and frees. Work that uses the memory must have ended:
 * on a GPU, work whose memory is unmapped ends its CUDA context with CUDA_ERROR_ILLEGAL_ADDRESS.
 * Memory that another process has open stays alive there. A call that waits on the buffer in another thread holds it until
 * that call ends.
 * @param buffer NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED  @ownership takes one reference  @threads any
 * @blocking for the driver's unmapping. The last of legacy, p2p and host memory for what the devices have been
 *           given to do, unless a stream of this process waits for another process. Then a later call frees it: another
 *           such release, gpuipc_buffer_await_returns(), gpuipc_connection_close(), gpuipc_context_destroy(), or a
 *           creation or an opening where much is kept or there is no room. So it is where returns of the buffer are just
 *           looked for (gpuipc_buffer_get_returns_wait_handle())  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_release(gpuipc_buffer *buffer);

/**
 * Gives up a reference in stream order, as cudaFreeAsync() does. The buffer is the caller's no more; what @p stream has
 * been given until now may still use it. A received buffer is returned when the stream is there
 * (gpuipc_buffer_return_async()), unless this process has it open otherwise. Then a thread of the library unmaps it,
 * or a call that finds too little memory, gpuipc_buffer_await_returns() or gpuipc_context_destroy().
 * @param buffer NULL does nothing
 * @param stream NULL: the default stream of the device that the buffer was mapped for
 * @errors ::GPUIPC_ERR_RELEASED, ::GPUIPC_ERR_CUDA (also for a stream that is being captured). After an error the
 *         reference is still the caller's
 * @ownership takes one reference  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_release_async(gpuipc_buffer *buffer,
                                                                    gpuipc_stream stream);

/**
 * Gives up a reference from wherever the program is: a garbage collector, a destructor at any time, a thread without
 * a CUDA context, a host function of a stream. Makes no call of the driver. What the devices that may use the buffer
 * have been given until now may still use it; when they have done it, a thread of the library releases it. (That
 * marks the place with cuCtxRecordEvent(). On a driver older than CUDA 12.5 it waits for all work of the device.)
 *
 * - All work of the devices' primary contexts and of their green contexts counts. Work in other CUDA contexts does
 *   not: there, gpuipc_buffer_release_async() is right.
 * - Work that itself waits until this buffer has been returned never ends so: there, too.
 * - While a stream is being captured, the mark would invalidate the capture (CUDA says so of cuCtxRecordEvent()).
 *   The library sees captures of blocking streams and waits. For others see gpuipc_drops_pause().
 * - If the CUDA context has ended or is dead, the buffer is released at once. What is dropped in a handler of exit(),
 *   or not passed by then, is left to the end of the process. In a forked child only host memory is freed.
 * - With the last object of a context that was destroyed, that thread ends the context.
 * - Memory of transports legacy, p2p and host is returned then, and freed later: by a call that gpuipc_buffer_release()
 *   names, or by the thread. The driver frees such memory when all work of the devices is done, and other threads' calls of
 *   the driver wait meanwhile. So the thread frees memory only when every device has been idle for a tenth of a second, and
 *   no stream of this process waits for another process. Where a device stays at work for 1.3 s, the thread leaves the memory
 *   to the calls. On a driver older than CUDA 12.5 it always does.
 * - Work that waits for a later call of this process must not be given while the thread may free memory: hold the thread
 *   back with gpuipc_drops_pause().
 * - Whatever was dropped since the last look shares one mark; at most one mark for each device is pending.
 * @param buffer NULL does nothing
 * @errors ::GPUIPC_ERR_RELEASED  @ownership takes one reference  @threads any, also at the same time
 * @blocking no: no call of the driver; it may start the thread  @since 0.1
 */
GPUIPC_API gpuipc_status gpuipc_buffer_drop(gpuipc_buffer *buffer);

/**
 * Holds back what is dropped, in this process, until gpuipc_drops_resume() was called as often. To be called before
 * cuStreamBeginCapture() of a non-blocking stream: afterwards no mark invalidates the capture. (Where the driver is
 * older than CUDA 12.5, it is its waiting that would.) Nor does the library's thread free memory until then
 * (gpuipc_buffer_drop()).
 * @errors none particular  @ownership none  @threads any
 * @blocking for a mark that is just being made, or memory that is just being freed: microseconds, or as long as another
 *           call of the driver keeps it waiting
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_drops_pause(void);

/**
 * Ends what gpuipc_drops_pause() began.
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (not as often called)  @ownership none  @threads any  @blocking no
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_drops_resume(void);

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
        lent_count; /**< hand-overs of it that are not returned yet. With more than 64 of them, one that was
                       returned between others may count a while longer; that all are is seen at once */
    int32_t is_lost; /**< 1: the sender of its contents ended before they were ready or had come
                              (gpuipc_connection_receive_contents()), so they are not valid */
    int32_t
        is_ready; /**< 1: the contents that it was received or opened with are there; 0: not yet, or
                              is_lost is 1 (gpuipc_buffer_await_ready()). Of one made or wrapped here always 1 */
    const void
        *attachment; /**< the bytes attached to the ticket that it was opened by; NULL: none. The
                                  buffer's, for as long as the caller holds it */
    size_t attachment_bytes; /**< how many they are */
    int32_t
        is_attachment_withheld; /**< 1: bytes are attached to what was shared, and it was opened by a ticket for
                              a part (gpuipc_ticket_narrow()). Only who opens all of it gets them: they may say what
                              lies where in it */
    uint32_t reserved; /**< 0 */
} gpuipc_buffer_info;
/** The start of a ::gpuipc_buffer_info: struct_size is set, all else is zero. */
#define GPUIPC_BUFFER_INFO_INIT GPUIPC_SIZED(gpuipc_buffer_info)

/**
 * What is known of a buffer.
 * @param buffer a live buffer
 * @param out_info filled in; struct_size is set by the caller
 * @errors ::GPUIPC_ERR_STRUCT_SIZE  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_get_info(gpuipc_buffer *buffer,
                                                               gpuipc_buffer_info *out_info);

/**
 * The device address of a buffer's first byte: gpuipc_buffer_info::address alone.
 * @param buffer a live buffer
 * @return the address; 0 when that failed, with the error record filled
 * @errors ::GPUIPC_ERR_RELEASED and its like, in the record  @ownership a value  @threads any
 * @blocking no  @since 0.1
 */
GPUIPC_API uint64_t gpuipc_buffer_address(gpuipc_buffer *buffer);

/**
 * Finds the buffer that has an address, among those that this context made or opened. (What was wrapped is not among
 * them: it is the caller's own.) Of several that overlap, one. The cost grows with the logarithm of how many there are.
 * @param context where the buffer was made or opened
 * @param address any device address in the buffer's range
 * @param out_buffer the handle that the buffer was given out by first, with one more reference. Another handle of the
 *        same buffer where that one is released and others, of further openings, are not
 * @param out_offset where the address lies in the buffer, in bytes
 * @errors ::GPUIPC_ERR_NOT_FOUND
 * @ownership one more gpuipc_buffer_release() is owed  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_find(gpuipc_context *context,
                                                           uint64_t address,
                                                           gpuipc_buffer **out_buffer,
                                                           uint64_t *out_offset);

/**
 * Lets another device reach the buffer, or changes what one may do. The whole of every segment is
 * affected, not only the range. Of received memory of transport vmm or fabric, other buffers are affected too.
 * They are those over the same memory, of the same connection or server, and opened for the same device and
 * access: they share one mapping. No work may be using the buffer: a copy
 * whose access changes while it runs ends its CUDA context with CUDA_ERROR_ILLEGAL_ADDRESS (measured on an
 * H200, driver 580).
 * Where the driver does not guard memory that is only to be read (legacy, pool, p2p, host), gpuipc's own
 * copies and fills do.
 * For memory of cuMemAlloc (legacy, p2p, wrapped) this enables peer access between two CUDA contexts, unless
 * that is so already. It stays enabled when the buffer is released, and is disabled at the end of the last
 * context whose buffers wanted it, if it was gpuipc that enabled it. A program that uses it itself enables it
 * first, or keeps such a context.
 * @param buffer a live buffer
 * @param device its number
 * @param access what it may do from now on; default: all that may be had
 * @errors ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
 *         ::GPUIPC_ERR_ACCESS_DENIED (more than the sender of an opened buffer offers),
 *         ::GPUIPC_ERR_NOT_SUPPORTED (reading only, for another device, where the driver does not guard
 *         it; memory opened by legacy IPC, for another device than it was received for)
 * @ownership borrows  @threads any  @blocking for the driver (a first peer: about 1 ms)  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_set_access(gpuipc_buffer *buffer,
                                                                 uint32_t device,
                                                                 gpuipc_access access);

/**
 * Copies between two buffers of one context, on a stream. Where a device reaches both, that device
 * copies. Where none does, the copy goes through pinned host memory in pieces, which one device writes while the other
 * reads. That has the speed of the slower bus, and is faster than the driver's own copy without peer access. For a
 * direct copy let one device reach the other's buffer with gpuipc_buffer_set_access(). Copies through host memory of
 * more than four streams at a time, from one device to another, wait for each other. The 32 MiB that each of the four
 * takes stay with the context. A stream that is being captured cannot take part in one (::GPUIPC_ERR_CUDA, and the
 * capture ends).
 * @param destination the buffer that is written
 * @param destination_offset in bytes, from its beginning
 * @param source the buffer that is read; it may be the same one, where the ranges do not overlap
 * @param source_offset in bytes, from its beginning
 * @param bytes how many; 0 does nothing
 * @param stream NULL: the default stream of the destination's device. One of another device that reaches both: it must
 *        be allowed to write the destination (gpuipc_buffer_set_access())
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE, ::GPUIPC_ERR_ACCESS_DENIED (the destination may only be read),
 *         ::GPUIPC_ERR_DRIVER_TOO_OLD (between devices without peer access: it has no host functions)
 * @ownership borrows; both buffers must stay until the stream has passed the copy
 * @threads any
 * @blocking no. The first copy through host memory for its allocation (some 20 ms). One of more than
 *           2 GiB while the driver's queue is full. Between two buffers in host memory, as the driver
 *           does, until it is done  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_copy_async(
    gpuipc_buffer *destination, uint64_t destination_offset, gpuipc_buffer *source,
    uint64_t source_offset, uint64_t bytes, gpuipc_stream stream);

/**
 * Fills with a value, on a stream.
 * @param buffer a live buffer
 * @param offset in bytes, from the beginning of the buffer
 * @param bytes how many; 0 does nothing
 * @param value the lowest @p width bytes of it are written  @param width 1, 2 or 4; the address to
 *        be filled and @p bytes must be multiples of it  @param stream NULL: the default stream of the buffer's device.
 *        One of another device, only where that has access (gpuipc_buffer_set_access())
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE, ::GPUIPC_ERR_ACCESS_DENIED (it may only be read)
 * @ownership borrows; the buffer must stay until the stream has passed the fill
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_fill_async(gpuipc_buffer *buffer,
                                                                 uint64_t offset, uint64_t bytes,
                                                                 uint32_t value, uint32_t width,
                                                                 gpuipc_stream stream);

/**
 * Copies from host memory into the buffer and waits until it is there. Before the copy, the call waits for earlier calls of
 * this library on the buffer, as gpuipc_buffer_read() does.
 * @param buffer a live buffer
 * @param offset in bytes, from the beginning of the buffer
 * @param host @p bytes of host memory
 * @param bytes how many; 0 does nothing
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE, ::GPUIPC_ERR_ACCESS_DENIED (it may only be read)
 * @ownership borrows  @threads any
 * @blocking until the earlier work and the copy are done  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_write(gpuipc_buffer *buffer, uint64_t offset,
                                                            const void *host, uint64_t bytes);

/**
 * Copies from the buffer into host memory and waits until it is there. Before the copy, the call waits for:
 * - the work that earlier fills, copies and contents transfers of this library put on any stream, for this buffer or a view
 *   of the same memory
 * - all work on the default stream of the buffer's device, and with it on all blocking streams
 *
 * Where the driver refused an event behind an earlier call, this call waits for all work of the device's primary context
 * instead. The earlier call's work in a CUDA context of the program's own is then not waited for.
 *
 * The call does not wait for other work of the program on non-blocking streams, for launches of CUDA graphs, or for contents
 * that another process still writes. Synchronise such streams, or call gpuipc_buffer_await_ready(), before.
 * @param buffer a live buffer
 * @param offset in bytes, from the beginning of the buffer
 * @param host room for @p bytes
 * @param bytes how many; 0 does nothing
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE  @ownership borrows  @threads any
 * @blocking until the earlier work and the copy are done  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_buffer_read(gpuipc_buffer *buffer, uint64_t offset,
                                                           void *host, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#include "gpuipc_connection.h" /* the rest of the lesson: listener, connection, message */
#include "gpuipc_diagnose.h"   /* why sharing fails or is slow here, and what to do */
#include "gpuipc_manifest.h"   /* many tensors in one buffer */
#include "gpuipc_mark.h"       /* ready points of memory that is open already, and loans of it */
#include "gpuipc_ticket.h"     /* 64 bytes that stand for a buffer, through any channel */
#include "gpuipc_transport.h"  /* which way works, how fast, and why not */

#endif
