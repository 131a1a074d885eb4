/* SPDX-License-Identifier: MIT */
/** @file What a server answers to a ticket, and what it knows of those who have it open. Clients are connections
 *  of this process, of another context. */
#include "asker.h"

#include <string.h>

#include "memory/registry.h"

static gpuipc_server *server;
static gpuipc_context *other;
static gpuipc_buffer *shared;
static asker client;

static void begin(void) {
    core_start();
    other = core_context_new();
    server = asker_server(GPUIPC_SERVER_THREAD);
    shared = core_buffer(3 * core_unit, core_unit);
}

static void finish(void) {
    asker_end(&client);
    (void)gpuipc_server_destroy(server);
    (void)gpuipc_buffer_release(shared);
    (void)gpuipc_context_destroy(other);
    core_finish();
}

TestSuite(server, .init = begin, .fini = finish, .timeout = 60);

static gpuipc_ticket share_with(const gpuipc_share_config *config) {
    gpuipc_ticket made;
    check_ok(gpuipc_buffer_share(server, shared, config, &made));
    return made;
}

static size_t count_holders(const gpuipc_ticket *of) {
    gpuipc_holder holders[8];
    size_t count = 99;
    check_ok(gpuipc_server_holders(server, of, holders, 8, &count));
    return count;
}

/* ---- answers ------------------------------------------------------------------------------- */

Test(server, opens_what_a_ticket_stands_for) {
    static const char note[] = "three tensors";
    const gpuipc_share_config config = {.struct_size = sizeof(config),
                                        .offset = 512,
                                        .bytes = core_unit,
                                        .access = GPUIPC_ACCESS_READ,
                                        .attachment = note,
                                        .attachment_bytes = sizeof(note)};
    core_write_pattern(shared, 7);
    const gpuipc_ticket of = share_with(&config);
    asker_begin(&client, other, &of);
    const asker_reply reply = asker_ask(&client, &of);
    cr_assert_eq(reply.answer, WIRE_GRANTED);
    cr_assert_eq(reply.ready, WIRE_READY_NOW);
    cr_assert_str_eq(reply.attachment, note);
    const gpuipc_buffer_info info = core_info(reply.buffer);
    cr_assert_eq(info.bytes, core_unit);
    cr_assert_eq(info.access, GPUIPC_ACCESS_READ);
    cr_assert_eq(info.buffer_id, core_info(shared).buffer_id);
    uint32_t here;
    uint32_t there;
    check_ok(gpuipc_buffer_read(shared, 512 + 4096, &here, sizeof(here)));
    check_ok(gpuipc_buffer_read(reply.buffer, 4096, &there, sizeof(there)));
    cr_assert_eq(here, there);
    check_ok(gpuipc_buffer_release(reply.buffer));
}

Test(server, opens_a_part_of_it_and_nothing_beside_it) {
    const gpuipc_share_config config = {
        .struct_size = sizeof(config), .offset = core_unit, .bytes = core_unit};
    const gpuipc_ticket of = share_with(&config);
    gpuipc_ticket part;
    ticket decoded = asker_decode(&of);
    cr_assert(decoded.offset == core_unit && decoded.bytes == core_unit);
    asker_begin(&client, other, &of);
    check_ok(gpuipc_ticket_narrow(&of, 4096, 8192, &part));
    const asker_reply reply = asker_ask(&client, &part);
    cr_assert_eq(reply.answer, WIRE_GRANTED);
    cr_assert_eq(core_info(reply.buffer).bytes, 8192);
    check_ok(gpuipc_buffer_release(reply.buffer));
    decoded.offset--; /* what somebody makes of the bytes who has the secret */
    ticket_encode(&decoded, &part);
    cr_assert_eq(asker_answer(&client, &part), WIRE_OUT_OF_RANGE);
    decoded.offset += 2;
    ticket_encode(&decoded, &part);
    cr_assert_eq(asker_answer(&client, &part), WIRE_OUT_OF_RANGE);
    decoded.offset = 3 * core_unit;
    decoded.bytes = 1;
    ticket_encode(&decoded, &part);
    cr_assert_eq(asker_answer(&client, &part), WIRE_OUT_OF_RANGE);
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
}

