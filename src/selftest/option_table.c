/* SPDX-License-Identifier: MIT */
/** @file See option_table.h. */
#include "option_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "program.h"
#include "wrap.h"

#define BIT(command) (1u << COMMAND_##command)
#define TELLS        (BIT(RUN) | BIT(TRANSPORTS) | BIT(MATRIX) | BIT(DOCTOR) | BIT(RING) | BIT(CHANNEL))
#define TRIES        (BIT(RUN) | BIT(TRANSPORTS) | BIT(MATRIX))
#define CHANNELS     (BIT(CHANNEL) | BIT(CHANNEL_WRITER) | BIT(CHANNEL_READER))
#define MEETS                                                                                      \
    (BIT(PRODUCE) | BIT(CONSUME) | BIT(RING_MEMBER) | BIT(CHANNEL_WRITER) | BIT(CHANNEL_READER) |  \
     BIT(PEER_GIVE) | BIT(PEER_END))
#define ALL (TELLS | MEETS | BIT(LIST))

/* Those without a line of help are the tool's own, to the programs that it starts. */
static const struct {
    const char *word;
    command command;
    int words; /* that may follow */
    const char *usage;
    const char *help;
} commands[] = {
    {"", COMMAND_RUN, 0, "",
     "starts a producer and a consumer for every pair of devices, and checks every word"},
    {"doctor", COMMAND_DOCTOR, 0, "", "says why sharing fails or is slow here, and what to do"},
    {"transports", COMMAND_TRANSPORTS, 0, "",
     "says which ways work between which devices, how fast, and why not"},
    {"matrix", COMMAND_MATRIX, 0, "", "measures every transport between all devices"},
    {"ring", COMMAND_RING, 0, "",
     "starts programs in a ring, each of which writes into the next one's memory"},
    {"channel", COMMAND_CHANNEL, 0, "",
     "passes frames through channels to several readers, one of which is killed meanwhile"},
    {"list", COMMAND_LIST, 0, "", "says which checks there are"},
    {"produce", COMMAND_PRODUCE, 1, " [NAME]",
     "is only the producer, for another terminal; --ticket: memory, and a ticket for it"},
    {"consume", COMMAND_CONSUME, 1, " [NAME]",
     "is only the consumer; --ticket=TEXT: what the ticket stands for"},
    {"channel-writer", COMMAND_CHANNEL_WRITER, 0, "", NULL},
    {"channel-reader", COMMAND_CHANNEL_READER, 0, "", NULL},
    {"peer-give", COMMAND_PEER_GIVE, 0, "", NULL},
    {"peer-end", COMMAND_PEER_END, 0, "", NULL},
    {"ring-member", COMMAND_RING_MEMBER, 0, "", NULL},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct {
    const char *name;
    int value;
    int has_argument;
    unsigned commands;
    const char *argument; /* as --help shows it */
    const char *help;
} rows[] = {
    {"driver", OPTION_DRIVER, required_argument, ALL & ~BIT(LIST), "=auto|cuda|emulated|PATH",
     "auto (default, or what GPUIPC_CUDA_DRIVER says): the installed CUDA driver, and without one or a device the "
     "emulated one; cuda: the installed driver, never the emulated one; PATH: this library"},
    {"device", OPTION_DEVICE, required_argument,
     TRIES | BIT(PRODUCE) | BIT(CONSUME) | CHANNELS | BIT(DOCTOR) | BIT(PEER_GIVE) | BIT(PEER_END),
     "=N", "only memory of this device (default: every device)"},
    {"peer", OPTION_PEER, optional_argument,
     TRIES | BIT(PRODUCE) | BIT(CONSUME) | CHANNELS | BIT(DOCTOR), "=N",
     "only users on this device (default: every device; consume: the owner)"},
    {"admit", OPTION_ADMIT, required_argument, BIT(DOCTOR) | BIT(PEER_GIVE) | BIT(PEER_END),
     "=USER|group",
     "with --peer, at both ends: takes this user, too, by its number; group: whoever the runtime directory lets in, which "
     "must be a group's"},
    {"size", OPTION_SIZE, required_argument,
     BIT(RUN) | BIT(PRODUCE) | BIT(RING) | BIT(RING_MEMBER) | BIT(CHANNEL) | BIT(CHANNEL_WRITER),
     "=SIZE",
     "how much to share, such as 64M (K, M and G are powers of 1024); may be repeated (default: 1M and 64M, the latter "
     "for as many pairs as there is time for; on the emulated driver 1M and 8M)"},
    {"quick", OPTION_QUICK, no_argument, BIT(RUN), "", "only 1 MiB"},
    {"full", OPTION_FULL, no_argument, BIT(RUN), "",
     "all sizes for every pair, and 1G; --bench-copy and --measure"},
    {"only", OPTION_ONLY, required_argument, BIT(RUN), "=LIST",
     "only these checks, with commas between: share, share/0-1, share/0-1/1048576, peer, refused, transports"},
    {"bench-copy", OPTION_BENCH_COPY, no_argument, BIT(RUN) | BIT(PRODUCE), "",
     "compares copies through the shared mapping with the same copy inside one program"},
    {"measure", OPTION_MEASURE, no_argument, BIT(RUN) | BIT(TRANSPORTS), "",
     "measures the transports that are available"},
    {"require", OPTION_REQUIRE, required_argument, TRIES, "=NAME",
     "fails unless this transport works between every two devices; may be repeated"},
    {"min-gbps", OPTION_MIN_GBPS, required_argument, TRIES, "=NAME=N",
     "fails unless it is measured to have at least N GB/s between every two devices; may be repeated"},
    {"members", OPTION_MEMBERS, required_argument, BIT(RING) | BIT(RING_MEMBER), "=N",
     "how many programs, 2 to 60 (default: one for each device, at least 2)"},
    {"ticket", OPTION_TICKET, optional_argument, BIT(PRODUCE) | BIT(CONSUME) | BIT(CHANNEL_READER),
     "[=TEXT]", "produce: prints a ticket and answers it; consume: opens it"},
    {"name", OPTION_NAME, required_argument, MEETS, "=NAME",
     "where produce and consume meet (default: selftest)"},
    {"timeout", OPTION_TIMEOUT, required_argument, ALL & ~BIT(LIST), "=S",
     "seconds that a step may take (default: 60)"},
    {"duration", OPTION_DURATION, required_argument,
     BIT(RUN) | BIT(MATRIX) | BIT(RING) | BIT(CHANNEL), "=S",
     "tries or measures all again until so many seconds are over (default: once)"},
    {"json", OPTION_JSON, no_argument, TELLS, "", "prints JSON in place of lines for people"},
    {"csv", OPTION_CSV, no_argument, TELLS, "", "likewise, CSV"},
    {"tap", OPTION_TAP, no_argument, TELLS, "", "likewise, TAP"},
    {"markdown", OPTION_MARKDOWN, no_argument, TELLS, "", "likewise, to be pasted into an issue"},
    {"html", OPTION_HTML, required_argument, TELLS, "=FILE",
     "writes a page with everything as well"},
    {"junit", OPTION_JUNIT, required_argument, TELLS, "=FILE",
     "writes JUnit's XML, as CI systems read it, as well"},
    {"ascii", OPTION_ASCII, no_argument, ALL, "",
     "lines for people without colours, and without letters that are not ASCII"},
    {"verbose", OPTION_VERBOSE, no_argument, ALL & ~BIT(LIST), "",
     "each case, device and transport, and every step; doctor: also what is not so"},
    {"help", OPTION_HELP, no_argument, ALL, "", "this text; behind a command, the command's"},
    {"version", OPTION_VERSION, no_argument, ALL, "", "the version"},
    {"parent", OPTION_PARENT, required_argument, MEETS, "", NULL},
    {"pairs", OPTION_PAIRS, required_argument, BIT(PRODUCE), "", NULL},
    {"until", OPTION_UNTIL, required_argument, BIT(PRODUCE), "", NULL},
    {"index", OPTION_INDEX, required_argument, BIT(RING_MEMBER) | BIT(CHANNEL_READER), "", NULL},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* What an option is to these commands, where that is something else. */
static const struct {
    int option;
    unsigned commands;
    const char *argument;
    const char *help;
} others[] = {
    {OPTION_PEER, BIT(DOCTOR), "[=LINE]",
     "alone: prints a line, and waits; with that line, where the other end is: compares the two, and tries what they can "
     "share"},
    {OPTION_DEVICE, BIT(DOCTOR), "=N",
     "with --peer: whose memory is given (default: the first); with the line: which other device takes part (default: the "
     "first one that both ends see)"},
    {OPTION_SIZE, BIT(CHANNEL), "=SIZE",
     "how large a frame is, such as 64M (K, M and G are powers of 1024); may be repeated (default: 8M; on the emulated "
     "driver 256K)"},
    {OPTION_SIZE, BIT(RING), "=SIZE",
     "how much each program shares, such as 1M (K, M and G are powers of 1024; default: 64M; on the emulated driver 2M)"},
};
#define OTHERS (sizeof(others) / sizeof(others[0]))

/* Where the help of an option begins, and where its lines end: what a terminal has had since the VT100. */
#define HELP_COLUMN    19
#define COMMAND_COLUMN 32
#define HELP_COLUMNS   80
/* Below so many it begins further left. */
#define HELP_COLUMNS_WIDE  60
#define HELP_COLUMN_NARROW 6

const struct option *option_table(void) {
    static struct option made[ROWS + 1];
    for (size_t i = 0; i < ROWS; i++) {
        made[i] = (struct option){
            .name = rows[i].name, .has_arg = rows[i].has_argument, .val = rows[i].value};
    }
    return made;
}

static bool has_letter(size_t row) {
    return rows[row].value < OPTION_DRIVER;
}

const char *option_table_letters(void) {
    static char made[2 * ROWS + 2];
    size_t used = 0;
    made[used++] = ':';
    for (size_t i = 0; i < ROWS; i++) {
        if (has_letter(i)) {
            made[used++] = (char)rows[i].value;
            if (rows[i].has_argument == required_argument) {
                made[used++] = ':';
            }
        }
    }
    made[used] = '\0';
    return made;
}

bool option_table_command(const char *word, command *out_command, int *out_words) {
    for (size_t i = 1; i < COMMANDS; i++) {
        if (strcmp(commands[i].word, word) == 0) {
            *out_command = commands[i].command;
            *out_words = commands[i].words;
            return true;
        }
    }
    return false;
}

const char *option_table_name(command which) {
    for (size_t i = 0; i < COMMANDS; i++) {
        if (commands[i].command == which) {
            return commands[i].word;
        }
    }
    return "";
}

bool option_table_check(int option, command which) {
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].value == option && (rows[i].commands >> which & 1u) == 0) {
            const char *name = option_table_name(which);
            wrap_complain("--%s is no option of %s (see gpuipc-selftest%s%s "
                          "--help)",
                          rows[i].name, name[0] != '\0' ? name : "a run without a command",
                          name[0] != '\0' ? " " : "", name);
            return false;
        }
    }
    return true;
}

