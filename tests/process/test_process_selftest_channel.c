/* SPDX-License-Identifier: MIT */
/** @file gpuipc-selftest's channels, on machines of several kinds, and its reader alone with a writer that is wrong. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "selftest_run.h"

#define CHANNEL "channel", "--driver=emulated"
/** One small case. */
#define ONE_CASE CHANNEL, "--device=0", "--peer=1", "--size=64K"

TestSuite(selftest_channel, .timeout = 100);

Test(selftest_channel, every_pair_of_devices) {
    static const char *const pairs[] = {
        "pass  channel, device 0 -> device 0, 256 KiB: all 65536 words of 48 frames right",
        "pass  channel, device 0 -> device 1, 256 KiB: all 65536 words of 48 frames right",
        "pass  channel, device 1 -> device 0, 256 KiB: all 65536 words of 48 frames right",
        "pass  channel, device 1 -> device 1, 256 KiB: all 65536 words of 48 frames right"};
    selftest_outcome found = selftest_run((selftest_words){CHANNEL, NULL}, NULL);
    selftest_expect_code(&found, 0);
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        selftest_expect_text(&found, pairs[i]);
    }
    selftest_expect_text(&found,
                         "a reader was killed with 2 frames and replaced, free again after ");
    selftest_expect_text(&found, " GB/s (emulated)");
    cr_assert(strstr(found.last, "passed on the emulated driver, no GPU was used: 4 passed, 0 "
                                 "failed, 0 skipped") == found.last,
              "%s", found.last);
}

Test(selftest_channel, frames_of_several_sizes) {
    selftest_outcome found =
        selftest_run((selftest_words){ONE_CASE, "--size=4", "--size=1028", "--verbose", NULL},
                     (selftest_words){"GPUIPC_EMULATED_MACHINE=devices=2;stream-delay-ms=1", NULL});
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "device 0 -> device 1, 64 KiB: all 16384 words of 48 frames");
    selftest_expect_text(&found, "device 0 -> device 1, 4 B: all 1 words of 48 frames");
    selftest_expect_text(&found, "device 0 -> device 1, 1028 B: all 257 words of 48 frames");
    selftest_expect_text(&found, "      writer: killing a reader that has frames");
}

Test(selftest_channel, nothing_to_test) {
    selftest_outcome found =
        selftest_run((selftest_words){ONE_CASE, NULL},
                     (selftest_words){"GPUIPC_EMULATED_MACHINE=p2p=none", NULL});
    selftest_expect_code(&found, 77);
    selftest_expect_text(&found,
                         "skip  device 0 -> device 1: device 1 cannot reach memory of device 0");
    found =
        selftest_run((selftest_words){CHANNEL, "--device=0", "--peer=0", "--size=64G", NULL}, NULL);
    selftest_expect_code(&found, 77);
    selftest_expect_text(&found, "skip  channel, device 0 -> device 0, 64 GiB: device 0 has ");
}

/* A failure anywhere is one, and says whose it is. */
Test(selftest_channel, fails_when_a_program_fails) {
    static const struct {
        const char *fault;
        const char *said;
        const char *timeout;
    } rows[] = {{"GPUIPC_EMULATED_FAIL=cuStreamCreate:1=2", "making a stream: ", NULL},
                {"GPUIPC_EMULATED_FAIL=cuMemImportFromShareableHandle:1=999",
                 "reader of all frames on a stream: opening the channel: ", NULL},
                {"GPUIPC_EMULATED_FAIL=cuMemcpyDtoHAsync:3=700", "reading a frame: ", NULL},
                {"GPUIPC_EMULATED_FAIL=cuMemcpyDtoHAsync:20=die",
                 "reader that was to be killed: it ended; its last step: reading frames", NULL},
                {"GPUIPC_EMULATED_FAIL=cuMemcpyDtoHAsync:3=delay60000", "64 KiB: ", "--timeout=3"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        selftest_outcome found = selftest_run((selftest_words){ONE_CASE, rows[i].timeout, NULL},
                                              (selftest_words){rows[i].fault, NULL});
        selftest_expect_code(&found, 1);
        selftest_expect_text(&found, "FAIL  channel, device 0 -> device 1, 64 KiB: ");
        selftest_expect_text(&found, rows[i].said);
        selftest_expect_text(&found, "0 passed, 1 failed");
    }
}

Test(selftest_channel, wrong_usage) {
    static const char *const lines[][4] = {{"channel", "x", NULL},
                                           {"channel", "--name=a", NULL},
                                           {"channel", "--ticket", NULL},
                                           {"channel", "--members=3", NULL},
                                           {CHANNEL, "--device=7", NULL}};
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        selftest_outcome found = selftest_run(lines[i], NULL);
        cr_assert_eq(found.code, 2, "%s: exit code %d", lines[i][1], found.code);
    }
}

