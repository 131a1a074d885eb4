/* SPDX-License-Identifier: MIT */
/**
 * @file What every way of reaching GPU memory owes the rest: one table of functions and facts a transport,
 * transport_vmm.c, transport_pool.c, transport_legacy.c, transport_p2p.c, transport_host.c and
 * transport_fabric.c. A buffer knows the transport that carries it, and nothing else distinguishes them.
 */
#ifndef GPUIPC_TRANSPORT_INTERNAL_H
#define GPUIPC_TRANSPORT_INTERNAL_H

#include "buffer.h"
#include "group_set.h"
#include "sender.h"
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
    bool is_zero_copy; /**< the other device works in the memory itself */
    bool
        ends_with_owner; /**< the memory is gone when its owner frees it, whoever has it open: it must
                             not be freed before it has been returned everywhere */
    bool guards_access; /**< the driver refuses writes to what is read-only, for each device on its
                             own; where it does not, only gpuipc's own calls do: buffer_check_writable() */
    bool
        shares_imports; /**< what was imported once can be mapped for everybody: import.h. Then open finds
                              the import in the buffer, and release_segment is for own segments only */
    wire_memory memory; /**< what a buffer record calls it; 0: it never leaves its process */
    wire_naming naming; /**< of its segments; NAMED_BY_BOTH: by its name alone as well */

    /** Makes memory for a buffer whose owner, bytes and context are set: fills in mapping, segments and
     *  access. What was made before a failure is undone by release. NULL: this memory cannot be made. */
    gpuipc_status (*allocate)(buffer *self, const gpuipc_buffer_config *config);

    /** Whether it can be sent, before anything is: ERR_NOT_SHAREABLE with the reason.
     *  @param peer who would get it; NULL: not known */
    gpuipc_status (*check_export)(const buffer *self, const os_peer *peer);

    /** The record of one segment of a buffer, and the handle that its naming wants (else none).
     *  @param sent_groups which pools' handles the peer has already; the pool of this segment is added
     *         when its handle goes along
     *  @param out_is_kept set to true where the handle stays the segment's: good as long as the buffer is
     *         referenced, and not to be closed */
    gpuipc_status (*export_segment)(const buffer *self, uint32_t index, group_set *sent_groups,
                                    wire_segment *out_record, os_handle *out_handle,
                                    bool *out_is_kept);

    /** Takes in one segment as its packet comes. The handle stays the caller's, unless it is moved into
     *  out_segment->kept (it is then none). What comes is the peer's word: checked, never trusted.
     *  @param handle none where the record names none */
    gpuipc_status (*import_segment)(sender *from, const wire_segment *record, os_handle *handle,
                                    bool keep_handle, segment *out_segment);

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

/** The transport with this number; NULL for any other number. DEFAULT is vmm. */
const transport *transport_find(gpuipc_transport id);
/** The transport of a buffer record; NULL when there is none. */
const transport *transport_of_memory(uint16_t memory);

/** ERR_NOT_SUPPORTED with this sentence, about the device, when an attribute has none of the bits of
 *  @p mask, or an older driver does not know it. */
gpuipc_status transport_check_attribute(const context *ctx, uint32_t device_index,
                                        CUdevice_attribute which, int mask, const char *operation,
                                        const char *sentence);

extern const transport transport_vmm;
extern const transport transport_pool;
extern const transport transport_legacy;
extern const transport transport_p2p;
extern const transport transport_host;
extern const transport transport_fabric;
/** Memory that was wrapped and that only a copy carries: its id is that of host, and transport_find() does
 *  not know it. */
extern const transport transport_staged;

#endif
