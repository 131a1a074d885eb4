/* SPDX-License-Identifier: MIT */
/** @file See beat.h. */
#include "beat.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "check.h"
#include "os.h"

#define BEAT_MS 1u
/* What a timer and a change of threads take: no stall yet. */
#define PROMPT_NS UINT64_C(250000)
/* Of the last seconds, however many. */
#define STALLS 32768u

typedef struct stall {
    uint64_t from_ns;
    uint64_t to_ns;
} stall;

static stall stalls[STALLS];
static atomic_size_t noted;
static atomic_uint_least64_t woken_ns;
static atomic_bool is_over;
static os_thread *thread;

void beat_note(uint64_t from_ns, uint64_t to_ns) {
    const size_t at = atomic_load(&noted);
    stalls[at % STALLS] = (stall){from_ns, to_ns};
    atomic_store(&noted, at + 1);
}

static void beat(void *unused) {
    (void)unused;
    while (!atomic_load(&is_over)) {
        const uint64_t wanted_ns = os_clock_ns() + BEAT_MS * UINT64_C(1000000);
        os_sleep_ms(BEAT_MS);
        const uint64_t now_ns = os_clock_ns();
        if (now_ns > wanted_ns + PROMPT_NS) {
            beat_note(wanted_ns, now_ns);
        }
        atomic_store(&woken_ns, now_ns);
    }
}

void beat_begin(void) {
    atomic_store(&is_over, false);
    check_ok(os_thread_start(beat, NULL, &thread));
}

void beat_end(void) {
    atomic_store(&is_over, true);
    os_thread_join(thread);
    thread = NULL;
}

static uint64_t common_ns(const stall *one, uint64_t from_ns, uint64_t to_ns) {
    const uint64_t from = one->from_ns > from_ns ? one->from_ns : from_ns;
    const uint64_t to = one->to_ns < to_ns ? one->to_ns : to_ns;
    return to > from ? to - from : 0;
}

uint64_t beat_withheld_ns(uint64_t from_ns, uint64_t to_ns) {
    uint64_t sum = 0;
    while (thread != NULL && atomic_load(&woken_ns) < to_ns) {
        os_sleep_ms(BEAT_MS);
    }
    const size_t count = atomic_load(&noted);
    const size_t known = count < STALLS ? count : STALLS - 1; /* one may be written over now */
    for (size_t i = 0; i < known; i++) {
        sum += common_ns(&stalls[(count - 1 - i) % STALLS], from_ns, to_ns);
    }
    return sum;
}
