/* SPDX-License-Identifier: MIT */
/** @file Entries of @errors that only Windows has. See test_errors.c. */
#include "core_fixture.h"

TestSuite(win32_errors, .init = core_start, .fini = core_finish, .timeout = 60);

/* There is neither an abstract name nor a directory that a group shares. */
Test(win32_errors, what_windows_has_not) {
    gpuipc_context_config config = core_context_config();
    gpuipc_context *shared = NULL;
    gpuipc_listener *listener = NULL;
    gpuipc_connection *connection = NULL;
    check_status(GPUIPC_ERR_NOT_SUPPORTED,
                 gpuipc_listener_open(core_context, "@name", NULL, &listener));
    check_status(GPUIPC_ERR_NOT_SUPPORTED,
                 gpuipc_connection_open(core_context, "@name", NULL, 0, &connection));
    config.flags = GPUIPC_CONTEXT_SHARED_DIRECTORY;
    check_ok(gpuipc_context_create(&config, &shared));
    check_status(GPUIPC_ERR_NOT_SUPPORTED, gpuipc_listener_open(shared, "name", NULL, &listener));
    check_status(GPUIPC_ERR_NOT_SUPPORTED,
                 gpuipc_connection_open(shared, "name", NULL, 0, &connection));
    cr_assert(listener == NULL && connection == NULL);
    check_ok(gpuipc_context_destroy(shared));
}
