/* SPDX-License-Identifier: MIT */
/**
 * @file What another thread does in the midst of a call, at each of its locks in turn; and what the system answers at just
 * that moment. Some functions of the system's layer are wrapped (ld(1), --wrap), so that nothing depends on time.
 */
#include <string.h>

#include "asker.h"
#include "channel_case.h"
#include "cuda/context.h"
#include "query/nvml_library.h"
#include "thread_state.h"
#include "ticket/admission.h"
#include "ticket_server.h"

TestSuite(meanwhile, .init = core_start, .fini = core_finish, .timeout = 120);

/* ---- what is wrapped ----------------------------------------------------------------------------- */

/* Of the thread that makes the call. */
static struct {
    uint64_t thread; /* 0: nothing is done */
    unsigned at;     /* before this lock of the thread's, from 1 on */
    unsigned locks;
    void (*act)(void);
} moment;

static void note_lock(void) {
    if (moment.thread != 0 && moment.thread == thread_state_own_number() &&
        ++moment.locks == moment.at) {
        moment.act();
    }
}

void __real_os_mutex_lock(os_mutex *mutex);
void __wrap_os_mutex_lock(os_mutex *mutex);
void __wrap_os_mutex_lock(os_mutex *mutex) {
    note_lock();
    __real_os_mutex_lock(mutex);
}

void __real_os_static_mutex_lock(os_static_mutex *mutex);
void __wrap_os_static_mutex_lock(os_static_mutex *mutex);
void __wrap_os_static_mutex_lock(os_static_mutex *mutex) {
    note_lock();
    __real_os_static_mutex_lock(mutex);
}

static void (*when_connecting)(void);  /* this happens */
static gpuipc_status connecting_fails; /* and so nobody lets it in */

gpuipc_status __real_os_connection_open(const os_directory *directory, const char *name,
                                        os_deadline deadline, os_connection **out_connection);
gpuipc_status __wrap_os_connection_open(const os_directory *directory, const char *name,
                                        os_deadline deadline, os_connection **out_connection);
gpuipc_status __wrap_os_connection_open(const os_directory *directory, const char *name,
                                        os_deadline deadline, os_connection **out_connection) {
    if (when_connecting != NULL) {
        when_connecting();
    }
    if (connecting_fails != GPUIPC_OK) {
        return status_fail(connecting_fails, "nobody let it in");
    }
    return __real_os_connection_open(directory, name, deadline, out_connection);
}

static gpuipc_status sending_fails;

gpuipc_status __real_os_connection_send(os_connection *over, const void *bytes, size_t size,
                                        const os_handle *handles, size_t count,
                                        os_deadline deadline);
gpuipc_status __wrap_os_connection_send(os_connection *over, const void *bytes, size_t size,
                                        const os_handle *handles, size_t count,
                                        os_deadline deadline);
gpuipc_status __wrap_os_connection_send(os_connection *over, const void *bytes, size_t size,
                                        const os_handle *handles, size_t count,
                                        os_deadline deadline) {
    return sending_fails != GPUIPC_OK
               ? status_fail(sending_fails, "the system has no room for it")
               : __real_os_connection_send(over, bytes, size, handles, count, deadline);
}

static atomic_uint failing_waits;

gpuipc_status __real_os_poller_wait(os_poller *poller, os_deadline deadline, void **tags,
                                    size_t capacity, size_t *out_count);
gpuipc_status __wrap_os_poller_wait(os_poller *poller, os_deadline deadline, void **tags,
                                    size_t capacity, size_t *out_count);
gpuipc_status __wrap_os_poller_wait(os_poller *poller, os_deadline deadline, void **tags,
                                    size_t capacity, size_t *out_count) {
    if (atomic_load(&failing_waits) > 0) {
        atomic_fetch_sub(&failing_waits, 1u);
        return status_fail(GPUIPC_ERR_OUT_OF_MEMORY, "the system has no room for the list");
    }
    return __real_os_poller_wait(poller, deadline, tags, capacity, out_count);
}

static bool is_elsewhere; /* a server of this process is asked as one of another is */

struct server *__real_server_find(const uint8_t id[16]);
struct server *__wrap_server_find(const uint8_t id[16]);
struct server *__wrap_server_find(const uint8_t id[16]) {
    return is_elsewhere ? NULL : __real_server_find(id);
}

static bool cannot_duplicate;

gpuipc_status __real_os_handle_duplicate(os_handle of, os_handle *out_copy);
gpuipc_status __wrap_os_handle_duplicate(os_handle of, os_handle *out_copy);
gpuipc_status __wrap_os_handle_duplicate(os_handle of, os_handle *out_copy) {
    return cannot_duplicate ? status_fail(GPUIPC_ERR_TOO_MANY_HANDLES, "there is no handle left")
                            : __real_os_handle_duplicate(of, out_copy);
}

