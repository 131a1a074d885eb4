/* SPDX-License-Identifier: MIT */
/**
 * @file The honest process at the other end. Argument: its runtime directory. Shares a buffer there, says the ticket, and
 * then opens the ticket of each two lines that it hears, a directory and a text; it says "ok" or what came of it.
 */
#include "helper.h"
#include "named_calls.h"
#include "unique.h"

#define LINE_MAX_BYTES 512

static gpuipc_status make_context(const char *directory, gpuipc_context **out_context) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .driver = "emulated",
                                          .runtime_directory = directory,
                                          .flags = GPUIPC_CONTEXT_NO_KEEP_ALIVE};
    return gpuipc_context_create(&config, out_context);
}

static gpuipc_status visit(const char *directory, const char *text) {
    gpuipc_context *context = NULL;
    gpuipc_buffer *opened = NULL;
    gpuipc_ticket ticket;
    uint32_t word;
    gpuipc_status status = gpuipc_ticket_from_text(text, &ticket);
    if (status == GPUIPC_OK) {
        status = make_context(directory, &context);
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_open(context, &ticket, NULL, &opened);
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_read(opened, 0, &word, sizeof(word));
    }
    (void)gpuipc_buffer_release(opened);
    (void)gpuipc_context_destroy(context);
    return status;
}

static gpuipc_status share(const char *directory, gpuipc_context **out_context,
                           gpuipc_server **out_server, gpuipc_ticket *out_ticket) {
    const gpuipc_buffer_config config = {.struct_size = sizeof(config), .bytes = 65536};
    gpuipc_buffer *made = NULL;
    gpuipc_status status = make_context(directory, out_context);
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_create(*out_context, &config, &made);
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_server_create(*out_context, NULL, out_server);
    }
    if (status == GPUIPC_OK) {
        status = gpuipc_buffer_share(*out_server, made, NULL, out_ticket);
    }
    (void)gpuipc_buffer_release(made); /* the server keeps it */
    return status;
}

int main(int argc, char **argv) {
    gpuipc_context *context = NULL;
    gpuipc_server *server = NULL;
    gpuipc_ticket ticket;
    char text[GPUIPC_TICKET_TEXT_SIZE] = "";
    char directory[LINE_MAX_BYTES];
    char line[LINE_MAX_BYTES];
    helper_begin();
    gpuipc_status status =
        argc == 2 ? share(argv[1], &context, &server, &ticket) : GPUIPC_ERR_INVALID_ARGUMENT;
    if (status != GPUIPC_OK || gpuipc_ticket_to_text(&ticket, text) != GPUIPC_OK) {
        helper_say_status(status);
        return 1;
    }
    helper_say("%s", text);
    while (helper_hear(directory, sizeof(directory)) && helper_hear(line, sizeof(line))) {
        status = visit(directory, line);
        if (status == GPUIPC_OK) {
            helper_say("ok");
        } else {
            helper_say_status(status);
        }
    }
    (void)gpuipc_server_destroy(server);
    (void)gpuipc_context_destroy(context);
    return 0;
}
