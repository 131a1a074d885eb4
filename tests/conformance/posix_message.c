/* SPDX-License-Identifier: MIT */
/** @file Messages over a SOCK_SEQPACKET pair, with the handle as SCM_RIGHTS. */
#include "posix_message.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/** Control data for one descriptor, aligned as cmsg(3) wants it. */
typedef union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
} control;

bool message_send(int socket, const char *line, os_handle handle) {
    control ancillary;
    struct iovec part = {.iov_base = (void *)(uintptr_t)line, .iov_len = strlen(line)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (os_handle_is_valid(handle)) {
        const int descriptor = (int)handle.value;
        memset(&ancillary, 0, sizeof ancillary);
        message.msg_control = &ancillary;
        message.msg_controllen = sizeof ancillary;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof descriptor);
        memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)part.iov_len;
}

bool message_receive(int socket, char *line, os_handle *out_handle) {
    control ancillary;
    struct iovec part = {.iov_base = line, .iov_len = MESSAGE_BYTES - 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &ancillary,
                             .msg_controllen = sizeof ancillary};
    const ssize_t size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (size <= 0) {
        return false;
    }
    line[size] = '\0';
    *out_handle = OS_HANDLE_NONE;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        int descriptor;
        memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
        if (os_handle_adopt(descriptor, out_handle) != GPUIPC_OK) {
            close(descriptor);
            return false;
        }
    }
    return true;
}
