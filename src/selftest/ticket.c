/* SPDX-License-Identifier: MIT */
/**
 * @file See ticket.h. Who opens a ticket by hand has no connection to say anything over: the last word of the
 * memory, which is not part of the pattern, says what came of it.
 */
#include "ticket.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "consume.h"
#include "pattern.h"
#include "produce.h"
#include "quantity.h"
#include "wrap.h"

#define WORD sizeof(uint32_t)
/* What is given by ticket of a buffer that has been handed over as a whole already. */
#define OFFER_BYTES_MAX (UINT64_C(1) << 20)
/* How often is looked whether the memory has been verified, when nobody asks the server. */
#define LOOK_MS 50

/* Attached to every ticket: nothing is written into memory of another program's ticket. */
static const char mark[] = "gpuipc-selftest";

/* What the last word says. */
enum {
    UNSEEN = 0,
    RIGHT = 1,
    WRONG = 2
};

static bool verify(role *self, gpuipc_buffer *buffer, uint64_t bytes, pattern of) {
    pattern_result result;
    if (!role_check(self, pattern_verify(buffer, bytes, of, &result), "reading the memory")) {
        return false;
    }
    return result.wrong == 0 ||
           role_fail(self,
                     "%" PRIu64 " words are wrong; word %" PRIu64 " is 0x%08" PRIx32
                     ", not 0x%08" PRIx32,
                     result.wrong, result.first, result.found, result.expected);
}

/* ---- beside a conversation ------------------------------------------------------------------- */

static bool share(role *self, gpuipc_server *server, gpuipc_buffer *buffer, uint64_t bytes,
                  gpuipc_ticket *out_ticket, char text[GPUIPC_TICKET_TEXT_SIZE]) {
    const gpuipc_share_config config = {.struct_size = sizeof(config),
                                        .bytes = bytes,
                                        .attachment = mark,
                                        .attachment_bytes = sizeof(mark)};
    return role_check(self, gpuipc_buffer_share(server, buffer, &config, out_ticket),
                      "making a ticket") &&
           role_check(self, gpuipc_ticket_to_text(out_ticket, text), "writing a ticket");
}

bool ticket_offer(role *self, gpuipc_buffer *buffer, uint64_t bytes, uint64_t *out_ns) {
    char line[ROLE_LINE_MAX];
    char text[GPUIPC_TICKET_TEXT_SIZE];
    const char *answer = NULL;
    gpuipc_ticket ticket;
    gpuipc_server *server;
    role_step(self, "giving the memory out by a ticket");
    if (!role_check(self, gpuipc_server_create(self->session.context, NULL, &server),
                    "starting a server for tickets")) {
        return false;
    }
    if (share(self, server, buffer, bytes < OFFER_BYTES_MAX ? bytes : OFFER_BYTES_MAX, &ticket,
              text) &&
        role_say(self, NULL, "ticket %s", text)) {
        answer = role_hear(self, "ticket", line, NULL);
    }
    if (answer != NULL && !quantity_take_number(&answer, out_ns)) {
        role_fail(self, "the consumer said \"%.60s\" to the ticket", answer);
        answer = NULL;
    }
    return role_check(self, gpuipc_server_destroy(server), "ending the server") && answer != NULL;
}

static bool is_ours(role *self, const gpuipc_buffer_info *opened) {
    return (opened->attachment_bytes == sizeof(mark) &&
            memcmp(opened->attachment, mark, sizeof(mark)) == 0) ||
           role_fail(self, "the ticket is another program's");
}

bool ticket_open(role *self, const char *text, gpuipc_buffer **out_buffer, uint64_t *out_bytes,
                 uint64_t *out_ns) {
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    const gpuipc_open_config config = {.struct_size = sizeof(config),
                                       .device = self->receive_device,
                                       .timeout_ms = self->options->timeout_ms,
                                       .info = &info};
    gpuipc_buffer *buffer;
    gpuipc_ticket ticket;
    if (!role_check(self, gpuipc_ticket_from_text(text, &ticket), "reading the ticket")) {
        return false;
    }
    role_step(self, "opening a ticket");
    const uint64_t before_ns = os_clock_ns();
    if (!role_check(self, gpuipc_buffer_open(self->session.context, &ticket, &config, &buffer),
                    "opening the ticket")) {
        return false;
    }
    *out_ns = os_clock_ns() - before_ns;
    if (!is_ours(self, &info)) {
        (void)gpuipc_buffer_release(buffer);
        return false;
    }
    *out_buffer = buffer;
    *out_bytes = info.bytes;
    return true;
}

/* ---- by hand: who gives it out --------------------------------------------------------------- */

/* A device's memory, a server that this thread looks after, and a ticket. */
typedef struct giver {
    role role;
    uint32_t device;
    uint64_t bytes;
    gpuipc_buffer *buffer;
    gpuipc_server *server;
    gpuipc_ticket ticket;
} giver;

static bool make(giver *self) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .device = GPUIPC_DEVICE(self->device), .bytes = self->bytes};
    const gpuipc_server_config serving = {.struct_size = sizeof(serving)};
    const uint32_t unseen = UNSEEN;
    gpuipc_context *context = self->role.session.context;
    role_step(&self->role, "filling the memory");
    return role_check(&self->role, gpuipc_buffer_create(context, &config, &self->buffer),
                      "making the memory") &&
           role_check(&self->role, pattern_fill(self->buffer, self->bytes - WORD, pattern_producer),
                      "filling the memory") &&
           role_check(
               &self->role,
               gpuipc_buffer_write(self->buffer, self->bytes - WORD, &unseen, sizeof(unseen)),
               "filling the memory") &&
           role_check(&self->role, gpuipc_server_create(context, &serving, &self->server),
                      "starting a server for tickets");
}

