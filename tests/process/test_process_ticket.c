/* SPDX-License-Identifier: MIT */
/** @file Tickets between processes: what they admit, who has them open, and exporters that come and go. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "driver.h"
#include "emulated.h"
#include "marks.h"
#include "os.h"
#include "partner.h"

static process_case at;
static gpuipc_server *server;

static void begin(void) {
    process_case_begin(&at, NULL);
    check_ok(gpuipc_server_create(at.context, NULL, &server));
}

static void end(void) {
    check_ok(gpuipc_server_destroy(server));
    process_case_end(&at);
}

TestSuite(ticket, .timeout = 100);

/* ---- this process opens -------------------------------------------------------------------- */

/* Another process with a server and a buffer. */
static void exporter_start(partner *self, uint32_t seed) {
    partner_start(self, &at, NULL, NULL);
    partner_do(self, "GPUIPC_OK", "create 1 %llu 0 0", (unsigned long long)MEBIBYTES_2);
    partner_do(self, "GPUIPC_OK", "fill %u 0", seed);
    partner_do(self, "GPUIPC_OK", "serve");
}

static gpuipc_ticket exporter_share_as(partner *self, uint64_t expires_ms, uint32_t processes,
                                       uint32_t flags) {
    char text[CHILD_LINE_MAX] = "";
    gpuipc_ticket made;
    partner_do(self, "GPUIPC_OK", "share 0 %llu %u %u", (unsigned long long)expires_ms, processes,
               flags);
    (void)sscanf(self->answer, "GPUIPC_OK %511s", text);
    check_ok(gpuipc_ticket_from_text(text, &made));
    return made;
}

static gpuipc_ticket exporter_share(partner *self, uint64_t expires_ms, uint32_t processes) {
    return exporter_share_as(self, expires_ms, processes, 0);
}

static gpuipc_buffer *open_marked(gpuipc_context *within, const gpuipc_ticket *wanted,
                                  uint32_t seed) {
    gpuipc_buffer *opened = NULL;
    check_ok(gpuipc_buffer_open(within, wanted, NULL, &opened));
    check_ok(marks_check(opened, seed, 0));
    return opened;
}

/* A context of its own: its leases end with it. */
static gpuipc_context *opener(const char *directory) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .runtime_directory = directory};
    gpuipc_context *made = NULL;
    check_ok(gpuipc_context_create(&config, &made));
    return made;
}

Test(ticket, is_opened_again_and_released_each_on_its_own) {
    begin();
    partner exporter;
    gpuipc_context *within = opener(at.directory);
    exporter_start(&exporter, 40);
    const gpuipc_ticket wanted = exporter_share(&exporter, 0, 0);
    gpuipc_buffer *first = open_marked(within, &wanted, 40);
    gpuipc_buffer *second = open_marked(within, &wanted, 40);
    cr_assert_neq(first, second);
    check_ok(gpuipc_buffer_release(first));
    check_ok(marks_check(second, 40, 0));
    check_ok(gpuipc_buffer_release(second));
    first = open_marked(within, &wanted, 40);
    check_ok(gpuipc_buffer_release(first));
    check_ok(gpuipc_context_destroy(within));
    partner_end(&exporter);
    end();
}

Test(ticket, works_where_the_directory_has_another_path) {
    begin();
    partner exporter;
    char path[RUNTIME_DIRECTORY_MAX * 2 + 8];
    const char *last = at.directory;
    for (const char *each = at.directory; *each != '\0'; each++) {
        if (*each == '/' || *each == '\\') {
            last = each + 1;
        }
    }
    (void)snprintf(path, sizeof(path), "%s/../%s", at.directory, last);
    gpuipc_context *within = opener(path);
    exporter_start(&exporter, 41);
    const gpuipc_ticket wanted = exporter_share(&exporter, 0, 0);
    check_ok(gpuipc_buffer_release(open_marked(within, &wanted, 41)));
    check_ok(gpuipc_context_destroy(within));
    partner_end(&exporter);
    end();
}

Test(ticket, of_a_revoked_share_is_refused_and_what_is_open_stays) {
    begin();
    partner exporter;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_context *within = opener(at.directory);
    gpuipc_buffer *again = NULL;
    exporter_start(&exporter, 42);
    const gpuipc_ticket wanted = exporter_share(&exporter, 0, 0);
    gpuipc_buffer *opened = open_marked(within, &wanted, 42);
    check_ok(gpuipc_ticket_to_text(&wanted, text));
    partner_do(&exporter, "GPUIPC_OK", "revoke %s", text);
    check_ok(marks_check(opened, 42, 0));
    check_ok(gpuipc_buffer_open(within, &wanted, NULL, &again)); /* a look-up */
    check_ok(gpuipc_buffer_release(again));
    check_ok(gpuipc_buffer_release(opened));
    check_status(GPUIPC_ERR_TICKET_REVOKED, gpuipc_buffer_open(within, &wanted, NULL, &again));
    check_ok(gpuipc_context_destroy(within));
    partner_end(&exporter);
    end();
}

