/* SPDX-License-Identifier: MIT */
/*
 * The protocol of a channel (docs/channels.md), for SPIN: one writer with its stream, a reader that takes every frame and
 * one that takes the newest. One of them may be killed before any step. Checked:
 *   - what a reader uses is the frame that it took, from the first look to the last: it was ready, and nobody reuses it;
 *   - who sleeps is woken, and nobody waits for ever: there is no end but the proper one;
 *   - a reader of every frame that lives gets every frame, and a reader of the newest gets the last.
 *
 * A word that one side writes and the other reads is one step here, as it is in the library. That the writer looks at the
 * words of all slots and readers is one step as well: each only goes up, and what it missed it sees at the next look. SPIN
 * sees all sides in one order; the library has a fence in the three places that need it: between a store and the look at
 * whether the other side sleeps, and on both sides between a withdrawal and the taking of the same frame. Sleepers of the
 * library look again after a while. Here they do not, so that a wake-up that is lost shows.
 *
 * FAULT plants a mistake, which the check must find:
 *   1: who falls asleep does not look once more     2: the writer does not wait for a frame to be given back
 *   3: a reader does not wait for the ready word    4: a frame's place is announced before the rest of its offer is written
 *   5: a reader of the newest takes without asking whether the frame was withdrawn meanwhile
 *   6: the writer does not notice that a reader ended
 *   7: what a reader's stream writes is the word in which its host says what it has
 *   8: the writer sleeps until a reader rings that has given back, in the order of its stream
 *   9: the writer withdraws without asking whether the frame was taken meanwhile
 *  10: an offer is written over an older one that still has its place
 *  11: who finds that what it took was withdrawn does not say so
 *  12: who closes gives back what it has in a slot of which its stream still has the former frame
 *  13: who has closed counts as gone, although the writer's stream waits for a frame of before the one that is there
 *  14: a channel that ends lets who awaits a kernel go, although its stream has yet to say that the frame before is ready
 *  15: a channel that ends lets nobody go who awaits a kernel
 *  16: a reader that has closed is let go by what a stream, which has yet to say that the frame before is ready, takes back
 */
#ifndef FAULT
#define FAULT 0
#endif
#ifndef KILLED
#define KILLED 0 /* 0: nobody; 1, 2: a reader; 3: the writer */
#endif
#ifndef ONLY
#define ONLY 2 /* 0, 1: this reader alone; 2: both */
#endif
#ifndef CLOSES
#define CLOSES 2 /* 0, 1: this reader may close; 2: none does */
#endif
#ifndef KERNEL
#define KERNEL 0 /* 1: a kernel that is never launched has the last frame, whose slot is its own when the channel ends */
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef FRAMES
#define FRAMES 3
#endif
#define READERS  2
#define IN_ORDER 0 /* the number of the reader that takes every frame; the other takes the newest */
#define NOBODY   255

/* What a reader says of a slot, above four times the frame's number. */
#define TAKEN    1
#define GIVEN    2 /* the returned word says so by now, or when the reader's stream comes to it */
#define DECLINED 3 /* it was withdrawn meanwhile */

/* As many offers stand in the ring as there are slots: fewer than in the library, so that one is written over another. */
#define AT(r, s)       ((r) * SLOTS + (s))
#define IN_RING(r, n)  ((r) * SLOTS + (n) % SLOTS)
#define PLACE_OF(n, s) (SLOTS * (n) + (s) + 1)
#define SLOT_AT(p)     (((p) - 1) % SLOTS)
#define NUMBER_AT(p)   (((p) - 1) / SLOTS)

/* ---- what a reader and the writer share: a page for each reader ---- */
byte having[READERS * SLOTS];   /* the reader's; all others but "returned" are the writer's */
byte returned[READERS * SLOTS]; /* the last frame that was; the reader's, or its stream's */
byte ready[READERS * SLOTS];    /* one more than twice the last frame that was; twice a frame: it never will be */
byte place[READERS * SLOTS];    /* ring: of an offer; 0: none, or withdrawn, or being written */
byte said[READERS * SLOTS];     /* ring: the rest of an offer */
byte tail;                      /* the newest; of the reader of the newest */
bool has_ended[READERS];        /* the writer says so */
bool reader_sleeps[READERS];
bool writer_sleeps[READERS];
bool has_left[READERS];         /* the reader says so */

