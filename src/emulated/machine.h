/* SPDX-License-Identifier: MIT */
/**
 * @file The machine that is emulated, as GPUIPC_EMULATED_MACHINE describes it: "key=value" pairs,
 * separated by ';'. Every key may be left out.
 *
 *   devices=2           how many GPUs, 0 to 64
 *   memory=4G           bytes of each; K, M and G are powers of 1024
 *   p2p=all             pairs with peer access: all, none, or a list such as 0-1,2-3
 *   link=nvlink         what joins them: nvlink or pcie (which has no native atomics)
 *   links=18            NVLinks of each GPU, 0 to 18, when that is what joins them
 *   link-version=4      their generation, 1 to 5
 *   pcie-gen=5          generation of each GPU's PCIe link, 1 to 7
 *   pcie-width=16       its lanes, 1 to 32
 *   driver-model=none   none, wddm (what it is on Windows unless told otherwise), mcdm (only NVML
 *                       tells it from wddm), or tcc, which has no VMM
 *   compute=9.0         compute capability
 *   compute-mode=default  default, exclusive (one process; only told, not enforced), or prohibited:
 *                       no context can be made
 *   vmm=1               0: no virtual memory management
 *   fd-handles=1        0: memory cannot be exported through the handles of this system
 *   stream-words=1      0: no stream memory operations
 *   imex=0              1: there is an IMEX channel, so that memory can be shared through FABRIC
 *   wsl=0               1: as under WSL, which also means p2p=none and fd-handles=0
 *   nvml=1              0: the emulated NVML says that there is no driver
 *   version=13000       what cuDriverGetVersion answers; newer entry points are not found
 *   mig=0               1: the devices are MIG instances
 *   uuid-seed=TEXT      UUIDs are a hash of this and the number of the device, so that processes
 *                       with one description agree, and others differ
 *   stream-delay-ms=0   every piece of asynchronous work waits this long before it starts
 */
#ifndef GPUIPC_EMULATED_MACHINE_H
#define GPUIPC_EMULATED_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MACHINE_DEVICES_MAX 64
/** NVLinks of one GPU: NVML_NVLINK_MAX_LINKS of nvml.h. */
#define MACHINE_LINKS_MAX 18
/** The emulated GPUs sit on buses of their own, from this one on, each as device 0. */
#define MACHINE_BUS_FIRST 0x10

typedef enum machine_link {
    MACHINE_LINK_NVLINK,
    MACHINE_LINK_PCIE
} machine_link;
typedef enum machine_model {
    MACHINE_MODEL_NONE,
    MACHINE_MODEL_WDDM,
    MACHINE_MODEL_TCC,
    MACHINE_MODEL_MCDM
} machine_model;
/** The values of CUcomputemode. */
typedef enum machine_compute_mode {
    MACHINE_COMPUTE_DEFAULT = 0,
    MACHINE_COMPUTE_PROHIBITED = 2,
    MACHINE_COMPUTE_EXCLUSIVE = 3
} machine_compute_mode;

typedef struct machine {
    unsigned devices;
    uint64_t memory_bytes;
    uint64_t p2p[MACHINE_DEVICES_MAX]; /**< bit j of p2p[i]: i reaches the memory of j */
    bool has_p2p_list;                 /**< p2p was given as a list of pairs */
    machine_link link;
    unsigned link_count;
    unsigned link_version;
    unsigned pcie_generation;
    unsigned pcie_width;
    machine_model model;
    machine_compute_mode compute_mode;
    int compute_major;
    int compute_minor;
    bool has_vmm;
    bool has_shareable_handles;
    bool has_stream_words;
    bool has_dma_buf;
    bool has_imex;
    bool has_nvml;
    bool is_wsl;
    bool is_mig;
    int version;
    unsigned stream_delay_ms;
    char uuid_seed[64];
} machine;

/**
 * Reads a description; NULL and "" are the machine without any key.
 * @param complaint on failure a sentence that names the wrong key
 * @return false when it is malformed; *out is then not changed
 */
bool machine_parse(const char *text, machine *out, char *complaint, size_t complaint_size);

/** The UUID of a device of the machine. @param whole_gpu of the GPU that a MIG instance is of */
void machine_uuid(const machine *computer, unsigned device, bool whole_gpu, uint8_t uuid[16]);

/** The size of a UUID as text, with its end: 8-4-4-4-12 digits. */
#define MACHINE_UUID_TEXT_SIZE 37
void machine_uuid_text(const uint8_t uuid[16], char text[MACHINE_UUID_TEXT_SIZE]);

/** Devices of the machine that this process sees, in its order, as CUDA_VISIBLE_DEVICES says: stops
 *  at the first entry that names no device, or one that it has already.
 *  @param list the variable's text, or NULL: all @return how many */
unsigned machine_visible(const machine *computer, const char *list,
                         unsigned out_devices[MACHINE_DEVICES_MAX]);

#endif
