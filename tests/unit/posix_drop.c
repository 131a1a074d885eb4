/* SPDX-License-Identifier: MIT */
/** @file Dropped buffers and a fork: the child has no thread for them, makes no call of the driver, and ends at once. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stream_gate.h"

static CUstream held;
static gpuipc_buffer *buffers[3];

static void begin(void) {
    core_start();
    stream_gate_make();
    held = stream_gate_stream();
    for (int i = 0; i < 3; i++) {
        buffers[i] = core_buffer(core_unit, 0);
    }
}

static void finish(void) {
    stream_gate_open();
    stream_gate_stream_end(held);
    stream_gate_end();
    core_finish();
}

TestSuite(drop_child, .init = begin, .fini = finish, .timeout = 60);

/* One bit for each thing that is not as it should be. The first buffer was dropped by the parent. */
static int give_all_up(void) {
    const uint64_t before =
        core_calls(NULL); /* the parent's thread may have made some until the fork */
    int wrong = gpuipc_buffer_drop(buffers[0]) == GPUIPC_ERR_RELEASED ? 0 : 1;
    wrong |= gpuipc_buffer_drop(buffers[1]) == GPUIPC_OK ? 0 : 2;
    wrong |= gpuipc_buffer_release_async(buffers[2], NULL) == GPUIPC_OK ? 0 : 4;
    wrong |= gpuipc_context_destroy(core_context) == GPUIPC_OK ? 0 : 8;
    wrong |= core_calls(NULL) == before ? 0 : 16;
    wrong |= gpuipc_drops_resume() == GPUIPC_ERR_INVALID_ARGUMENT ? 0 : 32;
    return wrong;
}

Test(drop_child, has_no_thread_and_waits_for_nobody) {
    int how = -1;
    core_need_emulated();
    stream_gate_close(held);
    check_ok(gpuipc_buffer_drop(buffers[0]));
    check_ok(gpuipc_drops_pause()); /* the child begins without its parent's pauses */
    const pid_t child = fork();
    if (child == 0 && IS_SANITIZED) {
        _exit(
            give_all_up()); /* a sanitizer's handler takes a lock that the parent's thread may have held: gcc 12 */
    }
    if (child == 0) {
        exit(give_all_up()); /* with its handlers */
    }
    check_ok(gpuipc_drops_resume());
    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_assert(WIFEXITED(how));
    cr_assert_eq(WEXITSTATUS(how), 0, "%d", WEXITSTATUS(how));
    stream_gate_open();
    check_ok(gpuipc_buffer_drop(buffers[1]));
    check_ok(gpuipc_buffer_drop(buffers[2]));
}