static bool user_is_unknown;

void __real_os_own_user(char *user, size_t capacity);
void __wrap_os_own_user(char *user, size_t capacity);
void __wrap_os_own_user(char *user, size_t capacity) {
    __real_os_own_user(user, capacity);
    if (user_is_unknown) {
        user[0] = '\0';
    }
}

static void (*when_loading)(void); /* once */

gpuipc_status __real_os_library_open_path(const char *path, os_library **out_library);
gpuipc_status __wrap_os_library_open_path(const char *path, os_library **out_library);
gpuipc_status __wrap_os_library_open_path(const char *path, os_library **out_library) {
    void (*what)(void) = when_loading;
    when_loading = NULL;
    if (what != NULL) {
        what();
    }
    return __real_os_library_open_path(path, out_library);
}

static const char *missing_symbol;

void *__real_os_library_symbol(os_library *library, const char *name);
void *__wrap_os_library_symbol(os_library *library, const char *name);
void *__wrap_os_library_symbol(os_library *library, const char *name) {
    return missing_symbol != NULL && strcmp(name, missing_symbol) == 0
               ? NULL
               : __real_os_library_symbol(library, name);
}

/* ---- another thread ------------------------------------------------------------------------------- */

static core_waiter other;
static bool has_acted;
static gpuipc_status (*others_call)(void *argument);
static void *others_argument;
static atomic_bool others_is_done;

static gpuipc_status make_others_call(void *argument) {
    const gpuipc_status status = others_call(argument);
    atomic_store(&others_is_done, true);
    return status;
}

/* It is through with its call, or waits for the thread whose moment this is. */
static void let_other_call(void) {
    has_acted = true;
    core_waiter_begin(&other, make_others_call, others_argument);
    while (!atomic_load(&others_is_done) && !thread_state_wait_asleep(other.number, 1)) {
    }
}

/* The call of this thread, when another one makes its own at that lock. */
static gpuipc_status at_lock(unsigned number, gpuipc_status (*call)(void)) {
    has_acted = false;
    atomic_store(&others_is_done, false);
    moment.act = let_other_call;
    moment.at = number;
    moment.locks = 0;
    moment.thread = thread_state_own_number();
    const gpuipc_status status = call();
    moment.thread = 0;
    if (has_acted) {
        check_ok(core_waiter_end(&other));
    }
    return status;
}

/* ---- a server that is destroyed -------------------------------------------------------------------- */

static gpuipc_server *server;
static gpuipc_buffer *slots;
static gpuipc_ticket given;
static gpuipc_buffer *opened;
static gpuipc_channel *channel;

static gpuipc_status destroy_server(void *of) {
    return gpuipc_server_destroy(of);
}

static gpuipc_status open_given(void) {
    return gpuipc_buffer_open(core_context, &given, NULL, &opened);
}

static gpuipc_status revoke_given(void) {
    return gpuipc_server_revoke(server, &given);
}

static gpuipc_status ask_for_holders(void) {
    size_t count;
    return gpuipc_server_holders(server, &given, NULL, 0, &count);
}

static gpuipc_status make_channel(void) {
    const gpuipc_channel_config config = {.struct_size = sizeof(config),
                                          .buffer = slots,
                                          .slot_bytes = CHANNEL_CASE_SLOT,
                                          .slots = 2,
                                          .name = "late"};
    gpuipc_ticket of;
    return gpuipc_channel_create(server, &config, &channel, &of);
}

/* Whatever the moment, the call works, or says by this status that the server is gone; in some, that it went meanwhile. */
static void server_goes_during(gpuipc_status (*call)(void), gpuipc_status gone) {
    unsigned were_late = 0;
    slots = core_buffer(core_unit, 0);
    others_call = destroy_server;
    for (unsigned number = 1; number == 1 || has_acted; number++) {
        server = asker_server(0);
        given = asker_share(server, slots);
        others_argument = server;
        const gpuipc_status status = at_lock(number, call);
        const char *sentence = gpuipc_error_get()->sentence;
        cr_assert(status == GPUIPC_OK || status == gone, "lock %u: %s: %s", number,
                  gpuipc_status_name(status), sentence);
        were_late += status == gone && strstr(sentence, "destroyed meanwhile") != NULL;
        check_ok(gpuipc_buffer_release(opened));
        check_ok(gpuipc_channel_destroy(channel));
        opened = NULL;
        channel = NULL;
        if (!has_acted) {
            check_ok(status);
            check_ok(gpuipc_server_destroy(server));
        }
    }
    cr_assert_gt(were_late, 0);
    check_ok(gpuipc_buffer_release(slots));
}

Test(meanwhile, a_server_goes_while_its_own_process_opens_a_ticket) {
    server_goes_during(open_given, GPUIPC_ERR_EXPORTER_GONE);
}

