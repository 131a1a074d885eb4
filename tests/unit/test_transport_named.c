/* SPDX-License-Identifier: MIT */
/** @file Memory that is named by bytes, and that the receiver does not know as its own process's: the size and the name are
 *  the peer's word. Both ends are in this process, so some functions of the library are wrapped (ld(1), --wrap). */
#include <stdio.h>
#include <string.h>

#include "core_fixture.h"
#include "cuda/context.h"
#include "memory/registry.h"

#define BYTES UINT64_C(65536)

static bool is_unknown;       /* as memory of another process is */
static buffer *wrong;         /* what stands in its place in the registry */
static bool is_other_process; /* the peer is not this one */

buffer *__real_registry_find(const uint8_t exporter_id[16], uint64_t buffer_id);
buffer *__wrap_registry_find(const uint8_t exporter_id[16], uint64_t buffer_id);
buffer *__wrap_registry_find(const uint8_t exporter_id[16], uint64_t buffer_id) {
    if (wrong != NULL) {
        object_reference(&wrong->object);
        return wrong;
    }
    return is_unknown ? NULL : __real_registry_find(exporter_id, buffer_id);
}

uint64_t __real_os_process_id(void);
uint64_t __wrap_os_process_id(void);
uint64_t __wrap_os_process_id(void) {
    return __real_os_process_id() + (is_other_process ? 1 : 0);
}

static gpuipc_context *receives;
static context *inside; /* of who receives */
static core_pair pair;
static gpuipc_buffer *sent;
static gpuipc_buffer *opened;
static CUdeviceptr address; /* of what was sent */
static size_t says_bytes;   /* the driver */

static void begin(void) {
    core_start();
    core_need_emulated();
    core_need_devices(2);
    core_enter_device(0);
    receives = core_context_new();
    check_ok(context_acquire(receives, &inside));
    core_pair_open(&pair, receives, core_context);
    core_set_failures("");
}

static void finish(void) {
    if (inside != NULL) {
        core_set_failures("");
        inside->driver = *core_driver();
        is_unknown = is_other_process = false;
        wrong = NULL;
        core_pair_close(&pair);
        check_ok(gpuipc_buffer_release(sent));
        context_unreference(inside);
        check_ok(gpuipc_context_destroy(receives));
    }
    core_finish();
}

TestSuite(transport_named, .init = begin, .fini = finish, .timeout = 60);

static void make(gpuipc_transport kind) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = kind, .bytes = BYTES};
    if (kind == GPUIPC_TRANSPORT_POOL && os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32) {
        cr_skip_test("Windows shares no pools");
    }
    check_ok(gpuipc_buffer_create(core_context, &config, &sent));
    core_write_pattern(sent, 4);
    address = core_info(sent).address;
}

static gpuipc_status hand_over(void) {
    check_ok(core_send(pair.client, &sent, 1));
    return core_receive(pair.server, &opened, 1);
}

static void check_comes(void) {
    check_ok(hand_over());
    core_check_pattern(opened, 4);
    check_ok(gpuipc_buffer_release(opened));
    opened = NULL;
}

/* ---- names of this process's own --------------------------------------------------------------- */

Test(transport_named, legacy_memory_of_this_process_that_is_gone) {
    make(GPUIPC_TRANSPORT_LEGACY);
    is_unknown = true;
    check_refused(GPUIPC_ERR_LOST, "has been released", hand_over());
    is_unknown = false;
    check_comes();
}

Test(transport_named, memory_of_a_pool_of_this_process_that_is_gone) {
    make(GPUIPC_TRANSPORT_POOL);
    is_unknown = true;
    check_refused(GPUIPC_ERR_LOST, "has been released", hand_over());
    is_unknown = false;
    check_comes();
}

/* Who names a buffer of this process must know what that is. */
static void check_wrong_one(gpuipc_transport kind) {
    gpuipc_buffer *other = core_buffer(core_unit, 0);
    buffer *of;
    make(kind);
    check_ok(buffer_acquire(other, &of));
    wrong = of;
    check_refused(GPUIPC_ERR_NOT_GPU_MEMORY, "does not have", hand_over());
    wrong = NULL;
    buffer_unwind(of);
    check_ok(gpuipc_buffer_release(other));
    check_comes();
}

Test(transport_named, legacy_memory_by_the_name_of_another_buffer) {
    check_wrong_one(GPUIPC_TRANSPORT_LEGACY);
}

Test(transport_named, memory_of_a_pool_by_the_name_of_another_buffer) {
    check_wrong_one(GPUIPC_TRANSPORT_POOL);
}

