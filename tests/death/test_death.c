/* SPDX-License-Identifier: MIT */
/**
 * @file A process dies, or stands still, at each step of what two do with each other: at the steps of step_table.c, and at
 * the beginning and end of the library's functions in turn. Who is left has a typed error in time, and nothing of the other.
 * Row 3 of docs/reliability.md.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "child.h"
#include "conversation.h"
#include "device_memory.h"
#include "form.h"
#include "leak_gate.h"
#include "os.h"
#include "step.h"
#include "sync/monitor.h"
#include "unique.h"

/* For what nothing but a busy machine delays. */
#define PATIENCE_MS 60000
/* What a call may take beyond its deadline. */
#define LATE_NS (UINT64_C(1000000) * form_choose(10 * DEATH_LATE_MS, DEATH_LATE_MS))
/* How soon everything is back. */
#define SOON_BACK_MS (1000 * DEATH_SLOWER)
/* The first time-out of a call while the other lives; the next is twice as long. And once it is known to be stopped. */
#define FIRST_MS 20
#define LAST_MS  5000
/* While it is known to be dead: who says that he waited so long has not seen it. */
#define DEAD_MS (100 * DEATH_SLOWER)
/* How often a trial is made again that was late, or whose step was not reached: on a busy machine either happens. What waits
 * for one that is gone does so each time. */
#define TRIES 6

/* How many handles who dies while it sends may leave here: those of a packet, and its page's. */
#define LEAVES_MOST (OS_PACKET_HANDLES_MAX + 1)

#define LINES 4

TestSuite(death, .timeout = 10000);

typedef enum fate {
    LIVES,
    STANDS,
    GONE
} fate;

/* This process, in one trial. */
typedef struct survivor {
    talker as; /* the first member: what the conversation has */
    child_process *other;
    fate fate;      /* of the other, as far as known */
    fate fate_then; /* when the call began */
    uint64_t begun_ns;
    int next_ms;
    char lines[LINES][CHILD_LINE_MAX]; /* heard, and not asked for yet */
    unsigned line_count;
    char ticket[GPUIPC_TICKET_TEXT_SIZE]; /* of the other's, the last; "": none */
    uint64_t passed;                      /* what it said at its end */
    bool goes_on;                         /* what it is to do when it was stopped */
    bool leaves_handles;                  /* it was sending some just then (step.h) */
    bool is_parted;                       /* it has come to its end, */
    bool is_reached;                      /* and to its step */
    bool is_late;
    char late[256]; /* which call, and by how much; or what was not back */
} survivor;

/* What all trials of one test share. */
typedef struct death_case {
    int side; /* of the process that dies */
    char directory[RUNTIME_DIRECTORY_MAX];
    gpuipc_context *context;
    bool is_warm;    /* it has made what a context keeps */
    bool is_alone;   /* so that nobody else uses the device: GPUIPC_DEATH_ALONE */
    uint64_t memory; /* of the device, in use before the trial */
    const char *now; /* which step */
    uint64_t trials;
    uint64_t unreached;
    uint64_t late;
} death_case;

/* ---- the other process -------------------------------------------------------------------------- */

static void note_line(survivor *self, const char *line) {
    if (strcmp(line, "stops") == 0) {
        self->fate = STANDS;
    } else if (strcmp(line, "leaves handles") == 0) {
        self->leaves_handles = true;
    } else if (sscanf(line, "passed %" SCNu64, &self->passed) != 1) {
        cr_assert_lt(self->line_count, LINES);
        (void)snprintf(self->lines[self->line_count++], CHILD_LINE_MAX, "%s", line);
    }
}

/* Looks what has become of it, for so long at most or until it says something. */
static void look(survivor *self, int timeout_ms) {
    char line[CHILD_LINE_MAX];
    if (self->fate != LIVES) {
        return;
    }
    const gpuipc_status status = child_read_line(self->other, line, sizeof(line), timeout_ms);
    if (status == GPUIPC_OK) {
        note_line(self, line);
    } else if (status == GPUIPC_ERR_PEER_CLOSED) {
        check_ok(child_wait(self->other, PATIENCE_MS, NULL));
        self->fate = GONE;
    }
}

