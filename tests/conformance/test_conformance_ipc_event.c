/* SPDX-License-Identifier: MIT */
/** @file Events that two processes share. */
#include <string.h>

#include "conformance_share.h"
#include "ipc_event.h"

static void start(void) {
    conformance_start();
    need_ipc_events();
}

TestSuite(ipc_event, .init = start, .fini = conformance_finish, .timeout = 60);

#define SHARED (CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

/** A helper that owns an event, opened here, and a word that holds the helper's stream. */
typedef struct link {
    helper *owner;
    CUipcEventHandle record;
    CUevent event;
    CUstream stream;
    shared_page page;
} link;

static link link_start(void) {
    need_words(); /* only to hold a stream */
    link made = {.owner = helper_start(NULL)};
    helper_make(made.owner, &made.record, "event 0");
    made.page = page_make();
    page_share(&made.page, made.owner);
    OK(drv.cuStreamCreate(&made.stream, CU_STREAM_NON_BLOCKING));
    CHECK("cuda.h: cuIpcOpenEventHandle", CUDA_SUCCESS,
          ipc_event_open(&drv, &made.event, made.record));
    return made;
}

static void link_end(link *made) {
    OK(drv.cuEventDestroy(made->event));
    OK(drv.cuStreamDestroy(made->stream));
    page_undo(&made->page);
    helper_end(made->owner);
}

/** The owner's stream waits for word 0 to be @p value, and the event is recorded behind that. */
static void record_behind(const link *made, uint64_t value) {
    OK(helper_do(made->owner, "hold %llu", (unsigned long long)value));
    OK(helper_do(made->owner, "record"));
}

Test(ipc_event, record_of_an_event) {
    CUevent event = NULL, ordinary = NULL, out = NULL;
    CUipcEventHandle record, again;
    float milliseconds = 0;
    memset(&again, 0, sizeof again);
    OK(drv.cuEventCreate(&event, SHARED));
    OK(drv.cuEventCreate(&ordinary, CU_EVENT_DISABLE_TIMING));
    CHECK("cuda.h: cuIpcGetEventHandle", CUDA_SUCCESS, ipc_event_get(&drv, &record, event));
    CHECK("cuda.h: cuIpcGetEventHandle", CUDA_SUCCESS, ipc_event_get(&drv, &again, event));
    cr_assert_arr_eq(&record, &again, sizeof record, "measured: the same bytes");
    CHECK("cuda.h: the event was made with INTERPROCESS", CUDA_ERROR_INVALID_HANDLE,
          ipc_event_get(&drv, &again, ordinary));
    CHECK("measured: no event", CUDA_ERROR_INVALID_VALUE, ipc_event_get(&drv, &again, NULL));
    CHECK("measured: no place for the record", CUDA_ERROR_INVALID_VALUE,
          ipc_event_get(&drv, NULL, event));
    CHECK("measured: open in the process that made it", CUDA_ERROR_INVALID_CONTEXT,
          ipc_event_open(&drv, &out, record));
    CHECK("measured: no place for the event", CUDA_ERROR_INVALID_VALUE,
          ipc_event_open(&drv, NULL, record));
    OK(drv.cuEventRecord(event, NULL));
    OK(drv.cuEventSynchronize(event));
    CHECK("cuda.h: it takes no times", CUDA_ERROR_INVALID_HANDLE,
          drv.cuEventElapsedTime(&milliseconds, event, event));
    OK(drv.cuCtxSetCurrent(NULL));
    CHECK("cuda.h: a context is current", CUDA_ERROR_INVALID_CONTEXT,
          ipc_event_get(&drv, &again, event));
    CHECK("cuda.h: a context is current", CUDA_ERROR_INVALID_CONTEXT,
          ipc_event_open(&drv, &out, record));
    conformance_use(0);
    OK(drv.cuEventDestroy(ordinary));
    OK(drv.cuEventDestroy(event));
}

