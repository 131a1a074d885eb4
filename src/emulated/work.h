/* SPDX-License-Identifier: MIT */
/**
 * @file Something for a stream to do that has been checked and may run at any time, from any thread. It
 * holds the memory that it touches; if that is unmapped meanwhile it must not run (work_is_mapped).
 */
#ifndef GPUIPC_EMULATED_WORK_H
#define GPUIPC_EMULATED_WORK_H

#include "address_space.h"
#include "context.h"

struct pinned;

/** Memory that lies in one piece in the host's address space. */
typedef struct piece {
    allocation *memory;  /**< a reference, NULL: memory of the host */
    struct pinned *host; /**< a reference, NULL: not pinned */
    uint8_t *bytes;
    uint64_t size;
    CUdeviceptr address; /**< where the page table had it */
    int device;          /**< the ordinal that reads or writes there */
    uint64_t epoch; /**< of the mapping for that device, or of the pool's chunk; 0: of neither */
} piece;

/** A range of addresses as pieces, in order. */
typedef struct pieces {
    piece *item;
    size_t count;
} pieces;

typedef enum work_kind {
    WORK_COPY,
    WORK_FILL,
    WORK_FUNCTION, /**< a function of the caller's */
    WORK_WRITE,    /**< of one word */
    WORK_RAISE,    /**< of one word, unless it is more already */
    WORK_WAIT,     /**< for one word */
    WORK_ILLEGAL   /**< what cannot be done: the context ends when its turn comes */
} work_kind;

typedef struct work {
    work_kind kind;
    pieces destination;
    pieces source;    /**< of a copy */
    void *staged;     /**< what the source is, if the host's memory was copied at submission */
    uint64_t value;   /**< of a fill or a word */
    unsigned width;   /**< bytes of one value: 1, 2 or 4 of a fill, 4 or 8 of a word */
    unsigned compare; /**< CUstreamWaitValue_flags of a wait */
    CUhostFn function;
    void *data;
} work;

/** One side of a copy. */
typedef struct side {
    CUdeviceptr address; /**< of a device or of the host */
    const context *by;   /**< the context whose device reads or writes there */
} side;

/** A copy of more than 0 bytes; the driver's lock is held.
 *  CUDA_ERROR_INVALID_VALUE: no memory there, or no access to it. */
CUresult work_copy(side destination, side source, uint64_t bytes, work **out);

/** Reads the source of a copy, which is the host's memory, now: it is the caller's again when this
 *  returns. The driver's lock is held, and released meanwhile. */
CUresult work_stage(work *todo);

/** A fill of rows of @p row_bytes; the driver's lock is held. */
CUresult work_fill(side destination, uint64_t row_bytes, uint64_t rows, uint64_t pitch,
                   uint32_t value, unsigned width, work **out);

/** One word, 4 or 8 bytes, in memory that the device itself reaches; the driver's lock is held. */
CUresult work_word(work_kind kind, side at, uint64_t value, unsigned width, unsigned compare,
                   work **out);

/** The same in a page that the driver shares with other processes, 8 bytes; a wait is for this or more. */
CUresult work_page_word(work_kind kind, allocation *page, uint64_t offset, uint64_t value,
                        work **out);

/** A call of a function; the driver's lock is held. */
CUresult work_function(CUhostFn function, void *data, work **out);

/** What cannot be done; the driver's lock is held. */
CUresult work_illegal(work **out);

/** Whether all that it touches is still mapped, and accessible, by the same cuMemMap and
 *  cuMemSetAccess as when it was made; the driver's lock is held. */
bool work_is_mapped(const work *todo);

/** Does it, unless it is a wait; the driver's lock is not held. */
void work_run(const work *todo);

/** Gives its memory back; the driver's lock is held. NULL is allowed. */
void work_free(work *todo);

#endif
