/* SPDX-License-Identifier: MIT */
/** @file A channel of this process, for tests: made, written and read without streams. */
#ifndef GPUIPC_TEST_CHANNEL_CASE_H
#define GPUIPC_TEST_CHANNEL_CASE_H

#include <stdio.h>
#include <string.h>

#include "core_fixture.h"

#define CHANNEL_CASE_SLOT 4096u

extern gpuipc_server *channel_case_server;
extern gpuipc_channel *channel_case_channel; /**< NULL: there is none, or it was destroyed */
extern gpuipc_ticket channel_case_ticket;

/** For TestSuite. */
void channel_start(void);
void channel_finish(void);

/** The channel of the test; slot_bytes, buffer and struct_size are set here. */
void channel_case_make(const gpuipc_channel_config *config);
/** A reader; struct_size is set here. */
gpuipc_subscription *channel_case_open(const gpuipc_subscription_config *config);
gpuipc_frame channel_case_loan(void);
/** A frame without anything in it. */
void channel_case_send(void);
gpuipc_frame channel_case_take(gpuipc_subscription *reader);
/** Takes one and gives it back. @return its sequence number */
uint64_t channel_case_receive(gpuipc_subscription *reader);
void channel_case_check_nothing(gpuipc_subscription *reader);
/** The first reader. */
gpuipc_reader_info channel_case_reader(void);

#endif
