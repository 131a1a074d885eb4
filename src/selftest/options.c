/* SPDX-License-Identifier: MIT */
/** @file See options.h. */
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpuipc/gpuipc.h>

#include "os.h"
#include "quantity.h"
#include "report.h"

#define DEFAULT_NAME      "selftest"
#define TIMEOUT_DEFAULT_S 60
#define TIMEOUT_MAX_S     86400
#define QUICK_BYTES       (UINT64_C(1) << 20)

static const char help_text[] =
    "usage: gpuipc-selftest [OPTION...]                  start a producer and a consumer, and check\n"
    "       gpuipc-selftest produce [NAME] [OPTION...]   only the producer, for another terminal\n"
    "       gpuipc-selftest consume [NAME] [OPTION...]   only the consumer\n"
    "       gpuipc-selftest produce --ticket [OPTION...]       memory, and a ticket for it\n"
    "       gpuipc-selftest consume --ticket=TEXT [OPTION...]  what the ticket stands for\n"
    "       gpuipc-selftest transports [OPTION...]       which ways work between which devices, how\n"
    "                                                    fast, and why not\n"
    "       gpuipc-selftest doctor [OPTION...]           why sharing fails or is slow here, and what\n"
    "                                                    to do\n"
    "       gpuipc-selftest matrix [OPTION...]           how fast every transport is between all devices\n"
    "       gpuipc-selftest list                         which checks there are\n"
    "       gpuipc-selftest ring [OPTION...]             a ring of programs, one for each device, each\n"
    "                                                    of which writes into the next one's memory\n"
    "       gpuipc-selftest channel [OPTION...]          frames through channels, to several readers, one\n"
    "                                                    of which is killed meanwhile\n"
    "\n"
    "Shares GPU memory between two programs and checks every word of it, both ways.\n"
    "\n"
    "  --driver=auto|cuda|emulated|PATH\n"
    "                   auto (default, or what GPUIPC_CUDA_DRIVER says): the installed CUDA driver,\n"
    "                   and the emulated one when there is no driver or it finds no device;\n"
    "                   cuda: the installed driver, never the emulated one;\n"
    "                   PATH: this library\n"
    "  --device=N       only memory of this device (default: every device)\n"
    "  --peer=N         only consumers on this device (default: every device; consume: the owner)\n"
    "  --size=SIZE      how much to share, such as 64M (K, M and G are powers of 1024); may be\n"
    "                   repeated (default: 1M, 64M and 1G; on the emulated driver 1M and 8M)\n"
    "  --bench-copy     compares copy bandwidth through the shared mapping with the same copy\n"
    "                   inside one process\n"
    "  --measure        measures the transports that are available\n"
    "  --only=LIST      only these checks (gpuipc-selftest list names them), such as share/0-1\n"
    "  --quick          only 1 MiB\n"
    "  --full           --bench-copy and --measure\n"
    "  --require=NAME   fails unless this transport works between every two devices\n"
    "  --min-gbps=NAME=N  fails unless it is measured to have at least N GB/s between every two\n"
    "  --json, --csv, --tap, --markdown   prints that in place of lines for people\n"
    "  --html=FILE      writes a page with everything, and prints the same as without\n"
    "  --members=N      for ring: how many programs (default: one for each device, at least 2)\n"
    "  --ticket[=TEXT]  produce: prints a ticket and answers it; consume: opens it\n"
    "  --name=NAME      where produce and consume meet (default: " DEFAULT_NAME ")\n"
    "  --timeout=S      seconds that a step may take (default: 60)\n"
    "  --verbose        says every step\n"
    "  --help, --version\n"
    "\n"
    "Exit code: 0 passed, 1 failed, 2 wrong usage, 77 nothing to test here.\n";

enum {
    OPTION_PARENT = 256,
    OPTION_INDEX,
    OPTION_JSON,
    OPTION_CSV,
    OPTION_TAP,
    OPTION_MARKDOWN,
    OPTION_HTML,
    OPTION_ONLY,
    OPTION_REQUIRE,
    OPTION_MIN_GBPS,
    OPTION_QUICK,
    OPTION_FULL
};

