/* SPDX-License-Identifier: MIT */
/**
 * @file The ways to reach GPU memory, each saying whether it works, how fast, and why not. gpuipc.h
 * includes this; the rules that hold everywhere stand there.
 */
#ifndef GPUIPC_GPUIPC_TRANSPORT_H
#define GPUIPC_GPUIPC_TRANSPORT_H

#include "gpuipc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what there is ------------------------------------------------------------------------ */

/** How many transports this library has: gpuipc_transport 1 to this number. */
#define GPUIPC_TRANSPORT_COUNT 6
/** Room for one entry per transport, indexed by ::gpuipc_transport (entry 0 is unused). */
#define GPUIPC_TRANSPORT_ROOM (GPUIPC_TRANSPORT_COUNT + 1)

/**
 * Why a transport is not available: X(name, number, sentence). The numbers never change. The sentence
 * says the cause and the remedy; the answer of a query adds the particulars.
 */
#define GPUIPC_REASON_LIST(X)                                                                             \
    X(NONE, 0, "nothing is in the way")                                                                   \
    X(NO_DRIVER, 1,                                                                                       \
      "there is no CUDA driver; install NVIDIA's driver, or give the container its GPU")                  \
    X(DRIVER_TOO_OLD, 2, "the CUDA driver has not the calls that this needs; update it")                  \
    X(DRIVER_FAILED, 3, "the CUDA driver did not start; see the error record, and nvidia-smi")            \
    X(NO_DEVICE, 4, "the driver finds no GPU; check CUDA_VISIBLE_DEVICES and the container")              \
    X(OPERATING_SYSTEM, 5, "this operating system has no such way; use vmm")                              \
    X(TCC, 6,                                                                                             \
      "the TCC driver model has no virtual memory management; switch to WDDM or use legacy")              \
    X(NO_VMM, 7, "the device has no virtual memory management; use legacy")                               \
    X(HANDLE_TYPE, 8,                                                                                     \
      "the device cannot export memory as this system's kind of handle (fd, HANDLE); use legacy or host") \
    X(NO_P2P, 9,                                                                                          \
      "there is no peer access between the two GPUs (topology, IOMMU or virtualisation); use host")       \
    X(HIDDEN_DEVICE, 10,                                                                                  \
      "this process does not see one of the GPUs; add it to CUDA_VISIBLE_DEVICES")                        \
    X(MIG, 11, "a MIG slice reaches no other slice or GPU; use host, or turn MIG off")                    \
    X(PID_NAMESPACE, 12,                                                                                  \
      "the peer is in another PID namespace, and the driver's handles name a process; use vmm, or "       \
      "start the containers with one PID namespace")                                                      \
    X(NO_IMEX_CHANNEL, 13,                                                                                \
      "there is no IMEX channel; load one (nvidia-modprobe, /dev/nvidia-caps-imex-channels) and run "     \
      "nvidia-imex, or use vmm")                                                                          \
    X(WSL, 14,                                                                                            \
      "Windows Subsystem for Linux does not support this way; use host, or a Linux of its own")           \
    X(COMPUTE_MODE, 15,                                                                                   \
      "the GPU's compute mode does not let this process use it; nvidia-smi --compute-mode=0 allows "      \
      "it")                                                                                               \
    X(HANDLE_LIMIT, 16, "the process has no file descriptor or handle left; raise ulimit -n")             \
    X(DEVICE_MEMORY, 17, "the GPU has no memory left for the trial; free some and ask again")             \
    X(SAME_PROCESS_ONLY, 18,                                                                              \
      "peer access works inside one process only; use vmm to reach another")                              \
    X(NOT_SUPPORTED, 19, "the device does not support this way; another transport may")                   \
    X(DRIVER_REFUSED, 20, "the driver refused the trial with a code that has no better name")             \
    X(WRONG_DATA, 21,                                                                                     \
      "the trial went through but delivered other data than was written: the machine is broken or "       \
      "misconfigured (IOMMU, ACS); do not trust any copy between the two GPUs")                           \
    X(WRONG_MEMORY, 22, "this transport cannot carry memory of this kind")                                \
    X(POLICY, 23,                                                                                         \
      "the policy does not admit it: it copies; ask for GPUIPC_POLICY_PREFER_ZERO_COPY "                  \
      "or GPUIPC_POLICY_ANY")                                                                             \
    X(NOT_SHAREABLE_ALLOCATION, 24,                                                                       \
      "the memory was allocated without a handle type; name this system's type when allocating")          \
    X(POOL_ACROSS_GPUS, 25,                                                                               \
      "when the exporter of pool memory is killed while another GPU reads it, the reader loses its CUDA " \
      "context; use vmm or legacy between GPUs")

