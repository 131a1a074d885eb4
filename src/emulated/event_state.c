/* SPDX-License-Identifier: MIT */
/** @file See event_state.h. */
#include "event_state.h"

#include <stdatomic.h>

#include "word.h"

/* A page, and what an event has in it; offsets in that. */
#define PAGE_BYTES  4096
#define STATE_BYTES 16
#define AT_RECORDED 0
#define AT_DONE     8

/* The page that new events come into: each takes the next place, and none is taken twice, because other
 * processes may still look at it. */
static allocation *page;
static uint64_t next_offset;
/* Events of this process that are in that page. */
static uint64_t page_events;

static void drop_page(void) {
    allocation_release(page);
    page = NULL;
}

CUresult event_state_create(int ordinal, event_state *out) {
    if (page != NULL && next_offset == PAGE_BYTES) {
        drop_page(); /* its events keep it */
    }
    if (page == NULL) {
        const CUresult result =
            allocation_create_room(ordinal, PAGE_BYTES, ALLOCATION_AS_EVENT, &page);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        next_offset = 0;
        page_events = 0;
    }
    allocation_retain(page);
    page_events++;
    *out = (event_state){page, next_offset};
    next_offset += STATE_BYTES;
    return CUDA_SUCCESS;
}

CUresult event_state_open(const shared_handle *which, event_state *out) {
    allocation *opened;
    CUresult result = allocation_open(which, ALLOCATION_AS_EVENT, &opened);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (opened->size != PAGE_BYTES || which->offset >= PAGE_BYTES ||
        which->offset % STATE_BYTES != 0) {
        allocation_release(opened);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out = (event_state){opened, which->offset};
    return CUDA_SUCCESS;
}

void event_state_close(event_state *at) {
    if (at->page == page && page != NULL && --page_events == 0) {
        drop_page();
    }
    allocation_release(at->page);
    at->page = NULL;
}

static _Atomic uint64_t *word_at(const event_state *at, unsigned offset) {
    return (_Atomic uint64_t *)(void *)(at->page->bytes + at->offset + offset);
}

uint64_t event_state_recorded(const event_state *at) {
    return atomic_load(word_at(at, AT_RECORDED));
}

bool event_state_is_done(const event_state *at, uint64_t record) {
    return atomic_load(word_at(at, AT_DONE)) >= record;
}

uint64_t event_state_record(const event_state *at) {
    return atomic_fetch_add(word_at(at, AT_RECORDED), 1) + 1;
}

void event_state_finish(const event_state *at, uint64_t record) {
    word_raise(at->page->bytes + at->offset + AT_DONE, record);
}

CUresult event_state_finish_later(const event_state *at, uint64_t record, work **out) {
    return work_page_word(WORK_RAISE, at->page, at->offset + AT_DONE, record, out);
}

CUresult event_state_wait(const event_state *at, uint64_t record, work **out) {
    return work_page_word(WORK_WAIT, at->page, at->offset + AT_DONE, record, out);
}