static bool hear(talker *base, char *line, size_t capacity) {
    survivor *self = (survivor *)base;
    const os_deadline deadline = os_deadline_after(PATIENCE_MS);
    while (self->line_count == 0 && self->fate == LIVES) {
        cr_assert_not(os_deadline_passed(deadline), "the other says nothing");
        look(self, 100);
    }
    if (self->line_count == 0) {
        return false;
    }
    (void)snprintf(line, capacity, "%s", self->lines[0]);
    if (strncmp(line, "gpuipc1:", strlen("gpuipc1:")) == 0) {
        (void)snprintf(self->ticket, sizeof(self->ticket), "%s", line);
    }
    self->line_count--;
    memmove(self->lines[0], self->lines[1], self->line_count * sizeof(self->lines[0]));
    return true;
}

static void say(talker *base, const char *line) {
    survivor *self = (survivor *)base;
    (void)child_write_line(self->other, line); /* it may be gone */
}

/* ---- calls -------------------------------------------------------------------------------------- */

static void begin(talker *base) {
    survivor *self = (survivor *)base;
    look(self, 0);
    self->fate_then = self->fate;
    base->timeout_ms = self->fate == LIVES  ? self->next_ms
                       : self->fate == GONE ? DEAD_MS
                                            : FIRST_MS;
    self->begun_ns = os_clock_ns();
}

static bool is_typed(gpuipc_status status) {
    switch (status) {
    case GPUIPC_ERR_TIMEOUT:
    case GPUIPC_ERR_PEER_CLOSED:
    case GPUIPC_ERR_EXPORTER_GONE:
    case GPUIPC_ERR_NOT_FOUND:
    case GPUIPC_ERR_LOST:
        return true;
    default:
        return false;
    }
}

static bool is_call(const char *call, const char *name) {
    return strncmp(call, name, strlen(name)) == 0;
}

/* Whether it waits for whoever comes, and not for the one that is gone: a loan that nobody has taken stays lent. */
static bool waits_for_anybody(const char *call) {
    return is_call(call, "gpuipc_listener_accept") ||
           (is_call(call, "gpuipc_buffer_await_loan") &&
            strstr(gpuipc_error_get()->sentence, "taken by nobody") != NULL);
}

/* Whether it waited its time out for the process that is gone. */
static bool waited_for_dead(const survivor *self, const char *call) {
    return self->as.status == GPUIPC_ERR_TIMEOUT && self->fate_then == GONE &&
           !waits_for_anybody(call);
}

/* What is another answer a little later. A process that is being killed has lost its connections before it is gone, and until
 * then nobody can tell it from a server that closes what it has let in. */
static bool may_change(gpuipc_status status) {
    return status == GPUIPC_ERR_TIMEOUT || status == GPUIPC_ERR_SERVER_BUSY;
}

static bool again(talker *base, const char *call) {
    survivor *self = (survivor *)base;
    const uint64_t took_ns = os_clock_ns() - self->begun_ns;
    const uint64_t deadline_ns = (uint64_t)base->timeout_ms * UINT64_C(1000000);
    if (took_ns > deadline_ns + LATE_NS && !self->is_late) {
        self->is_late = true;
        (void)snprintf(self->late, sizeof(self->late), "%.100s: %" PRIu64 " ms, %d were given",
                       call, took_ns / 1000000, base->timeout_ms);
    }
    if (base->status == GPUIPC_OK) {
        self->next_ms = FIRST_MS;
        return false;
    }
    cr_assert_eq(gpuipc_error_get()->status, base->status);
    cr_assert_str_not_empty(gpuipc_error_get()->sentence);
    if (may_change(base->status) && self->fate_then == LIVES) {
        self->next_ms = self->next_ms < LAST_MS ? 2 * self->next_ms : LAST_MS;
        return true;
    }
    cr_assert(is_typed(base->status), "%s: %s", call, gpuipc_error_text());
    if (waited_for_dead(self, call)) {
        self->is_late = true;
        (void)snprintf(self->late, sizeof(self->late), "%.100s waited for a process that is gone",
                       call);
    }
    return false;
}

/* ---- afterwards --------------------------------------------------------------------------------- */

/* The other reaches its step after all that this one has to do with it, or ends by itself. */
static void await_fate(survivor *self) {
    const os_deadline deadline = os_deadline_after(PATIENCE_MS);
    child_close_input(self->other);
    while (self->fate == LIVES && !os_deadline_passed(deadline)) {
        look(self, 100);
    }
    cr_assert_neq(self->fate, LIVES, "the other hangs");
}

