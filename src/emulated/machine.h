/* SPDX-License-Identifier: MIT */
/**
 * @file The machine that is emulated, as GPUIPC_EMULATED_MACHINE describes it: "key=value" pairs,
 * separated by ';'. Every key may be left out.
 *
 *   devices=2           how many GPUs, 0 to 64
 *   memory=4G           bytes of each; K, M and G are powers of 1024
 *   p2p=all             pairs with peer access: all, none, or a list such as 0-1,2-3
 *   link=nvlink         what joins them: nvlink or pcie (which has no native atomics)
 *   driver-model=none   none, wddm (what it is on Windows unless told otherwise), or tcc, which has
 *                       no VMM
 *   vmm=1               0: no virtual memory management
 *   fd-handles=1        0: memory cannot be exported through the handles of this system
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

typedef enum machine_link {
    MACHINE_LINK_NVLINK,
    MACHINE_LINK_PCIE
} machine_link;
typedef enum machine_model {
    MACHINE_MODEL_NONE,
    MACHINE_MODEL_WDDM,
    MACHINE_MODEL_TCC
} machine_model;

typedef struct machine {
    unsigned devices;
    uint64_t memory_bytes;
    uint64_t p2p[MACHINE_DEVICES_MAX]; /**< bit j of p2p[i]: i reaches the memory of j */
    bool has_p2p_list;                 /**< p2p was given as a list of pairs */
    machine_link link;
    machine_model model;
    bool has_vmm;
    bool has_shareable_handles;
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

/** Devices of the machine that this process sees, in its order, as CUDA_VISIBLE_DEVICES says: stops
 *  at the first entry that names no device, or one that it has already.
 *  @param list the variable's text, or NULL: all @return how many */
unsigned machine_visible(const machine *computer, const char *list,
                         unsigned out_devices[MACHINE_DEVICES_MAX]);

#endif
