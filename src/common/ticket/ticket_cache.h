/* SPDX-License-Identifier: MIT */
/** @file Buffers that are open by a ticket: found by its bytes, so that opening one again asks nobody. */
#ifndef GPUIPC_TICKET_CACHE_H
#define GPUIPC_TICKET_CACHE_H

#include <gpuipc/gpuipc.h>

#include "base/table.h"
#include "os.h"

struct buffer;
struct context;
struct ticket_given;

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
    bool is_one_shot;
    list_link kept; /**< with a reference that counts as a public handle */
} cached_ticket;

typedef struct ticket_cache {
    os_mutex mutex;
    uint32_t keys[GPUIPC_TICKET_BYTES / 4]; /**< random: a ticket's place in the table */
    hash_table entries;
    linked_list
        kept; /**< came by one-shot tickets whose openers did not wait for the contents to the end */
    bool is_over; /**< there are no new ones of these */
} ticket_cache;

extern const struct context_part ticket_cache_part;

/** Notes how a buffer was opened. Takes over the attachment of what came on success.
 *  @param from the server's process; NULL: this one  @param is_found from now on */
gpuipc_status ticket_cache_add(struct buffer *of, const gpuipc_ticket *bytes,
                               const gpuipc_open_config *config, const os_peer *from,
                               const struct ticket_given *came, bool is_found);

/** A buffer of this ticket that serves who wants it so (it is open for the same device, which may now do just what
 *  he would be given, and has its handles if he wants them), is not returned and has not ended. With a reference
 *  for the caller and a public handle counted, which he makes; NULL: there is none. No system call, no driver call. */
struct buffer *ticket_cache_find(struct context *ctx, const gpuipc_ticket *bytes,
                                 const gpuipc_open_config *config);

/** Whoever opens it has failed, as by waiting in vain for its contents. What came by a one-shot ticket, which nobody gives
 *  again, is kept for the next one who opens it, unless somebody else here has it open or is about to. The error record
 *  stays.
 *  @param of the caller's reference, which counts as a public handle, passes
 *  @param is_of_use whether the next one may have more luck */
void ticket_cache_give_up(struct buffer *of, bool is_of_use);
/** It is open, or its contents never come: it is not kept any more. The error record stays. */
void ticket_cache_settle(struct buffer *of);
/** The user gives the context up, on which what is kept holds references. @param forked in a child, which only frees */
void ticket_cache_close(struct context *ctx, bool forked);

/** ERR_ACCESS_DENIED when it came from a process that the caller does not let in. Asks his policy, unless it is the
 *  one that was asked. */
gpuipc_status ticket_cache_check_peer(const struct buffer *of, const gpuipc_open_config *config);

#endif
