/* SPDX-License-Identifier: MIT */
/** @file See options.h. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "admit.h"
#include "option_table.h"
#include "os.h"
#include "quantity.h"
#include "report.h"
#include "wrap.h"

#define DEFAULT_NAME      "selftest"
#define TIMEOUT_DEFAULT_S 60
#define TIMEOUT_MAX_S     86400
#define DURATION_MAX_S    (31 * 86400)
#define QUICK_BYTES       (UINT64_C(1) << 20)

static bool complain(const char *option, const char *text, const char *wanted) {
    wrap_complain("%s \"%s\" is not %s (see --help)", option, text, wanted);
    return false;
}

static bool read_number(const char *text, uint64_t most, uint64_t *out_number) {
    uint64_t number;
    if (text[0] == ' ' || !quantity_take_number(&text, &number) || text[0] != '\0' ||
        number > most) {
        return false;
    }
    *out_number = number;
    return true;
}

static bool read_device(const char *option, const char *text, uint32_t *out_device) {
    uint64_t number;
    if (!read_number(text, DEVICE_ANY - 1, &number)) {
        return complain(option, text, "the number of a device");
    }
    *out_device = (uint32_t)number;
    return true;
}

/* From @p least to 60 programs: what one process can wait for on every system. */
static bool read_count(const char *option, const char *text, uint64_t least, uint32_t *out_count) {
    uint64_t number;
    if (!read_number(text, 60, &number) || number < least) {
        return complain(option, text, "a number of programs, from 2 to 60");
    }
    *out_count = (uint32_t)number;
    return true;
}

static bool add_size(options *self, const char *text) {
    uint64_t bytes;
    if (self->size_count == SIZES_MAX) {
        wrap_complain("at most %d sizes are possible", SIZES_MAX);
        return false;
    }
    if (!quantity_read_bytes(text, &bytes) || bytes == 0 || bytes % sizeof(uint32_t) != 0) {
        return complain("--size", text, "a size such as 64M, above 0 and a multiple of 4 bytes");
    }
    self->sizes[self->size_count++] = bytes;
    return true;
}

static bool read_timeout(options *self, const char *text) {
    uint64_t seconds;
    if (!read_number(text, TIMEOUT_MAX_S, &seconds) || seconds == 0) {
        return complain("--timeout", text, "a number of seconds, from 1 to a day's");
    }
    self->timeout_ms = (int)seconds * 1000;
    return true;
}

static bool read_duration(options *self, const char *text) {
    uint64_t seconds;
    if (!read_number(text, DURATION_MAX_S, &seconds) || seconds == 0) {
        return complain("--duration", text, "a number of seconds, from 1 to a month's");
    }
    self->duration_s = (unsigned)seconds;
    return true;
}

static bool set_format(options *self, report_format format) {
    if (self->format != REPORT_LINES && self->format != (int)format) {
        wrap_complain("--json, --csv, --tap and --markdown exclude each other");
        return false;
    }
    self->format = (int)format;
    return true;
}

/* "vmm", and with --min-gbps "vmm=300". */
static bool add_demand(options *self, const char *option, const char *text, bool has_number) {
    const size_t length = strcspn(text, "=");
    char *end = NULL;
    demand made = {0};
    for (int i = 1; i <= GPUIPC_TRANSPORT_COUNT; i++) {
        const char *name = gpuipc_transport_name((gpuipc_transport)i);
        if (strlen(name) == length && strncmp(name, text, length) == 0) {
            made.transport = (gpuipc_transport)i;
        }
    }
    if (has_number && text[length] == '=') {
        made.gb_per_s = strtod(text + length + 1, &end);
    }
    if (made.transport == GPUIPC_TRANSPORT_DEFAULT ||
        (has_number ? end == NULL || *end != '\0' : text[length] != '\0') ||
        (has_number && !(made.gb_per_s > 0 && made.gb_per_s < 1e9))) {
        return complain(option, text,
                        has_number ? "a transport and GB/s above 0, such as vmm=300"
                                   : "a transport: vmm, pool, legacy, p2p, host or fabric");
    }
    if (self->demand_count == DEMANDS_MAX) {
        return complain(option, text, "one of the first twelve such options");
    }
    self->demands[self->demand_count++] = made;
    self->measure = self->measure || has_number;
    return true;
}

