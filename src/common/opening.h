/* SPDX-License-Identifier: MIT */
/** @file Buffers that are open by a ticket: found by its bytes, so that opening one again asks nobody. */
#ifndef GPUIPC_OPENING_H
#define GPUIPC_OPENING_H

#include <gpuipc/gpuipc.h>

#include "os.h"

struct buffer;
struct context;

/** How one buffer was opened. */
typedef struct opening {
    gpuipc_ticket ticket;
    bool has_from;             /**< else it is this process's own */
    os_peer from;              /**< whose server gave it, without the handle of its process */
    gpuipc_peer_policy policy; /**< which was asked whether it may be */
    void *policy_user_data;
    void *attachment; /**< malloc; NULL: none */
    size_t attachment_bytes;
    struct buffer *of;
    struct opening *next;
    struct opening **link; /**< NULL: not in the table */
} opening;

typedef struct opening_table {
    os_mutex mutex;
    uint32_t keys[GPUIPC_TICKET_BYTES / 4]; /**< random: a ticket's place in the table */
    opening **slots;                        /**< a chain each */
    uint32_t slot_count;
    uint32_t count;
} opening_table;

gpuipc_status opening_table_init(opening_table *self);
void opening_table_end(opening_table *self);

/** Notes how a buffer was opened. Takes over @p attachment on success.
 *  @param from the server's process; NULL: this one  @param is_found from now on */
gpuipc_status opening_add(struct buffer *of, const gpuipc_ticket *bytes,
                          const gpuipc_open_config *config, const os_peer *from, void *attachment,
                          size_t attachment_bytes, bool is_found);

/** A buffer of this ticket that serves who wants it so (it is open for the same device, which may now do just what
 *  he would be given, and has its handles if he wants them), is not returned and has not ended. With a reference
 *  for the caller and a public handle counted, which he makes; NULL: there is none. No system call, no driver call. */
struct buffer *opening_find(struct context *ctx, const gpuipc_ticket *bytes,
                            const gpuipc_open_config *config);

/** ERR_ACCESS_DENIED when it came from a process that the caller does not let in. Asks his policy, unless it is the
 *  one that was asked. */
gpuipc_status opening_check_peer(const struct buffer *of, const gpuipc_open_config *config,
                                 const char *operation);

/** It ends: it is not found any more. */
void opening_leave(struct buffer *of);
/** It is returned: likewise. False, and nothing is done, when it is open more than once. */
bool opening_leave_alone(struct buffer *of);
/** Frees what it has. @param forked in a child, where the table's mutex may be held for ever */
void opening_end(struct buffer *of, bool forked);

#endif
