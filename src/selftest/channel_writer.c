/* SPDX-License-Identifier: MIT */
/**
 * @file See channel.h: the program that writes frames. It starts its readers, and kills one of them, which has frames in its
 * hands then. Readers say a few words on their output, and hear nothing: the channel is all that leads to them.
 */
#include "channel.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "crew.h"
#include "pattern.h"
#include "quantity.h"

enum {
    TIMED_WARM = 8,
    TIMED = 256,
    TIMED_EMULATED = 64,
    FRAMES_MAX = CHANNEL_CHECKED + 1 + TIMED_WARM + TIMED
};

typedef struct reader_program {
    child *program; /* NULL: there is none */
    arguments words;
    char step[ROLE_LINE_MAX];
    uint64_t count; /* what it has said that it read, */
    uint64_t missed;
} reader_program;

typedef struct writer {
    role role;
    uint64_t bytes;        /* of a frame */
    gpuipc_buffer *source; /* what frames are copied from: a word more for each of them */
    gpuipc_buffer *slots;
    gpuipc_server *server;
    gpuipc_channel *channel;
    CUstream stream;
    uint32_t number;  /* frames that were published */
    uint32_t came_at; /* the replacement, behind so many frames */
    double free_ms;   /* until what the killed reader had could be loaned */
    double frame_us;  /* of those that were timed */
    char ticket[sizeof("--ticket=") + GPUIPC_TICKET_TEXT_SIZE];
    reader_program readers[READER_COUNT];
} writer;

static const char *const reader_names[READER_COUNT] = {
    "reader of all frames on a stream",  "reader of all frames on the host",
    "reader of the newest on a stream",  "reader of the newest on the host",
    "reader that replaced a killed one", "reader that was to be killed"};

/* ---- what readers say -------------------------------------------------------------------------- */

/* Waits for a line that begins with @p word. @return what is behind it, or NULL on failure */
static const char *hear(writer *self, uint32_t index, const char *word, char line[ROLE_LINE_MAX]) {
    reader_program *from = &self->readers[index];
    const int patience_ms = self->role.options->timeout_ms;
    gpuipc_status status;
    size_t which;
    while ((status = child_next(&from->program, 1, os_deadline_after(patience_ms), &which, line,
                                ROLE_LINE_MAX)) == GPUIPC_OK) {
        if (strncmp(line, ROLE_STEP, strlen(ROLE_STEP)) == 0) {
            (void)snprintf(from->step, sizeof(from->step), "%s", line + strlen(ROLE_STEP));
        } else if (role_begins_with(line, word)) {
            return line + strlen(word);
        } else if (role_begins_with(line, CHANNEL_SAYS_FAILED)) {
            role_fail(&self->role, "%s: %s", reader_names[index],
                      line + strlen(CHANNEL_SAYS_FAILED " "));
            return NULL;
        }
    }
    role_fail(&self->role, "%s: %s; its last step: %s", reader_names[index],
              status == GPUIPC_ERR_PEER_CLOSED ? "it ended" : "it said nothing in time",
              from->step[0] != '\0' ? from->step : "none");
    return NULL;
}

static bool start_reader(writer *self, uint32_t index) {
    char line[ROLE_LINE_MAX];
    const options *wanted = self->role.options;
    arguments *words = &self->readers[index].words;
    arguments_begin(words, "channel-reader", wanted->name, self->role.session.choice, wanted);
    arguments_add_number(words, "--peer", wanted->peer);
    arguments_add_number(words, "--index", index);
    arguments_add(words, self->ticket);
    role_step(&self->role, "starting the %s", reader_names[index]);
    return role_check(&self->role, child_start(words->list, &self->readers[index].program),
                      "starting a reader") &&
           hear(self, index, CHANNEL_SAYS_OPEN, line) != NULL;
}

/* It has had all its frames. */
static bool hear_result(writer *self, uint32_t index) {
    char line[ROLE_LINE_MAX];
    reader_program *from = &self->readers[index];
    bool was_killed = false;
    const char *rest = hear(self, index, CHANNEL_SAYS_READ, line);
    if (rest == NULL || !quantity_take_number(&rest, &from->count) ||
        !quantity_take_number(&rest, &from->missed)) {
        return rest == NULL ? false : role_fail(&self->role, "a reader said \"%.60s\"", line);
    }
    const child_end how =
        child_finish(from->program, os_deadline_after(self->role.options->timeout_ms), &was_killed);
    return (how.exited && how.code == EXIT_PASS) ||
           role_fail(&self->role, "%s ended badly", reader_names[index]);
}

/* ---- beginning and end ------------------------------------------------------------------------- */

