/* SPDX-License-Identifier: MIT */
/** @file The case of test_process_bad_packet.c that needs a limit of open handles for one process, as
 *  Windows has none that can be set. */
#include <criterion/criterion.h>

#include "check.h"
#include "posix_system.h"
#include "victim.h"

/* The list of handles is cut because this process can open no more: its own limit, not the peer's
 * fault, and the status says so. */
Test(bad_packet, cut_by_the_limit_of_this_process, .timeout = 100) {
    victim_case in;
    victim_case_begin(&in);
    enum {
        HANDLES = 100,
        ROOM = 20
    };
    raw_packet packet = victim_case_packet(&in);
    victim one = victim_make(&in);
    raw_packet_repeat_handle(&packet, HANDLES);
    cr_assert(raw_packet_send(&packet, one.raw));
    uint64_t limit = system_limit_descriptors(ROOM);
    cr_assert_neq(limit, 0);
    gpuipc_status status = victim_receive(&one);
    system_set_descriptor_limit(limit);
    cr_assert_eq(status, GPUIPC_ERR_TOO_MANY_HANDLES, "%s", gpuipc_status_name(status));
    check_status(GPUIPC_ERR_CONNECTION_BROKEN, victim_receive(&one));
    victim_close(&one);
    raw_packet_close(&packet);
    victim_case_end(&in);
}
