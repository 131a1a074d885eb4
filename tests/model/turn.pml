/* SPDX-License-Identifier: MIT */
/*
 * Turns at the one slot of a channel, for SPIN: graphs of a writer and of a reader, each launched LAUNCHES times, put the same
 * words at each launch (docs/channels.md, "In a graph"). Streams write the low halves and wait for the whole words. Each
 * process may be killed before any step, or close; its streams end with it. Checked:
 *   - no slot is read while it is written, and none that is not ready, unless the reader was let go;
 *   - no turn is read twice, and none is lost, while both are there;
 *   - who is let go stays so: no stream waits for ever, however often it is launched, and though what lived beside a
 *     killed process (TAKES_BACK) writes into the page.
 *
 * FAULT plants a mistake, which the check must find:
 *   1: the other is told before what was awaited is set back
 *   2: streams write whole words, also the half that lets go
 *   3: the watch sets the half once, and looks no more
 *   4: the reader does not wait
 *   5: the writer closes without letting the reader go
 *   6: the writer sets its word back when it begins, and gives the loan up
 *   7: who has closed looks no more, while graphs that it launched before are on their way
 */
#ifndef FAULT
#define FAULT 0
#endif
#ifndef KILLED
#define KILLED 0 /* 0: nobody; 1: the writer; 2: the reader */
#endif
#ifndef CLOSES
#define CLOSES 0 /* 1: the reader does, at any time, and the writer takes back what lets it go */
#endif
#ifndef TAKES_BACK
#define TAKES_BACK 0
#endif
#define LAUNCHES 3

typedef word {
    bool is_said;   /* the low half */
    bool is_let_go; /* the high half */
};
word ready;
word free;

bool writer_is_gone; /* killed: as the system knows */
bool reader_is_gone;
bool reader_has_closed; /* what it has launched goes on */
bool writer_is_done; /* it has launched all that it launches */
bool reader_is_done;
bool is_written; /* by a stream of the writer's at this moment */
bool is_read;
byte made;  /* turns */
byte taken;

#define PASSES(w) (w.is_said || w.is_let_go)

inline write(w, value) {
    w.is_said = value;
    if
    :: FAULT == 2 -> w.is_let_go = false
    :: else
    fi
}

init {
    d_step { free.is_said = true }
    atomic {
        run writer();
        run reader();
        run watch_of_writer();
        run watch_of_reader();
#if KILLED != 0
        run killer()
#endif
#if CLOSES
        run closer()
#endif
    }
}

#if CLOSES
/* The reader's host, and then somebody who writes its page. */
proctype closer() {
    reader_has_closed = true;
    ready.is_let_go = true;
    free.is_let_go = true;
    d_step { ready.is_said = false; ready.is_let_go = false }
    d_step { ready.is_said = false; ready.is_let_go = false }
}
#endif

#if KILLED != 0
/* What else has the page may live on: it takes back twice what lets streams go. */
proctype killer() {
#if KILLED == 1
    writer_is_gone = true;
#if TAKES_BACK
    d_step { ready.is_said = false; ready.is_let_go = false }
    d_step { ready.is_said = false; ready.is_let_go = false }
#endif
#else
    reader_is_gone = true;
#if TAKES_BACK
    d_step { free.is_said = false; free.is_let_go = false }
    d_step { free.is_said = false; free.is_let_go = false }
#endif
#endif
}
#endif

proctype writer() {
    byte launch;
    {
        do
        :: launch == LAUNCHES -> break
        :: else ->
            (PASSES(free));
#if FAULT == 6
            if
            :: write(free, false); (PASSES(free)) /* that loan was given up, and is made again */
            :: true
            fi;
#endif
            is_written = true;
            assert(!is_read || reader_is_gone || reader_has_closed);
            made++;
            is_written = false;
#if FAULT == 1
            write(ready, true);
            write(free, false);
#else
            write(free, false);
            write(ready, true);
#endif
            launch++
        od;
        (PASSES(free) || reader_is_done); /* that what was published is read is the program's to see to */
        writer_is_done = true;
#if FAULT != 5
        ready.is_let_go = true
#endif
    } unless { writer_is_gone }
}

/* It is launched twice more than there are turns: those launches are let go. */
proctype reader() {
    byte launch;
    bool was_let_go;
    {
        do
        :: launch == LAUNCHES + 2 -> break
        :: else ->
#if FAULT != 4
            (PASSES(ready));
#endif
            /* as gpuipc_subscription_check() says, when the launch is done */
            was_let_go = was_let_go || ready.is_let_go || writer_is_gone;
            is_read = true;
            assert(!is_written || was_let_go || reader_has_closed);
            if
            :: !was_let_go -> taken++; assert(taken == made || reader_has_closed)
            :: else
            fi;
            is_read = false;
            write(ready, false);
            write(free, true);
            launch++
        od;
        reader_is_done = true;
        free.is_let_go = true;
        assert(taken == LAUNCHES || KILLED == 1 || CLOSES)
    } unless { reader_is_gone }
}

/* Each looks as long as there are graphs of its process that may be launched, or are on their way. */
proctype watch_of_writer() {
    do
    :: reader_is_gone && !free.is_let_go ->
        free.is_let_go = true;
        if
        :: FAULT == 3 -> break
        :: else
        fi
    :: writer_is_done || writer_is_gone -> break
    od
}

proctype watch_of_reader() {
    do
    :: (writer_is_gone || reader_has_closed) && !ready.is_let_go ->
        ready.is_let_go = true;
        if
        :: FAULT == 3 || (FAULT == 7 && reader_has_closed) -> break
        :: else
        fi
    :: reader_is_done || reader_is_gone -> break
    od
}