/* It may say what lies where, and would say it wrongly of a part. */
Test(server, gives_what_is_attached_to_who_opens_all_of_it) {
    static const char note[] = "three tensors";
    const gpuipc_share_config config = {.struct_size = sizeof(config),
                                        .offset = core_unit,
                                        .bytes = core_unit,
                                        .flags = GPUIPC_SHARE_ONE_SHOT,
                                        .attachment = note,
                                        .attachment_bytes = sizeof(note)};
    const gpuipc_share_config bare = {.struct_size = sizeof(bare)};
    const gpuipc_ticket of = share_with(&config);
    const gpuipc_ticket of_bare = share_with(&bare);
    const uint64_t parts[][2] = {{0, 4096}, {4096, core_unit - 4096}, {1, 1}};
    gpuipc_ticket part;
    asker_begin(&client, other, &of);
    for (size_t i = 0; i < 3; i++) {
        check_ok(gpuipc_ticket_narrow(&of, parts[i][0], parts[i][1], &part));
        const asker_reply reply = asker_ask(&client, &part);
        cr_assert_eq(reply.answer, WIRE_GRANTED);
        cr_assert_eq(reply.flags, WIRE_REPLY_ONE_SHOT | WIRE_REPLY_WITHHELD);
        cr_assert_str_eq(reply.attachment, "");
        check_ok(gpuipc_buffer_release(reply.buffer));
    }
    check_ok(gpuipc_ticket_narrow(&of, 0, core_unit, &part)); /* which is all of it */
    asker_reply reply = asker_ask(&client, &part);
    cr_assert_eq(reply.flags, WIRE_REPLY_ONE_SHOT);
    cr_assert_str_eq(reply.attachment, note);
    check_ok(gpuipc_buffer_release(reply.buffer));
    check_ok(gpuipc_ticket_narrow(&of_bare, 0, 4096, &part)); /* nothing is withheld */
    reply = asker_ask(&client, &part);
    cr_assert_eq(reply.flags, 0);
    check_ok(gpuipc_buffer_release(reply.buffer));
}

Test(server, does_not_tell_a_wrong_secret_from_no_share) {
    const gpuipc_ticket of = asker_share(server, shared);
    const gpuipc_ticket forged = asker_forge(&of);
    ticket decoded = asker_decode(&of);
    gpuipc_ticket absent;
    asker_begin(&client, other, &of);
    cr_assert_eq(asker_answer(&client, &forged), WIRE_UNKNOWN);
    decoded.share++;
    ticket_encode(&decoded, &absent);
    cr_assert_eq(asker_answer(&client, &absent), WIRE_UNKNOWN);
    decoded = asker_decode(&of);
    decoded.server_id[0] ^= 1; /* the secret of a share of this server, of another server */
    ticket_encode(&decoded, &absent);
    cr_assert_eq(asker_answer(&client, &absent), WIRE_UNKNOWN);
    check_ok(gpuipc_server_revoke(server, &of));
    cr_assert_eq(asker_answer(&client, &forged), WIRE_UNKNOWN);
    cr_assert_eq(asker_answer(&client, &of), WIRE_REVOKED);
}

Test(server, nobody_opens_what_was_revoked) {
    const gpuipc_ticket of = asker_share(server, shared);
    const gpuipc_ticket second = asker_share(server, shared);
    const gpuipc_ticket forged = asker_forge(&of);
    asker_begin(&client, other, &of);
    const asker_reply reply = asker_ask(&client, &of);
    check_ok(gpuipc_server_revoke(server, &of));
    cr_assert_eq(asker_answer(&client, &of), WIRE_REVOKED);
    cr_assert_eq(asker_answer(&client, &second), WIRE_GRANTED);
    cr_assert_eq(count_holders(&of), 1); /* what is open stays so, and is known */
    check_ok(gpuipc_buffer_release(reply.buffer));
    cr_assert_eq(count_holders(&of), 0);
    check_status(GPUIPC_ERR_TICKET_REVOKED, gpuipc_server_revoke(server, &of));
    check_status(GPUIPC_ERR_TICKET_UNKNOWN, gpuipc_server_revoke(server, &forged));
}

/* Openings come back in whatever order. */
Test(server, what_came_back_behind_what_did_not_counts_no_more) {
    const gpuipc_ticket of = asker_share(server, shared);
    gpuipc_buffer *opened[3];
    gpuipc_holder whom;
    size_t count = 0;
    asker_begin(&client, other, &of);
    for (size_t i = 0; i < 3; i++) {
        opened[i] = asker_ask(&client, &of).buffer;
    }
    asker_settle(&client, &of);
    for (uint32_t left = 3; left > 0; left--) {
        check_ok(gpuipc_server_holders(server, &of, &whom, 1, &count));
        cr_assert_eq(count, 1);
        cr_assert_eq(whom.openings, left);
        check_ok(gpuipc_buffer_release(opened[left - 1]));
    }
    cr_assert_eq(count_holders(&of), 0);
}

