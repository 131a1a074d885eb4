/* SPDX-License-Identifier: MIT */
/**
 * @file Copies between two devices neither of which reaches the other's memory: through pinned host
 * memory, one device writing a piece while the other reads the piece before. Nothing waits on the host.
 */
#ifndef GPUIPC_STAGING_H
#define GPUIPC_STAGING_H

#include <gpuipc/gpuipc.h>

#include "base/list.h"
#include "driver.h"
#include "os.h"

struct context;

/* Measured on two H200s (driver 580, PCIe 5 x16, 55.1 GB/s each way): 256 MiB in 8 MiB pieces go at 52.0
 * GB/s with 4 slots, 51.7 with 8; in 4 MiB pieces at 51.4, in 16 MiB pieces at 50.3. Two streams a
 * device change nothing. The driver's own copy: 38. */
#define STAGING_SLOTS      4u
#define STAGING_SLOT_BYTES (UINT64_C(8) << 20)

/** Of how many bytes a copy is cut into pieces, the last of which may be smaller: few pieces cost little
 *  per piece, small ones let the second device start early. A power of two, 1 MiB to a slot. */
uint64_t staging_piece_bytes(uint64_t bytes);

typedef struct staging_ring staging_ring;

/** The rings of a context: made when first needed, kept until the context ends. */
typedef struct staging_list {
    os_mutex mutex;    /**< guards the list, not the rings in it */
    linked_list rings; /**< new ones first */
} staging_list;

/** Its end waits for copies that are still under way, as long as the end of a context may; then their rings are left to
 *  the end of the process. */
extern const struct context_part staging_part;

/** Memory as one device reaches it. */
typedef struct staging_end {
    uint32_t device;
    CUdeviceptr address;
} staging_end;

/**
 * Copies in the order of a stream, whose CUDA context is the current one. After a failure part of it may
 * have been copied, and the stream goes on when that is through.
 *
 * Copies of one stream between the same devices share a ring; those of others get one of their own, up
 * to STAGING_RINGS_MAX for each pair of devices (in this direction), and then queue behind one another.
 */
gpuipc_status staging_copy(struct context *ctx, const staging_end *destination,
                           const staging_end *source, uint64_t bytes, gpuipc_stream stream);

#define STAGING_RINGS_MAX 4u

#endif