static bool make_buffers(writer *self) {
    const uint32_t device = GPUIPC_DEVICE(self->role.options->device);
    gpuipc_context *context = self->role.session.context;
    gpuipc_buffer_config config = {.struct_size = sizeof(config), .device = device};
    config.bytes = self->bytes + FRAMES_MAX * sizeof(uint32_t);
    role_step(&self->role, "making what frames are filled with");
    if (!role_check(&self->role, gpuipc_buffer_create(context, &config, &self->source),
                    "making memory") ||
        !role_check(&self->role, pattern_fill(self->source, config.bytes, pattern_producer),
                    "filling memory")) {
        return false;
    }
    config.bytes = self->bytes * CHANNEL_SLOTS;
    return role_check(&self->role, gpuipc_buffer_create(context, &config, &self->slots),
                      "making the slots");
}

static bool make_channel(writer *self) {
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = self->slots,
                                          .slots = CHANNEL_SLOTS,
                                          .slot_bytes = self->bytes,
                                          .header_bytes = sizeof(channel_header),
                                          .full = GPUIPC_FULL_WAIT};
    gpuipc_ticket made;
    char *text = self->ticket + strlen("--ticket=");
    (void)snprintf(self->ticket, sizeof(self->ticket), "--ticket=");
    role_step(&self->role, "making the channel");
    return role_check(&self->role,
                      gpuipc_server_create(self->role.session.context, NULL, &self->server),
                      "starting a server for tickets") &&
           role_check(&self->role,
                      gpuipc_channel_create(self->server, &config, &self->channel, &made),
                      "making the channel") &&
           role_check(&self->role, gpuipc_ticket_to_text(&made, text), "writing the ticket");
}

static bool check_cuda(writer *self, CUresult result, const char *call, const char *what) {
    status_enter(__func__);
    return role_check(&self->role, driver_status(&self->role.session.driver, result, call, what),
                      what);
}

/* The device's context stays current until end(). */
static bool make_stream(writer *self) {
    session *at = &self->role.session;
    if (!role_check(&self->role, session_enter(at, self->role.options->device),
                    "entering a device's context")) {
        return false;
    }
    return check_cuda(self, at->driver.cuStreamCreate(&self->stream, CU_STREAM_NON_BLOCKING),
                      "cuStreamCreate", "making a stream");
}

static bool synchronize(writer *self) {
    return check_cuda(self, self->role.session.driver.cuStreamSynchronize(self->stream),
                      "cuStreamSynchronize", "waiting for the stream");
}

static void end(writer *self) {
    session *at = &self->role.session;
    for (uint32_t i = 0; i < READER_COUNT; i++) {
        child_destroy(self->readers[i].program);
    }
    if (self->stream != NULL) {
        (void)at->driver.cuStreamSynchronize(self->stream);
        (void)at->driver.cuStreamDestroy(self->stream);
        session_leave(at);
    }
    (void)gpuipc_channel_destroy(self->channel);
    (void)gpuipc_server_destroy(self->server);
    (void)gpuipc_buffer_release(self->slots);
    (void)gpuipc_buffer_release(self->source);
}

/* ---- frames ------------------------------------------------------------------------------------ */

static bool publish(writer *self, bool on_stream, bool is_timed) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    const channel_header header = {self->number, is_timed};
    const CUstream stream = on_stream ? self->stream : GPUIPC_NO_STREAM;
    if (!role_check(
            &self->role,
            gpuipc_channel_loan(self->channel, stream, self->role.options->timeout_ms, &frame),
            "loaning a slot") ||
        !role_check(&self->role,
                    gpuipc_buffer_copy_async(
                        self->slots, frame.address - gpuipc_buffer_address(self->slots),
                        self->source, self->number * sizeof(uint32_t), self->bytes, self->stream),
                    "filling a frame") ||
        (!on_stream && !synchronize(self))) {
        return false;
    }
    frame.header = &header;
    frame.header_bytes = sizeof(header);
    self->number++;
    return role_check(&self->role, gpuipc_channel_publish(self->channel, &frame, stream),
                      "publishing a frame");
}

/* On the stream and on the host by turns, up to that number. */
static bool publish_checked(writer *self, uint32_t up_to) {
    bool good = true;
    while (good && self->number < up_to) {
        good = publish(self, self->number % 2 == 0, false);
    }
    return good;
}

/* The victim has every slot: two it has taken, two wait for it. So the next loan succeeds only when it is known to be
 * dead. */
static bool kill_and_replace(writer *self) {
    char line[ROLE_LINE_MAX];
    role_step(&self->role, "killing a reader that has frames");
    if (hear(self, READER_VICTIM, CHANNEL_SAYS_HOLDS, line) == NULL) {
        return false;
    }
    child_destroy(self->readers[READER_VICTIM].program);
    self->readers[READER_VICTIM].program = NULL;
    const uint64_t begin_ns = os_clock_ns();
    if (!publish(self, false, false)) {
        return false;
    }
    self->free_ms = (double)(os_clock_ns() - begin_ns) / 1e6;
    self->came_at = self->number;
    return start_reader(self, READER_REPLACEMENT);
}

