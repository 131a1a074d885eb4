/* SPDX-License-Identifier: MIT */
/** @file An ordinary program: usage: preload_program WAY CASE. One case a run; 0 is good. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"

#define MIB ((size_t)1 << 20)

static CUcontext use_device(int device) {
    CUcontext context;
    MUST(cuda.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuda.cuCtxSetCurrent(context));
    return context;
}

/* Whether memory has the kind of handle that can be shared, which memory of cuMemAlloc() has not. */
static bool is_shareable(CUdeviceptr address) {
    CUmemGenericAllocationHandle handle;
    if (cuda.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address) != CUDA_SUCCESS) {
        return false;
    }
    MUST(cuda.cuMemRelease(handle));
    return true;
}

static size_t free_bytes(void) {
    size_t free;
    size_t total;
    MUST(cuda.cuMemGetInfo(&free, &total));
    return free;
}

static unsigned long long number_of(CUdeviceptr address, CUpointer_attribute attribute) {
    unsigned long long value = 0;
    MUST(cuda.cuPointerGetAttribute(&value, attribute, address));
    return value;
}

static void fill(CUdeviceptr address, size_t bytes, unsigned seed) {
    unsigned char *data = malloc(bytes);
    CHECK(data != NULL);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)(i * 31 + seed);
    }
    MUST(cuda.cuMemcpyHtoD(address, data, bytes));
    MUST(cuda.cuCtxSynchronize()); /* cuda.h: of pageable memory it may go on after the call */
    free(data);
}

static void verify(CUdeviceptr address, size_t bytes, unsigned seed) {
    unsigned char *data = malloc(bytes);
    CHECK(data != NULL);
    MUST(cuda.cuMemcpyDtoH(data, address, bytes));
    for (size_t i = 0; i < bytes; i++) {
        CHECK(data[i] == (unsigned char)(i * 31 + seed));
    }
    free(data);
}

/* ---- what an address is ---------------------------------------------------------------------- */

static void check_one(CUdeviceptr address, size_t bytes, CUcontext context) {
    CUdeviceptr base = 0;
    size_t size = 0;
    CUcontext of = NULL;
    int device = -1;
    unsigned type = 0;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *into[] = {&of, &type, &device};
    CHECK(address % 256 == 0);
    CHECK(is_shareable(address));
    MUST(cuda.cuMemGetAddressRange(&base, &size, address + bytes - 1));
    CHECK(base == address && size == bytes);
    MUST(cuda.cuMemGetAddressRange(NULL, &size, address));
    CHECK(size == bytes);
    CHECK(number_of(address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) == address);
    CHECK(number_of(address + bytes / 2, CU_POINTER_ATTRIBUTE_RANGE_SIZE) == bytes);
    CHECK(number_of(address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == address);
    CHECK(number_of(address, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) == 1);
    CHECK(number_of(address, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) == 0);
    CHECK(number_of(address, CU_POINTER_ATTRIBUTE_IS_MANAGED) == 0);
    MUST(cuda.cuPointerGetAttributes(3, which, into, address));
    CHECK(of == context && type == CU_MEMORYTYPE_DEVICE && device == 0);
}

static void case_address(void) {
    static const size_t sizes[] = {1, 255, 512, 513, 4096, MIB, MIB + 1, 2 * MIB, 5 * MIB + 3};
    CUdeviceptr made[sizeof(sizes) / sizeof(sizes[0])];
    unsigned long long ids[sizeof(sizes) / sizeof(sizes[0])];
    const size_t count = sizeof(sizes) / sizeof(sizes[0]);
    CUcontext context = use_device(0);
    const size_t before = free_bytes();
    for (size_t i = 0; i < count; i++) {
        MUST(cuda.cuMemAlloc(&made[i], sizes[i]));
        check_one(made[i], sizes[i], context);
        fill(made[i], sizes[i], (unsigned)i);
        ids[i] = number_of(made[i], CU_POINTER_ATTRIBUTE_BUFFER_ID);
        for (size_t j = 0; j < i; j++) {
            CHECK(ids[j] != ids[i]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        verify(made[i], sizes[i], (unsigned)i);
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuMemFree(made[i] + 1));
        MUST(cuda.cuMemFree(made[i]));
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuMemFree(made[i]));
    }
    CHECK(before - free_bytes() <= 2 * MIB); /* what is kept for small ones */
    MUST(cuda.cuDevicePrimaryCtxRelease(0));
}

static void case_pitch(void) {
    CUdeviceptr address;
    size_t pitch = 0;
    use_device(0);
    MUST(cuda.cuMemAllocPitch(&address, &pitch, 1000, 3000, 4));
    CHECK(pitch == 1024 && is_shareable(address));
    CHECK(number_of(address, CU_POINTER_ATTRIBUTE_RANGE_SIZE) == (size_t)1024 * 3000);
    MUST(cuda.cuMemFree(address));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuMemAllocPitch(&address, &pitch, 1000, 3000, 3));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuMemAllocPitch(&address, &pitch, 0, 3000, 4));
}

