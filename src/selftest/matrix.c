/* SPDX-License-Identifier: MIT */
/** @file See matrix.h. In the manner of nvidia-smi topo -m and of nvbandwidth. */
#include "matrix.h"

#include <stdio.h>

#include "crew.h"
#include "doctor.h"
#include "program.h"
#include "role.h"
#include "run.h"
#include "transports.h"
#include "watchdog.h"

#define GIGA 1e9

#define ROW_COLUMNS  3
#define CELL_COLUMNS 9

/* What a cell shows of a way that could be measured. */
typedef double (*figure)(const report_way *way);

static double one_way(const report_way *way) {
    return (double)way->measured.one_way_bytes_per_second / GIGA;
}

static double both_ways(const report_way *way) {
    return (double)way->measured.both_ways_bytes_per_second / GIGA;
}

static double latency(const report_way *way) {
    return (double)way->measured.latency_ns / 1000.0;
}

static const report_way *find(const report *from, gpuipc_transport which, uint32_t owner,
                              uint32_t user) {
    for (size_t i = 0; i < from->way_count; i++) {
        const report_way *way = &from->ways[i];
        if (way->info.transport == which && way->owner == owner && way->user == user) {
            return way;
        }
    }
    return NULL;
}

static double wrong_words(const report_way *way) {
    return (double)way->measured.wrong_words;
}

static void print_cell(const report *from, const report_way *way, figure of) {
    if (way == NULL) {
        report_say(from, " %*s", CELL_COLUMNS, "");
    } else if (!way->info.available) {
        report_say(from, " %*s", CELL_COLUMNS, "-");
    } else if (of == wrong_words) {
        report_say(from, " %*.0f", CELL_COLUMNS, wrong_words(way));
    } else if (way->failure[0] != '\0') {
        report_say(from, " %*s", CELL_COLUMNS, "FAIL");
    } else if (of(way) <= 0) {
        report_say(from, " %*s", CELL_COLUMNS, ".");
    } else {
        report_say(from, " %*.1f", CELL_COLUMNS, of(way));
    }
}

/* So many devices stand beside each other; the others below, with the rows once more. */
static uint32_t columns_at_once(uint32_t count) {
    const unsigned columns = program_columns();
    const unsigned room = columns > ROW_COLUMNS ? (columns - ROW_COLUMNS) / (CELL_COLUMNS + 1) : 0;
    return columns == 0 || room >= count ? count : room > 0 ? room : 1;
}

/* Of the users from @p first on, as many as fit. */
static void print_part(const options *wanted, gpuipc_transport which, figure of, uint32_t first) {
    const report *from = wanted->report;
    const uint32_t count = (uint32_t)from->device_count;
    const uint32_t fit = columns_at_once(count);
    const uint32_t end = count - first < fit ? count : first + fit;
    report_say(from, "%*s", ROW_COLUMNS, "");
    for (uint32_t user = first; user < end; user++) {
        if (run_is_chosen(wanted->peer, user)) {
            report_say(from, " %*u", CELL_COLUMNS, user);
        }
    }
    report_say(from, "\n");
    for (uint32_t owner = 0; owner < count; owner++) {
        if (!run_is_chosen(wanted->device, owner)) {
            continue;
        }
        report_say(from, "%*u", ROW_COLUMNS, owner);
        for (uint32_t user = first; user < end; user++) {
            if (run_is_chosen(wanted->peer, user)) {
                print_cell(from, find(from, which, owner, user), of);
            }
        }
        report_say(from, "\n");
    }
}

static void print_matrix(const options *wanted, gpuipc_transport which, const char *heading,
                         figure of) {
    const report *from = wanted->report;
    const uint32_t count = (uint32_t)from->device_count;
    report_say(from, "\n%s, %s%s\n", gpuipc_transport_name(which), heading,
               from->driver.is_emulated ? " (emulated)" : "");
    if (wanted->peer != DEVICE_ANY) {
        print_part(wanted, which, of, wanted->peer);
        return;
    }
    for (uint32_t first = 0; first < count; first += columns_at_once(count)) {
        print_part(wanted, which, of, first);
    }
}

