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

/** A struct's tail beyond this is nobody's honest extension but an uninitialised struct_size. */
#define STRUCT_SIZE_MAX 4096

/** What a caller says, who may have built the struct in bytes. */
static inline size_t struct_size_of(const void *record) {
    size_t size;
    memcpy(&size, record, sizeof(size));
    return size;
}

/** For struct_size_read() alone: of a caller that knows more or less, or passes NULL. */
gpuipc_status struct_size_convert(const void *from, struct_first first, void *known,
                                  size_t known_size);

/** For struct_size_check() alone: what it answers. */
GPUIPC_COLD gpuipc_status struct_size_refuse(const void *into, struct_first first);
/** For struct_size_write() alone: of a caller that knows more or less. */
void struct_size_write_part(void *into, const void *known, size_t known_size);

/** Reads a caller's struct into @p known (known_size bytes); what the caller's is too old to have
 *  becomes zero. @param first STRUCT_SIZE_UP_TO() */
static inline gpuipc_status struct_size_read(const void *from, struct_first first, void *known,
                                             size_t known_size) {
    if (from == NULL || struct_size_of(from) != known_size) {
        return struct_size_convert(from, first, known, known_size);
    }
    memcpy(known, from, known_size); /* the caller knows the same, as most do */
    return GPUIPC_OK;
}

/** Checks a caller's struct that is to be filled in, before anything is done for it.
 *  @param first STRUCT_SIZE_UP_TO() */
static inline gpuipc_status struct_size_check(const void *into, struct_first first) {
    if (into == NULL || struct_size_of(into) < first.size ||
        struct_size_of(into) > STRUCT_SIZE_MAX) {
        return struct_size_refuse(into, first);
    }
    return GPUIPC_OK;
}

/** Fills in a caller's struct from @p known as far as it reaches; its struct_size stays. */
static inline void struct_size_write(void *into, const void *known, size_t known_size) {
    GPUIPC_CHECK_WRITTEN(known, known_size);
    if (struct_size_of(into) != known_size) {
        struct_size_write_part(into, known, known_size);
        return;
    }
    memcpy((unsigned char *)into + sizeof(size_t), (const unsigned char *)known + sizeof(size_t),
           known_size - sizeof(size_t)); /* the caller knows the same, as most do */
}

#endif