/* ---- many, and from several threads ---------------------------------------------------------- */

#define SMALL 4000

static void case_small(void) {
    static CUdeviceptr made[SMALL];
    use_device(0);
    const size_t before = free_bytes();
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < SMALL; i++) {
            MUST(cuda.cuMemAlloc(&made[i], 1 + i % 3000));
            MUST(cuda.cuMemsetD8(made[i], (unsigned char)i, 1 + i % 3000));
        }
        for (size_t i = 0; i < SMALL; i++) {
            unsigned char ends[2];
            MUST(cuda.cuMemcpyDtoH(&ends[0], made[i], 1));
            MUST(cuda.cuMemcpyDtoH(&ends[1], made[i] + i % 3000, 1));
            CHECK(ends[0] == (unsigned char)i && ends[1] == (unsigned char)i);
        }
        for (size_t i = 0; i < SMALL; i++) {
            MUST(cuda.cuMemFree(made[i * 7 % SMALL])); /* 7 and 4000 have no divisor in common */
        }
        CHECK(before - free_bytes() <= 2 * MIB);
    }
}

/* Places that are left beside larger allocations are found, in however many slabs they are. */
static void case_mixed(void) {
    enum {
        SLABS = 40
    };
    CUdeviceptr large[SLABS];
    CUdeviceptr small[SLABS];
    use_device(0);
    for (int i = 0; i < SLABS; i++) {
        MUST(cuda.cuMemAlloc(&large[i], MIB)); /* two fill a slab */
    }
    for (int i = 0; i < SLABS; i += 2) {
        MUST(cuda.cuMemFree(large[i]));
        MUST(cuda.cuMemAlloc(&large[i], MIB * 3 / 4));
    }
    const size_t before = free_bytes();
    for (int i = 0; i < SLABS / 2; i++) {
        MUST(cuda.cuMemAlloc(&small[i], MIB / 4));
    }
    CHECK(free_bytes() == before);
    for (int i = 0; i < SLABS / 2; i++) {
        MUST(cuda.cuMemFree(small[i]));
    }
    for (int i = 0; i < SLABS; i++) {
        MUST(cuda.cuMemFree(large[i]));
    }
}

#define THREADS    4
#define PER_THREAD 200

typedef struct worker {
    pthread_t thread;
    CUcontext context;
    CUdeviceptr made[PER_THREAD];
    unsigned number;
} worker;

static size_t size_of(unsigned i) {
    return i % 10 == 0 ? 3 * MIB : 100 + i * 7;
}

static void *make_some(void *data) {
    worker *self = data;
    MUST(cuda.cuCtxSetCurrent(self->context));
    for (unsigned i = 0; i < PER_THREAD; i++) {
        MUST(cuda.cuMemAlloc(&self->made[i], size_of(i)));
        MUST(cuda.cuMemsetD8(self->made[i], (unsigned char)(self->number + i), size_of(i)));
        if (i % 3 == 2) {
            MUST(cuda.cuMemFree(self->made[i - 1]));
            self->made[i - 1] = 0;
        }
    }
    return NULL;
}

static void *free_some(void *data) {
    worker *self = data;
    MUST(cuda.cuCtxSetCurrent(self->context));
    for (unsigned i = 0; i < PER_THREAD; i++) {
        unsigned char byte;
        if (self->made[i] != 0) {
            MUST(cuda.cuMemcpyDtoH(&byte, self->made[i] + size_of(i) - 1, 1));
            CHECK(byte == (unsigned char)(self->number + i));
            MUST(cuda.cuMemFree(self->made[i]));
        }
    }
    return NULL;
}