static bool is_there(const report *from, gpuipc_transport which) {
    for (size_t i = 0; i < from->way_count; i++) {
        if (from->ways[i].info.transport == which && from->ways[i].info.available) {
            return true;
        }
    }
    return false;
}

static void print_all(const options *wanted) {
    const report *from = wanted->report;
    const bool is_part = wanted->device != DEVICE_ANY || wanted->peer != DEVICE_ANY;
    for (int way = 1; way <= GPUIPC_TRANSPORT_COUNT; way++) {
        const gpuipc_transport which = (gpuipc_transport)way;
        if (!is_there(from, which)) {
            report_say(from,
                       "\n%s: not available between %s (gpuipc-selftest transports says why)\n",
                       gpuipc_transport_name(which),
                       is_part ? "the devices that were asked for" : "any two devices");
            continue;
        }
        print_matrix(wanted, which, "GB/s one way", one_way);
        print_matrix(wanted, which, "GB/s both ways together", both_ways);
        print_matrix(wanted, which, "latency in us", latency);
        print_matrix(wanted, which, "wrong words", wrong_words);
    }
    report_say(
        from,
        "\nRow: the device that owns the memory. Column: the device that uses it.\n"
        "GB/s: payload of one large copy. Latency: of one small copy, on the device.\n"
        "Medians, by the driver's events; the data of every cell were compared, both ways, in words of 32 bits.\n"
        "  -     not available (gpuipc-selftest transports says why)\n"
        "  .     one device has no two ways\n"
        "  FAIL  could not be measured, or delivered wrong words: see above\n\n");
}

static void measure_one(const options *wanted, const session *at, report_way *way) {
    char line[ROLE_LINE_MAX];
    char id[64];
    const char *name = gpuipc_transport_name(way->info.transport);
    if (transports_try(wanted, at, way, true) != GPUIPC_OK) {
        way->info.available = 1; /* whether it is cannot be said: it counts as broken */
        (void)snprintf(way->failure, sizeof(way->failure), "%s", gpuipc_error_text());
    }
    report_add_way(wanted->report, way);
    if (!way->info.available) {
        return;
    }
    (void)snprintf(id, sizeof(id), "measure/%s/%u-%u", name, way->owner, way->user);
    report_note_value(wanted->report, "gb_per_s", one_way(way));
    report_note_value(wanted->report, "latency_us", latency(way));
    report_note_value(wanted->report, "wrong_words", wrong_words(way));
    (void)snprintf(line, sizeof(line), "%s, device %u -> device %u: %s", name, way->owner,
                   way->user, way->failure[0] != '\0' ? way->failure : "measured and verified");
    report_add_check(wanted->report, id, way->failure[0] != '\0' ? REPORT_FAIL : REPORT_PASS, line);
}

static void measure_all(const options *wanted, const session *at) {
    for (int which = 1; which <= GPUIPC_TRANSPORT_COUNT; which++) {
        for (uint32_t owner = 0; owner < at->info.device_count; owner++) {
            for (uint32_t user = 0; user < at->info.device_count; user++) {
                report_way way = {
                    .owner = owner, .user = user, .info = {.transport = (gpuipc_transport)which}};
                if (run_is_chosen(wanted->device, owner) && run_is_chosen(wanted->peer, user) &&
                    !program_is_interrupted()) {
                    measure_one(wanted, at, &way);
                }
            }
        }
    }
}

int matrix(const options *wanted) {
    session at;
    int code = run_begin(wanted, &at);
    if (code != EXIT_PASS) {
        return code;
    }
    do {
        measure_all(wanted, &at);
    } while (run_again(wanted));
    print_all(wanted);
    transports_check(wanted);
    doctor_look(wanted);
    doctor_print_count(wanted->report);
    const tally found = {.passed = report_count(wanted->report, REPORT_PASS),
                         .failed = report_count(wanted->report, REPORT_FAIL)};
    code = run_summarize(wanted, &at, &found);
    run_end(wanted, &at);
    return code;
}
