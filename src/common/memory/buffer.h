/* SPDX-License-Identifier: MIT */
/** @file A range of device memory: created here, wrapped around the caller's, or opened. */
#ifndef GPUIPC_BUFFER_H
#define GPUIPC_BUFFER_H

#include <gpuipc/gpuipc.h>

#include "base/list.h"
#include "base/range_tree.h"
#include "base/table.h"
#include "cuda/context.h"
#include "memory/buffer_work.h"
#include "memory/import.h"
#include "memory/mapping.h"
#include "sync/deferred.h"
#include "sync/drop.h"
#include "sync/export_record.h"
#include "sync/import_record.h"

struct transport;

typedef struct buffer {
    object object;
    deferred deferred;    /**< when it has ended */
    dropped dropped;      /**< while it is dropped behind the work of devices */
    wait_handle returned; /**< of gpuipc_buffer_get_returns_wait_handle() */
    monitored returns;    /**< likewise */
    context *context;
    gpuipc_buffer_origin origin;
    const struct transport *transport; /**< what carries it */
    gpuipc_memory_kind
        kind; /**< of what was wrapped, or is mapped here from elsewhere; else unknown */
    gpuipc_uuid owner_uuid;
    uint32_t owner; /**< or GPUIPC_DEVICE_NONE */
    uint32_t access_device;
    atomic_int access;            /**< gpuipc_access of access_device */
    atomic_bool others_may_write; /**< another device has been given more than reading */
    atomic_bool others_may_use;   /**< another device has been given anything */
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
    bool
        is_view; /**< opened by a ticket of this process, or wrapped around what is open here: all but the range is
                       another's */
    atomic_uint handles; /**< public ones, and references that count as such */
    _Atomic(gpuipc_buffer *)
        handle;             /**< the first that was given out; it may be released. NULL: none was */
    range_node range;       /**< buffer_table.c; its end is 0: not entered */
    const void *attachment; /**< bytes of the ticket that it was opened by; NULL: none */
    size_t attachment_bytes;
    bool is_attachment_withheld; /**< there are such bytes, for who opens all that is shared */
    const struct buffer_finder *finder; /**< NULL: it has no name by which it is opened again */
    struct cached_ticket *cached;       /**< how it was opened by a ticket; else NULL */
    uint8_t exporter_id[16];
    uint64_t buffer_id;
    struct buffer
        *original; /**< opened: the buffer whose memory it is, which came back to this process, or
                                  never left it; its original is NULL */
    struct buffer *over;   /**< of a view: what was shared, no view itself; mostly the original */
    table_link registered; /**< registry.c */
    list_link
        lingering; /**< of those that linger (exports.is_lingering): released, but other processes still have it open */
    unsigned revivals;      /**< likewise: how often it came back as its last reference went */
    buffer_exports exports; /**< hand-overs of it that are not returned */
    import_record *
        import_record; /**< of an opened one that came from another process or came home; else NULL */
    import_record
        *arrived; /**< of the contents that it received last, guarded by the point mutex; or NULL */
    linked_list captures; /**< marks that graphs repeat, until it ends */
    linked_list loans;    /**< of parts of it: sync/loan.h */
    buffer_work work;     /**< on its memory; of a view: of what it lies over */
} buffer;

/** Of a buffer that is found by a name, so that it is opened again by a look-up. */
typedef struct buffer_finder {
    /** It ends: it is not found any more. */
    void (*leave)(buffer *of);
    /** It is returned: likewise. False, and nothing is done, when it is open more than once. */
    bool (*leave_alone)(buffer *of);
    /** Frees what the finder has of it. @param forked in a child, where a mutex may be held for ever */
    void (*end)(buffer *of, bool forked);
} buffer_finder;

struct import_source;