/* ---- the memory, and what the system says ---- */
byte contents[SLOTS]; /* the frame that is in it; 0: half of one */
bool is_killed[READERS];
bool is_over[READERS]; /* this reader puts nothing on its stream any more */
bool writer_is_killed;

/* ---- the writer's own ---- */
bool holds[READERS * SLOTS]; /* this reader may have this slot */
bool waits[READERS];         /* of the slot that was found: a stream has to wait for this reader */
bool offered[READERS];       /* likewise: this reader is to lose its offer */
byte frame_of[SLOTS];
byte written[SLOTS]; /* the last frame of which the writer's stream has said that it is ready: what its event says */

bool is_ended[READERS];      /* this reader has left, and has nothing */
byte awaited[READERS * SLOTS]; /* the latest frame that the writer's stream waits for */
#if KERNEL != 0 && CLOSES != 2
#define MAY_AWAIT_KERNEL(r) ((r) == CLOSES)
bool is_through; /* the stream of the reader that may close has done all that it was given */
#else
#define MAY_AWAIT_KERNEL(r) false
#endif

/* ---- a reader's own ---- */
byte returns[READERS * SLOTS]; /* so many frames of this slot its stream has yet to return */

#define IS_READY(r, s, n) (ready[AT(r, s)] >= 2 * (n))
#define IS_LOST(r, s, n)  (ready[AT(r, s)] == 2 * (n))

#if FAULT == 6
#define IS_GONE(r) false
#else
#define IS_GONE(r) (is_killed[r] || is_ended[r])
#endif
#if FAULT == 7
#define IS_RETURNED(r, s, n) (having[AT(r, s)] == 4 * (n) + DECLINED || having[AT(r, s)] / 4 > (n))
#define RETURN(r, s, n)      having[AT(r, s)] = 4 * (n) + DECLINED
#else
#define IS_RETURNED(r, s, n) (returned[AT(r, s)] >= (n))
#define RETURN(r, s, n)      returned[AT(r, s)] = n
#endif

/* Of one that has left, what its stream has not returned is still its own. What it only says that it has is not. */
#define NOTHING_IN(r, s)                                                                               \
    (!(holds[AT(r, s)] && !IS_RETURNED(r, s, frame_of[s]) && having[AT(r, s)] == 4 * frame_of[s] + GIVEN) && \
     (FAULT == 13 || IS_RETURNED(r, s, awaited[AT(r, s)])))
#if SLOTS == 1
#define HAS_NOTHING(r) NOTHING_IN(r, 0)
#else
#define HAS_NOTHING(r) (NOTHING_IN(r, 0) && NOTHING_IN(r, 1))
#endif

chan stream = [FRAMES] of { byte, byte, byte, bool, bool }; /* slot, frame, the one before, wait for reader 0, 1 */
chan reader_streams[READERS] = [SLOTS] of { byte, byte };   /* slot, frame; SLOTS above: it is awaited, and not returned */

/* What a process had on its streams ends with it. */
#if KILLED != 0
active proctype killer() {
    if
#if KILLED == 3
    :: writer_is_killed = true
#else
    :: is_killed[KILLED - 1] = true
#endif
    :: skip
    fi
}
#endif

/* ---- the writer ---- */

inline look_at(r, s) {
    if
    :: holds[AT(r, s)] && (IS_GONE(r) || IS_RETURNED(r, s, frame_of[s]) ||
                           having[AT(r, s)] == 4 * frame_of[s] + DECLINED) ->
        holds[AT(r, s)] = false
    :: else
    fi;
    offered[r] = holds[AT(r, s)] && (r != IN_ORDER || has_left[r]) && having[AT(r, s)] / 4 != frame_of[s];
    waits[r] = holds[AT(r, s)] && having[AT(r, s)] == 4 * frame_of[s] + GIVEN;
    free = free && (FAULT == 2 || !holds[AT(r, s)] || waits[r] || offered[r]);
    if
    :: holds[AT(r, s)] && !offered[r] && (!waits[r] || FAULT == 8) -> holder = r
    :: else
    fi
}

