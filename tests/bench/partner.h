/* SPDX-License-Identifier: MIT */
/** @file The process that opens: does what the owner's lines say. */
#ifndef GPUIPC_BENCH_PARTNER_H
#define GPUIPC_BENCH_PARTNER_H

#include "floor.h"
#include "options.h"

#define PARTNER_WORDS_MAX       10
#define PARTNER_CONNECTIONS_MAX 64

/** Memory that stays open: gpuipc's or the driver's. */
typedef struct partner_kept {
    gpuipc_buffer *buffer;
    floor_memory *memory; /**< NULL: it is the buffer */
    uint32_t memory_count;
} partner_kept;

typedef struct partner {
    const options *options;
    gpuipc_context *context;       /**< NULL in the floor's partner */
    gpuipc_connection *connection; /**< likewise */
    gpuipc_connection *more[PARTNER_CONNECTIONS_MAX];
    size_t more_count;
    courier *courier; /**< NULL: there is none here */
    partner_kept *kept;
    size_t kept_count;
    size_t kept_capacity;
} partner;

/** What is behind the verb of a line. */
typedef struct partner_words {
    char *word[PARTNER_WORDS_MAX];
    size_t count;
} partner_words;

/** Word number @p index, which must be a number. */
uint64_t partner_number(const partner_words *words, size_t index);

/** Ends the program unless the memory is full of @p value, as far as a few words of it tell. */
void partner_verify(CUdeviceptr address, uint64_t bytes, uint32_t value, uint32_t device);
/** Likewise; and the device may be read from. */
void partner_verify_buffer(gpuipc_buffer *buffer, uint32_t value, uint32_t device);

/** Receives one message with one buffer. */
gpuipc_buffer *partner_receive_one(gpuipc_connection *connection, uint32_t device);

void partner_copy(partner *self, const partner_words *words);     /**< partner_copy.c */
void partner_manifest(partner *self, const partner_words *words); /**< partner_manifest.c */
/* partner_ticket.c */
void partner_ticket(partner *self, const partner_words *words);
void partner_explicitly(partner *self, const partner_words *words);
void partner_again(partner *self, const partner_words *words);

/** The process itself. @return its exit code */
int partner_run(const options *given);

#endif