static const char only_wanted[] =
    "share, share/0-1, share/0-1/1048576, peer, refused or transports";

/* Two numbers of devices, and perhaps bytes: "0-1", "0-1/1048576". */
static bool is_pair(const char *text) {
    uint64_t number;
    return quantity_take_number(&text, &number) && *text++ == '-' &&
           quantity_take_number(&text, &number) &&
           (*text == '\0' ||
            (*text++ == '/' && quantity_take_number(&text, &number) && *text == '\0'));
}

static bool is_check(const char *word) {
    const size_t length = strlen("share/");
    return strcmp(word, "share") == 0 || strcmp(word, "transports") == 0 ||
           strcmp(word, "peer") == 0 || strcmp(word, "refused") == 0 ||
           (strncmp(word, "share/", length) == 0 && is_pair(word + length));
}

/* "share,transports"; the text is cut at its commas. */
static bool add_only(options *self, char *text) {
    for (char *word = text; word != NULL && *word != '\0';) {
        char *comma = strchr(word, ',');
        if (comma != NULL) {
            *comma = '\0';
        }
        if (!is_check(word)) {
            return complain("--only", word, only_wanted);
        }
        if (self->only_count == ONLY_MAX) {
            return complain("--only", word, "one of the first sixteen");
        }
        self->only[self->only_count++] = word;
        word = comma != NULL ? comma + 1 : NULL;
    }
    return self->only_count > 0 || complain("--only", text, only_wanted);
}

/* Options of what is printed and demanded; of the others -1. */
static int take_output(options *self, int option) {
    switch (option) {
    case OPTION_JSON:
        return set_format(self, REPORT_JSON);
    case OPTION_CSV:
        return set_format(self, REPORT_CSV);
    case OPTION_TAP:
        return set_format(self, REPORT_TAP);
    case OPTION_MARKDOWN:
        return set_format(self, REPORT_MARKDOWN);
    case OPTION_HTML:
        self->page = optarg;
        return optarg[0] != '\0' || complain("--html", optarg, "the path of a file");
    case OPTION_JUNIT:
        self->junit = optarg;
        return optarg[0] != '\0' || complain("--junit", optarg, "the path of a file");
    case OPTION_DURATION:
        return read_duration(self, optarg);
    case OPTION_ASCII:
        self->is_ascii = true;
        return true;
    case OPTION_ONLY:
        return add_only(self, optarg);
    case OPTION_REQUIRE:
        return add_demand(self, "--require", optarg, false);
    case OPTION_MIN_GBPS:
        return add_demand(self, "--min-gbps", optarg, true);
    case OPTION_QUICK:
        self->is_quick = true;
        return true;
    case OPTION_FULL:
        self->is_full = self->bench_copy = self->measure = true;
        return true;
    default:
        return -1;
    }
}

