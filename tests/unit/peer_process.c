/* SPDX-License-Identifier: MIT */
/** @file See peer_process.h. */
#include "peer_process.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

#define WAIT_MS 20000

void peer_start(peer_process *peer, const char *const *environment) {
    char name[UNIQUE_NAME_MAX];
    memset(peer, 0, sizeof(*peer));
    cr_assert(runtime_directory_make(peer->directory));
    const os_directory directory = {peer->directory, false};
    unique_name(name);
    check_ok(os_listener_open(&directory, name, NULL, &peer->listener));
    const char *const arguments[] = {"peer", peer->directory, name, NULL};
    check_ok(child_start("emulated_peer", arguments, environment, &peer->child));
    check_ok(os_listener_accept(peer->listener, os_deadline_after(WAIT_MS), &peer->connection));
}

void peer_forget(peer_process *peer) {
    child_destroy(peer->child);
    os_connection_destroy(peer->connection);
    os_listener_destroy(peer->listener);
    runtime_directory_remove(peer->directory);
}

void peer_end(peer_process *peer) {
    child_end end;
    child_close_input(peer->child);
    check_ok(child_wait(peer->child, WAIT_MS, &end));
    cr_assert(end.exited && end.code == 0, "exited %d, code %d", end.exited, end.code);
    peer_forget(peer);
}

void peer_kill(peer_process *peer) {
    child_end end;
    child_kill(peer->child);
    check_ok(child_wait(peer->child, WAIT_MS, &end));
}

void peer_ask(peer_process *peer, const char *expected, const char *format, ...) {
    char line[CHILD_LINE_MAX];
    char got[CHILD_LINE_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    check_ok(child_write_line(peer->child, line));
    cr_assert(child_expect_line(peer->child, expected, got, WAIT_MS),
              "'%s' was answered with '%s' and not '%s'", line, got, expected);
}

void peer_get_bytes(peer_process *peer, const char *line, void *bytes) {
    char got[CHILD_LINE_MAX];
    unsigned char *out = bytes;
    check_ok(child_write_line(peer->child, line));
    check_ok(child_read_line(peer->child, got, sizeof(got), WAIT_MS));
    cr_assert(strncmp(got, "0 ", 2) == 0 && strlen(got) == 2 + 128, "'%s' was answered with '%s'",
              line, got);
    for (int i = 0; i < 64; i++) {
        unsigned value;
        cr_assert_eq(sscanf(got + 2 + 2 * i, "%2x", &value), 1);
        out[i] = (unsigned char)value;
    }
}

const char *peer_hex(const void *bytes, char text[PEER_HEX_MAX]) {
    const unsigned char *from = bytes;
    for (int i = 0; i < 64; i++) {
        snprintf(text + 2 * i, 3, "%02x", from[i]);
    }
    return text;
}

void peer_give(peer_process *peer, os_handle *handle) {
    const char byte = 1;
    check_ok(os_connection_send(peer->connection, &byte, 1, handle, 1, os_deadline_after(WAIT_MS)));
    os_handle_close(handle);
}

os_handle peer_take(peer_process *peer) {
    char byte;
    size_t size;
    size_t count = 0;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    check_ok(os_connection_receive(peer->connection, &byte, 1, &size, handles, &count,
                                   os_deadline_after(WAIT_MS)));
    cr_assert_eq(count, 1);
    return handles[0];
}
