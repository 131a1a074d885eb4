/* SPDX-License-Identifier: MIT */
/** @file See struct_size.h. */
#include "base/struct_size.h"

#include <string.h>

gpuipc_status struct_size_refuse(const void *into, struct_first first) {
    return into == NULL ? status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "the pointer to the %s is NULL",
                                      first.name)
                        : status_fail(GPUIPC_ERR_STRUCT_SIZE,
                                      "%s::struct_size is %zu; this library expects sizeof(%s), at "
                                      "least %zu",
                                      first.name, struct_size_of(into), first.name, first.size);
}

gpuipc_status struct_size_convert(const void *from, struct_first first, void *known,
                                  size_t known_size) {
    gpuipc_status status = struct_size_check(from, first);
    if (status != GPUIPC_OK) {
        return status;
    }
    size_t size = struct_size_of(from);
    const unsigned char *bytes = from;
    for (size_t i = known_size; i < size; i++) {
        if (bytes[i] != 0) {
            return status_fail(GPUIPC_ERR_STRUCT_SIZE,
                               "byte %zu of the %s is set, but this library knows only %zu "
                               "bytes of it; use a newer library",
                               i, first.name, known_size);
        }
    }
    if (size < known_size) {
        memset((unsigned char *)known + size, 0, known_size - size);
    }
    memcpy(known, from, size < known_size ? size : known_size);
    return GPUIPC_OK;
}

void struct_size_write_part(void *into, const void *known, size_t known_size) {
    const size_t size = struct_size_of(into);
    unsigned char *bytes = into;
    const size_t copied = size < known_size ? size : known_size;
    memcpy(bytes + sizeof(size), (const unsigned char *)known + sizeof(size),
           copied - sizeof(size));
    if (copied < size) {
        memset(bytes + copied, 0, size - copied);
    }
}