Test(meanwhile, a_server_goes_while_a_ticket_is_revoked) {
    server_goes_during(revoke_given, GPUIPC_ERR_RELEASED);
}

Test(meanwhile, a_server_goes_while_it_is_asked_for_holders) {
    server_goes_during(ask_for_holders, GPUIPC_ERR_RELEASED);
}

Test(meanwhile, a_server_goes_while_a_channel_gets_its_name) {
    server_goes_during(make_channel, GPUIPC_ERR_RELEASED);
}

/* ---- a context that is destroyed ------------------------------------------------------------------- */

static gpuipc_context *second;

static gpuipc_status destroy_context(void *of) {
    return gpuipc_context_destroy(of);
}

static void let_second_go(void) {
    when_connecting = NULL;
    core_waiter_begin(&other, destroy_context, second);
    check_ok(core_waiter_end(&other));
}

Test(meanwhile, a_context_goes_while_nobody_lets_its_question_in) {
    gpuipc_subscription *none = NULL;
    second = core_context_new();
    when_connecting = let_second_go;
    connecting_fails = GPUIPC_ERR_TIMEOUT;
    check_refused(GPUIPC_ERR_RELEASED, "destroyed meanwhile",
                  gpuipc_subscription_open_named(second, "nobodys", NULL, &none));
    cr_assert_null(none);
}

static gpuipc_status open_in_second(void) {
    return gpuipc_buffer_open(second, &given, NULL, &opened);
}

/* As of another process: by its server, which goes on. */
Test(meanwhile, a_context_goes_while_it_opens_a_ticket) {
    unsigned were_late = 0;
    slots = core_buffer(core_unit, 0);
    server = asker_server(GPUIPC_SERVER_THREAD);
    given = asker_share(server, slots);
    others_call = destroy_context;
    is_elsewhere = true;
    for (unsigned number = 1; number == 1 || has_acted; number++) {
        second = core_context_new();
        others_argument = second;
        const gpuipc_status status = at_lock(number, open_in_second);
        cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_RELEASED, "lock %u: %s: %s", number,
                  gpuipc_status_name(status), gpuipc_error_get()->sentence);
        were_late += status != GPUIPC_OK;
        check_ok(gpuipc_buffer_release(opened));
        opened = NULL;
        if (!has_acted) {
            check_ok(status);
            check_ok(gpuipc_context_destroy(second));
        }
    }
    cr_assert_gt(were_late, 0);
    is_elsewhere = false;
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(slots));
}

/* The context is given up while its first connection to the server is made. */
Test(meanwhile, a_context_goes_while_it_connects_to_a_server) {
    ticket_server by_hand;
    second = core_context_new();
    slots = core_buffer(core_unit, 0);
    ticket_server_open(&by_hand, core_context, slots);
    given = ticket_server_ticket(&by_hand, 0, core_unit);
    when_connecting = let_second_go;
    check_refused(GPUIPC_ERR_RELEASED, "destroyed meanwhile",
                  gpuipc_buffer_open(second, &given, NULL, &opened));
    ticket_server_close(&by_hand);
    check_ok(gpuipc_buffer_release(slots));
}

Test(meanwhile, a_server_that_lets_nobody_in_is_busy) {
    ticket_server by_hand;
    slots = core_buffer(core_unit, 0);
    ticket_server_open(&by_hand, core_context, slots);
    given = ticket_server_ticket(&by_hand, 0, core_unit);
    connecting_fails = GPUIPC_ERR_PEER_CLOSED;
    check_status(GPUIPC_ERR_SERVER_BUSY, open_given());
    connecting_fails = GPUIPC_OK;
    ticket_server_close(&by_hand);
    check_ok(gpuipc_buffer_release(slots));
}

/* ---- what the system does not do ------------------------------------------------------------------- */

/* The name is asked for in a directory that is the same, and has another name: else it is found here. */
Test(meanwhile, a_question_for_a_name_that_cannot_be_sent) {
    char same[RUNTIME_DIRECTORY_MAX + 2];
    gpuipc_context_config config = core_context_config();
    gpuipc_subscription *none = NULL;
    (void)snprintf(same, sizeof(same), "%s/.", core_directory);
    config.runtime_directory = same;
    check_ok(gpuipc_context_create(&config, &second));
    slots = core_buffer(core_unit, 0);
    server = asker_server(GPUIPC_SERVER_THREAD);
    check_ok(make_channel());
    sending_fails = GPUIPC_ERR_OUT_OF_MEMORY;
    check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "no room",
                  gpuipc_subscription_open_named(second, "late", NULL, &none));
    sending_fails = GPUIPC_ERR_PEER_CLOSED; /* which may have said why: it is heard */
    const gpuipc_subscription_config soon = {.struct_size = sizeof(soon), .timeout_ms = 50};
    check_status(GPUIPC_ERR_TIMEOUT, gpuipc_subscription_open_named(second, "late", &soon, &none));
    sending_fails = GPUIPC_OK;
    check_ok(gpuipc_subscription_open_named(second, "late", NULL, &none));
    check_ok(gpuipc_subscription_close(none));
    check_ok(gpuipc_channel_destroy(channel));
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(slots));
    check_ok(gpuipc_context_destroy(second));
}

