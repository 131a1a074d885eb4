/* SPDX-License-Identifier: MIT */
/** @file Every call of the system fails in turn, while two ends find each other and exchange handles:
 *  the status says why, nothing is left behind, nothing is closed twice, and the next try works. */
#include <string.h>

#include "check.h"
#include "leak_gate.h"
#include "os_pair.h"
#include "win32_raw.h"
#include "win32_record.h"

TestSuite(win32_fault, .timeout = 110);

/** How far a conversation came, and why it ended there. */
typedef struct outcome {
    const char *step;
    gpuipc_error error;
} outcome;

typedef struct conversation {
    os_pair *pair;
    os_handle object;
    os_handle came[OS_PACKET_HANDLES_MAX];
    size_t count;
} conversation;

static gpuipc_status look_at(os_connection *connection) {
    os_peer peer;
    gpuipc_status status = os_connection_get_peer(connection, &peer);
    if (status == GPUIPC_OK) {
        os_peer_close(&peer);
    }
    return status;
}

static gpuipc_status step_listen(conversation *self) {
    return os_listener_open(&self->pair->directory, self->pair->name, NULL, &self->pair->listener);
}

static gpuipc_status step_connect(conversation *self) {
    return os_connection_open(&self->pair->directory, self->pair->name, os_deadline_after(0),
                              &self->pair->client);
}

static gpuipc_status step_accept(conversation *self) {
    return os_listener_accept(self->pair->listener, os_deadline_after(SOON_MS),
                              &self->pair->server);
}

static gpuipc_status step_look(conversation *self) {
    gpuipc_status status = look_at(self->pair->client);
    return status == GPUIPC_OK ? look_at(self->pair->server) : status;
}

static gpuipc_status step_make(conversation *self) {
    return os_memory_create("test", 4096, &self->object);
}

static gpuipc_status step_send(conversation *self) {
    const os_handle handles[] = {self->object, self->object};
    return os_connection_send(self->pair->client, "x", 1, handles, 2, os_deadline_after(SOON_MS));
}

static gpuipc_status step_receive(conversation *self) {
    char byte;
    size_t size;
    gpuipc_status status = os_connection_receive(self->pair->server, &byte, 1, &size, self->came,
                                                 &self->count, os_deadline_after(SOON_MS));
    if (status == GPUIPC_OK) {
        os_pair_close_handles(self->came, self->count);
    }
    return status;
}

static const struct {
    const char *name;
    gpuipc_status (*run)(conversation *self);
} steps[] = {{"listen", step_listen},  {"connect", step_connect}, {"accept", step_accept},
             {"look", step_look},      {"make", step_make},       {"send", step_send},
             {"receive", step_receive}};

/** A whole conversation, up to the step that fails; everything is closed again. The receiver first:
 *  what it did not take its sender, which is still there, closes. */
static outcome converse(os_pair *pair) {
    conversation self = {.pair = pair, .object = OS_HANDLE_NONE};
    outcome result = {.step = "end"};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (steps[i].run(&self) != GPUIPC_OK) {
            result = (outcome){steps[i].name, *gpuipc_error_get()};
            break;
        }
    }
    os_handle_close(&self.object);
    os_pair_close_server(pair);
    os_pair_close_client(pair);
    if (pair->listener != NULL) {
        os_listener_destroy(pair->listener);
        pair->listener = NULL;
    }
    return result;
}

#define FAILURE ERROR_NO_SYSTEM_RESOURCES /* to the library: out of memory */

/** Calls whose failure has another consequence than "out of memory". */
static const struct {
    record_function function;
    size_t first;
    size_t last;
    gpuipc_status expected;
} exceptions[] = {
    /* An instance in the place of one that was accepted is tried again at the next accept. */
    {RECORD_ConnectNamedPipe, 9, 10, GPUIPC_OK},
    {RECORD_CreateNamedPipeW, 9, 10, GPUIPC_OK},
    /* At the end: whether the other end is closed. */
    {RECORD_PeekNamedPipe, 1, 4, GPUIPC_OK},
    /* At the end the receiver looks for what has come. */
    {RECORD_ReadFile, 3, 4, GPUIPC_OK},
    /* A handle that it cannot be done to is not open. */
    {RECORD_SetHandleInformation, 1, 3, GPUIPC_ERR_PROTOCOL},
    /* The operation that was waited for had ended. */
    {RECORD_WaitForMultipleObjects, 1, 4, GPUIPC_OK},
};

