/* SPDX-License-Identifier: MIT */
/**
 * @file Public structs that may grow: struct_size first, zero is the default, a tail that the
 * library does not know must be zero (the way of openat2(2)).
 */
#ifndef GPUIPC_STRUCT_SIZE_H
#define GPUIPC_STRUCT_SIZE_H

#include <stddef.h>
#include <string.h>

#include "base/status.h"

/** A public struct: what it is called, and the size it had in the first release. */
typedef struct struct_first {
    const char *name;
    size_t size;
} struct_first;

/** Of a struct whose last member in the first release was this. A member that is added later changes nothing
 *  here, so that programs compiled before go on being understood. */
#define STRUCT_SIZE_UP_TO(type, last_member)                                                       \
    ((struct_first){#type, offsetof(type, last_member) + sizeof(((type *)0)->last_member)})

/** For struct_size_read() alone: of a caller that knows more or less, or passes NULL. */
gpuipc_status struct_size_convert(const void *from, struct_first first, void *known,
                                  size_t known_size);

/** Reads a caller's struct into @p known (known_size bytes); what the caller's is too old to have
 *  becomes zero. @param first STRUCT_SIZE_UP_TO() */
static inline gpuipc_status struct_size_read(const void *from, struct_first first, void *known,
                                             size_t known_size) {
    size_t size = 0;
    if (from != NULL) {
        memcpy(&size, from, sizeof(size));
    }
    if (size != known_size) {
        return struct_size_convert(from, first, known, known_size);
    }
    memcpy(known, from, known_size); /* the caller knows the same, as most do */
    return GPUIPC_OK;
}

/** Checks a caller's struct that is to be filled in, before anything is done for it.
 *  @param first STRUCT_SIZE_UP_TO() */
gpuipc_status struct_size_check(const void *into, struct_first first);

/** Fills in a caller's struct from @p known as far as it reaches; its struct_size stays. */
void struct_size_write(void *into, const void *known, size_t known_size);

#endif
