/* SPDX-License-Identifier: MIT */
/** @file See fault_tolerated.h. */
#include "fault_tolerated.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define AN_END    "an end is not refused; what is left shows what could not be done"
#define A_COUNTER "eventfd(2): of a counter of our own, which is never full"

static const struct {
    const char *call;   /* NULL: any */
    int code;           /* 0: any */
    const char *during; /* the public function, a part of it, or the scenario; NULL: any */
    const char *reason;
} rows[] = {
    {NULL, 0, "probe", "that a transport does not work is an answer"},
    {NULL, 0, "diagnose", "what cannot be found out is no finding"},
    {NULL, 0, "serve", "a client's failure is told to the client, and to the log"},
    {NULL, 0, "os_directory_sweep", "what others have left stays there"},
    {NULL, 0, "os_boot_id", "whether the machine was started anew is not known then"},
    {"sendmsg", EAGAIN, "gpuipc_buffer_open", "room is waited for"},
    {"connect", EAGAIN, "gpuipc_buffer_open", "tried again"},
    {"connect", ECONNREFUSED, "gpuipc_buffer_open", "likewise"},
    {"connect", EACCES, "gpuipc_connection_open",
     "tried once more: the socket may just have been made"},
    {"connect", EACCES, "gpuipc_buffer_open", "likewise"},
    {"write", 0, "gpuipc_subscription_give_back", A_COUNTER},
    {"write", 0, "gpuipc_subscription_get_wait_handle", A_COUNTER},
    {"read", 0, "gpuipc_subscription_take", A_COUNTER},
    {"access", 0, "gpuipc_context_create", "the next place is looked at"},
    {"epoll_wait", 0, "gpuipc_subscription_take",
     "sets a wait handle right; it stays ready for nothing"},
    {"epoll_wait", 0, "gpuipc_subscription_get_wait_handle", "likewise"},
    {"recvmsg", FAULT_SHORT, "gpuipc_buffer_open", "there was nothing to cut yet"},
    {"malloc", 0, "posix_address_do",
     "there is no such thread then: tried again, or told as EAGAIN"},
    {"malloc", 0, "gpuipc_channel_publish",
     "where no event stands behind it, the stream is waited for"},
    {"malloc", 0, "gpuipc_subscription_give_back", "likewise"},
    {"syscall(SYS_pidfd_open)", 0, "gpuipc_listener_accept", "whether the peer runs is not known"},
    {"accept4", ECONNABORTED, NULL, "another client may wait"},
    {"stat", 0, "posix_address_do", "a thread goes into the directory instead"},
    {"fstat", 0, "posix_address_do", "likewise"},
    {"stat", 0, "file", "whose directory it is then comes out when something is made in it"},
    {"fstatat", 0, "gpuipc_buffer_share", "a name that cannot be looked at counts as there"},
    {"fstatat", 0, "gpuipc_channel_create", "likewise"},
    {"fstatat", 0, "gpuipc_listener_accept", "likewise"},
    {NULL, EINTR, NULL, "signal(7): the call is made again"},

    {NULL, 0, "gpuipc_connection_close", AN_END},
    {NULL, 0, "gpuipc_listener_close", AN_END},
    {NULL, 0, "gpuipc_server_destroy", AN_END},
    {NULL, 0, "gpuipc_channel_destroy", AN_END},
    {NULL, 0, "gpuipc_subscription_close", AN_END},
    {NULL, 0, "gpuipc_buffer_release", AN_END},
    {NULL, 0, "gpuipc_context_destroy", AN_END},

    {"close", 0, NULL, "close(2): the descriptor is gone all the same"},
    {"closedir", 0, NULL, "likewise"},
    {"fclose", 0, NULL, "likewise, of a file that was read"},
    {"munmap", 0, NULL, "of a range of our own, which nothing refuses"},
    {"flock(LOCK_UN)", 0, NULL, "the lock of a descriptor of our own goes with it"},
    {"shutdown", 0, NULL, "the socket is closed next, which its peer sees as well"},
    {"recvmsg(what nobody takes)", 0, NULL, "what is left goes with the socket"},
    {"setsockopt(SO_PASSCRED)", 0, NULL, "likewise"},
    {"setsockopt(SO_LINGER)", 0, NULL, "fails on everything that is no socket"},
    {"getrlimit", 0, NULL, "a limit that is not known is none"},
    {"statx", 0, NULL, "what is not known may block: a thread closes it"},
    {NULL, 0, "posix_close_foreign", "closed by the caller, or by a thread"},
    {"dlclose", 0, NULL, "what stays loaded is in use"},

    {"recvmsg", EAGAIN, NULL, "nothing has come yet: it is waited for"},
    {"recvmsg", FAULT_SHORT_CONTROL, NULL, "a packet without handles has nothing to cut"},
    {"getrandom", FAULT_SHORT, NULL, "the rest is asked for"},
    {"read", FAULT_SHORT, NULL, "likewise"},
    {"write", FAULT_SHORT, NULL, "likewise"},
    {"dlsym", 0, NULL, "a driver may lack it"},
    {"recvmsg", ECONNRESET, NULL, "comes before what the peer had sent: it is read again"},
    {"getsockopt(SO_SNDBUF)", 0, NULL,
     "room for large packets; send says so where there is too little"},
    {"setsockopt(SO_SNDBUF)", 0, NULL, "likewise"},
    {"getsockopt(SO_PEERPIDFD)", 0, NULL,
     "the peer is known by its credentials; whether it runs is not"},
    {"readlink", 0, NULL, "whether the peer numbers processes otherwise is not known then"},
    {"syscall(SYS_futex, FUTEX_WAKE)", 0, NULL,
     "whether anybody sleeps is a matter of moments; who does looks again by himself after 50 ms at most"},
    {"syscall(SYS_futex, FUTEX_WAIT)", 0, NULL,
     "who sleeps for a frame or a slot looks again, whatever ended that; whether he sleeps is a matter of moments"},
    {"ioctl(SIOCOUTQ)", 0, NULL, "what cannot be known counts as taken"},
    {"poll(at once)", 0, NULL, "what cannot be known now is asked again, or counts as not so"},
    {"memfd_create", EINVAL, NULL, "an older kernel does not know a flag: tried without"},
    {"mkdir", EEXIST, NULL, "it is there"},
    {"flock(LOCK_EX)", EWOULDBLOCK, NULL, "another process has it: tried again"},
    {"fstatat", ENOENT, NULL, "no other process's socket is there"},
};

static bool is_during(const char *wanted, const char *scenario, const fault_event *event) {
    return wanted == NULL || strcmp(wanted, scenario) == 0 || strcmp(wanted, event->during) == 0 ||
           strcmp(wanted, event->part) == 0;
}

const char *fault_tolerated(const char *scenario, const fault_event *event) {
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if ((rows[i].call == NULL || strcmp(rows[i].call, event->call->name) == 0) &&
            (rows[i].code == 0 || rows[i].code == event->code) &&
            is_during(rows[i].during, scenario, event)) {
            return rows[i].reason;
        }
    }
    return NULL;
}

/* signal(7), EINTR */
bool fault_is_interruption(const fault_event *event) {
    return event->call->layer == FAULT_SYSTEM && event->code == EINTR;
}

/* A descriptor is closed by the number that it has. */
bool fault_may_leave_handles(const char *scenario, const fault_plan *plan, const fault_row *row) {
    (void)scenario;
    (void)plan;
    (void)row;
    return false;
}
