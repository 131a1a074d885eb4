/* SPDX-License-Identifier: MIT */
/** @file Another user: kept out by the directory, by the credentials, or let in by a policy. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "check.h"
#include "marks.h"
#include "os.h"
#include "partner.h"
#include "posix_system.h"

#define OTHER_USER 65534u /* "nobody", and its group; no such account is needed */

static process_case at;
static int warnings;
static gpuipc_peer_info last_peer;
static int policy_answer;

static void count_warnings(void *user_data, gpuipc_log_level level, const char *sentence) {
    (void)user_data;
    (void)sentence;
    warnings += level == GPUIPC_LOG_WARNING;
}

static int decide(void *user_data, const gpuipc_peer_info *peer) {
    *(gpuipc_peer_info *)user_data = *peer;
    return policy_answer;
}

static const gpuipc_endpoint_config with_policy = {
    .struct_size = sizeof(with_policy), .policy = decide, .policy_user_data = &last_peer};

TestSuite(user, .timeout = 100);

/* Skips the test where this process may not become another user. */
static void need_root(void) {
    if (!system_is_root()) {
        cr_skip_test("only root can start a process of another user");
    }
}

static void begin_shared(void) {
    gpuipc_context_config config = {.struct_size = sizeof(config),
                                    .flags = GPUIPC_CONTEXT_SHARED_DIRECTORY,
                                    .log = count_warnings};
    process_case_begin(&at, &config);
    cr_assert(system_share_directory(at.directory, OTHER_USER));
}

/* A listener whose socket has the group of the shared directory. */
static gpuipc_listener *listen_in_shared(const gpuipc_endpoint_config *config, const char *name) {
    gpuipc_listener *listener;
    check_ok(gpuipc_listener_open(at.context, name, config, &listener));
    return listener;
}

static void start_other_user(partner *other, const char *const *flags) {
    partner_start(other, &at, flags, NULL);
    /* What a driver opens when a device is used first may be the first user's alone. */
    partner_do(other, "GPUIPC_OK", "create 1 4096 0 0");
    partner_do(other, "GPUIPC_OK", "fill 0 0");
    partner_do(other, "GPUIPC_OK", "release");
    partner_do(other, "GPUIPC_OK", "user %u", OTHER_USER);
}

Test(user, is_kept_out_by_the_directory) {
    partner other;
    need_root();
    process_case_begin(&at, NULL);
    start_other_user(&other, (const char *const[]){"admit", NULL});
    partner_do(&other, "GPUIPC_ERR_UNSAFE_DIRECTORY", "connect %s 1000", at.name);
    partner_do(&other, "GPUIPC_ERR_", "listen elsewhere");
    partner_end(&other);
    process_case_end(&at);
}

/* Until a new socket has its rights it is waited for as one that is not there; what has them and refuses does so at once. */
Test(user, waits_for_the_rights_of_a_new_socket) {
    partner other;
    char name[UNIQUE_NAME_MAX];
    char path[RUNTIME_DIRECTORY_MAX + UNIQUE_NAME_MAX + 8];
    gpuipc_connection *connection;
    need_root();
    begin_shared();
    unique_name(name);
    policy_answer = 1;
    gpuipc_listener *listener = listen_in_shared(&with_policy, name);
    start_other_user(&other, (const char *const[]){"shared", "admit", NULL});
    (void)snprintf(path, sizeof(path), "%s/%s.sock", at.directory, name);
    cr_assert(system_set_rights(path, 0640, OTHER_USER));
    uint64_t begin_ns = os_clock_ns();
    partner_do(&other, "GPUIPC_ERR_ACCESS_DENIED", "connect %s 100", name);
    cr_assert_geq(os_clock_ns() - begin_ns, UINT64_C(100000000));

    cr_assert(system_set_rights(path, 0660, OTHER_USER - 1));
    begin_ns = os_clock_ns();
    partner_do(&other, "GPUIPC_ERR_ACCESS_DENIED", "connect %s %d", name, PATIENCE_MS);
    cr_assert_lt(os_clock_ns() - begin_ns, (uint64_t)PATIENCE_MS * 1000000);

    cr_assert(system_set_rights(path, 0660, OTHER_USER));
    partner_do(&other, "GPUIPC_OK", "connect %s %d", name, PATIENCE_MS);
    check_ok(gpuipc_listener_accept(listener, PATIENCE_MS, &connection));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    check_ok(gpuipc_listener_close(listener));
    process_case_end(&at);
}