/** Why a transport is not available; see ::GPUIPC_REASON_LIST. */
typedef enum gpuipc_reason {
#define GPUIPC_REASON_ENUMERATOR(name, value, sentence) GPUIPC_REASON_##name = (value),
    GPUIPC_REASON_LIST(GPUIPC_REASON_ENUMERATOR)
#undef GPUIPC_REASON_ENUMERATOR
    GPUIPC_REASON_FORCE_INT32 = 0x7FFFFFFF
} gpuipc_reason;

/**
 * The name of a reason, such as "NO_P2P"; "UNKNOWN" for other values.
 * @param reason any number
 * @errors none  @ownership static text  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API const char *gpuipc_reason_name(gpuipc_reason reason);

/**
 * The name of a transport, such as "vmm"; "unknown" for other values.
 * @param transport any number
 * @errors none  @ownership static text  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API const char *gpuipc_transport_name(gpuipc_transport transport);

/**
 * The number of transports that this library knows, available or not: they are 1 to this number.
 * @param out_count transports are numbered from 1 to this number
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT  @ownership copies  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_transport_count(uint32_t *out_count);

/* ---- query -------------------------------------------------------------------------------- */

/** Between what. */
typedef struct gpuipc_transport_pair {
    size_t struct_size; /**< sizeof(gpuipc_transport_pair) */
    uint32_t owner;     /**< the device that owns the memory; ::GPUIPC_DEVICE_NONE: owner_uuid */
    uint32_t user;      /**< the device that reaches it */
    gpuipc_uuid owner_uuid; /**< read only when owner is ::GPUIPC_DEVICE_NONE */
    /** The process at the other end: adds what lies between the two processes (another PID namespace)
     *  to the answer. NULL: another process of this user on this host, in the same namespaces. */
    struct gpuipc_connection *connection;
} gpuipc_transport_pair;
/** The start of a ::gpuipc_transport_pair: struct_size is set, all else is zero. */
#define GPUIPC_TRANSPORT_PAIR_INIT GPUIPC_SIZED(gpuipc_transport_pair)

/** Where a figure comes from. */
typedef enum gpuipc_figure_source {
    GPUIPC_FIGURE_NONE = 0, /**< there is no figure: the transport is not available, or nothing is
                                      known of what joins the two (a device that is not seen) */
    GPUIPC_FIGURE_ESTIMATED = 1, /**< from the topology: link generation and count, clocks */
    GPUIPC_FIGURE_MEASURED = 2   /**< by gpuipc_transport_measure(), now or earlier */
} gpuipc_figure_source;

/** How it is known that a transport is available. */
typedef enum gpuipc_proof {
    GPUIPC_PROOF_NONE = 0, /**< not available, or the trial could not be made here */
    GPUIPC_PROOF_ATTRIBUTES =
        1,                 /**< the driver says so, and making a handle works; opening it cannot
                                      be tried inside one process (legacy) */
    GPUIPC_PROOF_TRIED = 2 /**< done end to end in this process with a verified pattern */
} gpuipc_proof;

