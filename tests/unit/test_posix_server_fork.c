/* SPDX-License-Identifier: MIT */
/** @file A program forks while its server answers: the child leaves alone what the server's thread, which it does not
 *  have, was in the midst of. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "asker.h"

#define CHILD_LIVES 3

static os_mutex mutex;
static os_condition changed;
static bool has_logged;
static bool may_go_on;
static gpuipc_context *context_of_server;
static gpuipc_server *server;
static gpuipc_buffer *shared;
static asker client;

/* Called by the server's thread, which holds the client's connection at that moment. */
static void hold_on(void *user_data, gpuipc_log_level level, const char *sentence) {
    (void)user_data;
    (void)sentence;
    if (level != GPUIPC_LOG_WARNING) {
        return;
    }
    os_mutex_lock(&mutex);
    has_logged = true;
    os_condition_signal_all(&changed);
    while (!may_go_on && os_condition_wait(&changed, &mutex, os_deadline_after(SOON_MS))) {
    }
    os_mutex_unlock(&mutex);
}

static void begin(void) {
    core_start();
    core_need_emulated();
    check_ok(os_condition_init(&changed));
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = core_unit};
    gpuipc_context_config own = core_context_config();
    own.log = hold_on;
    check_ok(gpuipc_context_create(&own, &context_of_server));
    check_ok(gpuipc_server_create(context_of_server, NULL, &server));
    check_ok(gpuipc_buffer_create(context_of_server, &config, &shared));
}

static void finish(void) {
    asker_end(&client);
    (void)gpuipc_server_destroy(server);
    (void)gpuipc_buffer_release(shared);
    (void)gpuipc_context_destroy(context_of_server);
    core_finish();
}

TestSuite(server_fork, .init = begin, .fini = finish, .timeout = 60);

static void wait_for_log(void) {
    os_mutex_lock(&mutex);
    while (!has_logged) {
        cr_assert(os_condition_wait(&changed, &mutex, os_deadline_after(SOON_MS)));
    }
    os_mutex_unlock(&mutex);
}

static void let_go_on(void) {
    os_mutex_lock(&mutex);
    may_go_on = true;
    os_condition_signal_all(&changed);
    os_mutex_unlock(&mutex);
}

/* All that the parent has made, ended by the child. */
static int end_all(void) {
    const bool has_ended = gpuipc_server_destroy(server) == GPUIPC_OK &&
                           gpuipc_buffer_release(shared) == GPUIPC_OK &&
                           gpuipc_context_destroy(context_of_server) == GPUIPC_OK;
    return has_ended ? CHILD_LIVES : 1;
}

Test(server_fork, a_child_ends_what_its_parent_is_busy_with) {
    asker_reply reply;
    int how = 0;
    const gpuipc_ticket of = asker_share(server, shared);
    asker_begin(&client, core_context, &of);
    core_set_failures("cuMemExportToShareableHandle:*=999");
    check_ok(asker_send(&client, &of));
    wait_for_log();
    core_set_failures("");
    const pid_t child = fork();
    if (child == 0) {
        _exit(end_all());
    }
    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_assert(WIFEXITED(how) && WEXITSTATUS(how) == CHILD_LIVES, "it ended with 0x%x", how);
    let_go_on();
    check_ok(asker_receive(&client, &reply));
    cr_assert_eq(reply.answer, WIRE_FAILED);
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
}

/* A program of multiprocessing, say, that is forked from one which has used CUDA. */
static int make_context(gpuipc_status expected) {
    gpuipc_context *made = NULL;
    const bool is_told = gpuipc_context_create(NULL, &made) == expected && made == NULL &&
                         strstr(gpuipc_error_get()->sentence, "fork()") != NULL;
    return is_told ? CHILD_LIVES : 1;
}

Test(server_fork, a_child_that_makes_a_context_is_told_of_the_fork) {
    int how = 0;
    const pid_t child = fork();
    if (child == 0) {
        _exit(make_context(GPUIPC_ERR_FORKED));
    }
    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_assert(WIFEXITED(how) && WEXITSTATUS(how) == CHILD_LIVES, "it ended with 0x%x", how);
}

/* Where only the program itself had used CUDA, and gpuipc nobody, the driver answers what it may answer elsewhere, too. */
TestSuite(fork_of_cuda, .timeout = 60);

Test(fork_of_cuda, a_child_that_makes_a_context_is_told_that_it_may_be_a_fork) {
    int how = 0;
    driver drv;
    const char *choice = os_environment("GPUIPC_CUDA_DRIVER");
    check_ok(driver_open(choice == NULL || choice[0] == '\0' ? "auto" : choice, &drv));
    const pid_t child = fork();
    if (child == 0) {
        _exit(make_context(GPUIPC_ERR_DRIVER_FAILED));
    }
    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_assert(WIFEXITED(how) && WEXITSTATUS(how) == CHILD_LIVES, "it ended with 0x%x", how);
}
