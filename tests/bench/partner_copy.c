/* SPDX-License-Identifier: MIT */
/** @file The copies of row_copy.c. */
#include "partner_copy.h"

#include "helper.h"
#include "pair.h"
#include "partner.h"

typedef struct copies {
    uint64_t bytes;
    uint32_t device;
    CUdeviceptr local;
    CUstream in;
    CUstream out;
    CUevent begin;
    CUevent middle;
    CUevent end;
} copies;

static void put(const copies *self, CUdeviceptr remote, int way) {
    const driver *drv = &bench_driver;
    const uint64_t half = self->bytes / 2;
    for (uint32_t i = 0; i < COPY_REPEAT; i++) {
        CUresult result = CUDA_SUCCESS;
        if (way == COPY_IN) {
            result = drv->cuMemcpyAsync(self->local, remote, self->bytes, self->in);
        } else if (way == COPY_OUT) {
            result = drv->cuMemcpyAsync(remote, self->local, self->bytes, self->in);
        } else {
            bench_check_cuda(drv->cuMemcpyAsync(self->local, remote, half, self->in), "copying");
            result = drv->cuMemcpyAsync(remote + half, self->local + half, half, self->out);
        }
        bench_check_cuda(result, "copying");
    }
}

/* Nanoseconds by the device's own clock. */
static uint64_t measure(const copies *self, CUdeviceptr remote, int way) {
    const driver *drv = &bench_driver;
    float milliseconds = 0;
    bench_check_cuda(drv->cuEventRecord(self->begin, self->in), "an event");
    bench_check_cuda(drv->cuStreamWaitEvent(self->out, self->begin, 0), "an event");
    put(self, remote, way);
    bench_check_cuda(drv->cuEventRecord(self->middle, self->out), "an event");
    bench_check_cuda(drv->cuStreamWaitEvent(self->in, self->middle, 0), "an event");
    bench_check_cuda(drv->cuEventRecord(self->end, self->in), "an event");
    bench_check_cuda(drv->cuStreamSynchronize(self->in), "waiting");
    bench_check_cuda(drv->cuEventElapsedTime(&milliseconds, self->begin, self->end), "a time");
    return (uint64_t)((double)milliseconds * 1e6);
}

static void fill(const copies *self, CUdeviceptr address, uint32_t value) {
    bench_check_cuda(bench_driver.cuMemsetD32(address, value, self->bytes / sizeof(value)),
                     "filling");
    bench_check_cuda(bench_driver.cuCtxSynchronize(), "filling");
}

/* One way, measured and checked. Both memories are full of @p value before and after. */
static uint64_t copy(const copies *self, CUdeviceptr remote, int way, uint32_t value) {
    fill(self, remote, way == COPY_OUT ? ~value : value);
    fill(self, self->local, way == COPY_OUT ? value : ~value);
    const uint64_t half = self->bytes / 2;
    if (way == COPY_BOTH) {
        fill(self, self->local, value);
        bench_check_cuda(bench_driver.cuMemsetD32(self->local, ~value, half / sizeof(value)),
                         "filling");
        bench_check_cuda(bench_driver.cuMemsetD32(remote + half, ~value, half / sizeof(value)),
                         "filling");
        bench_check_cuda(bench_driver.cuCtxSynchronize(), "filling");
    }
    const uint64_t took = measure(self, remote, way);
    partner_verify(self->local, self->bytes, value, self->device);
    partner_verify(remote, self->bytes, value, self->device);
    return took;
}

static void begin(copies *self) {
    const driver *drv = &bench_driver;
    bench_enter((int)self->device);
    bench_check_cuda(drv->cuMemAlloc(&self->local, self->bytes), "memory");
    bench_check_cuda(drv->cuStreamCreate(&self->in, CU_STREAM_NON_BLOCKING), "a stream");
    bench_check_cuda(drv->cuStreamCreate(&self->out, CU_STREAM_NON_BLOCKING), "a stream");
    bench_check_cuda(drv->cuEventCreate(&self->begin, CU_EVENT_DEFAULT), "an event");
    bench_check_cuda(drv->cuEventCreate(&self->middle, CU_EVENT_DISABLE_TIMING), "an event");
    bench_check_cuda(drv->cuEventCreate(&self->end, CU_EVENT_DEFAULT), "an event");
}

static void finish(const copies *self) {
    const driver *drv = &bench_driver;
    bench_check_cuda(drv->cuEventDestroy(self->begin), "an event");
    bench_check_cuda(drv->cuEventDestroy(self->middle), "an event");
    bench_check_cuda(drv->cuEventDestroy(self->end), "an event");
    bench_check_cuda(drv->cuStreamDestroy(self->in), "a stream");
    bench_check_cuda(drv->cuStreamDestroy(self->out), "a stream");
    bench_check_cuda(drv->cuMemFree(self->local), "memory");
}

/* Memory of this process on the owner's device, that the other device may use as well. */
static floor_memory *make_alone(uint64_t bytes, int owner, int device) {
    const floor_plan plan = {1, bytes, 0};
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    floor_memory *memory = floor_make(&plan, owner);
    bench_check_cuda(bench_driver.cuMemSetAccess(memory->address, bytes, &access, 1), "access");
    return memory;
}

/* copy OWNER DEVICE ROUNDS: with the buffer that was kept last; answers two times a line, inside this process and
 * through the mapping, for each way in each round */
void partner_copy(partner *self, const partner_words *words) {
    const int owner = (int)partner_number(words, 0);
    const uint64_t rounds = partner_number(words, 2);
    if (self->kept_count == 0) {
        bench_fail("nothing is kept to be copied");
    }
    const gpuipc_buffer_info info = pair_info(self->kept[self->kept_count - 1].buffer);
    copies of = {.bytes = info.bytes, .device = (uint32_t)partner_number(words, 1)};
    begin(&of);
    floor_memory *alone = make_alone(info.allocated_bytes, owner, (int)of.device);
    for (uint32_t i = 0; i <= rounds; i++) {
        for (int way = 0; way < COPY_WAYS; way++) {
            const uint64_t inside = copy(&of, alone->address, way, copy_value(i));
            const uint64_t mapped = copy(&of, info.address, way, copy_value(i));
            helper_say("%llu %llu", (unsigned long long)inside, (unsigned long long)mapped);
        }
    }
    floor_end(alone, 1);
    finish(&of);
}
