/* SPDX-License-Identifier: MIT */
/**
 * @file A program that never calls a driver: the library before it does nothing. usage: preload_idle. It is linked with
 * two libraries that have the same function; the first one finds the second's by RTLD_NEXT.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/** Of the two libraries: the number of the one that is called, and that which it finds behind it. */
int idle_number(void);
int idle_next(void);

static unsigned count_threads(void) {
    unsigned count = 0;
    DIR *entries = opendir("/proc/self/task");
    CHECK(entries != NULL);
    while (readdir(entries) != NULL) {
        count++;
    }
    closedir(entries);
    return count - 2; /* . and .. */
}

/* Descriptors that this process opened itself: what it inherited is not closed on exec. */
static unsigned count_own_descriptors(void) {
    unsigned count = 0;
    for (int number = 0; number < 1024; number++) {
        const int flags = fcntl(number, F_GETFD);
        count += flags >= 0 && (flags & FD_CLOEXEC) != 0;
    }
    return count;
}

static bool has_mapped(const char *words) {
    char line[4096];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        found = found || strstr(line, words) != NULL;
    }
    fclose(maps);
    return found;
}

int main(void) {
    void *program = dlopen(NULL, RTLD_NOW);
    CHECK(program != NULL);
    CHECK(has_mapped("gpuipc-preload")); /* else this shows nothing */

    /* Who asks for the next one gets his own next one. */
    CHECK(idle_number() == 1);
    CHECK(idle_next() == 2);
    CHECK(dlsym(program, "idle_number") == dlsym(RTLD_DEFAULT, "idle_number"));
    CHECK(dlsym(RTLD_NEXT, "idle_number") == dlsym(RTLD_DEFAULT, "idle_number"));

    /* A driver that is not there has no functions. */
    CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL);
    CHECK(dlerror() != NULL && dlerror() == NULL);
    CHECK(dlsym(program, "cuGetProcAddress_v2") == NULL);
    CHECK(dlsym(RTLD_DEFAULT, "cuThereIsNoSuchFunction") == NULL);
    CHECK(strstr(dlerror(), "cuThereIsNoSuchFunction") != NULL);
    CHECK(dlsym(RTLD_DEFAULT, "malloc") != NULL && dlerror() == NULL);

    CHECK(!has_mapped("libcuda"));
    CHECK(count_threads() == 1);
    CHECK(count_own_descriptors() == 0);
    dlclose(program);
    return 0;
}
