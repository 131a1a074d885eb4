/* SPDX-License-Identifier: MIT */
/** @file This process: its forks, its number, its environment, and random bytes. */
#include "posix.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/utsname.h>
#include <unistd.h>

/** How many characters a UUID's text has. */
#define UUID_TEXT 36

/** Of a process on x86-64; other 64-bit machines mostly have as much or twice that. */
#define ADDRESSES (UINT64_C(1) << 47)

static atomic_uint fork_generation;

static pthread_once_t mappings_once = PTHREAD_ONCE_INIT;
static uint64_t most_mappings;

static pthread_once_t watch_once = PTHREAD_ONCE_INIT;
static int watch_code; /* what pthread_atfork answered, the one time */

/* Every static mutex is taken over the fork, the one of the descriptor register among them: so the
 * child finds what they guard whole, and the mutexes free. vfork(2) and posix_spawn(3) do not run
 * these handlers and need not: exec closes every descriptor of the library. */
static void fork_prepare(void) {
    posix_static_mutexes_lock();
}

static void fork_parent(void) {
    posix_static_mutexes_unlock();
}

/* man 3 pthread_atfork: only async-signal-safe work is allowed here in the child of a program with
 * threads. close() is; unlocking is what the handlers are made for; nothing allocates. */
static void fork_child(void) {
    atomic_fetch_add(&fork_generation, 1);
    posix_register_close_all();
    posix_static_mutexes_unlock();
}

uint32_t os_fork_generation(void) {
    return atomic_load(&fork_generation);
}

static void start_watch(void) {
    watch_code = pthread_atfork(fork_prepare, fork_parent, fork_child);
}

gpuipc_status os_fork_watch(void) {
    int code = pthread_once(&watch_once, start_watch);
    if (code == 0) {
        code = watch_code;
    }
    return code == 0 ? GPUIPC_OK
                     : posix_fail(code, "pthread_atfork", "forks cannot be watched for");
}

/* exit(3) leaves them running. Those of a parent process are of another fork generation. */
bool os_other_threads_have_ended(void) {
    return false;
}

/* atexit(3): a shared library's are called when it is unloaded as well. It fails only without memory, and then the
 * threads of the library run until the process is gone. */
void os_at_exit(void (*run)(void)) {
    (void)atexit(run);
}

static int hex_digit(char digit) {
    static const char digits[] = "0123456789abcdef";
    const char *found = digit != '\0' ? strchr(digits, digit) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

/** 8-4-4-4-12 digits, RFC 9562. */
static bool uuid_decode(const char text[UUID_TEXT], uint8_t id[16]) {
    size_t digits = 0;
    for (size_t i = 0; i < UUID_TEXT; i++) {
        bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
        int digit = is_dash ? 0 : hex_digit(text[i]);
        if (digit < 0 || is_dash != (text[i] == '-')) {
            return false;
        }
        if (!is_dash) {
            id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | digit);
            digits++;
        }
    }
    return true;
}

/* random(4): a random string made at boot, a UUID; /proc may be missing in a container. */
void os_boot_id(uint8_t id[16]) {
    char text[UUID_TEXT];
    uint8_t made[16] = {0};
    gpuipc_error why = status_save();
    posix_register_lock();
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    gpuipc_status status = posix_register_add(fd, "open");
    posix_register_unlock();
    if (status == GPUIPC_OK) {
        if (read(fd, text, sizeof(text)) != (ssize_t)sizeof(text) || !uuid_decode(text, made)) {
            memset(made, 0, sizeof(made));
        }
        posix_register_close(fd);
    }
    status_restore(&why);
    memcpy(id, made, sizeof(made));
}

/* Documentation/admin-guide/sysctl/vm.rst: the default is 65530. */
static uint64_t read_mappings(void) {
    unsigned long most = 65530;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (file != NULL) {
        if (fscanf(file, "%lu", &most) != 1) {
            most = 65530;
        }
        fclose(file);
    }
    return most;
}

static void find_mappings(void) {
    most_mappings = read_mappings();
}

/* @param code what getrlimit() answered, whose first parameter has another type in each C library */
static uint64_t limit_of(int code, const struct rlimit *limit) {
    return code != 0 || limit->rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit->rlim_cur;
}

/* mmap(2) gives no address above these bits unasked (Documentation/arch/x86/x86_64/5level-paging.rst). */
void os_limits_get(os_limits *out_limits) {
    struct rlimit handles;
    struct rlimit addresses;
    struct rlimit files;
    const uint64_t most_addresses = limit_of(getrlimit(RLIMIT_AS, &addresses), &addresses);
    (void)pthread_once(&mappings_once, find_mappings);
    *out_limits = (os_limits){.handles = limit_of(getrlimit(RLIMIT_NOFILE, &handles), &handles),
                              .mappings = most_mappings,
                              .addresses = most_addresses < ADDRESSES ? most_addresses : ADDRESSES,
                              .file_bytes = limit_of(getrlimit(RLIMIT_FSIZE, &files), &files)};
}

uint64_t os_process_id(void) {
    return (uint64_t)getpid();
}

const char *os_environment(const char *name) {
    return secure_getenv(name);
}

/* Both kinds of it say "microsoft" in their kernel's release, in their own spelling; /dev/dxg is the device
 * through which the GPU is reached (learn.microsoft.com, "CUDA on WSL"). */
bool os_is_wsl(void) {
    struct utsname system;
    return access("/dev/dxg", F_OK) == 0 ||
           (uname(&system) == 0 && strcasestr(system.release, "microsoft") != NULL);
}

gpuipc_status os_random(void *bytes, size_t size) {
    unsigned char *at = bytes;
    while (size > 0) {
        /* man 2 getrandom: up to 256 bytes come whole; longer requests may be cut by a signal. */
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno != EINTR) {
            return posix_fail(errno, "getrandom", "the system gives no random bytes");
        }
        if (got > 0) {
            at += got;
            size -= (size_t)got;
        }
    }
    return GPUIPC_OK;
}