/* As many as the terminal has, and not more than are read well. */
static unsigned help_columns(void) {
    const unsigned columns = program_columns();
    return columns > 0 && columns < HELP_COLUMNS ? columns : HELP_COLUMNS;
}

static void print_help(const char *format, ...) GPUIPC_PRINTF(1, 2);

/* A line, whose further ones begin where its last column does. */
static void print_help(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    wrap_print(stdout, line, help_columns());
    (void)fputc('\n', stdout);
}

static const char *help_of(size_t row, unsigned which, const char **out_argument) {
    for (size_t i = 0; i < OTHERS; i++) {
        if (others[i].option == rows[row].value && (others[i].commands & which) != 0) {
            *out_argument = others[i].argument;
            return others[i].help;
        }
    }
    *out_argument = rows[row].argument;
    return rows[row].help;
}

/* packaging/completions reads these lines: two blanks, the option, and what its argument is. */
static void print_options(unsigned which) {
    const int beginning = help_columns() < HELP_COLUMNS_WIDE ? HELP_COLUMN_NARROW : HELP_COLUMN;
    for (size_t i = 0; i < ROWS; i++) {
        char word[64];
        if (rows[i].help == NULL || (rows[i].commands & which) == 0) {
            continue;
        }
        const char *argument;
        const char *help = help_of(i, which, &argument);
        char also[16] = "";
        (void)snprintf(word, sizeof(word), "--%s%s", rows[i].name, argument);
        if (has_letter(i)) {
            (void)snprintf(also, sizeof(also), "; also -%c", rows[i].value);
        }
        if (4 + strlen(word) <= (size_t)beginning) {
            print_help("  %-*s  %s%s", beginning - 4, word, help, also);
        } else {
            (void)printf("  %s\n", word);
            print_help("%*s%s%s", beginning, "", help, also);
        }
    }
}

