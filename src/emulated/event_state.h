/* SPDX-License-Identifier: MIT */
/**
 * @file Where the processes that have an event see how far it is: the number of its latest record and of
 * the latest one that is done, in a page that has room for many events. Numbers rise with each record, in
 * whatever process. The driver's lock is held in every call.
 */
#ifndef GPUIPC_EMULATED_EVENT_STATE_H
#define GPUIPC_EMULATED_EVENT_STATE_H

#include "work.h"

typedef struct event_state {
    allocation *page; /**< one reference; NULL: none, the event is of this process alone */
    uint64_t offset;
} event_state;

/** One that this process owns. */
CUresult event_state_create(int ordinal, event_state *out);
/** Another process's; the answers of allocation_open. */
CUresult event_state_open(const shared_handle *which, event_state *out);
/** None is allowed. */
void event_state_close(event_state *at);

/** The latest record; 0: there is none. */
uint64_t event_state_recorded(const event_state *at);
bool event_state_is_done(const event_state *at, uint64_t record);
/** The number of a new record. */
uint64_t event_state_record(const event_state *at);
/** It is done, and all before it. */
void event_state_finish(const event_state *at, uint64_t record);

/** The same as something for a stream to do. */
CUresult event_state_finish_later(const event_state *at, uint64_t record, work **out);
/** What holds a stream until a record is done; if its process has ended before, for ever (measured). */
CUresult event_state_wait(const event_state *at, uint64_t record, work **out);

#endif