/* ---- a reader, and a writer that is wrong ------------------------------------------------------ */

#define WORDS 256u

static gpuipc_context *context;
static gpuipc_server *server;
static gpuipc_buffer *slots;
static gpuipc_channel *made;
static child_process *reader;

static void begin(const char *index) {
    const gpuipc_buffer_config memory = {.struct_size = sizeof(memory),
                                         .bytes = 4 * WORDS * sizeof(uint32_t)};
    gpuipc_channel_config config = {.struct_size = sizeof(config),
                                    .slots = 4,
                                    .slot_bytes = WORDS * sizeof(uint32_t),
                                    .header_bytes = 2 * sizeof(uint32_t)};
    char option[GPUIPC_TICKET_TEXT_SIZE + 16] = "--ticket=";
    char line[CHILD_LINE_MAX];
    gpuipc_ticket ticket;
    check_ok(gpuipc_context_create(NULL, &context));
    check_ok(gpuipc_server_create(context, NULL, &server));
    check_ok(gpuipc_buffer_create(context, &memory, &slots));
    config.buffer = slots;
    check_ok(gpuipc_channel_create(server, &config, &made, &ticket));
    check_ok(gpuipc_ticket_to_text(&ticket, option + strlen(option)));
    check_ok(child_start(
        SELFTEST_TOOL,
        (selftest_words){"channel-reader", "--driver=emulated", "--peer=0", index, option, NULL},
        NULL, &reader));
    do {
        check_ok(child_read_line(reader, line, sizeof(line), PATIENCE_MS));
    } while (strcmp(line, "open") != 0);
}

/* As the tool's writer does it, but for one word (WORDS: none). */
static void write_frame(uint32_t number, uint32_t wrong) {
    const uint32_t header[] = {number, 0};
    uint32_t words[WORDS];
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    for (uint32_t i = 0; i < WORDS; i++) {
        words[i] = (((i + number) * 2u + 1337u) ^ 0xDEADBEEFu) ^ (i == wrong);
    }
    check_ok(gpuipc_channel_loan(made, GPUIPC_NO_STREAM, PATIENCE_MS, &frame));
    check_ok(gpuipc_buffer_write(slots, frame.address - gpuipc_buffer_address(slots), words,
                                 sizeof(words)));
    frame.header = header;
    frame.header_bytes = sizeof(header);
    check_ok(gpuipc_channel_publish(made, &frame, GPUIPC_NO_STREAM));
}

/* What it says at last, and its exit code. */
static void end(const char *said, int code) {
    char line[CHILD_LINE_MAX] = "";
    child_end how;
    check_ok(gpuipc_channel_destroy(made));
    while (child_read_line(reader, line, sizeof(line), PATIENCE_MS) == GPUIPC_OK) {
    }
    cr_assert(strstr(line, said) != NULL, "%s", line);
    check_ok(child_wait(reader, PATIENCE_MS, &how));
    cr_assert(how.exited && how.code == code, "%d", how.code);
    child_destroy(reader);
    check_ok(gpuipc_buffer_release(slots));
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_context_destroy(context));
}

Test(selftest_channel, a_reader_says_which_word_is_wrong) {
    static const char *const indexes[] = {"--index=0", "--index=1"}; /* on a stream, on the host */
    for (size_t i = 0; i < sizeof(indexes) / sizeof(*indexes); i++) {
        begin(indexes[i]);
        for (uint32_t number = 0; number < 6; number++) {
            write_frame(number, number == 5 ? 77 : WORDS);
        }
        end("failed 1 words of frame 5 are wrong; word 77 is ", 1);
    }
}

Test(selftest_channel, a_reader_is_content_with_what_is_right) {
    begin("--index=1");
    for (uint32_t number = 0; number < 6; number++) {
        write_frame(number, WORDS);
    }
    end("read 6 0", 0);
}

/* The last word of the frame before is all that is there. */
Test(selftest_channel, a_reader_sees_a_frame_that_was_not_filled) {
    begin("--index=0");
    write_frame(0, WORDS);
    const uint32_t header[] = {1, 0};
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    check_ok(gpuipc_channel_loan(made, GPUIPC_NO_STREAM, PATIENCE_MS, &frame));
    frame.header = header;
    frame.header_bytes = sizeof(header);
    check_ok(gpuipc_channel_publish(made, &frame, GPUIPC_NO_STREAM));
    end("failed 256 words of frame 1 are wrong; word 0 is 0x00000000, not ", 1);
}

Test(selftest_channel, a_reader_without_a_frame_fails) {
    begin("--index=1");
    end("failed the channel ended without a frame", 1);
}
