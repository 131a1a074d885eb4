/* SPDX-License-Identifier: MIT */
/** @file Frames through a channel, from a program on each device to readers on each: channel.c starts a writer for each
 *  case (channel_writer.c), and that its readers (channel_reader.c). */
#ifndef GPUIPC_SELFTEST_CHANNEL_H
#define GPUIPC_SELFTEST_CHANNEL_H

#include <stdint.h>

#include "options.h"

/** Runs a writer and its readers for each pair of devices and each size, and prints a line for each.
 *  @return EXIT_PASS, EXIT_FAIL, EXIT_USAGE, or EXIT_NOTHING when no case could be tried */
int channel(const options *wanted);

/** The program that writes frames, started by channel(). @return EXIT_PASS or EXIT_FAIL */
int channel_writer(const options *wanted);

/** One that reads them, started by the writer; --index says which. @return EXIT_PASS or EXIT_FAIL */
int channel_reader(const options *wanted);

/* ---- what writer and readers have agreed on ---------------------------------------------------- */

enum {
    CHANNEL_SLOTS = 4,
    CHANNEL_CHECKED = 48,  /**< frames of which every word is compared */
    CHANNEL_HOLD_FROM = 24 /**< from this one on the victim keeps what it takes */
};

/** Readers, by their index. */
enum {
    READER_ALL_STREAM,    /**< stays for the frames that are timed */
    READER_ALL_HOST,      /**< every frame, without streams */
    READER_NEWEST_STREAM, /**< the newest one each time */
    READER_NEWEST_HOST,   /**< likewise, without streams */
    READER_REPLACEMENT,   /**< as the first; comes when the victim is dead */
    READER_VICTIM,        /**< keeps CHANNEL_VICTIM_HOLDS frames until it is killed */
    READER_COUNT
};
#define CHANNEL_VICTIM_HOLDS 2u

/** In each frame's header. */
typedef struct channel_header {
    uint32_t number;   /**< from 0 on; word i of the frame is pattern_producer(i + number) */
    uint32_t is_timed; /**< 1: only the first reader wants it */
} channel_header;

/** What a reader says on its output, beside its steps. */
#define CHANNEL_SAYS_OPEN   "open"
#define CHANNEL_SAYS_HOLDS  "holds"
#define CHANNEL_SAYS_READ   "read" /**< "read COUNT PASSED-OVER" */
#define CHANNEL_SAYS_FAILED "failed"

#endif
