/* SPDX-License-Identifier: MIT */
/**
 * @file Two ordinary programs that share memory by legacy IPC: usage: preload_ipc WAY CASE. The other one is this
 * program again, with the case "child" and one end of a socket pair. It does what it is told, one order at a time.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"

#define MIB ((size_t)1 << 20)

/** What the child does. */
typedef enum action {
    ACTION_MAKE,   /**< allocates bytes and fills them by seed; answers the handle */
    ACTION_FREE,   /**< frees what it made last */
    ACTION_OPEN,   /**< opens the handle */
    ACTION_VERIFY, /**< compares what it opened last with seed */
    ACTION_FILL,   /**< and fills it */
    ACTION_CLOSE,  /**< and closes it */
    ACTION_RESET,  /**< resets its device */
    ACTION_EXIT
} action;

typedef struct order {
    action what;
    size_t bytes;
    unsigned seed;
    CUipcMemHandle handle;
} order;

typedef struct answer {
    int result; /**< CUresult; -1: not what it should be */
    CUipcMemHandle handle;
} answer;

static const char *program;
static const char *way;
static int device_count;

static CUcontext use_device(int device) {
    CUcontext context;
    MUST(cuda.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuda.cuCtxSetCurrent(context));
    return context;
}

static void fill(CUdeviceptr address, size_t bytes, unsigned seed) {
    unsigned char *data = malloc(bytes);
    CHECK(data != NULL);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)(i * 31 + seed);
    }
    MUST(cuda.cuMemcpyHtoD(address, data, bytes));
    MUST(cuda.cuCtxSynchronize()); /* cuda.h: of pageable memory it may go on after the call */
    free(data);
}

static bool has(CUdeviceptr address, size_t bytes, unsigned seed) {
    bool same = true;
    unsigned char *data = malloc(bytes);
    CHECK(data != NULL);
    MUST(cuda.cuMemcpyDtoH(data, address, bytes));
    for (size_t i = 0; i < bytes; i++) {
        same = same && data[i] == (unsigned char)(i * 31 + seed);
    }
    free(data);
    return same;
}

