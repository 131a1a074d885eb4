/* SPDX-License-Identifier: MIT */
/** @file gpuipc-selftest: shares GPU memory between two programs and checks every word of it. */
#include <stdio.h>

#include "channel.h"
#include "consume.h"
#include "doctor.h"
#include "list.h"
#include "matrix.h"
#include "option_table.h"
#include "output.h"
#include "peer.h"
#include "produce.h"
#include "program.h"
#include "report.h"
#include "ring.h"
#include "run.h"
#include "standard_streams.h"
#include "ticket.h"
#include "transports.h"
#include "wrap.h"

static int obey(const options *wanted) {
    switch (wanted->command) {
    case COMMAND_PRODUCE:
        return wanted->by_ticket ? ticket_produce(wanted) : produce(wanted);
    case COMMAND_CONSUME:
        return wanted->by_ticket ? ticket_consume(wanted) : consume(wanted);
    case COMMAND_TRANSPORTS:
        return transports(wanted);
    case COMMAND_DOCTOR:
        return !wanted->has_peer      ? doctor(wanted)
               : wanted->line == NULL ? peer_give(wanted)
                                      : peer_lead(wanted);
    case COMMAND_PEER_GIVE:
        return peer_give(wanted);
    case COMMAND_PEER_END:
        return peer_end(wanted);
    case COMMAND_MATRIX:
        return matrix(wanted);
    case COMMAND_LIST:
        return list(wanted);
    case COMMAND_RING:
        return ring(wanted);
    case COMMAND_RING_MEMBER:
        return ring_member(wanted);
    case COMMAND_CHANNEL:
        return channel(wanted);
    case COMMAND_CHANNEL_WRITER:
        return channel_writer(wanted);
    case COMMAND_CHANNEL_READER:
        return channel_reader(wanted);
    default:
        return run(wanted);
    }
}

/* Known before anything is tried, and not after an hour. */
static bool can_write(const char *option, const char *path) {
    char why[OUTPUT_WHY_MAX];
    if (path == NULL || output_check(path, why)) {
        return true;
    }
    wrap_complain("%s=%s cannot be written: %s", option, path, why);
    return false;
}

/* A command that fills a report, and the outputs that are made of it. */
static int obey_and_tell(const options *wanted) {
    report found;
    options filled = *wanted;
    report_begin(&found,
                 wanted->command == COMMAND_RUN ? "run" : option_table_name(wanted->command),
                 wanted->is_ascii);
    found.format = (report_format)wanted->format;
    found.page = wanted->page;
    found.junit = wanted->junit;
    filled.report = &found;
    if (!can_write("--html", wanted->page) || !can_write("--junit", wanted->junit)) {
        return EXIT_USAGE;
    }
    if (wanted->parent == 0 && wanted->command != COMMAND_PRODUCE &&
        wanted->command != COMMAND_CONSUME) {
        program_watch_interrupt();
    }
    int code = obey(&filled);
    if (program_is_interrupted()) {
        found.is_interrupted = true;
        report_say(&found, "interrupted: this is what was found until then\n");
        code = EXIT_FAIL;
    }
    if (!report_end(&found, code) && code == EXIT_PASS) {
        code = EXIT_FAIL;
    }
    report_clear(&found);
    return code;
}

int program_run(int count, char **arguments) {
    options wanted;
    int code;
    standard_streams_occupy();
    if (options_read(count, arguments, &wanted, &code)) {
        code = obey_and_tell(&wanted);
    }
    wrap_end();
    /* Results that nobody could be told are no success. */
    if (!wrap_is_written() && code == EXIT_PASS) {
        wrap_complain("FAIL: the results could not be written");
        code = EXIT_FAIL;
    }
    return code;
}