static bool is_alive(uint64_t buffer_id, const uint8_t exporter_id[16]) {
    buffer *found = registry_find(exporter_id, buffer_id);
    buffer_unreference(found);
    return found != NULL;
}

Test(server, keeps_the_buffer_until_the_ticket_is_revoked) {
    const gpuipc_ticket of = asker_share(server, shared);
    const gpuipc_buffer_info info = core_info(shared);
    check_ok(gpuipc_buffer_release(shared));
    check_status(GPUIPC_ERR_RELEASED, gpuipc_buffer_retain(shared));
    shared = NULL;
    asker_begin(&client, other, &of);
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
    cr_assert(is_alive(info.buffer_id, info.exporter_id));
    asker_settle(&client, &of);
    check_ok(gpuipc_server_revoke(server, &of));
    cr_assert_not(is_alive(info.buffer_id, info.exporter_id));
}

Test(server, nobody_opens_what_has_expired) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .expires_ms = 2};
    const gpuipc_buffer_info info = core_info(shared);
    const gpuipc_ticket of = share_with(&config);
    const os_deadline deadline = os_deadline_after(SOON_MS);
    check_ok(gpuipc_buffer_release(shared));
    shared = NULL;
    asker_begin(&client, other, &of);
    wire_answer found;
    while ((found = asker_answer(&client, &of)) == WIRE_GRANTED) {
        cr_assert_not(os_deadline_passed(deadline));
    }
    cr_assert_eq(found, WIRE_EXPIRED);
    cr_assert_not(is_alive(info.buffer_id, info.exporter_id));
    check_ok(gpuipc_server_revoke(server, &of)); /* as good as before */
    cr_assert_eq(asker_answer(&client, &of), WIRE_REVOKED);
}

Test(server, gives_up_what_has_expired_without_being_asked_for_it) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .expires_ms = 1};
    const gpuipc_share_config later = {.struct_size = sizeof(later), .expires_ms = UINT64_MAX};
    const gpuipc_buffer_info info = core_info(shared);
    const os_deadline deadline = os_deadline_after(SOON_MS);
    gpuipc_buffer *lasting = core_buffer(core_unit, 0);
    gpuipc_ticket kept;
    check_ok(gpuipc_buffer_share(server, lasting, &later, &kept));
    asker_begin(&client, other, &kept);
    asker_settle(&client, &kept); /* its thread sleeps, or is about to */
    (void)share_with(&config);
    check_ok(gpuipc_buffer_release(shared));
    shared = NULL;
    while (is_alive(info.buffer_id, info.exporter_id)) { /* and nobody asks for anything */
        cr_assert_not(os_deadline_passed(deadline));
        os_sleep_ms(1);
    }
    cr_assert_eq(asker_answer(&client, &kept), WIRE_GRANTED);
    check_ok(gpuipc_buffer_release(lasting));
}

Test(server, a_program_that_polls_gives_up_what_has_expired) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .expires_ms = 1};
    const gpuipc_buffer_info info = core_info(shared);
    const os_deadline deadline = os_deadline_after(SOON_MS);
    gpuipc_server *polled = asker_server(0);
    gpuipc_ticket made;
    check_ok(gpuipc_buffer_share(polled, shared, &config, &made));
    check_ok(gpuipc_buffer_release(shared));
    shared = NULL;
    while (is_alive(info.buffer_id, info.exporter_id)) {
        cr_assert_not(os_deadline_passed(deadline));
        check_status(GPUIPC_ERR_TIMEOUT, gpuipc_server_poll(polled, 5));
    }
    check_ok(gpuipc_server_destroy(polled));
}

Test(server, admits_so_many_processes) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .max_processes = 1};
    const gpuipc_ticket of = share_with(&config);
    asker second = {NULL, NULL};
    asker_begin(&client, other, &of);
    asker_begin(&second, core_context, &of);
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
    cr_assert_eq(asker_answer(&second, &of), WIRE_GRANTED);   /* another context of that process */
    cr_assert_eq(asker_answer_here(&of, NULL), WIRE_GRANTED); /* the one that serves never counts */
    asker_end(&client);
    asker_settle(&second, &of);
    cr_assert_eq(asker_answer(&second, &of), WIRE_GRANTED);
    asker_end(&second);
}

Test(server, a_process_that_was_admitted_may_come_again) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .max_processes = 1};
    const gpuipc_ticket of = share_with(&config);
    for (int i = 0; i < 3; i++) { /* no connection of it is left in between */
        asker_begin(&client, other, &of);
        cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
        asker_end(&client);
    }
}

