/* SPDX-License-Identifier: MIT */
/** @file A courier of the program's own (Linux): it starts itself once more, with the handles of a buffer as inherited
 *  descriptors, and the rest on the command line. No server, no connection, no name. */
#include <errno.h>
#include <fcntl.h>
#include <gpuipc/gpuipc_native.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
        exit(1);
    }
}

/* What must travel beside the descriptor: the GPU, the size of the allocation, and which part of it is meant. */
static void write_text(const gpuipc_native_segment *segment, const gpuipc_native_layout *layout,
                       char *text, size_t capacity) {
    int length =
        snprintf(text, capacity, "%d %" PRIu64 " %" PRIu64 " %" PRIu64 " ",
                 (int)segment->handle.value, segment->bytes, layout->offset, layout->bytes);
    for (int i = 0; i < 16; i++) {
        length += snprintf(text + length, capacity - (size_t)length, "%02x",
                           layout->device_uuid.bytes[i]);
    }
}

static int read_text(const char *text, gpuipc_native_segment *segment,
                     gpuipc_native_layout *layout) {
    int descriptor;
    int length = 0;
    if (sscanf(text, "%d %" SCNu64 " %" SCNu64 " %" SCNu64 " %n", &descriptor, &segment->bytes,
               &layout->offset, &layout->bytes, &length) != 4 ||
        strlen(text + length) != 32) {
        return 0;
    }
    segment->handle.value = descriptor;
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (sscanf(text + length + 2 * i, "%2x", &byte) != 1) {
            return 0;
        }
        layout->device_uuid.bytes[i] = (uint8_t)byte;
    }
    return 1;
}

static int take(const char *text) {
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_native_segment segment;
    gpuipc_native_layout layout = GPUIPC_NATIVE_LAYOUT_INIT;
    uint32_t word;
    if (!read_text(text, &segment, &layout)) {
        fprintf(stderr, "this is no text of a buffer: %s\n", text);
        return 2;
    }
    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_native_import(context, &segment, 1, &layout, GPUIPC_DEVICE_OWNER,
                              GPUIPC_ACCESS_DEFAULT, &buffer));
    close((int)segment.handle.value); /* the buffer does not need it any more */
    must(gpuipc_buffer_read(buffer, 0, &word, sizeof word));
    printf("the giver wrote %u\n", (unsigned)word);
    fflush(stdout);
    word = 42;
    must(gpuipc_buffer_write(buffer, 0, &word, sizeof word));
    must(gpuipc_buffer_release(buffer));
    must(gpuipc_context_destroy(context));
    return 0;
}

static int give(char *program) {
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    gpuipc_native_layout layout = GPUIPC_NATIVE_LAYOUT_INIT;
    gpuipc_native_segment segment;
    size_t count;
    uint32_t word = 1337;
    char text[160];
    pid_t taker;
    int status;

    config.bytes = 1 << 20; /* one segment: larger buffers may have several, each with a handle */
    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &config, &buffer));
    must(gpuipc_buffer_write(buffer, 0, &word, sizeof word));
    must(gpuipc_native_export(buffer, &segment, 1, &layout, &count));

    write_text(&segment, &layout, text, sizeof text);
    char *arguments[] = {program, text, NULL};
    /* Descriptors of the library are closed on exec: this one is meant to pass. */
    if (fcntl((int)segment.handle.value, F_SETFD, 0) != 0 ||
        (errno = posix_spawn(&taker, "/proc/self/exe", NULL, NULL, arguments, environ)) != 0) {
        perror("posix_spawn");
        return 1;
    }
    close((int)segment.handle.value);
    if (waitpid(taker, &status, 0) != taker || status != 0) {
        return 1;
    }
    must(gpuipc_buffer_read(buffer, 0, &word, sizeof word));
    printf("the taker wrote %u\n", (unsigned)word);
    must(gpuipc_buffer_release(buffer));
    must(gpuipc_context_destroy(context));
    return 0;
}

int main(int count, char **words) {
    return count == 2 ? take(words[1]) : give(words[0]);
}
