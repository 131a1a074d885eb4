/* SPDX-License-Identifier: MIT */
/**
 * @file What an allocation costs with libgpuipc-preload, and without: usage: preload_bench [--quick] [HOOK].
 * Two processes of this program, one with HOOK in LD_PRELOAD, take turns on device 0. Without HOOK, and without
 * PRELOAD_BENCH_HOOK in the environment, there is one.
 * Prints medians in microseconds.
 */
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

#define KIB     ((size_t)1 << 10)
#define MIB     ((size_t)1 << 20)
#define ROUNDS  15
#define AT_ONCE 100

typedef struct row {
    size_t bytes;
    unsigned count; /* alive at once */
} row;

static const row rows[] = {{512, AT_ONCE}, {64 * KIB, AT_ONCE}, {2 * MIB, 30},
                           {20 * MIB, 15}, {64 * MIB, 10},      {1024 * MIB, 2}};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

typedef struct sample {
    double allocate[AT_ONCE];
    double release[AT_ONCE];
} sample;

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void measure(const row *what, unsigned count, sample *out) {
    CUdeviceptr made[AT_ONCE];
    for (unsigned i = 0; i < count; i++) {
        const double start = now_us();
        MUST(cuda.cuMemAlloc(&made[i], what->bytes));
        out->allocate[i] = now_us() - start;
    }
    for (unsigned i = 0; i < count; i++) {
        const double start = now_us();
        MUST(cuda.cuMemFree(made[i]));
        out->release[i] = now_us() - start;
    }
}

/* What it is told: a row, and how many at once. */
static void serve(void) {
    unsigned told[2];
    CUcontext context;
    calls_find("proc");
    MUST(cuda.cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuda.cuCtxSetCurrent(context));
    while (read(STDIN_FILENO, told, sizeof(told)) == (ssize_t)sizeof(told)) {
        sample out = {0};
        measure(&rows[told[0]], told[1], &out);
        CHECK(write(STDIN_FILENO, &out, sizeof(out)) == (ssize_t)sizeof(out));
    }
}

static int start(const char *program, const char *hook) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    const pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        if (hook != NULL) {
            setenv("LD_PRELOAD", hook, 1);
        } else {
            unsetenv("LD_PRELOAD");
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], STDIN_FILENO);
        execl(program, program, "--serve", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    return ends[0];
}

static void ask(int socket, unsigned at, unsigned count, sample *out) {
    const unsigned told[2] = {at, count};
    CHECK(write(socket, told, sizeof(told)) == (ssize_t)sizeof(told));
    CHECK(read(socket, out, sizeof(*out)) == (ssize_t)sizeof(*out));
}

static int compare(const void *a, const void *b) {
    const double first = *(const double *)a;
    const double second = *(const double *)b;
    return (first > second) - (first < second);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2];
}

static void run_row(const int sockets[2], int processes, unsigned at, unsigned rounds) {
    static double allocate[2][ROUNDS * AT_ONCE];
    static double release[2][ROUNDS * AT_ONCE];
    size_t count = 0;
    double found[2][2] = {{0}};
    for (unsigned round = 0; round <= rounds; round++) {
        for (int i = 0; i < processes; i++) {
            sample got;
            ask(sockets[i], at, rows[at].count, &got);
            memcpy(&allocate[i][count], got.allocate, rows[at].count * sizeof(double));
            memcpy(&release[i][count], got.release, rows[at].count * sizeof(double));
        }
        count += round == 0 ? 0 : rows[at].count; /* the first does not count */
    }
    for (int i = 0; i < processes; i++) {
        found[i][0] = median(allocate[i], count);
        found[i][1] = median(release[i], count);
    }
    printf("%11zu bytes: allocate %9.2f", rows[at].bytes, found[0][0]);
    if (processes == 2) {
        printf(" -> %9.2f (x %.2f)", found[1][0], found[1][0] / found[0][0]);
    }
    printf("   free %9.2f", found[0][1]);
    if (processes == 2) {
        printf(" -> %9.2f (x %.2f)", found[1][1], found[1][1] / found[0][1]);
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    int sockets[2] = {-1, -1};
    unsigned rounds = ROUNDS - 1;
    const char *hook = getenv("PRELOAD_BENCH_HOOK");
    if (argc > 1 && strcmp(argv[1], "--serve") == 0) {
        serve();
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            rounds = 1;
        } else {
            hook = argv[i];
        }
    }
    sockets[0] = start(argv[0], NULL);
    sockets[1] = hook != NULL ? start(argv[0], hook) : -1;
    printf("microseconds, medians%s\n", hook != NULL ? ", without the hook -> with it" : "");
    for (unsigned at = 0; at < ROW_COUNT; at++) {
        run_row(sockets, hook != NULL ? 2 : 1, at, rounds);
    }
    close(sockets[0]);
    close(sockets[1]);
    while (wait(NULL) > 0) {
    }
    return 0;
}