Test(ipc_event, wrong_records_are_refused) {
    /* CUDA_ERROR_MAP_FAILED, which the library has no use for. */
    const CUresult map_failed = (CUresult)205;
    CUevent out = NULL;
    CUipcEventHandle record;
    memset(&record, 0, sizeof record);
    CHECK("measured: a record of zeroes", map_failed, ipc_event_open(&drv, &out, record));
    memset(&record, 0xFF, sizeof record);
    CHECK("measured: a record of ones", map_failed, ipc_event_open(&drv, &out, record));
}

/** Measured: MAP_FAILED where the event could not be exported, so that the record was none. A record of an event of this
 * process is INVALID_CONTEXT (record_of_an_event). */
Test(ipc_event, record_that_a_refused_get_left_as_it_was) {
    const CUresult map_failed = (CUresult)205;
    CUevent ordinary = NULL, out = NULL;
    CUipcEventHandle record, zeroes;
    memset(&record, 0, sizeof record);
    memset(&zeroes, 0, sizeof zeroes);
    OK(drv.cuEventCreate(&ordinary, CU_EVENT_DISABLE_TIMING));
    CHECK("cuda.h: the event was made without INTERPROCESS", CUDA_ERROR_INVALID_HANDLE,
          ipc_event_get(&drv, &record, ordinary));
    cr_assert_arr_eq(&record, &zeroes, sizeof record, "reading: nothing is written on failure");
    CHECK("measured: open what was not exported", map_failed, ipc_event_open(&drv, &out, record));
    OK(drv.cuEventDestroy(ordinary));
}

Test(ipc_event, never_recorded) {
    link made = link_start();
    CUipcEventHandle again;
    float milliseconds = 0;
    CHECK("cuda.h: an event never recorded is complete", CUDA_SUCCESS,
          drv.cuEventQuery(made.event));
    CHECK("cuda.h: an event never recorded is complete", CUDA_SUCCESS,
          drv.cuEventSynchronize(made.event));
    CHECK("cuda.h: nothing to wait for", CUDA_SUCCESS,
          drv.cuStreamWaitEvent(made.stream, made.event, 0));
    OK(drv.cuStreamSynchronize(made.stream));
    CHECK("measured: it takes no times", CUDA_ERROR_INVALID_HANDLE,
          drv.cuEventElapsedTime(&milliseconds, made.event, made.event));
    CHECK("measured: an opened event is not exported again", CUDA_ERROR_INVALID_HANDLE,
          ipc_event_get(&drv, &again, made.event));
    link_end(&made);
}

Test(ipc_event, owner_records) {
    link made = link_start();
    CUevent second = NULL;
    CHECK("measured: opened twice", CUDA_SUCCESS, ipc_event_open(&drv, &second, made.record));
    cr_assert_neq(second, made.event, "measured: two events that follow one");
    for (uint64_t round = 1; round <= 2; round++) {
        record_behind(&made, round);
        CHECK("cuda.h: cuEventQuery while the owner's work is left", CUDA_ERROR_NOT_READY,
              drv.cuEventQuery(made.event));
        CHECK("cuda.h: cuEventQuery while the owner's work is left", CUDA_ERROR_NOT_READY,
              drv.cuEventQuery(second));
        OK(drv.cuStreamWaitEvent(made.stream, made.event, 0));
        CHECK("cuda.h: the stream waits", CUDA_ERROR_NOT_READY, drv.cuStreamQuery(made.stream));
        page_store(&made.page, 0, round);
        CHECK("cuda.h: cuEventSynchronize", CUDA_SUCCESS, drv.cuEventSynchronize(made.event));
        CHECK("cuda.h: cuEventQuery after the work", CUDA_SUCCESS, drv.cuEventQuery(second));
        OK(drv.cuStreamSynchronize(made.stream));
    }
    CHECK("measured: each is destroyed by itself", CUDA_SUCCESS, drv.cuEventDestroy(second));
    CHECK("cuda.h: cuEventQuery after the work", CUDA_SUCCESS, drv.cuEventQuery(made.event));
    link_end(&made);
}

