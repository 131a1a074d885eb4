/* SPDX-License-Identifier: MIT */
/** @file See stress.h. */
#include "stress.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "form.h"
#include "leak_gate.h"
#include "os.h"

/* What each form takes, and how much longer than it should a program may take before it counts as hung. */
#define SHORT_SECONDS 3u
#define FULL_SECONDS  600u
#define GRACE_SECONDS 60u

#define BUFFER_BYTES 4096

static struct {
    const char *name;
    uint64_t seed;
    unsigned seconds;
    uint64_t frames;
    uint64_t kill_every;
    uint64_t calls;
    uint64_t end_ns;
    bool is_peer;
    leak_gate gate;
    os_thread *watch;
    os_mutex mutex;
    os_condition changed;
    bool is_over; /* the mutex guards it */
    _Atomic(const char *) now[STRESS_ACTORS];
} all;

/* ---- the end, good or bad ------------------------------------------------------------------ */

static _Noreturn void end_process(int code) {
    (void)fflush(NULL);
    _Exit(code); /* other threads go on, and exit handlers may wait for them */
}

void stress_fail(const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "stress.%s%s, seed %" PRIu64 ": %s\n", all.name,
                  all.is_peer ? " (peer)" : "", all.seed, text);
    end_process(1);
}

gpuipc_status stress_allow(gpuipc_status status, const char *what, const gpuipc_status *allowed) {
    if (status == GPUIPC_OK) {
        return status;
    }
    for (; allowed != NULL && *allowed != GPUIPC_OK; allowed++) {
        if (*allowed == status) {
            return status;
        }
    }
    stress_fail("%s answered %s (%s: %s)", what, gpuipc_status_name(status),
                gpuipc_error_get()->operation, gpuipc_error_get()->sentence);
}

static void say_where(void) {
    for (unsigned i = 0; i < STRESS_ACTORS; i++) {
        const char *what = atomic_load(&all.now[i]);
        if (what != NULL) {
            (void)fprintf(stderr, "    actor %u: %s\n", i, what);
        }
    }
}

static void watch(void *argument) {
    const os_deadline deadline = os_deadline_after((int)(all.seconds + GRACE_SECONDS) * 1000);
    (void)argument;
    os_mutex_lock(&all.mutex);
    while (!all.is_over && !os_deadline_passed(deadline)) {
        (void)os_condition_wait(&all.changed, &all.mutex, deadline);
    }
    const bool is_over = all.is_over;
    os_mutex_unlock(&all.mutex);
    if (!is_over) {
        (void)fprintf(stderr, "stress.%s%s, seed %" PRIu64 ": hangs\n", all.name,
                      all.is_peer ? " (peer)" : "", all.seed);
        say_where();
        end_process(4);
    }
}

void stress_now(unsigned actor, const char *what) {
    atomic_store(&all.now[actor % STRESS_ACTORS], what);
}

/* ---- the beginning ------------------------------------------------------------------------- */

/* What a driver opens at its start stays open. */
static void start_driver(void) {
    gpuipc_context *context = NULL;
    gpuipc_buffer *buffer = NULL;
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    config.bytes = 1;
    STRESS_OK(gpuipc_context_create(NULL, &context));
    STRESS_OK(gpuipc_buffer_create(context, &config, &buffer));
    STRESS_OK(gpuipc_buffer_release(buffer));
    STRESS_OK(gpuipc_context_destroy(context));
}

static void begin(void) {
    start_driver();
    all.end_ns = os_clock_ns() + all.seconds * UINT64_C(1000000000);
    leak_gate_begin(&all.gate);
    STRESS_OK(os_condition_init(&all.changed));
    STRESS_OK(os_thread_start(watch, NULL, &all.watch));
}

void stress_set_seconds(unsigned seconds) {
    all.seconds = seconds;
}

