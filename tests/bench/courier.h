/* SPDX-License-Identifier: MIT */
/**
 * @file What a program without gpuipc sends its handles by: a socket, and nothing more than it takes.
 * posix_courier.c; win32_courier.c, where it is not written: what needs it is refused there.
 */
#ifndef GPUIPC_BENCH_COURIER_H
#define GPUIPC_BENCH_COURIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The most descriptors in one packet. */
#define COURIER_HANDLES_MAX 250

typedef struct courier courier;

/** NULL: there is one. Else why there is none. */
const char *courier_why_not(void);

/** Listens at a path in @p directory. */
courier *courier_listen(const char *directory, const char *name);
/** Waits for the other end. */
void courier_accept(courier *self);
courier *courier_connect(const char *directory, const char *name);
void courier_send(courier *self, const int *descriptors, size_t count);
/** Waits for a packet. @return how many came  @param descriptors room for COURIER_HANDLES_MAX */
size_t courier_receive(courier *self, int *descriptors);
/** A number without any, eight bytes. */
void courier_say(courier *self, uint64_t number);
uint64_t courier_hear(courier *self);
/** Closes what was sent or came. */
void courier_close_descriptor(int descriptor);
/** NULL does nothing. */
void courier_end(courier *self);

#endif