Test(ipc_event, importer_records) {
    link made = link_start();
    OK(drv.cuStreamWaitValue64(made.stream, page_word(&made.page, 1), 1, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK("cuda.h: either side records", CUDA_SUCCESS, drv.cuEventRecord(made.event, made.stream));
    CHECK("measured: the owner sees that", CUDA_ERROR_NOT_READY, helper_do(made.owner, "query"));
    CHECK("measured: the owner's stream waits for it", CUDA_SUCCESS,
          helper_do(made.owner, "await-event"));
    page_store(&made.page, 1, 1);
    CHECK("measured: and goes on", CUDA_SUCCESS, helper_do(made.owner, "synchronize"));
    CHECK("measured: the owner sees that", CUDA_SUCCESS, helper_do(made.owner, "query"));
    OK(drv.cuStreamSynchronize(made.stream));
    link_end(&made);
}

Test(ipc_event, owner_destroys_it) {
    link made = link_start();
    record_behind(&made, 1);
    OK(drv.cuStreamWaitEvent(made.stream, made.event, 0));
    CHECK("cuda.h: an event may be destroyed before it is complete", CUDA_SUCCESS,
          helper_do(made.owner, "event-destroy"));
    CHECK("measured: the importer still follows it", CUDA_ERROR_NOT_READY,
          drv.cuEventQuery(made.event));
    page_store(&made.page, 0, 1);
    OK(drv.cuStreamSynchronize(made.stream));
    CHECK("measured: the importer still follows it", CUDA_SUCCESS,
          drv.cuEventSynchronize(made.event));
    CHECK("measured: and records it", CUDA_SUCCESS, drv.cuEventRecord(made.event, made.stream));
    OK(drv.cuStreamSynchronize(made.stream));
    CHECK("measured: and records it", CUDA_SUCCESS, drv.cuEventQuery(made.event));
    link_end(&made);
}

Test(ipc_event, owner_dies_after_the_work) {
    link made = link_start();
    OK(helper_do(made.owner, "record"));
    CHECK("cuda.h: cuEventSynchronize", CUDA_SUCCESS, drv.cuEventSynchronize(made.event));
    helper_kill(made.owner);
    CHECK("measured: what was complete stays so", CUDA_SUCCESS, drv.cuEventQuery(made.event));
    CHECK("measured: what was complete stays so", CUDA_SUCCESS, drv.cuEventSynchronize(made.event));
    link_end(&made);
}

/** An event whose owner died with the work left never completes, and no stream that waits for it goes
 *  on: so none waits in this test, and nobody records the event anew. */
Test(ipc_event, owner_dies_before_the_work) {
    link made = link_start();
    record_behind(&made, 1);
    CHECK("cuda.h: the work is left", CUDA_ERROR_NOT_READY, drv.cuEventQuery(made.event));
    helper_kill(made.owner);
    CHECK("measured: nobody completes it", CUDA_ERROR_NOT_READY, drv.cuEventQuery(made.event));
    page_store(&made.page, 0, 1);
    CHECK("measured: nobody completes it", CUDA_ERROR_NOT_READY, drv.cuEventQuery(made.event));
    OK(drv.cuStreamSynchronize(made.stream));
    link_end(&made);
}

Test(ipc_event, of_another_device) {
    conformance_need_devices(2);
    link made = link_start();
    CUevent event = NULL;
    conformance_use(1);
    CHECK("measured: an event of another GPU", CUDA_SUCCESS,
          ipc_event_open(&drv, &event, made.record));
    record_behind(&made, 1);
    CHECK("measured: it is followed", CUDA_ERROR_NOT_READY, drv.cuEventQuery(event));
    page_store(&made.page, 0, 1);
    CHECK("measured: it is followed", CUDA_SUCCESS, drv.cuEventSynchronize(event));
    OK(drv.cuEventDestroy(event));
    conformance_use(0);
    link_end(&made);
}