/** The answer of a query. */
typedef struct gpuipc_transport_info {
    size_t struct_size;         /**< sizeof(gpuipc_transport_info), set by the caller */
    gpuipc_transport transport; /**< which one it is about */
    int32_t available;          /**< 1 or 0 */
    gpuipc_reason reason;       /**< if available is 0, why; else ::GPUIPC_REASON_NONE */
    int32_t is_zero_copy; /**< 1: the other device works in the memory itself; 0: staged copies */
    gpuipc_proof proof;   /**< how availability is known */
    gpuipc_figure_source bandwidth_source; /**< how bandwidth_bytes_per_second is known */
    gpuipc_figure_source latency_source;   /**< how latency_ns is known */
    uint64_t bandwidth_bytes_per_second;   /**< of one large copy, one way; payload */
    uint64_t latency_ns;                   /**< of one small copy on the device */
    /** If not available, the cause and the remedy, with particulars. If available and not tried
     *  (::GPUIPC_PROOF_NONE), why not. If available with a risk (pool between two GPUs), the risk. Else empty. */
    char sentence[304];
} gpuipc_transport_info;
/** The start of a ::gpuipc_transport_info: struct_size is set, all else is zero. */
#define GPUIPC_TRANSPORT_INFO_INIT GPUIPC_SIZED(gpuipc_transport_info)

/**
 * Whether a transport works between two devices, how fast, and why not. Found by doing it, once per
 * pair (2 MiB on each device, a pattern written by one and verified by the other), and remembered by
 * the context. Remembered answers take less than a microsecond. A pair that is not available is no
 * failure of the call. Refusals that may pass (memory, handles, compute mode) are not remembered.
 * Of an owner that this process does not see, pool and p2p answer ::GPUIPC_REASON_HIDDEN_DEVICE. What vmm, legacy,
 * fabric and host answer then is found with the user's own device, and says so (::GPUIPC_PROOF_NONE).
 * @param transport which way is asked about
 * @param pair between which two devices
 * @param out_info filled in; struct_size is set by the caller
 * @param context NULL asks about the installed driver as a context with the defaults would find it:
 *        this is how to learn of ::GPUIPC_REASON_NO_DRIVER and its like; nothing is remembered then
 * @errors ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_STRUCT_SIZE  @ownership copies
 * @threads any  @blocking for the trial, the first time (milliseconds; some 100 ms for a device that
 *          is used first)  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_transport_query(gpuipc_context *context,
                                                               gpuipc_transport transport,
                                                               const gpuipc_transport_pair *pair,
                                                               gpuipc_transport_info *out_info);

/* ---- select ------------------------------------------------------------------------------- */

/** What gpuipc_transport_select() may choose. */
typedef enum gpuipc_policy {
    GPUIPC_POLICY_ZERO_COPY = 0,        /**< zero-copy required */
    GPUIPC_POLICY_PREFER_ZERO_COPY = 1, /**< zero-copy if there is one, else staged copies */
    GPUIPC_POLICY_ANY = 2               /**< the one with the highest bandwidth, whichever it is */
} gpuipc_policy;

/** What was chosen, and what was not. */
typedef struct gpuipc_selection {
    size_t struct_size;      /**< sizeof(gpuipc_selection), set by the caller */
    gpuipc_transport chosen; /**< ::GPUIPC_TRANSPORT_DEFAULT (0): none */
    /** Why each other one was refused, indexed by transport; ::GPUIPC_REASON_NONE: it was the chosen
     *  one, or would do as well. */
    gpuipc_reason refused[GPUIPC_TRANSPORT_ROOM];
} gpuipc_selection;
/** The start of a ::gpuipc_selection: struct_size is set, all else is zero. */
#define GPUIPC_SELECTION_INIT GPUIPC_SIZED(gpuipc_selection)