/** What it takes to open a buffer of another process. */
typedef struct buffer_source {
    const struct transport *transport;
    const struct import_source *from; /**< NULL: from native handles, which are of virtual memory */
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
gpuipc_status buffer_acquire(gpuipc_buffer *handle, buffer **out_buffer);
void buffer_unreference(buffer *self);
/** Gives up a hold on a public handle, for a reference that counts as one: buffer_unreference_handle(). Allowed in a forked
 *  child. */
gpuipc_status buffer_take_hold(gpuipc_buffer *handle, buffer **out_buffer);
/** The device whose work may use it, for drop_add(); GPUIPC_DEVICE_NONE: several. */
uint32_t buffer_users(buffer *self);
/** As gpuipc_buffer_release(), of a handle that is not NULL. In a child it makes no driver call. */
gpuipc_status buffer_release(gpuipc_buffer *handle);
/** As gpuipc_buffer_return_async(). */
gpuipc_status buffer_return(buffer *self, gpuipc_stream stream);
/** Gives up a reference that counts as a public handle when the stream, in whose CUDA context this is, has done what it has been given.
 *  @param passing room for that, made before: taken over */
void buffer_release_behind(buffer *self, struct drop_passing *passing, gpuipc_stream stream);
/** The caller's reference counts as a public handle from now on: the buffer is found by its address, and is open as often
 *  more. */
void buffer_hold(buffer *self);
/** Gives up a reference that counts as a public handle. */
void buffer_unreference_handle(void *self);
/** The same, in a call that must not wait for the devices; a failure stays in the record. */
void buffer_release_later(buffer *self);
/** The same after a failure, which stays in the record. */
void buffer_unwind(buffer *self);

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
/** The same of a reference that counts as one already, and stays the caller's when it fails. */
gpuipc_status buffer_publish_held(buffer *self, gpuipc_buffer **out_handle);

/** What gpuipc_buffer_get_info() says. @param out_info its struct_size has been checked */
void buffer_describe(buffer *self, gpuipc_buffer_info *out_info);
/** Whether a caller's struct for that can be filled in. */
gpuipc_status buffer_check_info(const gpuipc_buffer_info *info);

/** As gpuipc_buffer_set_access(). */
gpuipc_status buffer_set_access(buffer *self, uint32_t device, gpuipc_access access);

/** ERR_NOT_SHAREABLE, with the reason, when it cannot be sent. @param peer to whom; NULL: not known */
gpuipc_status buffer_check_export(const buffer *self, const os_peer *peer);

/** ERR_ACCESS_DENIED when it may only be read and the driver would not notice. */
gpuipc_status buffer_check_writable(const buffer *self);

/** ERR_INVALID_ARGUMENT when it is no value of the type. */
gpuipc_status buffer_check_access(gpuipc_access access);

/** ERR_OUT_OF_RANGE when [offset, offset + bytes) is not inside; ERR_INVALID_ARGUMENT when it has been returned, so that
 *  it is the exporter's again. */
gpuipc_status buffer_check_range(const buffer *self, uint64_t offset, uint64_t bytes);

/** The contents that it receives are those of a record, on which it takes a reference. */
void buffer_set_arrived(buffer *self, import_record *of);

/** Whether the contents are there, or nobody will be there any more who would write them. A view's are those of what it is
 *  over. No system call, no driver call. */
bool buffer_is_ready(const buffer *self);
/** Whether they are there and valid. */
bool buffer_has_contents(const buffer *self);
/** Waits for them, as one does who has just received it. ERR_TIMEOUT, ERR_LOST, ERR_RELEASED (the context is given up)
 *  @param flags GPUIPC_RECEIVE_ASYNC: lets the stream wait, where it can */
gpuipc_status buffer_await_contents(buffer *self, uint32_t flags, gpuipc_stream stream,
                                    os_deadline deadline);
/** ERR_LOST when they never will be there, and what waited for them was let go. */
gpuipc_status buffer_check_contents(const buffer *self);

/** Device address of an offset into the buffer. */
CUdeviceptr buffer_address(const buffer *self, uint64_t offset);

/* ---- for the ways of making one ---- */

/** An empty buffer with one reference, which buffer_unreference() ends at any stage of filling. */
gpuipc_status buffer_new(context *ctx, gpuipc_buffer_origin origin,
                         const struct transport *transport, buffer **out_buffer);

/** ERR_PEER_ACCESS_UNSUPPORTED when a device cannot reach the memory of the buffer's owner. */
gpuipc_status buffer_check_peer(const buffer *self, uint32_t index);

/** Answers a buffer that has come back to its own process from the original: sets self->original and the
 *  mapping; where this process has none, does nothing. ERR_NOT_GPU_MEMORY when the peer names it without
 *  having got it. */
gpuipc_status buffer_open_original(buffer *self);

/** Room for one segment more, which is SEGMENT_NONE and not counted yet. */
gpuipc_status buffer_grow(buffer *self);

/** One of its segments; of what came home, and of a view, the original's. */
segment *buffer_segment(const buffer *self, uint32_t index);

#endif
