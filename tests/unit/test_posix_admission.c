/* SPDX-License-Identifier: MIT */
/** @file Who may connect: user, group, namespace, place and policy, each with each, in both directions (the table of
 *  docs/reliability.md); and processes that try to connect while names are made. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "core_fixture.h"
#include "form.h"

/* Numbers that no account needs to have. The overflow user, which all foreign ones are shown as, is another:
 * user_namespaces(7). */
#define OTHER_USER    1234u
#define SHARING_GROUP 4321u

static gpuipc_context *sharing; /* a context of the directory that a group shares */
static char shared_directory[RUNTIME_DIRECTORY_MAX];

static void begin(void) {
    core_start();
    cr_assert(runtime_directory_make(shared_directory));
    gpuipc_context_config config = core_context_config();
    config.runtime_directory = shared_directory;
    config.flags = GPUIPC_CONTEXT_SHARED_DIRECTORY;
    check_ok(gpuipc_context_create(&config, &sharing));
}

static void finish(void) {
    (void)gpuipc_context_destroy(sharing);
    runtime_directory_remove(shared_directory);
    core_finish();
}

TestSuite(posix_admission, .init = begin, .fini = finish, .timeout = 300);

/* ---- the table ------------------------------------------------------------------------------ */

typedef enum place {
    OWN,      /* a directory of the user's own */
    SHARED,   /* one that a group shares */
    ABSTRACT, /* a name without a directory */
} place;

typedef enum outcome {
    ADMITTED,
    REFUSED,  /* by the credentials, or by the policy */
    KEPT_OUT, /* by the system: nothing can be reached there, or be made */
} outcome;

static const char *const outcome_names[] = {"admitted", "refused", "kept out"};

/* Who comes, and what becomes of it with no policy, with one that admits everybody and with one that admits nobody. */
typedef struct row {
    bool is_other_user;
    bool has_group;
    bool
        is_contained; /* in a user namespace, where it has the number that is the other's outside */
    place where;
    outcome expected[3];
} row;

#define OPEN_TO_OWN                                                                                \
    { ADMITTED, ADMITTED, REFUSED }
#define UP_TO_POLICY                                                                               \
    { REFUSED, ADMITTED, REFUSED }
#define CLOSED                                                                                     \
    { KEPT_OUT, KEPT_OUT, KEPT_OUT }

static const row rows[] = {
    {false, false, false, OWN, OPEN_TO_OWN},
    {false, false, false, SHARED, OPEN_TO_OWN},
    {false, false, false, ABSTRACT, OPEN_TO_OWN},
    {false, false, true, OWN, OPEN_TO_OWN},
    {false, false, true, SHARED, OPEN_TO_OWN},
    {false, false, true, ABSTRACT, OPEN_TO_OWN},
    {false, true, false, OWN, OPEN_TO_OWN},
    {false, true, false, SHARED, OPEN_TO_OWN},
    {false, true, false, ABSTRACT, OPEN_TO_OWN},
    {false, true, true, OWN, OPEN_TO_OWN},
    {false, true, true, SHARED, OPEN_TO_OWN},
    {false, true, true, ABSTRACT, OPEN_TO_OWN},
    {true, false, false, OWN, CLOSED},
    {true, false, false, SHARED, CLOSED},
    {true, false, false, ABSTRACT, UP_TO_POLICY},
    {true, false, true, OWN, CLOSED},
    {true, false, true, SHARED, CLOSED},
    {true, false, true, ABSTRACT, UP_TO_POLICY},
    {true, true, false, OWN, CLOSED},
    {true, true, false, SHARED, UP_TO_POLICY},
    {true, true, false, ABSTRACT, UP_TO_POLICY},
    {true, true, true, OWN, CLOSED},
    {true, true, true, SHARED, UP_TO_POLICY},
    {true, true, true, ABSTRACT, UP_TO_POLICY},
};

static int answer_with(void *user_data, const gpuipc_peer_info *peer) {
    const row *of = user_data;
    cr_assert_eq(peer->same_user, !of->is_other_user);
    return 1;
}

static int refuse(void *user_data, const gpuipc_peer_info *peer) {
    (void)answer_with(user_data, peer);
    return 0;
}

static gpuipc_endpoint_config policy_of(const row *of, size_t policy) {
    static const gpuipc_peer_policy policies[] = {NULL, answer_with, refuse};
    return (gpuipc_endpoint_config){.struct_size = sizeof(gpuipc_endpoint_config),
                                    .policy = policies[policy],
                                    .policy_user_data = (void *)(uintptr_t)of};
}

