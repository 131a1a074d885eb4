/* SPDX-License-Identifier: MIT */
/** @file How a program begins where something is missing; on the emulated driver alone. */
#include "runtime_other.h"

TestSuite(start, .timeout = 60);

typedef struct answers {
    const char *count;
    const char *malloc;
    const char *async;
    const char *last;
} answers;

static void check(const char *variable, const answers *expected) {
    const char *const environment[] = {variable, NULL};
    child_process *const other = other_start(environment);
    other_tell(other, "try");
    other_expect(other, expected->count);
    other_expect(other, expected->malloc);
    other_expect(other, expected->async);
    other_expect(other, expected->last);
    other_end(other);
}

Test(start, all_is_there) {
    check("GPUIPC_EMULATED_MACHINE=devices=3",
          &(answers){"count cudaSuccess 3", "malloc cudaSuccess", "async cudaSuccess",
                     "last cudaSuccess"});
}

Test(start, no_driver) {
    check("LD_LIBRARY_PATH",
          &(answers){"count cudaErrorInsufficientDriver 0", "malloc cudaErrorInsufficientDriver",
                     "async cudaErrorInsufficientDriver", "last cudaErrorInsufficientDriver"});
}

Test(start, no_device) {
    check("GPUIPC_EMULATED_MACHINE=devices=0",
          &(answers){"count cudaErrorNoDevice 0", "malloc cudaErrorNoDevice",
                     "async cudaErrorNoDevice", "last cudaErrorNoDevice"});
}

Test(start, no_device_is_visible) {
    check("CUDA_VISIBLE_DEVICES=",
          &(answers){"count cudaErrorNoDevice 0", "malloc cudaErrorNoDevice",
                     "async cudaErrorNoDevice", "last cudaErrorNoDevice"});
}

Test(start, no_context_is_allowed) {
    check("GPUIPC_EMULATED_MACHINE=compute-mode=prohibited",
          &(answers){"count cudaSuccess 2", "malloc cudaErrorDevicesUnavailable",
                     "async cudaErrorDevicesUnavailable", "last cudaErrorDevicesUnavailable"});
}

Test(start, an_older_driver_lacks_a_call) {
    check("GPUIPC_EMULATED_MACHINE=version=11010",
          &(answers){"count cudaSuccess 2", "malloc cudaSuccess",
                     "async cudaErrorCallRequiresNewerDriver",
                     "last cudaErrorCallRequiresNewerDriver"});
}

Test(start, the_driver_refuses) {
    check("GPUIPC_EMULATED_FAIL=cuMemAlloc:1=2;cuMemAllocAsync:1=999",
          &(answers){"count cudaSuccess 2", "malloc cudaErrorMemoryAllocation",
                     "async cudaErrorUnknown", "last cudaErrorUnknown"});
}

Test(start, what_fails_first_may_succeed_later) {
    check("GPUIPC_EMULATED_FAIL=cuDevicePrimaryCtxRetain:1=2",
          &(answers){"count cudaSuccess 2", "malloc cudaErrorMemoryAllocation", "async cudaSuccess",
                     "last cudaErrorMemoryAllocation"});
}

Test(start, a_forked_child_has_no_driver) {
    child_process *const other = other_start(NULL);
    other_tell(other, "fork");
    other_expect(other, "child cudaErrorInitializationError");
    other_expect(other, "done");
    other_end(other);
}
