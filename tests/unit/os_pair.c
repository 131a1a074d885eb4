/* SPDX-License-Identifier: MIT */
/** @file A listener and a connection to it, both ends in this process. */
#include "os_pair.h"

#include "check.h"

void os_pair_name(os_pair *pair) {
    *pair = (os_pair){0};
    cr_assert(runtime_directory_make(pair->path));
    unique_name(pair->name);
    pair->directory = (os_directory){pair->path, false};
}

void os_pair_listen(os_pair *pair) {
    os_pair_name(pair);
    check_ok(os_listener_open(&pair->directory, pair->name, NULL, &pair->listener));
}

void os_pair_open(os_pair *pair) {
    os_pair_listen(pair);
    check_ok(os_connection_open(&pair->directory, pair->name, os_deadline_after(SOON_MS),
                                &pair->client));
    check_ok(os_listener_accept(pair->listener, os_deadline_after(SOON_MS), &pair->server));
}

void os_pair_close_client(os_pair *pair) {
    if (pair->client != NULL) {
        os_connection_destroy(pair->client);
        pair->client = NULL;
    }
}

void os_pair_close_server(os_pair *pair) {
    if (pair->server != NULL) {
        os_connection_destroy(pair->server);
        pair->server = NULL;
    }
}

void os_pair_close(os_pair *pair) {
    os_pair_close_client(pair);
    os_pair_close_server(pair);
    if (pair->listener != NULL) {
        os_listener_destroy(pair->listener);
        pair->listener = NULL;
    }
    runtime_directory_remove(pair->path);
}

void os_pair_make_handles(os_handle *handles, size_t count) {
    for (size_t i = 0; i < count; i++) {
        check_ok(os_memory_create("test", (i + 1) * 4096, &handles[i]));
    }
}

void os_pair_close_handles(os_handle *handles, size_t count) {
    for (size_t i = 0; i < count; i++) {
        os_handle_close(&handles[i]);
    }
}
