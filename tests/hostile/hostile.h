/* SPDX-License-Identifier: MIT */
/**
 * @file A peer that does not keep to the rules, and the ground on which the library meets it.
 *
 * Every case has a name, the rule of docs/wire-format.md that it breaks, and what the library answers. The same case runs in
 * both roles: the hostile end connects to a listener of the library's, or listens and the library connects to it. After each
 * round an honest process is served; after each case nothing is left behind. What is wrong is told as a text, so that
 * test_hostile_runner.c can prove that planted faults are told.
 */
#ifndef GPUIPC_TEST_HOSTILE_H
#define GPUIPC_TEST_HOSTILE_H

#include <stdatomic.h>

#include "honest.h"
#include "partner.h"
#include "raw_packet.h"

/** What the library accepts at most in one message. */
#define HOSTILE_BUFFERS_MAX 20u
#define HOSTILE_HANDLES_MAX 300u
/** How long the library waits for what never comes. */
#define HOSTILE_SHORT_MS 20
/** A criterion test's own limit, for the full form; in the short one CTest's is 300 s. */
#define HOSTILE_TEST_S 7200

/** What becomes of the connection. */
typedef enum hostile_end {
    HOSTILE_ENDS,    /**< it ends, for both sides */
    HOSTILE_DROPPED, /**< its message is lost, and then the same connection brings a good one */
    HOSTILE_WAITS,   /**< nothing is there to be taken before the deadline; it is usable */
    HOSTILE_GONE     /**< the peer has gone */
} hostile_end;

/** Both ends of a conversation, while an act goes on. */
typedef struct hostile_peer {
    raw_peer *raw; /**< the hostile end; NULL when the act has closed it */
    gpuipc_connection *connection;
    raw_packet packet; /**< a good first message, to be spoiled */
    gpuipc_buffer *buffer;
    const process_case *at;
    unsigned round;
    const struct hostile_case *of;
    bool is_undone;
    uint64_t
        next; /**< number of the message with which the same connection goes on: 1, unless the act says otherwise */
    intptr_t kept;            /**< for the undo */
    uint64_t limit;           /**< likewise */
    struct os_thread *thread; /**< likewise */
    atomic_bool is_over;      /**< tells it to end */
} hostile_peer;

typedef struct hostile_case {
    const char *name;
    const char *rule; /**< the section of docs/wire-format.md, and what it says */
    gpuipc_status expected;
    gpuipc_status expected_on_gpu; /**< where the driver is not the emulated one; 0: the same */
    hostile_end end;
    /** What is done: the act; or the packet is spoiled and sent; or one byte of it is another one. */
    void (*act)(hostile_peer *self);
    void (*spoil)(raw_packet *packet);
    size_t at;
    uint8_t value;
    void (*undo)(hostile_peer *self); /**< NULL, or what ends what the act has begun */
    bool outlives_end;  /**< it still waits when the peer has hung up, whose process may go on */
    bool first_is_good; /**< one good message is taken before */
    unsigned variants;  /**< rounds that differ, all of which always run; 0: none does */
    int kind;           /**< of raw_handle.h, for who has made the case of it */
} hostile_case;

/** A case whose act ends the connection. */
#define HOSTILE_CASE(called, breaks, answer, how)                                                  \
    { .name = (called), .rule = (breaks), .expected = GPUIPC_ERR_##answer, .act = (how) }

typedef struct hostile_cases {
    const hostile_case *cases;
    size_t count;
} hostile_cases;

/** The tables. */
extern const hostile_cases hostile_packet_bytes;
extern const hostile_cases hostile_packet_fields;
extern const hostile_cases hostile_packet_order;
extern const hostile_cases hostile_sizes;
extern const hostile_cases hostile_handles;
extern const hostile_cases hostile_pages;
extern const hostile_cases hostile_conversations;
extern const hostile_cases hostile_system; /**< posix_hostile_system.c, win32_hostile_envelope.c */
/** One for each kind of raw_handle.h that this machine has, sent as memory of a GPU; for free(). */
hostile_cases hostile_make_kinds(void);

typedef enum hostile_role {
    HOSTILE_CONNECTS,
    HOSTILE_LISTENS
} hostile_role;

typedef struct hostile_ground {
    process_case at;
    gpuipc_buffer *buffer;
    honest_client honest;
    int patience_ms; /**< a call that takes longer hangs */
    int back_ms;     /**< what is not given back so long after the end was left behind */
    unsigned rounds; /**< 0: as many as the form says */
} hostile_ground;

void hostile_begin(hostile_ground *self);
/** Asserts that nothing is left behind. */
void hostile_end_all(hostile_ground *self);

/** What hostile_check found to be wrong: empty when all is right. */
typedef struct hostile_verdict {
    char text[3072];
} hostile_verdict;

/** All rounds of a case, with the honest process, and the gate. */
bool hostile_check(hostile_ground *on, const hostile_case *of, hostile_role role,
                   hostile_verdict *out_verdict);

/** All of a table, asserted; on a ground of its own. */
void hostile_run(const hostile_cases *table, hostile_role role);

/** The two ends of a new conversation. Asserted. */
void hostile_meet(hostile_ground *on, hostile_role role, hostile_peer *out_peer);
void hostile_part(hostile_peer *peer);

/** Sends the packet as it is now, as the next message, and asserts that it has left. */
void hostile_send(hostile_peer *self);
/** Sends these bytes and handles as a packet. */
void hostile_send_bytes(hostile_peer *self, const void *bytes, size_t size, size_t handles);

#endif
