/* SPDX-License-Identifier: MIT */
/** @file See session.h: the input, and what one byte of it does. */
#include "session.h"

session now;

/* While a call of the program waits, only the peer goes on. */
#define HOSTILE_STEPS 11u
static void (*const steps[])(script *from) = {hostile_sends,
                                              hostile_hears,
                                              hostile_scribbles,
                                              hostile_scribbles_own,
                                              hostile_hangs_up,
                                              hostile_connects,
                                              hostile_connects_to_server,
                                              hostile_ends,
                                              hostile_waits,
                                              hostile_listens,
                                              hostile_publishes,
                                              honest_accepts,
                                              honest_opens_connection,
                                              honest_receives,
                                              honest_sends,
                                              honest_closes,
                                              honest_polls,
                                              honest_shares,
                                              honest_opens_ticket,
                                              honest_publishes,
                                              honest_subscribes,
                                              honest_takes,
                                              honest_uses_opened,
                                              honest_uses_own,
                                              honest_asks,
                                              honest_marks,
                                              honest_threads_run};
#define STEPS (sizeof(steps) / sizeof(*steps))

uint8_t script_byte(script *from) {
    return from->at < from->size ? from->data[from->at++] : 0;
}

uint64_t script_number(script *from, uint64_t right) {
    static const uint64_t numbers[] = {0,
                                       1,
                                       UINT64_MAX,
                                       INT64_MAX,
                                       UINT64_C(1) << 63,
                                       UINT32_MAX,
                                       INT32_MAX,
                                       UINT64_C(1) << 31,
                                       UINT64_C(1) << 62,
                                       UINT16_MAX,
                                       SESSION_BYTES,
                                       2 * SESSION_BYTES,
                                       SESSION_SLOT_BYTES,
                                       OS_PACKET_HANDLES_MAX,
                                       GPUIPC_MESSAGE_BYTES_MAX,
                                       GPUIPC_MESSAGE_BYTES_MAX + 1,
                                       UINT64_C(0x326c656e6e616863)}; /* CHANNEL_MAGIC */
    const size_t count = sizeof(numbers) / sizeof(*numbers);
    const uint8_t which = script_byte(from);
    if (which < count) {
        return numbers[which];
    }
    switch (which) {
    case 0x20:
        return right + 1;
    case 0x21:
        return right - 1;
    case 0x22:
        return right * 2;
    case 0x23:
        return right ^ UINT64_C(1) << script_byte(from) % 64;
    default:
        return which % 0x80u;
    }
}

bool session_meanwhile(void) {
    script *from = &now.input;
    if (from->at == from->size || from->data[from->at] % STEPS >= HOSTILE_STEPS) {
        return false;
    }
    steps[script_byte(from) % STEPS](from);
    return true;
}

void session_play(void) {
    script *from = &now.input;
    while (from->at < from->size) {
        steps[script_byte(from) % STEPS](from);
    }
}