static atomic_uint warnings;

static void hear(void *user_data, gpuipc_log_level level, const char *sentence) {
    (void)user_data;
    if (level == GPUIPC_LOG_WARNING &&
        strstr(sentence, "cannot wait for clients: the system has no room") != NULL) {
        atomic_fetch_add(&warnings, 1u);
    }
}

Test(meanwhile, a_server_that_cannot_wait_says_so_and_tries_again) {
    const gpuipc_server_config how = {.struct_size = sizeof(how), .flags = GPUIPC_SERVER_THREAD};
    gpuipc_context_config config = core_context_config();
    asker client;
    config.log = hear;
    check_ok(gpuipc_context_create(&config, &second));
    atomic_store(&failing_waits, 2u);
    check_ok(gpuipc_server_create(second, &how, &server));
    const gpuipc_buffer_config of = {.struct_size = sizeof(of), .bytes = core_unit};
    check_ok(gpuipc_buffer_create(second, &of, &opened));
    given = asker_share(server, opened);
    asker_begin(&client, core_context, &given);
    cr_assert_eq(asker_answer(&client, &given), WIRE_GRANTED);
    cr_assert_eq(atomic_load(&warnings), 2);
    asker_end(&client);
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(opened));
    check_ok(gpuipc_context_destroy(second));
}

Test(meanwhile, a_user_who_is_not_known_stands_in_no_ticket) {
    user_is_unknown = true;
    cr_assert_eq(ticket_user(), 0);
    user_is_unknown = false;
    cr_assert_neq(ticket_user(), 0);
}

/* Whose directory it is cannot be compared then. */
Test(meanwhile, a_ticket_of_another_user_for_one_who_is_not_known) {
    slots = core_buffer(core_unit, 0);
    server = asker_server(0);
    const gpuipc_ticket made = asker_share(server, slots);
    ticket theirs = asker_decode(&made);
    theirs.server_id[0] ^= 1;
    theirs.user ^= 1;
    theirs.user += theirs.user == 0;
    ticket_encode(&theirs, &given);
    check_status(GPUIPC_ERR_TICKET_OTHER_USER, open_given());
    user_is_unknown = true;
    check_status(GPUIPC_ERR_EXPORTER_GONE, open_given());
    user_is_unknown = false;
    check_ok(gpuipc_server_destroy(server));
    check_ok(gpuipc_buffer_release(slots));
}

Test(meanwhile, a_process_whose_handle_cannot_be_kept_is_not_known) {
    known_processes all = {.in_turn = {0}};
    known_process *known = NULL;
    os_peer self;
    check_ok(os_peer_self(&self));
    cannot_duplicate = true;
    check_refused(GPUIPC_ERR_TOO_MANY_HANDLES, "no handle left",
                  known_process_get(&all, &self, NULL, &known));
    cannot_duplicate = false;
    cr_assert(known == NULL && all.by_number.count == 0 && all.in_turn.count == 0);
    check_ok(known_process_get(&all, &self, NULL, &known));
    known_process_unreference(known, false);
    known_processes_destroy(&all);
    os_peer_close(&self);
}

/* ---- a library that two threads load --------------------------------------------------------------- */

static const nvml *found_first;

static gpuipc_status find_nvml(void *drv) {
    found_first = nvml_find(drv);
    return GPUIPC_OK;
}

static void find_nvml_first(void) {
    core_waiter_begin(&other, find_nvml, (void *)(uintptr_t)core_driver());
    check_ok(core_waiter_end(&other));
}

Test(meanwhile, another_thread_has_loaded_nvml_first) {
    core_need_emulated();
    when_loading = find_nvml_first;
    const nvml *found = nvml_find(core_driver());
    cr_assert_not_null(found_first);
    cr_assert_eq(found, found_first);
}

Test(meanwhile, a_library_without_what_nvml_begins_with_is_none) {
    core_need_emulated();
    missing_symbol = "nvmlInit_v2";
    cr_assert_null(nvml_find(core_driver()));
    missing_symbol = NULL;
    cr_assert_null(nvml_find(core_driver()), "it is looked for once");
}

Test(meanwhile, a_library_that_finds_no_device_by_its_uuid_is_no_nvml) {
    core_need_emulated();
    missing_symbol = "nvmlDeviceGetHandleByUUID";
    cr_assert_null(nvml_find(core_driver()));
    missing_symbol = NULL;
}
