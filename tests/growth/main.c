/* SPDX-License-Identifier: MIT */
/**
 * @file Each public call beside few objects and beside many: see growth.h, and row 11 of docs/reliability.md.
 *
 *     growth_calls [--population NAME] [--call PART] [--plant growth] [--plant missing]
 *
 * Worlds of one population live at the same time and take turns, so that what the machine does meanwhile meets all of them.
 * What counts is the fastest row of each. A cell that is over the bound has more turns before it is judged: what is busy
 * makes a row slower now and then, and what grows makes each row slower.
 *
 * Exit code 0: each cell is within its bound; 1: one is not, a public function is not in the tables, or a call failed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "form.h"
#include "growth.h"
#include "growth_functions.h"
#include "handle_limit.h"
#include "helper.h"
#include "process_size.h"
#include "thread_time.h"

#define SIZES       4
#define CALLS_MOST  160u
#define IN_ROW_MOST 256u
/* What each size is given for one turn, how many turns there are, and how many times as many while a cell is over its bound.
 * Where a process has its memory makes some calls slower or faster, for as long as it lives: so such a cell is measured again
 * in new worlds. */
#define TURN_SHORT_NS  500000
#define TURN_FULL_NS   2000000
#define TURNS_SHORT    3
#define TURNS_FULL     12
#define MORE_TURNS     3u
#define WORLDS_SHORT   3
#define WORLDS_FULL    5
#define HANDLES_WANTED UINT64_C(65536)
/* How much longer it may take: so many times, and so much besides. The short form runs beside other tests, and with a hundred
 * times as many objects what grows takes many times as long. In the full form it is what a look at memory that is in no cache
 * costs: where a cell needs that, it says so. */
#define TIMES_SHORT    3.0
#define TIMES_FULL     1.3
#define SLACK_SHORT_NS 5000.0
#define SLACK_FULL_NS  50.0

/* ---- what is known to grow --------------------------------------------------------------------------------- */

/* By so many times, and by so much for each one of the population, at most. The figures are those of the full form, with
 * room for a slower machine; the short form has its own slack besides. */
typedef struct excuse {
    const char *population;
    const char *function;
    double times;
    double each_ns;
    const char *reason;
} excuse;

#define EACH_PROCESS                                                                               \
    "each process that has memory of the context open has words of its own (docs/adr/0012)"
#define COLD                                                                                       \
    "lending comes before it and looks at words of all clients, so that the caches have other things"
#define LOOKS_AT_64 "up to 64 hand-overs of the buffer are looked at"
#define DESCRIPTORS "it counts this process's descriptors"

static const excuse excuses[] = {
    {"clients", "gpuipc_buffer_mark", 0, 5000, EACH_PROCESS},
    {"clients", "gpuipc_buffer_lend", 0, 5000, EACH_PROCESS},
    {"clients", "gpuipc_buffer_lend_ready", 0, 500, EACH_PROCESS},
    {"clients", "gpuipc_buffer_cancel_loan", 0, 500, EACH_PROCESS},
    {"clients", "gpuipc_buffer_get_loan_states", 0, 500, EACH_PROCESS},
    {"clients", "gpuipc_buffer_await_loan", 0, 500, EACH_PROCESS},
    {"clients", "gpuipc_buffer_await_loan_async", 0, 500, EACH_PROCESS},
    {"clients", "gpuipc_buffer_return_loan_async", 3, 0, COLD},
    {"handed", "gpuipc_buffer_get_info", 2.5, 0, LOOKS_AT_64},
    {"handed", "gpuipc_buffer_await_returns", 2.5, 0, LOOKS_AT_64},
    {"clients", "gpuipc_buffer_get_info", 2.5, 0, LOOKS_AT_64},
    {"clients", "gpuipc_buffer_await_returns", 2.5, 0, LOOKS_AT_64},
    {"created", "gpuipc_diagnose", 0, 2500, DESCRIPTORS},
    {"clients", "gpuipc_diagnose", 0, 5000, DESCRIPTORS},
    {"connections", "gpuipc_diagnose", 0, 5000, DESCRIPTORS},
    {NULL, NULL, 0, 0, NULL},
};

static const excuse *excuse_of(const growth_population *population, const growth_call *call) {
    for (size_t i = 0; excuses[i].population != NULL; i++) {
        const excuse *one = &excuses[i];
        if (strcmp(one->population, population->name) == 0 &&
            strcmp(one->function, call->function) == 0) {
            return one;
        }
    }
    return NULL;
}

/* ---- the tables ------------------------------------------------------------------------------------------- */

static bool plants_growth;

