/* SPDX-License-Identifier: MIT */
/** @file See admit.h. */
#include "admit.h"

#include <string.h>

#include "quantity.h"

bool admit_check(const char *text) {
    uint64_t number;
    if (strcmp(text, ADMIT_GROUP) == 0) {
        return true;
    }
    /* As the system writes it: the peer's is compared as text. */
    return text[0] >= '0' && text[0] <= '9' && (text[0] != '0' || text[1] == '\0') &&
           quantity_take_number(&text, &number) && text[0] == '\0' && number < UINT32_MAX;
}

static int admit(void *user_data, const gpuipc_peer_info *peer) {
    const char *user = user_data;
    return peer->same_user == 1 || strcmp(user, ADMIT_GROUP) == 0 || strcmp(user, peer->user) == 0;
}

const gpuipc_endpoint_config *admit_config(const options *wanted, gpuipc_endpoint_config *room) {
    *room = (gpuipc_endpoint_config){.struct_size = sizeof(*room),
                                     .policy = admit,
                                     .policy_user_data = (void *)(uintptr_t)wanted->admit};
    return wanted->admit != NULL ? room : NULL;
}