/* A slot that is free when a stream has waited for those who have given it back in its order, and when a reader of the
 * newest has lost its offer. */
inline look_for_slot() {
    d_step {
#if CLOSES != 2
        is_ended[CLOSES] = is_ended[CLOSES] || (has_left[CLOSES] && HAS_NOTHING(CLOSES));
#endif
        slot = first;
        holder = NOBODY;
        do
        :: slot == first + SLOTS -> slot = NOBODY; break
        :: else ->
            free = true;
            look_at(0, slot % SLOTS);
            look_at(1, slot % SLOTS);
            if
            :: free -> slot = slot % SLOTS; break
            :: else -> slot++
            fi
        od
    }
}

/* Two steps: the reader may be between its own two. */
inline withdraw(r) {
    if
    :: slot != NOBODY && offered[r] ->
        d_step {
            if
            :: place[IN_RING(r, frame_of[slot])] == PLACE_OF(frame_of[slot], slot) ->
                place[IN_RING(r, frame_of[slot])] = 0
            :: else /* a later offer is there */
            fi
        };
        d_step {
            if
            :: having[AT(r, slot)] / 4 != frame_of[slot] || FAULT == 9 ->
                holds[AT(r, slot)] = false
            :: else -> free = false
            fi;
            offered[r] = false
        }
    :: else
    fi
}

inline withdraw_all() {
    withdraw(1);
#if CLOSES == 0
    withdraw(0)
#else
    skip
#endif
}

/* Any slot may be looked at first, as a stream may be in the way in another. Where a reader takes what was to be withdrawn, the
 * writer looks again. */
inline loan() {
    if
    :: first = 0
    :: SLOTS > 1 -> first = SLOTS - 1
    fi;
    do
    :: look_for_slot();
        withdraw_all();
        if
        :: free -> break
        :: slot == NOBODY ->
            who = holder;
            writer_sleeps[who] = true;
#if FAULT != 1
            look_for_slot();
            withdraw_all();
#endif
            if
            :: free -> break
            :: slot == NOBODY && holder == who ->
                (!writer_sleeps[who] || IS_GONE(who) || (has_left[who] && HAS_NOTHING(who)))
            :: else /* it has given back meanwhile, and rings for nobody; or it has taken */
            fi
        :: else
        fi
    od;
    who = 0;
    d_step { first = 0; holder = 0; free = false; offered[0] = false; offered[1] = false }
}

inline wake_reader(r) {
    if
    :: reader_sleeps[r] -> reader_sleeps[r] = false
    :: else
    fi
}

inline offer(r) {
    d_step { holds[AT(r, slot)] = !IS_GONE(r) };
#if FAULT == 4
    place[IN_RING(r, n)] = PLACE_OF(n, slot);
    said[IN_RING(r, n)] = n;
#else
#if FAULT != 10
    if
    :: r != IN_ORDER -> place[IN_RING(r, n)] = 0
    :: else
    fi;
#endif
    said[IN_RING(r, n)] = n;
    place[IN_RING(r, n)] = PLACE_OF(n, slot);
#endif
    if
    :: r != IN_ORDER -> tail = n
    :: else
    fi
}

/* In the order of the stream; not of a kernel, which is the caller's to launch. */
inline publish_on_stream() {
    d_step {
        stream ! slot, n, frame_of[slot], waits[0], waits[1];
#if CLOSES != 2
        awaited[AT(CLOSES, slot)] = (waits[CLOSES] -> frame_of[slot] : awaited[AT(CLOSES, slot)]);
#endif
        frame_of[slot] = n
    }
}

inline publish_by_kernel() {
    d_step {
        former = frame_of[slot];
        of_kernel = slot;
#if CLOSES != 2
        awaited[AT(CLOSES, slot)] = (waits[CLOSES] -> former : awaited[AT(CLOSES, slot)]);
#endif
        frame_of[slot] = n
    }
}

/* The regular look. A reader that ends is let go, and again behind the stream that has yet to come to the frame before. While
 * it has not ended, the channel may; then this one waits, to see that nobody but the look is needed. */