static void case_threads(void) {
    static worker workers[THREADS];
    CUcontext context = use_device(0);
    const size_t before = free_bytes();
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].context = context;
        workers[i].number = i;
        CHECK(pthread_create(&workers[i].thread, NULL, make_some, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&workers[i].thread, NULL, free_some, &workers[(i + 1) % THREADS]) ==
              0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
    }
    CHECK(before - free_bytes() <= 2 * MIB);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static CUdeviceptr left[2];

static void free_left(void) {
    const CUresult first = cuda.cuMemFree(left[0]);
    const CUresult second = cuda.cuMemFree(left[1]);
    if (first != second || (first != CUDA_SUCCESS && first != CUDA_ERROR_DEINITIALIZED)) {
        fprintf(stderr, "at exit: %d %d\n", (int)first, (int)second);
        _exit(1);
    }
}

static void case_exit(void) {
    use_device(0);
    CHECK(atexit(free_left) == 0);
    MUST(cuda.cuMemAlloc(&left[0], 100));
    MUST(cuda.cuMemAlloc(&left[1], 4 * MIB));
}

static void case_context(void) {
    CUcontext primary = use_device(0);
    CUcontext other;
    CUdeviceptr small;
    CUdeviceptr large;
    CUdeviceptr kept;
    size_t size;
    MUST(cuda.cuMemAlloc(&kept, 3 * MIB));
    fill(kept, 3 * MIB, 5);
    const size_t before = free_bytes();
    for (int i = 0; i < 3; i++) {
        MUST(cuda.cuCtxCreate(&other, 0, 0));
        MUST(cuda.cuMemAlloc(&small, 100));
        MUST(cuda.cuMemAlloc(&large, 8 * MIB));
        check_one(large, 8 * MIB, other);
        MUST(cuda.cuCtxDestroy(other));
        MUST(cuda.cuCtxSetCurrent(primary));
        EXPECT(CUDA_ERROR_NOT_FOUND, cuda.cuMemGetAddressRange(NULL, &size, large));
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuMemFree(large));
        CHECK(free_bytes() == before);
    }
    verify(kept, 3 * MIB, 5);
    MUST(cuda.cuDevicePrimaryCtxReset(0));
    use_device(0);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuMemFree(kept));
    CHECK(free_bytes() >= before + 3 * MIB);
    MUST(cuda.cuMemAlloc(&kept, 3 * MIB));
    for (int active = 1; active;) {
        unsigned flags;
        MUST(cuda.cuDevicePrimaryCtxRelease(0));
        MUST(cuda.cuDevicePrimaryCtxGetState(0, &flags, &active));
    }
    use_device(0);
    CHECK(free_bytes() >= before + 3 * MIB);
}

/* ---- peers ----------------------------------------------------------------------------------- */

/* Memory of another device than the current context's, which was not let at it: copies reach it, and nothing else. */
static void copy_of_another(CUdeviceptr other, CUdeviceptr own) {
    CUstream stream;
    static unsigned char data[1000];
    MUST(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    fill(other, sizeof(data), 1); /* HtoD, and DtoH in verify() */
    verify(other, 4 * MIB, 1);
    MUST(cuda.cuMemsetD8(own, 0, 4 * MIB));
    MUST(cuda.cuMemcpyDtoD(own, other, 4 * MIB));
    verify(own, 4 * MIB, 1);
    MUST(cuda.cuMemcpyDtoDAsync(other + MIB, own, MIB, stream));
    MUST(cuda.cuStreamSynchronize(stream));
    verify(other + MIB, MIB, 1);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuMemcpyDtoD(own, 12345, 100));
    MUST(cuda.cuStreamDestroy(stream));
}

