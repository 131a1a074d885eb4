/* SPDX-License-Identifier: MIT */
/** @file See hostile.h. */
#include "hostile.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocated.h"
#include "check.h"
#include "form.h"
#include "marks.h"
#include "raw_handle.h"

#define SHORT_ROUNDS 2
#define FULL_ROUNDS  1000
/* So much more may be allocated after all rounds than after half of them: lists that grow by doubling. What 500 rounds
 * leave of 32 bytes each is seen; in fewer it is LeakSanitizer's to see. */
#define GROWTH_ROUNDS 100
#define GROWTH_BYTES  16000

static gpuipc_context_config ground_config(void) {
    return (gpuipc_context_config){.struct_size = sizeof(gpuipc_context_config),
                                   .max_buffers_per_message = HOSTILE_BUFFERS_MAX,
                                   .max_handles_per_message = HOSTILE_HANDLES_MAX};
}

void hostile_begin(hostile_ground *self) {
    const gpuipc_context_config config = ground_config();
    *self = (hostile_ground){.patience_ms = PATIENCE_MS, .back_ms = BACK_MS};
    process_case_begin(&self->at, &config);
    self->buffer = process_case_buffer(&self->at, 0, MEBIBYTES_2, 0, 1, 0);
    honest_begin(&self->honest, &self->at);
    honest_is_served(&self->honest, &self->at, self->buffer, &self->honest.before);
}

void hostile_end_all(hostile_ground *self) {
    honest_end(&self->honest);
    check_ok(gpuipc_buffer_release(self->buffer));
    process_case_end(&self->at);
}

/* ---- what an act does ------------------------------------------------------------------------ */

void hostile_send_bytes(hostile_peer *self, const void *bytes, size_t size, size_t handles) {
    cr_assert(raw_send(self->raw, bytes, size, self->packet.handles, handles));
}

void hostile_send(hostile_peer *self) {
    raw_packet_encode(&self->packet);
    hostile_send_bytes(self, self->packet.bytes, sizeof(self->packet.bytes),
                       self->packet.handle_count);
}

static void act(const hostile_case *of, hostile_peer *peer) {
    if (of->act != NULL) {
        of->act(peer);
    } else if (of->spoil != NULL) {
        of->spoil(&peer->packet);
        hostile_send(peer);
    } else {
        peer->packet.bytes[of->at] = of->value;
        hostile_send_bytes(peer, peer->packet.bytes, sizeof(peer->packet.bytes), 1);
    }
}

/* Once. */
static void undo(const hostile_case *of, hostile_peer *peer) {
    if (of->undo != NULL && !peer->is_undone) {
        peer->is_undone = true;
        of->undo(peer);
    }
}

/* ---- the two ends ---------------------------------------------------------------------------- */

void hostile_meet(hostile_ground *on, hostile_role role, hostile_peer *out_peer) {
    memset(out_peer, 0, sizeof(*out_peer));
    out_peer->buffer = on->buffer;
    out_peer->at = &on->at;
    out_peer->next = 1;
    out_peer->kept = RAW_HANDLE_NONE;
    if (role == HOSTILE_CONNECTS) {
        out_peer->raw = raw_connect(on->at.directory, on->at.name);
        cr_assert_neq(out_peer->raw, NULL);
        out_peer->connection = process_case_accept(&on->at);
    } else {
        char name[UNIQUE_NAME_MAX];
        unique_name(name);
        raw_listener *listener = raw_listen(on->at.directory, name);
        cr_assert_neq(listener, NULL);
        check_ok(
            gpuipc_connection_open(on->at.context, name, NULL, PATIENCE_MS, &out_peer->connection));
        out_peer->raw = raw_accept(listener, PATIENCE_MS);
        cr_assert_neq(out_peer->raw, NULL);
        raw_listener_close(listener);
    }
    cr_assert(raw_packet_make(on->buffer, &out_peer->packet));
}

void hostile_part(hostile_peer *peer) {
    raw_packet_close(&peer->packet);
    check_ok(gpuipc_connection_close(peer->connection));
    raw_close(peer->raw);
}

