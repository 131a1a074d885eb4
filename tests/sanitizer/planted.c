/* SPDX-License-Identifier: MIT */
/** @file Makes the mistake that is asked for. All reports but that of undefined behaviour come from a child
 *  process, and the program answers success all the same, as Criterion does for a leaking worker. */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Volatile, so that no compiler removes what is wrong. */
static void *volatile lost;
static volatile int one = 1;

/* Several, since a register or the stack may still hold the address of the last one. */
static int leak(void) {
    for (int i = 0; i < 8; i++) {
        lost = malloc(1337);
        if (lost == NULL) {
            return 2;
        }
        memset(lost, 1, 1337);
    }
    lost = NULL;
    return 0;
}

static int overflow(void) {
    char *bytes = malloc(8);
    if (bytes == NULL) {
        return 2;
    }
    lost = bytes;
    ((volatile char *)lost)[8 * one] = 1;
    free(bytes);
    return 0;
}

static int undefined(void) {
    int biggest = INT_MAX;
    one += biggest;
    return 0;
}

static int unwritten(void) {
    char *bytes = malloc(8);
    if (bytes == NULL) {
        return 2;
    }
    lost = bytes;
    if (((volatile char *)lost)[one] == 'x') {
        puts("by chance");
    }
    free(bytes);
    return 0;
}

/* Of what another process gets, one byte is not written. */
static int sent(void) {
    char *bytes = malloc(8);
    int ends[2];
    if (bytes == NULL || pipe(ends) != 0) {
        return 2;
    }
    memset(bytes, 1, 7);
    const ssize_t count = write(ends[1], bytes, 8);
    free(bytes);
    return count == 8 ? 0 : 2;
}

static void *count_up(void *argument) {
    one++;
    return argument;
}

static int race(void) {
    pthread_t other;
    if (pthread_create(&other, NULL, count_up, NULL) != 0) {
        return 2;
    }
    one++;
    return pthread_join(other, NULL) == 0 ? 0 : 2;
}

static int make_mistake(const char *name) {
    static const struct {
        const char *name;
        int (*make)(void);
    } mistakes[] = {{"leak", leak},           {"overflow", overflow}, {"undefined", undefined},
                    {"unwritten", unwritten}, {"sent", sent},         {"race", race}};
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        if (strcmp(name, mistakes[i].name) == 0) {
            return mistakes[i].make();
        }
    }
    return 2;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: planted none|leak|overflow|undefined|unwritten|sent|race\n");
        return 2;
    }
    if (strcmp(argv[1], "undefined") == 0) {
        return make_mistake(argv[1]);
    }
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        return 2;
    }
    if (child == 0) {
        return make_mistake(argv[1]);
    }
    if (waitpid(child, NULL, 0) != child) {
        perror("waitpid");
        return 2;
    }
    return 0;
}
