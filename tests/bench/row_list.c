/* SPDX-License-Identifier: MIT */
/** @file The rows. */
#include <stdio.h>
#include <string.h>

#include "bench_row.h"

static const bench_row rows[] = {
    {"share_open_peer_2mib", "a filled buffer of 2 MiB, until another GPU's process can use it",
     row_share, 2 * MIB, true, 15, true, false},
    {"share_open_peer_1gib", "the same, 1 GiB", row_share, GIB, true, 25, true, false},
    {"share_open_same_2mib", "a filled buffer of 2 MiB, opened on its own GPU", row_share, 2 * MIB,
     false, 5, true, false},
    {"share_open_same_1gib", "the same, 1 GiB", row_share, GIB, false, 5, true, false},
    {"share_open_new_1gib", "the same, made the moment before and not filled", row_share, GIB,
     false, 1, true, true},
    {"sizes_peer", "filled buffers of 2 MiB to 16 GiB, opened on another GPU", row_sizes, 0, true,
     1, true, false},
    {"sizes_same", "the same, opened on their own GPU", row_sizes, 0, false, 1, true, false},
    {"segments_peer", "1 GiB and 8 GiB in segments of several sizes, opened on another GPU",
     row_segments, 0, true, 0, false, false},
    {"open_again", "a ticket whose memory is open already", row_open_again, 2 * MIB, true, 150,
     false, false},
    {"ticket_known", "a ticket of an exporter that others came from, until its memory can be used",
     row_ticket, 2 * MIB, true, 1.2, false, false},
    {"ticket_unknown", "a ticket of an exporter that none came from before", row_ticket, 2 * MIB,
     true, 1.3, false, true},
    {"batch_1000x2mib", "1,000 buffers of 2 MiB in one message", row_batch, 2 * MIB, true, 1.1,
     false, false},
    {"manifest_1000", "1,000 tensors in one buffer, by manifest", row_manifest, 64 * MIB, true, 2,
     false, false},
    {"live_imports_10_to_10000", "what one more open buffer costs when many are open", row_live,
     2 * MIB, true, 1.2, false, false},
    {"consumers_1_to_64", "what each further consumer of a buffer costs its owner", row_consumers,
     2 * MIB, true, 1.2, false, false},
    {"give_up_2mib",
     "what it costs the caller to give a buffer up: dropped, in stream order, at once", row_give_up,
     2 * MIB, false, 1, false, false},
    {"copy_peer", "copies through the mapping of another GPU's memory", row_copy, 0, true, 0.99,
     false, false},
    {"copy_same", "copies through the mapping of memory of the same GPU", row_copy, 0, false, 0.99,
     false, false},
    {"channel_looking", "a frame from publish to take, the reader looks; beside a word by hand",
     row_channel_looking, 0, false, 0.5, false, false},
    {"channel_asleep", "the same, the reader sleeps; beside a word at which a process sleeps",
     row_channel_asleep, 0, false, 1.2, false, false},
    {"channel_sizes", "the same with frames of 4 KiB to 1 GiB, the reader looks", row_channel_sizes,
     0, false, 1.2, false, false},
    {"channel_readers", "a loan and a publication with up to 32 readers", row_channel_readers, 0,
     false, 50, false, false},
    {"channel_hop_same",
     "a frame from stream to stream on one GPU; beside stream memory operations", row_channel_hops,
     0, false, 1.1, false, false},
    {"channel_hop_peer", "the same between two GPUs", row_channel_hops, 0, true, 1.1, false, false},
    {"channel_calls", "the host's time in loan, publish, take and give back on streams",
     row_channel_calls, 0, true, 1.2, false, false},
    {"channel_frames_8mib", "frames of 8 MiB copied by another GPU; beside the copies alone",
     row_channel_frames, 8 * MIB, true, 0.95, false, false},
    {"threads", "a call on an object of its own, by one of eight threads; beside one thread's",
     row_threads, 2 * MIB, false, 1.5, false, false},
    {"at_rest", "threads and wake-ups while nothing is asked", row_at_rest, 0, true, 0, true,
     false},
};

const bench_row *row_find(const char *name) {
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

const bench_row *row_at(size_t index) {
    return index < sizeof(rows) / sizeof(*rows) ? &rows[index] : NULL;
}

void row_list_print(void) {
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        (void)printf("%-26s %s\n", rows[i].name, rows[i].text);
    }
}
