/* SPDX-License-Identifier: MIT */
/** @file Every hostile client of server_cases.c at a server of the library's. */
#include <criterion/criterion.h>

#include "server_ground.h"

Test(server, clients_by_the_protocol, .timeout = HOSTILE_TEST_S) {
    server_run(server_cases, server_case_count);
}