Test(server, what_it_opens_itself_takes_nobodys_place) {
    const gpuipc_share_config config = {.struct_size = sizeof(config), .max_processes = 1};
    const gpuipc_ticket of = share_with(&config);
    asker_begin(&client, other, &of);
    cr_assert_eq(asker_answer_here(&of, NULL), WIRE_GRANTED);
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
}

Test(server, a_one_shot_share_ends_with_its_last_process) {
    const gpuipc_share_config config = {.struct_size = sizeof(config),
                                        .flags = GPUIPC_SHARE_ONE_SHOT};
    const gpuipc_buffer_info info = core_info(shared);
    const gpuipc_ticket of = share_with(&config);
    check_ok(gpuipc_buffer_release(shared));
    shared = NULL;
    asker_begin(&client, other, &of);
    cr_assert_eq(asker_answer_here(&of, NULL), WIRE_GRANTED); /* which does not count */
    const asker_reply reply = asker_ask(&client, &of);
    cr_assert_eq(reply.answer, WIRE_GRANTED);
    check_ok(asker_confirm(&client, &of));
    cr_assert_eq(asker_answer(&client, &of), WIRE_USED_UP); /* also for who has it */
    cr_assert_eq(asker_answer_here(&of, NULL), WIRE_USED_UP);
    cr_assert_eq(count_holders(&of), 1);
    check_ok(gpuipc_buffer_release(reply.buffer));
    cr_assert_not(is_alive(info.buffer_id, info.exporter_id));
    check_ok(gpuipc_server_revoke(server, &of));
    cr_assert_eq(asker_answer(&client, &of), WIRE_REVOKED);
}

Test(server, a_one_shot_share_is_there_until_all_its_processes_have_it) {
    const gpuipc_share_config config = {
        .struct_size = sizeof(config), .flags = GPUIPC_SHARE_ONE_SHOT, .max_processes = 2};
    const gpuipc_ticket of = share_with(&config);
    asker_begin(&client, other, &of);
    for (int i = 0; i < 3; i++) { /* one process, however often it comes, and says that it has it */
        cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
        check_ok(asker_confirm(&client, &of));
    }
}

Test(server, a_one_shot_share_is_given_again_to_who_could_not_open_it) {
    const gpuipc_share_config config = {.struct_size = sizeof(config),
                                        .flags = GPUIPC_SHARE_ONE_SHOT};
    const gpuipc_ticket of = share_with(&config);
    const gpuipc_ticket forged = asker_forge(&of);
    asker_begin(&client, other, &of);
    check_ok(asker_confirm(&client, &of)); /* what it never got */
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
    check_ok(asker_confirm(&client, &forged));
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
    asker_end(&client);
    asker_begin(&client, other, &of);
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
    cr_assert_eq(asker_answer_here(&of, NULL), WIRE_USED_UP);
    check_ok(asker_confirm(&client, &of));
    check_ok(asker_confirm(&client, &of));
    cr_assert_eq(asker_answer(&client, &of), WIRE_USED_UP);
}

Test(server, a_one_shot_share_ends_without_a_word_of_who_got_it) {
    const gpuipc_share_config config = {.struct_size = sizeof(config),
                                        .flags = GPUIPC_SHARE_ONE_SHOT};
    const gpuipc_buffer_info info = core_info(shared);
    const os_deadline deadline = os_deadline_after(SOON_MS);
    const gpuipc_ticket of = share_with(&config);
    asker_set_patience(&of, 1000);
    check_ok(gpuipc_buffer_release(shared));
    shared = NULL;
    asker_begin(&client, other, &of);
    cr_assert_eq(asker_answer(&client, &of), WIRE_GRANTED);
    asker_end(&client);
    while (is_alive(info.buffer_id, info.exporter_id)) {
        cr_assert_not(os_deadline_passed(deadline));
    }
    cr_assert_eq(asker_answer_here(&of, NULL), WIRE_USED_UP);
}

Test(server, finds_each_of_many_shares) {
    enum {
        SHARES = 1000
    };
    static gpuipc_ticket tickets[SHARES];
    for (uint32_t i = 0; i < SHARES; i++) {
        const gpuipc_share_config config = {
            .struct_size = sizeof(config), .offset = 512 + i, .flags = GPUIPC_SEND_READY};
        tickets[i] = share_with(&config);
    }
    for (uint32_t i = 0; i < SHARES; i++) {
        const ticket decoded = asker_decode(&tickets[i]);
        cr_assert_eq(decoded.offset, 512 + i);
        cr_assert_eq(asker_answer_here(&tickets[i], NULL), WIRE_GRANTED);
    }
    for (uint32_t i = 0; i < SHARES; i += 2) {
        check_ok(gpuipc_server_revoke(server, &tickets[i]));
    }
    for (uint32_t i = 0; i < SHARES; i++) {
        cr_assert_eq(asker_answer_here(&tickets[i], NULL),
                     i % 2 == 0 ? WIRE_REVOKED : WIRE_GRANTED);
    }
}

