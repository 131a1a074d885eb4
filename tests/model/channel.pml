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
 * sees all sides in one order; the library has a fence in the two places that need it, between a store and the look at
 * whether the other side sleeps. Sleepers of the library look again after a while. Here they do not, so that a wake-up
 * that is lost shows.
 *
 * FAULT plants a mistake, which the check must find:
 *   1: who falls asleep does not look once more     2: the writer does not wait for a frame to be given back
 *   3: a reader does not wait for the ready word    4: a frame is announced before its state says that it is offered
 *   5: a reader of the newest takes without asking whether the frame was withdrawn meanwhile
 *   6: the writer does not notice that a reader ended
 *   7: the word that a reader's stream writes is the one by which the next frame is offered
 *   8: the writer sleeps until a reader rings that has given back, in the order of its stream
 *   9: a reader whose kernel has given back says so without asking whether the slot was offered again meanwhile
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
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef FRAMES
#define FRAMES 3
#endif
#define READERS  2
#define IN_ORDER 0 /* the number of the reader that takes every frame; the other takes the newest */
#define NOBODY   255

/* What the state word of a slot says, above four times the frame's number. */
#define OFFERED   0
#define TAKEN     1
#define GIVEN     2 /* the returned word says so by now, or when the reader's stream comes to it */
#define WITHDRAWN 3

#define AT(r, s)   ((r) * SLOTS + (s))
#define RING(r, n) ring[(r) * (FRAMES + 1) + (n)]

/* ---- what a reader and the writer share: a page for each reader ---- */
byte state[READERS * SLOTS];
byte returned[READERS * SLOTS];    /* the last frame that was */
byte ready[READERS * SLOTS];       /* the last frame that was */
byte ring[READERS * (FRAMES + 1)]; /* 1 + the slot of each frame; 0: not announced */
byte tail;                         /* the newest; of the reader of the newest */
bool has_ended[READERS];           /* the writer says so */
bool reader_sleeps[READERS];
bool writer_sleeps[READERS];

/* ---- the memory, and what the system says ---- */
byte contents[SLOTS]; /* the frame that is in it; 0: half of one */
bool is_killed[READERS];
bool writer_is_killed;

/* ---- the writer's own ---- */
bool holds[READERS * SLOTS]; /* this reader may have this slot */
bool waits[READERS];         /* of the slot that was found: a stream has to wait for this reader */
byte frame_of[SLOTS];

#if FAULT == 6
#define IS_GONE(r) false
#else
#define IS_GONE(r) is_killed[r]
#endif
#if FAULT == 7
#define IS_RETURNED(r, s, n) (state[AT(r, s)] == 4 * (n) + WITHDRAWN || state[AT(r, s)] / 4 > (n))
#else
#define IS_RETURNED(r, s, n) (returned[AT(r, s)] >= (n))
#endif

chan stream = [FRAMES] of { byte, byte, byte, bool, bool }; /* slot, frame, the one before, wait for reader 0, 1 */

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

/* What a reader of the newest has not taken is withdrawn, by compare and swap. */
inline look_at(r, s) {
    if
    :: holds[AT(r, s)] && (IS_GONE(r) || IS_RETURNED(r, s, frame_of[s])) -> holds[AT(r, s)] = false
    :: else
    fi;
    if
    :: holds[AT(r, s)] && r != IN_ORDER && state[AT(r, s)] == 4 * frame_of[s] + OFFERED ->
        state[AT(r, s)] = 4 * frame_of[s] + WITHDRAWN;
        holds[AT(r, s)] = false
    :: else
    fi;
    waits[r] = holds[AT(r, s)] && state[AT(r, s)] == 4 * frame_of[s] + GIVEN;
    free = free && (FAULT == 2 || !holds[AT(r, s)] || waits[r]);
    if
    :: holds[AT(r, s)] && (!waits[r] || FAULT == 8) -> holder = r
    :: else
    fi
}

/* A slot that is free when a stream has waited for those who have given it back in its order. */
inline look_for_slot() {
    d_step {
        slot = 0;
        holder = NOBODY;
        do
        :: slot == SLOTS -> slot = NOBODY; break
        :: else ->
            free = true;
            look_at(0, slot);
            look_at(1, slot);
            if
            :: free -> break
            :: else -> slot++
            fi
        od;
        free = false
    }
}