/* ---- what the library makes of it ------------------------------------------------------------ */

static bool wrong(hostile_verdict *verdict, const char *format, ...) GPUIPC_PRINTF(2, 3);
static bool wrong(hostile_verdict *verdict, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(verdict->text, sizeof(verdict->text), format, arguments);
    va_end(arguments);
    return false;
}

static gpuipc_status receive(const hostile_peer *peer, int timeout_ms) {
    gpuipc_buffer *opened[HOSTILE_BUFFERS_MAX];
    size_t count = HOSTILE_BUFFERS_MAX;
    gpuipc_status status = process_case_receive(peer->connection, opened, &count, NULL, timeout_ms);
    for (size_t i = 0; status == GPUIPC_OK && i < count; i++) {
        check_ok(marks_check(opened[i], 1, 0));
        check_ok(gpuipc_buffer_release(opened[i]));
    }
    return status;
}

/* A call that answers late hangs; one that never does is ended by the test's own limit. */
static bool expect(const hostile_ground *on, const hostile_peer *peer, gpuipc_status expected,
                   int timeout_ms, const char *when, hostile_verdict *verdict) {
    const uint64_t begun_ns = os_clock_ns();
    const gpuipc_status got = receive(peer, timeout_ms);
    const uint64_t took_ms = (os_clock_ns() - begun_ns) / 1000000u;
    if (got == GPUIPC_ERR_TIMEOUT && expected != GPUIPC_ERR_TIMEOUT) {
        return wrong(verdict, "%s it hangs: no answer within %d ms", when, timeout_ms);
    }
    if (got != expected) {
        return wrong(verdict, "%s %s (%s), not %s", when, gpuipc_status_name(got),
                     got == GPUIPC_OK ? "" : gpuipc_error_get()->sentence,
                     gpuipc_status_name(expected));
    }
    if (took_ms > (uint64_t)on->patience_ms) {
        return wrong(verdict, "%s it hangs: the answer took %llu ms", when,
                     (unsigned long long)took_ms);
    }
    if (got != GPUIPC_OK &&
        (gpuipc_error_get()->status != got || gpuipc_error_get()->sentence[0] == '\0')) {
        return wrong(verdict, "%s %s, without a sentence", when, gpuipc_status_name(got));
    }
    return true;
}

/* The same conversation brings a good buffer. */
static bool expect_usable(const hostile_ground *on, hostile_peer *peer, hostile_verdict *verdict) {
    raw_packet good;
    cr_assert(raw_packet_make(on->buffer, &good));
    good.header.number = peer->next;
    cr_assert(raw_packet_send(&good, peer->raw));
    raw_packet_close(&good);
    return expect(on, peer, GPUIPC_OK, on->patience_ms, "after it", verdict);
}

static bool expect_gone(const hostile_ground *on, const hostile_case *of, hostile_peer *peer,
                        hostile_verdict *verdict) {
    undo(of, peer);
    raw_close(peer->raw);
    peer->raw = NULL;
    return of->outlives_end
               ? expect(on, peer, GPUIPC_ERR_TIMEOUT, HOSTILE_SHORT_MS, "afterwards", verdict)
               : expect(on, peer, GPUIPC_ERR_PEER_CLOSED, on->patience_ms,
                        "when the peer has gone,", verdict);
}

static gpuipc_status expected_of(const hostile_ground *on, const hostile_case *of) {
    return of->expected_on_gpu != GPUIPC_OK && process_case_is_emulated(&on->at) != 1
               ? of->expected_on_gpu
               : of->expected;
}

