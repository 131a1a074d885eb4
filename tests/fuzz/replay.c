/* SPDX-License-Identifier: MIT */
/** @file Gives a fuzz target the files that are named on the command line, on compilers without libFuzzer. */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

/* An empty file is an input like any other. */
static uint8_t *read_file(const char *name, size_t *out_size) {
    FILE *file = fopen(name, "rb");
    long size = -1;
    uint8_t *bytes = NULL;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 &&
        fseek(file, 0, SEEK_SET) == 0) {
        bytes = malloc((size_t)size);
    }
    if (file == NULL || size < 0 || (bytes == NULL && size > 0) ||
        fread(bytes, 1, (size_t)size, file) != (size_t)size) {
        perror(name);
        exit(2);
    }
    (void)fclose(file);
    *out_size = (size_t)size;
    return bytes;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE...\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        size_t size;
        uint8_t *bytes = read_file(argv[i], &size);
        (void)LLVMFuzzerTestOneInput(bytes, size);
        free(bytes);
    }
    printf("%d inputs replayed\n", argc - 1);
    return 0;
}
