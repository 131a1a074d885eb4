/* SPDX-License-Identifier: MIT */
/** @file See handle_rights.h. */
#include "handle_rights.h"

#include <string.h>

/* OBJECT_ATTRIBUTES of a 64-bit system (ntdef.h), read by these offsets on every system:
 *   0  Length, 48 (4 bytes)      8  RootDirectory     16  ObjectName
 *  24  Attributes (4 bytes)     32  SecurityDescriptor     40  SecurityQualityOfService */
#define ATTRIBUTES_BYTES       48
#define AT_LENGTH              0
#define AT_ROOT_DIRECTORY      8
#define AT_OBJECT_NAME         16
#define AT_ATTRIBUTES          24
#define AT_SECURITY_DESCRIPTOR 32

#define OBJ_INHERIT          0x00000002u
#define OBJ_VALID_ATTRIBUTES 0x00001FF2u /* ntdef.h */

/* The first byte of every SECURITY_DESCRIPTOR, winnt.h: SECURITY_DESCRIPTOR_REVISION. */
#define DESCRIPTOR_REVISION 1

static uint32_t get_number(const unsigned char *attributes, size_t at) {
    uint32_t number;
    memcpy(&number, attributes + at, sizeof(number));
    return number;
}

static const unsigned char *get_pointer(const unsigned char *attributes, size_t at) {
    const unsigned char *pointer;
    memcpy(&pointer, attributes + at, sizeof(pointer));
    return pointer;
}

CUresult handle_rights_check(const void *attributes) {
    /* The length first: a SECURITY_ATTRIBUTES, which much code passes here by mistake, ends before the
     * rest. */
    if (attributes == NULL || get_number(attributes, AT_LENGTH) != ATTRIBUTES_BYTES) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint32_t flags = get_number(attributes, AT_ATTRIBUTES);
    const unsigned char *descriptor = get_pointer(attributes, AT_SECURITY_DESCRIPTOR);
    if ((flags & ~OBJ_VALID_ATTRIBUTES) != 0 ||
        (descriptor != NULL && descriptor[0] != DESCRIPTOR_REVISION)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if ((flags & OBJ_INHERIT) != 0 || get_pointer(attributes, AT_ROOT_DIRECTORY) != NULL ||
        get_pointer(attributes, AT_OBJECT_NAME) != NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}
