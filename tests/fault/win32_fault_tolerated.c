/* SPDX-License-Identifier: MIT */
/** @file See fault_tolerated.h. */
#include <windows.h>

#include <string.h>

#include "fault_tolerated.h"

#define AN_END "an end is not refused; what is left shows what could not be done"

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

    {NULL, 0, "gpuipc_connection_close", AN_END},
    {NULL, 0, "gpuipc_listener_close", AN_END},
    {NULL, 0, "gpuipc_server_destroy", AN_END},
    {NULL, 0, "gpuipc_channel_destroy", AN_END},
    {NULL, 0, "gpuipc_subscription_close", AN_END},
    {NULL, 0, "gpuipc_buffer_release", AN_END},
    {NULL, 0, "gpuipc_context_destroy", AN_END},

    {"malloc", 0, "gpuipc_channel_publish",
     "where no event stands behind it, the stream is waited for"},
    {"malloc", 0, "gpuipc_subscription_give_back", "likewise"},
    {"CloseHandle", 0, NULL, "of a handle of our own, which is closed all the same"},
    {"UnmapViewOfFile", 0, NULL, "of a range of our own, which nothing refuses"},
    {"VirtualFree", 0, NULL, "likewise"},
    {"FreeLibrary", 0, NULL, "what stays loaded is in use"},
    {"RegCloseKey", 0, NULL, "of a key of our own"},
    {"CancelIoEx", 0, NULL, "the operation has ended"},
    {"UnregisterWaitEx", 0, NULL, "of a wait of our own"},
    {"GetProcAddress", 0, NULL, "a driver, or an older Windows, may lack it"},
    {"GetModuleHandleW", 0, NULL, "likewise: its function is not asked then"},
    {"SetThreadErrorMode", 0, NULL, "a box may be shown then"},
    {"FormatMessageW", 0, NULL, "the code is told without words"},
    {"WideCharToMultiByte", 0, NULL, "likewise: nothing else goes on without its text"},
    {"CreateFileW(pipe)", ERROR_PIPE_BUSY, "gpuipc_buffer_open", "tried again"},
    {"OpenProcess", ERROR_INVALID_PARAMETER, "gpuipc_buffer_open",
     "the server's process has just ended: another one is looked for"},
    {"ReadFile(pipe)", ERROR_BROKEN_PIPE, "gpuipc_buffer_open", "the server is asked anew"},
    {"PeekNamedPipe", 0, "gpuipc_buffer_open", "whether it has closed is not known: likewise"},
    {"CreateFileW", ERROR_FILE_NOT_FOUND, "gpuipc_server_create", "nobody has the name"},
    {"CreateFileW", ERROR_PATH_NOT_FOUND, "gpuipc_server_create", "likewise"},
    {"CreateFileW", ERROR_ACCESS_DENIED, "gpuipc_server_create",
     "a file that is being deleted: it is tried again"},
    {"CreateFileW", ERROR_FILE_NOT_FOUND, "gpuipc_channel_create", "likewise"},
    {"CreateFileW", ERROR_PATH_NOT_FOUND, "gpuipc_channel_create", "likewise"},
    {"CreateFileW", ERROR_ACCESS_DENIED, "gpuipc_channel_create",
     "a file that is being deleted: it is tried again"},
    {"CreateFileW", ERROR_FILE_NOT_FOUND, "gpuipc_listener_open", "nobody has the name"},
    {"CreateFileW", ERROR_PATH_NOT_FOUND, "gpuipc_listener_open", "likewise"},
    {"CreateFileW", ERROR_ACCESS_DENIED, "gpuipc_listener_open",
     "a file that is being deleted: it is tried again"},
    {"GetEnvironmentVariableW", 0, NULL, "a variable that is not there"},
    {"WaitForMultipleObjects", 0, NULL, "the operation that was waited for had ended"},
    {"WaitForSingleObject", 0, NULL, "whether a process runs is not known; or it is looked again"},
    {"CreateNamedPipeW", 0, "gpuipc_listener_accept", "the next accept makes the next place"},
    {"ConnectNamedPipe", 0, "gpuipc_listener_accept", "likewise"},
    {"ConnectNamedPipe", 0, "gpuipc_server_create",
     "likewise, when the server waits for its clients"},
    {"ConnectNamedPipe", ERROR_NO_DATA, NULL, "a client has come and gone: it is accepted"},
    {"CreateDirectoryW", ERROR_ALREADY_EXISTS, NULL, "it is there"},
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

/* No call of Windows is made again for a signal's sake. */
bool fault_is_interruption(const fault_event *event) {
    (void)event;
    return false;
}

/* What says of a message that is there that there is none, or that its handles are not what they are. */
static bool is_refusal(const fault_event *event) {
    return (strcmp(event->call->name, "ReadFile(pipe)") == 0 && event->code == ERROR_BROKEN_PIPE) ||
           strcmp(event->call->name, "NtQuerySection") == 0 ||
           strcmp(event->call->name, "NtQueryObject") == 0;
}

/* win32_ledger.c: of a message that nobody took and whose sender has closed its end, where nothing can be read any more, or
 * where it is refused. */
bool fault_may_leave_handles(const char *scenario, const fault_plan *plan, const fault_row *row) {
    bool may = plan->last == UINT64_MAX;
    for (size_t i = 0; i < row->count && !may; i++) {
        may = row->events[i].code != 0 && is_refusal(&row->events[i]);
    }
    return may && strcmp(scenario, "close") == 0;
}