Test(ticket, expires) {
    begin();
    partner exporter;
    gpuipc_context *within = opener(at.directory);
    gpuipc_buffer *opened = NULL;
    gpuipc_status status;
    const os_deadline deadline = os_deadline_after(PATIENCE_MS);
    exporter_start(&exporter, 43);
    const gpuipc_ticket wanted = exporter_share(&exporter, 50, 0);
    do {
        status = gpuipc_buffer_open(within, &wanted, NULL, &opened);
        if (status == GPUIPC_OK) {
            check_ok(gpuipc_buffer_release(opened));
        }
    } while (status == GPUIPC_OK && !os_deadline_passed(deadline));
    cr_assert_eq(status, GPUIPC_ERR_TICKET_EXPIRED, "%s", gpuipc_status_name(status));
    check_ok(gpuipc_context_destroy(within));
    partner_end(&exporter);
    end();
}

Test(ticket, outlives_its_exporter_only_where_it_is_open) {
    begin();
    partner exporter;
    partner next;
    gpuipc_context *within = opener(at.directory);
    gpuipc_buffer *none = NULL;
    exporter_start(&exporter, 44);
    const gpuipc_ticket wanted = exporter_share(&exporter, 0, 0);
    const gpuipc_ticket unopened = exporter_share(&exporter, 0, 0);
    gpuipc_buffer *opened = open_marked(within, &wanted, 44);
    partner_kill(&exporter);
    check_ok(marks_check(opened, 44, 0));
    const uint64_t before = os_clock_ns();
    check_status(GPUIPC_ERR_EXPORTER_GONE, gpuipc_buffer_open(within, &unopened, NULL, &none));
    cr_assert_lt(os_clock_ns() - before, UINT64_C(4000000000), "it waited for somebody");
    check_ok(gpuipc_buffer_release(open_marked(within, &wanted, 44))); /* open again */

    exporter_start(&next, 45); /* another instance: it answers to its own tickets only */
    check_status(GPUIPC_ERR_EXPORTER_GONE, gpuipc_buffer_open(within, &unopened, NULL, &none));
    const gpuipc_ticket fresh = exporter_share(&next, 0, 0);
    check_ok(gpuipc_buffer_release(open_marked(within, &fresh, 45)));
    check_ok(marks_check(opened, 44, 0));
    check_ok(gpuipc_buffer_release(opened));
    check_status(GPUIPC_ERR_EXPORTER_GONE, gpuipc_buffer_open(within, &wanted, NULL, &none));
    check_ok(gpuipc_context_destroy(within));
    partner_end(&next);
    end();
}

Test(ticket, of_a_server_that_has_ended_while_its_process_lives) {
    begin();
    partner exporter;
    gpuipc_context *within = opener(at.directory);
    gpuipc_buffer *none = NULL;
    exporter_start(&exporter, 46);
    const gpuipc_ticket wanted = exporter_share(&exporter, 0, 0);
    const gpuipc_ticket other = exporter_share(&exporter, 0, 0);
    gpuipc_buffer *opened = open_marked(within, &wanted, 46);
    partner_do(&exporter, "GPUIPC_OK", "serve-end");
    check_status(GPUIPC_ERR_EXPORTER_GONE, gpuipc_buffer_open(within, &other, NULL, &none));
    check_ok(marks_check(opened, 46, 0));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_context_destroy(within));
    partner_end(&exporter);
    end();
}

Test(ticket, says_which_of_two_exporters_it_is_of) {
    begin();
    partner exporters[2];
    gpuipc_ticket wanted[4];
    gpuipc_buffer *opened[4];
    gpuipc_context *within = opener(at.directory);
    exporter_start(&exporters[0], 47);
    exporter_start(&exporters[1], 48);
    for (size_t i = 0; i < 4; i++) {
        wanted[i] = exporter_share(&exporters[i % 2], 0, 0);
    }
    for (size_t i = 0; i < 4; i++) {
        opened[i] = open_marked(within, &wanted[i], 47 + (uint32_t)(i % 2));
    }
    for (size_t i = 0; i < 4; i++) {
        check_ok(gpuipc_buffer_release(opened[i]));
    }
    check_ok(gpuipc_context_destroy(within));
    partner_end(&exporters[0]);
    partner_end(&exporters[1]);
    end();
}