static gpuipc_context *context_of(const row *of) {
    return of->where == SHARED ? sharing : core_context;
}

/** As the library names it, and as a process that does without the library reaches it. */
typedef struct spot {
    char name[UNIQUE_NAME_MAX + 1];
    char path[RUNTIME_DIRECTORY_MAX + UNIQUE_NAME_MAX + 8];
} spot;

static spot spot_make(const row *of) {
    spot made;
    char name[UNIQUE_NAME_MAX];
    unique_name(name);
    if (of->where == ABSTRACT) {
        (void)snprintf(made.name, sizeof(made.name), "@%s", name);
        (void)snprintf(made.path, sizeof(made.path), "@%s", name);
    } else {
        (void)snprintf(made.name, sizeof(made.name), "%s", name);
        (void)snprintf(made.path, sizeof(made.path), "%s/%s.sock",
                       of->where == SHARED ? shared_directory : core_directory, name);
    }
    return made;
}

/* ---- the other process ---------------------------------------------------------------------- */

static child_process *visitor;
static char line[CHILD_LINE_MAX];

static void visitor_hear(void) {
    check_ok(child_read_line(visitor, line, sizeof(line), SOON_MS));
}

static void visitor_end(void) {
    child_close_input(visitor);
    check_ok(child_wait(visitor, SOON_MS, NULL));
    child_destroy(visitor);
}

static bool visitor_start(const row *as) {
    char user[16];
    char group[16];
    char number[16];
    (void)snprintf(user, sizeof(user), "%u", as->is_other_user ? OTHER_USER : 0);
    (void)snprintf(group, sizeof(group), "%u", as->has_group ? SHARING_GROUP : 0);
    /* As the other's number, if it is of this user, and the other way round. */
    (void)snprintf(number, sizeof(number), "%u",
                   as->is_other_user ? (unsigned)geteuid() : OTHER_USER);
    const char *const arguments[] = {"visit", user, group, as->is_contained ? number : "-", NULL};
    check_ok(child_start("posix_helper", arguments, NULL, &visitor));
    visitor_hear();
    if (strcmp(line, "ready") == 0) {
        return true;
    }
    visitor_end();
    return false;
}

/** @return whether it came through */
static bool visitor_try(const char *what, const spot *there) {
    char command[sizeof(there->path) + 16];
    (void)snprintf(command, sizeof(command), "%s %s", what, there->path);
    check_ok(child_write_line(visitor, command));
    visitor_hear();
    cr_assert(strcmp(line, "done") == 0 || strcmp(line, "kept out") == 0, "%s: %s", command, line);
    return line[0] == 'd';
}

/* ---- each cell ------------------------------------------------------------------------------ */

/* It connects; the library listens. It is in the row by then, so that nobody has to be waited for. */
static outcome come(const row *of, size_t policy) {
    const gpuipc_endpoint_config config = policy_of(of, policy);
    const spot there = spot_make(of);
    gpuipc_listener *listener;
    gpuipc_connection *connection;
    outcome found = KEPT_OUT;
    check_ok(gpuipc_listener_open(context_of(of), there.name, &config, &listener));
    if (visitor_try("connect", &there)) {
        gpuipc_status status = gpuipc_listener_accept(listener, 0, &connection);
        found = status == GPUIPC_OK ? ADMITTED : REFUSED;
        if (status == GPUIPC_OK) {
            check_ok(gpuipc_connection_close(connection));
        } else {
            cr_assert_eq(status, GPUIPC_ERR_TIMEOUT, "%s", gpuipc_error_text());
        }
    }
    check_ok(gpuipc_listener_close(listener));
    return found;
}

/* It listens; the library connects. */
static outcome go(const row *of, size_t policy) {
    const gpuipc_endpoint_config config = policy_of(of, policy);
    const spot there = spot_make(of);
    gpuipc_connection *connection;
    if (!visitor_try("listen", &there)) {
        return KEPT_OUT;
    }
    gpuipc_status status =
        gpuipc_connection_open(context_of(of), there.name, &config, SOON_MS, &connection);
    if (status == GPUIPC_OK) {
        check_ok(gpuipc_connection_close(connection));
        return ADMITTED;
    }
    cr_assert_eq(status, GPUIPC_ERR_ACCESS_DENIED, "%s", gpuipc_error_text());
    return REFUSED;
}

static void check_row(const row *of) {
    for (size_t policy = 0; policy < 3; policy++) {
        const outcome came = come(of, policy);
        const outcome went = go(of, policy);
        cr_assert(came == of->expected[policy] && went == of->expected[policy],
                  "row %zu, policy %zu: comes %s, is reached %s; expected %s", (size_t)(of - rows),
                  policy, outcome_names[came], outcome_names[went],
                  outcome_names[of->expected[policy]]);
    }
}

