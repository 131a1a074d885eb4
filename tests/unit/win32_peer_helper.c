/* SPDX-License-Identifier: MIT */
/** @file The other process of tests about handles that go from one to another: win32_peer_helper ROLE
 *  DIRECTORY NAME. It connects, says so, and does what its input says. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper.h"
#include "helper_role.h"
#include "os.h"
#include "win32.h"

#define SOON_MS 20000

enum {
    MEMORY_BYTES = 4096
};

static os_connection *connect_to(char **arguments) {
    const os_directory directory = {arguments[0], false};
    os_connection *connection;
    gpuipc_status status =
        os_connection_open(&directory, arguments[1], os_deadline_after(SOON_MS), &connection);
    helper_say_status(status);
    return status == GPUIPC_OK ? connection : NULL;
}

/** Memory that begins with this number. */
static gpuipc_status memory_make(uint64_t number, os_handle *out_handle) {
    void *address;
    os_handle made;
    gpuipc_status status = os_memory_create("test", MEMORY_BYTES, &made);
    if (status == GPUIPC_OK) {
        status = os_memory_map(made, MEMORY_BYTES, true, &address);
    }
    if (status == GPUIPC_OK) {
        memcpy(address, &number, sizeof(number));
        os_memory_unmap(address, MEMORY_BYTES);
        *out_handle = made;
    }
    return status;
}

/** Makes @p count handles whose memory has the numbers from 1 on. */
static gpuipc_status memories_make(os_handle *handles, size_t count) {
    gpuipc_status status = GPUIPC_OK;
    for (size_t i = 0; i < count && status == GPUIPC_OK; i++) {
        status = memory_make(i + 1, &handles[i]);
    }
    return status;
}

static void handles_close(os_handle *handles, size_t count) {
    for (size_t i = 0; i < count; i++) {
        os_handle_close(&handles[i]);
    }
}

/** "send N": one packet with N handles. */
static gpuipc_status send_handles(os_connection *connection, size_t count) {
    os_handle handles[OS_PACKET_HANDLES_MAX];
    gpuipc_status status = memories_make(handles, count);
    if (status == GPUIPC_OK) {
        status = os_connection_send(connection, "x", 1, handles, count, os_deadline_after(SOON_MS));
        handles_close(handles, count);
    }
    return status;
}

/** "export N": the first half of that. */
static gpuipc_status export_handles(os_connection *connection, size_t count) {
    static os_handle handles[OS_PACKET_HANDLES_MAX];
    const os_peer *peer;
    win32_export *export;
    gpuipc_status status = memories_make(handles, count);
    if (status == GPUIPC_OK) {
        status = win32_connection_peer(connection, &peer);
    }
    return status == GPUIPC_OK
               ? win32_exporter_export(&connection->exporter, peer, handles, count, &export)
               : status;
}

/** send: "send N", "export N", until the end of its input. */
static int role_send(char **arguments) {
    char line[64];
    unsigned count;
    os_connection *connection = connect_to(arguments);
    if (connection == NULL) {
        return 1;
    }
    while (helper_hear(line, sizeof(line))) {
        if (sscanf(line, "send %u", &count) == 1) {
            helper_say_status(send_handles(connection, count));
        } else if (sscanf(line, "export %u", &count) == 1) {
            helper_say_status(export_handles(connection, count));
        } else {
            return 2;
        }
    }
    os_connection_destroy(connection);
    return 0;
}

/** "take": one packet, whose handles it keeps. */
static void take_packet(os_connection *connection) {
    os_handle handles[OS_PACKET_HANDLES_MAX];
    char byte;
    size_t size;
    size_t count = 0;
    gpuipc_status status = os_connection_receive(connection, &byte, 1, &size, handles, &count,
                                                 os_deadline_after(SOON_MS));
    if (status == GPUIPC_OK) {
        helper_say("%zu", count);
    } else {
        helper_say_status(status);
    }
}

/** receive: "take", "close", until the end of its input. */
static int role_receive(char **arguments) {
    char line[64];
    os_connection *connection = connect_to(arguments);
    if (connection == NULL) {
        return 1;
    }
    while (helper_hear(line, sizeof(line))) {
        if (strcmp(line, "take") == 0 && connection != NULL) {
            take_packet(connection);
        } else if (strcmp(line, "close") == 0 && connection != NULL) {
            os_connection_destroy(connection);
            connection = NULL;
            helper_say("closed");
        } else {
            return 2;
        }
    }
    return 0;
}

enum {
    CONVERSED = 60, /* tests/unit/test_win32_ledger_process.c has the same */
    CONVERSED_HANDLES = 2
};

typedef struct speaker {
    os_connection *connection;
    gpuipc_status status;
} speaker;

/* As much as a packet may have, so that two fill the pipe. */
static void speak(void *argument) {
    static char bytes[OS_PACKET_BYTES_MAX];
    speaker *self = argument;
    os_handle handles[CONVERSED_HANDLES];
    self->status = memories_make(handles, CONVERSED_HANDLES);
    for (int i = 0; i < CONVERSED && self->status == GPUIPC_OK; i++) {
        self->status = os_connection_send(self->connection, bytes, sizeof(bytes), handles,
                                          CONVERSED_HANDLES, os_deadline_after(SOON_MS));
    }
    handles_close(handles, CONVERSED_HANDLES);
}

static gpuipc_status listen_to_all(os_connection *connection) {
    static char bytes[OS_PACKET_BYTES_MAX];
    gpuipc_status status = GPUIPC_OK;
    for (int i = 0; i < CONVERSED && status == GPUIPC_OK; i++) {
        os_handle handles[OS_PACKET_HANDLES_MAX];
        size_t size;
        size_t count = 0;
        status = os_connection_receive(connection, bytes, sizeof(bytes), &size, handles, &count,
                                       os_deadline_after(SOON_MS));
        handles_close(handles, count);
    }
    return status;
}

/** converse: sends and receives at once, and says how both went. */
static int role_converse(char **arguments) {
    os_thread *thread;
    speaker own = {.connection = connect_to(arguments)};
    if (own.connection == NULL || os_thread_start(speak, &own, &thread) != GPUIPC_OK) {
        return 1;
    }
    gpuipc_status heard = listen_to_all(own.connection);
    os_thread_join(thread);
    helper_say("%s %s", gpuipc_status_name(own.status), gpuipc_status_name(heard));
    os_connection_destroy(own.connection);
    return 0;
}

static const helper_role roles[] = {
    {"send", 2, role_send},
    {"receive", 2, role_receive},
    {"converse", 2, role_converse},
};

int main(int argc, char **argv) {
    return helper_role_run(roles, sizeof(roles) / sizeof(roles[0]), argc, argv);
}
