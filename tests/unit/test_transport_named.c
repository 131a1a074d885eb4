/* SPDX-License-Identifier: MIT */
/** @file Memory that is named by bytes, and that the receiver does not know as its own process's: the size and the name are
 *  the peer's word. Both ends are in this process, so some functions of the library are wrapped (ld(1), --wrap). */
#include <stdio.h>
#include <string.h>

#include "core_fixture.h"
#include "cuda/context.h"
#include "memory/registry.h"
#include "message/connection.h"

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
static size_t says_bytes;   /* the driver, of what was opened; */
static size_t says_shift;   /* so far before it the allocation begins */

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
    *base = at - says_shift;
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
    says_bytes = 64 * core_unit;
    says_shift = 256;
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

static CUresult import_result;
static CUmemoryPool same_pool;

static CUresult import_pool(CUmemoryPool *out_pool, void *handle, CUmemAllocationHandleType type,
                            unsigned long long flags) {
    (void)handle;
    (void)type;
    (void)flags;
    *out_pool = same_pool;
    return import_result;
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
    if (which == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
        const CUdeviceptr start = at - says_shift;
        memcpy(data, &start, sizeof(start));
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

/* As of another process, which is the only one whose pools are imported. */
static void import_as_foreign(void) {
    make(GPUIPC_TRANSPORT_POOL);
    is_unknown = true;
    is_other_process = true;
    same_pool = (CUmemoryPool)&same_pool;
    inside->driver.cuMemPoolImportFromShareableHandle = import_pool;
    inside->driver.cuMemPoolImportPointer = import_pointer;
    inside->driver.cuMemFree = leave_memory;
    inside->driver.cuMemPoolDestroy = leave_pool;
}

static void pair_anew(void) {
    core_pair_close(&pair);
    core_pair_open(&pair, receives, core_context);
}

Test(transport_named, memory_of_a_pool_that_is_smaller_than_its_owner_says) {
    import_as_foreign();
    inside->driver.cuPointerGetAttribute = say_attribute;
    says_bytes = BYTES - 1;
    check_refused(GPUIPC_ERR_SIZE_MISMATCH, "that it is said to have", hand_over());
    says_bytes = BYTES;
    says_shift = 256;
    check_refused(GPUIPC_ERR_SIZE_MISMATCH, "that it is said to have", hand_over());
    inside->driver.cuPointerGetAttribute = core_driver()->cuPointerGetAttribute;
    check_comes();
    pair_anew(); /* the pool that came goes while the driver is the test's */
}

/* The codes that the driver has for what is no pool of its own. */
Test(transport_named, handles_that_are_no_pool) {
    static const CUresult codes[] = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE,
                                     CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_UNKNOWN};
    import_as_foreign();
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        import_result = codes[i];
        check_refused(GPUIPC_ERR_NOT_GPU_MEMORY, "no pool that this driver can open", hand_over());
        pair_anew();
    }
    import_result = CUDA_SUCCESS;
    check_comes();
    pair_anew();
}

/* ---- who cannot, or does not, take it --------------------------------------------------------------- */

Test(transport_named, legacy_memory_of_another_pid_namespace) {
    make(GPUIPC_TRANSPORT_LEGACY);
    is_unknown = true;
    is_other_process = true; /* which has the number of this one where it is */
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "PID namespace", hand_over());
}

static void check_not_taken(gpuipc_transport kind, gpuipc_status expected, const char *text) {
    make(kind);
    check_refused(expected, text, hand_over());
    inside->driver = *core_driver();
    pair_anew(); /* a pool's handle comes once over each connection */
    check_comes();
}

Test(transport_named, virtual_memory_for_a_driver_without_it) {
    inside->driver.has_vmm = false;
    check_not_taken(GPUIPC_TRANSPORT_VMM, GPUIPC_ERR_VMM_UNSUPPORTED, "no virtual memory");
}

Test(transport_named, legacy_memory_for_a_driver_without_it) {
    inside->driver.has_legacy = false;
    check_not_taken(GPUIPC_TRANSPORT_LEGACY, GPUIPC_ERR_NOT_SUPPORTED, "");
}

Test(transport_named, memory_of_a_pool_for_a_driver_without_it) {
    inside->driver.has_pool = false;
    check_not_taken(GPUIPC_TRANSPORT_POOL, GPUIPC_ERR_NOT_SUPPORTED, "stream-ordered");
}

/* Names are bytes that the driver does not check. */
static void check_not_trusted(gpuipc_transport kind) {
    connection *from;
    make(kind);
    check_ok(connection_acquire(pair.server, &from));
    from->peer.same_user = false;
    check_refused(GPUIPC_ERR_ACCESS_DENIED, "another user", hand_over());
    from->peer.same_user = true;
    connection_unreference(from);
    check_comes();
}

Test(transport_named, legacy_memory_of_another_user) {
    check_not_trusted(GPUIPC_TRANSPORT_LEGACY);
}

Test(transport_named, fabric_memory_of_another_user) {
    check_not_trusted(GPUIPC_TRANSPORT_FABRIC);
}

Test(transport_named, fabric_memory_for_a_driver_without_virtual_memory) {
    inside->driver.has_vmm = false;
    check_not_taken(GPUIPC_TRANSPORT_FABRIC, GPUIPC_ERR_VMM_UNSUPPORTED, "no virtual memory");
}
