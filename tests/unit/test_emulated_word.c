/* SPDX-License-Identifier: MIT */
/** @file Words that streams write and wait for. */
#include <stdatomic.h>
#include <string.h>

#include "emulated_test.h"
#include "thread_state.h"

#define WAIT_AND   2u
#define WAIT_NOR   3u
#define WAIT_FLUSH (1u << 30)

typedef _Atomic uint64_t shared_word;

static CUdeviceptr memory;
static CUstream stream;
static CUstream other;
static shared_word *host; /* of a page that is registered */

static void start_on(const char *machine) {
    void *pointer = NULL;
    emulated_start(machine);
    memory = memory_make(0, GRANULE);
    check_success(drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    check_success(drv.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    check_success(drv.cuMemHostAlloc(&pointer, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    host = pointer;
}

static void start(void) {
    start_on(NULL);
}

TestSuite(emulated_word, .init = start, .timeout = 60);

static CUdeviceptr at(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

static uint64_t read_64(CUdeviceptr address) {
    uint64_t word = 0;
    check_success(drv.cuMemcpyDtoH(&word, address, sizeof(word)));
    return word;
}

Test(emulated_word, is_written_in_stream_order) {
    set_delay(50);
    check_success(drv.cuMemsetD32Async(memory + 64, 3, 1, stream));
    check_success(drv.cuStreamWriteValue64(stream, memory, UINT64_C(0x123456789abcdef0), 0));
    check_success(drv.cuStreamWriteValue64(stream, at(host), 5, CU_STREAM_WRITE_VALUE_DEFAULT));
    while (atomic_load(host) != 5) {
        os_sleep_ms(1);
    }
    set_delay(0);
    cr_assert_eq(word_read(memory + 64), 3, "what came before is there when the word is");
    cr_assert_eq(read_64(memory), UINT64_C(0x123456789abcdef0));
}

/* Every comparison: a value that does not satisfy it, then one that does. */
Test(emulated_word, is_waited_for_in_every_way) {
    const struct {
        unsigned how;
        uint64_t wanted;
        uint64_t before;
        uint64_t after;
    } cases[] = {
        {CU_STREAM_WAIT_VALUE_GEQ, 10, 9, 10},
        {CU_STREAM_WAIT_VALUE_GEQ, 10, 9, 11},
        {CU_STREAM_WAIT_VALUE_GEQ, 1, UINT64_MAX, 1}, /* cyclic: -1 is before 1 */
        {CU_STREAM_WAIT_VALUE_GEQ, UINT64_MAX, UINT64_MAX - 1, 3},
        {CU_STREAM_WAIT_VALUE_EQ, 10, 11, 10},
        {WAIT_AND, 6, 9, 4},
        {WAIT_NOR, UINT64_MAX - 1, 1, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        atomic_store(host, cases[i].before);
        check_success(drv.cuStreamWaitValue64(stream, at(host), cases[i].wanted, cases[i].how));
        check_success(drv.cuMemsetD32Async(memory, (unsigned)i + 1, 1, stream));
        check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
        cr_assert_eq(word_read(memory), i, "case %zu did not wait", i);
        atomic_store(host, cases[i].after);
        check_success(drv.cuStreamSynchronize(stream));
        cr_assert_eq(word_read(memory), i + 1);
    }
}

Test(emulated_word, of_32_bits) {
    CUresult (*write)(CUstream, CUdeviceptr, uint32_t, unsigned);
    CUresult (*wait)(CUstream, CUdeviceptr, uint32_t, unsigned);
    emulated_symbol(drv.library, "cuStreamWriteValue32_v2", &write);
    emulated_symbol(drv.library, "cuStreamWaitValue32_v2", &wait);
    check_success(drv.cuMemsetD32(memory, 0, 2));
    check_success(drv.cuCtxSynchronize());
    check_success(wait(stream, memory + 4, 1, CU_STREAM_WAIT_VALUE_GEQ));
    check_success(write(stream, memory, 9, 0));
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
    check_success(write(other, memory + 4, UINT32_C(0x7fffffff), 0));
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(read_64(memory), UINT64_C(0x7fffffff00000009));
    check_result(CUDA_ERROR_INVALID_VALUE, write(stream, memory + 2, 0, 0));
}

Test(emulated_word, one_stream_waits_for_another) {
    check_success(drv.cuStreamWaitValue64(stream, memory, 1, CU_STREAM_WAIT_VALUE_EQ));
    check_success(drv.cuStreamWriteValue64(stream, memory + 8, 2, 0));
    check_success(drv.cuStreamWaitValue64(other, memory + 8, 2, CU_STREAM_WAIT_VALUE_EQ));
    check_success(drv.cuMemsetD32(memory + 64, 1, 1));
    cr_assert_eq(word_read(memory + 64), 1, "the default stream goes on");
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(other));
    check_success(drv.cuStreamWriteValue64(NULL, memory, 1, 0));
    check_success(drv.cuStreamSynchronize(other));
    check_success(drv.cuStreamQuery(stream));
}

Test(emulated_word, lies_in_plain_memory_too) {
    CUdeviceptr plain = 0;
    check_success(drv.cuMemAlloc(&plain, 12));
    check_success(drv.cuStreamWriteValue64(stream, plain, 4, 0));
    check_success(drv.cuStreamWaitValue64(stream, plain, 4, CU_STREAM_WAIT_VALUE_EQ));
    check_success(drv.cuStreamSynchronize(stream));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuStreamWriteValue64(stream, plain + 8, 4, 0));
    check_success(drv.cuMemFree(plain));
}

Test(emulated_word, does_not_lie_in_a_pool) {
    CUdeviceptr pooled = 0;
    check_success(drv.cuMemAllocAsync(&pooled, 4096, stream));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuStreamWriteValue64(stream, pooled, 1, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuStreamWaitValue64(stream, pooled, 0, 0));
    check_success(drv.cuMemFreeAsync(pooled, stream));
    check_success(drv.cuStreamSynchronize(stream));
}

Test(emulated_word, refuses_what_is_wrong) {
    static uint64_t pageable;
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuStreamWriteValue64(stream, at(&pageable), 1, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuStreamWriteValue64(stream, 0, 1, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuStreamWriteValue64(stream, memory + 4, 1, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuStreamWriteValue64(stream, memory, 1, 1));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuStreamWaitValue64(stream, memory, 0, 4));
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuStreamWaitValue64(stream, memory, 0, WAIT_FLUSH));
    check_result(CUDA_ERROR_INVALID_VALUE,
                 drv.cuStreamWriteValue64(stream, memory + GRANULE, 1, 0));
    check_result(CUDA_ERROR_INVALID_HANDLE,
                 drv.cuStreamWriteValue64((CUstream)(uintptr_t)0x4711, memory, 1, 0));
    check_success(memory_allow(memory, GRANULE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuStreamWriteValue64(stream, memory, 1, 0));
    check_success(drv.cuStreamWaitValue64(stream, memory, 0, CU_STREAM_WAIT_VALUE_EQ));
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(set_fail("cuStreamWaitValue64:1=2;cuStreamWriteValue64:1=2"), 0);
    check_result(CUDA_ERROR_OUT_OF_MEMORY, drv.cuStreamWriteValue64(stream, memory, 1, 0));
    check_result(CUDA_ERROR_OUT_OF_MEMORY, drv.cuStreamWaitValue64(stream, memory, 1, 0));
}

/* As CUstreamBatchMemOpParams of cuda.h. */
typedef struct batch_item {
    unsigned operation;
    CUdeviceptr address;
    uint64_t value;
    unsigned flags;
    uint64_t rest[2];
} batch_item;

#define WAIT_32  1u
#define WRITE_32 2u
#define FLUSH    3u
#define WAIT_64  4u
#define WRITE_64 5u

Test(emulated_word, come_in_batches) {
    CUresult (*batch)(CUstream, unsigned, batch_item *, unsigned);
    batch_item items[] = {{WRITE_64, memory + 8, UINT64_C(1) << 40, 0, {0, 0}},
                          {WAIT_64, at(host), 3, CU_STREAM_WAIT_VALUE_EQ, {0, 0}},
                          {WRITE_32, memory, 7, 0, {0, 0}},
                          {WAIT_32, memory, 7, CU_STREAM_WAIT_VALUE_EQ, {0, 0}}};
    cr_assert_eq(sizeof(batch_item), 48);
    emulated_symbol(drv.library, "cuStreamBatchMemOp_v2", &batch);
    check_success(batch(stream, 4, items, 0));
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
    cr_assert_eq(word_read(memory), 0);
    atomic_store(host, 3);
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(word_read(memory), 7);
    cr_assert_eq(read_64(memory + 8), UINT64_C(1) << 40);
    /* all or none */
    items[0].value = 1;
    items[3].operation = FLUSH;
    check_result(CUDA_ERROR_INVALID_VALUE, batch(stream, 4, items, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, batch(stream, 1, items, 1));
    check_result(CUDA_ERROR_INVALID_VALUE, batch(stream, 1, NULL, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, batch(stream, 257, items, 0));
    check_success(batch(stream, 0, NULL, 0));
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(read_64(memory + 8), UINT64_C(1) << 40);
}

/* What is waited for never comes. */

Test(emulated_word, a_destroyed_stream_goes_on_waiting_alone) {
    check_success(drv.cuStreamWaitValue64(stream, at(host), 1, CU_STREAM_WAIT_VALUE_EQ));
    check_success(drv.cuStreamWriteValue64(stream, memory, 2, 0));
    check_success(drv.cuStreamDestroy(stream));
    check_success(drv.cuMemsetD32Async(memory + 64, 1, 1, other));
    check_success(drv.cuStreamSynchronize(other));
    atomic_store(host, 1);
    check_success(drv.cuCtxSynchronize());
    cr_assert_eq(read_64(memory), 2);
}

Test(emulated_word, a_context_that_ends_does_not_wait_for_it) {
    CUstream there = NULL;
    gpuipc_emulated_live live;
    check_success(memory_allow(memory, GRANULE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    context_use(1);
    check_success(drv.cuStreamCreate(&there, CU_STREAM_NON_BLOCKING));
    check_success(drv.cuStreamWaitValue64(there, at(host), 1, CU_STREAM_WAIT_VALUE_EQ));
    check_success(drv.cuStreamWriteValue64(there, memory, 99, 0));
    check_success(drv.cuDevicePrimaryCtxRelease(1));
    check_success(drv.cuCtxPopCurrent(NULL));
    cr_assert_eq(read_64(memory), 0, "what came after the wait must not run");
    get_live(&live);
    cr_assert_eq(live.streams, 2);
    context_use(1); /* fresh again */
    check_success(drv.cuCtxSynchronize());
    check_success(drv.cuDevicePrimaryCtxRelease(1));
}

Test(emulated_word, a_reset_ends_it_too) {
    check_success(drv.cuStreamWaitValue64(stream, at(host), 1, CU_STREAM_WAIT_VALUE_EQ));
    CUresult (*reset)(CUdevice);
    emulated_symbol(drv.library, "cuDevicePrimaryCtxReset_v2", &reset);
    check_success(reset(0));
    check_result(CUDA_ERROR_INVALID_HANDLE, drv.cuStreamQuery(stream));
}

Test(emulated_word, unmapped_memory_is_an_illegal_address) {
    check_success(drv.cuStreamWaitValue64(stream, memory, 1, CU_STREAM_WAIT_VALUE_EQ));
    check_success(drv.cuMemUnmap(memory, GRANULE));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuStreamSynchronize(stream));
    check_result(CUDA_ERROR_ILLEGAL_ADDRESS, drv.cuCtxSynchronize());
}

/* The process ends while two streams wait; the test would time out if that waited for them. */
Test(emulated_word, the_process_may_end_meanwhile) {
    check_success(drv.cuStreamWaitValue64(stream, at(host), 1, CU_STREAM_WAIT_VALUE_EQ));
    check_success(drv.cuStreamWaitValue64(NULL, memory, 1, CU_STREAM_WAIT_VALUE_EQ));
    check_result(CUDA_ERROR_NOT_READY, drv.cuStreamQuery(stream));
}

TestSuite(emulated_word_machine, .timeout = 60);

Test(emulated_word_machine, may_have_none) {
    int value = -1;
    start_on("stream-words=0");
    check_success(
        drv.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
    cr_assert_eq(value, 0);
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuStreamWriteValue64(stream, memory, 1, 0));
    check_result(CUDA_ERROR_NOT_SUPPORTED, drv.cuStreamWaitValue64(stream, memory, 1, 0));
}

Test(emulated_word_machine, has_them_by_default) {
    int value = -1;
    start_on(NULL);
    check_success(
        drv.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
    cr_assert_eq(value, 1);
}

/* ---- calls that wait for a context keep all others out ------------------------------------- */

typedef struct waiting_call {
    CUresult (*call)(void *argument);
    void *argument;
    CUresult answer;
    _Atomic uint64_t number; /* of the thread; 0: not started */
    atomic_bool is_done;
} waiting_call;

static void make_call(void *argument) {
    waiting_call *self = argument;
    atomic_store(&self->number, thread_state_own_number());
    self->answer = self->call(self->argument);
    atomic_store(&self->is_done, true);
}

static os_thread *start_until_asleep(waiting_call *self) {
    os_thread *thread;
    check_ok(os_thread_start(make_call, self, &thread));
    while (atomic_load(&self->number) == 0) {
        os_sleep_ms(1);
    }
    cr_assert(thread_state_wait_asleep(atomic_load(&self->number), 20000));
    return thread;
}

static CUresult free_in_context(void *argument) {
    context_use(0);
    return drv.cuMemFree(*(CUdeviceptr *)argument);
}

static void wait_until_others_are_kept_out(void) {
    gpuipc_emulated_live live;
    for (get_live(&live); live.keeping_out == 0; get_live(&live)) {
        os_sleep_ms(1);
    }
}

static CUresult query(void *argument) {
    return drv.cuStreamQuery(argument);
}

Test(emulated_word, that_a_free_waits_for_cannot_be_written_by_another_call) {
    CUdeviceptr plain;
    check_success(drv.cuMemAlloc(&plain, 64));
    waiting_call freeing = {.call = free_in_context, .argument = &plain};
    waiting_call asking = {.call = query, .argument = other};
    atomic_store(host, 0);
    check_success(drv.cuStreamWaitValue64(stream, at(host), 1, CU_STREAM_WAIT_VALUE_GEQ));
    os_thread *first;
    check_ok(os_thread_start(make_call, &freeing, &first));
    wait_until_others_are_kept_out();
    os_thread *second = start_until_asleep(&asking);
    cr_assert_not(atomic_load(&freeing.is_done));
    cr_assert_not(atomic_load(&asking.is_done), "a call went by one that frees");
    atomic_store(host, 1);
    os_thread_join(first);
    os_thread_join(second);
    check_success(freeing.answer);
    check_success(asking.answer);
}

static CUresult write_behind(void *argument) {
    context_use(0);
    return drv.cuStreamWriteValue64(stream, *(CUdeviceptr *)argument, 2, 0);
}

/* measured: a stream has room for 1,021 calls, whatever the list that each brings, and the next one waits */
Test(emulated_word, beyond_the_room_of_a_stream_is_waited_for) {
    CUdeviceptr word = at(host + 1);
    waiting_call one_more = {.call = write_behind, .argument = &word};
    CUstreamBatchMemOpParams list[8];
    for (int i = 0; i < 8; i++) {
        list[i] = (CUstreamBatchMemOpParams){
            .word = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .address = word}};
    }
    check_success(drv.cuStreamWaitValue64(stream, at(host), 1, CU_STREAM_WAIT_VALUE_GEQ));
    for (int i = 0; i < 510; i++) {
        check_success(drv.cuStreamWriteValue64(stream, word, 1, 0));
        check_success(drv.cuStreamBatchMemOp(stream, 8, list, 0));
    }
    os_thread *thread = start_until_asleep(&one_more);
    cr_assert_not(atomic_load(&one_more.is_done), "the queue has room for more");
    atomic_store(host, 1);
    os_thread_join(thread);
    check_success(one_more.answer);
    check_success(drv.cuStreamSynchronize(stream));
    cr_assert_eq(atomic_load(host + 1), 2);
}

/* What may only be read is never written; that it can be waited for, a GPU says too. */
Test(emulated_word, in_memory_registered_to_be_read) {
    void *page = (void *)(uintptr_t)host;
    check_success(drv.cuMemFreeHost(page));
    static _Alignas(4096) uint64_t words[512];
    check_success(drv.cuMemHostRegister(words, sizeof(words), 8)); /* READ_ONLY */
    words[0] = 3;
    check_success(drv.cuStreamWaitValue64(stream, at(words), 3, CU_STREAM_WAIT_VALUE_GEQ));
    check_success(drv.cuStreamSynchronize(stream));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuStreamWriteValue64(stream, at(words), 4, 0));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemsetD8Async(at(words), 4, 8, stream));
    check_result(CUDA_ERROR_INVALID_VALUE, drv.cuMemcpyDtoHAsync(words, memory, 8, stream));
    cr_assert_eq(words[0], 3);
    check_success(drv.cuMemHostUnregister(words));
}
