/* SPDX-License-Identifier: MIT */
/** @file See options.h. */
#include "options.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_row.h"
#include "report.h"

#define EXIT_USAGE 2
#define ROUNDS_MAX 1000000u

static const char help_text[] =
    "usage: gpuipc-bench [OPTION...]\n"
    "\n"
    "Measures gpuipc between two processes, in turns with the driver's calls that do the same by hand.\n"
    "\n"
    "  --row=NAME       only this row; may be repeated (default: all)\n"
    "  --list           names the rows\n"
    "  --rounds=N       how often each thing is measured at least (default: each row's own number)\n"
    "  --devices=A,B    the GPU that owns the memory, and the one that opens it in rows of two GPUs\n"
    "                   (default: 0 and 1, where there are two)\n"
    "  --quick          few rounds and small memory, to see that everything runs\n"
    "  --json=FILE      writes the figures there as well\n"
    "  --help\n"
    "\n"
    "GPUIPC_CUDA_DRIVER names the driver: auto (default), emulated, or a path. Figures of the emulated\n"
    "driver mean nothing and are marked so.\n"
    "Exit code: 0 all rows ran, whatever they found; 1 one failed; 2 wrong usage.\n";

static const struct option long_options[] = {
    {"row", required_argument, NULL, 'r'},     {"rounds", required_argument, NULL, 'n'},
    {"devices", required_argument, NULL, 'd'}, {"json", required_argument, NULL, 'j'},
    {"quick", no_argument, NULL, 'q'},         {"list", no_argument, NULL, 'l'},
    {"help", no_argument, NULL, 'h'}, /* the program's own, to those that it starts: */
    {"role", required_argument, NULL, 'R'},    {"directory", required_argument, NULL, 'D'},
    {"name", required_argument, NULL, 'N'},    {NULL, 0, NULL, 0}};

static const char *const role_names[] = {"run", "row", "partner", "floor", "floor-partner"};

static bool complain(const char *option, const char *text, const char *wanted) {
    (void)fprintf(stderr, "gpuipc-bench: %s \"%s\" is not %s (see --help)\n", option, text, wanted);
    return false;
}

static bool take_number(const char **text, unsigned long most, uint32_t *out_number) {
    char *end;
    if (!isdigit((unsigned char)**text)) {
        return false;
    }
    const unsigned long number = strtoul(*text, &end, 10);
    if (number > most) {
        return false;
    }
    *text = end;
    *out_number = (uint32_t)number;
    return true;
}

static bool read_devices(options *self, const char *text) {
    const char *at = text;
    if (!take_number(&at, DEVICE_ANY - 1, &self->owner) || *at++ != ',' ||
        !take_number(&at, DEVICE_ANY - 1, &self->opener) || *at != '\0') {
        return complain("--devices", text, "two numbers such as 0,1");
    }
    return true;
}

static bool read_role(options *self, const char *text) {
    for (size_t i = 0; i < sizeof(role_names) / sizeof(*role_names); i++) {
        if (strcmp(text, role_names[i]) == 0) {
            self->role = (bench_role)i;
            return true;
        }
    }
    return complain("--role", text, "known");
}

static bool add_row(options *self, const char *name) {
    if (row_find(name) == NULL) {
        return complain("--row", name, "the name of a row; --list has them");
    }
    if (self->row_count == ROWS_MAX) {
        return complain("--row", name, "possible: too many rows");
    }
    self->rows[self->row_count++] = name;
    return true;
}

/* Now, and not when the rows have run. What is in the file stays there until then. */
static bool take_json(options *self, const char *path) {
    if (!report_json_can()) {
        return complain("--json", path, "possible: this program was built without cJSON");
    }
    FILE *file = fopen(path, "ab");
    if (file == NULL) {
        return complain("--json", path, "a file that can be written");
    }
    (void)fclose(file);
    self->json = path;
    return true;
}

/* One option. False ends the program with *out_exit_code. */
static bool take(options *self, int option, int *out_exit_code) {
    const char *text = optarg;
    *out_exit_code = EXIT_USAGE;
    switch (option) {
    case 'r':
        return add_row(self, optarg);
    case 'n':
        return (take_number(&text, ROUNDS_MAX, &self->rounds) && *text == '\0' &&
                self->rounds > 0) ||
               complain("--rounds", optarg, "a number of rounds");
    case 'd':
        return read_devices(self, optarg);
    case 'j':
        return take_json(self, optarg);
    case 'q':
        self->quick = true;
        return true;
    case 'R':
        return read_role(self, optarg);
    case 'D':
        self->directory = optarg;
        return true;
    case 'N':
        self->name = optarg;
        return true;
    case 'l':
        row_list_print();
        *out_exit_code = 0;
        return false;
    case 'h':
        (void)fputs(help_text, stdout);
        *out_exit_code = 0;
        return false;
    default:
        (void)fputs("gpuipc-bench: see --help\n", stderr); /* getopt_long has said what is wrong */
        return false;
    }
}

bool options_read(int count, char **arguments, options *out_options, int *out_exit_code) {
    options self = {.role = ROLE_RUN, .owner = DEVICE_ANY, .opener = DEVICE_ANY};
    int option;
    while ((option = getopt_long(count, arguments, "h", long_options, NULL)) != -1) {
        if (!take(&self, option, out_exit_code)) {
            return false;
        }
    }
    if (optind != count) {
        *out_exit_code = EXIT_USAGE;
        return complain("argument", arguments[optind], "known");
    }
    *out_options = self;
    return true;
}
