/* SPDX-License-Identifier: MIT */
/** @file A poller with connections in it, all ends in this process. */
#ifndef GPUIPC_TEST_OS_CROWD_H
#define GPUIPC_TEST_OS_CROWD_H

#include "os_pair.h"

enum {
    CROWD_MAX = 70 /* more than the 64 objects that Windows waits for at once */
};

/** A poller, and connections whose server ends are in it; the tag of each is where its server's end stands. */
typedef struct crowd {
    os_pair pair;
    os_poller *poller;
    os_connection *clients[CROWD_MAX];
    os_connection *servers[CROWD_MAX];
    size_t count;
} crowd;

void crowd_open(crowd *own, size_t count);
/** All that is still there. */
void crowd_close(crowd *own);
void crowd_client_end(crowd *own, size_t i);

/** A packet of a short text; it has to be taken at once. */
void crowd_say(os_connection *connection, const char *text);
gpuipc_status crowd_hear(os_connection *connection, int timeout_ms, char text[64]);
/** One packet is there, and it is this one. */
void crowd_check_hears(os_connection *connection, const char *expected);

void crowd_check_nothing(os_poller *poller);
/** Exactly one is ready, within a time that is enough for anything. */
void crowd_check_one(os_poller *poller, const void *tag);

#endif
