/* SPDX-License-Identifier: MIT */
/**
 * @file A whole session, from the first byte of the input to its end: which calls an honest program makes, and which packets
 * with which descriptors come to it from a peer that does as it likes, before and during them. session.c reads the
 * input, session_hostile.c is that peer, session_packet.c its packets, session_honest.c the program.
 */
#ifndef GPUIPC_FUZZ_SESSION_H
#define GPUIPC_FUZZ_SESSION_H

#include <gpuipc/gpuipc.h>

#include "memory/segment_record.h"
#include "memory_os.h"
#include "message/wire.h"
#include "ticket/ticket.h"

#define SESSION_ENDS        4u
#define SESSION_CONNECTIONS 2u
#define SESSION_BUFFERS     8u
#define SESSION_TICKETS     6u
#define SESSION_SLOTS       3u
#define SESSION_SLOT_BYTES  4096u
#define SESSION_HEADER      20u
#define SESSION_BYTES       (UINT64_C(2) << 20)
#define SESSION_MESSAGE_MAX 4096u
/** What the library accepts at most in one message. */
#define SESSION_BUFFERS_MAX 4u
#define SESSION_HANDLES_MAX 6u
/** Where the program listens, where the hostile peer does, and what the channel is called. */
#define SESSION_NAME         "honest"
#define SESSION_HOSTILE_NAME "hostile"
#define SESSION_CHANNEL_NAME "frames"

/* ---- the input --------------------------------------------------------------------------------- */

typedef struct script {
    const uint8_t *data;
    size_t size;
    size_t at;
} script;

/** The next byte; 0 behind the end. */
uint8_t script_byte(script *from);
/** A number that is interesting to who decodes packets: of one byte.
 *  @param right what would be right, to be missed by one */
uint64_t script_number(script *from, uint64_t right);

/* ---- the hostile peer -------------------------------------------------------------------------- */

/** An end of a connection. */
typedef struct hostile_end {
    os_connection *os; /**< NULL: none */
    uint64_t next;     /**< the number of its next message */
} hostile_end;

/** The last packet that has come to it. */
typedef struct hostile_heard {
    uint8_t bytes[OS_PACKET_BYTES_MAX];
    size_t size;
    int fds[OS_PACKET_HANDLES_MAX];
    size_t fd_count;
} hostile_heard;

typedef struct hostile {
    memory_process process;
    bool listens;
    hostile_end ends[SESSION_ENDS];
    hostile_heard heard;
    void *page;      /**< the last that has come to it; NULL: none */
    uint64_t frames; /**< published in its own channel */
} hostile;

/** What a GPU's memory looks like as it travels: of another context, whose handle it is. */
typedef struct hostile_memory {
    wire_buffer buffer;
    segment_record segment;
    int fd;
} hostile_memory;

/** Descriptors that it has of its own: kinds. Behind these are the kinds of raw_handle.h, and what was heard last. */
enum {
    HOSTILE_MEMORY, /**< of a GPU */
    HOSTILE_PAGE,   /**< as long as a page of points, and zeroes at first */
    HOSTILE_PAGE_2,
    HOSTILE_RING,
    HOSTILE_HEARD,
    HOSTILE_KINDS
};

/** Once in a process: descriptors of all kinds, and memory of a GPU. */
void hostile_prepare(gpuipc_buffer *memory);
const hostile_memory *hostile_memory_of_all(void);
void hostile_begin(bool is_same_user);
/** Hangs up everywhere. @param dies its process ends, too */
void hostile_leaves(bool dies);
void hostile_end_all(void);
/** Of its own tickets: of a range, and of a channel. */
void hostile_ticket(gpuipc_ticket *out_ticket);

/** What it does; each takes what it needs of the input. */
void hostile_sends(script *from);
void hostile_hears(script *from);
void hostile_scribbles(script *from);
void hostile_scribbles_own(script *from);
void hostile_hangs_up(script *from);
void hostile_connects(script *from);
void hostile_connects_to_server(script *from);
void hostile_ends(script *from);
void hostile_waits(script *from);
void hostile_listens(script *from);
void hostile_publishes(script *from);
/** Its own page is one of points, or of a reader of its channel. */
void hostile_writes_points(void);
void hostile_writes_channel(void);

/** session_packet.c: makes a packet and sends it. */
void packet_send(script *from, hostile_end *by);
/** Its own, of any kind; -1: this machine has none of it. */
int hostile_descriptor(uint8_t kind);

/* ---- the honest program ------------------------------------------------------------------------ */

typedef struct honest {
    gpuipc_context *context;
    gpuipc_listener *listener;
    gpuipc_connection *connections[SESSION_CONNECTIONS];
    gpuipc_buffer *own;         /**< what it shares */
    gpuipc_transport transport; /**< its memory's */
    gpuipc_server *server;
    gpuipc_ticket tickets[SESSION_TICKETS]; /**< of its server's; some are over */
    size_t ticket_count;
    gpuipc_channel *channel;
    gpuipc_ticket channel_ticket;
    gpuipc_subscription *reader; /**< of a channel of the hostile peer's */
    gpuipc_frame taken;
    bool has_taken;
    gpuipc_buffer *opened[SESSION_BUFFERS]; /**< what came to it */
    gpuipc_mark mark;                       /**< the last that it has made, or heard of */
} honest;

void honest_begin(const char *runtime_directory);
void honest_end_all(void);

/** The beginning: what there is already. */
void honest_starts(uint8_t with, gpuipc_transport of_own);

void honest_accepts(script *from);
void honest_opens_connection(script *from);
void honest_receives(script *from);
void honest_sends(script *from);
void honest_closes(script *from);
void honest_polls(script *from);
void honest_shares(script *from);
void honest_opens_ticket(script *from);
void honest_publishes(script *from);
void honest_subscribes(script *from);
void honest_takes(script *from);
void honest_uses_opened(script *from);
void honest_uses_own(script *from);
void honest_asks(script *from);
void honest_marks(script *from);
void honest_threads_run(script *from);

/* ---- both -------------------------------------------------------------------------------------- */

typedef struct session {
    script input;
    hostile peer;
    honest program;
} session;

/** The one that goes on: what the library calls has no place for it. */
extern session now;

/** The driver's threads have a time of their own: what was given to the default stream is done. fuzz_session.c */
void session_driver_settle(void);

/** All of the input. */
void session_play(void);
/** For memory_meanwhile. */
bool session_meanwhile(void);

#endif
