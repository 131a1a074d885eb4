/* SPDX-License-Identifier: MIT */
/** @file What the files of scenarios share. */
#ifndef GPUIPC_TEST_SCENARIO_PARTS_H
#define GPUIPC_TEST_SCENARIO_PARTS_H

#include "scenario.h"

/* Every piece answers OK or ends the function by the label: none goes on after a failure. */
#define TRY(call)                                                                                  \
    if ((status = (call)) != GPUIPC_OK) {                                                          \
        goto give_back;                                                                            \
    }

gpuipc_status scenario_make_context(scenario_state *state, gpuipc_context **out_context);
gpuipc_status scenario_make_buffer(scenario_state *state, gpuipc_buffer **out_buffer);
gpuipc_status scenario_prepare_context(scenario_state *state);
gpuipc_status scenario_prepare_buffer(scenario_state *state);
/** Two buffers, and a stream of the program's own. */
gpuipc_status scenario_prepare_data(scenario_state *state);

gpuipc_status scenario_send(gpuipc_connection *to, gpuipc_buffer *buffer, gpuipc_stream stream);
gpuipc_status scenario_receive(gpuipc_connection *from, uint32_t flags, gpuipc_buffer **out_buffer);

#endif
