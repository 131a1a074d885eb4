/* SPDX-License-Identifier: MIT */
/**
 * @file libgpuipc_torch.so: memory of gpuipc for PyTorch's caching allocator, through CUDAPluggableAllocator. It knows
 * neither Python nor PyTorch, so that programs of LibTorch use it, too. Linux only, as pluggable allocators are.
 *
 * What a pool of PyTorch gets is split by PyTorch into blocks, which it uses again as soon as their tensors are gone.
 * So whoever hands a tensor to another process keeps it until it has been given back.
 *
 * Requests of 2 MiB and less, which PyTorch makes for its small tensors, have segments of up to 32 MiB in common: to open
 * one costs a receiver no more. A segment is made only so large that no more of all of them is unused than used. Who has a
 * part of one open can reach all of it.
 */
#ifndef GPUIPC_TORCH_H
#define GPUIPC_TORCH_H

#include <gpuipc/gpuipc.h>
#include <stdbool.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How many kinds of memory there can be in a process at a time: each has a function of its own, because PyTorch gives
 *  the function nothing that would tell them apart. */
#define GPUIPC_TORCH_KINDS 16

/**
 * Says what gpuipc_torch_alloc_N() makes from now on.
 * @param kind N, below ::GPUIPC_TORCH_KINDS
 * @param context whose memory it is; not kept alive by this
 * @param openers as gpuipc_buffer_config::openers; copied
 * @param opener_count how many there are
 * @param access_devices plain numbers of further devices of this process that may use the memory, as far as they
 *        reach it; copied
 * @param access_device_count how many there are
 * @errors ::GPUIPC_ERR_INVALID_ARGUMENT (kind), ::GPUIPC_ERR_OUT_OF_MEMORY; without a record
 * @ownership copies  @threads any  @blocking no
 */
GPUIPC_API gpuipc_status gpuipc_torch_configure(uint32_t kind, gpuipc_context *context,
                                                const gpuipc_uuid *openers, uint32_t opener_count,
                                                const uint32_t *access_devices,
                                                uint32_t access_device_count);

/**
 * Makes memory of kind 0; gpuipc_torch_alloc_1() to gpuipc_torch_alloc_15() make that of the others. For
 * CUDAPluggableAllocator, which calls it with its lock held.
 * @param bytes how many
 * @param device its number
 * @param stream on which PyTorch is going to use it; remembered, no more
 * @return the address; NULL: there is no memory (PyTorch then frees what it does not need, and asks again), or another
 *         failure, which gpuipc_torch_failure() has
 * @errors in gpuipc_torch_failure()  @ownership to be given to gpuipc_torch_free()  @threads any
 * @blocking for the driver. When there is too little memory, and some that was freed is still in use by the device:
 *           for that, at most 2 seconds
 */
GPUIPC_API void *gpuipc_torch_alloc(ssize_t bytes, int device, gpuipc_stream stream);

/**
 * Frees memory of any kind. It is unmapped when the device has done what it was given until now. Where others have the same
 * segment, it is unmapped with the last of them, and nobody gets it before.
 * @param address as the allocation gave it; others, and NULL, do nothing
 * @param bytes not looked at  @param device not looked at  @param stream not looked at
 * @errors none  @ownership takes the memory  @threads any  @blocking no
 */
GPUIPC_API void gpuipc_torch_free(void *address, ssize_t bytes, int device, gpuipc_stream stream);

/** A piece of memory that was made for one request, or for several. */
typedef struct gpuipc_torch_segment {
    uint64_t address;
    uint64_t bytes;
    gpuipc_buffer *buffer; /**< with a reference that the caller owes */
    gpuipc_stream stream;  /**< which it was made for */
} gpuipc_torch_segment;

/**
 * Finds what an address lies in.
 * @param address any
 * @param out_segment filled in
 * @errors ::GPUIPC_ERR_NOT_FOUND, without a record  @ownership one gpuipc_buffer_release() is owed  @threads any
 * @blocking no
 */
GPUIPC_API gpuipc_status gpuipc_torch_find(uint64_t address, gpuipc_torch_segment *out_segment);

/**
 * Whether an address lies in memory of an allocation.
 * @param address any
 * @return whether it does
 * @errors none  @ownership none  @threads any  @blocking no
 */
GPUIPC_API bool gpuipc_torch_is_known(uint64_t address);

/**
 * The ticket of a whole segment, if it was made before.
 * @param address any in the segment
 * @param server that answers it
 * @param out_ticket the ticket; unchanged where there is none
 * @return whether there is one
 * @errors none  @ownership a value  @threads any  @blocking no
 */
GPUIPC_API bool gpuipc_torch_kept_ticket(uint64_t address, gpuipc_server *server,
                                         gpuipc_ticket *out_ticket);

/**
 * The ticket of a whole segment, which is made once, and is revoked when the segment is freed.
 * @param address any in the segment
 * @param server that answers it, of the segment's context
 * @param out_ticket the ticket
 * @errors ::GPUIPC_ERR_NOT_FOUND (without a record), and those of gpuipc_buffer_share()  @ownership a value
 * @threads any  @blocking no
 */
GPUIPC_API gpuipc_status gpuipc_torch_ticket(uint64_t address, gpuipc_server *server,
                                             gpuipc_ticket *out_ticket);

/**
 * Why the last allocation failed that did not fail for want of memory.
 * @param out_text room for the sentence; empty: none failed since the last call
 * @param size of the room
 * @errors none  @ownership copies  @threads any  @blocking no
 */
GPUIPC_API void gpuipc_torch_failure(char *out_text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
