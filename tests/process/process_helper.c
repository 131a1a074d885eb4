/* SPDX-License-Identifier: MIT */
/** @file See helper_commands.h. Its arguments: the runtime directory, then flags: "shared", "admit", "contained", "contained-users", "contained-mapped"; or
 *  "another", which does nothing; or "become" and a program's words, or "become-user", a user's number, and the same. */
#include <stdio.h>
#include <string.h>

#include "helper.h"
#include "helper_commands.h"
#include "leak_gate.h"
#include "process_case.h"
#include "system.h"

static bool run_command(const helper_command *commands, helper_state *self, const char *line) {
    size_t length = strcspn(line, " ");
    for (const helper_command *by = commands; by->name != NULL; by++) {
        if (strlen(by->name) == length && strncmp(by->name, line, length) == 0) {
            by->run(self, line + length);
            return true;
        }
    }
    return false;
}

/* What the emulated driver still has when the context is gone; its counts tell nothing of a real one. */
static int end_gate(leak_gate *gate) {
    const char *choice = os_environment("GPUIPC_CUDA_DRIVER");
    if (choice == NULL || strcmp(choice, "emulated") != 0) {
        (void)leak_gate_end(gate);
        return 0;
    }
    if (leak_gate_await(gate, BACK_MS) == 0) {
        return 0;
    }
    (void)fprintf(stderr, "%s", gate->text);
    return 3;
}

int main(int count, char **arguments) {
    static helper_state self;
    static leak_gate gate;
    gpuipc_context_config config = {.struct_size = sizeof(config)};
    char line[256];
    helper_begin();
    if (count < 2) {
        return 2;
    }
    if (strcmp(arguments[1], "another") == 0) { /* a program that knows nothing of the former */
        helper_say("another");
        while (helper_hear(line, sizeof(line))) {
        }
        return 0;
    }
    /* A buffer of many segments needs as many handles on the emulated driver. */
    (void)system_raise_handle_limit();
    for (int i = 2; i < count; i++) {
        if (strcmp(arguments[i], "shared") == 0) {
            config.flags |= GPUIPC_CONTEXT_SHARED_DIRECTORY;
        } else if (strcmp(arguments[i], "admit") == 0) {
            self.admits_all = true;
        } else if (strncmp(arguments[i], "contained", strlen("contained")) == 0) {
            const char *why_not =
                system_contain(strcmp(arguments[i], "contained-users") == 0    ? SYSTEM_USERS_OWN
                               : strcmp(arguments[i], "contained-mapped") == 0 ? SYSTEM_USERS_MAPPED
                                                                               : SYSTEM_USERS_SAME);
            if (why_not != NULL) {
                helper_say("not possible: %s", why_not);
                return 0;
            }
        } else if (strcmp(arguments[i], "become") == 0) {
            system_become(arguments + i + 1);
            return 2;
        } else if (strcmp(arguments[i], "become-user") == 0 && i + 1 < count) {
            system_become_as(arguments[i + 1], arguments + i + 2);
            return 2;
        } else {
            return 2;
        }
    }
    leak_gate_begin(&gate);
    self.directory = arguments[1];
    config.runtime_directory = arguments[1];
    gpuipc_status status = gpuipc_context_create(&config, &self.context);
    helper_say_status(status);
    if (status != GPUIPC_OK) {
        return 1;
    }
    while (helper_hear(line, sizeof(line))) {
        if (!run_command(helper_memory_commands, &self, line) &&
            !run_command(helper_contents_commands, &self, line) &&
            !run_command(helper_flood_commands, &self, line) &&
            !run_command(helper_manifest_commands, &self, line) &&
            !run_command(helper_mark_commands, &self, line) &&
            !run_command(helper_message_commands, &self, line) &&
            !run_command(helper_point_commands, &self, line) &&
            !run_command(helper_raw_commands, &self, line) &&
            !run_command(helper_ticket_commands, &self, line) &&
            !run_command(helper_channel_commands, &self, line) &&
            !run_command(helper_turn_commands, &self, line) &&
            !run_command(helper_system_commands, &self, line)) {
            helper_say("there is no command \"%s\"", line);
        }
    }
    helper_flood_end();
    helper_turn_end();
    helper_point_end();
    helper_channel_end();
    helper_ticket_end();
    (void)helper_release(&self);
    (void)gpuipc_connection_close(self.connection);
    (void)gpuipc_listener_close(self.listener);
    status = gpuipc_context_destroy(self.context);
    if (status != GPUIPC_OK) {
        return 1;
    }
    return self.raw == NULL ? end_gate(&gate) : 0; /* a raw peer has handles of its own */
}
