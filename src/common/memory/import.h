/* SPDX-License-Identifier: MIT */
/**
 * @file Memory of another process that is open here: its allocations imported once and mapped once for each
 * device and access, however often it is opened. Those that are closed may stay for a while, in a cache of
 * bounded size.
 */
#ifndef GPUIPC_IMPORT_H
#define GPUIPC_IMPORT_H

#include <gpuipc/gpuipc.h>

#include "base/list.h"
#include "base/table.h"
#include "memory/mapping.h"

struct context;

/** What tells the memory of one buffer from others'. The connection belongs to it: what a buffer is called is
 *  its sender's word, so a name that came over one connection says nothing about what came over another. */
typedef struct import_key {
    uint64_t connection; /**< its number in this context, above 0 */
    uint8_t exporter_id[16];
    uint64_t buffer_id;
    uint16_t memory; /**< segment_memory: one kind is never taken for another */
} import_key;

/** The allocations of one buffer. */
typedef struct import_memory import_memory;

/** One mapping of them, for one device and access. */
typedef struct import_view import_view;

/** What a context has open. */
typedef struct import_table {
    os_mutex mutex;
    uint64_t seed;
    hash_table by_buffer;     /**< those of one buffer have one hash */
    hash_table by_connection; /**< and those that came over one connection */
    linked_list cached;       /**< that nobody has open, the oldest first */
    uint32_t most;            /**< of the cached; 0: nothing stays */
} import_table;

/** At its end nobody has one open any more. */
extern const struct context_part import_part;

/** What is open under this key, with a reference for the caller; NULL: nothing.
 *  @param has_handles only one that has the handles of all its allocations */
import_memory *import_find(struct context *ctx, const import_key *key, bool has_handles);

/** Room for the allocations of a buffer, each SEGMENT_NONE, with a reference for the caller. It is not found
 *  before import_enter().
 *  @param key NULL: it never is
 *  @param may_stay in the cache, when it is closed  */
gpuipc_status import_new(const import_key *key, uint32_t segment_count, bool may_stay,
                         import_memory **out_import);
/** To be filled in before import_enter(), or before it is mapped. */
segment *import_segments(import_memory *self, uint32_t *out_count);

/** All is imported: it is found from now on. Its segments, and the handles in them, stay as they are. */
void import_enter(struct context *ctx, import_memory *self);

/** Its one user wants no handles: they are closed, unless others have it open. */
void import_close_handles(struct context *ctx, import_memory *self);

/** Maps it for a device, or finds it mapped so. ERR_NOT_GPU_MEMORY: it lies on another device than its sender says.
 *  @param owner on which it is said to lie; -1: on one that this process does not see */
gpuipc_status import_map(struct context *ctx, import_memory *self, CUdevice owner, CUdevice ordinal,
                         CUmemAccess_flags flags, import_view **out_view);
const mapping *import_view_mapping(const import_view *view);
/** What its device may do now. */
CUmemAccess_flags import_view_access(const import_view *view);
/** Lets a device reach it, for all who share the view. */
gpuipc_status import_set_access(struct context *ctx, import_memory *self, import_view *view,
                                CUdevice ordinal, CUmemAccess_flags flags);
/** Gives a view up. Where imports may stay, one for each device and access does, with its import. NULL does
 *  nothing. Not in a forked child. */
void import_unmap(struct context *ctx, import_memory *self, import_view *view);

/** Gives a reference up; the last one ends it, or lets it stay in the cache. NULL does nothing.
 *  @param forked no driver calls */
void import_unreference(struct context *ctx, import_memory *self, bool forked);

/** Nothing comes over a connection any more: what is cached of it ends, and what is open does not stay. */
void import_forget_connection(struct context *ctx, uint64_t connection);

#endif
