/* SPDX-License-Identifier: MIT */
/** @file For programs that have their own way to move handles between processes. */
#ifndef GPUIPC_NATIVE_H
#define GPUIPC_NATIVE_H

#include "gpuipc.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A handle of the operating system: a file descriptor on Linux, a HANDLE on Windows. */
typedef struct gpuipc_native_handle {
    intptr_t value; /**< the int, or the HANDLE converted to intptr_t */
} gpuipc_native_handle;

/** One physical allocation: its handle and its size. */
typedef struct gpuipc_native_segment {
    gpuipc_native_handle handle; /**< stands for the allocation */
    uint64_t bytes;              /**< its whole size; the receiver must map exactly this much */
} gpuipc_native_segment;

/** What must travel beside the handles for another process to open the buffer. */
typedef struct gpuipc_native_layout {
    size_t struct_size;      /**< sizeof(gpuipc_native_layout) */
    gpuipc_uuid device_uuid; /**< the GPU that owns the memory */
    uint64_t offset;         /**< where the range begins, from the start of the first segment */
    uint64_t bytes;          /**< length of the range */
} gpuipc_native_layout;
/** The start of a ::gpuipc_native_layout: struct_size is set, all else is zero. */
#define GPUIPC_NATIVE_LAYOUT_INIT GPUIPC_SIZED(gpuipc_native_layout)

/**
 * Gives out fresh handles of a buffer, one per segment, in address order. They are closed on exec and, on
 * Windows, not inherited.
 * @param buffer a live buffer
 * @param capacity how many @p segments has room for
 * @param segments room for @p capacity; their number is gpuipc_buffer_info::segment_count
 * @param out_layout with struct_size set by the caller
 * @param out_count how many were written; with ::GPUIPC_ERR_TOO_SMALL, how many are needed
 * @errors ::GPUIPC_ERR_TOO_SMALL, ::GPUIPC_ERR_NOT_SHAREABLE, ::GPUIPC_ERR_TOO_MANY_HANDLES,
 *         ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership the handles are the caller's, who closes them (close, CloseHandle); they keep the
 *            memory alive, also after the buffer is released
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_native_export(gpuipc_buffer *buffer,
                                                             gpuipc_native_segment *segments,
                                                             size_t capacity,
                                                             gpuipc_native_layout *out_layout,
                                                             size_t *out_count);

/**
 * Opens a buffer from handles that came some other way. The caller must know that its work on the
 * memory is ordered with the sender's: there is no ready point here.
 * @param context the context that it is done in
 * @param segments handles and sizes in address order, as gpuipc_native_export() gave them out
 * @param segment_count how many segments there are, above 0
 * @param layout what came beside them
 * @param out_buffer the new buffer
 * @param device ::GPUIPC_DEVICE (number) or ::GPUIPC_DEVICE_OWNER, as gpuipc_incoming::device
 * @param access what that device may do
 * @errors ::GPUIPC_ERR_NOT_GPU_MEMORY, ::GPUIPC_ERR_SIZE_MISMATCH, ::GPUIPC_ERR_DEVICE_NOT_VISIBLE,
 *         ::GPUIPC_ERR_DEVICE_NOT_FOUND, ::GPUIPC_ERR_OUT_OF_RANGE (the layout's range does not lie in
 *         the segments), ::GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED,
 *         ::GPUIPC_ERR_OUT_OF_DEVICE_MEMORY, ::GPUIPC_ERR_VMM_UNSUPPORTED, ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership borrows the handles: the caller closes them, at once if it likes, or keeps them to pass
 *            the memory on, since the buffer itself cannot be sent on
 * @threads any  @blocking for the driver's mapping  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_native_import(gpuipc_context *context,
                                                             const gpuipc_native_segment *segments,
                                                             size_t segment_count,
                                                             const gpuipc_native_layout *layout,
                                                             uint32_t device, gpuipc_access access,
                                                             gpuipc_buffer **out_buffer);

/** A dma-buf, and where a range lies in it. */
typedef struct gpuipc_native_dmabuf {
    size_t struct_size;          /**< sizeof(gpuipc_native_dmabuf) */
    gpuipc_native_handle handle; /**< the file descriptor of the dma-buf */
    uint64_t offset;       /**< where the range begins, from the start of the dma-buf, bytes */
    uint64_t dmabuf_bytes; /**< length of the whole dma-buf */
} gpuipc_native_dmabuf;
/** The start of a ::gpuipc_native_dmabuf: struct_size is set, all else is zero. */
#define GPUIPC_NATIVE_DMABUF_INIT GPUIPC_SIZED(gpuipc_native_dmabuf)

/**
 * Makes a Linux dma-buf of a range, for other devices of this machine: network cards (ibv_reg_dmabuf_mr), video,
 * displays. It consists of whole pages of the host, so it may begin before the range and end after it. Who has it can
 * read and write these pages. Nothing orders that with the work of the GPU.
 * @param buffer any that is memory of a GPU, made here, wrapped or opened
 * @param offset where the range begins, from the start of the buffer, bytes
 * @param bytes length of the range
 * @param out_dmabuf with struct_size set by the caller; written only on success
 * @errors ::GPUIPC_ERR_NOT_SUPPORTED (Windows, or a driver without dma-bufs),
 *         ::GPUIPC_ERR_NOT_SHAREABLE (no memory of a GPU, or its pages hold other memory too),
 *         ::GPUIPC_ERR_ACCESS_DENIED (the buffer may only be read), ::GPUIPC_ERR_OUT_OF_RANGE,
 *         ::GPUIPC_ERR_TOO_MANY_HANDLES, ::GPUIPC_ERR_STRUCT_SIZE
 * @ownership the descriptor is the caller's, who closes it. Keep the buffer until nobody uses the dma-buf any more
 * @threads any  @blocking no  @since 0.1
 */
GPUIPC_API GPUIPC_CHECKED gpuipc_status gpuipc_native_export_dmabuf(
    gpuipc_buffer *buffer, uint64_t offset, uint64_t bytes, gpuipc_native_dmabuf *out_dmabuf);

#ifdef __cplusplus
}
#endif

#endif
