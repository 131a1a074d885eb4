/* SPDX-License-Identifier: MIT */
/** @file See standard_streams.h. */
#include "standard_streams.h"

/* Here what is opened gets no number of a standard stream's. */
void standard_streams_occupy(void) {
}