Test(server, forgets_the_oldest_of_those_revoked) {
    enum {
        REVOKED = 4096
    };
    const gpuipc_share_config config = {.struct_size = sizeof(config), .flags = GPUIPC_SEND_READY};
    const gpuipc_ticket first = share_with(&config);
    const gpuipc_ticket kept = share_with(&config);
    size_t count;
    check_ok(gpuipc_server_revoke(server, &first));
    for (uint32_t i = 0; i < REVOKED; i++) {
        const gpuipc_ticket next = share_with(&config);
        check_status(i == 0 ? GPUIPC_ERR_TICKET_REVOKED : GPUIPC_OK,
                     gpuipc_server_revoke(server, i == 0 ? &first : &next));
    }
    check_status(GPUIPC_ERR_TICKET_REVOKED, gpuipc_server_revoke(server, &first));
    const gpuipc_ticket last = share_with(&config);
    check_ok(gpuipc_server_revoke(server, &last));
    check_status(GPUIPC_ERR_TICKET_UNKNOWN, gpuipc_server_revoke(server, &first));
    check_status(GPUIPC_ERR_TICKET_UNKNOWN, gpuipc_server_holders(server, &first, NULL, 0, &count));
    check_ok(gpuipc_server_revoke(server, &kept));
}

/* ---- holders ------------------------------------------------------------------------------- */

Test(server, knows_who_has_it_open) {
    const gpuipc_ticket of = asker_share(server, shared);
    const gpuipc_ticket unused = asker_share(server, shared);
    gpuipc_holder holders[2];
    size_t count = 99;
    const uint64_t before = os_time_unix_ms();
    asker_begin(&client, other, &of);
    cr_assert_eq(count_holders(&of), 0);
    const asker_reply first = asker_ask(&client, &of);
    const asker_reply second = asker_ask(&client, &of);
    check_ok(gpuipc_server_holders(server, &of, holders, 2, &count));
    cr_assert_eq(count, 1);
    cr_assert(holders[0].process_id == os_process_id() && holders[0].openings == 2 &&
              holders[0].is_running == 1 && holders[0].user[0] != '\0');
    cr_assert(holders[0].since_ms >= before && holders[0].since_ms <= os_time_unix_ms());
    cr_assert_eq(count_holders(&unused), 0);
    check_ok(gpuipc_buffer_release(first.buffer));
    check_ok(gpuipc_server_holders(server, &of, holders, 2, &count));
    cr_assert(count == 1 && holders[0].openings == 1);
    asker third = {NULL, NULL};
    asker_begin(&third, core_context, &of);
    const asker_reply reply = asker_ask(&third, &of);
    check_ok(gpuipc_server_holders(server, &of, holders, 2, &count));
    cr_assert(count == 2 && holders[0].openings == 1 && holders[1].openings == 1);
    check_status(GPUIPC_ERR_TOO_SMALL, gpuipc_server_holders(server, &of, holders, 1, &count));
    cr_assert_eq(count, 2);
    count = 0;
    check_status(GPUIPC_ERR_TOO_SMALL, gpuipc_server_holders(server, &of, NULL, 0, &count));
    cr_assert_eq(count, 2);
    asker_settle(&third, &of);
    check_ok(gpuipc_buffer_release(reply.buffer));
    asker_end(&third);
    asker_end(&client); /* the process has it open all the same */
    check_ok(gpuipc_server_holders(server, &of, holders, 2, &count));
    cr_assert(count == 1 && holders[0].openings == 1 && holders[0].is_running == 1);
    check_ok(gpuipc_buffer_release(second.buffer));
    cr_assert_eq(count_holders(&of), 0);
}

Test(server, holders_come_and_go) {
    const gpuipc_ticket of = asker_share(server, shared);
    asker_begin(&client, other, &of);
    for (int round = 0; round < 40; round++) {
        asker_reply open[3];
        for (int i = 0; i < 3; i++) {
            open[i] = asker_ask(&client, &of);
        }
        gpuipc_holder whom;
        size_t count;
        check_ok(gpuipc_server_holders(server, &of, &whom, 1, &count));
        cr_assert(count == 1 && whom.openings == 3, "%u in round %d", whom.openings, round);
        for (int i = 0; i < 3; i++) {
            check_ok(gpuipc_buffer_release(open[i].buffer));
        }
        asker_settle(&client, &of);
    }
    cr_assert_eq(count_holders(&of), 0);
}