/* ---- this process shares -------------------------------------------------------------------- */

static gpuipc_ticket share(gpuipc_buffer *buffer, uint32_t processes, char *text) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .max_processes = processes};
    gpuipc_ticket made;
    check_ok(gpuipc_buffer_share(server, buffer, &config, &made));
    check_ok(gpuipc_ticket_to_text(&made, text));
    return made;
}

Test(ticket, admits_as_many_processes_as_it_says_and_each_as_often_as_it_likes) {
    begin();
    partner first;
    partner second;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 50, 0);
    (void)share(buffer, 1, text);
    partner_start(&first, &at, NULL, NULL);
    partner_start(&second, &at, NULL, NULL);
    partner_do(&first, "GPUIPC_OK", "ticket %s", text);
    partner_do(&second, "GPUIPC_ERR_TICKET_USED_UP", "ticket %s", text);
    partner_do(&first, "GPUIPC_OK", "check 50 0");
    partner_do(&first, "GPUIPC_OK", "release");
    partner_do(&first, "GPUIPC_OK", "ticket %s", text);
    partner_do(&second, "GPUIPC_ERR_TICKET_USED_UP", "ticket %s", text);
    partner_end(&first);
    partner_end(&second);
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

static int refuse(void *user_data, const gpuipc_peer_info *peer) {
    (void)peer;
    atomic_fetch_add((atomic_int *)user_data, 1);
    return 0;
}

/* Who is told does not try again, and does not look whether the server's process ends. */
Test(ticket, of_a_server_whose_policy_refuses_the_process_is_tried_once) {
    begin();
    atomic_int asked = 0;
    const gpuipc_server_config config = {.struct_size = sizeof(config),
                                         .flags = GPUIPC_SERVER_THREAD,
                                         .policy = refuse,
                                         .policy_user_data = &asked};
    partner other;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 50, 0);
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_server_create(at.context, &config, &server));
    (void)share(buffer, 0, text);
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_ERR_SERVER_BUSY", "ticket %s", text);
    cr_assert_eq(atomic_load(&asked), 1);
    partner_end(&other);
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

/* Until so many have it open. */
static void await_holders(const gpuipc_ticket *of, size_t wanted, gpuipc_holder *holders) {
    const os_deadline deadline = os_deadline_after(PATIENCE_MS);
    size_t count = SIZE_MAX;
    do {
        check_ok(gpuipc_server_holders(server, of, holders, 2, &count));
    } while (count != wanted && !os_deadline_passed(deadline));
    cr_assert_eq(count, wanted);
}

Test(ticket, names_its_holders_until_they_have_released_it_or_are_gone) {
    begin();
    partner first;
    partner second;
    gpuipc_holder holders[2];
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 51, 0);
    const gpuipc_ticket made = share(buffer, 0, text);
    await_holders(&made, 0, holders);
    partner_start(&first, &at, NULL, NULL);
    partner_start(&second, &at, NULL, NULL);
    partner_do(&first, "GPUIPC_OK", "ticket %s", text);
    await_holders(&made, 1, holders);
    cr_assert_eq(holders[0].process_id, child_process_id(first.process));
    cr_assert_eq(holders[0].openings, 1);
    cr_assert_eq(holders[0].is_running, 1);
    partner_do(&second, "GPUIPC_OK", "ticket %s", text);
    await_holders(&made, 2, holders);
    check_ok(gpuipc_server_revoke(server, &made));
    partner_kill(&first);
    await_holders(&made, 1, holders);
    cr_assert_eq(holders[0].process_id, child_process_id(second.process));
    partner_do(&second, "GPUIPC_OK", "check 51 0");
    partner_do(&second, "GPUIPC_OK", "release");
    await_holders(&made, 0, holders);
    partner_end(&second);
    check_ok(marks_check(buffer, 51, 0));
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

/* ---- returned, and opened again ---------------------------------------------------------------- */

/* The first one is returned and not released yet: another thread of the process opens the same ticket meanwhile. What it gets
 * is a hand-over of its own. */
Test(ticket, is_handed_over_anew_when_what_is_open_was_returned) {
    begin();
    partner exporter;
    gpuipc_context *within = opener(at.directory);
    exporter_start(&exporter, 49);
    const gpuipc_ticket wanted = exporter_share(&exporter, 0, 0);
    gpuipc_buffer *first = open_marked(within, &wanted, 49);
    check_ok(gpuipc_buffer_return_async(first, NULL));
    gpuipc_buffer *second = open_marked(within, &wanted, 49);
    check_ok(gpuipc_buffer_release(first));
    check_ok(marks_check(second, 49, 0));
    check_ok(gpuipc_buffer_return_async(second, NULL));
    check_ok(gpuipc_buffer_release(second));
    check_ok(gpuipc_context_destroy(within));
    partner_end(&exporter);
    end();
}

