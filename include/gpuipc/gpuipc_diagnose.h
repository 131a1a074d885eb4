/* SPDX-License-Identifier: MIT */
/**
 * @file Why sharing GPU memory fails or is slow on this machine: what was found, and what to do. Part of gpuipc.h, which
 * includes it; the rules that hold everywhere stand there. `gpuipc-selftest doctor` prints the same.
 */
#ifndef GPUIPC_GPUIPC_DIAGNOSE_H
#define GPUIPC_GPUIPC_DIAGNOSE_H

#include "gpuipc.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * What can be the matter: X(number, NAME, worst severity, cause, remedy, cost). The numbers never change, and one that is given up is not
 * used again. The cost is what the remedy gives up in security. docs/doctor.md has a paragraph on each.
 */
/* clang-format off */
#define GPUIPC_FINDING_LIST(X)                                                                                                   \
    X(1, NO_DRIVER, BLOCKS, "there is no CUDA driver on this machine",                                                           \
      "install NVIDIA's driver; without a GPU, GPUIPC_CUDA_DRIVER=emulated runs everything in software", "none")                 \
    X(2, DRIVER_TOO_OLD, BLOCKS, "the CUDA driver lacks calls that gpuipc needs", "update it to that of CUDA 11.4 or newer",     \
      "none")                                                                                                                    \
    X(3, DRIVER_FAILED, BLOCKS, "the CUDA driver is there and does not start",                                                   \
      "run nvidia-smi and look at the kernel's log; after an update of the driver, restart the machine", "none")                 \
    X(4, NO_GPU, BLOCKS, "the CUDA driver finds no GPU", "look for it with nvidia-smi -L; a container must be given one", "none") \
    X(5, GPU_HIDDEN, BLOCKS, "CUDA_VISIBLE_DEVICES hides GPUs from this process",                                                \
      "name every GPU whose memory is shared, in each process; pass GPUs on by UUID, since ordinals differ", "none")             \
    X(6, CONTAINER_WITHOUT_DRIVER, BLOCKS, "the machine has a GPU driver, and this process lacks its library or device files",   \
      "start the container with --gpus all or CDI, and with NVIDIA_DRIVER_CAPABILITIES=compute,utility",                         \
      "the container reaches the GPUs and their driver")                                                                         \
    X(7, GPU_WITHHELD, BLOCKS, "the container or job was not given all GPUs of the machine",                                     \
      "give both ends the same GPUs (Slurm: --gpus instead of --gpus-per-task, with a CUDA_VISIBLE_DEVICES of their own)",       \
      "each process reaches all GPUs of the job")                                                                                \
    X(8, DRIVER_MISMATCH, BLOCKS, "the CUDA library and the kernel's driver are of different versions",                          \
      "remove the compatibility library (cuda-compat) from the image or LD_LIBRARY_PATH, or update the older of the two",        \
      "none")                                                                                                                    \
    X(9, FORKED, BLOCKS, "this process was forked from one in which CUDA was started",                                           \
      "start processes anew (in Python: the start method spawn), or fork before CUDA is used", "none")                           \
    X(10, EMULATED, NOTE, "the emulated driver is in use, and no GPU", "unset GPUIPC_CUDA_DRIVER where there is a GPU", "none")  \
    X(11, WSL, SLOWS, "this is Windows Subsystem for Linux, whose driver exports no memory and has no peer access",              \
      "use transport host, or Linux or Windows itself", "none")                                                                  \
    X(12, TCC, BLOCKS, "the TCC driver model has no virtual memory management",                                                  \
      "switch the GPU to WDDM (nvidia-smi -dm 0, as administrator), or use transport legacy", "none")                            \
    X(13, NOT_SHAREABLE, BLOCKS, "a GPU cannot export memory as this system's kind of handle", "use transport legacy or host",   \
      "none")                                                                                                                    \
    X(14, INTEGRATED, NOTE, "a GPU is integrated (Jetson): legacy CUDA IPC does not exist there",                                \
      "use transport vmm, which is the default", "none")                                                                         \
    X(15, MIG, SLOWS, "a GPU is a MIG slice, which reaches no other slice or GPU",                                               \
      "share within one slice, use transport host, or turn MIG off",                                                             \
      "without MIG the programs on a GPU are no longer kept apart by hardware")                                                  \
    X(16, COMPUTE_MODE, BLOCKS, "a GPU's compute mode admits one process, or none",                                              \
      "nvidia-smi -i GPU --compute-mode=0 (as root), or MPS", "every user of the machine may use the GPU")                       \
    X(17, MPS, NOTE, "CUDA's Multi-Process Service (MPS) is in use",                                                             \
      "run both ends under the same MPS server, or neither; name GPUs by UUID, since MPS numbers them anew",                     \
      "programs under one server can take each other down by a fault of the GPU")                                                \
    X(18, NO_P2P, SLOWS, "two GPUs have no peer access",                                                                         \
      "use transport host; for the cause see D15, D19 and D20, and nvidia-smi topo -p2p rw", "none")                             \
    X(19, FAR_APART, SLOWS, "two GPUs have no host bridge in common",                                                            \
      "let processes that share memory use GPUs of one host bridge, else of one node (nvidia-smi topo -m)", "none")              \
    X(20, IOMMU, SLOWS, "the IOMMU translates addresses of GPUs that are joined by PCIe",                                        \
      "boot with iommu=pt and switch ACS off on the bridges between the GPUs",                                                   \
      "devices behind those bridges can reach each other's memory and are no longer kept apart")                                 \
    X(21, SMALL_BAR1, NOTE, "a GPU shows less than its memory to other PCIe devices (BAR1)",                                     \
      "switch Resizable BAR on in the firmware, and use an unpatched driver", "none")                                            \
    X(22, NO_IMEX_CHANNEL, NOTE, "GPUs that could share memory between hosts (fabric) have no IMEX channel",                     \
      "for one host use vmm; else run nvidia-imex and give the container a channel (a Kubernetes ComputeDomain)",                \
      "who has the channel may open fabric memory of every program that has the same one")                                       \
    X(23, WRONG_DATA, BLOCKS, "a trial went through and delivered other data than was written",                                  \
      "trust no copy between the two GPUs until D18 to D21 are settled: switch ACS off, boot with iommu=pt",                     \
      "as D20")                                                                                                                  \
    X(24, TRIAL_REFUSED, BLOCKS, "the driver refused to share memory in a trial",                                                \
      "use another transport (gpuipc-selftest transports says which work)", "none")                                              \
    X(25, NO_DEVICE_MEMORY, BLOCKS, "a GPU has no memory left for a trial of 2 MiB", "free some; nvidia-smi says who has it",    \
      "none")                                                                                                                    \
    X(26, RUNTIME_DIRECTORY, BLOCKS, "the runtime directory, in which processes meet, cannot be used",                           \
      "make a directory of this user's own with mode 0700, and name it in GPUIPC_RUNTIME_DIR for both ends",                     \
      "none; one that others may write to would let them pose as the peer, and is refused")                                      \
    X(27, PRIVATE_DIRECTORY, NOTE, "the runtime directory is inside this container, where no other container sees it",           \
      "mount one directory into both containers and name it in GPUIPC_RUNTIME_DIR",                                              \
      "who can write to the directory can take part")                                                                            \
    X(28, PID_NAMESPACE, NOTE, "this process has a PID namespace of its own: legacy CUDA IPC fails beyond it",                   \
      "use transport vmm; else one PID namespace for both containers (--pid)",                                                   \
      "none for vmm; with --pid containers see and may signal each other's processes")                                           \
    X(29, USER_NAMESPACE, NOTE, "this process has a user namespace of its own: users outside may look like nobody",              \
      "map the user that runs the other end, or admit the peer by a policy and a shared directory",                              \
      "the mapped user gets that user's rights in the container")                                                                \
    X(30, IPC_NAMESPACE, NOTE, "this process has an IPC namespace of its own: CUDA's IPC events do not open beyond it",          \
      "nothing for gpuipc, which uses no such events; for other programs one IPC namespace (--ipc)",                             \
      "none for gpuipc; with --ipc containers reach each other's shared memory")                                                 \
    X(31, SMALL_SHM, NOTE, "/dev/shm is missing, small or full",                                                                 \
      "nothing for gpuipc, which does not use it; for other programs --shm-size", "none")                                        \
    X(32, PTRACE, NOTE, "this process may not trace others, so it cannot take their descriptors (pidfd_getfd)",                  \
      "nothing for gpuipc, whose descriptors are sent; leave ptrace_scope as it is",                                             \
      "none; ptrace_scope 0, CAP_SYS_PTRACE and PR_SET_PTRACER_ANY would open this user's processes to each other")              \
    X(33, SECCOMP, NOTE, "the kernel, or a seccomp filter, refuses pidfd_getfd",                                                 \
      "nothing for gpuipc, whose descriptors are sent; leave the filter as it is",                                               \
      "none; a weaker filter would open the kernel to the container")                                                            \
    X(34, NO_PIDFD, SLOWS, "the kernel, or a seccomp filter, offers no descriptors of processes (pidfd_open)",                   \
      "Linux 5.3 or newer, or a filter that admits pidfd_open; without it a peer's death is noticed late",                       \
      "pidfd_open gives no right over the other process")                                                                        \
    X(35, HANDLE_LIMIT, BLOCKS, "the limit of open descriptors is low",                                                          \
      "raise it (ulimit -n, LimitNOFILE=, --ulimit nofile); each segment takes one on its way", "none")                          \
    X(36, LOCKED_MEMORY, NOTE, "the limit of locked memory is low",                                                              \
      "nothing for gpuipc, which locks none; for RDMA ulimit -l unlimited (--ulimit memlock=-1)",                                \
      "a program may take all memory of the machine and keep it from being swapped")                                             \
    X(37, EXPANDABLE_SEGMENTS, NOTE, "PyTorch's expandable segments are on: cudaIpcGetMemHandle refuses such memory",            \
      "share it with gpuipc_buffer_wrap() or gpuipc.torch, or set expandable_segments:False", "none")                            \
    X(38, ASYNC_ALLOCATOR, SLOWS, "cudaMallocAsync is the allocator: memory of its default pool leaves no process",              \
      "use the native allocator, a pool that was made to be shared, or gpuipc.torch.MemPool", "none")                            \
    X(39, DRIVER_NAMED, BLOCKS, "the library that was named as the CUDA driver cannot be loaded",                                \
      "name one that is there (--driver, GPUIPC_CUDA_DRIVER, gpuipc_context_config::driver), or none for the installed driver",  \
      "none; what is named there runs in this process, so it must be a file that nobody else may write")                         \
    X(40, ADDRESS_LIMIT, BLOCKS, "the addresses of a process are limited (ulimit -v), of which CUDA reserves many",              \
      "raise it (ulimit -v unlimited); bound memory itself by a cgroup instead (systemd: MemoryMax=, Docker: --memory)",         \
      "none, where a cgroup bounds the memory")                                                                                  \
    X(41, ONE_CONNECTION, SLOWS, "CUDA_DEVICE_MAX_CONNECTIONS=1: a stream that waits for another process holds up all others",   \
      "unset it, or set 8 or more; where the program needs 1, wait on the host (gpuipc_buffer_await_returns()), not on streams", \
      "none")                                                                                                                    \
    X(42, POOL_ACROSS_GPUS, NOTE, "GPUs can read pool memory of each other: a killed exporter ends the reader's CUDA context",   \
      "use transport vmm or legacy between two GPUs, and pool on one GPU alone", "none")