static bool judge(const hostile_ground *on, const hostile_case *of, hostile_peer *peer,
                  hostile_verdict *verdict) {
    const int first_ms = of->end == HOSTILE_WAITS ? HOSTILE_SHORT_MS : on->patience_ms;
    if (of->first_is_good && !expect(on, peer, GPUIPC_OK, on->patience_ms, "before it", verdict)) {
        return false;
    }
    if (!expect(on, peer, expected_of(on, of), first_ms, "it answers", verdict)) {
        return false;
    }
    switch (of->end) {
    case HOSTILE_ENDS:
        if (!expect(on, peer, GPUIPC_ERR_CONNECTION_BROKEN, on->patience_ms, "afterwards",
                    verdict)) {
            return false;
        }
        return peer->raw == NULL || raw_sees_end(peer->raw, on->patience_ms) ||
               wrong(verdict, "the peer does not see that it is over");
    case HOSTILE_DROPPED:
        return expect_usable(on, peer, verdict);
    case HOSTILE_WAITS:
        return expect_gone(on, of, peer, verdict);
    default:
        return true;
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static bool one_round(hostile_ground *on, const hostile_case *of, hostile_role role, unsigned round,
                      hostile_verdict *verdict) {
    hostile_peer peer;
    hostile_meet(on, role, &peer);
    peer.round = round;
    peer.of = of;
    act(of, &peer);
    const bool is_right = judge(on, of, &peer, verdict);
    undo(of, &peer);
    hostile_part(&peer);
    return is_right;
}

static unsigned rounds_of(const hostile_ground *on, const hostile_case *of) {
    const unsigned form =
        on->rounds != 0 ? on->rounds : (unsigned)form_choose(SHORT_ROUNDS, FULL_ROUNDS);
    return of->variants > form ? of->variants : form;
}

/* Everything that a case makes for the first time, and what the library keeps of it, is there after one round. */
static bool all_rounds(hostile_ground *on, const hostile_case *of, hostile_role role,
                       unsigned rounds, hostile_verdict *verdict) {
    uint64_t at_half = 0;
    for (unsigned round = 0; round < rounds; round++) {
        if (round == rounds / 2) {
            process_case_settle(&on->at);
            at_half = allocated_bytes();
        }
        if (form_is_full()) { /* in turn with what is measured beside it: the machine is as busy then */
            honest_is_served(&on->honest, &on->at, on->buffer, &on->honest.before);
        }
        if (!one_round(on, of, role, round, verdict)) {
            return false;
        }
        if (form_is_full() || round == rounds - 1) {
            honest_is_served(&on->honest, &on->at, on->buffer, &on->honest.beside);
        }
    }
    process_case_settle(&on->at);
    const uint64_t at_end = allocated_bytes();
    return rounds < GROWTH_ROUNDS || at_end <= at_half + GROWTH_BYTES ||
           wrong(verdict, "%llu bytes of memory more after %u rounds than after half of them",
                 (unsigned long long)(at_end - at_half), rounds);
}

bool hostile_check(hostile_ground *on, const hostile_case *of, hostile_role role,
                   hostile_verdict *out_verdict) {
    leak_gate gate;
    hostile_verdict found = {.text = ""};
    const unsigned rounds = rounds_of(on, of);
    /* Its listener is the case's: on Windows it has another handle after each client. */
    check_ok(gpuipc_listener_close(on->at.listener));
    leak_gate_begin(&gate);
    check_ok(gpuipc_listener_open(on->at.context, on->at.name, NULL, &on->at.listener));
    bool is_right = all_rounds(on, of, role, rounds, &found);
    check_ok(gpuipc_listener_close(on->at.listener));
    on->at.listener = NULL;
    const bool leaks = process_case_leaks(&on->at, &gate, on->back_ms) != 0;
    if (leaks && is_right) {
        is_right = wrong(&found, "%s", gate.text);
    }
    *out_verdict = (hostile_verdict){.text = ""};
    return is_right || wrong(out_verdict, "\"%s\" (%s; the hostile end %s): %s", of->name, of->rule,
                             role == HOSTILE_CONNECTS ? "connects" : "listens", found.text);
}

void hostile_run(const hostile_cases *table, hostile_role role) {
    hostile_ground on;
    hostile_verdict verdict;
    hostile_begin(&on);
    for (size_t i = 0; i < table->count; i++) {
        cr_assert(hostile_check(&on, &table->cases[i], role, &verdict), "%s", verdict.text);
    }
    honest_judge(&on.honest, "listener");
    hostile_end_all(&on);
}
