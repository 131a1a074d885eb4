/* SPDX-License-Identifier: MIT */
/*
 * Streams that wait for each other, for SPIN: channels with a writer and a reader each, and what their four threads put on
 * streams (docs/channels.md, "The order of streams"). channel.pml has all of the protocol of one channel. Here a channel has
 * one slot and a reader of every frame, and any role may have any stream. Checked:
 *   - no stream waits indefinitely, whatever streams the roles have: there is no end but the proper one;
 *   - no slot is filled while a stream reads it, and none is read before it is filled.
 *
 * CHANNELS and SHARED set who has which stream:
 *   0: each role has its own                          1: the writer and the reader of a channel have one
 *   2: two processes, with a channel in each direction and one stream each      3: all have one
 *
 * A step of a thread is one call of the driver, or a word that it tells the other side of the channel. A thread that puts
 * something on a stream never waits: what a full queue makes it wait for goes on without the thread.
 *
 * FAULT plants a mistake, which the check must find:
 *   1: a reader says that it has given back before its stream was given the return
 *   2: a writer offers a frame before its stream was given what makes it ready, or its kernel
 */
#ifndef FAULT
#define FAULT 0
#endif
#ifndef SHARED
#define SHARED 2
#endif
#ifndef CHANNELS
#define CHANNELS 2
#endif
#ifndef FRAMES
#define FRAMES 2
#endif

#if SHARED == 0
#define STREAMS      (2 * CHANNELS)
#define WRITES_ON(c) (2 * (c))
#define READS_ON(c)  (2 * (c) + 1)
#elif SHARED == 1
#define STREAMS      CHANNELS
#define WRITES_ON(c) (c)
#define READS_ON(c)  (c)
#elif SHARED == 2
#define STREAMS      2
#define WRITES_ON(c) (c)
#define READS_ON(c)  (1 - (c))
#else
#define STREAMS      1
#define WRITES_ON(c) 0
#define READS_ON(c)  0
#endif

/* ---- the page of each channel: the last frame of which a word says so ---- */
byte offered[CHANNELS];
byte given[CHANNELS];
byte ready[CHANNELS];    /* by the writer's stream */
byte returned[CHANNELS]; /* by the reader's */

byte contents[CHANNELS]; /* the frame in the slot */
bool is_read[CHANNELS];
byte threads = 2 * CHANNELS; /* that may put something on a stream */

/* What streams are given: what, of which channel, which frame. */
#define AWAIT_RETURN 0
#define FILL         1
#define AWAIT_READY  2
#define READ         3
chan streams[STREAMS] = [4 * CHANNELS * FRAMES] of { byte, byte, byte };

proctype writer(byte c) {
    byte n = 1;
    do
    :: n > FRAMES -> break
    :: else ->
        (given[c] == n - 1);
        if
        :: n > 1 -> streams[WRITES_ON(c)] ! AWAIT_RETURN, c, n - 1
        :: else
        fi;
#if FAULT == 2
        offered[c] = n;
        streams[WRITES_ON(c)] ! FILL, c, n;
#else
        streams[WRITES_ON(c)] ! FILL, c, n;
        offered[c] = n;
#endif
        n++
    od;
    threads--
}

proctype reader(byte c) {
    byte n = 1;
    do
    :: n > FRAMES -> break
    :: else ->
        (offered[c] == n);
        streams[READS_ON(c)] ! AWAIT_READY, c, n;
#if FAULT == 1
        given[c] = n;
        streams[READS_ON(c)] ! READ, c, n;
#else
        streams[READS_ON(c)] ! READ, c, n;
        given[c] = n;
#endif
        n++
    od;
    threads--
}

proctype stream(byte s) {
    byte what;
    byte c;
    byte n;
    do
    :: streams[s] ? what, c, n ->
        if
        :: what == AWAIT_RETURN -> (returned[c] >= n)
        :: what == FILL ->
            d_step { assert(!is_read[c]); contents[c] = n; ready[c] = n }
        :: what == AWAIT_READY -> (ready[c] >= n)
        :: what == READ ->
            d_step { assert(contents[c] == n); is_read[c] = true };
            d_step { assert(contents[c] == n); is_read[c] = false; returned[c] = n }
        fi;
        d_step { what = 0; c = 0; n = 0 }
    :: threads == 0 && empty(streams[s]) -> break
    od
}

init {
    byte i;
    atomic {
        do
        :: i == CHANNELS -> break
        :: else ->
            run writer(i);
            run reader(i);
            i++
        od;
        i = 0;
        do
        :: i == STREAMS -> break
        :: else -> run stream(i); i++
        od;
        i = 0
    }
}
