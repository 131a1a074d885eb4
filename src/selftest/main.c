/* SPDX-License-Identifier: MIT */
/** @file gpuipc-selftest: shares GPU memory between two programs and checks every word of it. */
#include <stdio.h>

#include "consume.h"
#include "doctor.h"
#include "produce.h"
#include "program.h"
#include "ring.h"
#include "run.h"
#include "ticket.h"
#include "transports.h"

static int obey(const options *wanted) {
    switch (wanted->command) {
    case COMMAND_PRODUCE:
        return wanted->by_ticket ? ticket_produce(wanted) : produce(wanted);
    case COMMAND_CONSUME:
        return wanted->by_ticket ? ticket_consume(wanted) : consume(wanted);
    case COMMAND_TRANSPORTS:
        return transports(wanted);
    case COMMAND_DOCTOR:
        return doctor(wanted);
    case COMMAND_RING:
        return ring(wanted);
    case COMMAND_RING_MEMBER:
        return ring_member(wanted);
    default:
        return run(wanted);
    }
}

int program_run(int count, char **arguments) {
    options wanted;
    int code;
    if (options_read(count, arguments, &wanted, &code)) {
        code = obey(&wanted);
    }
    /* Results that nobody could be told are no success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == EXIT_PASS) {
        fputs("gpuipc-selftest: FAIL: the results could not be written\n", stderr);
        code = EXIT_FAIL;
    }
    return code;
}
