/* SPDX-License-Identifier: MIT */
/**
 * @file What every way of reaching GPU memory owes the rest: one table of functions and facts a transport,
 * transport_vmm.c, transport_pool.c, transport_legacy.c, transport_p2p.c, transport_host.c and
 * transport_fabric.c. A buffer knows the transport that carries it, and nothing else distinguishes them.
 */
#ifndef GPUIPC_TRANSPORT_INTERNAL_H
#define GPUIPC_TRANSPORT_INTERNAL_H

#include "buffer.h"
#include "wire.h"

/** What a trial found. */
typedef struct transport_answer {
    gpuipc_reason reason;  /**< NONE: it works */
    gpuipc_proof proof;    /**< how that is known */
    char particulars[160]; /**< what the reason's own sentence cannot know; may be empty */
} transport_answer;

typedef struct transport {
    gpuipc_transport id;
    const char *name;
    bool is_zero_copy;  /**< the other device works in the memory itself */
    wire_memory memory; /**< what a buffer record calls it; 0: it never leaves its process (p2p) */

    /** Makes memory for a buffer whose owner, bytes and context are set: fills in mapping, segments and
     *  access. What was made before a failure is undone by release. NULL: this memory cannot be made. */
    gpuipc_status (*allocate)(buffer *self, const gpuipc_buffer_config *config);

    /** The record of one segment of a buffer, and the handle that its naming wants (else none).
     *  ERR_NOT_SHAREABLE and its kin with the reason.
     *  @param sent_groups which pools' handles this connection has sent already; NULL: none ever */
    gpuipc_status (*export_segment)(const buffer *self, uint32_t index,
                                    struct group_set *sent_groups, wire_segment *out_record,
                                    os_handle *out_handle);

    /** Takes in one segment as its packet comes. The handle stays the caller's, unless it is moved into
     *  out_segment->kept (it is then none). What comes is the peer's word: checked, never trusted. */
    gpuipc_status (*import_segment)(context *ctx, const wire_buffer *of, const wire_segment *record,
                                    os_handle *handle, bool keep_handle, segment *out_segment);

    /** Maps a buffer over its imported segments for its access_device. */
    gpuipc_status (*open)(buffer *self);

    /** Lets a device reach a buffer of any origin. */
    gpuipc_status (*set_access)(buffer *self, uint32_t device, gpuipc_access access);

    /** Undoes allocate or open as far as they came; not called in a forked child, nor for what the
     *  caller allocated. Segments are released afterwards, one by one. */
    void (*release)(buffer *self);

    /** Gives one segment back. @param forked no driver calls */
    void (*release_segment)(context *ctx, segment *of, bool forked);

    /** Does it once between two devices, end to end as far as one process can, with a verified pattern.
     *  Fails only when the question itself could not be asked. */
    gpuipc_status (*probe)(context *ctx, uint32_t owner, uint32_t user,
                           transport_answer *out_answer);
} transport;

/** The transport with this number; NULL for any other number. DEFAULT is vmm. */
const transport *transport_find(gpuipc_transport id);
/** The transport of a buffer record; NULL when there is none. */
const transport *transport_of_memory(uint16_t memory);

#endif
