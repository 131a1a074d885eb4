/* SPDX-License-Identifier: MIT */
/** @file Who runs a process, and the descriptors of objects that only this user may open. */
#include "win32.h"

#include <sddl.h>
#include <stdio.h>
#include <string.h>
#include <winternl.h>

/* cuda.h, CUmemAllocationProp: win32HandleMetaData points to an OBJECT_ATTRIBUTES of ntdef.h, which
 * winternl.h repeats. The driver reads it by these offsets. */
_Static_assert(sizeof(OBJECT_ATTRIBUTES) == 48, "OBJECT_ATTRIBUTES");
_Static_assert(offsetof(OBJECT_ATTRIBUTES, Length) == 0, "OBJECT_ATTRIBUTES.Length");
_Static_assert(offsetof(OBJECT_ATTRIBUTES, RootDirectory) == 8, "OBJECT_ATTRIBUTES.RootDirectory");
_Static_assert(offsetof(OBJECT_ATTRIBUTES, ObjectName) == 16, "OBJECT_ATTRIBUTES.ObjectName");
_Static_assert(offsetof(OBJECT_ATTRIBUTES, Attributes) == 24, "OBJECT_ATTRIBUTES.Attributes");
_Static_assert(offsetof(OBJECT_ATTRIBUTES, SecurityDescriptor) == 32,
               "OBJECT_ATTRIBUTES.SecurityDescriptor");
_Static_assert(offsetof(OBJECT_ATTRIBUTES, SecurityQualityOfService) == 40,
               "OBJECT_ATTRIBUTES.SecurityQualityOfService");

/* The owner is said because an administrator's objects may else belong to the whole group of the
 * administrators (TokenOwner), and an owner may always change the DACL. P: nothing is inherited
 * from where the object is. GA: full rights, whatever the kind of object has. Who logged on through the
 * network (NU) is not denied: that is also this user in a session of SSH; other machines are kept out
 * by PIPE_REJECT_REMOTE_CLIENTS.
 * learn.microsoft.com, "Security Descriptor String Format" and "ACE Strings". */
#define OWNER_ONLY_SDDL "O:%sD:P(A;;GA;;;%s)"

/** Room for it with the longest user. */
#define SDDL_MAX (sizeof(OWNER_ONLY_SDDL) + 2 * WIN32_SID_TEXT_MAX)
/** Room for the same as the system reads it: the owner, and a DACL of one entry. */
#define DESCRIPTOR_MAX                                                                             \
    (sizeof(SECURITY_DESCRIPTOR) + sizeof(ACL) + sizeof(ACCESS_ALLOWED_ACE) +                      \
     2 * SECURITY_MAX_SID_SIZE)

typedef union descriptor {
    void *align;
    unsigned char bytes[DESCRIPTOR_MAX];
} descriptor;

/* Made at the first use and never changed again: the user of a process stays what it is. */
static struct {
    os_static_mutex mutex;
    bool is_made;
    char user[WIN32_SID_TEXT_MAX];
    descriptor owner_only;
    SECURITY_ATTRIBUTES attributes;
    OBJECT_ATTRIBUTES native;
} own;

gpuipc_status win32_sid_text(PSID sid, char *text, size_t capacity) {
    wchar_t *wide;
    if (!ConvertSidToStringSidW(sid, &wide)) {
        return win32_fail(GetLastError(), "ConvertSidToStringSidW", "a SID has no text");
    }
    bool fits = win32_narrow(wide, text, capacity);
    LocalFree(wide);
    if (!fits) {
        return status_fail(GPUIPC_ERR_NAME_TOO_LONG,
                           "a SID's text is longer than the %zu bytes there are for it", capacity);
    }
    return GPUIPC_OK;
}

/** What the token of a process says. The token is closed at once: the answer is a copy. */
static gpuipc_status token_information(HANDLE process, TOKEN_INFORMATION_CLASS kind, void *room,
                                       DWORD size) {
    HANDLE token;
    if (!OpenProcessToken(process, TOKEN_QUERY, &token)) {
        return win32_fail(GetLastError(), "OpenProcessToken",
                          "a process does not tell as whom it runs");
    }
    DWORD used;
    gpuipc_status status = GPUIPC_OK;
    if (!GetTokenInformation(token, kind, room, size, &used)) {
        status = win32_fail(GetLastError(), "GetTokenInformation",
                            "a process does not tell as whom it runs");
    }
    CloseHandle(token);
    return status;
}