/* It has said that it stops, and may do so later than it is told to go on: so it is told until it ends. */
static void await_end(survivor *self) {
    const os_deadline deadline = os_deadline_after(PATIENCE_MS);
    do {
        cr_assert_not(os_deadline_passed(deadline), "who was stopped does not come to an end");
        child_continue(self->other);
    } while (child_wait(self->other, 1, NULL) == GPUIPC_ERR_TIMEOUT);
}

/* Who was stopped goes on, and comes to an end of its own; or it dies. */
static void part(talker *base) {
    survivor *self = (survivor *)base;
    child_end end = {.exited = false};
    if (self->is_parted) {
        return;
    }
    self->is_parted = true;
    await_fate(self);
    const bool was_stopped = self->fate == STANDS;
    if (was_stopped && self->goes_on) {
        await_end(self);
    } else if (was_stopped) {
        child_kill(self->other);
    }
    check_ok(child_wait(self->other, PATIENCE_MS, &end));
    child_destroy(self->other);
    self->is_reached = was_stopped || !end.exited;
    cr_assert(self->is_reached || end.code == 0 || end.code == 3, "the other ended with %d",
              end.code);
    self->fate = GONE;
}

/* The name is free, and its next owner can be talked to. */
static void use_name(const death_case *of, const char *name) {
    gpuipc_listener *listener;
    gpuipc_connection *near_end;
    gpuipc_connection *far_end;
    check_ok(gpuipc_listener_open(of->context, name, NULL, &listener));
    check_ok(gpuipc_connection_open(of->context, name, NULL, PATIENCE_MS, &near_end));
    check_ok(gpuipc_listener_accept(listener, PATIENCE_MS, &far_end));
    check_ok(gpuipc_connection_close(near_end));
    check_ok(gpuipc_connection_close(far_end));
    check_ok(gpuipc_listener_close(listener));
}

/* The connection to a server that is gone ends with the next question to it, or to any. */
static void ask_again(const death_case *of, const survivor *self) {
    gpuipc_ticket ticket;
    gpuipc_buffer *opened;
    if (self->ticket[0] != '\0') {
        check_ok(gpuipc_ticket_from_text(self->ticket, &ticket));
        check_status(GPUIPC_ERR_EXPORTER_GONE,
                     gpuipc_buffer_open(of->context, &ticket, NULL, &opened));
    }
}

/* Calls that may work off what waits for the devices; and a server, which removes the files of those that are gone. */
static void tidy(const death_case *of) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 4096};
    gpuipc_buffer *buffer;
    gpuipc_server *server;
    check_ok(gpuipc_buffer_create(of->context, &config, &buffer));
    check_ok(gpuipc_buffer_await_returns(buffer, 0));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_server_create(of->context, NULL, &server));
    check_ok(gpuipc_server_destroy(server));
}

/* 0 where others use the device as well. */
static uint64_t used_memory(const death_case *of) {
    uint64_t bytes = 0;
    cr_assert(!of->is_alone || device_memory_get_used(&bytes));
    return bytes;
}

/* Whether nothing is left of the other, so soon. */
static bool is_all_back(const death_case *of, leak_gate *gate, int timeout_ms) {
    const os_deadline deadline = os_deadline_after(timeout_ms);
    bool is_last = false;
    for (;;) {
        tidy(of);
        if (leak_gate_look(gate) == 0 && used_memory(of) <= of->memory) {
            break;
        }
        if (is_last || !of->is_warm) {
            return false;
        }
        monitor_dismiss(
            MONITOR_FREES); /* its thread's handle is there until it is joined (Windows) */
        os_sleep_ms(1);
        is_last = os_deadline_passed(deadline);
    }
    return runtime_directory_count(of->directory) <= 1; /* the lock of the directory */
}

/* What comes back later than it may is late; what does not, was left behind. */
static void check_all_back(const death_case *of, survivor *self, leak_gate *gate) {
    if (self->leaves_handles && !self->goes_on) {
        leak_gate_take_handles(gate, LEAVES_MOST);
    }
    if (is_all_back(of, gate, SOON_BACK_MS) || !of->is_warm) {
        return;
    }
    self->is_late = true;
    (void)snprintf(self->late, sizeof(self->late), "not back in time: %.200s", gate->text);
    cr_assert(is_all_back(of, gate, PATIENCE_MS), "%s: %s", of->now, gate->text);
}

/* ---- a trial ------------------------------------------------------------------------------------ */

