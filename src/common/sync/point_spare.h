/* SPDX-License-Identifier: MIT */
/** @file Pages that nobody has any more, and whose memory devices know still: it is another page's afterwards, or waits to be
 *  unregistered. For point.c alone, but for what point.h has of it. */
#ifndef GPUIPC_POINT_SPARE_H
#define GPUIPC_POINT_SPARE_H

#include "sync/point.h"

/** A page whose last reference has gone. Its process is forgotten, unless another page may have its memory. The mutex is
 *  held. */
void point_spare_add(point_page *self);
/** A page of a peer's is about to be unmapped: it is told, where that is agreed. */
void point_spare_leave(const point_page *self);

/* ---- of point.c ------------------------------------------------------------------------------ */

/** Without memory. @param peer its other side; NULL: there is none */
gpuipc_status point_page_new(struct context *ctx, point_peer *peer, point_page **out_page);
gpuipc_status point_page_make_memory(point_page *self);
void point_page_destroy(point_page *self, bool forked);
/** Whether no stream touches it. @param item of a page */
bool point_page_is_at_rest(deferred *item);

#endif