/**
 * Chooses a transport for a pair of devices, by policy; never one slower than the policy admits. Of two
 * whose figures differ by no more than a tenth, the one with the lower number. p2p is chosen only where
 * the pair's connection leads to this process, or for a buffer of that transport. pool is chosen between two devices only
 * for a buffer of that transport (::GPUIPC_REASON_POOL_ACROSS_GPUS).
 * @param context the context that it is done in
 * @param pair between which two devices
 * @param policy which ways may be chosen
 * @param out_selection filled in; struct_size is set by the caller
 * @param buffer the memory to be carried, or NULL for memory that gpuipc_buffer_create() will make
 * @errors ::GPUIPC_ERR_NO_TRANSPORT (out_selection is written all the same, and the record has the
 *         sentence of the best one that was refused), ::GPUIPC_ERR_DEVICE_NOT_FOUND,
 *         ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership copies  @threads any  @blocking as gpuipc_transport_query(), for each transport
 * @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_transport_select(gpuipc_context *context,
                                                                const gpuipc_transport_pair *pair,
                                                                gpuipc_buffer *buffer,
                                                                gpuipc_policy policy,
                                                                gpuipc_selection *out_selection);

/* ---- measure ------------------------------------------------------------------------------ */

/** What was measured. Bandwidths are payload: bytes that arrive. */
typedef struct gpuipc_measurement {
    size_t struct_size;                /**< sizeof(gpuipc_measurement), set by the caller */
    uint64_t bytes;                    /**< of one copy */
    uint64_t one_way_bytes_per_second; /**< owner's memory read by the user's device; median */
    uint64_t
        both_ways_bytes_per_second; /**< both directions at once, their sum; 0 for one device */
    uint64_t latency_ns;            /**< of one small copy, on the device; median */
    uint64_t wrong_words; /**< of 32 bits, that arrived otherwise than they were sent; else 0 */
} gpuipc_measurement;
/** The start of a ::gpuipc_measurement: struct_size is set, all else is zero. */
#define GPUIPC_MEASUREMENT_INIT GPUIPC_SIZED(gpuipc_measurement)

/**
 * Measures a transport between two devices with the driver's events: launch cost is hidden, the
 * median taken, the data verified. Later queries answer with it, in this process and in others. For those it is
 * kept in a file in the user's cache directory, keyed by both UUIDs, driver version and transport (never for the
 * emulated driver).
 * @param context the context that it is done in
 * @param transport which way is measured
 * @param pair between which two devices
 * @param out_measurement filled in; struct_size is set by the caller
 * @errors ::GPUIPC_ERR_NO_TRANSPORT (not available between these two; the record says why),
 *         ::GPUIPC_ERR_WRONG_DATA (out_measurement is written all the same: wrong_words, and no figure),
 *         ::GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_TOO_MANY_HANDLES,
 *         ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership copies  @threads any  @blocking about a second; the devices should be idle  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status
gpuipc_transport_measure(gpuipc_context *context, gpuipc_transport transport,
                         const gpuipc_transport_pair *pair, gpuipc_measurement *out_measurement);

/* ---- topology ----------------------------------------------------------------------------- */

/** What joins two devices. */
typedef enum gpuipc_link {
    GPUIPC_LINK_UNKNOWN = 0, /**< neither driver nor NVML tells */
    GPUIPC_LINK_SAME = 1,    /**< they are one device: its own memory */
    GPUIPC_LINK_NVLINK = 2,  /**< NVLink, directly or through switches */
    GPUIPC_LINK_PCIE = 3     /**< PCI Express */
} gpuipc_link;

/** What is known of the way from one device to the memory of another. */
typedef struct gpuipc_topology {
    size_t struct_size;       /**< sizeof(gpuipc_topology), set by the caller */
    int32_t peer_access;      /**< 1: user reaches owner's memory directly */
    int32_t performance_rank; /**< the driver's: 0 is the best there is on this machine */
    int32_t native_atomics;   /**< 1: atomic operations across the link */
    int32_t array_access;     /**< 1: CUDA arrays across the link */
    gpuipc_link link;         /**< see the type */
    uint32_t link_generation; /**< NVLink or PCIe generation; 0: not known */
    uint32_t link_width;      /**< NVLinks, or PCIe lanes; 0: not known */
    int32_t is_from_nvml;     /**< 1: generation and width are NVML's; 0: guessed from the device */
} gpuipc_topology;
/** The start of a ::gpuipc_topology: struct_size is set, all else is zero. */
#define GPUIPC_TOPOLOGY_INIT GPUIPC_SIZED(gpuipc_topology)

