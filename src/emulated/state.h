/* SPDX-License-Identifier: MIT */
/**
 * @file What the emulated driver knows in this process: the machine, the devices, what is live, and
 * the one lock that guards all of it. Copies and fills run outside the lock.
 */
#ifndef GPUIPC_EMULATED_STATE_H
#define GPUIPC_EMULATED_STATE_H

#include "emulated.h"
#include "emulated_api.h"
#include "machine.h"
#include "os.h"

/** What memory is divided into: VMM sizes and addresses are multiples of it, as on an H200. */
#define STATE_GRANULE ((uint64_t)2 << 20)

struct context;
struct pool;

/** A device that this process sees; its index is its ordinal. */
typedef struct device {
    unsigned physical;   /**< its number in the machine */
    uint64_t used_bytes; /**< allocations of this process */
    struct context *primary;
    struct pool *default_pool; /**< NULL: nobody has asked for it yet */
    struct pool *current_pool; /**< NULL: the default one */
} device;

typedef struct state {
    machine computer;
    device devices[MACHINE_DEVICES_MAX];
    unsigned device_count;
    gpuipc_emulated_live live;
    unsigned stream_delay_ms;
} state;

/** Everything in it is guarded by the lock, except what cuInit sets for good. */
extern state driver;

/** cuInit has succeeded, in this process and not in the one it was forked from. */
bool state_is_usable(void);

void state_lock(void);
/** False, at once, when another thread has it. */
bool state_try_lock(void);
void state_unlock(void);

/** Tells every thread in state_wait that something has finished. The lock is held. */
void state_announce(void);
/** Waits for the next announcement, with the lock released meanwhile. */
void state_wait(void);

/** Tells the calling thread from all others. */
const void *state_thread(void);

/** From now on the calls of all other threads wait, until state_let_in. */
void state_keep_out(void);
void state_let_in(void);
/** Waits while another thread keeps this one out. */
void state_wait_admission(void);

/** The machine, before cuInit too; one without any key when its description is malformed. */
void state_machine(machine *out);

/** The device with this ordinal, or CUDA_ERROR_INVALID_DEVICE. */
CUresult state_device(CUdevice ordinal, device **out);

/** Whether the machine has virtual memory management: WDDM has, TCC has not. */
bool state_has_vmm(void);
/** Whether it has cuIpc...: WSL has not. */
bool state_has_ipc(void);
/** Whether a device and the host may use managed memory at the same time: Linux alone, and not WSL. */
bool state_has_concurrent_managed(void);
/** Whether it has memory pools, which are built on virtual memory management. */
bool state_has_pools(void);

/** Whether it has dma-bufs: Linux alone, and not WSL. */
bool state_has_dma_buf(void);

/** What CUDA says for a failure of the operating system. */
CUresult state_result(gpuipc_status status);

#endif
