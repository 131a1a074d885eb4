/* SPDX-License-Identifier: MIT */
/** @file The 64 bytes of a ticket to fields and back: docs/wire-format.md. */
#ifndef GPUIPC_TICKET_INTERNAL_H
#define GPUIPC_TICKET_INTERNAL_H

#include <gpuipc/gpuipc.h>
#include <stdbool.h>

#define TICKET_SECRET_BYTES 16
/** The names of all servers' endpoints begin with this. */
#define TICKET_ENDPOINT_PREFIX "ticket-"
/** Size of the name of a server's endpoint, with its end. */
#define TICKET_ENDPOINT_SIZE 40

typedef struct ticket {
    uint8_t server_id[16]; /**< random, of the server that gave it out: names its endpoint */
    uint32_t share;        /**< which of that server's, from 1 on */
    uint8_t secret[TICKET_SECRET_BYTES];
    uint64_t offset; /**< of the range, in the buffer that is shared */
    uint64_t bytes;  /**< of the range, above 0 */
    /** Only to explain why the server is not found: */
    uint16_t boot; /**< of the machine's start; 0: not known */
    uint32_t user; /**< of the exporter's user; 0: not known */
} ticket;

void ticket_encode(const ticket *record, gpuipc_ticket *out_bytes);
/** ERR_TICKET_DAMAGED, ERR_TICKET_VERSION */
gpuipc_status ticket_decode(const gpuipc_ticket *bytes, ticket *out_ticket);

/** Whether two secrets are the same, in a time that does not depend on where they differ. */
bool ticket_secret_is(const uint8_t a[TICKET_SECRET_BYTES], const uint8_t b[TICKET_SECRET_BYTES]);

/** What this machine's start and this process's user are in a ticket. */
uint16_t ticket_boot(void);
uint32_t ticket_user(void);

/** The name of the endpoint of a server in a runtime directory. */
void ticket_endpoint(const uint8_t server_id[16], char name[TICKET_ENDPOINT_SIZE]);

#endif
