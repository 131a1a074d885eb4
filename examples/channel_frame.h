/* SPDX-License-Identifier: MIT */
/** @file What the camera and the model of the channel have agreed on. */
#ifndef EXAMPLES_CHANNEL_FRAME_H
#define EXAMPLES_CHANNEL_FRAME_H

#include <stdint.h>

enum {
    SLOTS = 3,             /* frames that the camera's channel has room for */
    SLOT_BYTES = 64 << 10, /* of each */
    FRAMES = 60            /* that it fills, one after another */
};

/** The camera's own bytes beside each frame. */
typedef struct frame_header {
    uint32_t number;
    uint32_t width;
    uint32_t height;
} frame_header;

/** Every word of a frame. */
#define CONTENTS(number) (3000u + (number))

#endif