/* One option. False ends the program with *out_exit_code. */
static bool take(options *self, int option, int *out_exit_code) {
    *out_exit_code = EXIT_USAGE;
    const int taken = take_output(self, option);
    if (taken >= 0) {
        return taken != 0;
    }
    switch (option) {
    case OPTION_DRIVER:
        self->driver = optarg;
        return optarg[0] != '\0' || complain("--driver", optarg, "a driver");
    case OPTION_DEVICE:
        return read_device("--device", optarg, &self->device);
    case OPTION_PEER:
        self->has_peer = true;
        self->line = optarg;
        return true;
    case OPTION_ADMIT:
        self->admit = optarg;
        return admit_check(optarg) ||
               complain("--admit", optarg, "the number of a user, or \"" ADMIT_GROUP "\"");
    case OPTION_SIZE:
        return add_size(self, optarg);
    case OPTION_NAME:
        self->name = optarg;
        return true;
    case OPTION_TIMEOUT:
        return read_timeout(self, optarg);
    case OPTION_BENCH_COPY:
        self->bench_copy = true;
        return true;
    case OPTION_TICKET:
        self->by_ticket = true;
        self->ticket = optarg;
        return true;
    case OPTION_VERBOSE:
        self->verbose = true;
        return true;
    case OPTION_MEASURE:
        self->measure = true;
        return true;
    case OPTION_MEMBERS:
        return read_count("--members", optarg, 2, &self->members);
    case OPTION_INDEX:
        return read_count("--index", optarg, 0, &self->index);
    case OPTION_PAIRS:
        self->pairs = optarg;
        return true;
    case OPTION_UNTIL:
        return read_number(optarg, UINT64_MAX, &self->until_ns) ||
               complain("--until", optarg, "a time");
    case OPTION_PARENT:
        return read_number(optarg, UINT32_MAX, &self->parent) ||
               complain("--parent", optarg, "a process");
    case OPTION_HELP:
        self->wants_help = true; /* of the command, which is not known yet */
        return true;
    case OPTION_VERSION:
        printf("gpuipc-selftest %d.%d.%d\n", GPUIPC_VERSION_MAJOR, GPUIPC_VERSION_MINOR,
               GPUIPC_VERSION_PATCH);
        *out_exit_code = EXIT_PASS;
        return false;
    default:
        return false; /* complain_option() has said why */
    }
}

/* In place of getopt_long's own words, which are others on each system, and so are its answers '?' and ':'.
 *  @param word what it looked at */
static void complain_option(const char *word) {
    const size_t length = strcspn(word, "=");
    size_t similar = 0;
    for (const struct option *one = option_table(); one->name != NULL; one++) {
        if (one->val == optopt) {
            wrap_complain("--%s %s (see --help)", one->name,
                          one->has_arg == no_argument ? "takes no argument" : "needs an argument");
            return;
        }
        similar += length > 2 && strncmp(one->name, word + 2, length - 2) == 0;
    }
    if (optopt != 0) {
        wrap_complain("there is no option -%c (see --help)", optopt);
    } else {
        wrap_complain("%.*s is %s (see --help)", (int)length, word,
                      similar > 1 ? "how several options begin" : "no option of this program");
    }
}

/* What stands beside the options: nothing, or a command and perhaps the name to meet at. */
static bool take_words(options *self, char **words, int count) {
    int more = 0;
    if (count == 0) {
        return true;
    }
    if (!option_table_command(words[0], &self->command, &more)) {
        return complain("command", words[0], "one of the tool's");
    }
    if (count > 1 + more) {
        return complain("argument", words[1 + more], "known");
    }
    if (count == 2 && self->name != NULL) {
        return complain("name", words[1], "needed beside --name");
    }
    if (count == 2) {
        self->name = words[1];
    }
    return true;
}

/* Nobody is met by name with a ticket, and it is one of one memory. */
static bool check_ticket(const options *self) {
    const bool gives = self->command == COMMAND_PRODUCE && self->ticket == NULL;
    const bool takes = self->command == COMMAND_CONSUME && self->ticket != NULL;
    if (!gives && !takes) {
        wrap_complain("it is produce --ticket, and consume --ticket=TEXT");
        return false;
    }
    if (self->name != NULL || self->bench_copy || self->size_count > 1 ||
        (self->size_count == 1 && self->sizes[0] < 2 * sizeof(uint32_t))) {
        wrap_complain("with --ticket there is no name, no --bench-copy, and one size of 8 "
                      "bytes or more");
        return false;
    }
    return true;
}

