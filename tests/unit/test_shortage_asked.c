/* SPDX-License-Identifier: MIT */
/** @file What a server is asked for, and whom it admits, while each allocation, and then each call of the driver, fails in
 *  turn. The server is in this process, and is asked as one of another process is. */
#include "shortage_case.h"

#include "../fault/allocation.h"
#include "core_fixture.h"
#include "message/wire.h"
#include "ticket/server.h"

static gpuipc_server *threaded;
static gpuipc_buffer *slots;
static gpuipc_buffer *opened;
static gpuipc_share_config sharing;

static void start(void) {
    core_start();
    core_need_emulated();
    slots = core_buffer(core_unit, 0);
}

static void finish(void) {
    check_ok(gpuipc_buffer_release(slots));
    core_finish();
}

TestSuite(shortage_asked, .init = start, .fini = finish, .timeout = 120);

static bool is_elsewhere;

server *__real_server_find(const uint8_t id[16]);
server *__wrap_server_find(const uint8_t id[16]);
server *__wrap_server_find(const uint8_t id[16]) {
    return is_elsewhere ? NULL : __real_server_find(id);
}

static gpuipc_ticket asked_for;

static void serve_share(void) {
    const gpuipc_server_config how = {.struct_size = sizeof(how), .flags = GPUIPC_SERVER_THREAD};
    check_ok(gpuipc_server_create(core_context, &how, &threaded));
    check_ok(gpuipc_buffer_share(threaded, slots, &sharing, &asked_for));
    is_elsewhere = true;
}

static gpuipc_status open_by_asking(void) {
    const gpuipc_open_config how = {.struct_size = sizeof(how), .timeout_ms = SOON_MS};
    return gpuipc_buffer_open(core_context, &asked_for, &how, &opened);
}

static void end_share(void) {
    is_elsewhere = false;
    check_ok(gpuipc_buffer_release(opened));
    opened = NULL;
    check_ok(gpuipc_server_destroy(threaded));
}

static const shortage_operation asked = {serve_share, open_by_asking, end_share};

Test(shortage_asked, a_ticket_that_a_server_is_asked_for) {
    sharing = (gpuipc_share_config){.struct_size = sizeof(sharing),
                                    .max_processes = 2,
                                    .attachment = "said",
                                    .attachment_bytes = 4};
    shortage_in_turn(&asked);
}

Test(shortage_asked, a_ticket_for_once_that_a_server_is_asked_for) {
    sharing = (gpuipc_share_config){.struct_size = sizeof(sharing), .flags = GPUIPC_SHARE_ONE_SHOT};
    shortage_in_turn(&asked);
}

/* What is made first after the answer was read is the room for what comes with it. */
static bool is_answer_read;

gpuipc_status __real_wire_decode_reply(const uint8_t *at, size_t size, wire_reply *out_record);
gpuipc_status __wrap_wire_decode_reply(const uint8_t *at, size_t size, wire_reply *out_record);
gpuipc_status __wrap_wire_decode_reply(const uint8_t *at, size_t size, wire_reply *out_record) {
    is_answer_read = true;
    return __real_wire_decode_reply(at, size, out_record);
}

static bool is_answer_known(void) {
    return is_answer_read;
}

Test(shortage_asked, an_attachment_that_there_is_no_room_for) {
    int64_t live;
    sharing = (gpuipc_share_config){
        .struct_size = sizeof(sharing), .attachment = "said", .attachment_bytes = 4};
    serve_share();
    is_answer_read = false;
    allocation_watch_asked(is_answer_known);
    check_status(GPUIPC_ERR_OUT_OF_MEMORY, open_by_asking());
    (void)allocation_unwatch(&live);
    check_ok(open_by_asking());
    end_share();
}

/* What came and could not be named is kept, since its server gives it once. */
static bool cannot_be_named;

gpuipc_status __real_buffer_publish_held(buffer *self, gpuipc_buffer **out_buffer);
gpuipc_status __wrap_buffer_publish_held(buffer *self, gpuipc_buffer **out_buffer);
gpuipc_status __wrap_buffer_publish_held(buffer *self, gpuipc_buffer **out_buffer) {
    return cannot_be_named ? status_out_of_memory(1) : __real_buffer_publish_held(self, out_buffer);
}

