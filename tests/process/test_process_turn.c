/* SPDX-License-Identifier: MIT */
/** @file Channels of turns between processes whose graphs run, one of which ends or stands still at any moment. */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>

#include "check.h"
#include "os.h"
#include "partner.h"

static process_case at;
static partner writer;

TestSuite(turn, .timeout = 100);

static void partner_with_buffer(partner *self) {
    partner_start(self, &at, NULL, NULL);
    partner_do(self, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
}

static void begin(void) {
    process_case_begin(&at, NULL);
    partner_with_buffer(&writer);
    partner_do(&writer, "GPUIPC_OK", "turns frames");
}

static void end(void) {
    if (writer.process != NULL) {
        partner_end(&writer);
    }
    process_case_end(&at);
}

static void reader_start(partner *self) {
    partner_with_buffer(self);
    partner_do(self, "GPUIPC_OK", "turns-open frames");
}

/* One turn, from the one graph to the other. */
static void pass_on(partner *reader, unsigned value) {
    partner_do(&writer, "GPUIPC_OK", "turns-launch 1");
    partner_do(reader, "GPUIPC_OK", "turns-launch 1");
    char expected[64];
    (void)snprintf(expected, sizeof(expected), "GPUIPC_OK %u", value);
    partner_do(reader, expected, "turns-await");
}

Test(turn, graphs_of_two_processes_take_turns) {
    partner reader;
    begin();
    reader_start(&reader);
    for (unsigned value = 1; value <= 3; value++) {
        partner_do(&writer, "GPUIPC_OK", "turns-write %u", value);
        for (int i = 0; i < 20; i++) {
            pass_on(&reader, value);
        }
    }
    partner_tell(&writer, "turns-launch 500"); /* more than a stream may have room for */
    partner_tell(&reader, "turns-launch 500");
    partner_hear(&writer, "GPUIPC_OK");
    partner_hear(&reader, "GPUIPC_OK");
    partner_do(&reader, "GPUIPC_OK 3", "turns-await");
    partner_do(&writer, "GPUIPC_OK", "turns-await");
    partner_do(&reader, "GPUIPC_OK", "turns-check");
    partner_end(&reader);
    end();
}

/* Between two launches, or with a turn that it has not given back: the others lose nothing. */
static void kill_a_reader(bool has_turn) {
    partner lasting;
    partner dying;
    begin();
    reader_start(&lasting);
    reader_start(&dying);
    partner_do(&writer, "GPUIPC_OK", "turns-write 7");
    for (int i = 0; i < 3; i++) {
        partner_do(&dying, "GPUIPC_OK", "turns-launch 1");
        pass_on(&lasting, 7);
        partner_do(&dying, "GPUIPC_OK 7", "turns-await");
    }
    if (has_turn) {
        pass_on(&lasting, 7);
        partner_do(&writer, "GPUIPC_OK", "turns-launch 1");
        partner_do(&writer, "waits", "turns-waiting");
    }
    partner_kill(&dying);
    partner_do(&lasting, "GPUIPC_OK", "turns-launch %d", has_turn);
    partner_do(&writer, "GPUIPC_OK", "turns-await");
    for (int i = 0; i < 20; i++) {
        pass_on(&lasting, 7);
    }
    partner_do(&writer, "GPUIPC_OK 1 0 0 1, 2", "turns-readers");
    partner_end(&lasting);
    end();
}

Test(turn, a_reader_is_killed_between_launches) {
    kill_a_reader(false);
}

Test(turn, a_reader_is_killed_that_has_a_turn) {
    kill_a_reader(true);
}

/* Its place is another's, which a new capture takes in. */
Test(turn, readers_that_are_killed_are_replaced) {
    partner lasting;
    begin();
    reader_start(&lasting);
    for (unsigned i = 0; i < 5; i++) {
        partner other;
        reader_start(&other);
        partner_do(&writer, "GPUIPC_OK", "turns-write %u", i);
        partner_do(&other, "GPUIPC_OK", "turns-launch 5");
        pass_on(&lasting, i);
        partner_kill(&other);
        pass_on(&lasting, i);
    }
    partner_end(&lasting);
    end();
}

/* What waits goes on, and so does each later launch; who asks is told. */
Test(turn, the_writer_is_killed) {
    partner reader;
    begin();
    reader_start(&reader);
    partner_do(&writer, "GPUIPC_OK", "turns-write 7");
    pass_on(&reader, 7);
    partner_do(&reader, "GPUIPC_OK", "turns-launch 1");
    partner_do(&reader, "waits", "turns-waiting");
    partner_do(&reader, "GPUIPC_OK", "turns-check");
    partner_kill(&writer);
    partner_do(&reader, "GPUIPC_OK 7", "turns-await");
    partner_do(&reader, "GPUIPC_ERR_PEER_CLOSED", "turns-check");
    partner_do(&reader, "GPUIPC_OK", "turns-launch 1000");
    partner_do(&reader, "GPUIPC_OK 7", "turns-await");
    partner_do(&reader, "GPUIPC_ERR_PEER_CLOSED", "turns-take");
    partner_end(&reader);
    end();
}

Test(turn, the_writer_ends_its_channel) {
    partner reader;
    begin();
    reader_start(&reader);
    partner_do(&reader, "GPUIPC_OK", "turns-launch 3");
    partner_end(&writer);
    writer.process = NULL;
    partner_do(&reader, "GPUIPC_OK", "turns-await");
    partner_do(&reader, "GPUIPC_ERR_PEER_CLOSED", "turns-check");
    partner_end(&reader);
    end();
}

/* It is slow, and is waited for. */
Test(turn, a_reader_stands_still) {
    partner reader;
    begin();
    reader_start(&reader);
    partner_do(&writer, "GPUIPC_OK", "turns-write 7");
    pass_on(&reader, 7);
    child_stop(reader.process);
    partner_do(&writer, "GPUIPC_OK", "turns-launch 2");
    for (int i = 0; i < 10; i++) {
        partner_do(&writer, "GPUIPC_OK 1 0 0 0, 1", "turns-readers");
        partner_do(&writer, "waits", "turns-waiting");
    }
    child_continue(reader.process);
    partner_do(&reader, "GPUIPC_OK", "turns-launch 2");
    partner_do(&reader, "GPUIPC_OK 7", "turns-await");
    partner_do(&writer, "GPUIPC_OK", "turns-await");
    partner_end(&reader);
    end();
}

/* Nor does it fill the queue of the writer's stream, whose host goes on and may end. */
Test(turn, a_writer_runs_ahead_of_a_reader_that_stands_still) {
    partner reader;
    begin();
    reader_start(&reader);
    partner_do(&writer, "GPUIPC_OK", "turns-write 7"); /* makes the stream */
    pass_on(&reader, 7);
    child_stop(reader.process);
    partner_do(&writer, "GPUIPC_ERR_TIMEOUT", "turns-ahead");
    partner_do(&writer, "GPUIPC_OK 1 0 0 0, 1", "turns-readers");
    partner_do(&writer, "waits", "turns-waiting");
    partner_end(&writer);
    writer.process = NULL;
    child_continue(reader.process);
    partner_do(&reader, "GPUIPC_ERR_PEER_CLOSED", "turns-check");
    partner_end(&reader);
    end();
}

Test(turn, a_reader_that_comes_late_is_no_part_of_the_graph) {
    partner reader;
    partner late;
    begin();
    reader_start(&reader);
    partner_do(&writer, "GPUIPC_OK", "turns-write 7");
    reader_start(&late);
    partner_do(&late, "GPUIPC_OK", "turns-launch 1");
    for (int i = 0; i < 5; i++) {
        pass_on(&reader, 7);
    }
    partner_do(&writer, "GPUIPC_OK 2 0 0 0, 1", "turns-readers");
    partner_do(&late, "waits", "turns-waiting");
    partner_do(&writer, "GPUIPC_OK", "turns-write 8");
    partner_do(&writer, "GPUIPC_OK 2 0 0 0, 2", "turns-readers");
    pass_on(&reader, 8);
    partner_do(&late, "GPUIPC_OK 8", "turns-await");
    partner_end(&late);
    partner_end(&reader);
    end();
}