typedef struct returner {
    gpuipc_buffer *of;
    atomic_bool is_over;
    uint32_t calls;
    gpuipc_status status; /* the last that was not as it must be */
} returner;

static void return_again_and_again(void *argument) {
    returner *self = argument;
    while (!atomic_load(&self->is_over)) {
        const gpuipc_status status = gpuipc_buffer_return_async(self->of, NULL);
        self->status = status == GPUIPC_ERR_INVALID_ARGUMENT ? self->status : status;
        self->calls++;
    }
}

/* It is open twice, so that a return is refused; meanwhile the other one is as usable as before. */
Test(ticket, that_is_open_twice_is_used_while_its_return_is_refused) {
    begin();
    partner exporter;
    gpuipc_context *within = opener(at.directory);
    os_thread *thread;
    exporter_start(&exporter, 50);
    const gpuipc_ticket wanted = exporter_share(&exporter, 0, 0);
    returner other = {.of = open_marked(within, &wanted, 50)};
    gpuipc_buffer *used = open_marked(within, &wanted, 50);
    check_ok(os_thread_start(return_again_and_again, &other, &thread));
    for (int i = 0; i < 20000; i++) {
        uint32_t word;
        check_ok(gpuipc_buffer_read(used, 0, &word, sizeof(word)));
    }
    atomic_store(&other.is_over, true);
    os_thread_join(thread);
    check_ok(other.status);
    check_ok(gpuipc_buffer_release(used));
    check_ok(gpuipc_buffer_release(other.of));
    check_ok(gpuipc_context_destroy(within));
    partner_end(&exporter);
    end();
}

/* ---- many ------------------------------------------------------------------------------------ */

/* More are open all the time than two processes have points in a page, and many more come and go: who opens and
 * releases is never told that the server has no room. */
Test(ticket, come_and_go_beside_as_many_that_stay_open) {
    begin();
    partner other;
    gpuipc_ticket made;
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    char text[GPUIPC_TICKET_TEXT_SIZE];
    char expected[CHILD_LINE_MAX];
    const unsigned held = 4095;
    /* Wine and sanitizers take their time */
    const unsigned released = os_shareable_handle_type == 1 && !IS_SANITIZED ? 65500 : 4000;
    gpuipc_buffer *shared = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    check_ok(gpuipc_buffer_share(server, shared, NULL, &made));
    check_ok(gpuipc_ticket_to_text(&made, text));
    partner_start(&other, &at, NULL, NULL);
    (void)snprintf(expected, sizeof(expected), "GPUIPC_OK %u", held + released);
    partner_do(&other, expected, "ticket-parts %s %u %u", text, held, released);
    check_ok(gpuipc_buffer_get_info(shared, &info));
    cr_assert_eq(info.lent_count, held, "%u are listed", info.lent_count);
    partner_end(&other);
    check_ok(gpuipc_buffer_await_returns(shared, PATIENCE_MS));
    check_ok(gpuipc_buffer_release(shared));
    end();
}

/* ---- what could not be handed over ---------------------------------------------------------- */

/* Lets calls of the emulated driver fail in this process; "": none. */
static void set_failures(const char *text) {
    static driver drv;
    gpuipc_emulated_fail_fn set_fail;
    if (drv.library == NULL) {
        check_ok(driver_open("emulated", &drv));
    }
    void *symbol = os_library_symbol(drv.library, GPUIPC_EMULATED_SET_FAIL);
    memcpy(&set_fail, &symbol, sizeof(set_fail));
    cr_assert_eq(set_fail(text), 0, "%s", text);
}

/* The same buffer, by another ticket, is open there already: that is not what failed. */
/* A server whose hand-overs can be made to fail: no handle is kept. */
static void begin_without_kept_handles(void) {
    const gpuipc_context_config config = {.struct_size = sizeof(config),
                                          .max_kept_handles = GPUIPC_KEEP_NONE};
    process_case_begin(&at, &config);
    if (!process_case_is_emulated(&at)) {
        process_case_end(&at);
        cr_skip_test("needs calls of the driver that fail");
    }
    check_ok(gpuipc_server_create(at.context, NULL, &server));
}