/* In a directory that both may use it is the credentials that count. */
Test(user, is_refused_by_its_credentials) {
    partner other;
    char name[UNIQUE_NAME_MAX];
    gpuipc_connection *connection;
    need_root();
    begin_shared();
    unique_name(name);
    gpuipc_listener *listener = listen_in_shared(NULL, name);
    start_other_user(&other, (const char *const[]){"shared", "admit", NULL});
    partner_do(&other, "GPUIPC_OK", "connect %s %d", name, PATIENCE_MS);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 200, &connection));
    cr_assert_eq(warnings, 1);
    partner_do(&other, "GPUIPC_ERR_PEER_CLOSED", "receive 0 0 0 %d", PATIENCE_MS);
    partner_end(&other);

    /* the listener goes on to serve its own user */
    partner mine;
    partner_start(&mine, &at, (const char *const[]){"shared", NULL}, NULL);
    partner_do(&mine, "GPUIPC_OK", "connect %s %d", name, PATIENCE_MS);
    check_ok(gpuipc_listener_accept(listener, PATIENCE_MS, &connection));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&mine);
    check_ok(gpuipc_listener_close(listener));
    process_case_end(&at);
}

/* No directory guards an abstract name. */
Test(user, is_refused_at_an_abstract_name) {
    partner other;
    char name[UNIQUE_NAME_MAX + 1] = "@";
    gpuipc_listener *listener;
    gpuipc_connection *connection;
    need_root();
    process_case_begin(&at, NULL);
    unique_name(name + 1);
    check_ok(gpuipc_listener_open(at.context, name, NULL, &listener));
    start_other_user(&other, (const char *const[]){"admit", NULL});
    partner_do(&other, "GPUIPC_OK", "connect %s %d", name, PATIENCE_MS);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 200, &connection));
    partner_do(&other, "GPUIPC_ERR_PEER_CLOSED", "receive 0 0 0 %d", PATIENCE_MS);
    partner_end(&other);
    check_ok(gpuipc_listener_close(listener));
    process_case_end(&at);
}

/* Who connects checks whom it has reached as well. */
Test(user, refuses_a_listener_of_another_user) {
    partner other;
    char name[UNIQUE_NAME_MAX];
    need_root();
    begin_shared();
    unique_name(name);
    gpuipc_listener *listener = listen_in_shared(NULL, name);
    start_other_user(&other, (const char *const[]){"shared", NULL});
    partner_do(&other, "GPUIPC_ERR_ACCESS_DENIED", "connect %s %d", name, PATIENCE_MS);
    partner_end(&other);
    check_ok(gpuipc_listener_close(listener));
    process_case_end(&at);
}

Test(user, is_admitted_by_a_policy) {
    partner other;
    char name[UNIQUE_NAME_MAX];
    gpuipc_connection *connection;
    need_root();
    begin_shared();
    unique_name(name);
    policy_answer = 1;
    gpuipc_listener *listener = listen_in_shared(&with_policy, name);
    start_other_user(&other, (const char *const[]){"shared", "admit", NULL});
    partner_do(&other, "GPUIPC_OK", "connect %s %d", name, PATIENCE_MS);
    check_ok(gpuipc_listener_accept(listener, PATIENCE_MS, &connection));
    cr_assert_str_eq(last_peer.user, "65534");
    cr_assert_eq(last_peer.same_user, 0);
    cr_assert_eq(last_peer.process_id, child_process_id(other.process));

    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 4096);
    check_ok(process_case_send(connection, &buffer, 1, 3));
    partner_do(&other, "GPUIPC_OK 3 bytes 1 buffers", "receive 0 0 0 %d", PATIENCE_MS);
    partner_do(&other, "GPUIPC_OK", "check 1 4096");
    partner_do(&other, "GPUIPC_OK", "fill 2 4096");
    check_ok(marks_check(buffer, 2, 4096));

    check_ok(gpuipc_buffer_release(buffer));
    check_ok(gpuipc_connection_close(connection));
    partner_end(&other);
    check_ok(gpuipc_listener_close(listener));
    process_case_end(&at);
}

/* A policy narrows as well: this process's own user is refused. */
Test(user, own_is_refused_by_a_policy) {
    partner other;
    char name[UNIQUE_NAME_MAX];
    gpuipc_listener *listener;
    gpuipc_connection *connection;
    process_case_begin(&at, NULL);
    unique_name(name);
    policy_answer = 0;
    check_ok(gpuipc_listener_open(at.context, name, &with_policy, &listener));
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "connect %s %d", name, PATIENCE_MS);
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_listener_accept(listener, 200, &connection));
    cr_assert_eq(last_peer.same_user, 1);
    partner_do(&other, "GPUIPC_ERR_PEER_CLOSED", "receive 0 0 0 %d", PATIENCE_MS);
    check_status(GPUIPC_ERR_ACCESS_DENIED, gpuipc_connection_open(at.context, at.name, &with_policy,
                                                                  PATIENCE_MS, &connection));
    partner_end(&other);
    check_ok(gpuipc_listener_close(listener));
    process_case_end(&at);
}
