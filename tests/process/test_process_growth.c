/* SPDX-License-Identifier: MIT */
/** @file What a server's calls on one ticket cost does not depend on how many hand-overs of others it has; as
 *  tests/unit/test_growth.c, and with another process, since only that is a holder. */
#include <criterion/criterion.h>

#include "check.h"
#include "os.h"
#include "partner.h"
#include "thread_time.h"

#define FEW           20u
#define MANY          20000u
#define CALLS         20
#define TIMES_AT_MOST 4
#define SLACK_NS      UINT64_C(5000)
#define WAYS          4

TestSuite(growth, .timeout = 110);

static gpuipc_server *server;
static gpuipc_buffer *asked;
static gpuipc_ticket ticket; /* of it */

static void ask_holders(void *unused) {
    (void)unused;
    gpuipc_holder holders[4];
    size_t count = 0;
    check_ok(gpuipc_server_holders(server, &ticket, holders, 4, &count));
    cr_assert_eq(count, 2);
}

static void ask_info(void *unused) {
    (void)unused;
    gpuipc_buffer_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_buffer_get_info(asked, &info));
    cr_assert_geq(info.lent_count, 1);
}

static void ask_returns(void *unused) {
    (void)unused;
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_buffer_await_returns(asked, 0));
}

static void share_and_revoke(void *unused) {
    (void)unused;
    gpuipc_ticket made;
    check_ok(gpuipc_buffer_share(server, asked, NULL, &made));
    check_ok(gpuipc_server_revoke(server, &made));
}

static const struct {
    const char *name;
    void (*act)(void *unused);
} ways[WAYS] = {{"gpuipc_server_holders", ask_holders},
                {"gpuipc_buffer_get_info", ask_info},
                {"gpuipc_buffer_await_returns", ask_returns},
                {"gpuipc_buffer_share and gpuipc_server_revoke", share_and_revoke}};

static void measure(uint64_t ns[WAYS]) {
    for (int way = 0; way < WAYS; way++) {
        ns[way] = thread_time_of(ways[way].act, NULL, CALLS);
    }
}

static void share(gpuipc_buffer *of, gpuipc_ticket *out_ticket,
                  char text[GPUIPC_TICKET_TEXT_SIZE]) {
    check_ok(gpuipc_buffer_share(server, of, NULL, out_ticket));
    check_ok(gpuipc_ticket_to_text(out_ticket, text));
}

/* Measures while few and then many others are open: of the same ticket, or of another buffer's. */
static void check_growth(bool of_another) {
    process_case at;
    partner others[2];
    gpuipc_ticket other;
    char text[GPUIPC_TICKET_TEXT_SIZE];
    uint64_t few_ns[WAYS];
    uint64_t many_ns[WAYS];
    process_case_begin(&at, NULL);
    check_ok(gpuipc_server_create(at.context, NULL, &server));
    asked = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    gpuipc_buffer *handed = process_case_buffer(&at, 0, MEBIBYTES_2, 0, 1, 0);
    share(asked, &ticket, text);
    for (size_t i = 0; i < 2; i++) {
        partner_start(&others[i], &at, NULL, NULL);
        partner_do(&others[i], "GPUIPC_OK", "ticket %s", text);
    }
    if (of_another) {
        share(handed, &other, text);
    }
    partner_do(&others[0], "GPUIPC_OK", "ticket-parts %s %u 0", text, FEW);
    measure(few_ns);
    for (size_t i = 0; i < 2; i++) {
        partner_do(&others[i], "GPUIPC_OK", "ticket-parts %s %u 0", text, MANY / 2);
    }
    measure(many_ns);
    partner_end(&others[1]);
    partner_end(&others[0]);
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_await_returns(asked, PATIENCE_MS));
    check_ok(gpuipc_buffer_await_returns(handed, PATIENCE_MS));
    check_ok(gpuipc_buffer_release(asked));
    check_ok(gpuipc_buffer_release(handed));
    process_case_end(&at);
    for (int i = 0; i < WAYS; i++) {
        cr_log_info("%s: %llu ns with %u, %llu ns with %u", ways[i].name,
                    (unsigned long long)few_ns[i], FEW, (unsigned long long)many_ns[i], MANY);
    }
    for (int i = 0; i < WAYS; i++) {
        cr_assert_leq(many_ns[i], TIMES_AT_MOST * few_ns[i] + SLACK_NS,
                      "%s takes %llu ns with %u others open, and %llu ns with %u", ways[i].name,
                      (unsigned long long)few_ns[i], FEW, (unsigned long long)many_ns[i], MANY);
    }
}

Test(growth, of_a_servers_calls_with_what_others_have_open_of_another_buffer) {
    check_growth(true);
}

Test(growth, of_a_servers_calls_with_what_two_have_open_of_the_same) {
    check_growth(false);
}