gpuipc_status win32_process_user(HANDLE process, char *sid, size_t capacity) {
    union {
        TOKEN_USER user;
        unsigned char bytes[sizeof(TOKEN_USER) + SECURITY_MAX_SID_SIZE];
    } room;
    gpuipc_status status = token_information(process, TokenUser, &room, sizeof(room));
    if (status != GPUIPC_OK) {
        return status;
    }
    return win32_sid_text(room.user.User.Sid, sid, capacity);
}

gpuipc_status win32_process_integrity(HANDLE process, DWORD *out_level) {
    union {
        TOKEN_MANDATORY_LABEL label;
        unsigned char bytes[sizeof(TOKEN_MANDATORY_LABEL) + SECURITY_MAX_SID_SIZE];
    } room;
    gpuipc_status status = token_information(process, TokenIntegrityLevel, &room, sizeof(room));
    if (status != GPUIPC_OK) {
        return status;
    }
    PSID sid = room.label.Label.Sid;
    DWORD count = *GetSidSubAuthorityCount(sid);
    if (count == 0) {
        return status_fail(GPUIPC_ERR_OS, "the integrity level of a process has no number");
    }
    /* The level is the last part of the SID: learn.microsoft.com, TOKEN_MANDATORY_LABEL. */
    *out_level = *GetSidSubAuthority(sid, count - 1);
    return GPUIPC_OK;
}

/** Self-relative, that is in one piece without pointers: what NVIDIA's own samples hand to the
 *  driver, and what stays right if it copies the bytes. In the library's own memory, so that nothing
 *  is left when the library is unloaded. */
static gpuipc_status descriptor_make(const char *user, descriptor *out) {
    char text[SDDL_MAX];
    wchar_t wide[SDDL_MAX];
    PSECURITY_DESCRIPTOR made;
    snprintf(text, sizeof(text), OWNER_ONLY_SDDL, user, user);
    gpuipc_status status = win32_wide(text, wide, SDDL_MAX);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (!ConvertStringSecurityDescriptorToSecurityDescriptorW(wide, SDDL_REVISION_1, &made, NULL)) {
        return win32_fail(GetLastError(), "ConvertStringSecurityDescriptorToSecurityDescriptorW",
                          "the rights %s cannot be made", text);
    }
    DWORD size = GetSecurityDescriptorLength(made);
    if (size <= sizeof(out->bytes)) {
        memcpy(out->bytes, made, size);
    } else {
        status = status_fail(GPUIPC_ERR_OS, "the rights %s take %lu bytes, more than %zu", text,
                             (unsigned long)size, sizeof(out->bytes));
    }
    LocalFree(made);
    return status;
}

/** With the mutex held. */
static gpuipc_status own_make(void) {
    gpuipc_status status = win32_process_user(GetCurrentProcess(), own.user, sizeof(own.user));
    if (status == GPUIPC_OK) {
        status = descriptor_make(own.user, &own.owner_only);
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    own.attributes = (SECURITY_ATTRIBUTES){.nLength = sizeof(own.attributes),
                                           .lpSecurityDescriptor = own.owner_only.bytes};
    own.native = (OBJECT_ATTRIBUTES){.Length = sizeof(own.native),
                                     .SecurityDescriptor = own.owner_only.bytes};
    own.is_made = true;
    return GPUIPC_OK;
}

/** A failure is not kept: the next call tries again. */
static gpuipc_status own_ready(void) {
    gpuipc_status status = GPUIPC_OK;
    os_static_mutex_lock(&own.mutex);
    if (!own.is_made) {
        status = own_make();
    }
    os_static_mutex_unlock(&own.mutex);
    return status;
}

gpuipc_status win32_own_user(const char **out_sid) {
    gpuipc_status status = own_ready();
    if (status == GPUIPC_OK) {
        *out_sid = own.user;
    }
    return status;
}

gpuipc_status win32_owner_only(const SECURITY_ATTRIBUTES **out_attributes) {
    gpuipc_status status = own_ready();
    if (status == GPUIPC_OK) {
        *out_attributes = &own.attributes;
    }
    return status;
}

gpuipc_status os_handle_attributes(const void **out_attributes) {
    gpuipc_status status = own_ready();
    if (status == GPUIPC_OK) {
        *out_attributes = &own.native;
    }
    return status;
}
