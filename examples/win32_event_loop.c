/* SPDX-License-Identifier: MIT */
/** @file A server inside the program's own WaitForMultipleObjects loop, without a thread of the library's (Windows). */
#include <gpuipc/gpuipc.h>
#include <stdio.h>
#include <stdlib.h>
#include <windows.h>

static void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        fprintf(stderr, "%s\n", gpuipc_error_text());
        exit(1);
    }
}

/* Answers all that has come: only then is the handle quiet again. */
static void serve(gpuipc_server *server) {
    gpuipc_status status;
    do {
        status = gpuipc_server_poll(server, 0);
    } while (status == GPUIPC_OK);
    if (status != GPUIPC_ERR_TIMEOUT) {
        must(status);
    }
}

/* Ends with the input: Enter, or its end. This program's own work would be here. */
static DWORD WINAPI read_input(LPVOID unused) {
    (void)unused;
    getchar();
    return 0;
}

int main(void) {
    gpuipc_context *context;
    gpuipc_buffer *buffer;
    gpuipc_server *server;
    gpuipc_ticket ticket;
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    gpuipc_server_config own_loop = GPUIPC_SERVER_CONFIG_INIT; /* no flag, so no thread */
    char text[GPUIPC_TICKET_TEXT_SIZE];
    intptr_t handle;
    uint32_t word = 1337;

    config.bytes = 1 << 20;
    must(gpuipc_context_create(NULL, &context));
    must(gpuipc_buffer_create(context, &config, &buffer));
    must(gpuipc_buffer_write(buffer, 0, &word, sizeof word));
    must(gpuipc_server_create(context, &own_loop, &server));
    must(gpuipc_buffer_share(server, buffer, NULL, &ticket));
    must(gpuipc_ticket_to_text(&ticket, text));
    must(gpuipc_server_get_wait_handle(server, &handle));
    printf("%s\n", text);
    fflush(stdout);

    /* Its input is a pipe or a console, on which nothing can be waited for well: a thread that reads it is. */
    HANDLE waits[2] = {(HANDLE)handle, CreateThread(NULL, 0, read_input, NULL, 0, NULL)};
    if (waits[1] == NULL) {
        return 1;
    }
    while (WaitForMultipleObjects(2, waits, FALSE, INFINITE) == WAIT_OBJECT_0) {
        serve(server);
    }
    CloseHandle(waits[1]);
    must(gpuipc_buffer_read(buffer, 0, &word, sizeof word));
    printf("the consumer wrote %u\n", (unsigned)word);

    must(gpuipc_server_destroy(server));
    must(gpuipc_buffer_release(buffer));
    must(gpuipc_context_destroy(context));
    return 0;
}
