/* SPDX-License-Identifier: MIT */
/** @file Makes the mistake that is asked for. The reports of the address sanitizer come from a child
 *  process, and the program answers success all the same, as Criterion does for a leaking worker. */
#include <limits.h>
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

static int make_mistake(const char *name) {
    if (strcmp(name, "leak") == 0) {
        return leak();
    }
    if (strcmp(name, "overflow") == 0) {
        return overflow();
    }
    if (strcmp(name, "undefined") == 0) {
        return undefined();
    }
    return 2;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: planted none|leak|overflow|undefined\n");
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