void stress_begin(const char *name, int argc, char **argv) {
    all.name = name;
    all.seed = 1;
    if (all.seconds == 0) {
        all.seconds = (unsigned)form_choose(SHORT_SECONDS, FULL_SECONDS);
    }
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0) {
            all.seconds = (unsigned)strtoul(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0) {
            all.seed = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--frames") == 0) {
            all.frames = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--kill-every") == 0) {
            all.kill_every = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--calls") == 0) {
            all.calls = strtoull(argv[i + 1], NULL, 10);
        } else {
            stress_fail("there is no argument \"%s\"; there are --seconds and --seed, for frames "
                        "--frames and --kill-every, and for threads --calls",
                        argv[i]);
        }
    }
    (void)printf("stress.%s: seed %" PRIu64 ", %u s\n", name, all.seed, all.seconds);
    (void)fflush(stdout);
    begin();
}

void stress_begin_peer(const char *name, uint64_t seed, unsigned seconds) {
    all.name = name;
    all.seed = seed;
    all.seconds = seconds;
    all.is_peer = true;
    begin();
}

bool stress_goes_on(void) {
    return os_clock_ns() < all.end_ns;
}

uint64_t stress_seed(void) {
    return all.seed;
}

unsigned stress_seconds(void) {
    return all.seconds;
}

uint64_t stress_frames(void) {
    return all.frames == 0 ? UINT64_MAX : all.frames;
}

uint64_t stress_calls(uint64_t otherwise) {
    return all.calls == 0 ? otherwise : all.calls;
}

uint64_t stress_kill_every(uint64_t otherwise) {
    return all.kill_every == 0 ? otherwise : all.kill_every;
}

uint64_t stress_driver_objects(void) {
    gpuipc_emulated_live now;
    if (all.gate.get_live == NULL) {
        return 0;
    }
    all.gate.get_live(&now);
    return now.allocations + now.reservations + now.mappings + now.plain + now.streams +
           now.events + now.contexts + now.primary + now.pools + now.pooled + now.ipc + now.pinned +
           now.managed + now.graphs + now.graph_execs;
}

int stress_end(const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    os_mutex_lock(&all.mutex);
    all.is_over = true;
    os_condition_signal_all(&all.changed);
    os_mutex_unlock(&all.mutex);
    os_thread_join(all.watch);
    os_condition_destroy(&all.changed);
    if (leak_gate_end(&all.gate) != 0) {
        stress_fail("%s", all.gate.text);
    }
    if (!all.is_peer) {
        (void)printf("stress.%s: %s\n", all.name, text);
    }
    return 0;
}

/* ---- numbers ------------------------------------------------------------------------------- */

uint64_t stress_state(uint32_t actor) {
    return all.seed * UINT64_C(0x9E3779B97F4A7C15) + actor * UINT64_C(0xD1B54A32D192ED03) + 1;
}

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). */
uint32_t stress_random(uint64_t *state, uint32_t below) {
    *state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t mixed = *state;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    mixed ^= mixed >> 31;
    return (uint32_t)((mixed >> 32) * below >> 32);
}

/* ---- objects ------------------------------------------------------------------------------- */

/* With GPUIPC_STRESS_LOG in the environment: which refusals and work-arounds a failure came after. */
static void say_log(void *user_data, gpuipc_log_level level, const char *sentence) {
    (void)user_data;
    (void)level;
    (void)fprintf(stderr, "%" PRIu64 ": %s\n", os_process_id(), sentence);
}

gpuipc_context *stress_context(const char *directory) {
    const gpuipc_context_config config = {
        .struct_size = sizeof(config),
        .runtime_directory = directory,
        .log = os_environment("GPUIPC_STRESS_LOG") != NULL ? say_log : NULL};
    gpuipc_context *made = NULL;
    STRESS_OK(gpuipc_context_create(&config, &made));
    return made;
}

gpuipc_buffer *stress_buffer(gpuipc_context *within, gpuipc_transport transport, uint32_t word) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = transport, .bytes = BUFFER_BYTES};
    gpuipc_buffer *made = NULL;
    STRESS_OK(gpuipc_buffer_create(within, &config, &made));
    STRESS_OK(gpuipc_buffer_write(made, 0, &word, sizeof(word)));
    return made;
}