/* clang-format on */

/** How many there are: room for all that gpuipc_diagnose() of this version can find. */
#define GPUIPC_FINDING_COUNT 42

/** What a finding does to sharing memory. */
typedef enum gpuipc_severity {
    GPUIPC_SEVERITY_NOTE = 1, /**< good to know; often what stops other libraries, and not gpuipc */
    GPUIPC_SEVERITY_SLOWS = 2, /**< it works by another way, slower */
    GPUIPC_SEVERITY_BLOCKS = 3 /**< something cannot work until it is mended */
} gpuipc_severity;

/** Something that was found. All texts are English, and static but for the evidence. */
typedef struct gpuipc_finding {
    uint32_t number;          /**< as in ::GPUIPC_FINDING_LIST */
    gpuipc_severity severity; /**< on this machine */
    const char *id;           /**< the number as text, "D01" */
    const char *name;         /**< its name, "NO_DRIVER" */
    const char *cause;        /**< what is the matter */
    const char *remedy;       /**< what to do */
    const char *cost;         /**< what the remedy gives up in security */
    char evidence[512];       /**< what was seen here; cut when longer */
} gpuipc_finding;

/** Only looks: nothing is made on a GPU, no CUDA context is made, and no name in the runtime directory. */
#define GPUIPC_DIAGNOSE_LOOK_ONLY 0x1u

