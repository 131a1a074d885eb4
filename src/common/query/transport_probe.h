/* SPDX-License-Identifier: MIT */
/**
 * @file Memory of one device that another reaches the way a transport does it, inside one process: made to
 * find out whether that works (transport_query.c) and how fast (measure.c), then given back. Each
 * transport_probe_X.c has one way.
 */
#ifndef GPUIPC_TRANSPORT_PROBE_H
#define GPUIPC_TRANSPORT_PROBE_H

#include "cuda/context.h"
#include "cuda/driver_reference.h"
#include "transport/transport.h"

/** What a trial found. */
typedef struct transport_answer {
    gpuipc_reason reason;  /**< NONE: it works */
    gpuipc_proof proof;    /**< how that is known */
    char particulars[160]; /**< what the reason's own sentence cannot know; may be empty */
} transport_answer;

/** What a trial takes of each device. */
#define PROBE_BYTES (UINT64_C(2) << 20)

/** A piece of a pattern: all of its words are the same, and no other piece's. */
#define PROBE_STRIPE_BYTES (UINT64_C(128) << 10)

/** The two ends of what is shared: owner first, then user. */
enum {
    PROBE_OWNER = 0,
    PROBE_USER = 1,
    PROBE_ENDS = 2
};

typedef struct probe {
    context *ctx;
    uint32_t devices[PROBE_ENDS];
    uint64_t bytes; /**< what can be used of the memory */

    transport_answer answer; /**< reason NONE as long as nothing was refused */
    gpuipc_status failure;   /**< the question could not be asked: host memory, the system */
    gpuipc_error record;     /**< of that failure */
    uint64_t wrong_words;    /**< of all that was compared */

    CUdeviceptr at[PROBE_ENDS]; /**< how each device reaches the memory; host: each its own */

    /* what a way made, for its close */
    segment segments[PROBE_ENDS];
    mapping mappings[PROBE_ENDS];
    os_handle handle;
    CUdeviceptr plain[PROBE_ENDS]; /**< cuMemAlloc */
    driver_reference *peer;        /**< peer access */
    CUmemoryPool pools[PROBE_ENDS];
    CUdeviceptr pooled[PROBE_ENDS];
    CUstream stream;
    void *host[PROBE_ENDS]; /**< two mappings of one memory */
    bool is_registered[PROBE_ENDS];
    bool may_wait; /**< for the devices; else what would is deferred */
    struct probe_rest *rests[PROBE_ENDS];
} probe;

/** How one transport shares memory. */
typedef struct probe_way {
    /** Makes the memory and the second device's way to it. False: refused or failed; then, too, close
     *  undoes what was done. */
    bool (*open)(probe *self);
    void (*close)(probe *self);
    /** Writes at one end, verifies at the other, both ways. NULL: probe_exchange */
    bool (*exchange)(probe *self);
} probe_way;

/** NULL for a number that is no transport. */
const probe_way *probe_way_of(gpuipc_transport which);

extern const probe_way probe_way_vmm;    /**< transport_probe_vmm.c */
extern const probe_way probe_way_fabric; /**< transport_probe_vmm.c */
extern const probe_way probe_way_pool;   /**< transport_probe_pool.c */
extern const probe_way probe_way_legacy; /**< transport_probe_p2p.c */
extern const probe_way probe_way_p2p;    /**< transport_probe_p2p.c */
extern const probe_way probe_way_host;   /**< transport_probe_host.c */

/** Does it once between two devices, with a verified pattern.
 *  @return not OK only when the question could not be asked: ERR_OUT_OF_MEMORY, ERR_OS */
gpuipc_status transport_probe(context *ctx, gpuipc_transport which, uint32_t owner, uint32_t user,
                              transport_answer *out_answer);

/* ---- for the ways: transport_probe.c ------------------------------------------------------ */

/** A trial that has not begun. */
probe probe_begin(context *ctx, uint32_t owner, uint32_t user, uint64_t bytes);

/** The status of what stopped it, if that was no refusal; the record is then that failure's. */
gpuipc_status probe_failure(const probe *self);

/** Notes why it cannot be. The first refusal counts. @return false */
bool probe_refuse(probe *self, gpuipc_reason reason, const char *format, ...) GPUIPC_PRINTF(3, 4);

/** Whether a call of the driver went through; if not, what it answered becomes the reason. */
bool probe_passed(probe *self, CUresult result, const char *call);
/** Makes it. @param arguments in brackets */
#define PROBE_CALL(self, call, arguments)                                                          \
    probe_passed((self), (self)->ctx->driver.call arguments, #call)

/** The same for a function of this library, whose error record says more. */
bool probe_done(probe *self, gpuipc_status status);

/** To be called before an end gets plain or host memory: readies its end. */
bool probe_prepare_end(probe *self, unsigned end);
/** Frees the plain and the host memory of an end, or defers that. */
void probe_release_memory(probe *self, unsigned end);

/** Memory of cuMemAlloc of the owner's, at both ends; probe_release_memory() frees it. */
bool probe_allocate(probe *self);

/** Makes the context of an end's device current until device_leave. */
bool probe_enter(probe *self, unsigned end, device_scope *out_scope);

/** Refuses when the user's device does not reach the owner's memory. Asked before anything is tried:
 *  an access that faults would end the CUDA contexts of the caller. */
bool probe_reaches(probe *self);

/* ---- patterns: probe_pattern.c ------------------------------------------------------------ */

/** A device writes a pattern over the memory at @p at and waits until it is there. */
bool probe_write(probe *self, unsigned end, CUdeviceptr at, uint32_t seed);

/** A device reads the memory, and every word of it is compared. WRONG_DATA. */
bool probe_check(probe *self, unsigned end, CUdeviceptr at, uint32_t seed);

/** Each end writes, and the other verifies. */
bool probe_exchange(probe *self);

/** The first word that is not the pattern's, or @p count. @param first which word of the memory the
 *  first of these is */
size_t probe_pattern_compare(const uint32_t *words, size_t count, uint64_t first, uint32_t seed);

/** How many of them are wrong. */
uint64_t probe_pattern_wrong(const uint32_t *words, size_t count, uint64_t first, uint32_t seed);

/** What a word of the pattern is. */
uint32_t probe_pattern_word(uint64_t position, uint32_t seed);

#endif
