/* SPDX-License-Identifier: MIT */
/** @file What a test has its helper do: a command, and its answer decoded. */
#include <stdio.h>

#include "conformance_process.h"

import_report helper_import(helper *process, os_handle shareable, int device, size_t bytes) {
    char line[MESSAGE_BYTES];
    import_report report;
    helper_tell(process, shareable, "import %d %zu", device, bytes);
    helper_hear(process, line, NULL);
    const int fields =
        sscanf(line, "%d %d %d %d %d %d %d %d %u %llu", &report.imported, &report.properties,
               &report.location_type, &report.location, &report.handle_types, &report.mapped,
               &report.accessed, &report.copied, &report.word, &report.range);
    cr_assert_eq(fields, 10, "the helper answered \"%s\"", line);
    return report;
}

os_handle helper_create(helper *process, int device, size_t bytes, uint32_t word) {
    char line[MESSAGE_BYTES];
    os_handle shareable = OS_HANDLE_NONE;
    helper_tell(process, OS_HANDLE_NONE, "create %d %zu %u", device, bytes, word);
    helper_hear(process, line, &shareable);
    cr_assert(os_handle_is_valid(shareable), "the helper made no memory: \"%s\"", line);
    return shareable;
}

CUresult helper_result(helper *process, const char *command) {
    char line[MESSAGE_BYTES];
    int result;
    helper_tell(process, OS_HANDLE_NONE, "%s", command);
    helper_hear(process, line, NULL);
    cr_assert_eq(sscanf(line, "%d", &result), 1, "the helper answered \"%s\"", line);
    return (CUresult)result;
}

uint32_t helper_read(helper *process) {
    char line[MESSAGE_BYTES];
    int result;
    uint32_t word;
    helper_tell(process, OS_HANDLE_NONE, "read");
    helper_hear(process, line, NULL);
    cr_assert_eq(sscanf(line, "%d %u", &result, &word), 2, "the helper answered \"%s\"", line);
    cr_assert_eq(result, (int)CUDA_SUCCESS, "reading in the helper: %s",
                 conformance_code((CUresult)result));
    return word;
}

void device_uuid_text(int device, char text[48]) {
    CUuuid uuid;
    OK(drv.cuDeviceGetUuid(&uuid, device));
    size_t length = (size_t)snprintf(text, 48, "GPU-");
    for (size_t i = 0; i < sizeof uuid.bytes; i++) {
        /* 8-4-4-4-12 digits, as RFC 9562 writes a UUID */
        const char *const dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        length += (size_t)snprintf(text + length, 48 - length, "%s%02x", dash,
                                   (unsigned)(unsigned char)uuid.bytes[i]);
    }
}
