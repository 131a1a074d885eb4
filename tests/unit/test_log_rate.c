/* SPDX-License-Identifier: MIT */
/** @file How often the log hears of others: so many in a second, and how many were left out. */
#include <criterion/criterion.h>

#include "base/log_rate.h"
#include "check.h"
#include "os.h"

TestSuite(log_rate, .timeout = 110);

#define SECOND_NS UINT64_C(1000000000)
#define THREADS   8
#define SENTENCES 20000u
#define ROUNDS    10000u
/* Where the threads have a processor in turns, a round takes as long as such a turn. */
#define SING_NS (5 * SECOND_NS)

/** How many of so many are said. */
static unsigned say(log_rate *self, uint64_t now_ns, unsigned count, uint64_t *out_left_out) {
    unsigned said = 0;
    *out_left_out = 0;
    for (unsigned i = 0; i < count; i++) {
        uint64_t left_out;
        said += log_rate_admit(self, now_ns, &left_out);
        *out_left_out += left_out;
    }
    return said;
}

Test(log_rate, so_many_are_said_in_a_second_and_the_next_one_tells_of_the_rest) {
    log_rate rate = {0};
    uint64_t told;
    cr_assert_eq(say(&rate, 5 * SECOND_NS, 10, &told), 10);
    cr_assert_eq(say(&rate, 6 * SECOND_NS - 1, 90, &told), LOG_RATE_MOST - 10);
    cr_assert_eq(told, 0);
    cr_assert_eq(say(&rate, 6 * SECOND_NS, 1, &told), 1);
    cr_assert_eq(told, 100 - LOG_RATE_MOST);
    cr_assert_eq(say(&rate, 60 * SECOND_NS, 1, &told), 1);
    cr_assert_eq(told, 0);
    cr_assert_eq(log_rate_settle(&rate), 0);
}

Test(log_rate, the_end_tells_of_what_nobody_was_told) {
    log_rate rate = {0};
    uint64_t told;
    cr_assert_eq(say(&rate, SECOND_NS, 100, &told), LOG_RATE_MOST);
    cr_assert_eq(told, 0);
    cr_assert_eq(log_rate_settle(&rate), 100 - LOG_RATE_MOST);
    cr_assert_eq(log_rate_settle(&rate), 0);
}

/* A clock of another processor may be read before this one's, and compared after it. */
Test(log_rate, a_time_that_has_passed_begins_no_second) {
    log_rate rate = {0};
    uint64_t told;
    cr_assert_eq(say(&rate, 9 * SECOND_NS, LOG_RATE_MOST, &told), LOG_RATE_MOST);
    cr_assert_eq(say(&rate, 8 * SECOND_NS, 1, &told), 0);
    cr_assert_eq(say(&rate, 9 * SECOND_NS, 1, &told), 0);
}

typedef struct speaker {
    log_rate *rate;
    uint64_t said;
    uint64_t told;
    os_thread *thread;
} speaker;

static void speak(void *argument) {
    speaker *self = argument;
    for (unsigned i = 0; i < SENTENCES; i++) {
        uint64_t told;
        self->said += log_rate_admit(self->rate, i / 1000 * SECOND_NS, &told);
        self->told += told;
    }
}

Test(log_rate, each_sentence_of_many_threads_is_said_or_counted_once) {
    log_rate rate = {0};
    speaker speakers[THREADS];
    uint64_t sum = 0;
    for (size_t i = 0; i < THREADS; i++) {
        speakers[i] = (speaker){.rate = &rate};
        check_ok(os_thread_start(speak, &speakers[i], &speakers[i].thread));
    }
    for (size_t i = 0; i < THREADS; i++) {
        os_thread_join(speakers[i].thread);
        sum += speakers[i].said + speakers[i].told;
    }
    cr_assert_eq(sum + log_rate_settle(&rate), THREADS * (uint64_t)SENTENCES);
}

/* ---- a second that two begin ------------------------------------------------------------------- */

/* What two threads say in the same second, which begins with either. */
typedef struct duet {
    log_rate rate;
    uint64_t begun_ns;
    atomic_uint voices;
    atomic_bool is_over; /* said by the first voice before both meet */
    atomic_uint rounds;
    atomic_uint arrived;
    atomic_uint said[ROUNDS];
} duet;

/* Until both are there. Where one has no processor the other gives its own up. */
static void meet(duet *self, unsigned round) {
    atomic_fetch_add(&self->arrived, 1u);
    for (unsigned looks = 1; atomic_load(&self->arrived) < 2 * round; looks++) {
        if (looks % 1000 == 0) {
            os_sleep_ms(0);
        }
    }
}

/* In each even second a few, in each odd one as many as may be. */
static void sing(void *argument) {
    duet *self = argument;
    const bool is_first = atomic_fetch_add(&self->voices, 1u) == 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t told;
        if (is_first && os_clock_ns() - self->begun_ns > SING_NS) {
            atomic_store(&self->is_over, true);
        }
        meet(self, 2 * i + 1);
        if (atomic_load(&self->is_over)) {
            return;
        }
        atomic_store(&self->rounds, i + 1);
        (void)say(&self->rate, 2 * i * SECOND_NS, 4, &told);
        meet(self, 2 * i + 2);
        atomic_fetch_add(&self->said[i],
                         say(&self->rate, (2 * i + 1) * SECOND_NS, LOG_RATE_MOST, &told));
    }
}

/* Who begins a second that another one counts for already gives it no more. */
Test(log_rate, no_second_has_more_than_it_may) {
    static duet both;
    os_thread *threads[2];
    both.begun_ns = os_clock_ns();
    for (size_t i = 0; i < 2; i++) {
        check_ok(os_thread_start(sing, &both, &threads[i]));
    }
    for (size_t i = 0; i < 2; i++) {
        os_thread_join(threads[i]);
    }
    cr_assert_gt(atomic_load(&both.rounds), 0);
    for (unsigned i = 0; i < atomic_load(&both.rounds); i++) {
        cr_assert_eq(atomic_load(&both.said[i]), LOG_RATE_MOST, "in second %u", 2 * i + 1);
    }
}