/* Those of one kind of process come one after the other. */
static void check_rows(bool is_other_user, bool is_contained) {
    const row *started = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const row *of = &rows[i];
        if (of->is_other_user != is_other_user || of->is_contained != is_contained ||
            (of->has_group && geteuid() != 0)) {
            continue;
        }
        if (started == NULL || started->has_group != of->has_group) {
            if (started != NULL) {
                visitor_end();
            }
            if (!visitor_start(of)) {
                cr_skip_test("no process of this kind can be made here: %s", line);
            }
            started = of;
        }
        check_row(of);
    }
    visitor_end();
}

static void share_the_directory(void) {
    if (geteuid() == 0) {
        cr_assert_eq(chown(shared_directory, (uid_t)-1, SHARING_GROUP), 0);
    }
    cr_assert_eq(chmod(shared_directory, S_ISGID | 0770), 0); /* inode(7) */
}

Test(posix_admission, processes_of_the_same_user) {
    share_the_directory();
    check_rows(false, false);
}

Test(posix_admission, processes_of_the_same_user_in_a_namespace) {
    share_the_directory();
    check_rows(false, true);
}

Test(posix_admission, processes_of_another_user) {
    if (geteuid() != 0) {
        cr_skip_test("only root can start a process of another user");
    }
    share_the_directory();
    check_rows(true, false);
}

/* They have our number there. */
Test(posix_admission, processes_of_another_user_in_a_namespace) {
    if (geteuid() != 0) {
        cr_skip_test("only root can start a process of another user");
    }
    share_the_directory();
    check_rows(true, true);
}

/* ---- while names are made ------------------------------------------------------------------- */

#define NAME "raced"

static child_process *racer_start(const char *group) {
    char own_path[RUNTIME_DIRECTORY_MAX + 16];
    char shared_path[RUNTIME_DIRECTORY_MAX + 16];
    child_process *made;
    (void)snprintf(own_path, sizeof(own_path), "%s/" NAME ".sock", core_directory);
    (void)snprintf(shared_path, sizeof(shared_path), "%s/" NAME ".sock", shared_directory);
    const char *const arguments[] = {"race", "1234", group, own_path, shared_path, NULL};
    check_ok(child_start("posix_helper", arguments, NULL, &made));
    check_ok(child_read_line(made, line, sizeof(line), SOON_MS));
    cr_assert_str_eq(line, "ready");
    return made;
}

static void racer_end(child_process *racer, unsigned *out_own, unsigned *out_shared) {
    child_close_input(racer);
    check_ok(child_read_line(racer, line, sizeof(line), SOON_MS));
    cr_assert_eq(sscanf(line, "%u %u", out_own, out_shared), 2, "%s", line);
    check_ok(child_wait(racer, SOON_MS, NULL));
    child_destroy(racer);
}

/* Makes the name once, where nothing but the library decides on the rights of its file. */
static void bind_once(gpuipc_context *context) {
    gpuipc_listener *listener;
    gpuipc_connection *connection;
    check_ok(gpuipc_listener_open(context, NAME, NULL, &listener));
    gpuipc_status status;
    while ((status = gpuipc_listener_accept(listener, 0, &connection)) == GPUIPC_OK) {
        cr_assert_fail("a process of another user was let in");
    }
    cr_assert_eq(status, GPUIPC_ERR_TIMEOUT, "%s", gpuipc_error_text());
    check_ok(gpuipc_listener_close(listener));
}

Test(posix_admission, nobody_comes_in_while_a_name_is_made, .timeout = 1800) {
    const uint64_t times = form_choose(400, 100000);
    unsigned stranger[2];
    unsigned member[2];
    if (geteuid() != 0) {
        cr_skip_test("only root can start a process of another user");
    }
    share_the_directory();
    child_process *of_no_group = racer_start("0");
    child_process *of_the_group = racer_start("4321");
    mode_t before = umask(0);
    for (uint64_t i = 0; i < times; i++) {
        bind_once(i % 2 == 0 ? core_context : sharing);
    }
    umask(before);
    racer_end(of_no_group, &stranger[0], &stranger[1]);
    racer_end(of_the_group, &member[0], &member[1]);
    cr_assert_eq(stranger[0] + stranger[1], 0);
    cr_assert_eq(member[0], 0);
    if (form_is_full()) { /* the race is one: whom the directory admits comes to the listener, and no further */
        cr_assert_gt(member[1], 0);
    }
}