inline loan() {
    do
    :: look_for_slot();
        if
        :: slot != NOBODY -> break
        :: else
        fi;
        who = holder;
        writer_sleeps[who] = true;
#if FAULT != 1
        look_for_slot();
#endif
        if
        :: slot != NOBODY -> break
        :: slot == NOBODY && holder == who -> (!writer_sleeps[who] || IS_GONE(who))
        :: else /* it has given back meanwhile, and rings for nobody */
        fi
    od;
    who = 0;
    holder = 0
}

inline wake_reader(r) {
    if
    :: reader_sleeps[r] -> reader_sleeps[r] = false
    :: else
    fi
}

inline announce(r) {
    RING(r, n) = slot + 1;
    if
    :: r != IN_ORDER -> tail = n
    :: else
    fi
}

inline offer(r) {
    d_step { holds[AT(r, slot)] = !IS_GONE(r) };
#if FAULT == 4
    announce(r);
    state[AT(r, slot)] = 4 * n + OFFERED
#else
    state[AT(r, slot)] = 4 * n + OFFERED;
    announce(r)
#endif
}

active proctype writer() {
    byte n = 1;
    byte slot;
    byte who;
    byte holder; /* one that has to give something back before there is a slot */
    bool free;
    {
        do
        :: n > FRAMES -> break
        :: else ->
            loan();
            d_step {
                stream ! slot, n, frame_of[slot], waits[0], waits[1];
                frame_of[slot] = n
            };
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
        :: done == FRAMES -> break
        :: else ->
            stream ? slot, n, before, waits_0, waits_1;
            (!waits_0 || is_killed[0] || IS_RETURNED(0, slot, before));
            (!waits_1 || is_killed[1] || IS_RETURNED(1, slot, before));
            contents[slot] = 0;
            contents[slot] = n;
            ready[AT(0, slot)] = n;
            ready[AT(1, slot)] = n;
            d_step { slot = 0; n = 0; before = 0; waits_0 = false; waits_1 = false; done++ }
        od
    } unless { writer_is_killed }
}

/* ---- a reader ---- */

inline look_for_frame() {
    d_step {
        found = 0;
        if
        :: r == IN_ORDER && last < FRAMES && RING(r, last + 1) != 0 -> found = last + 1
        :: r != IN_ORDER && tail > last -> found = tail
        :: else
        fi
    }
}

inline take() {
    d_step { /* compare and swap */
        slot = RING(r, found) - 1;
        if
        :: state[AT(r, slot)] == 4 * found + OFFERED || FAULT == 5 ->
            state[AT(r, slot)] = 4 * found + TAKEN;
            taken = found
        :: else -> taken = 0
        fi;
        assert(r != IN_ORDER || taken == found);
        last = found
    }
}

inline use() {
    if
    :: FAULT == 3 || ready[AT(r, slot)] >= taken ->
        assert(contents[slot] == taken);
        seen = taken
    :: writer_is_killed /* it learns that the writer ended before the frame was ready */
    fi
}

inline wake_writer() {
    if
    :: writer_sleeps[r] -> writer_sleeps[r] = false
    :: else
    fi
}

/* By the host; by the reader's stream, which uses it until it is there; or by its kernel, which is through before the host
 * says that it was launched. (One that is not is as a stream.) */
inline give_back() {
    if
    :: returned[AT(r, slot)] = taken;
        wake_writer()
    :: state[AT(r, slot)] = 4 * taken + GIVEN;
        wake_writer();
        assert(ready[AT(r, slot)] < taken || contents[slot] == taken);
#if FAULT == 7
        state[AT(r, slot)] = 4 * taken + WITHDRAWN
#else
        returned[AT(r, slot)] = taken
#endif
    :: FAULT != 7 ->
        returned[AT(r, slot)] = taken;
        d_step { /* compare and swap */
            if
            :: state[AT(r, slot)] == 4 * taken + TAKEN || FAULT == 9 ->
                state[AT(r, slot)] = 4 * taken + GIVEN
            :: else
            fi
        };
        wake_writer()
    fi;
    taken = 0
}

proctype reader(byte r) {
    byte last;
    byte found;
    byte slot;
    byte taken;
    byte seen;
    bool was_over;
    {
        do
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
                :: taken != 0 -> use(); give_back()
                :: else
                fi;
                d_step { found = 0; slot = 0; was_over = false }
            :: else
            fi
        od;
        assert(writer_is_killed || seen == FRAMES)
    } unless { is_killed[r] }
}

init {
    atomic {
#if ONLY != 1
        run reader(0);
#endif
#if ONLY != 0
        run reader(1);
#endif
        skip
    }
}
