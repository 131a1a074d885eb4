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
 *  14: a frame is offered before the writer's stream was given what makes it ready, or its kernel
 *  15: a reader says that it has given back before its stream was given the return
 *  16: a reader of the newest is offered the frame of a kernel that was launched behind a later one
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
#define KERNEL 0 /* 1: a kernel makes the last but one, and may be launched behind the last; there are two slots */
#endif
#ifndef SHARED
#define SHARED 0 /* 1: one stream of the writer and of its readers, as the default stream is one of all threads */
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
byte ready[READERS * SLOTS];    /* the last frame that was */
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
byte of_kernel = NOBODY; /* the slot whose frame a kernel makes that was not launched */
bool writer_is_over;     /* it puts nothing on its stream any more */

bool is_ended[READERS];      /* this reader has left, and has nothing */
byte awaited[READERS * SLOTS]; /* the latest frame that the writer's stream waits for */
/* ---- a reader's own ---- */
byte returns[READERS * SLOTS]; /* so many frames of this slot its stream has yet to return */

#define IS_READY(r, s, n) (ready[AT(r, s)] >= (n))

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

/* What streams are given: what, which reader's, slot, frame. */
#define MAKES   0 /* the writer fills the slot, and says that the frame is ready */
#define AWAITS  1 /* the writer waits until the reader has returned the frame */
#define RETURNS 2 /* the reader waits until the frame is ready, uses it, and returns it */
#define WRITERS 0 /* the number of the writer's stream */
#define READERS_STREAM(r) (SHARED -> WRITERS : (r) + 1)
chan streams[READERS + 1] = [2 * FRAMES + SHARED * FRAMES] of { byte, byte, byte, byte };

#define READER_IS_OVER(r) (ONLY == 1 - (r) || is_over[r])
#if SHARED
#define IS_OVER(s) (writer_is_over && READER_IS_OVER(0) && READER_IS_OVER(1))
#else
#define IS_OVER(s) ((s) == WRITERS -> writer_is_over : is_over[(s) - 1])
#endif

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
    free = free && s != of_kernel && (FAULT == 2 || !holds[AT(r, s)] || waits[r] || offered[r]);
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

inline await_return(r) {
    if
    :: waits[r] ->
        d_step {
            streams[WRITERS] ! AWAITS, r, slot, frame_of[slot];
            if
            :: CLOSES == r -> awaited[AT(r, slot)] = frame_of[slot]
            :: else
            fi
        }
    :: else
    fi
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
    await_return(0);
    await_return(1);
    who = 0;
    d_step {
        first = 0; holder = 0; free = false;
        offered[0] = false; offered[1] = false; waits[0] = false; waits[1] = false
    }
}

inline wake_reader(r) {
    if
    :: reader_sleeps[r] -> reader_sleeps[r] = false
    :: else
    fi
}

inline offer(r, n) {
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

inline offer_to_all(n) {
#if ONLY != 1
    offer(0, n);
#endif
#if ONLY != 0
    if
    :: n > told || FAULT == 16 -> offer(1, n)
    :: else /* it was offered a later one */
    fi;
#endif
    wake_reader(0);
    wake_reader(1);
    told = (n > told -> n : told)
}

/* In the order of the stream: so is a kernel that is launched. */
inline publish(n) {
#if FAULT == 14
    offer_to_all(n);
    streams[WRITERS] ! MAKES, 0, slot, n
#else
    streams[WRITERS] ! MAKES, 0, slot, n;
    offer_to_all(n)
#endif
}

inline launch() {
    slot = of_kernel;
    publish(frame_of[slot]);
    d_step { of_kernel = NOBODY; slot = 0 }
}

active proctype writer() {
    byte n = 1;
    byte slot;
    byte told; /* the newest frame that readers know of */
    byte who;
    byte first;
    byte holder; /* one that has to give something back before there is a slot */
    bool free;
    {
        do
        :: n > FRAMES -> break
        :: else ->
            loan();
            frame_of[slot] = n;
            if
            :: KERNEL != 0 && n + 1 == FRAMES -> of_kernel = slot /* its kernel knows the words by now */
            :: KERNEL == 0 || n + 1 != FRAMES -> publish(n)
            fi;
            d_step { slot = 0; n++ };
            if
            :: of_kernel != NOBODY -> launch()
            :: true
            fi
        od;
        if
        :: of_kernel != NOBODY -> launch()
        :: else
        fi;
        writer_is_over = true;
        has_ended[0] = true;
        wake_reader(0);
        has_ended[1] = true;
        wake_reader(1)
    } unless { writer_is_killed }
}

/* ---- streams ---- */

/* Nobody is left waiting by one that has ended: the watch sees to that. */
inline follow(s) {
    do
    :: streams[s] ? what, whose, slot, n ->
        if
        :: what == AWAITS -> (is_killed[whose] || is_ended[whose] || IS_RETURNED(whose, slot, n))
        :: what == MAKES ->
            contents[slot] = 0;
            contents[slot] = n;
            ready[AT(0, slot)] = n;
            ready[AT(1, slot)] = n
        :: what == RETURNS ->
            if
            :: IS_READY(whose, slot, n) ->
                assert(contents[slot] == n);
                assert(contents[slot] == n)
            :: writer_is_killed
            fi;
            RETURN(whose, slot, n);
            d_step { returns[AT(whose, slot)] = returns[AT(whose, slot)] - (CLOSES == whose -> 1 : 0) }
        fi;
        d_step { what = 0; whose = 0; slot = 0; n = 0 }
    :: IS_OVER(s) && empty(streams[s]) -> break
    od
}

active proctype writer_stream() {
    byte what;
    byte whose;
    byte slot;
    byte n;
    {
        follow(WRITERS)
    } unless { writer_is_killed }
}

proctype reader_stream(byte r) {
    byte what;
    byte whose;
    byte slot;
    byte n;
    {
        follow(r + 1)
    } unless { is_killed[r] }
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
        assert(contents[slot] == taken);
        seen = taken
    :: writer_is_killed /* it learns that the writer ended before the frame was ready */
    fi
}

/* By the host, which has used it; by the reader's stream, which uses it while the host goes on; or by its kernel, which is
 * through before the host says that it was launched. (A kernel that is not through is as a stream.) Mistake 8
 * needs both readers, and is found soon when each has one way, and the host returns while the writer sleeps. */
inline use_and_give_back() {
    if
    :: FAULT != 8 || r == IN_ORDER -> use();
#if FAULT == 8
        (writer_sleeps[0] || writer_sleeps[1] || writer_is_over);
#endif
        RETURN(r, slot, taken);
        wake_writer()
    :: FAULT != 8 || r != IN_ORDER ->
#if FAULT == 15
        having[AT(r, slot)] = 4 * taken + GIVEN;
        wake_writer();
#endif
        d_step {
            streams[READERS_STREAM(r)] ! RETURNS, r, slot, taken;
            returns[AT(r, slot)] = returns[AT(r, slot)] + (CLOSES == r -> 1 : 0);
            seen = taken
        };
#if FAULT != 15
        having[AT(r, slot)] = 4 * taken + GIVEN;
        wake_writer()
#else
        skip
#endif
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
        closes = true
#endif
    fi;
    taken = 0
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
#if !SHARED
        run reader_stream(0);
#endif
#endif
#if ONLY != 0
        run reader(1);
#if !SHARED
        run reader_stream(1);
#endif
#endif
        skip
    }
}
