/* SPDX-License-Identifier: MIT */
/** @file gpuipc-selftest: shares GPU memory between two programs and checks every word of it. */
#include "consume.h"
#include "produce.h"
#include "run.h"

int main(int count, char **arguments) {
    options wanted;
    int code;
    if (!options_read(count, arguments, &wanted, &code)) {
        return code;
    }
    switch (wanted.command) {
    case COMMAND_PRODUCE:
        return produce(&wanted);
    case COMMAND_CONSUME:
        return consume(&wanted);
    default:
        return run(&wanted);
    }
}
