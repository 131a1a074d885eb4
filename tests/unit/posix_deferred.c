/* SPDX-License-Identifier: MIT */
/** @file deferred.h in the child of a fork: it has none of its parent's streams. */
#include "sync/deferred.h"

#include <sys/wait.h>
#include <unistd.h>

#include "core_fixture.h"

TestSuite(deferred_child, .timeout = 60);

/* One bit for each thing that is not as it should be. */
static int look_around(void) {
    int wrong = deferred_is_quiet() ? 0 : 1;
    deferred_wait_begins();
    wrong |= deferred_is_quiet() ? 2 : 0;
    deferred_wait_ends();
    return wrong | (deferred_is_quiet() ? 0 : 4);
}

Test(deferred_child, waits_for_nobody) {
    int how = -1;
    check_ok(os_fork_watch());
    deferred_wait_begins();
    const pid_t child = fork();
    if (child == 0) {
        _exit(look_around());
    }
    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &how, 0), child);
    cr_assert(WIFEXITED(how));
    cr_assert_eq(WEXITSTATUS(how), 0, "%d", WEXITSTATUS(how));
    cr_assert_not(deferred_is_quiet(), "the parent's stream waits on");
    deferred_wait_ends();
    cr_assert(deferred_is_quiet());
}