/**
 * What joins two devices: the P2P attributes of the driver, and links and lanes as NVML has them where
 * it is installed.
 * @param context the context that it is done in
 * @param owner number of the device whose memory is reached
 * @param user number of the device that reaches it; it may be the same one
 * @param out_topology filled in; struct_size is set by the caller
 * @errors ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_STRUCT_SIZE  @ownership copies  @threads any
 * @blocking for NVML's start, the first time  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_topology_get(gpuipc_context *context, uint32_t owner,
                                                            uint32_t user,
                                                            gpuipc_topology *out_topology);

/* ---- pointer ------------------------------------------------------------------------------ */

/** What kind of memory an address is. */
typedef enum gpuipc_memory_kind {
    GPUIPC_MEMORY_UNKNOWN = 0, /**< nothing that CUDA knows of: unmapped, or ordinary host memory */
    GPUIPC_MEMORY_VMM = 1,     /**< cuMemCreate and cuMemMap */
    GPUIPC_MEMORY_DEVICE = 2,  /**< cuMemAlloc, cudaMalloc */
    GPUIPC_MEMORY_POOL = 3,    /**< stream-ordered: cuMemAllocAsync, cudaMallocAsync */
    GPUIPC_MEMORY_MANAGED = 4, /**< cuMemAllocManaged */
    GPUIPC_MEMORY_PINNED = 5,  /**< host memory of cuMemHostAlloc or cuMemHostRegister */
    GPUIPC_MEMORY_IMPORTED = 6 /**< opened from another process (legacy or pool) */
} gpuipc_memory_kind;

/**
 * The name of a kind of memory, such as "pinned"; "unknown" for other values.
 * @param kind any number
 * @errors none  @ownership static text  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API const char *gpuipc_memory_kind_name(gpuipc_memory_kind kind);

/** What gpuipc_pointer_classify() found. */
typedef struct gpuipc_pointer_info {
    size_t struct_size;        /**< sizeof(gpuipc_pointer_info), set by the caller */
    gpuipc_memory_kind kind;   /**< of the first byte */
    uint32_t allocation_count; /**< allocations behind the range; 0: not known to CUDA */
    uint64_t base;             /**< where the first allocation (for VMM: mapping) begins */
    uint64_t allocated_bytes;  /**< of all allocations behind the range together */
    uint32_t device;           /**< its device, or ::GPUIPC_DEVICE_NONE (host, hidden) */
    uint32_t transports;       /**< bit t: transport t can carry it: 1u << GPUIPC_TRANSPORT_VMM */
    gpuipc_reason why_not[GPUIPC_TRANSPORT_ROOM]; /**< for each other transport, the reason */
    char sentence[304]; /**< for a person: what it is, and what to do if it cannot be shared
                                       without a copy */
} gpuipc_pointer_info;
/** The start of a ::gpuipc_pointer_info: struct_size is set, all else is zero. */
#define GPUIPC_POINTER_INFO_INIT GPUIPC_SIZED(gpuipc_pointer_info)

/**
 * Tells which kind of memory a range is, and which transports can carry it to another process (p2p: to
 * another device of this one). Looks, and changes nothing.
 * @param context the context that it is done in
 * @param out_info filled in; struct_size is set by the caller
 * @param address a device address, or a host address as a number  @param bytes length of the range
 * @errors ::GPUIPC_ERR_OUT_OF_RANGE (the range begins in memory and ends outside of it, or spans
 *         different kinds), ::GPUIPC_ERR_NOT_DEVICE_MEMORY (mapped with cuMemMap, but its device has no
 *         access to it), ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership copies  @threads any  @blocking for the driver  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_pointer_classify(gpuipc_context *context,
                                                                uint64_t address, uint64_t bytes,
                                                                gpuipc_pointer_info *out_info);

#ifdef __cplusplus
}
#endif

#endif
