/* SPDX-License-Identifier: MIT */
/** @file Processes that share a directory and nothing else, as those of two containers do: no /dev/shm, no PIDs, no
 *  users, no network, and a filter that lets none reach into another (docs/containers.md). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "marks.h"
#include "partner.h"
#include "posix_system.h"
#include "system.h"

#define PAINTED_BYTES 4096
#define REFUSED       "not possible"

static process_case at;
static partner other;
static gpuipc_connection *connection;

/* The partner has an empty /dev/shm of its own from now on. */
static void begin(void) {
    process_case_begin(&at, NULL);
    partner_start(&other, &at, NULL, NULL);
    partner_tell(&other, "no-shm");
    partner_hear(&other, "");
    if (strncmp(other.answer, REFUSED, strlen(REFUSED)) == 0) {
        partner_kill(
            &other); /* its descriptors may have other names in the namespace that it has now */
        process_case_end(&at);
        cr_skip_test(
            "a /dev/shm of one's own takes CAP_SYS_ADMIN, and a root directory that is a mount point");
    }
    cr_assert_str_eq(other.answer, "GPUIPC_OK");
    partner_do(&other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    connection = process_case_accept(&at);
}

static void end(void) {
    partner_end(&other);
    check_ok(gpuipc_connection_close(connection));
    process_case_end(&at);
}

TestSuite(container, .timeout = 100);

Test(container, points_need_no_shared_dev_shm) {
    gpuipc_buffer *buffer;
    gpuipc_buffer *own;
    gpuipc_incoming message = {.struct_size = sizeof(message),
                               .buffers = &buffer,
                               .buffer_capacity = 1,
                               .flags = GPUIPC_RECEIVE_ASYNC};
    uint32_t word = 0;
    begin();
    partner_do(&other, "GPUIPC_OK", "create 1 %d 0 0", PAINTED_BYTES);
    partner_do(&other, "GPUIPC_OK", "gate");
    partner_do(&other, "GPUIPC_OK", "paint 5 %d", PAINTED_BYTES);
    partner_do(&other, "GPUIPC_OK", "hand %u %d", GPUIPC_SEND_ASYNC, PATIENCE_MS);
    check_ok(gpuipc_connection_receive(connection, &message, PATIENCE_MS));
    partner_do(&other, "GPUIPC_OK", "open");
    check_ok(gpuipc_buffer_read(buffer, 0, &word, sizeof(word)));
    cr_assert_eq(word, 5);
    check_ok(gpuipc_buffer_return_async(buffer, NULL));
    own = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(gpuipc_buffer_read(own, 0, &word, sizeof(word))); /* the stream has passed it */
    check_ok(gpuipc_buffer_release(own));
    check_ok(gpuipc_buffer_release(buffer));
    partner_do(&other, "GPUIPC_OK", "await %d", PATIENCE_MS);
    end();
}

/* ---- all namespaces ------------------------------------------------------------------------- */

#define OTHER_USER                                                                                 \
    1234u /* not the overflow user, which every foreign one is shown as: user_namespaces(7) */

/* What cannot be had here: containers often may make no containers. */
static void start_contained(partner *self, const char *const *flags) {
    const char *arguments[5] = {at.directory};
    *self = (partner){0};
    for (size_t i = 0; flags[i] != NULL; i++) {
        cr_assert_lt(i, 3);
        arguments[i + 1] = flags[i];
    }
    /* LeakSanitizer reads its own process by ptrace, which is refused there. */
    const char *const environment[] = {"ASAN_OPTIONS=detect_leaks=0", NULL};
    check_ok(child_start("process_helper", arguments, environment, &self->process));
    partner_hear(self, "");
    if (strncmp(self->answer, REFUSED, strlen(REFUSED)) == 0) {
        partner_kill(self);
        process_case_end(&at);
        cr_skip_test("namespaces of one's own are not to be had here");
    }
    cr_assert_str_eq(self->answer, "GPUIPC_OK");
}

static void begin_contained(partner *self) {
    process_case_begin(&at, NULL);
    start_contained(self, (const char *const[]){"contained-users", NULL});
}

Test(container, memory_goes_both_ways_between_namespaces) {
    gpuipc_buffer *received = NULL;
    gpuipc_incoming message = {
        .struct_size = sizeof(message), .buffers = &received, .buffer_capacity = 1};
    begin_contained(&other);
    partner_do(&other, "GPUIPC_OK", "connect %s %d", at.name, PATIENCE_MS);
    connection = process_case_accept(&at);
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 4096);
    check_ok(process_case_send(connection, &buffer, 1, 3));
    partner_do(&other, "GPUIPC_OK 3 bytes 1 buffers", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK", "check 1 4096");
    partner_do(&other, "GPUIPC_OK", "fill 2 4096");
    check_ok(marks_check(buffer, 2, 4096));
    check_ok(gpuipc_buffer_release(buffer));
    partner_do(&other, "GPUIPC_OK", "release");

    partner_do(&other, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
    partner_do(&other, "GPUIPC_OK", "fill 3 4096");
    partner_do(&other, "GPUIPC_OK", "send 0 0 %d", PATIENCE_MS);
    check_ok(gpuipc_connection_receive(connection, &message, PATIENCE_MS));
    check_ok(marks_check(received, 3, 4096));
    check_ok(gpuipc_buffer_release(received));
    end();
}

/* What the writer has is read by the other one; neither sees the other's process id. */
static void check_tickets_and_channels(partner *writer) {
    const char *text = writer->answer + strlen("GPUIPC_OK ");
    partner_do(writer, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
    partner_do(writer, "GPUIPC_OK", "fill 5 4096");
    partner_do(writer, "GPUIPC_OK", "serve");
    partner_do(writer, "GPUIPC_OK", "share 0 0 0 0");
    partner_do(&other, "GPUIPC_OK", "ticket %s", text);
    partner_do(&other, "GPUIPC_OK", "check 5 4096");

    partner_do(writer, "GPUIPC_OK", "channel 4 frames");
    partner_do(&other, "GPUIPC_OK", "subscribe-name frames %d", PATIENCE_MS);
    partner_do(writer, "GPUIPC_OK", "publish-frames 1 3");
    partner_do(&other, "GPUIPC_OK", "read-frames 3");

    /* Who dies is missed, though nobody can ask for it by its number. */
    partner_do(writer, "GPUIPC_OK", "publish-frames 4 2");
    partner_kill(writer);
    partner_do(&other, "GPUIPC_ERR_PEER_CLOSED 2 0", "read-frames 100");
    partner_end(&other);
    process_case_end(&at);
}

Test(container, tickets_and_channels_between_two_namespaces) {
    partner writer;
    begin_contained(&writer);
    start_contained(&other, (const char *const[]){"contained-users", NULL});
    check_tickets_and_channels(&writer);
}

/* ---- all namespaces, and another user ------------------------------------------------------- */

/* A directory for both; only root becomes another user.
 *  @param user what the other one is called here */
static void begin_users(unsigned user) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .flags = GPUIPC_CONTEXT_SHARED_DIRECTORY};
    if (!system_is_root()) {
        cr_skip_test("only root can start a process of another user");
    }
    process_case_begin(&at, &config);
    cr_assert(system_share_directory(at.directory, user));
}

/* @param container as process_helper has it */
static void start_other_user(partner *self, const char *container) {
    start_contained(self, (const char *const[]){"shared", "admit", container, NULL});
    /* What a driver opens when a device is used first may be the first user's alone. */
    partner_do(self, "GPUIPC_OK", "create 1 4096 0 0");
    partner_do(self, "GPUIPC_OK", "fill 0 0");
    partner_do(self, "GPUIPC_OK", "release");
    partner_do(self, "GPUIPC_OK", "user %u", OTHER_USER);
}

static int admit(void *user_data, const gpuipc_peer_info *peer) {
    return strcmp(peer->user, user_data) == 0;
}

static void check_other_user(const char *container, unsigned user) {
    char wanted[16];
    const gpuipc_endpoint_config with_policy = {
        .struct_size = sizeof(with_policy), .policy = admit, .policy_user_data = wanted};
    gpuipc_listener *listener;
    char name[UNIQUE_NAME_MAX];
    begin_users(user);
    (void)snprintf(wanted, sizeof(wanted), "%u", user);
    start_other_user(&other, container);
    unique_name(name);
    check_ok(gpuipc_listener_open(at.context, name, &with_policy, &listener));
    partner_do(&other, "GPUIPC_OK", "connect %s %d", name, PATIENCE_MS);
    check_ok(gpuipc_listener_accept(listener, PATIENCE_MS, &connection));
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 4096);
    check_ok(process_case_send(connection, &buffer, 1, 3));
    partner_do(&other, "GPUIPC_OK 3 bytes 1 buffers", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK", "check 1 4096");
    partner_do(&other, "GPUIPC_OK", "fill 2 4096");
    check_ok(marks_check(buffer, 2, 4096));
    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_listener_close(listener));
    end();
}

Test(container, memory_goes_to_another_user_of_other_namespaces) {
    check_other_user("contained", OTHER_USER);
}

Test(container, memory_goes_to_another_user_of_another_user_namespace) {
    check_other_user("contained-mapped", SYSTEM_MAPPED_FIRST + OTHER_USER);
}

/* Each of the two writes once: the other one is this user, in namespaces of its own as well. */
static void check_users_serve(const char *container, unsigned user) {
    const char *const this_user[] = {"shared", "admit", "contained", NULL};
    partner writer;
    begin_users(user);
    start_other_user(&writer, container);
    start_contained(&other, this_user);
    check_tickets_and_channels(&writer);

    begin_users(user);
    start_contained(&writer, this_user);
    start_other_user(&other, container);
    check_tickets_and_channels(&writer);
}

Test(container, tickets_and_channels_between_users_of_two_namespaces) {
    check_users_serve("contained", OTHER_USER);
}

Test(container, tickets_and_channels_between_users_of_two_user_namespaces) {
    check_users_serve("contained-mapped", SYSTEM_MAPPED_FIRST + OTHER_USER);
}