const growth_call *growth_call_at(size_t index) {
    const growth_calls *const all[] = {&growth_buffer_calls,  &growth_loan_calls,
                                       &growth_message_calls, &growth_ticket_calls,
                                       &growth_other_calls,   &growth_planted_calls};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (index < all[i]->count) {
            return &all[i]->calls[index];
        }
        index -= all[i]->count;
    }
    return NULL;
}

static bool is_public(const char *name) {
    bool found = false;
    for (size_t i = 0; i < GROWTH_FUNCTIONS && !found; i++) {
        found = strcmp(growth_functions[i], name) == 0;
    }
    return found;
}

static bool has_call(const char *function) {
    bool found = false;
    for (size_t i = 0; !found && growth_call_at(i) != NULL; i++) {
        found = strcmp(growth_call_at(i)->function, function) == 0;
    }
    return found;
}

static bool check_function(const char *name) {
    if (!has_call(name)) {
        (void)fprintf(stderr, "growth.calls: %s is in no table of calls\n", name);
        return false;
    }
    return true;
}

/* Each public function has a call, and each call is one of a public function. */
static bool check_tables(bool plants_missing) {
    bool complete = !plants_missing || check_function("gpuipc_planted");
    for (size_t i = 0; i < GROWTH_FUNCTIONS; i++) {
        complete = check_function(growth_functions[i]) && complete;
    }
    for (size_t i = 0; growth_call_at(i) != NULL; i++) {
        const growth_call *const call = growth_call_at(i);
        if (!is_public(call->function) && strcmp(call->function, "planted") != 0) {
            (void)fprintf(stderr, "growth.calls: %s is no public function\n", call->function);
            complete = false;
        }
        if ((call->act == NULL) != (call->why_not != NULL)) {
            (void)fprintf(stderr, "growth.calls: %s is timed, or a reason says why not\n",
                          call->function);
            complete = false;
        }
    }
    return complete;
}

/* ---- a world, in a process of its own ------------------------------------------------------------------------ */

static void each(void (*step)(unsigned i), unsigned from, unsigned to) {
    for (unsigned i = from; step != NULL && i < to; i++) {
        step(i);
    }
}

/* What prepares a row may leave other things in the caches, and threads asleep: so the first one is not timed, if there are
 * more. */
static double row_ns(const growth_call *of, unsigned in_row) {
    const unsigned first = in_row > 1 ? 1 : 0;
    each(of->prepare, 0, in_row);
    each(of->act, 0, first);
    const uint64_t begun_ns = thread_time_ns();
    each(of->act, first, in_row);
    const uint64_t took_ns = thread_time_ns() - begun_ns;
    each(of->undo, 0, in_row);
    return (double)took_ns / (in_row - first);
}

