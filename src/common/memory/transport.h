/* SPDX-License-Identifier: MIT */
/**
 * @file What every way of reaching GPU memory owes the rest: one table of functions and facts a transport. The
 * tables themselves are in src/common/transport; a buffer knows the one that carries it, and nothing else
 * distinguishes buffers.
 */
#ifndef GPUIPC_MEMORY_TRANSPORT_H
#define GPUIPC_MEMORY_TRANSPORT_H

#include "memory/buffer.h"
#include "memory/import_source.h"

/** How one segment leaves. */
typedef struct exported_segment {
    segment_record record;
    os_handle handle; /**< that goes along, where the naming wants one; else none */
    bool
        is_kept; /**< the handle stays the segment's: good as long as the buffer is referenced, and not to be
                      closed */
} exported_segment;

typedef struct transport {
    gpuipc_transport id;
    const char *name;
    bool is_zero_copy; /**< the other device works in the memory itself */
    bool
        ends_with_owner; /**< the memory is gone when its owner frees it, whoever has it open: it must
                             not be freed before it has been returned everywhere */
    bool guards_access; /**< the driver refuses writes to what is read-only, for each device on its
                             own; where it does not, only gpuipc's own calls do: buffer_check_writable() */
    bool
        shares_imports; /**< what was imported once can be mapped for everybody: import.h. Then open finds
                              the import in the buffer, and release_segment is for own segments only */
    bool
        is_plain; /**< memory of cuMemAlloc, which other devices reach from CUDA context to CUDA context */
    bool
        is_native; /**< its handles are the driver's own, which any courier may carry: gpuipc_native.h */
    bool needs_owner;         /**< only a process that sees its device can open it */
    bool needs_pid_namespace; /**< only a process of the same PID namespace can */
    bool
        endangers_peers; /**< the exporter's death ends the context of another device that reads it */
    bool lies_in_host;   /**< every segment is host memory that this process has mapped */
    bool is_copied;      /**< only a copy carries it, if the sender asks for one */
    segment_memory
        memory; /**< what other processes are told that it is; 0: it never leaves its own */
    segment_naming naming; /**< of its segments; NAMED_BY_BOTH: by its name alone as well */

    /** Makes memory for a buffer whose owner, bytes and context are set: fills in mapping, segments and
     *  access. What was made before a failure is undone by release. NULL: this memory cannot be made. */
    gpuipc_status (*allocate)(buffer *self, const gpuipc_buffer_config *config);

    /** Whether it can be sent, before anything is: ERR_NOT_SHAREABLE with the reason.
     *  @param peer who would get it; NULL: not known */
    gpuipc_status (*check_export)(const buffer *self, const os_peer *peer);

    /** Tells another process of one of the segments. NULL: check_export refuses them all.
     *  @param has_pool the process has the handle of the pool that it lies in already */
    gpuipc_status (*export_segment)(const buffer *self, segment *of, bool has_pool,
                                    exported_segment *out_export);

    /** Takes in one segment as its packet comes. The handle stays the caller's, unless it is moved into
     *  out_segment->kept (it is then none). What comes is the peer's word: checked, never trusted. NULL where
     *  memory is 0, as open.
     *  @param handle none where the record names none */
    gpuipc_status (*import_segment)(import_source *from, const segment_record *record,
                                    os_handle *handle, bool keep_handle, segment *out_segment);

    /** Maps a buffer over its imported segments for its access_device, with this access. What was done
     *  before a failure is undone by release. */
    gpuipc_status (*open)(buffer *self, const buffer_source *source, gpuipc_access access);

    /** Lets a device reach a buffer of any origin. */
    gpuipc_status (*set_access)(buffer *self, uint32_t device, gpuipc_access access);

    /** Undoes allocate, open and set_access as far as they came; also called for what the caller
     *  allocated, of which only access is undone. Not called in a forked child. The segments are
     *  released afterwards, one by one. */
    void (*release)(buffer *self);

    /** Whether release would wait for the devices now, so that the buffer's end is deferred (deferred.h). May
     *  give up what can be given up without waiting. NULL: it never does. */
    bool (*release_waits)(buffer *self);

    /** Gives one segment back. @param forked no driver calls */
    void (*release_segment)(context *ctx, segment *of, bool forked);
} transport;

#endif