static void case_peer(void) {
    int count = 0;
    int can = 0;
    CUdeviceptr before;
    CUdeviceptr after;
    CUdeviceptr there;
    MUST(cuda.cuDeviceGetCount(&count));
    if (count > 1) {
        MUST(cuda.cuDeviceCanAccessPeer(&can, 1, 0));
    }
    if (!can) {
        printf("skipped: there are no two devices that reach each other\n");
        exit(77);
    }
    CUcontext first = use_device(0);
    MUST(cuda.cuMemAlloc(&before, 4 * MIB));
    fill(before, 4 * MIB, 1);
    CUcontext second = use_device(1);
    MUST(cuda.cuMemAlloc(&there, 4 * MIB));
    MUST(cuda.cuMemcpyPeer(there, second, before, first, 4 * MIB)); /* without access, too */
    verify(there, 4 * MIB, 1);
    copy_of_another(before, there);
    MUST(cuda.cuCtxEnablePeerAccess(first, 0));
    EXPECT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuda.cuCtxEnablePeerAccess(first, 0));
    MUST(cuda.cuCtxSetCurrent(first));
    MUST(cuda.cuMemAlloc(&after, 100));
    fill(after, 100, 2);
    MUST(cuda.cuCtxSetCurrent(second));
    CHECK(number_of(before, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == before);
    MUST(cuda.cuMemcpyDtoD(there, before, 4 * MIB));
    verify(there, 4 * MIB, 1);
    MUST(cuda.cuMemcpyDtoD(there, after, 100));
    verify(there, 100, 2);
    MUST(cuda.cuCtxDisablePeerAccess(first));
    EXPECT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuda.cuCtxDisablePeerAccess(first));
    MUST(cuda.cuMemFree(before));
    MUST(cuda.cuMemFree(after));
    MUST(cuda.cuMemFree(there));
}

/* Access changes only when the work of both devices has been waited for: here it cannot be, and the copy goes another
 * way. */
static void case_peer_unwaited(void) {
    int count = 0;
    CUdeviceptr other;
    static const unsigned char data[100] = {7};
    MUST(cuda.cuDeviceGetCount(&count));
    CHECK(count > 1);
    use_device(0);
    MUST(cuda.cuMemAlloc(&other, 4 * MIB));
    use_device(1);
    MUST(cuda.cuMemcpyHtoD(other, data, sizeof(data)));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuMemsetD8(other, 1, 100));
    MUST(cuda.cuMemcpyHtoD(other + 1, data, sizeof(data))); /* the second wait does not fail */
    MUST(cuda.cuMemsetD8(other, 1, 100));
    MUST(cuda.cuMemFree(other));
}

/* ---- what is passed on ----------------------------------------------------------------------- */

static void case_passed(void) {
    CUdeviceptr address;
    CUipcMemHandle handle;
    memset(&handle, 0x5a, sizeof(handle));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuda.cuMemAlloc(&address, 100));
    use_device(0);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuMemAlloc(NULL, 100));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuMemAlloc(&address, 0));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuda.cuMemAlloc(&address, (size_t)1 << 50));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuMemFree(12345));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuda.cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuIpcCloseMemHandle(12345));
    MUST(cuda.cuMemAllocManaged(&address, 100, CU_MEM_ATTACH_GLOBAL));
    CHECK(number_of(address, CU_POINTER_ATTRIBUTE_IS_MANAGED) == 1);
    MUST(cuda.cuMemFree(address));
    MUST(cuda.cuMemAllocAsync(&address, 100, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuIpcGetMemHandle(&handle, address));
    MUST(cuda.cuMemFreeAsync(address, NULL));
}

/* Where there is no memory of the hook's kind, the driver's own serves, in all that a program does with it. */
static void case_ordinary(void) {
    CUdeviceptr made[3];
    CUipcMemHandle handle;
    size_t pitch;
    use_device(0);
    const size_t before = free_bytes();
    MUST(cuda.cuMemAlloc(&made[0], 100));
    MUST(cuda.cuMemAlloc(&made[1], 5 * MIB));
    MUST(cuda.cuMemAllocPitch(&made[2], &pitch, 1000, 10, 4));
    for (size_t i = 0; i < 3; i++) {
        CHECK(!is_shareable(made[i]));
        fill(made[i], 100, (unsigned)i);
    }
    CHECK(number_of(made[1], CU_POINTER_ATTRIBUTE_RANGE_SIZE) == 5 * MIB);
    MUST(cuda.cuIpcGetMemHandle(&handle, made[1]));
    for (size_t i = 0; i < 3; i++) {
        verify(made[i], 100, (unsigned)i);
        MUST(cuda.cuMemFree(made[i]));
    }
    CHECK(free_bytes() == before);
}

