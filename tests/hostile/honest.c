/* SPDX-License-Identifier: MIT */
/** @file See honest.h. */
#include "honest.h"

#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "form.h"

/* A tenth of a millisecond more is no difference: so much the processor's own doings make of a fast call. */
#define NOISE_NS UINT64_C(100000)

static void times_begin(honest_times *self) {
    self->ns = malloc(HONEST_TIMES_MAX * sizeof(*self->ns));
    self->count = 0;
    cr_assert_neq(self->ns, NULL);
}

static void times_add(honest_times *to, uint64_t since_ns) {
    if (to->count < HONEST_TIMES_MAX) {
        to->ns[to->count++] = os_clock_ns() - since_ns;
    }
}

void honest_begin(honest_client *self, const process_case *in) {
    partner_start(&self->other, in, NULL, NULL);
    times_begin(&self->before);
    times_begin(&self->beside);
}

void honest_end(honest_client *self) {
    partner_end(&self->other);
    free(self->before.ns);
    free(self->beside.ns);
}

void honest_is_served(honest_client *self, const process_case *in, gpuipc_buffer *buffer,
                      honest_times *times) {
    const uint64_t begun_ns = os_clock_ns();
    partner_tell(&self->other, "connect %s %d", in->name, PATIENCE_MS);
    gpuipc_connection *connection = process_case_accept(in);
    partner_hear(&self->other, "GPUIPC_OK");
    check_ok(process_case_send(connection, &buffer, 1, 1));
    partner_do(&self->other, "GPUIPC_OK 1 bytes 1 buffers", "receive 0 0 0 %d", PATIENCE_MS);
    times_add(times, begun_ns);
    partner_do(&self->other, "GPUIPC_OK", "check 1 0");
    partner_do(&self->other, "GPUIPC_OK", "release");
    partner_do(&self->other, "GPUIPC_OK", "disconnect");
    check_ok(gpuipc_connection_close(connection));
}

void honest_opens(honest_client *self, const char *ticket, honest_times *times) {
    const uint64_t begun_ns = os_clock_ns();
    partner_do(&self->other, "GPUIPC_OK", "ticket %s", ticket);
    times_add(times, begun_ns);
    partner_do(&self->other, "GPUIPC_OK", "check 1 0");
    partner_do(&self->other, "GPUIPC_OK", "release");
}

static int compare(const void *left, const void *right) {
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

uint64_t honest_p99_ns(honest_times *of) {
    if (of->count == 0) {
        return 0;
    }
    qsort(of->ns, of->count, sizeof(*of->ns), compare);
    return of->ns[(of->count - 1) * 99 / 100];
}

void honest_judge(honest_client *self, const char *what) {
    if (!form_is_full()) {
        return; /* a few times tell nothing */
    }
    const uint64_t before = honest_p99_ns(&self->before);
    const uint64_t beside = honest_p99_ns(&self->beside);
    (void)fprintf(
        stderr,
        "%s: an honest client's p99 is %llu us without attack (%zu), %llu us with it (%zu)\n", what,
        (unsigned long long)(before / 1000), self->before.count,
        (unsigned long long)(beside / 1000), self->beside.count);
    cr_expect_leq(beside, 2 * before + NOISE_NS, "%s", what);
}