/* True until the memory has been verified and nobody has it open any more. */
static bool is_wanted(giver *self, uint32_t *out_word) {
    size_t holders = 0;
    gpuipc_status status = gpuipc_server_holders(self->server, &self->ticket, NULL, 0, &holders);
    status = status == GPUIPC_ERR_TOO_SMALL ? GPUIPC_OK : status;
    if (!role_check(&self->role, status, "asking who has the memory open") ||
        !role_check(&self->role,
                    gpuipc_buffer_read(self->buffer, self->bytes - WORD, out_word, WORD),
                    "reading the memory")) {
        return false;
    }
    return *out_word == UNSEEN || holders > 0;
}

static bool serve(giver *self) {
    const options *wanted = self->role.options;
    const os_deadline deadline = os_deadline_after(wanted->timeout_ms);
    uint32_t word = UNSEEN;
    while (is_wanted(self, &word)) {
        gpuipc_status status = gpuipc_server_poll(self->server, LOOK_MS);
        if (status != GPUIPC_ERR_TIMEOUT && !role_check(&self->role, status, "answering tickets")) {
            return false;
        }
        if (os_deadline_passed(deadline)) {
            return role_fail(&self->role, "%s within %d seconds",
                             word == UNSEEN ? "nobody verified the memory"
                                            : "who opened the ticket did not release it",
                             wanted->timeout_ms / 1000);
        }
    }
    return self->role.failure[0] == '\0' &&
           (word == RIGHT || role_fail(&self->role, "who opened the ticket found wrong words"));
}

/* The failure is told on the error stream: the other one takes nothing. */
static bool print_ticket(giver *self, const char *text) {
    wrap_say("ticket %s\n", text);
    if (wrap_is_written()) {
        return true;
    }
    wrap_complain("FAIL: the ticket could not be printed, so nobody would come");
    return role_fail(&self->role, "the ticket could not be printed");
}

static int give(giver *self) {
    char size[QUANTITY_MAX];
    char text[GPUIPC_TICKET_TEXT_SIZE];
    bool good = make(self) &&
                share(&self->role, self->server, self->buffer, self->bytes, &self->ticket, text) &&
                print_ticket(self, text);
    if (good) {
        role_step(&self->role, "waiting for a consumer with the ticket");
        good = serve(self);
    }
    (void)gpuipc_server_destroy(self->server);
    (void)gpuipc_buffer_release(self->buffer);
    quantity_bytes(self->bytes, size);
    if (good) {
        wrap_say(ROLE_PASS "device %u, %s by ticket: opened, verified and released\n", self->device,
                 size);
    } else {
        wrap_say(ROLE_FAIL "device %u, %s by ticket: %s\n", self->device, size, self->role.failure);
    }
    return good ? EXIT_PASS : EXIT_FAIL;
}

int ticket_produce(const options *wanted) {
    uint64_t sizes[SIZES_MAX];
    uint64_t granularity;
    giver self = {.device = wanted->device == DEVICE_ANY ? 0 : wanted->device};
    int code = role_begin(&self.role, wanted, "consumer");
    if (code != EXIT_PASS) {
        return code;
    }
    (void)produce_sizes(wanted, self.role.session.info.is_emulated, sizes);
    self.bytes = sizes[0];
    code = produce_check_device(&self.role, self.device, &granularity);
    if (code == EXIT_PASS) {
        code = give(&self);
    }
    role_end(&self.role);
    return code;
}

/* ---- by hand: who opens it ------------------------------------------------------------------- */

static bool take(role *self, const char *text) {
    char size[QUANTITY_MAX];
    gpuipc_buffer *buffer;
    uint64_t bytes;
    uint64_t opened_ns;
    if (!ticket_open(self, text, &buffer, &bytes, &opened_ns)) {
        return false;
    }
    role_step(self, "opened %s in %.1f us%s; reading what the producer wrote",
              quantity_bytes(bytes, size), (double)opened_ns / 1000.0,
              self->session.info.is_emulated ? " (emulated)" : "");
    bool good = verify(self, buffer, bytes - WORD, pattern_producer);
    const uint32_t word = good ? RIGHT : WRONG;
    good = role_check(self, gpuipc_buffer_write(buffer, bytes - WORD, &word, sizeof(word)),
                      "writing into the memory") &&
           good;
    good = role_check(self, gpuipc_buffer_release(buffer), "releasing the memory") && good;
    if (good) {
        role_step(self, "done: all %" PRIu64 " words were right", bytes / WORD - 1);
    }
    return good;
}

int ticket_consume(const options *wanted) {
    role self;
    gpuipc_ticket known;
    if (gpuipc_ticket_from_text(wanted->ticket, &known) != GPUIPC_OK) {
        wrap_complain("--ticket: %s", gpuipc_error_text());
        return EXIT_USAGE;
    }
    int code = role_begin(&self, wanted, "producer");
    if (code != EXIT_PASS) {
        return code;
    }
    code = consume_choose_device(&self);
    if (code == EXIT_PASS && !take(&self, wanted->ticket)) {
        wrap_complain("consumer: %s", self.failure);
        code = EXIT_FAIL;
    }
    role_end(&self);
    return code;
}