inline look_after_who_closed() {
#if KERNEL != 0 && CLOSES != 2
    do
    :: !is_ended[CLOSES] -> break
    :: !is_ended[CLOSES] && has_left[CLOSES] && HAS_NOTHING(CLOSES) ->
        d_step {
            is_ended[CLOSES] = true;
            is_left = FAULT != 16 && written[of_kernel] < former
        };
        ready[AT(CLOSES, of_kernel)] = 2 * FRAMES
    :: is_left && written[of_kernel] >= former ->
        ready[AT(CLOSES, of_kernel)] = 2 * FRAMES;
        is_left = false
    :: is_ended[CLOSES] && is_through -> break
    od
#else
    skip
#endif
}

/* The word of that slot may be awaited for the frame before, which the stream comes to soon. */
inline let_go_who_awaits_the_kernel() {
#if KERNEL != 0 && FAULT != 15
    (FAULT == 14 || written[of_kernel] >= former);
    ready[AT(0, of_kernel)] = 2 * FRAMES;
    ready[AT(1, of_kernel)] = 2 * FRAMES
#else
    skip
#endif
}

active proctype writer() {
    byte n = 1;
    byte slot;
    byte former; /* of the slot that a kernel has */
    byte of_kernel;
    bool is_left; /* of the reader that closed: its word is to be stored again */
    byte who;
    byte first;
    byte holder; /* one that has to give something back before there is a slot */
    bool free;
    {
        do
        :: n > FRAMES -> break
        :: else ->
            loan();
            if
            :: KERNEL == 0 || n < FRAMES -> publish_on_stream()
            :: KERNEL != 0 && n == FRAMES -> publish_by_kernel()
            fi;
#if ONLY != 1
            offer(0);
#endif
#if ONLY != 0
            offer(1);
#endif
            wake_reader(0);
            wake_reader(1);
            d_step { slot = 0; n++ }
        od;
        look_after_who_closed();
        let_go_who_awaits_the_kernel();
        has_ended[0] = true;
        wake_reader(0);
        has_ended[1] = true;
        wake_reader(1)
    } unless { writer_is_killed }
}

/* What the writer has put on its stream. Nobody is left waiting by a reader that has ended: the watch sees to that. */
active proctype writer_stream() {
    byte slot;
    byte n;
    byte before;
    byte done;
    bool waits_0;
    bool waits_1;
    {
        do
        :: done == FRAMES - KERNEL -> break
        :: else ->
            stream ? slot, n, before, waits_0, waits_1;
            (!waits_0 || is_killed[0] || is_ended[0] || IS_RETURNED(0, slot, before));
            (!waits_1 || is_killed[1] || is_ended[1] || IS_RETURNED(1, slot, before));
            contents[slot] = 0;
            contents[slot] = n;
            ready[AT(0, slot)] = 2 * n + 1;
            ready[AT(1, slot)] = 2 * n + 1;
            d_step { written[slot] = n; slot = 0; n = 0; before = 0; waits_0 = false; waits_1 = false; done++ }
        od
    } unless { writer_is_killed }
}

/* ---- a reader ---- */

inline look_for_frame() {
    if
    :: r == IN_ORDER -> found = last + 1
    :: r != IN_ORDER -> found = tail
    fi;
    d_step {
        at = place[IN_RING(r, found)];
        if
        :: found > last && found <= FRAMES && at != 0 && NUMBER_AT(at) == found -> slot = SLOT_AT(at)
        :: else -> found = 0
        fi;
        at = 0
    }
}

inline wake_writer() {
    if
    :: writer_sleeps[r] -> writer_sleeps[r] = false
    :: else
    fi
}

/* Nothing is withdrawn that is offered to a reader of every frame. */
inline take() {
    what = said[IN_RING(r, found)];
    having[AT(r, slot)] = 4 * found + TAKEN;
    if
    :: FAULT == 5 || place[IN_RING(r, found)] == PLACE_OF(found, slot) ->
        d_step {
            assert(what == found);
            taken = found
        }
    :: else ->
        assert(r != IN_ORDER);
#if FAULT != 11
        having[AT(r, slot)] = 4 * found + DECLINED;
        wake_writer()
#else
        skip
#endif
    fi;
    d_step { last = found; what = 0 }
}