/* Who has all slots on loan knows that every reader has given back what it had. */
static bool await_all_back(writer *self) {
    gpuipc_frame frames[CHANNEL_SLOTS];
    bool good = true;
    for (uint32_t i = 0; i < CHANNEL_SLOTS; i++) {
        frames[i] = (gpuipc_frame)GPUIPC_FRAME_INIT;
        good = good && role_check(&self->role,
                                  gpuipc_channel_loan(self->channel, GPUIPC_NO_STREAM,
                                                      self->role.options->timeout_ms, &frames[i]),
                                  "waiting until all is given back");
    }
    for (uint32_t i = 0; good && i < CHANNEL_SLOTS; i++) {
        good = role_check(&self->role, gpuipc_channel_discard(self->channel, &frames[i]),
                          "discarding a loan");
    }
    return good;
}

static bool publish_timed(writer *self, uint32_t count) {
    bool good = true;
    for (uint32_t i = 0; good && i < count; i++) {
        good = publish(self, true, true);
    }
    return good && await_all_back(self);
}

/* The others leave at the first frame that is timed. */
static bool time_frames(writer *self) {
    const uint32_t count = self->role.session.info.is_emulated ? TIMED_EMULATED : TIMED;
    role_step(&self->role, "waiting for the readers' results");
    bool good = publish(self, true, true);
    for (uint32_t i = READER_ALL_HOST; i <= READER_REPLACEMENT; i++) {
        good = good && hear_result(self, i);
    }
    role_step(&self->role, "timing frames");
    good = good && publish_timed(self, TIMED_WARM);
    const uint64_t begin_ns = os_clock_ns();
    good = good && publish_timed(self, count);
    self->frame_us = (double)(os_clock_ns() - begin_ns) / 1e3 / count;
    return good;
}

/* Who wants all has all; the others have seen or passed over each. */
static bool check_counts(writer *self) {
    for (uint32_t i = 0; i <= READER_REPLACEMENT; i++) {
        const reader_program *of = &self->readers[i];
        const uint64_t due =
            i == READER_REPLACEMENT ? CHANNEL_CHECKED - self->came_at : CHANNEL_CHECKED;
        if (of->count + of->missed != due) {
            return role_fail(&self->role,
                             "%s: %" PRIu64 " frames read and %" PRIu64 " passed over, of %" PRIu64,
                             reader_names[i], of->count, of->missed, due);
        }
    }
    return true;
}

static bool write_all(writer *self) {
    bool good = true;
    for (uint32_t i = 0; i < READER_COUNT; i++) {
        good = good && (i == READER_REPLACEMENT || start_reader(self, i));
    }
    role_step(&self->role, "publishing frames");
    good =
        good && publish_checked(self, CHANNEL_HOLD_FROM + CHANNEL_SLOTS) && kill_and_replace(self);
    role_step(&self->role, "publishing frames");
    good = good && publish_checked(self, CHANNEL_CHECKED) && time_frames(self) && synchronize(self);
    role_step(&self->role, "ending the channel");
    gpuipc_channel *ended = self->channel;
    self->channel = NULL;
    return role_check(&self->role, gpuipc_channel_destroy(ended), "ending the channel") && good &&
           hear_result(self, READER_ALL_STREAM) && check_counts(self);
}

static void tell(const writer *self, bool good) {
    const options *wanted = self->role.options;
    char size[QUANTITY_MAX];
    role_note(&self->role, "id channel/%" PRIu32 "-%" PRIu32 "/%" PRIu64, wanted->device,
              wanted->peer, self->bytes);
    if (good) {
        role_note(&self->role, "value frame_us %.3f", self->frame_us);
        role_note(&self->role, "value gb_per_s %.3f", (double)self->bytes / 1e3 / self->frame_us);
        role_note(&self->role, "value free_again_ms %.3f", self->free_ms);
    }
    printf("%schannel, device %u -> device %u, %s: ", good ? ROLE_PASS : ROLE_FAIL, wanted->device,
           wanted->peer, quantity_bytes(self->bytes, size));
    if (!good) {
        printf("%s\n", self->role.failure);
        return;
    }
    printf(
        "all %" PRIu64 " words of %d frames right for readers on a stream and on the host, which "
        "saw every frame, or the newest (%" PRIu64 " and %" PRIu64
        " of them); a reader was killed with %u frames and replaced, free again after %.1f ms; "
        "%.1f us per frame, %.1f GB/s%s\n",
        self->bytes / sizeof(uint32_t), CHANNEL_CHECKED, self->readers[READER_NEWEST_STREAM].count,
        self->readers[READER_NEWEST_HOST].count, CHANNEL_VICTIM_HOLDS, self->free_ms,
        self->frame_us, (double)self->bytes / 1e3 / self->frame_us,
        self->role.session.info.is_emulated ? " (emulated)" : "");
}

int channel_writer(const options *wanted) {
    static writer self;
    int code = role_begin(&self.role, wanted, "tool");
    if (code != EXIT_PASS) {
        return code;
    }
    self.bytes = wanted->sizes[0];
    const bool good =
        make_stream(&self) && make_buffers(&self) && make_channel(&self) && write_all(&self);
    tell(&self, good);
    fflush(stdout);
    end(&self);
    role_end(&self.role);
    return good ? EXIT_PASS : EXIT_FAIL;
}