static gpuipc_status expected_of(record_function function, size_t number) {
    for (size_t i = 0; i < sizeof(exceptions) / sizeof(exceptions[0]); i++) {
        if (exceptions[i].function == function && number >= exceptions[i].first &&
            number <= exceptions[i].last) {
            return exceptions[i].expected;
        }
    }
    return GPUIPC_ERR_OUT_OF_MEMORY;
}

static void check_outcome(const outcome *result, record_function function, size_t number) {
    const gpuipc_status expected = expected_of(function, number);
    cr_assert_eq(result->error.status, expected, "%s %zu: %s (%s), not %s, at \"%s\"",
                 record_name(function), number, gpuipc_status_name(result->error.status),
                 result->error.sentence, gpuipc_status_name(expected), result->step);
    if (expected != GPUIPC_OK && expected != GPUIPC_ERR_PEER_CLOSED) {
        cr_assert_eq(result->error.native_code, FAILURE);
        cr_assert(strlen(result->error.sentence) > 0);
        cr_assert(strlen(result->error.native_call) > 0);
    }
}

/** Until there are no more of them: the last conversation is one without a failure. */
static void fail_each_call_of(record_function function) {
    os_pair pair;
    size_t calls;
    size_t number = 0;
    os_pair_name(&pair);
    do {
        leak_gate gate;
        number++;
        leak_gate_begin(&gate);
        record_begin();
        record_fail(function, number, FAILURE);
        outcome result = converse(&pair);
        calls = record_count(function);
        cr_assert_eq(record_bad_closes(), 0, "%s %zu", record_name(function), number);
        record_end();
        cr_assert_eq(leak_gate_end(&gate), 0, "%s %zu: %s", record_name(function), number,
                     gate.text);
        if (calls >= number) {
            check_outcome(&result, function, number);
        } else {
            cr_assert_eq(result.error.status, GPUIPC_OK, "%s", result.error.sentence);
            cr_assert_str_eq(result.step, "end");
        }
    } while (calls >= number);
    cr_assert_gt(number, 1, "%s was not called", record_name(function));
    runtime_directory_remove(pair.path);
}