Test(shortage_asked, what_is_given_once_and_cannot_be_named_is_kept) {
    sharing = (gpuipc_share_config){.struct_size = sizeof(sharing), .flags = GPUIPC_SHARE_ONE_SHOT};
    core_write_pattern(slots, 9);
    serve_share();
    cannot_be_named = true;
    check_status(GPUIPC_ERR_OUT_OF_MEMORY, open_by_asking());
    cr_assert_null(opened);
    cannot_be_named = false;
    check_ok(open_by_asking());
    core_check_pattern(opened, 9);
    end_share();
}

static gpuipc_status know_and_admit(void) {
    const os_peer peer = {.process_id = 7, .process = OS_HANDLE_NONE};
    known_processes all = {.in_turn = {0}};
    known_process *known = NULL;
    admission *to = NULL;
    admitted *entry = NULL;
    gpuipc_status status = known_process_get(&all, &peer, NULL, &known);
    if (status == GPUIPC_OK) {
        status = admission_new(&to);
    }
    if (status == GPUIPC_OK) {
        status = admission_add(to, known, &entry);
    }
    if (status == GPUIPC_OK) {
        cr_assert_eq(admission_find(to, known), entry);
    }
    admission_destroy(to, false);
    known_process_unreference(known, false);
    known_processes_destroy(&all);
    return status;
}

Test(shortage_asked, a_process_that_is_admitted) {
    const shortage_operation what = {.run = know_and_admit};
    shortage_of_memory(&what);
}

static gpuipc_status make_page(context *ctx, const os_peer *peer, point_page **out_page) {
    point_peer *of = NULL;
    gpuipc_status status = point_peer_new(ctx, peer, NULL, &of);
    if (status == GPUIPC_OK) {
        status = point_page_create(ctx, of, out_page);
    }
    const gpuipc_error why = status_save();
    point_peer_unreference(of, false);
    status_restore(&why);
    return status;
}

/* A share for two processes, of which one asks; and for one, which gets it. */
static gpuipc_status ask_and_settle(void) {
    const os_peer peer = {.process_id = 7, .process = OS_HANDLE_NONE};
    ticket wanted;
    holder *by = NULL;
    point_page *page = NULL; /* the client's, where what it got is returned */
    wire_answer answer;
    share_grant grant;
    check_ok(ticket_decode(&asked_for, &wanted));
    server *of = __real_server_find(wanted.server_id);
    gpuipc_status status = share_enter(&of->shares, &peer, &by);
    if (status == GPUIPC_OK) {
        by->peer = &peer;
        status = share_ask(&of->shares, &wanted, by, &answer, &grant);
        if (status == GPUIPC_OK) {
            cr_assert_eq(answer, WIRE_GRANTED);
            status = make_page(of->context, &peer, &page);
            share_settle(&of->shares, &grant, page != NULL, &(point){.page = page, .value = 2});
        }
        const gpuipc_error why = status_save();
        share_leave(&of->shares, by);
        status_restore(&why);
    }
    const gpuipc_error why = status_save();
    object_unreference(&of->object);
    status_restore(&why);
    return status;
}

static void serve_polled(void) {
    check_ok(gpuipc_server_create(core_context, NULL, &threaded));
    check_ok(gpuipc_buffer_share(threaded, slots, &sharing, &asked_for));
}

static void end_polled(void) {
    check_ok(gpuipc_server_destroy(threaded));
}

static const shortage_operation granted = {serve_polled, ask_and_settle, end_polled};

Test(shortage_asked, a_share_for_few_processes_that_one_asks_for) {
    sharing = (gpuipc_share_config){.struct_size = sizeof(sharing), .max_processes = 2};
    shortage_of_memory(&granted);
}

Test(shortage_asked, a_share_for_once_that_one_asks_for) {
    sharing = (gpuipc_share_config){.struct_size = sizeof(sharing), .flags = GPUIPC_SHARE_ONE_SHOT};
    shortage_of_memory(&granted);
}
