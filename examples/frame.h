/* SPDX-License-Identifier: MIT */
/** @file What the camera and the model have agreed on. */
#ifndef EXAMPLES_FRAME_H
#define EXAMPLES_FRAME_H

enum {
    POOL = 3,   /* frames that the camera has */
    FRAMES = 60 /* that it fills, one after another */
};

/** Every word of a frame. */
#define CONTENTS(number) (1000u + (number))

#endif
