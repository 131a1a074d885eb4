/* SPDX-License-Identifier: MIT */
/**
 * @file process_helper: another process that uses gpuipc as it is told to, line by line. Each command
 * is answered by one line: the status of the call that decided it, and what is worth saying.
 */
#ifndef GPUIPC_TEST_HELPER_COMMANDS_H
#define GPUIPC_TEST_HELPER_COMMANDS_H

#include <gpuipc/gpuipc.h>
#include <stdbool.h>

#include "raw_peer.h"

#define HELPER_BUFFERS_MAX 12288

/** What the helper has. */
typedef struct helper_state {
    const char *directory;
    gpuipc_context *context;
    gpuipc_listener *listener;
    gpuipc_connection *connection;
    gpuipc_buffer *buffers[HELPER_BUFFERS_MAX];
    size_t buffer_count;
    bool admits_all; /**< its policy lets every user in; else only its own */
    raw_peer *raw;   /**< does not speak for gpuipc; NULL: none */
} helper_state;

/** A command. @p arguments is the rest of its line. It says its own answer. */
typedef struct helper_command {
    const char *name;
    void (*run)(helper_state *self, const char *arguments);
} helper_command;

/** Ended by an entry without a name. */
extern const helper_command helper_channel_commands[];  /**< helper_channel.c */
extern const helper_command helper_contents_commands[]; /**< helper_contents.c */
extern const helper_command helper_flood_commands[];    /**< helper_flood.c */
extern const helper_command helper_manifest_commands[]; /**< helper_manifest.c */
extern const helper_command helper_mark_commands[];     /**< helper_mark.c */
extern const helper_command helper_memory_commands[];   /**< helper_memory.c */
extern const helper_command helper_message_commands[];  /**< helper_message.c */
extern const helper_command helper_point_commands[];    /**< helper_point.c */
extern const helper_command helper_raw_commands[];      /**< helper_raw.c */
extern const helper_command helper_system_commands[];   /**< posix_helper_system.c and its twin */
extern const helper_command helper_ticket_commands[];   /**< helper_ticket.c */
extern const helper_command helper_turn_commands[];     /**< helper_turn.c */

/** Ends the connections of helper_flood.c. */
void helper_flood_end(void);

/** Ends the server of helper_ticket.c. */
void helper_ticket_end(void);

/** Ends what helper_channel.c has. */
void helper_channel_end(void);

/** Ends what helper_turn.c has; before helper_point_end(). */
void helper_turn_end(void);

/** The driver, with device 0 current; NULL: there is none. */
const struct driver *helper_point_driver(void);
/** Opens the gate of helper_point.c, and gives back what that took. */
void helper_point_end(void);

/** What an endpoint of the helper's is opened with. */
gpuipc_endpoint_config helper_endpoint(const helper_state *self);

/** A server with a thread of its own, which admits the same. */
gpuipc_status helper_serve(const helper_state *self, gpuipc_server **out_server);

/** Releases every buffer. */
gpuipc_status helper_release(helper_state *self);

#endif