/* ---- sizes that are not true ---------------------------------------------------------------------- */

static CUresult open_handle(CUdeviceptr *out_address, CUipcMemHandle name, unsigned int flags) {
    (void)name;
    (void)flags;
    *out_address = address;
    return CUDA_SUCCESS;
}

static CUresult say_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr at) {
    *base = at;
    *bytes = says_bytes;
    return CUDA_SUCCESS;
}

static void open_as_foreign(void) {
    make(GPUIPC_TRANSPORT_LEGACY);
    is_unknown = true;
    inside->driver.cuIpcOpenMemHandle = open_handle;
}

Test(transport_named, legacy_memory_that_is_smaller_than_its_owner_says) {
    open_as_foreign();
    inside->driver.cuMemGetAddressRange = say_range;
    says_bytes = BYTES - 1;
    check_refused(GPUIPC_ERR_SIZE_MISMATCH, "that it is said to have", hand_over());
    inside->driver.cuMemGetAddressRange = core_driver()->cuMemGetAddressRange;
    check_comes();
}

/* Each time that a device's context is entered, for as long as that is done. */
Test(transport_named, legacy_memory_whose_device_cannot_be_entered) {
    char failure[64];
    unsigned refused = 0;
    gpuipc_status status = GPUIPC_ERR_CUDA;
    open_as_foreign();
    for (unsigned number = 1; status != GPUIPC_OK; number++) {
        check_ok(core_send(pair.client, &sent, 1));
        (void)snprintf(failure, sizeof(failure), "cuCtxPushCurrent:%u=999", number);
        core_set_failures(failure);
        status = core_receive(pair.server, &opened, 1);
        core_set_failures("");
        refused += status == GPUIPC_ERR_CUDA;
        cr_assert(status == GPUIPC_OK || status == GPUIPC_ERR_CUDA, "%s: %s", failure,
                  gpuipc_status_name(status));
    }
    cr_assert_geq(refused, 2);
    check_ok(gpuipc_buffer_release(opened));
}

Test(transport_named, legacy_memory_is_reached_by_the_device_that_it_was_received_for) {
    open_as_foreign();
    check_ok(hand_over());
    check_ok(gpuipc_buffer_set_access(opened, 0, GPUIPC_ACCESS_DEFAULT));
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "receive it for device 1",
                  gpuipc_buffer_set_access(opened, 1, GPUIPC_ACCESS_DEFAULT));
    check_ok(gpuipc_buffer_release(opened));
}

static CUmemoryPool same_pool;

static CUresult import_pool(CUmemoryPool *out_pool, void *handle, CUmemAllocationHandleType type,
                            unsigned long long flags) {
    (void)handle;
    (void)type;
    (void)flags;
    *out_pool = same_pool;
    return CUDA_SUCCESS;
}

static CUresult import_pointer(CUdeviceptr *out_address, CUmemoryPool pool,
                               CUmemPoolPtrExportData *name) {
    (void)pool;
    (void)name;
    *out_address = address;
    return CUDA_SUCCESS;
}

static CUresult say_attribute(void *data, CUpointer_attribute which, CUdeviceptr at) {
    if (which == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        memcpy(data, &says_bytes, sizeof(says_bytes));
        return CUDA_SUCCESS;
    }
    return core_driver()->cuPointerGetAttribute(data, which, at);
}

/* What was opened is its owner's. */
static CUresult leave_memory(CUdeviceptr at) {
    (void)at;
    return CUDA_SUCCESS;
}

static CUresult leave_pool(CUmemoryPool pool) {
    (void)pool;
    return CUDA_SUCCESS;
}

Test(transport_named, memory_of_a_pool_that_is_smaller_than_its_owner_says) {
    make(GPUIPC_TRANSPORT_POOL);
    is_unknown = true;
    is_other_process = true;
    same_pool = (CUmemoryPool)&same_pool;
    inside->driver.cuMemPoolImportFromShareableHandle = import_pool;
    inside->driver.cuMemPoolImportPointer = import_pointer;
    inside->driver.cuPointerGetAttribute = say_attribute;
    inside->driver.cuMemFree = leave_memory;
    inside->driver.cuMemPoolDestroy = leave_pool;
    says_bytes = BYTES - 1;
    check_refused(GPUIPC_ERR_SIZE_MISMATCH, "that it is said to have", hand_over());
    inside->driver.cuPointerGetAttribute = core_driver()->cuPointerGetAttribute;
    check_comes();
    core_pair_close(&pair); /* and the pool that came over it, while the driver is the test's */
    core_pair_open(&pair, receives, core_context);
}