/* Each in a process of its own, so that what is kept from the first use on is made there. */
#define FAULT_TEST(name)                                                                           \
    Test(win32_fault, each_call_of_##name) {                                                       \
        fail_each_call_of(RECORD_##name);                                                          \
    }

FAULT_TEST(ConnectNamedPipe)
FAULT_TEST(CreateDirectoryW)
FAULT_TEST(CreateEventW)
FAULT_TEST(CreateFileMappingW)
FAULT_TEST(CreateFileW)
FAULT_TEST(CreateNamedPipeW)
FAULT_TEST(DuplicateHandle)
FAULT_TEST(GetFileInformationByHandle)
FAULT_TEST(GetNamedPipeClientProcessId)
FAULT_TEST(GetNamedPipeServerProcessId)
FAULT_TEST(GetSecurityInfo)
FAULT_TEST(GetTokenInformation)
FAULT_TEST(IsWow64Process)
FAULT_TEST(MapViewOfFile)
FAULT_TEST(OpenProcess)
FAULT_TEST(OpenProcessToken)
FAULT_TEST(PeekNamedPipe)
FAULT_TEST(ReadFile)
FAULT_TEST(SetEndOfFile)
FAULT_TEST(SetHandleInformation)
FAULT_TEST(SetNamedPipeHandleState)
FAULT_TEST(WaitForMultipleObjects)
FAULT_TEST(WriteFile)

Test(win32_fault, a_listener_that_cannot_be_waited_for) {
    leak_gate gate;
    os_pair pair;
    leak_gate_begin(&gate);
    os_pair_listen(&pair);
    record_begin();
    record_fail(RECORD_WaitForMultipleObjects, 1, FAILURE);
    check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "waited for",
                  os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
    record_end();
    check_ok(
        os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS), &pair.client));
    check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &pair.server));
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/* A wait that fails while a packet is on its way takes the packet back. */
Test(win32_fault, an_operation_that_cannot_be_waited_for_is_taken_back) {
    leak_gate gate;
    os_pair pair;
    char byte;
    size_t size;
    size_t count;
    os_handle came[OS_PACKET_HANDLES_MAX];
    leak_gate_begin(&gate);
    os_pair_open(&pair);
    record_begin();
    record_fail(RECORD_WaitForMultipleObjects, 1, FAILURE);
    check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "received",
                  os_connection_receive(pair.server, &byte, 1, &size, came, &count,
                                        os_deadline_after(SOON_MS)));
    record_end();
    check_ok(os_connection_send(pair.client, "x", 1, NULL, 0, os_deadline_after(SOON_MS)));
    check_ok(os_connection_receive(pair.server, &byte, 1, &size, came, &count,
                                   os_deadline_after(SOON_MS)));
    cr_assert_eq(byte, 'x');
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/* A place in the row of those that wait, which could not be filled, is filled by the next accept. */
Test(win32_fault, instances_of_the_pipe_that_could_not_be_made_are_made_later) {
    enum {
        BACKLOG = 8
    };
    leak_gate gate;
    os_pair pair;
    os_connection *clients[2 * BACKLOG];
    os_connection *servers[2 * BACKLOG];
    leak_gate_begin(&gate);
    os_pair_listen(&pair);
    record_begin();
    record_fail(RECORD_CreateNamedPipeW, 0, FAILURE);
    for (size_t i = 0; i < BACKLOG; i++) {
        check_ok(os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS),
                                    &clients[i]));
        check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &servers[i]));
    }
    /* None is left: that is an error, and not a wait for ever. */
    check_status(GPUIPC_ERR_OUT_OF_MEMORY,
                 os_listener_accept(pair.listener, os_deadline_after(-1), &pair.server));
    record_end();
    check_status(GPUIPC_ERR_TIMEOUT,
                 os_listener_accept(pair.listener, os_deadline_after(0), &pair.server));
    for (size_t i = BACKLOG; i < 2 * BACKLOG; i++) {
        check_ok(os_connection_open(&pair.directory, pair.name, os_deadline_after(0), &clients[i]));
    }
    for (size_t i = BACKLOG; i < 2 * BACKLOG; i++) {
        check_ok(os_listener_accept(pair.listener, os_deadline_after(SOON_MS), &servers[i]));
    }
    for (size_t i = 0; i < 2 * BACKLOG; i++) {
        os_connection_destroy(clients[i]);
        os_connection_destroy(servers[i]);
    }
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/* ---- pollers ------------------------------------------------------------------------------- */

static size_t poll_now(os_poller *poller, void **tag) {
    size_t count = 77;
    check_ok(os_poller_wait(poller, os_deadline_after(0), tag, 1, &count));
    return count;
}

