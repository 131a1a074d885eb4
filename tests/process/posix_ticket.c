/* SPDX-License-Identifier: MIT */
/** @file Tickets whose server's socket another program removes. On Windows names are open files, which stay. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "marks.h"
#include "partner.h"
#include "ticket/ticket.h"

static process_case at;

static gpuipc_ticket partner_share(partner *self) {
    char text[CHILD_LINE_MAX] = "";
    gpuipc_ticket made;
    partner_do(self, "GPUIPC_OK", "share 0 0 0 0");
    (void)sscanf(self->answer, "GPUIPC_OK %511s", text);
    check_ok(gpuipc_ticket_from_text(text, &made));
    return made;
}

static void remove_socket(const gpuipc_ticket *of) {
    char name[TICKET_ENDPOINT_SIZE];
    char path[RUNTIME_DIRECTORY_MAX + TICKET_ENDPOINT_SIZE + 8];
    ticket decoded;
    check_ok(ticket_decode(of, &decoded));
    ticket_endpoint(decoded.server_id, name);
    (void)snprintf(path, sizeof(path), "%s/%s.sock", at.directory, name);
    cr_assert_eq(unlink(path), 0, "%s", path);
}

static void check_opens(gpuipc_context *within, const gpuipc_ticket *wanted) {
    gpuipc_buffer *opened = NULL;
    check_ok(gpuipc_buffer_open(within, wanted, NULL, &opened));
    check_ok(marks_check(opened, 71, 0));
    check_ok(gpuipc_buffer_release(opened));
}

Test(ticket, of_a_server_whose_socket_was_removed_opens_again_after_the_next_share,
     .timeout = 100) {
    partner exporter;
    gpuipc_buffer *none = NULL;
    gpuipc_context *within; /* its connections end with it */
    process_case_begin(&at, NULL);
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = at.directory};
    check_ok(gpuipc_context_create(&config, &within));
    partner_start(&exporter, &at, NULL, NULL);
    partner_do(&exporter, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
    partner_do(&exporter, "GPUIPC_OK", "fill 71 0");
    partner_do(&exporter, "GPUIPC_OK", "serve");
    const gpuipc_ticket first = partner_share(&exporter);
    remove_socket(&first);
    const gpuipc_status status = gpuipc_buffer_open(within, &first, NULL, &none);
    if (status == GPUIPC_OK) { /* its thread was quicker */
        check_ok(gpuipc_buffer_release(none));
        none = NULL;
    } else {
        check_refused(GPUIPC_ERR_EXPORTER_GONE, "removed its socket", status);
        cr_assert(strstr(gpuipc_error_get()->sentence, at.directory) != NULL, "%s",
                  gpuipc_error_get()->sentence);
    }
    const gpuipc_ticket second = partner_share(&exporter);
    check_opens(within, &first);
    check_opens(within, &second);
    check_ok(gpuipc_context_destroy(within));
    partner_end(&exporter);
    process_case_end(&at);
}