/* A device of all commands but the doctor, which has another end. */
static bool check_peer(options *self) {
    if (self->command != COMMAND_DOCTOR) {
        return !self->has_peer ||
               read_device("--peer", self->line != NULL ? self->line : "", &self->peer);
    }
    if (self->admit != NULL && !self->has_peer) {
        wrap_complain("--admit is for doctor --peer, where another process comes");
        return false;
    }
    if (self->device != DEVICE_ANY && !self->has_peer) {
        wrap_complain("--device is for doctor --peer: the doctor looks at every device");
        return false;
    }
    if (self->has_peer && self->line == NULL &&
        (self->format != REPORT_LINES || self->page != NULL || self->junit != NULL)) {
        wrap_complain("the end that prints the line makes no report; the end that gets it does");
        return false;
    }
    return true;
}

static bool check_together(options *self) {
    if (!check_peer(self)) {
        return false;
    }
    if (!report_has_json && (self->format == REPORT_JSON || self->page != NULL)) {
        wrap_complain("--json and --html: this program was built without cJSON");
        return false;
    }
    if (!report_has_junit && self->junit != NULL) {
        wrap_complain("--junit: this program was built without Mini-XML");
        return false;
    }
    if (self->page != NULL && self->junit != NULL && strcmp(self->page, self->junit) == 0) {
        wrap_complain("--html and --junit name one file: %s", self->page);
        return false;
    }
    if (self->command == COMMAND_RING_MEMBER && self->members == 0) {
        wrap_complain("ring-member is for the tool itself: it needs --members");
        return false;
    }
    if (self->is_quick && self->size_count == 0) {
        self->sizes[self->size_count++] = QUICK_BYTES;
    }
    if (self->by_ticket && self->command != COMMAND_CHANNEL_READER && !check_ticket(self)) {
        return false;
    }
    if (self->name == NULL) {
        self->name = DEFAULT_NAME;
    }
    return true;
}

/* Which options were given, for the time when the command is known. */
typedef struct given {
    bool seen[OPTION_END];
} given;

static bool check_given(const given *options_given, command which) {
    for (int option = 0; option < OPTION_END; option++) {
        if (options_given->seen[option] && !option_table_check(option, which)) {
            return false;
        }
    }
    return true;
}

static bool read_words(options *self, int count, char **arguments, int *out_exit_code) {
    given seen = {{false}};
    int option;
    opterr = 0;
    while ((option = getopt_long(count, arguments, option_table_letters(), option_table(), NULL)) !=
           -1) {
        if (option == '?' || option == ':') {
            complain_option(arguments[optind - 1]);
        }
        /* Its argument may be left out, and be a word of its own; getopt_long knows only the one or the other. */
        if (option == OPTION_PEER && optarg == NULL && optind < count &&
            arguments[optind][0] != '-') {
            optarg = arguments[optind++];
        }
        if (!take(self, option, out_exit_code)) {
            return false;
        }
        seen.seen[option] = true;
    }
    *out_exit_code = EXIT_USAGE;
    if (!take_words(self, arguments + optind, count - optind) ||
        !check_given(&seen, self->command)) {
        return false;
    }
    if (self->wants_help) {
        option_table_help(self->command);
        *out_exit_code = EXIT_PASS;
        return false;
    }
    return check_together(self);
}

bool options_read(int count, char **arguments, options *out_options, int *out_exit_code) {
    options self = {.command = COMMAND_RUN,
                    .device = DEVICE_ANY,
                    .peer = DEVICE_ANY,
                    .timeout_ms = TIMEOUT_DEFAULT_S * 1000};
    if (!read_words(&self, count, arguments, out_exit_code)) {
        return false;
    }
    if (self.driver == NULL) {
        const char *from_environment = os_environment("GPUIPC_CUDA_DRIVER");
        bool is_set = from_environment != NULL && from_environment[0] != '\0';
        self.driver = is_set ? from_environment : "auto";
    }
    *out_options = self;
    return true;
}