static const struct option long_options[] = {{"json", no_argument, NULL, OPTION_JSON},
                                             {"csv", no_argument, NULL, OPTION_CSV},
                                             {"tap", no_argument, NULL, OPTION_TAP},
                                             {"markdown", no_argument, NULL, OPTION_MARKDOWN},
                                             {"html", required_argument, NULL, OPTION_HTML},
                                             {"only", required_argument, NULL, OPTION_ONLY},
                                             {"require", required_argument, NULL, OPTION_REQUIRE},
                                             {"min-gbps", required_argument, NULL, OPTION_MIN_GBPS},
                                             {"quick", no_argument, NULL, OPTION_QUICK},
                                             {"full", no_argument, NULL, OPTION_FULL},
                                             {"driver", required_argument, NULL, 'D'},
                                             {"device", required_argument, NULL, 'd'},
                                             {"peer", required_argument, NULL, 'p'},
                                             {"size", required_argument, NULL, 's'},
                                             {"name", required_argument, NULL, 'n'},
                                             {"timeout", required_argument, NULL, 't'},
                                             {"ticket", optional_argument, NULL, 'T'},
                                             {"bench-copy", no_argument, NULL, 'b'},
                                             {"measure", no_argument, NULL, 'm'},
                                             {"members", required_argument, NULL, 'M'},
                                             {"verbose", no_argument, NULL, 'v'},
                                             {"help", no_argument, NULL, 'h'},
                                             {"version", no_argument, NULL, 'V'},
                                             /* the tool's own, to the roles that it starts */
                                             {"parent", required_argument, NULL, OPTION_PARENT},
                                             {"index", required_argument, NULL, OPTION_INDEX},
                                             {NULL, 0, NULL, 0}};

