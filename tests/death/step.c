/* SPDX-License-Identifier: MIT */
/** @file See step.h. Nothing here takes a lock or memory: it runs in the midst of everything. */
#include "step.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "os.h"

static struct {
    _Atomic(const void *) function; /* NULL: any */
    step_edge edge;
    step_fate fate;
    atomic_uint_least64_t left; /* until it is time; 0: it is not to be, or is over */
    atomic_uint_least64_t passed;
    atomic_bool is_armed;
} wanted;

static atomic_int sending; /* threads */
static atomic_bool ending; /* this process, or it stops: from here on no thread begins to send */

void step_arm(const step *named, uint64_t nth, step_fate fate) {
    atomic_store(&wanted.is_armed, false);
    /* A function's address as a number of the same size: POSIX, dlsym. */
    atomic_store(&wanted.function, named == NULL ? NULL : (const void *)(uintptr_t)named->at);
    wanted.edge = named == NULL ? STEP_ENTERS : named->edge;
    wanted.fate = fate;
    atomic_store(&wanted.left, named == NULL ? nth : named->nth);
    atomic_store(&wanted.passed, 0);
    atomic_store(&wanted.is_armed, true);
}

uint64_t step_passed(void) {
    return atomic_load(&wanted.passed);
}

bool step_is_sending(void) {
    return atomic_load(&sending) > 0;
}

static void note_sending(const void *function, step_edge edge) {
    if (function == (const void *)(uintptr_t)os_connection_send) {
        atomic_fetch_add(&sending, edge == STEP_ENTERS ? 1 : -1);
        /* Counted first: who ends sees it, or it sees the end. */
        while (edge == STEP_ENTERS && atomic_load(&ending)) {
            step_pause();
        }
    }
}

static void pass(const void *function, step_edge edge) {
    if (!atomic_load(&wanted.is_armed)) {
        return;
    }
    atomic_fetch_add(&wanted.passed, 1);
    const void *const only = atomic_load(&wanted.function);
    uint64_t left = atomic_load(&wanted.left);
    if (left == 0 || (only != NULL && (only != function || wanted.edge != edge))) {
        return;
    }
    if (atomic_fetch_sub(&wanted.left, 1) != 1) {
        return;
    }
    atomic_store(&ending, true);
    if (wanted.fate == STEP_DIE) {
        step_die();
    } else {
        step_stop();
    }
    atomic_store(&ending, false); /* it was told to go on */
}

/* What the compiler calls: gcc(1), -finstrument-functions. */
void __cyg_profile_func_enter(void *function, void *site);
void __cyg_profile_func_exit(void *function, void *site);

void __cyg_profile_func_enter(void *function, void *site) {
    (void)site;
    note_sending(function, STEP_ENTERS);
    pass(function, STEP_ENTERS);
}

void __cyg_profile_func_exit(void *function, void *site) {
    (void)site;
    pass(function, STEP_LEAVES);
    note_sending(function, STEP_LEAVES);
}