static CUresult open_handle(CUdeviceptr *out, const CUipcMemHandle *handle) {
    return cuda.cuIpcOpenMemHandle(out, *handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

/* ---- the child --------------------------------------------------------------------------------- */

/* What was opened begins where the memory does, has its size, and is of this process's device. */
static bool is_described(CUdeviceptr opened, size_t bytes, int device) {
    CUdeviceptr base = 0;
    size_t size = 0;
    int ordinal = -1;
    MUST(cuda.cuMemGetAddressRange(&base, &size, opened + bytes / 2));
    MUST(cuda.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, opened));
    return base == opened && size == bytes && ordinal == device;
}

static int obey(const order *told, answer *out, int device) {
    static CUdeviceptr made;
    static CUdeviceptr opened;
    switch (told->what) {
    case ACTION_MAKE:
        MUST(cuda.cuMemAlloc(&made, told->bytes));
        fill(made, told->bytes, told->seed);
        return (int)cuda.cuIpcGetMemHandle(&out->handle, made);
    case ACTION_FREE:
        return (int)cuda.cuMemFree(made);
    case ACTION_OPEN: {
        const int result = (int)open_handle(&opened, &told->handle);
        return result == 0 && !is_described(opened, told->bytes, device) ? -1 : result;
    }
    case ACTION_VERIFY:
        return has(opened, told->bytes, told->seed) ? 0 : -1;
    case ACTION_FILL:
        fill(opened, told->bytes, told->seed);
        return 0;
    case ACTION_CLOSE:
        return (int)cuda.cuIpcCloseMemHandle(opened);
    case ACTION_RESET:
        MUST(cuda.cuDevicePrimaryCtxReset(device));
        use_device(device);
        return 0;
    default:
        exit(0);
    }
}

static void case_child(int device) {
    order told;
    const answer ready = {0};
    use_device(device);
    CHECK(write(STDIN_FILENO, &ready, sizeof(ready)) == (ssize_t)sizeof(ready));
    while (read(STDIN_FILENO, &told, sizeof(told)) == (ssize_t)sizeof(told)) {
        answer made = {0};
        made.result = obey(&told, &made, device);
        CHECK(write(STDIN_FILENO, &made, sizeof(made)) == (ssize_t)sizeof(made));
    }
}

/* ---- the parent -------------------------------------------------------------------------------- */

typedef struct child {
    pid_t process;
    int socket;
} child;

typedef enum surroundings {
    WITH_HOOK,
    WITHOUT_HOOK,
    OTHER_CONTAINER
} surroundings;

/* What separates two containers as far as legacy IPC goes: numbers of processes, and System V's IPC. A namespace of
 * processes is for those that are started next. Answers 77 where this user may not have one. */
static void enter_container(void) {
    if (unshare(CLONE_NEWPID | CLONE_NEWIPC) != 0) {
        _exit(77);
    }
    const pid_t inside = fork();
    if (inside != 0) {
        int status = 0;
        const bool ended = inside > 0 && waitpid(inside, &status, 0) == inside;
        _exit(ended && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Before CUDA is started here. */
static child start(int device, surroundings where) {
    int ends[2];
    char number[16];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    snprintf(number, sizeof(number), "child%d", device);
    const child self = {fork(), ends[0]};
    CHECK(self.process >= 0);
    if (self.process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (where == WITHOUT_HOOK) {
            unsetenv("LD_PRELOAD");
        } else if (where == OTHER_CONTAINER) {
            enter_container();
        }
        dup2(ends[1], STDIN_FILENO);
        execl(program, program, way, number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    return self;
}

/* Until its driver is started: from then on it answers. False: it ended before. */
static bool await(const child *other) {
    answer ready;
    return read(other->socket, &ready, sizeof(ready)) == (ssize_t)sizeof(ready);
}

static int tell(const child *to, order what, answer *out_answer) {
    answer got;
    CHECK(write(to->socket, &what, sizeof(what)) == (ssize_t)sizeof(what));
    CHECK(read(to->socket, &got, sizeof(got)) == (ssize_t)sizeof(got));
    if (out_answer != NULL) {
        *out_answer = got;
    }
    return got.result;
}

static int tell_of(const child *to, action what, const CUipcMemHandle *handle, size_t bytes,
                   unsigned seed) {
    return tell(to, (order){what, bytes, seed, *handle}, NULL);
}

static void end(const child *self) {
    int status;
    shutdown(self->socket, SHUT_RDWR);
    close(self->socket);
    CHECK(waitpid(self->process, &status, 0) == self->process);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void kill_child(const child *self) {
    int status;
    CHECK(kill(self->process, SIGKILL) == 0);
    CHECK(waitpid(self->process, &status, 0) == self->process);
    close(self->socket);
}

/* A handle of any address in the memory, opened twice and closed twice, written on both sides; then anew. */
static void exchange_with(const child *other) {
    static const size_t sizes[] = {1, 700, MIB, 2 * MIB, 5 * MIB + 3};
    use_device(0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CUdeviceptr address;
        CUdeviceptr own;
        CUipcMemHandle handle;
        CUipcMemHandle again;
        const size_t bytes = sizes[i];
        MUST(cuda.cuMemAlloc(&address, bytes));
        fill(address, bytes, 1);
        MUST(cuda.cuIpcGetMemHandle(&handle, address + bytes / 2));
        MUST(cuda.cuIpcGetMemHandle(&again, address));
        CHECK(memcmp(&handle, &again, sizeof(handle)) == 0);
        EXPECT(CUDA_ERROR_INVALID_CONTEXT, open_handle(&own, &handle));
        for (unsigned round = 0; round < 2; round++) {
            EXPECT(0, tell_of(other, ACTION_OPEN, &handle, bytes, 0));
            EXPECT(0, tell_of(other, ACTION_OPEN, &handle, bytes, 0));
            EXPECT(0, tell_of(other, ACTION_VERIFY, &handle, bytes, 1 + round));
            EXPECT(0, tell_of(other, ACTION_CLOSE, &handle, bytes, 0));
            EXPECT(0, tell_of(other, ACTION_FILL, &handle, bytes, 2 + round));
            CHECK(has(address, bytes, 2 + round));
            EXPECT(0, tell_of(other, ACTION_CLOSE, &handle, bytes, 0));
            EXPECT(CUDA_ERROR_INVALID_VALUE, tell_of(other, ACTION_CLOSE, &handle, bytes, 0));
        }
        MUST(cuda.cuMemFree(address));
        EXPECT(CUDA_ERROR_INVALID_VALUE, tell_of(other, ACTION_OPEN, &handle, bytes, 0));
    }
}

static void case_exchange(void) {
    const child other = start(0, WITH_HOOK);
    CHECK(await(&other));
    calls_find(way);
    exchange_with(&other);
    end(&other);
}

static void case_container(void) {
    int status;
    const child other = start(0, OTHER_CONTAINER);
    if (!await(&other)) {
        CHECK(waitpid(other.process, &status, 0) == other.process);
        printf("skipped: no namespace of processes is to be had, or no driver starts in one\n");
        exit(77);
    }
    calls_find(way);
    exchange_with(&other);
    end(&other);
}

static void case_peer(void) {
    int can = 0;
    const child other = start(1, WITH_HOOK);
    CHECK(await(&other));
    calls_find(way);
    MUST(cuda.cuDeviceGetCount(&device_count));
    if (device_count > 1) {
        MUST(cuda.cuDeviceCanAccessPeer(&can, 1, 0));
    }
    if (!can) {
        printf("skipped: there are no two devices that reach each other\n");
        kill_child(&other);
        exit(77);
    }
    exchange_with(&other);
    end(&other);
}

/* What is open stays readable when its maker frees it, resets its device or dies. */
static void case_freed(void) {
    const child other = start(0, WITH_HOOK);
    CUdeviceptr opened;
    answer made;
    const size_t bytes = 3 * MIB;
    CHECK(await(&other));
    calls_find(way);
    use_device(0);
    EXPECT(0, tell(&other, (order){.what = ACTION_MAKE, .bytes = bytes, .seed = 4}, &made));
    MUST(open_handle(&opened, &made.handle));
    EXPECT(0, tell(&other, (order){.what = ACTION_FREE}, NULL));
    CHECK(has(opened, bytes, 4));
    fill(opened, bytes, 5);
    CHECK(has(opened, bytes, 5));
    MUST(cuda.cuIpcCloseMemHandle(opened));
    EXPECT(CUDA_ERROR_INVALID_VALUE, open_handle(&opened, &made.handle));
    end(&other);
}

static void case_reset(void) {
    const child other = start(0, WITH_HOOK);
    CUdeviceptr opened;
    answer made;
    const size_t bytes = 3 * MIB;
    CHECK(await(&other));
    calls_find(way);
    use_device(0);
    for (unsigned round = 0; round < 2; round++) {
        EXPECT(0, tell(&other, (order){.what = ACTION_MAKE, .bytes = bytes, .seed = round}, &made));
        MUST(open_handle(&opened, &made.handle));
        EXPECT(0, tell(&other, (order){.what = ACTION_RESET}, NULL));
        CHECK(has(opened, bytes, round));
        EXPECT(CUDA_ERROR_INVALID_VALUE, tell(&other, (order){.what = ACTION_FREE}, NULL));
        MUST(cuda.cuIpcCloseMemHandle(opened));
        EXPECT(CUDA_ERROR_INVALID_HANDLE, open_handle(&opened, &made.handle));
    }
    /* And here, with memory of another open. */
    EXPECT(0, tell(&other, (order){.what = ACTION_MAKE, .bytes = bytes, .seed = 8}, &made));
    MUST(open_handle(&opened, &made.handle));
    MUST(cuda.cuDevicePrimaryCtxReset(0));
    use_device(0);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuIpcCloseMemHandle(opened));
    MUST(open_handle(&opened, &made.handle));
    CHECK(has(opened, bytes, 8));
    MUST(cuda.cuIpcCloseMemHandle(opened));
    end(&other);
}

static void case_dies(void) {
    const child other = start(0, WITH_HOOK);
    CUdeviceptr opened;
    CUdeviceptr never;
    answer first;
    answer second;
    CHECK(await(&other));
    calls_find(way);
    use_device(0);
    EXPECT(0, tell(&other, (order){.what = ACTION_MAKE, .bytes = 100, .seed = 6}, &first));
    EXPECT(0, tell(&other, (order){.what = ACTION_MAKE, .bytes = 4 * MIB, .seed = 7}, &second));
    MUST(open_handle(&opened, &first.handle));
    kill_child(&other);
    CHECK(has(opened, 100, 6));
    MUST(cuda.cuIpcCloseMemHandle(opened));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, open_handle(&never, &second.handle));
}

/* A handle that was made without the hook is the driver's. */
static void case_foreign(void) {
    const child other = start(0, WITHOUT_HOOK);
    CUdeviceptr opened;
    answer made;
    CHECK(await(&other));
    calls_find(way);
    use_device(0);
    EXPECT(0, tell(&other, (order){.what = ACTION_MAKE, .bytes = 3 * MIB, .seed = 9}, &made));
    MUST(open_handle(&opened, &made.handle));
    CHECK(has(opened, 3 * MIB, 9));
    MUST(cuda.cuIpcCloseMemHandle(opened));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuIpcCloseMemHandle(opened));
    end(&other);
}

/* As many as a program with a pool of small tensors makes, opened and closed in another order. */
static void case_many(void) {
    enum {
        COUNT = 100
    };
    static answer made[COUNT];
    static CUdeviceptr opened[COUNT];
    const child other = start(0, WITH_HOOK);
    CHECK(await(&other));
    calls_find(way);
    use_device(0);
    for (unsigned i = 0; i < COUNT; i++) {
        EXPECT(0,
               tell(&other, (order){.what = ACTION_MAKE, .bytes = 1000 + i, .seed = i}, &made[i]));
        MUST(open_handle(&opened[i], &made[i].handle));
    }
    for (unsigned i = 0; i < COUNT; i++) {
        const unsigned at = i * 7 % COUNT;
        CHECK(has(opened[at], 1000 + at, at));
        MUST(cuda.cuIpcCloseMemHandle(opened[at]));
    }
    end(&other);
}

/* ---- a maker that does not answer ---------------------------------------------------------------- */

typedef struct slow_opening {
    CUcontext context;
    CUipcMemHandle handle;
    CUdeviceptr opened;
    _Atomic(pid_t) number; /* of the thread */
    CUresult result;
} slow_opening;

static void *open_slowly(void *argument) {
    slow_opening *self = argument;
    MUST(cuda.cuCtxSetCurrent(self->context));
    atomic_store(&self->number, (pid_t)syscall(SYS_gettid));
    self->result = open_handle(&self->opened, &self->handle);
    return NULL;
}

/* Until the thread sleeps: then it waits for the answer. */
static void await_sleep(const slow_opening *self) {
    char path[64];
    char text[256] = "";
    const char *state = NULL;
    while (atomic_load(&self->number) == 0) {
        sched_yield();
    }
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)atomic_load(&self->number));
    while (state == NULL || strncmp(state, ") S", 3) != 0) {
        FILE *file = fopen(path, "re");
        CHECK(file != NULL);
        const size_t length = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
        text[length] = '\0';
        state = strrchr(text, ')');
        CHECK(state != NULL);
    }
}

/* What other threads share, open, close and free, they do meanwhile: only then the maker goes on, and is in time. */
static void case_stopped(void) {
    const child stopped = start(0, WITH_HOOK);
    const child other = start(0, WITH_HOOK);
    pthread_t thread;
    slow_opening slow = {.result = CUDA_ERROR_UNKNOWN};
    CUdeviceptr address;
    CUdeviceptr opened;
    CUipcMemHandle handle;
    answer made;
    int state;
    CHECK(await(&stopped) && await(&other));
    calls_find(way);
    slow.context = use_device(0);
    EXPECT(0, tell(&stopped, (order){.what = ACTION_MAKE, .bytes = MIB, .seed = 3}, &made));
    slow.handle = made.handle;
    EXPECT(0, tell(&other, (order){.what = ACTION_MAKE, .bytes = 100, .seed = 4}, &made));
    CHECK(kill(stopped.process, SIGSTOP) == 0);
    CHECK(waitpid(stopped.process, &state, WUNTRACED) == stopped.process &&
          WIFSTOPPED(state)); /* all its threads */
    CHECK(pthread_create(&thread, NULL, open_slowly, &slow) == 0);
    await_sleep(&slow);
    MUST(cuda.cuMemAlloc(&address, 1000));
    MUST(cuda.cuIpcGetMemHandle(&handle, address));
    MUST(open_handle(&opened, &made.handle));
    CHECK(has(opened, 100, 4));
    MUST(cuda.cuIpcCloseMemHandle(opened));
    MUST(cuda.cuMemFree(address));
    CHECK(kill(stopped.process, SIGCONT) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    MUST(slow.result);
    CHECK(has(slow.opened, MIB, 3));
    MUST(cuda.cuIpcCloseMemHandle(slow.opened));
    end(&stopped);
    end(&other);
}

/* ---- many threads -------------------------------------------------------------------------------- */

static CUcontext shared_context;
static CUipcMemHandle shared_handle;

static void *open_often(void *argument) {
    (void)argument;
    MUST(cuda.cuCtxSetCurrent(shared_context));
    for (int i = 0; i < 100; i++) {
        CUdeviceptr opened;
        MUST(open_handle(&opened, &shared_handle));
        CHECK(has(opened, 5000, 9));
        MUST(cuda.cuIpcCloseMemHandle(opened));
    }
    return NULL;
}

/* Opened by several at once, it has one address, and as many closings as openings. */
static void case_same(void) {
    enum {
        THREADS = 4
    };
    const child other = start(0, WITH_HOOK);
    pthread_t threads[THREADS];
    answer made;
    CHECK(await(&other));
    calls_find(way);
    shared_context = use_device(0);
    EXPECT(0, tell(&other, (order){.what = ACTION_MAKE, .bytes = 5000, .seed = 9}, &made));
    shared_handle = made.handle;
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, open_often, NULL) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    end(&other);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"exchange", case_exchange}, {"peer", case_peer},
                 {"freed", case_freed},       {"reset", case_reset},
                 {"dies", case_dies},         {"foreign", case_foreign},
                 {"many", case_many},         {"container", case_container},
                 {"stopped", case_stopped},   {"same", case_same}};
    if (argc != 3) {
        fprintf(stderr, "usage: %s WAY CASE\n", argv[0]);
        return 2;
    }
    program = argv[0];
    way = argv[1];
    if (strncmp(argv[2], "child", 5) == 0) {
        calls_find(way);
        case_child((int)strtol(argv[2] + 5, NULL, 10));
        calls_end();
        return 0;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(cases[i].name, argv[2]) == 0) {
            cases[i].run();
            calls_end();
            return 0;
        }
    }
    fprintf(stderr, "no such case: %s\n", argv[2]);
    return 2;
}