Test(ticket, that_could_not_be_handed_over_has_no_holder) {
    begin_without_kept_handles();
    partner other;
    gpuipc_ticket tickets[2];
    char texts[2][GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_holder holders[4];
    size_t count = 0;
    gpuipc_buffer *shared = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    for (size_t i = 0; i < 2; i++) {
        check_ok(gpuipc_buffer_share(server, shared, NULL, &tickets[i]));
        check_ok(gpuipc_ticket_to_text(&tickets[i], texts[i]));
    }
    partner_start(&other, &at, NULL, NULL);
    partner_do(&other, "GPUIPC_OK", "ticket %s", texts[0]);
    set_failures("cuMemExportToShareableHandle:*=999");
    partner_do(&other, "GPUIPC_ERR", "ticket %s", texts[1]);
    set_failures("");
    check_ok(gpuipc_server_holders(server, &tickets[1], holders, 4, &count));
    cr_assert_eq(count, 0, "a ticket that nobody has open lists %zu", count);
    check_ok(gpuipc_server_holders(server, &tickets[0], holders, 4, &count));
    cr_assert_eq(count, 1);
    cr_assert_eq(holders[0].openings, 1);
    partner_do(&other, "GPUIPC_OK", "ticket %s", texts[1]);
    check_ok(gpuipc_server_holders(server, &tickets[1], holders, 4, &count));
    cr_assert_eq(count, 1);
    partner_end(&other);
    check_ok(gpuipc_buffer_await_returns(shared, PATIENCE_MS));
    check_ok(gpuipc_buffer_release(shared));
    end();
}

Test(ticket, admits_who_was_admitted_also_after_an_opening_that_failed) {
    begin_without_kept_handles();
    partner first;
    partner second;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_buffer *buffer = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 50, 0);
    (void)share(buffer, 1, text);
    partner_start(&first, &at, NULL, NULL);
    partner_start(&second, &at, NULL, NULL);
    partner_do(&first, "GPUIPC_OK", "ticket %s", text);
    partner_do(&first, "GPUIPC_OK", "release");
    set_failures("cuMemExportToShareableHandle:*=999");
    partner_do(&first, "GPUIPC_ERR_NOT_SHAREABLE", "ticket %s", text);
    set_failures("");
    partner_do(&second, "GPUIPC_ERR_TICKET_USED_UP", "ticket %s", text);
    partner_do(&first, "GPUIPC_OK", "ticket %s", text);
    partner_end(&first);
    partner_end(&second);
    check_ok(gpuipc_buffer_await_returns(buffer, PATIENCE_MS));
    check_ok(gpuipc_buffer_release(buffer));
    end();
}

/* Nobody but this process, which may try as often as it likes until it has it. */
static void open_at_last(gpuipc_context *within, const gpuipc_ticket *wanted, partner *exporter,
                         partner *other) {
    static const char *const failing[] = {"cuMemImportFromShareableHandle:1=2",
                                          "cuMemAddressReserve:1=2", "cuMemMap:1=2",
                                          "cuMemSetAccess:1=2"};
    char text[GPUIPC_TICKET_TEXT_SIZE];
    gpuipc_buffer *opened = NULL;
    check_ok(gpuipc_ticket_to_text(wanted, text));
    for (size_t i = 0; i < sizeof(failing) / sizeof(failing[0]); i++) {
        set_failures(failing[i]);
        check_status(GPUIPC_ERR_OUT_OF_DEVICE_MEMORY,
                     gpuipc_buffer_open(within, wanted, NULL, &opened));
        set_failures("");
        partner_do(other, "GPUIPC_ERR_TICKET_USED_UP", "ticket %s", text);
    }
    partner_do(exporter, "GPUIPC_OK", "release"); /* its server has it still */
    opened = open_marked(within, wanted, 44);
    check_ok(gpuipc_buffer_release(opened));
    check_status(GPUIPC_ERR_TICKET_USED_UP, gpuipc_buffer_open(within, wanted, NULL, &opened));
}

Test(ticket, that_is_one_shot_is_not_lost_by_an_opening_that_fails) {
    begin();
    if (!process_case_is_emulated(&at)) {
        end();
        cr_skip_test("needs calls of the driver that fail");
    }
    partner exporter;
    partner other;
    gpuipc_context *within = opener(at.directory);
    exporter_start(&exporter, 44);
    partner_start(&other, &at, NULL, NULL);
    const gpuipc_ticket wanted = exporter_share_as(&exporter, 0, 0, GPUIPC_SHARE_ONE_SHOT);
    open_at_last(within, &wanted, &exporter, &other);
    check_ok(gpuipc_context_destroy(within));
    partner_end(&other);
    partner_end(&exporter);
    end();
}
