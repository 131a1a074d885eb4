/* SPDX-License-Identifier: MIT */
/** @file See standard_streams.h. */
#include "standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

/* open(2): the lowest number that is free. For reading, so that printing fails. */
void standard_streams_occupy(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        (void)close(fd);
    }
}
