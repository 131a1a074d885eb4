/* SPDX-License-Identifier: MIT */
/** @file The second process of the unit tests: unit_helper ROLE ARGUMENTS. */
#include <inttypes.h>
#include <stdio.h>

#include "child.h"
#include "helper.h"
#include "helper_role.h"
#include "os.h"

/** environment NAME: prints this process's number and the variable. */
static int role_environment(char **arguments) {
    const char *value = os_environment(arguments[0]);
    helper_say("%" PRIu64, os_process_id());
    helper_say("%s", value != NULL ? value : "(none)");
    return 0;
}

/** boot-id: prints it in hexadecimal. */
static int role_boot_id(char **arguments) {
    (void)arguments;
    uint8_t id[16];
    char text[33];
    os_boot_id(id);
    for (size_t i = 0; i < 16; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", id[i]);
    }
    helper_say("%s", text);
    return 0;
}

/** arguments FOUR: prints them, a line for each. */
static int role_arguments(char **arguments) {
    for (int i = 0; i < 4; i++) {
        helper_say("%s", arguments[i]);
    }
    return 0;
}

/** echo: says back what it hears until the end of its input. */
static int role_echo(char **arguments) {
    (void)arguments;
    char line[4096];
    while (helper_hear(line, sizeof(line))) {
        helper_say("%s", line);
    }
    return 7;
}

/** connect DIRECTORY NAME: connects and stays connected until its input says "end". */
static int role_connect(char **arguments) {
    os_directory directory = {arguments[0], false};
    os_connection *connection;
    gpuipc_status status =
        os_connection_open(&directory, arguments[1], os_deadline_after(20000), &connection);
    helper_say_status(status);
    if (status != GPUIPC_OK) {
        return 1;
    }
    helper_await("end");
    os_connection_destroy(connection);
    return 0;
}

/** hold DIRECTORY NAME: connects, and waits for what never comes. */
static int role_hold(char **arguments) {
    os_directory directory = {arguments[0], false};
    os_connection *connection;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    char byte;
    size_t size;
    size_t count;
    if (os_connection_open(&directory, arguments[1], os_deadline_after(20000), &connection) !=
        GPUIPC_OK) {
        return 1;
    }
    os_connection_receive(connection, &byte, 1, &size, handles, &count, os_deadline_after(-1));
    return 1;
}

/** start DIRECTORY NAME: starts a helper that holds a connection, and waits for it. */
static int role_start(char **arguments) {
    const char *const theirs[] = {"hold", arguments[0], arguments[1], NULL};
    child_process *helper;
    gpuipc_status status = child_start("unit_helper", theirs, NULL, &helper);
    helper_say_status(status);
    return status == GPUIPC_OK ? (int)child_wait(helper, -1, NULL) : 1;
}

/** listen DIRECTORY NAME: listens until its input says "end", then takes the name away. */
static int role_listen(char **arguments) {
    os_directory directory = {arguments[0], false};
    os_listener *listener;
    gpuipc_status status = os_listener_open(&directory, arguments[1], NULL, &listener);
    helper_say_status(status);
    if (status != GPUIPC_OK) {
        return 1;
    }
    helper_await("end");
    os_listener_destroy(listener);
    return 0;
}

static const helper_role roles[] = {
    {"environment", 1, role_environment},
    {"boot-id", 0, role_boot_id},
    {"arguments", 4, role_arguments},
    {"echo", 0, role_echo},
    {"connect", 2, role_connect},
    {"hold", 2, role_hold},
    {"start", 2, role_start},
    {"listen", 2, role_listen},
};

int main(int argc, char **argv) {
    return helper_role_run(roles, sizeof(roles) / sizeof(roles[0]), argc, argv);
}
