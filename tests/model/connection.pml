/* SPDX-License-Identifier: MIT */
/*
 * What goes over a connection, for SPIN: one process exports memory to another under points of one page (docs/wire-format.md,
 * "Points"), and gets it back; the last of it is of a one-shot ticket, which the receiver acknowledges. Each may close the
 * connection, or be killed, before any step. Checked:
 *   - a handle that was sent is closed once: by the receiver, or by the system with the socket or the process;
 *   - what is exported is not written while the receiver uses it, nor freed while it has it open;
 *   - who waits for what it exported gets it back: there is no end but the proper one;
 *   - a one-shot ticket is used up only when somebody has it open, and by one alone.
 *
 * A packet is sent with its handle in one step, and a word is one step, as in the library. What a process that is killed
 * leaves is the system's, in the same step.
 *
 * FAULT plants a mistake, which the check must find:
 *   1: the ticket is used up when its reply has left
 *   2: the exporter waits for words of a page that nobody has taken in
 *   3: what was returned is freed, though it is still open
 *   4: what came and was not read is not closed
 *   5: a record that could not be sent is not taken back
 *   6: the exporter does not see that the receiver's process has ended
 *   7: how many points were given out is written when the record has left
 *   8: the handle of a message that is refused is closed with the packet, and once more with the message
 *   9: whether a page was taken in is not looked at again when the receiver is seen closed
 *  10: the receiver goes on being sent to while it looks through what came
 */
#ifndef FAULT
#define FAULT 0
#endif
#ifndef KILLED
#define KILLED 0 /* 0: nobody; 1: the exporter; 2: the receiver */
#endif
#ifndef POINTS
#define POINTS 1 /* fewer than messages: one is used again */
#endif
#define MESSAGES 2
#define ONE_SHOT (MESSAGES - 1) /* this message answers a one-shot ticket */
#define PAGE     0
#define RECORD   1
#define FOR_EVER 255
#define VALUE(m) (2 * (m) + 2)
#define AT(m)    ((m) % POINTS)

/* What becomes of the handle of a record. */
#define NONE    0
#define SENT    1 /* in the socket: the system's */
#define HELD    2 /* the receiver's */
#define CLOSED  3

/* ---- what the two share: the socket, and the page ---- */
chan packets = [2] of { byte, byte };
chan replies = [1] of { bit }; /* that it has the one-shot's buffer open */
bool is_stopped;               /* the receiver's end takes nothing in any more: who sends learns it */
bool receiver_has_closed;      /* the receiver's end is seen closed */
bool exporter_has_closed;
byte done[POINTS];
byte given;
bool is_taken;

/* ---- what the system knows ---- */
bool exporter_is_killed;
bool receiver_is_killed;
byte handle[MESSAGES];

/* ---- of the memory, for the assertions ---- */
bool is_open[MESSAGES];
bool is_used[MESSAGES];
byte used_up; /* how often the one-shot's use is counted */
bool was_open;

inline close_handle(m) {
    assert(handle[m] == HELD);
    handle[m] = CLOSED
}

/* The system closes what is in a socket that is closed. */
inline discard_packets() {
    do
    :: packets ? [kind, m] ->
        packets ? kind, m;
        if
        :: kind == RECORD -> assert(handle[m] == SENT); handle[m] = CLOSED
        :: else
        fi
    :: empty(packets) -> break
    od;
    kind = 0;
    m = 0
}

#if KILLED != 0
active proctype killer() {
    byte kind;
    byte m;
    byte i;
#if KILLED == 1
    d_step { exporter_is_killed = true; exporter_has_closed = true }
#else
    d_step {
        receiver_is_killed = true;
        is_stopped = true;
        receiver_has_closed = true;
        discard_packets();
        do
        :: i == MESSAGES -> break
        :: else ->
            handle[i] = (handle[i] == HELD -> CLOSED : handle[i]);
            is_open[i] = false;
            is_used[i] = false;
            i++
        od
    }
#endif
}
#endif

/* ---- the exporter ---- */

#define IS_GONE (receiver_is_killed && FAULT != 6)

/* Whether nobody is there who would return anything of the page. */
inline look_whether_stranded() {
    stranded = false;
    if
    :: FAULT == 2
    :: FAULT != 2 && !is_taken ->
        if
        :: receiver_has_closed -> stranded = !is_taken || FAULT == 9
        :: else
        fi
    :: else
    fi
}

inline await(m, value) {
    do
    :: done[AT(m)] >= value || IS_GONE -> break
    :: else ->
        look_whether_stranded();
        if
        :: stranded -> break
        :: !stranded && done[AT(m)] < value ->
            /* until there is news: the library looks again after a while */
            (done[AT(m)] >= value || IS_GONE || (receiver_has_closed && !is_taken && FAULT != 2))
        :: else
        fi
    od;
    stranded = false
}

/* Waits until what was exported under a point is back. */
inline take_back(m) {
    if
    :: is_exported[m] ->
        await(m, VALUE(m));
        assert(!is_used[m]); /* it may be written now */
#if FAULT != 3
        await(m, VALUE(m) + 1);
#endif
        assert(!is_open[m]); /* and freed now */
        is_exported[m] = false
    :: else
    fi
}