/**
 * Looks for everything of ::GPUIPC_FINDING_LIST that keeps processes on this machine from sharing GPU memory, makes it
 * slow, or stops other libraries. Works without a driver, and without rights. A finding is evidence, no verdict. So what
 * can be tried is tried: a name in the runtime directory (which is made if it is missing), and transport vmm between
 * all pairs of devices. The trial is that of gpuipc_transport_query(). What depends on the process at the other end is
 * not known here.
 * @param config of the context that a program would make, with driver and runtime directory; NULL for the defaults
 * @param flags 0, or ::GPUIPC_DIAGNOSE_LOOK_ONLY
 * @param findings room for @p capacity of them, the gravest first; may be NULL when that is 0
 * @param capacity how many there is room for; ::GPUIPC_FINDING_COUNT suffices
 * @param out_count how many there are; also written with ::GPUIPC_ERR_TOO_SMALL
 * @errors ::GPUIPC_ERR_TOO_SMALL, ::GPUIPC_ERR_STRUCT_SIZE. What a finding tells is no failure of the call
 * @ownership copies  @threads any
 * @blocking for the driver's start and the trials: some 100 ms for each device that is used first  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_diagnose(const gpuipc_context_config *config,
                                                        uint32_t flags, gpuipc_finding *findings,
                                                        size_t capacity, size_t *out_count);

/**
 * What a number of ::GPUIPC_FINDING_LIST stands for: a finding without evidence, of the gravest severity that it can have.
 * @param number 1 to ::GPUIPC_FINDING_COUNT
 * @param out_finding filled in
 * @errors ::GPUIPC_ERR_NOT_FOUND  @ownership copies; its texts are static  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_finding_describe(uint32_t number,
                                                                gpuipc_finding *out_finding);

/**
 * The name of a severity, such as "blocks"; "unknown" for other values.
 * @param severity any number
 * @errors none  @ownership static text  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API const char *gpuipc_severity_name(gpuipc_severity severity);

#ifdef __cplusplus
}
#endif

#endif
