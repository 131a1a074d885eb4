/* SPDX-License-Identifier: MIT */
/** @file A range of device memory: created here, wrapped around the caller's, or opened. */
#ifndef GPUIPC_BUFFER_H
#define GPUIPC_BUFFER_H

#include <gpuipc/gpuipc.h>

#include "arrival.h"
#include "borrow.h"
#include "context.h"
#include "lend.h"
#include "mapping.h"

struct transport;

typedef struct buffer {
    object object;
    deferred deferred; /**< when it has ended */
    context *context;
    gpuipc_buffer_origin origin;
    const struct transport *transport; /**< what carries it */
    gpuipc_memory_kind kind;           /**< of wrapped memory: what it is */
    gpuipc_uuid owner_uuid;
    uint32_t owner; /**< or GPUIPC_DEVICE_NONE */
    uint32_t access_device;
    atomic_int access;            /**< gpuipc_access of access_device */
    atomic_bool others_may_write; /**< another device has been given more than reading */
    gpuipc_access access_limit;   /**< the most that any device may be given */
    mapping mapping;              /**< of a wrapped buffer: the caller's, only described here */
    uint64_t offset;              /**< of the range, in the mapping */
    uint64_t bytes;
    segment *segments; /**< its own, unless it has an import or is a view: then only looked at */
    uint32_t segment_count;
    import_memory
        *import;        /**< opened over memory that others here may have open as well; else NULL */
    import_view *view;  /**< of that: its mapping is the one above */
    bool keeps_handles; /**< opened so that it can be sent on */
    bool is_view; /**< opened by a ticket of this process: all but the range is another's here */
    atomic_uint handles;     /**< public ones */
    struct opening *opening; /**< how it was opened by a ticket; else NULL */
    uint8_t exporter_id[16];
    uint64_t buffer_id;
    struct buffer
        *original; /**< opened: the buffer whose memory it is, which came back to this process, or
                                  never left it; its original is NULL */
    struct buffer *over; /**< of a view: what was shared, no view itself; mostly the original */
    struct buffer *registry_next;  /**< registry.c */
    struct buffer **registry_link; /**< likewise; NULL: not in it */
    bool is_lingering; /**< likewise: released, but other processes still have it open */
    struct buffer *lingering_next;  /**< likewise, of those */
    struct buffer **lingering_link; /**< likewise */
    unsigned revivals; /**< likewise: how often it came back as its last reference went */
    lend_list lends;   /**< hand-overs of it that are not returned */
    borrow *borrow;    /**< of an opened one that came with a point; else NULL */
    arrival arrived;   /**< contents that it received last */
} buffer;

struct sender;

/** What it takes to open a buffer of another process. */
typedef struct buffer_source {
    const struct transport *transport;
    const struct sender *from; /**< NULL: from native handles */
    gpuipc_uuid owner_uuid;
    uint64_t offset;
    uint64_t bytes;
    gpuipc_access access_limit;
    import_memory
        *import; /**< in place of segments, for a transport that shares imports; NULL: segments */
    bool keeps_handles;
    uint8_t exporter_id[16];
    uint64_t buffer_id;
} buffer_source;

/** The buffer behind a public handle, with a reference for the caller. */
gpuipc_status buffer_acquire(gpuipc_buffer *handle, const char *operation, buffer **out_buffer);
void buffer_unreference(buffer *self);
/** As gpuipc_buffer_release(), in a call that must not wait for the devices; a failure stays in the record. */
void buffer_release_later(gpuipc_buffer *handle);
/** The same after a failure, which stays in the record. */
void buffer_drop(buffer *self);

/** Makes memory as gpuipc_buffer_create() does, without a public handle. */
gpuipc_status buffer_create(context *ctx, const gpuipc_buffer_config *config, buffer **out_buffer);

/** Opens a buffer over imported segments, or over source->import, the caller's reference on which passes on
 *  success only.
 *  @param segments allocated with malloc; theirs and their array's ownership passes on success only
 *  @param wanted as gpuipc_incoming::device */
gpuipc_status buffer_open(context *ctx, const buffer_source *source, segment *segments,
                          uint32_t segment_count, uint32_t wanted, gpuipc_access access,
                          buffer **out_buffer);

/** A range of a buffer of this process, of any of its contexts, as if it had been opened.
 *  @param of the caller's reference on it passes on success only
 *  @param offset of the range in it; it lies there */
gpuipc_status buffer_open_view(context *ctx, buffer *of, uint64_t offset, uint64_t bytes,
                               uint32_t wanted, gpuipc_access access, gpuipc_access access_limit,
                               buffer **out_buffer);

/** What is given to who wants this access, within its limit. */
gpuipc_access buffer_settle_access(const buffer *self, gpuipc_access wanted);

/** What the device it was opened for may do; of a view, never more than what it is over now may. */
gpuipc_access buffer_access(const buffer *self);

/** Makes the public handle, which takes over the caller's reference, also when it fails. */
gpuipc_status buffer_publish(buffer *self, gpuipc_buffer **out_handle);

/** ERR_NOT_SHAREABLE, with the reason, when it cannot be sent. @param peer to whom; NULL: not known */
gpuipc_status buffer_check_export(const buffer *self, const os_peer *peer);

/** ERR_ACCESS_DENIED when it may only be read and the driver would not notice. */
gpuipc_status buffer_check_writable(const buffer *self, const char *operation);

/** ERR_INVALID_ARGUMENT when it is no value of the type. */
gpuipc_status buffer_check_access(gpuipc_access access, const char *operation);

/** ERR_OUT_OF_RANGE when [offset, offset + bytes) is not inside. */
gpuipc_status buffer_check_range(const buffer *self, uint64_t offset, uint64_t bytes,
                                 const char *operation);

/** Device address of an offset into the buffer. */
CUdeviceptr buffer_address(const buffer *self, uint64_t offset);

#endif