/* Only their names, so that all are in one text. */
static void print_others(void) {
    char line[512] = "options of some commands:";
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].help != NULL && (rows[i].commands & BIT(RUN)) == 0) {
            const size_t used = strlen(line);
            (void)snprintf(line + used, sizeof(line) - used, " --%s", rows[i].name);
        }
    }
    (void)fputc('\n', stdout);
    print_help("%s", line);
}

/* packaging/completions reads the words of these lines. */
static void print_commands(void) {
    (void)fputs("commands (each has a --help of its own):\n", stdout);
    for (size_t i = 0; i < COMMANDS; i++) {
        if (commands[i].help != NULL) {
            print_help("  gpuipc-selftest %-*s  %s", COMMAND_COLUMN - 20, commands[i].word,
                       commands[i].help);
        }
    }
    (void)fputc('\n', stdout);
}

void option_table_help(command which) {
    size_t at = 0;
    while (at + 1 < COMMANDS && commands[at].command != which) {
        at++;
    }
    print_help("usage: gpuipc-selftest%s%s%s [OPTION...]", at > 0 ? " " : "", commands[at].word,
               commands[at].usage);
    if (which == COMMAND_RUN) {
        print_help("       gpuipc-selftest COMMAND [OPTION...]");
        (void)fputc('\n', stdout);
        print_help(
            "Shares GPU memory between two programs and checks every word of it, both ways.");
        (void)fputc('\n', stdout);
        print_commands();
    } else if (commands[at].help != NULL) {
        (void)fputc('\n', stdout);
        print_help("It %s.", commands[at].help);
        (void)fputc('\n', stdout);
    }
    (void)fputs("options:\n", stdout);
    print_options(1u << which);
    if (which == COMMAND_RUN) {
        print_others();
    }
    (void)fputc('\n', stdout);
    print_help("Exit code: 0 passed, 1 failed, 2 wrong usage, 77 nothing to test here.");
}
