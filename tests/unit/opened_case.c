/* SPDX-License-Identifier: MIT */
/** @file See opened_case.h. */
#include "opened_case.h"

core_pair opened_case_pair;
gpuipc_buffer *opened_case_sent;
gpuipc_buffer *opened_case_opened;
CUstream opened_case_stream;

void opened_case_begin(unsigned flags) {
    core_start();
    stream_gate_make();
    cr_assert_eq(core_driver()->cuStreamCreate(&opened_case_stream, flags), CUDA_SUCCESS);
    core_pair_open(&opened_case_pair, core_context, core_context);
    opened_case_sent = core_buffer(core_unit, 0);
    check_ok(core_send(opened_case_pair.client, &opened_case_sent, 1));
    check_ok(core_receive(opened_case_pair.server, &opened_case_opened, 1));
}

void opened_case_finish(void) {
    stream_gate_open(); /* also after a failure */
    if (opened_case_stream != NULL) {
        stream_gate_synchronize(opened_case_stream);
    }
    (void)gpuipc_buffer_release(opened_case_opened);
    (void)gpuipc_buffer_release(opened_case_sent);
    core_pair_close(&opened_case_pair);
    stream_gate_stream_end(opened_case_stream);
    stream_gate_end();
    core_finish();
}
