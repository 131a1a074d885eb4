/* SPDX-License-Identifier: MIT */
/** @file How often the log hears of others: so many in a second, and how many were left out. */
#include <criterion/criterion.h>

#include "base/log_rate.h"
#include "check.h"
#include "os.h"

TestSuite(log_rate, .timeout = 60);

#define SECOND_NS UINT64_C(1000000000)
#define THREADS   8
#define SENTENCES 20000u

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
