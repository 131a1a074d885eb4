/* SPDX-License-Identifier: MIT */
/** @file Many threads in the operating system layer at once. A plain program, because the thread
 *  sanitizer and the test framework do not go together; what it proves is proven with that. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "os.h"
#include "unique.h"

enum {
    SERVERS = 3,
    CLIENTS = 3,
    ROUNDS = 200,
    HANDLES = 5,
    SOON_MS = 20000
};

static char path[RUNTIME_DIRECTORY_MAX];
static char name[UNIQUE_NAME_MAX];
static os_directory directory = {path, false};
static os_listener *listener;
static atomic_int wrong;
static atomic_int served;

/** Counts what is not as it should be, and goes on. */
static bool expect(bool good, const char *what) {
    if (!good) {
        fprintf(stderr, "%s (%s)\n", what, gpuipc_error_get()->sentence);
        atomic_fetch_add(&wrong, 1);
    }
    return good;
}

static void serve_one(os_connection *connection) {
    char bytes[64];
    size_t size = 0;
    size_t count = 0;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    os_peer peer;
    os_deadline soon = os_deadline_after(SOON_MS);
    if (!expect(os_connection_receive(connection, bytes, sizeof(bytes), &size, handles, &count,
                                      soon) == GPUIPC_OK,
                "receive")) {
        return;
    }
    expect(size == 2 && count == HANDLES, "another packet than was sent");
    for (size_t i = 0; i < count; i++) {
        uint64_t memory = 0;
        expect(os_memory_inspect(handles[i], &memory) == GPUIPC_OK && memory == 4096 * (i + 1),
               "another handle than was sent");
        os_handle_close(&handles[i]);
    }
    if (expect(os_connection_get_peer(connection, &peer) == GPUIPC_OK, "get_peer")) {
        expect(os_peer_is_running(&peer) == 1, "is_running");
        os_peer_close(&peer);
    }
    expect(os_connection_send(connection, "yes", 3, NULL, 0, soon) == GPUIPC_OK, "answer");
}

static void serve(void *argument) {
    (void)argument;
    os_connection *connection;
    while (os_listener_accept(listener, os_deadline_after(-1), &connection) == GPUIPC_OK) {
        serve_one(connection);
        os_connection_destroy(connection);
        atomic_fetch_add(&served, 1);
    }
    expect(gpuipc_error_get()->status == GPUIPC_ERR_RELEASED, "accept ended");
}

static void ask_one(void) {
    char bytes[64];
    size_t size = 0;
    size_t count = 0;
    os_handle handles[HANDLES];
    os_handle answered[OS_PACKET_HANDLES_MAX];
    os_connection *connection;
    os_deadline soon = os_deadline_after(SOON_MS);
    if (!expect(os_connection_open(&directory, name, soon, &connection) == GPUIPC_OK, "open")) {
        return;
    }
    for (size_t i = 0; i < HANDLES; i++) {
        expect(os_memory_create("stress", 4096 * (i + 1), &handles[i]) == GPUIPC_OK, "memory");
    }
    expect(os_connection_send(connection, "go", 2, handles, HANDLES, soon) == GPUIPC_OK, "send");
    for (size_t i = 0; i < HANDLES; i++) {
        os_handle_close(&handles[i]);
    }
    expect(os_connection_receive(connection, bytes, sizeof(bytes), &size, answered, &count, soon) ==
                   GPUIPC_OK &&
               size == 3 && count == 0,
           "the answer");
    os_connection_destroy(connection);
}

static void ask(void *argument) {
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        ask_one();
    }
}

/** One thread waits in a connection, another interrupts it: in every order of the two. */
static void wait_for_nothing(void *argument) {
    char byte;
    size_t size;
    size_t count;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    expect(os_connection_receive(argument, &byte, 1, &size, handles, &count,
                                 os_deadline_after(-1)) == GPUIPC_ERR_RELEASED,
           "interrupted receive");
}

static void interrupt_one(os_listener *own, const char *own_name) {
    os_connection *client = NULL;
    os_connection *server = NULL;
    os_thread *thread;
    os_deadline soon = os_deadline_after(SOON_MS);
    if (expect(os_connection_open(&directory, own_name, soon, &client) == GPUIPC_OK &&
                   os_listener_accept(own, soon, &server) == GPUIPC_OK &&
                   os_thread_start(wait_for_nothing, server, &thread) == GPUIPC_OK,
               "a connection to interrupt")) {
        os_connection_interrupt(server);
        os_thread_join(thread);
        os_connection_destroy(server);
        os_connection_destroy(client);
    }
}

static void interrupt_many(void *argument) {
    (void)argument;
    char own_name[UNIQUE_NAME_MAX];
    os_listener *own;
    unique_name(own_name);
    if (expect(os_listener_open(&directory, own_name, NULL, &own) == GPUIPC_OK, "listen")) {
        for (int i = 0; i < ROUNDS; i++) {
            interrupt_one(own, own_name);
        }
        os_listener_destroy(own);
    }
}

int main(void) {
    os_thread *threads[SERVERS + CLIENTS + 1];
    unique_name(name);
    if (!runtime_directory_make(path) ||
        os_listener_open(&directory, name, NULL, &listener) != GPUIPC_OK) {
        fprintf(stderr, "no listener: %s\n", gpuipc_error_get()->sentence);
        return 1;
    }
    for (int i = 0; i < SERVERS + CLIENTS + 1; i++) {
        void (*run)(void *) = i < SERVERS ? serve : i < SERVERS + CLIENTS ? ask : interrupt_many;
        if (os_thread_start(run, NULL, &threads[i]) != GPUIPC_OK) {
            fprintf(stderr, "no thread: %s\n", gpuipc_error_get()->sentence);
            exit(1);
        }
    }
    for (int i = SERVERS; i < SERVERS + CLIENTS + 1; i++) {
        os_thread_join(threads[i]);
    }
    os_listener_interrupt(listener);
    for (int i = 0; i < SERVERS; i++) {
        os_thread_join(threads[i]);
    }
    os_listener_destroy(listener);
    runtime_directory_remove(path);
    expect(atomic_load(&served) == CLIENTS * ROUNDS, "not as many served as asked");
    return atomic_load(&wrong) == 0 ? 0 : 1;
}