static bool complain(const char *option, const char *text, const char *wanted) {
    fprintf(stderr, "gpuipc-selftest: %s \"%s\" is not %s (see --help)\n", option, text, wanted);
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
        fprintf(stderr, "gpuipc-selftest: at most %d sizes are possible\n", SIZES_MAX);
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

static bool set_format(options *self, report_format format) {
    if (self->format != REPORT_LINES && self->format != (int)format) {
        fputs("gpuipc-selftest: --json, --csv, --tap and --markdown exclude each other\n", stderr);
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

/* "share,transports"; the text is cut at its commas. */
static bool add_only(options *self, char *text) {
    for (char *word = text; word != NULL && *word != '\0';) {
        char *comma = strchr(word, ',');
        if (comma != NULL) {
            *comma = '\0';
        }
        if (strncmp(word, "share", strlen("share")) != 0 && strcmp(word, "transports") != 0) {
            return complain("--only", word, "a check (see gpuipc-selftest list)");
        }
        if (self->only_count == ONLY_MAX) {
            return complain("--only", word, "one of the first sixteen");
        }
        self->only[self->only_count++] = word;
        word = comma != NULL ? comma + 1 : NULL;
    }
    return self->only_count > 0 || complain("--only", text, "a check (see gpuipc-selftest list)");
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
        self->bench_copy = self->measure = true;
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
    case 'D':
        self->driver = optarg;
        return optarg[0] != '\0' || complain("--driver", optarg, "a driver");
    case 'd':
        return read_device("--device", optarg, &self->device);
    case 'p':
        return read_device("--peer", optarg, &self->peer);
    case 's':
        return add_size(self, optarg);
    case 'n':
        self->name = optarg;
        return true;
    case 't':
        return read_timeout(self, optarg);
    case 'b':
        self->bench_copy = true;
        return true;
    case 'T':
        self->by_ticket = true;
        self->ticket = optarg;
        return true;
    case 'v':
        self->verbose = true;
        return true;
    case 'm':
        self->measure = true;
        return true;
    case 'M':
        return read_count("--members", optarg, 2, &self->members);
    case OPTION_INDEX:
        return read_count("--index", optarg, 0, &self->index);
    case OPTION_PARENT:
        return read_number(optarg, UINT32_MAX, &self->parent) ||
               complain("--parent", optarg, "a process");
    case 'h':
        fputs(help_text, stdout);
        *out_exit_code = EXIT_PASS;
        return false;
    case 'V':
        printf("gpuipc-selftest %d.%d.%d\n", GPUIPC_VERSION_MAJOR, GPUIPC_VERSION_MINOR,
               GPUIPC_VERSION_PATCH);
        *out_exit_code = EXIT_PASS;
        return false;
    default:
        fputs("gpuipc-selftest: see --help\n", stderr); /* getopt_long has said what is wrong */
        return false;
    }
}

/* What stands beside the options: nothing, or a role and perhaps the name to meet at. */
static bool take_words(options *self, char **words, int count) {
    if (count == 0) {
        return true;
    }
    static const struct {
        const char *word;
        command command;
        int words; /* with those behind it */
    } commands[] = {{"produce", COMMAND_PRODUCE, 2},
                    {"consume", COMMAND_CONSUME, 2},
                    {"transports", COMMAND_TRANSPORTS, 1},
                    {"doctor", COMMAND_DOCTOR, 1},
                    {"matrix", COMMAND_MATRIX, 1},
                    {"list", COMMAND_LIST, 1},
                    {"ring", COMMAND_RING, 1},
                    {"ring-member", COMMAND_RING_MEMBER, 1},
                    {"channel", COMMAND_CHANNEL, 1},
                    {"channel-writer", COMMAND_CHANNEL_WRITER, 1},
                    {"channel-reader", COMMAND_CHANNEL_READER, 1}};
    size_t i = 0;
    while (i < sizeof(commands) / sizeof(*commands) && strcmp(words[0], commands[i].word) != 0) {
        i++;
    }
    if (i == sizeof(commands) / sizeof(*commands)) {
        return complain("command", words[0],
                        "produce, consume, transports, matrix, doctor, ring, channel or list");
    }
    self->command = commands[i].command;
    if (count > commands[i].words) {
        return complain("argument", words[commands[i].words], "known");
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
        fputs("gpuipc-selftest: it is produce --ticket, and consume --ticket=TEXT\n", stderr);
        return false;
    }
    if (self->name != NULL || self->bench_copy || self->size_count > 1 ||
        (self->size_count == 1 && self->sizes[0] < 2 * sizeof(uint32_t))) {
        fputs("gpuipc-selftest: with --ticket there is no name, no --bench-copy, and one size of 8 "
              "bytes or more\n",
              stderr);
        return false;
    }
    return true;
}

/* One of the tool's own programs, or one that a person has started in their place. */
static bool is_role(const options *self) {
    return self->command == COMMAND_PRODUCE || self->command == COMMAND_CONSUME ||
           self->command == COMMAND_RING_MEMBER || self->command == COMMAND_CHANNEL_WRITER ||
           self->command == COMMAND_CHANNEL_READER;
}

static bool check_outputs(options *self) {
    const bool tells = !is_role(self) && self->command != COMMAND_LIST;
    const bool tries = self->command == COMMAND_RUN || self->command == COMMAND_TRANSPORTS ||
                       self->command == COMMAND_MATRIX;
    if (!tells && (self->format != REPORT_LINES || self->page != NULL)) {
        fputs(
            "gpuipc-selftest: --json, --csv, --tap, --markdown and --html are for commands that find something out\n",
            stderr);
        return false;
    }
    if (!report_has_json && (self->format == REPORT_JSON || self->page != NULL)) {
        fputs("gpuipc-selftest: --json and --html: this program was built without cJSON\n", stderr);
        return false;
    }
    if (!tries && self->demand_count > 0) {
        fputs("gpuipc-selftest: --require and --min-gbps are for a run, transports and matrix\n",
              stderr);
        return false;
    }
    if (self->command != COMMAND_RUN && (self->only_count > 0 || self->is_quick)) {
        fputs("gpuipc-selftest: --only, --quick and --full are for a run without a command\n",
              stderr);
        return false;
    }
    if (self->is_quick && self->size_count == 0) {
        self->sizes[self->size_count++] = QUICK_BYTES;
    }
    return true;
}

static bool check_together(options *self) {
    if (!is_role(self) && self->name != NULL) {
        return complain("--name", self->name, "for a run without produce or consume");
    }
    if ((self->measure && self->command != COMMAND_TRANSPORTS && self->command != COMMAND_RUN &&
         self->command != COMMAND_MATRIX) ||
        (self->members != 0 && self->command != COMMAND_RING &&
         self->command != COMMAND_RING_MEMBER)) {
        fputs("gpuipc-selftest: --measure is for transports, --members for ring\n", stderr);
        return false;
    }
    if (self->command == COMMAND_CONSUME && (self->size_count > 0 || self->bench_copy)) {
        fputs("gpuipc-selftest: sizes and --bench-copy are the producer's to choose\n", stderr);
        return false;
    }
    if (!check_outputs(self)) {
        return false;
    }
    if (self->by_ticket && self->command != COMMAND_CHANNEL_READER && !check_ticket(self)) {
        return false;
    }
    if (self->name == NULL) {
        self->name = DEFAULT_NAME;
    }
    return true;
}

bool options_read(int count, char **arguments, options *out_options, int *out_exit_code) {
    options self = {.command = COMMAND_RUN,
                    .device = DEVICE_ANY,
                    .peer = DEVICE_ANY,
                    .timeout_ms = TIMEOUT_DEFAULT_S * 1000};
    int option;
    while ((option = getopt_long(count, arguments, "hv", long_options, NULL)) != -1) {
        if (!take(&self, option, out_exit_code)) {
            return false;
        }
    }
    *out_exit_code = EXIT_USAGE;
    if (!take_words(&self, arguments + optind, count - optind) || !check_together(&self)) {
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