Test(win32_fault, a_poller_that_cannot_be_made_or_waited_for) {
    leak_gate gate;
    os_poller *poller = NULL;
    void *tag;
    size_t count = 77;
    leak_gate_begin(&gate);
    record_begin();
    record_fail(RECORD_CreateEventW, 1, ERROR_TOO_MANY_OPEN_FILES);
    check_status(GPUIPC_ERR_TOO_MANY_HANDLES, os_poller_create(&poller));
    cr_assert_null(poller);
    check_ok(os_poller_create(&poller));
    record_fail(RECORD_WaitForSingleObject, 1, FAILURE);
    check_refused(GPUIPC_ERR_OUT_OF_MEMORY, "waited for",
                  os_poller_wait(poller, os_deadline_after(SOON_MS), &tag, 1, &count));
    cr_assert_eq(count, 77);
    record_end();
    os_poller_wake(poller);
    cr_assert_eq(poll_now(poller, &tag), 1);
    os_poller_destroy(poller);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/* Who receives is told why, or finds that it has passed. */
Test(win32_fault, a_connection_that_cannot_be_waited_for_is_ready) {
    leak_gate gate;
    os_pair pair;
    os_poller *poller;
    void *tag;
    char byte;
    size_t size;
    size_t count;
    os_handle came[OS_PACKET_HANDLES_MAX];
    leak_gate_begin(&gate);
    os_pair_open(&pair);
    check_ok(os_poller_create(&poller));
    check_ok(os_poller_add_connection(poller, pair.server, &pair));
    record_begin();
    record_fail(RECORD_ReadFile, 1, FAILURE);
    cr_assert_eq(poll_now(poller, &tag), 1);
    cr_assert_eq(tag, &pair);
    record_end();
    check_status(GPUIPC_ERR_TIMEOUT, os_connection_receive(pair.server, &byte, 1, &size, came,
                                                           &count, os_deadline_after(0)));
    cr_assert_eq(poll_now(poller, &tag), 0);
    check_ok(os_connection_send(pair.client, "x", 1, NULL, 0, os_deadline_after(0)));
    cr_assert_eq(poll_now(poller, &tag), 1);
    check_ok(
        os_connection_receive(pair.server, &byte, 1, &size, came, &count, os_deadline_after(0)));
    os_poller_destroy(poller);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(win32_fault, a_listener_that_no_client_can_reach_is_ready_to_say_so) {
    leak_gate gate;
    os_pair pair;
    os_poller *poller;
    void *tag;
    leak_gate_begin(&gate);
    os_pair_listen(&pair);
    check_ok(os_poller_create(&poller));
    record_begin();
    record_fail(RECORD_ConnectNamedPipe, 0, FAILURE);
    check_ok(os_poller_add_listener(poller, pair.listener, &pair));
    cr_assert_eq(poll_now(poller, &tag), 1);
    check_status(GPUIPC_ERR_OUT_OF_MEMORY,
                 os_listener_accept(pair.listener, os_deadline_after(0), &pair.server));
    record_end();
    os_listener_refuse(pair.listener); /* makes new ones */
    cr_assert_eq(poll_now(poller, &tag), 0);
    check_ok(
        os_connection_open(&pair.directory, pair.name, os_deadline_after(SOON_MS), &pair.client));
    cr_assert_eq(poll_now(poller, &tag), 1);
    check_ok(os_listener_accept(pair.listener, os_deadline_after(0), &pair.server));
    os_poller_destroy(poller);
    os_pair_close(&pair);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

/** Just before a read is started, which resets the event, something comes for one that was looked at. */
static bool send_before(void *user_data, record_call *call, size_t number) {
    (void)call;
    if (number == 1) {
        check_ok(os_connection_send(user_data, "x", 1, NULL, 0, os_deadline_after(0)));
    }
    return false;
}

Test(win32_fault, what_comes_while_another_reading_is_started_is_not_missed) {
    os_pair first;
    os_pair second;
    os_poller *poller;
    void *tag = NULL;
    size_t count = 0;
    os_pair_open(&first);
    os_pair_open(&second);
    check_ok(os_poller_create(&poller));
    check_ok(os_poller_add_connection(poller, first.server, &first));
    cr_assert_eq(poll_now(poller, &tag), 0);
    check_ok(os_poller_add_connection(poller, second.server, &second));
    record_begin();
    record_answer(RECORD_ReadFile, send_before, first.client);
    uint64_t start = os_clock_ns();
    check_ok(os_poller_wait(poller, os_deadline_after(SOON_MS), &tag, 1, &count));
    cr_assert((os_clock_ns() - start) / 1000000 < SOON_MS / 2, "found at the end of the time only");
    cr_assert_eq(record_count(RECORD_ReadFile), 1);
    record_end();
    cr_assert_eq(count, 1);
    cr_assert_eq(tag, &first);
    os_poller_destroy(poller);
    os_pair_close(&first);
    os_pair_close(&second);
}