typedef struct death_trial {
    int number;   /* of the step; -1: the nth time that any function is passed */
    uint64_t nth; /* 0: never */
    step_fate fate;
    bool goes_on; /* who was stopped */
} death_trial;

static void start_other(const death_case *of, const death_trial *what, const char *name,
                        survivor *self) {
    char side[16];
    char number[16];
    char nth[24];
    const char *arguments[] = {of->directory, name, side, what->fate == STEP_STOP ? "stop" : "die",
                               number,        nth,  NULL};
    (void)snprintf(side, sizeof(side), "%d", of->side);
    (void)snprintf(number, sizeof(number), "%d", what->number);
    (void)snprintf(nth, sizeof(nth), "%" PRIu64, what->nth);
    /* LeakSanitizer stops its own process by ptrace, and who tells a stopped one to go on again and again undoes that. */
    const char *const alone[] = {"ASAN_OPTIONS=detect_leaks=0", NULL};
    check_ok(child_start("death_helper", arguments, what->fate == STEP_STOP ? alone : NULL,
                         &self->other));
}

static survivor survivor_of(const death_case *of, const char *name) {
    return (survivor){.as = {.context = of->context,
                             .name = name,
                             .begin = begin,
                             .again = again,
                             .say = say,
                             .hear = hear,
                             .part = part},
                      .next_ms = FIRST_MS};
}

/* @return whether the step was reached, and no call was late */
static bool try_once(death_case *of, const death_trial *what, survivor *self) {
    char name[UNIQUE_NAME_MAX];
    leak_gate gate;
    of->memory = used_memory(of);
    leak_gate_begin(&gate);
    unique_name(name);
    *self = survivor_of(of, name);
    self->goes_on = what->goes_on;
    start_other(of, what, name, self);
    (void)conversation_sides[of->side ^ 1].play(&self->as);
    part(&self->as);
    use_name(of, name);
    ask_again(of, self);
    check_all_back(of, self, &gate);
    (void)leak_gate_end(&gate);
    of->trials++;
    of->unreached += !self->is_reached;
    of->late += self->is_late;
    return self->is_reached && !self->is_late;
}

static void try(death_case *of, const death_trial *what, const char *name) {
    survivor self;
    of->now = name;
    for (int i = 0; i < TRIES; i++) {
        if (try_once(of, what, &self)) {
            return;
        }
    }
    cr_assert_not(self.is_late, "%s: %s", name, self.late);
    cr_assert_fail("%s: not reached", name);
}

/* ---- all of them --------------------------------------------------------------------------------- */

static void case_begin(death_case *self, int side) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = self->directory};
    *self = (death_case){.side = side, .is_alone = os_environment("GPUIPC_DEATH_ALONE") != NULL};
    cr_assert(runtime_directory_make(self->directory));
    check_ok(gpuipc_context_create(&config, &self->context));
}

static void case_end(death_case *self) {
    cr_log_info("%s: %" PRIu64 " trials, %" PRIu64
                " made again because something was late, %" PRIu64
                " because the step was not reached",
                conversation_sides[self->side].name, self->trials, self->late, self->unreached);
    check_ok(gpuipc_context_destroy(self->context));
    runtime_directory_remove(self->directory);
}

/* How often each step that has a name is taken. GPUIPC_DEATH_TIMES makes the full form smaller: a thousand take hours. */
static uint64_t times_of_each(void) {
    const char *given = os_environment("GPUIPC_DEATH_TIMES");
    return given != NULL ? strtoull(given, NULL, 10) : form_choose(1, 1000);
}

static void try_named(death_case *of) {
    const uint64_t times = times_of_each();
    for (int i = 0; step_table[i].name != NULL; i++) {
        for (uint64_t k = 0; step_table[i].side == of->side && k < times; k++) {
            const death_trial dies = {.number = i, .fate = STEP_DIE};
            const death_trial stops = {.number = i, .fate = STEP_STOP, .goes_on = k % 2 == 1};
            try(of, &dies, step_table[i].name);
            try(of, &stops, step_table[i].name);
        }
    }
}

/* In the full form each time that a function is passed, else some: how often they are is not always the same, so that the
 * last ones may not be reached. */