double growth_time(const growth_call *of, uint64_t budget_ns) {
    const unsigned usual = of->prepare != NULL || of->undo != NULL ? GROWTH_ITEMS : IN_ROW_MOST;
    const unsigned in_row = of->in_row != 0 ? of->in_row : usual;
    const uint64_t end_ns = os_clock_ns() + budget_ns;
    double least_ns = row_ns(of, in_row);
    while (os_clock_ns() < end_ns) {
        const double took_ns = row_ns(of, in_row);
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    return least_ns;
}

/* growth_calls world POPULATION COUNT. Lines: the number of a call, and nanoseconds of a turn. */
static int run_world(char **arguments) {
    char line[CHILD_LINE_MAX];
    process_size size;
    size_t index = 0;
    uint64_t budget_ns = 0;
    helper_begin();
    const growth_population *const population = growth_population_named(arguments[0]);
    world.count = (uint32_t)strtoul(arguments[1], NULL, 10);
    (void)handle_limit_raise(HANDLES_WANTED);
    growth_world_begin();
    population->begin();
    if (!process_size_get(&size)) {
        growth_fail("the size of this process is not known");
    }
    helper_say("handles %" PRIu64 " mappings %" PRIu64 " KiB %" PRIu64, size.handles, size.mappings,
               size.resident_bytes / 1024);
    while (helper_hear(line, sizeof(line))) {
        if (sscanf(line, "%zu %" SCNu64, &index, &budget_ns) != 2) {
            growth_fail("not understood: %s", line);
        }
        helper_say("%.3f", growth_time(growth_call_at(index), budget_ns));
    }
    population->end();
    growth_world_end();
    return 0;
}

/* ---- comparing --------------------------------------------------------------------------------------------- */

typedef struct column {
    uint32_t count;
    child_process *process;
} column;

typedef struct cell {
    double ns[SIZES]; /* of the fastest row in any world of that size; 0: none yet */
} cell;

typedef struct table {
    const growth_population *population;
    column columns[SIZES];
    unsigned sizes;
    cell cells[CALLS_MOST];
} table;

static struct {
    const char *population;
    const char *call;
    bool plants_missing;
} options;

static struct {
    uint32_t cells;
    uint32_t slight; /* over the bound by no more than the slack */
    uint32_t excused;
    uint32_t over;
} totals;

static bool is_chosen(const growth_call *call) {
    const bool is_planted = strcmp(call->function, "planted") == 0;
    return call->act != NULL && is_planted == plants_growth &&
           (options.call == NULL || strstr(call->function, options.call) != NULL);
}

static void hear_line(child_process *from, char line[CHILD_LINE_MAX]) {
    MUST(child_read_line(from, line, CHILD_LINE_MAX, (int)form_choose(300000, 3600000)));
}

/* As many sizes as there can be objects. */
static void choose_sizes(table *self, uint64_t handles) {
    static const uint32_t counts[SIZES] = {10, 1000, 10000, 50000};
    const unsigned sizes = form_is_full() ? SIZES : 2;
    const uint32_t most = self->population->most(handles);
    bool more = true;
    while (more && self->sizes < sizes) {
        const uint32_t wanted = counts[self->sizes];
        self->columns[self->sizes].count = wanted < most ? wanted : most;
        self->sizes++;
        more = wanted < most;
    }
    if (!more) {
        (void)printf("growth.calls: %s: %u at most, not %u: %s\n", self->population->name,
                     self->columns[self->sizes - 1].count, counts[sizes - 1],
                     self->population->why);
    }
}

/* The C library returns large pieces to the system or keeps them, as it happens; what a call costs would depend on that. And
 * the GPU has memory for all of them. */
static const char *const environment[] = {
    "MALLOC_TRIM_THRESHOLD_=1073741824", "MALLOC_MMAP_THRESHOLD_=1073741824",
    "MALLOC_TOP_PAD_=1048576", "GPUIPC_EMULATED_MACHINE=memory=1024G", NULL};

static void begin_worlds(table *self, bool says) {
    char line[CHILD_LINE_MAX];
    char count[16];
    const char *const arguments[] = {"world", self->population->name, count, NULL};
    for (unsigned i = 0; i < self->sizes; i++) {
        (void)snprintf(count, sizeof(count), "%u", self->columns[i].count);
        MUST(child_start(GROWTH_PROGRAM, arguments, environment, &self->columns[i].process));
        hear_line(self->columns[i].process, line);
        if (says) {
            (void)printf("growth.calls: beside %u %s: %s\n", self->columns[i].count,
                         self->population->what, line);
            (void)fflush(stdout);
        }
    }
}

static void end_worlds(table *self) {
    for (unsigned i = 0; i < self->sizes; i++) {
        growth_peer_end(self->columns[i].process);
    }
}

static void take_turn(table *self, size_t index) {
    double *const best_ns = self->cells[index].ns;
    char line[CHILD_LINE_MAX];
    char command[64];
    (void)snprintf(command, sizeof(command), "%zu %" PRIu64, index,
                   form_choose(TURN_SHORT_NS, TURN_FULL_NS));
    for (unsigned i = 0; i < self->sizes; i++) {
        MUST(child_write_line(self->columns[i].process, command));
        hear_line(self->columns[i].process, line);
        const double took_ns = strtod(line, NULL);
        best_ns[i] = took_ns < best_ns[i] || best_ns[i] == 0 ? took_ns : best_ns[i];
    }
}

/* The largest of how many times as long it takes beside more. */
static double growth_of(const table *self, const double ns[SIZES]) {
    double most = 0;
    for (unsigned i = 1; i < self->sizes; i++) {
        most = ns[i] / ns[0] > most ? ns[i] / ns[0] : most;
    }
    return most;
}

static bool is_within(const table *self, size_t index, const excuse *known) {
    const double *const ns = self->cells[index].ns;
    const double slack_ns = form_is_full() ? SLACK_FULL_NS : SLACK_SHORT_NS;
    double times = form_is_full() ? TIMES_FULL : TIMES_SHORT;
    bool within = ns[0] > 0;
    if (known != NULL) {
        times = known->times > times ? known->times : times;
    }
    for (unsigned i = 1; i < self->sizes; i++) {
        const double each_ns = known != NULL ? known->each_ns : 0;
        within = within && ns[i] <= times * ns[0] + slack_ns + each_ns * self->columns[i].count;
    }
    return within;
}

/* As it has to be, with its excuse. */
static bool is_in_order(const table *self, size_t index) {
    return is_within(self, index, excuse_of(self->population, growth_call_at(index)));
}

/* Few that take longer than more do were measured in a bad moment, and would hide what grows. */
static bool is_settled(const table *self, size_t index) {
    const double *const ns = self->cells[index].ns;
    const double slack_ns = form_is_full() ? SLACK_FULL_NS : SLACK_SHORT_NS;
    const double times = form_is_full() ? TIMES_FULL : TIMES_SHORT;
    bool fair = true;
    for (unsigned i = 1; i < self->sizes; i++) {
        fair = fair && ns[0] <= times * ns[i] + slack_ns;
    }
    return fair && is_in_order(self, index);
}

static void measure(table *self, size_t index) {
    const unsigned turns = (unsigned)form_choose(TURNS_SHORT, TURNS_FULL);
    for (unsigned i = 0; i < turns || (i < turns * MORE_TURNS && !is_settled(self, index)); i++) {
        take_turn(self, index);
    }
}

static const char *verdict_on(const table *self, size_t index) {
    const excuse *const known = excuse_of(self->population, growth_call_at(index));
    const double times = form_is_full() ? TIMES_FULL : TIMES_SHORT;
    totals.cells++;
    if (!is_within(self, index, NULL)) {
        const bool excused = is_within(self, index, known);
        totals.excused += excused;
        totals.over += !excused;
        return excused ? known->reason : "GROWS";
    }
    const bool slight = growth_of(self, self->cells[index].ns) > times;
    totals.slight += slight;
    return slight ? "slightly" : "";
}

static void say_cell(const table *self, size_t index) {
    const growth_call *const call = growth_call_at(index);
    const double *const ns = self->cells[index].ns;
    const char *const verdict = verdict_on(self, index);
    (void)printf("%-12s%-38s", self->population->name, call->function);
    for (unsigned i = 0; i < self->sizes; i++) {
        (void)printf(" %9.0f", ns[i]);
    }
    (void)printf(" ns, x %.2f%s%s%s%s\n", growth_of(self, ns), call->how != NULL ? "; " : "",
                 call->how != NULL ? call->how : "", verdict[0] != '\0' ? ": " : "", verdict);
    (void)fflush(stdout);
}

/* @return whether all cells are settled */
static bool measure_in_new_worlds(table *self, bool is_first, bool is_last) {
    bool settled = true;
    begin_worlds(self, is_first);
    for (size_t i = 0; growth_call_at(i) != NULL; i++) {
        if (is_chosen(growth_call_at(i)) && (is_first || !is_settled(self, i))) {
            measure(self, i);
            settled = settled && is_settled(self, i);
            if (is_last || is_settled(self, i)) {
                say_cell(self, i);
            }
        }
    }
    end_worlds(self);
    return settled;
}

static void run_table(const growth_population *population, uint64_t handles) {
    static table now;
    const unsigned most = (unsigned)form_choose(WORLDS_SHORT, WORLDS_FULL);
    bool settled = false;
    now = (table){.population = population};
    choose_sizes(&now, handles);
    for (unsigned i = 0; i < most && !settled; i++) {
        settled = measure_in_new_worlds(&now, i == 0, i + 1 == most);
    }
}

/* ---- the program ------------------------------------------------------------------------------------------- */

static void read_options(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *const value = argv[i + 1];
        if (strcmp(argv[i], "--population") == 0) {
            options.population = value;
        } else if (strcmp(argv[i], "--call") == 0) {
            options.call = value;
        } else if (strcmp(argv[i], "--plant") == 0 && strcmp(value, "growth") == 0) {
            plants_growth = true;
        } else if (strcmp(argv[i], "--plant") == 0 && strcmp(value, "missing") == 0) {
            options.plants_missing = true;
        } else {
            growth_fail("there is no argument \"%s %s\"", argv[i], value);
        }
    }
    if (argc % 2 == 0) {
        growth_fail("\"%s\" wants something after it", argv[argc - 1]);
    }
}

static int run_all(void) {
    const uint64_t handles = handle_limit_raise(HANDLES_WANTED);
    for (size_t i = 0; growth_population_at(i) != NULL; i++) {
        const growth_population *const population = growth_population_at(i);
        if (options.population == NULL || strcmp(options.population, population->name) == 0) {
            run_table(population, handles);
        }
    }
    (void)printf(
        "growth.calls: %u functions; %u cells, %u over by less than the slack, %u excused, "
        "%u grow\n",
        (unsigned)GROWTH_FUNCTIONS, totals.cells, totals.slight, totals.excused, totals.over);
    return totals.over == 0 && totals.cells > 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "world") == 0) {
        return run_world(argv + 2);
    }
    if (argc == 4 && strcmp(argv[1], "peer") == 0) {
        return growth_run_peer(argv + 2);
    }
    if (argc == 5 && strcmp(argv[1], "clients") == 0) {
        return growth_run_clients(argv + 2);
    }
    read_options(argc, argv);
    return check_tables(options.plants_missing) ? run_all() : 1;
}