/* True in one step with what it does, as a socket is. */
inline send(kind, number) {
    atomic {
        (is_stopped || nfull(packets));
        if
        :: is_stopped -> is_sent = false
        :: else ->
            packets ! kind, number;
            is_sent = true;
            if
            :: kind == RECORD -> handle[number] = SENT
            :: else
            fi
        fi
    }
}

inline hand_over(n) {
    is_exported[n] = true;
#if FAULT != 7
    given = (AT(n) + 1 > given -> AT(n) + 1 : given);
#endif
    send(RECORD, n);
#if FAULT == 7
    given = (AT(n) + 1 > given -> AT(n) + 1 : given);
#endif
    if
    :: !is_sent && FAULT != 5 -> is_exported[n] = false
    :: else
    fi;
#if FAULT == 1
    used_up = used_up + (n == ONE_SHOT && is_sent)
#endif
}

active proctype exporter() {
    byte n;
    bool is_exported[MESSAGES];
    bool is_sent;
    bool stranded;
    {
        send(PAGE, 0);
        do
        :: !is_sent || n == MESSAGES -> break
        :: is_sent && n < MESSAGES ->
            if
            :: n >= POINTS -> take_back(n - POINTS)
            :: else
            fi;
            hand_over(n);
            n++
        :: is_sent -> break /* enough */
        od;
        /* The acknowledgement, or the end of the connection. */
        if
        :: replies ? _ ->
#if FAULT != 1
            used_up++
#else
            skip
#endif
        :: receiver_has_closed && empty(replies)
        :: true /* it does not wait for it */
        fi;
        assert(used_up == 0 || was_open);
        exporter_has_closed = true;
        take_back(0);
        take_back(1);
        assert(!is_exported[0] && !is_exported[1])
    } unless { exporter_is_killed }
}

/* ---- the receiver ---- */

inline receive() {
    d_step {
        packets ? kind, m;
        handle[m] = (kind == RECORD -> HELD : handle[m])
    }
}

inline take_in(m) {
    if
    :: is_open[m] = true; /* its memory is imported */
        is_used[m] = true;
        close_handle(m);
        if
        :: m == ONE_SHOT ->
            was_open = true;
            if
            :: nfull(replies) && !exporter_has_closed -> replies ! 1
            :: full(replies) || exporter_has_closed
            fi
        :: else
        fi
    :: close_handle(m); /* it is no memory, or refused */
#if FAULT == 8
        close_handle(m);
#endif
        done[AT(m)] = VALUE(m) + 1
    fi
}

inline give_back(m) {
    if
    :: is_open[m] ->
        is_used[m] = false;
        done[AT(m)] = (done[AT(m)] > VALUE(m) -> done[AT(m)] : VALUE(m));
        is_open[m] = false;
        done[AT(m)] = (done[AT(m)] > VALUE(m) + 1 -> done[AT(m)] : VALUE(m) + 1)
    :: else
    fi
}

/* What had come and was not read: pages are taken in, the rest is closed. */
inline take_rest() {
    do
    :: receive();
        if
        :: kind == PAGE -> is_taken = true
        :: kind == PAGE /* there is no memory for it */
        :: else ->
            skip;
#if FAULT != 4
            close_handle(m)
#endif
        fi
    :: empty(packets) -> break
    od;
    kind = 0;
    m = 0
}

/* Of the points that were given out, those that are not open here. */
inline return_rest() {
    i = 0;
    do
    :: i == (is_taken -> given : 0) -> break
    :: else ->
        if
        :: !(is_open[i] && AT(i) == i) && !(POINTS < MESSAGES && is_open[MESSAGES - 1]) ->
            done[i] = FOR_EVER
        :: else
        fi;
        i++
    od;
    i = 0
}

inline end_receiving() {
#if FAULT != 10
    is_stopped = true;
#endif
    take_rest();
    return_rest();
    d_step {
        is_stopped = true;
        receiver_has_closed = true;
        discard_packets()
    }
}

active proctype receiver() {
    byte kind;
    byte m;
    byte i;
    {
        do
        :: receive();
            if
            :: kind == PAGE -> is_taken = true
            :: kind == PAGE -> break /* there is no memory for it */
            :: else -> take_in(m)
            fi;
            d_step { kind = 0; m = 0 }
        :: is_open[0] -> give_back(0)
        :: is_open[1] -> give_back(1)
        :: exporter_has_closed && empty(packets) -> break
        :: break /* it has enough */
        od;
        end_receiving();
        give_back(0);
        give_back(1)
    } unless { receiver_is_killed }
}

/* When all that can happen has happened. */
active proctype watcher() {
    byte i;
    timeout ->
    do
    :: i == MESSAGES -> break
    :: else ->
        assert(handle[i] == NONE || handle[i] == CLOSED);
        i++
    od;
    assert(used_up <= 1)
}