inline use() {
    if
    :: FAULT == 3 || IS_READY(r, slot, taken) ->
        assert(contents[slot] == taken || IS_LOST(r, slot, taken));
        seen = taken
    :: writer_is_killed /* it learns that the writer ended before the frame was ready */
    fi
}

/* By the host, which has used it; by the reader's stream, which uses it while the host goes on; or by its kernel, which is
 * through before the host says that it was launched. (One that is not is as a stream.) Mistake 8 needs both readers, and is
 * found soon when each has one way. */
inline use_and_give_back() {
    if
    :: FAULT != 8 || r == IN_ORDER -> use();
        RETURN(r, slot, taken);
        wake_writer()
    :: FAULT != 8 || r != IN_ORDER -> having[AT(r, slot)] = 4 * taken + GIVEN;
        wake_writer();
        d_step {
            reader_streams[r] ! slot, taken;
            returns[AT(r, slot)] = returns[AT(r, slot)] + (CLOSES == r -> 1 : 0);
            seen = taken
        }
    :: FAULT != 7 && FAULT != 8 -> use();
        returned[AT(r, slot)] = taken;
        having[AT(r, slot)] = 4 * taken + GIVEN;
        wake_writer()
#if CLOSES != 2
    :: r == CLOSES -> /* it closes with it */
        if
        :: returns[AT(r, slot)] == 0 || FAULT == 12 -> RETURN(r, slot, taken)
        :: else /* the writer learns from its end */
        fi;
        if
        :: MAY_AWAIT_KERNEL(r) && taken == FRAMES -> reader_streams[r] ! slot + SLOTS, taken
        :: true
        fi;
        closes = true
#endif
    fi;
    taken = 0
}

/* What a reader has put on its stream. The watch lets it go when the writer has ended. */
proctype reader_stream(byte r) {
    byte slot;
    byte n;
    {
        do
        :: reader_streams[r] ? slot, n ->
            if
            :: slot >= SLOTS -> (IS_READY(r, slot - SLOTS, n) || writer_is_killed)
            :: else ->
                if
                :: IS_READY(r, slot, n) ->
                    assert(contents[slot] == n || IS_LOST(r, slot, n));
                    assert(contents[slot] == n || IS_LOST(r, slot, n))
                :: writer_is_killed
                fi;
                RETURN(r, slot, n);
                d_step { returns[AT(r, slot)] = returns[AT(r, slot)] - (CLOSES == r -> 1 : 0) }
            fi;
            d_step { slot = 0; n = 0 }
        :: is_over[r] && empty(reader_streams[r]) -> break
        od;
#if KERNEL != 0 && CLOSES != 2
        is_through = is_through || r == CLOSES
#else
        skip
#endif
    } unless { is_killed[r] }
}

proctype reader(byte r) {
    byte last;
    byte found;
    byte at;
    byte what;
    byte slot;
    byte taken;
    byte seen;
    bool was_over;
    bool closes;
    {
        do
#if CLOSES != 2
        :: r == CLOSES -> closes = true; break
#endif
        :: was_over = has_ended[r] || writer_is_killed;
            look_for_frame();
            if
            :: found == 0 && was_over -> break
            :: found == 0 && !was_over ->
                reader_sleeps[r] = true;
#if FAULT != 1
                look_for_frame();
#endif
                if
                :: found == 0 -> (!reader_sleeps[r] || has_ended[r] || writer_is_killed)
                :: else
                fi
            :: else
            fi;
            if
            :: found != 0 ->
                take();
                if
                :: taken != 0 -> use_and_give_back()
                :: else
                fi;
                d_step { found = 0; slot = 0; was_over = false }
            :: else
            fi;
            if
            :: closes -> break
            :: else
            fi
        od;
        assert(writer_is_killed || closes || seen == FRAMES);
        if
        :: closes -> has_left[r] = true; wake_writer()
        :: else
        fi;
        is_over[r] = true
    } unless { is_killed[r] }
}

init {
    atomic {
#if ONLY != 1
        run reader(0);
        run reader_stream(0);
#endif
#if ONLY != 0
        run reader(1);
        run reader_stream(1);
#endif
        skip
    }
}
