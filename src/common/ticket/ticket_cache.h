/* SPDX-License-Identifier: MIT */
/** @file Buffers that are open by a ticket: found by its bytes, so that opening one again asks nobody. */
#ifndef GPUIPC_TICKET_CACHE_H
#define GPUIPC_TICKET_CACHE_H

#include <gpuipc/gpuipc.h>

#include "base/table.h"
#include "os.h"

struct buffer;
struct context;

/** How one buffer was opened. */
typedef struct cached_ticket {
    gpuipc_ticket ticket;
    bool has_from;             /**< else it is this process's own */
    os_peer from;              /**< whose server gave it, without the handle of its process */
    gpuipc_peer_policy policy; /**< which was asked whether it may be */
    void *policy_user_data;
    void *attachment; /**< malloc; NULL: none. The buffer shows it */
    struct buffer *of;
    table_link link;
} cached_ticket;

typedef struct ticket_cache {
    os_mutex mutex;
    uint32_t keys[GPUIPC_TICKET_BYTES / 4]; /**< random: a ticket's place in the table */
    hash_table entries;
} ticket_cache;

extern const struct context_part ticket_cache_part;

/** Notes how a buffer was opened. Takes over @p attachment on success.
 *  @param from the server's process; NULL: this one  @param is_found from now on */
gpuipc_status ticket_cache_add(struct buffer *of, const gpuipc_ticket *bytes,
                               const gpuipc_open_config *config, const os_peer *from,
                               void *attachment, size_t attachment_bytes, bool is_found);

/** A buffer of this ticket that serves who wants it so (it is open for the same device, which may now do just what
 *  he would be given, and has its handles if he wants them), is not returned and has not ended. With a reference
 *  for the caller and a public handle counted, which he makes; NULL: there is none. No system call, no driver call. */
struct buffer *ticket_cache_find(struct context *ctx, const gpuipc_ticket *bytes,
                                 const gpuipc_open_config *config);

/** ERR_ACCESS_DENIED when it came from a process that the caller does not let in. Asks his policy, unless it is the
 *  one that was asked. */
gpuipc_status ticket_cache_check_peer(const struct buffer *of, const gpuipc_open_config *config);

#endif
