/* SPDX-License-Identifier: MIT */
/**
 * @file What two processes do with each other, written once for both: the one that dies in the midst of it plays one side
 * with the library built to stop at a step (step.h), the one that is left plays the other with the library as it is.
 */
#ifndef GPUIPC_TEST_CONVERSATION_H
#define GPUIPC_TEST_CONVERSATION_H

#include <gpuipc/gpuipc.h>
#include <stdbool.h>

typedef struct talker talker;

/** How one side of a conversation is played. */
struct talker {
    gpuipc_context *context;
    const char *name;     /**< of the listener, if the conversation has one */
    int timeout_ms;       /**< for the call that is made now; set by begin */
    gpuipc_status status; /**< of the last call */
    /** Before a call. */
    void (*begin)(talker *self);
    /** After it. @return whether it is to be made once more */
    bool (*again)(talker *self, const char *call);
    /** Tells the other process a line, and hears one from it; false: it says nothing any more. */
    void (*say)(talker *self, const char *line);
    bool (*hear)(talker *self, char *line, size_t capacity);
    /** Before memory is given up that a stream may still use: it waits for nobody from here on. */
    void (*part)(talker *self);
};

/** One side. It gives back all that it has, also after a failure. @return whether all calls succeeded */
typedef bool (*conversation_side)(talker *self);

#define CONVERSATION_SIDES 10
/** The sides by number: the two of one conversation are 2 i and 2 i + 1. */
extern const struct conversation_entry {
    const char *name;
    conversation_side play;
} conversation_sides[CONVERSATION_SIDES];

enum {
    SIDE_LISTENER = 0,
    SIDE_CONNECTOR,
    SIDE_SERVER,
    SIDE_OPENER,
    SIDE_CONTENTS_LISTENER,
    SIDE_CONTENTS_CONNECTOR,
    SIDE_LENDER,
    SIDE_BORROWER,
    SIDE_WRITER,
    SIDE_READER
};

#endif
