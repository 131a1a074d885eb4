/* SPDX-License-Identifier: MIT */
/**
 * @file The process that dies: plays one side of a conversation, once, with the library that stops at steps.
 *     death_helper DIRECTORY NAME SIDE FATE STEP NTH
 * FATE is "die" or "stop"; STEP is the number of a step of the table, or -1: the NTHth time that any function is passed.
 * Exit code 0: it came to the end, after the line "passed COUNT"; 3: a call failed, which it has said on stderr.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conversation.h"
#include "helper.h"
#include "step.h"

/* Enough for what who is left does; and who was stopped, and goes on alone, comes to its end so much later. */
#define PATIENCE_MS 5000

static void begin(talker *self) {
    self->timeout_ms = PATIENCE_MS;
}

static bool again(talker *self, const char *call) {
    if (self->status != GPUIPC_OK) {
        (void)fprintf(stderr, "death_helper: %s: %s\n", call, gpuipc_error_text());
    }
    return false;
}

static void say(talker *self, const char *line) {
    (void)self;
    helper_say("%s", line);
}

static bool hear(talker *self, char *line, size_t capacity) {
    (void)self;
    return helper_hear(line, capacity);
}

static void part(talker *self) {
    (void)self; /* who is left has ended its connection */
}

int main(int count, char **words) {
    talker self = {.timeout_ms = PATIENCE_MS,
                   .begin = begin,
                   .again = again,
                   .say = say,
                   .hear = hear,
                   .part = part};
    helper_begin();
    if (count != 7) {
        return 2;
    }
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = words[1]};
    self.name = words[2];
    const long side = strtol(words[3], NULL, 10);
    const step_fate fate = strcmp(words[4], "stop") == 0 ? STEP_STOP : STEP_DIE;
    const long number = strtol(words[5], NULL, 10);
    if (side < 0 || side >= CONVERSATION_SIDES ||
        gpuipc_context_create(&config, &self.context) != GPUIPC_OK) {
        return 2;
    }
    step_arm(number < 0 ? NULL : &step_table[number], strtoull(words[6], NULL, 10), fate);
    const bool is_done = conversation_sides[side].play(&self);
    if (is_done) {
        helper_say("passed %" PRIu64, step_passed());
    }
    const bool is_over = gpuipc_context_destroy(self.context) == GPUIPC_OK;
    return is_done && is_over ? 0 : 3;
}