static void try_all(death_case *of, uint64_t passed) {
    const uint64_t times = times_of_each();
    const uint64_t stride = times < 1000 ? passed / (DEATH_PARTS * times) + 1 : 1;
    for (uint64_t n = 1; n <= passed; n += stride) {
        survivor self;
        char name[64];
        const death_trial what = {.number = -1,
                                  .nth = n,
                                  .fate = n / stride % 4 == 3 ? STEP_STOP : STEP_DIE,
                                  .goes_on = n / stride % 8 == 3};
        (void)snprintf(name, sizeof(name), "function passed for the %" PRIu64 "th time", n);
        of->now = name;
        for (int i = 0; i < TRIES && !try_once(of, &what, &self) && self.is_late; i++) {
        }
        cr_assert_not(self.is_late, "%s: %s", name, self.late);
    }
}

static void try_side(int side) {
    const death_trial never = {.number = -1};
    death_case of;
    survivor self;
    case_begin(&of, side);
    for (int i = 0; i < 2; i++) {
        (void)try_once(&of, &never, &self);
        of.is_warm = true;
    }
    cr_assert_gt(self.passed, 100);
    const uint64_t passed = self.passed;
    try_all(&of, passed);
    try_named(&of);
    case_end(&of);
}

Test(death, of_a_listener) {
    try_side(SIDE_LISTENER);
}

Test(death, of_who_connects) {
    try_side(SIDE_CONNECTOR);
}

Test(death, of_a_server) {
    try_side(SIDE_SERVER);
}

Test(death, of_who_opens_tickets) {
    try_side(SIDE_OPENER);
}

Test(death, of_who_receives_contents_first) {
    try_side(SIDE_CONTENTS_LISTENER);
}

Test(death, of_who_sends_contents_first) {
    try_side(SIDE_CONTENTS_CONNECTOR);
}

Test(death, of_a_lender) {
    try_side(SIDE_LENDER);
}

Test(death, of_a_borrower) {
    try_side(SIDE_BORROWER);
}

Test(death, of_a_channels_writer) {
    try_side(SIDE_WRITER);
}

Test(death, of_a_channels_reader) {
    try_side(SIDE_READER);
}

/* ---- what is planted is seen ---------------------------------------------------------------------- */

Test(death, what_is_left_behind_is_seen) {
    death_case of;
    leak_gate gate;
    os_handle left;
    case_begin(&of, SIDE_LISTENER);
    tidy(&of); /* it makes what a context keeps */
    of.is_warm = true;
    of.memory = used_memory(&of);
    leak_gate_begin(&gate);
    cr_assert(is_all_back(&of, &gate, SOON_BACK_MS));
    check_ok(os_memory_create("left", 4096, &left));
    cr_assert_not(is_all_back(&of, &gate, SOON_BACK_MS));
    os_handle_close(&left);
    cr_assert(is_all_back(&of, &gate, SOON_BACK_MS));
    (void)leak_gate_end(&gate);
    case_end(&of);
}

Test(death, a_call_that_is_late_is_seen) {
    death_case of;
    case_begin(&of, SIDE_LISTENER);
    survivor self = survivor_of(&of, "");
    self.fate = STANDS;
    begin(&self.as);
    cr_assert_eq(self.as.timeout_ms, FIRST_MS);
    self.as.status = GPUIPC_OK;
    (void)again(&self.as, "in time");
    cr_assert_not(self.is_late);
    begin(&self.as);
    self.begun_ns -= (uint64_t)FIRST_MS * 1000000 + LATE_NS;
    (void)again(&self.as, "late");
    cr_assert(self.is_late);
    case_end(&of);
}

Test(death, a_call_that_waits_for_who_is_gone_is_seen) {
    death_case of;
    char name[UNIQUE_NAME_MAX];
    gpuipc_listener *listener;
    gpuipc_connection *nobody = NULL;
    case_begin(&of, SIDE_LISTENER);
    unique_name(name);
    check_ok(gpuipc_listener_open(of.context, name, NULL, &listener));
    survivor self = survivor_of(&of, name);
    self.fate = GONE;
    begin(&self.as);
    self.as.status = gpuipc_listener_accept(listener, 0, &nobody);
    check_status(GPUIPC_ERR_TIMEOUT, self.as.status);
    cr_assert_not(again(&self.as, "gpuipc_listener_accept")); /* it waits for whoever comes */
    cr_assert_not(self.is_late);
    cr_assert_not(again(&self.as, "gpuipc_connection_receive"));
    cr_assert(self.is_late);
    check_ok(gpuipc_listener_close(listener));
    case_end(&of);
}
