/* SPDX-License-Identifier: MIT */
/** @file A poller with connections in it, all ends in this process. */
#include "os_crowd.h"

#include <string.h>

#include "check.h"

void crowd_open(crowd *own, size_t count) {
    *own = (crowd){.count = count};
    os_pair_listen(&own->pair);
    check_ok(os_poller_create(&own->poller));
    for (size_t i = 0; i < count; i++) {
        check_ok(os_connection_open(&own->pair.directory, own->pair.name,
                                    os_deadline_after(SOON_MS), &own->clients[i]));
        check_ok(
            os_listener_accept(own->pair.listener, os_deadline_after(SOON_MS), &own->servers[i]));
        check_ok(os_poller_add_connection(own->poller, own->servers[i], &own->servers[i]));
    }
}

void crowd_close(crowd *own) {
    for (size_t i = 0; i < own->count; i++) {
        if (own->servers[i] != NULL) {
            os_poller_remove_connection(own->poller, own->servers[i]);
            os_connection_destroy(own->servers[i]);
        }
        if (own->clients[i] != NULL) {
            os_connection_destroy(own->clients[i]);
        }
    }
    os_poller_destroy(own->poller);
    os_pair_close(&own->pair);
}

void crowd_client_end(crowd *own, size_t i) {
    os_connection_destroy(own->clients[i]);
    own->clients[i] = NULL;
}

void crowd_say(os_connection *connection, const char *text) {
    check_ok(os_connection_send(connection, text, strlen(text), NULL, 0, os_deadline_after(0)));
}

gpuipc_status crowd_hear(os_connection *connection, int timeout_ms, char text[64]) {
    size_t size = 0;
    size_t count = 0;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    gpuipc_status status = os_connection_receive(connection, text, 63, &size, handles, &count,
                                                 os_deadline_after(timeout_ms));
    text[size] = '\0';
    return status;
}

void crowd_check_hears(os_connection *connection, const char *expected) {
    char text[64];
    check_ok(crowd_hear(connection, 0, text));
    cr_assert_str_eq(text, expected);
}

void crowd_check_nothing(os_poller *poller) {
    void *tags[4];
    size_t count = 77;
    check_ok(os_poller_wait(poller, os_deadline_after(0), tags, 4, &count));
    cr_assert_eq(count, 0, "%zu are ready", count);
}

void crowd_check_one(os_poller *poller, const void *tag) {
    void *tags[4];
    size_t count = 77;
    uint64_t start = os_clock_ns();
    check_ok(os_poller_wait(poller, os_deadline_after(SOON_MS), tags, 4, &count));
    cr_assert((os_clock_ns() - start) / 1000000 < SOON_MS / 2, "found when the time was over");
    cr_assert_eq(count, 1, "%zu are ready", count);
    cr_assert_eq(tags[0], tag);
}
