/* SPDX-License-Identifier: MIT */
/** @file What the loader and the trainer have agreed on. */
#ifndef EXAMPLES_BATCH_H
#define EXAMPLES_BATCH_H

enum {
    PARTS = 4,             /* of the arena, one for each batch on its way */
    PART_BYTES = 64 << 10, /* of each */
    BATCHES = 100
};

/** Every word of a batch. */
#define CONTENTS(number) (2000u + (number))

#endif
