/* SPDX-License-Identifier: MIT */
/** @file A server inside the program's own epoll loop, without a thread of the library's (Linux). */
#include <errno.h>
#include <gpuipc/gpuipc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

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

    const int loop = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event of_server = {.events = EPOLLIN, .data.fd = (int)handle};
    struct epoll_event of_input = {.events = EPOLLIN, .data.fd = STDIN_FILENO};
    /* EPERM: epoll takes no /dev/null and no plain file (epoll_ctl(2)); then nobody presses Enter, and a signal ends it. */
    int input_ended = 0;
    if (loop < 0 || epoll_ctl(loop, EPOLL_CTL_ADD, (int)handle, &of_server) != 0 ||
        (epoll_ctl(loop, EPOLL_CTL_ADD, STDIN_FILENO, &of_input) != 0 && errno != EPERM)) {
        perror("epoll");
        return 1;
    }
    while (!input_ended) {
        struct epoll_event event;
        if (epoll_wait(loop, &event, 1, -1) != 1) {
            continue; /* a signal */
        }
        if (event.data.fd == (int)handle) {
            serve(server);
        } else {
            input_ended = 1; /* Enter, or the end: this program's own work would be here */
        }
    }
    close(loop);
    must(gpuipc_buffer_read(buffer, 0, &word, sizeof word));
    printf("the consumer wrote %u\n", (unsigned)word);

    must(gpuipc_server_destroy(server));
    must(gpuipc_buffer_release(buffer));
    must(gpuipc_context_destroy(context));
    return 0;
}
