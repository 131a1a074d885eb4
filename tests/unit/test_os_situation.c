/* SPDX-License-Identifier: MIT */
/** @file Situations that no error code tells, because the call decides what it means: brought about,
 *  and compared with one table on both systems. Each is looked at from all sides in the tests of its
 *  own noun; here it is the list that counts. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "os_pair.h"

TestSuite(os_situation, .timeout = 60);

static gpuipc_status nobody_listens(os_pair *pair) {
    os_connection *connection;
    char name[UNIQUE_NAME_MAX];
    unique_name(name);
    return os_connection_open(&pair->directory, name, os_deadline_after(0), &connection);
}

static gpuipc_status the_directory_is_missing(os_pair *pair) {
    os_connection *connection;
    char path[RUNTIME_DIRECTORY_MAX + 16];
    snprintf(path, sizeof(path), "%s/missing", pair->path);
    os_directory missing = {path, false};
    return os_connection_open(&missing, pair->name, os_deadline_after(0), &connection);
}

static gpuipc_status the_directory_is_relative(os_pair *pair) {
    os_connection *connection;
    os_directory relative = {"a/relative/path", false};
    return os_connection_open(&relative, pair->name, os_deadline_after(0), &connection);
}

static gpuipc_status the_name_is_too_long(os_pair *pair) {
    os_listener *listener;
    char name[1000];
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    return os_listener_open(&pair->directory, name, NULL, &listener);
}

static gpuipc_status the_name_is_taken(os_pair *pair) {
    os_listener *second;
    return os_listener_open(&pair->directory, pair->name, NULL, &second);
}

static gpuipc_status nobody_connects(os_pair *pair) {
    os_connection *connection;
    return os_listener_accept(pair->listener, os_deadline_after(0), &connection);
}

static gpuipc_status accept_is_interrupted(os_pair *pair) {
    os_connection *connection;
    os_listener_interrupt(pair->listener);
    return os_listener_accept(pair->listener, os_deadline_after(SOON_MS), &connection);
}

static gpuipc_status receive_into(os_connection *connection, size_t capacity, int timeout_ms) {
    char bytes[16];
    size_t size;
    size_t count;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    return os_connection_receive(connection, bytes, capacity, &size, handles, &count,
                                 os_deadline_after(timeout_ms));
}

static gpuipc_status nothing_is_sent(os_pair *pair) {
    return receive_into(pair->server, 16, 0);
}

static gpuipc_status receive_is_interrupted(os_pair *pair) {
    os_connection_interrupt(pair->server);
    return receive_into(pair->server, 16, SOON_MS);
}

static gpuipc_status a_packet_is_longer_than_the_room(os_pair *pair) {
    check_ok(os_connection_send(pair->client, "12345678", 8, NULL, 0, os_deadline_after(SOON_MS)));
    return receive_into(pair->server, 7, SOON_MS);
}

static gpuipc_status the_peer_closed_before_a_receive(os_pair *pair) {
    os_pair_close_client(pair);
    return receive_into(pair->server, 16, SOON_MS);
}

static gpuipc_status the_peer_closed_before_a_send(os_pair *pair) {
    os_pair_close_client(pair);
    return os_connection_send(pair->server, "x", 1, NULL, 0, os_deadline_after(SOON_MS));
}

static gpuipc_status a_handle_is_not_open(os_pair *pair) {
    (void)pair;
    os_handle handle;
    return os_handle_duplicate_native(OS_HANDLE_NONE.value, &handle);
}

static gpuipc_status more_is_mapped_than_there_is(os_pair *pair) {
    (void)pair;
    os_handle memory;
    void *address;
    check_ok(os_memory_create("situation", 65536, &memory));
    gpuipc_status status = os_memory_map(memory, 2 * 65536, true, &address);
    os_handle_close(&memory);
    return status;
}

static gpuipc_status a_handle_is_no_memory(os_pair *pair) {
    (void)pair;
    os_handle none = OS_HANDLE_NONE;
    uint64_t bytes;
    return os_memory_inspect(none, &bytes);
}

static gpuipc_status a_library_is_not_installed(os_pair *pair) {
    (void)pair;
    os_library *library;
    return os_library_open_system("gpuipc-no-such-library", &library);
}

#define SITUATION(status, bring_about)                                                             \
    { #bring_about, bring_about, GPUIPC_##status }

static const struct {
    const char *name;
    gpuipc_status (*bring_about)(os_pair *pair);
    gpuipc_status status;
} situations[] = {
    SITUATION(ERR_NOT_FOUND, nobody_listens),
    SITUATION(ERR_NOT_FOUND, the_directory_is_missing),
    SITUATION(ERR_INVALID_ARGUMENT, the_directory_is_relative),
    SITUATION(ERR_NAME_TOO_LONG, the_name_is_too_long),
    SITUATION(ERR_NAME_IN_USE, the_name_is_taken),
    SITUATION(ERR_TIMEOUT, nobody_connects),
    SITUATION(ERR_RELEASED, accept_is_interrupted),
    SITUATION(ERR_TIMEOUT, nothing_is_sent),
    SITUATION(ERR_RELEASED, receive_is_interrupted),
    SITUATION(ERR_PROTOCOL, a_packet_is_longer_than_the_room),
    SITUATION(ERR_PEER_CLOSED, the_peer_closed_before_a_receive),
    SITUATION(ERR_PEER_CLOSED, the_peer_closed_before_a_send),
    SITUATION(ERR_INVALID_ARGUMENT, a_handle_is_not_open),
    SITUATION(ERR_INVALID_ARGUMENT, more_is_mapped_than_there_is),
    SITUATION(ERR_PROTOCOL, a_handle_is_no_memory),
    SITUATION(ERR_NOT_FOUND, a_library_is_not_installed),
};

Test(os_situation, each_has_the_status_of_the_table) {
    for (size_t i = 0; i < sizeof(situations) / sizeof(situations[0]); i++) {
        leak_gate gate;
        leak_gate_begin(&gate);
        os_pair pair;
        os_pair_open(&pair);
        gpuipc_status status = situations[i].bring_about(&pair);
        cr_assert_eq(status, situations[i].status, "%s: %s, not %s (%s)", situations[i].name,
                     gpuipc_status_name(status), gpuipc_status_name(situations[i].status),
                     gpuipc_error_get()->sentence);
        cr_assert_eq(gpuipc_error_get()->status, status, "%s", situations[i].name);
        os_pair_close(&pair);
        cr_assert_eq(leak_gate_end(&gate), 0, "%s: %s", situations[i].name, gate.text);
    }
}