/* Where gpuipc cannot serve, memory is as good as before. */
static void case_no_folder(void) {
    CUdeviceptr address;
    CUipcMemHandle handle;
    use_device(0);
    MUST(cuda.cuMemAlloc(&address, 100));
    for (int i = 0; i < 2; i++) {
        EXPECT(CUDA_ERROR_OPERATING_SYSTEM, cuda.cuIpcGetMemHandle(&handle, address));
        fill(address, 100, 1);
        verify(address, 100, 1);
    }
    MUST(cuda.cuMemFree(address));
}

/* A capture that goes on in a relaxed mode: the driver allocates, and what is freed is freed when it has ended. */
static void case_capture(void) {
    CUstream stream;
    CUgraph graph;
    CUdeviceptr ours;
    CUdeviceptr theirs;
    use_device(0);
    MUST(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuda.cuMemAlloc(&ours, 4 * MIB));
    const size_t before = free_bytes();
    MUST(cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuda.cuMemsetD8Async(ours, 3, 4 * MIB, stream));
    MUST(cuda.cuMemAlloc(&theirs, 4 * MIB));
    CHECK(!is_shareable(theirs));
    MUST(cuda.cuMemFree(ours));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuda.cuMemFree(ours));
    MUST(cuda.cuStreamEndCapture(stream, &graph));
    MUST(cuda.cuGraphDestroy(graph));
    MUST(cuda.cuMemFree(theirs));
    CHECK(free_bytes() == before + 4 * MIB);
    MUST(cuda.cuStreamDestroy(stream));
}

/* What was freed during a capture cannot be waited for afterwards; so it ends with its context. What is beside it, of
 * another context, stays. */
static void case_unwaited(void) {
    enum {
        COUNT = 8
    };
    CUdeviceptr kept[COUNT];
    CUdeviceptr freed[COUNT];
    CUcontext other;
    CUstream stream;
    CUgraph graph;
    CUcontext primary = use_device(0);
    MUST(cuda.cuCtxCreate(&other, 0, 0));
    MUST(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < COUNT; i++) {
        MUST(cuda.cuCtxSetCurrent(primary));
        MUST(cuda.cuMemAlloc(&kept[i], 2 * MIB));
        MUST(cuda.cuCtxSetCurrent(other));
        MUST(cuda.cuMemAlloc(&freed[i], 2 * MIB));
    }
    MUST(cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuda.cuMemFree(freed[COUNT / 2]));
    MUST(cuda.cuStreamEndCapture(stream, &graph)); /* the first wait, which fails */
    MUST(cuda.cuGraphDestroy(graph));
    MUST(cuda.cuCtxDestroy(other));
    MUST(cuda.cuCtxSetCurrent(primary));
    for (int i = 0; i < COUNT; i++) {
        fill(kept[i], 2 * MIB, (unsigned)i);
        verify(kept[i], 2 * MIB, (unsigned)i);
        MUST(cuda.cuMemFree(kept[i]));
    }
}

/* ---- fork ------------------------------------------------------------------------------------ */

static void case_fork(void) {
    CUdeviceptr address;
    CUdeviceptr another;
    int status;
    use_device(0);
    MUST(cuda.cuMemAlloc(&address, 100));
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* CUDA does not survive fork(), and the driver's own words come through. */
        EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuda.cuMemAlloc(&another, 100));
        EXPECT(CUDA_ERROR_NOT_INITIALIZED, cuda.cuMemFree(address));
        exit(0); /* with the handlers */
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    fill(address, 100, 1);
    verify(address, 100, 1);
    MUST(cuda.cuMemFree(address));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"address", case_address},
                 {"pitch", case_pitch},
                 {"small", case_small},
                 {"threads", case_threads},
                 {"exit", case_exit},
                 {"context", case_context},
                 {"peer", case_peer},
                 {"passed", case_passed},
                 {"capture", case_capture},
                 {"fork", case_fork},
                 {"ordinary", case_ordinary},
                 {"no_folder", case_no_folder},
                 {"unwaited", case_unwaited},
                 {"mixed", case_mixed},
                 {"peer_unwaited", case_peer_unwaited}};
    if (argc != 3) {
        fprintf(stderr, "usage: %s WAY CASE\n", argv[0]);
        return 2;
    }
    calls_find(argv[1]);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(cases[i].name, argv[2]) == 0) {
            cases[i].run();
            if (cases[i].run != case_exit) {
                calls_end();
            }
            return 0;
        }
    }
    fprintf(stderr, "no such case: %s\n", argv[2]);
    return 2;
}
