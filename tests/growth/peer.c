/* SPDX-License-Identifier: MIT */
/** @file See growth.h: the other processes of a world. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "growth.h"
#include "handle_limit.h"
#include "helper.h"

child_process *growth_peer_start(const char *const *arguments) {
    child_process *made = NULL;
    MUST(child_start(GROWTH_PROGRAM, arguments, NULL, &made));
    return made;
}

void growth_peer_end(child_process *peer) {
    child_end end = {.exited = false};
    child_close_input(peer);
    MUST(child_wait(peer, GROWTH_SOON_MS, &end));
    child_destroy(peer);
    if (!end.exited || end.code != 0) {
        growth_fail("another process ended with %d", end.code);
    }
}

/* Another byte each time, so that the server is asked. */
static gpuipc_buffer *open_byte(gpuipc_context *within, const gpuipc_ticket *of) {
    static uint64_t turn;
    const gpuipc_open_config config = {.struct_size = sizeof(config), .timeout_ms = GROWTH_SOON_MS};
    gpuipc_buffer *opened = NULL;
    gpuipc_ticket part;
    MUST(gpuipc_ticket_narrow(of, turn++ % GROWTH_BYTES, 1, &part));
    MUST(gpuipc_buffer_open(within, &part, &config, &opened));
    return opened;
}

int growth_run_peer(char **arguments) {
    const gpuipc_server_config config = {.struct_size = sizeof(config),
                                         .flags = GPUIPC_SERVER_THREAD};
    char line[CHILD_LINE_MAX];
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_server *server = NULL;
    gpuipc_ticket own;
    gpuipc_ticket theirs;
    helper_begin();
    memcpy(world.directory, arguments[0], strlen(arguments[0]) + 1);
    MUST(gpuipc_ticket_from_text(arguments[1], &theirs));
    gpuipc_context *within = growth_context(0);
    gpuipc_buffer *buffer = growth_buffer(within);
    MUST(gpuipc_server_create(within, &config, &server));
    MUST(gpuipc_buffer_share(server, buffer, NULL, &own));
    MUST(gpuipc_ticket_to_text(&own, text));
    helper_say("%s", text);
    while (helper_hear(line, sizeof(line))) {
        MUST(gpuipc_buffer_release(open_byte(within, &theirs)));
        helper_say("asked");
    }
    MUST(gpuipc_server_destroy(server));
    MUST(gpuipc_buffer_release(buffer));
    MUST(gpuipc_context_destroy(within));
    return 0;
}

int growth_run_clients(char **arguments) {
    char line[CHILD_LINE_MAX];
    gpuipc_ticket theirs;
    const size_t count = strtoull(arguments[2], NULL, 10);
    growth_item *const made = calloc(count, sizeof(*made));
    helper_begin();
    (void)handle_limit_raise(UINT64_C(65536));
    memcpy(world.directory, arguments[0], strlen(arguments[0]) + 1);
    MUST(gpuipc_ticket_from_text(arguments[1], &theirs));
    if (made == NULL) {
        growth_fail("there is no memory for %zu clients", count);
    }
    for (size_t i = 0; i < count; i++) {
        made[i].context = growth_context(0);
        made[i].buffer = open_byte(made[i].context, &theirs);
    }
    helper_say("joined");
    (void)helper_hear(line, sizeof(line));
    for (size_t i = 0; i < count; i++) {
        MUST(gpuipc_buffer_release(made[i].buffer));
        MUST(gpuipc_context_destroy(made[i].context));
    }
    free(made);
    return 0;
}
