/* SPDX-License-Identifier: MIT */
/** @file Drivers without one group of entry points, and drivers that cannot do what others can: what is not there is told by
 *  name, and the rest works as before. */
#include <stdio.h>

#include "contents_ends.h"
#include "cuda/context.h"
#include "cuda/cuda_entry_points.h"
#include "own_kinds.h"
#include "transport_machine.h"

static gpuipc_context *lacking; /* the context whose driver lacks a group */

static void finish(void) {
    if (lacking != NULL) {
        check_ok(gpuipc_context_destroy(lacking));
    }
    core_finish();
}

TestSuite(missing_group, .init = core_start, .fini = finish, .timeout = 60);

static const char *const groups[] = {
#define GROUP(group, name, suffix, version, parameters) #group,
    CUDA_API_LIST(GROUP)
#undef GROUP
};

/* A context whose driver does not find the first entry point of the group. */
static gpuipc_context *without(const char *group) {
    char failures[64];
    size_t at = 0;
    core_need_emulated();
    while (strcmp(groups[at], group) != 0) {
        at++;
    }
    (void)core_driver(); /* has all of them */
    (void)snprintf(failures, sizeof(failures), "cuGetProcAddress:%zu=500", at + 1);
    core_set_failures(failures);
    lacking = core_context_new();
    core_set_failures("");
    return lacking;
}

static gpuipc_status create(gpuipc_transport which, gpuipc_buffer **out_buffer) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .bytes = 4096, .transport = which};
    return gpuipc_buffer_create(lacking, &config, out_buffer);
}

static void check_not_made(gpuipc_transport which, gpuipc_status expected, const char *sentence) {
    gpuipc_buffer *made = NULL;
    check_refused(expected, sentence, create(which, &made));
    cr_assert_null(made);
}

/* What the others of this file leave as it was. */
static void check_vmm_works(void) {
    gpuipc_buffer *made = NULL;
    uint8_t byte = 0;
    check_ok(create(GPUIPC_TRANSPORT_VMM, &made));
    check_ok(gpuipc_buffer_write(made, 7, "x", 1));
    check_ok(gpuipc_buffer_read(made, 7, &byte, 1));
    cr_assert_eq(byte, 'x');
    check_ok(gpuipc_buffer_release(made));
}

Test(missing_group, pools) {
    (void)without("pool");
    check_not_made(GPUIPC_TRANSPORT_POOL, GPUIPC_ERR_NOT_SUPPORTED, "stream-ordered memory");
    machine_expect(lacking, GPUIPC_TRANSPORT_POOL, 0, 0,
                   machine_is_windows() ? GPUIPC_REASON_OPERATING_SYSTEM
                                        : GPUIPC_REASON_DRIVER_TOO_OLD);
    check_vmm_works();
}

/* Another process's pool comes to such a driver. */
Test(missing_group, pools_that_come) {
    core_pair pair = {0};
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .bytes = 4096, .transport = GPUIPC_TRANSPORT_POOL};
    gpuipc_buffer *made = NULL;
    gpuipc_buffer *received = NULL;
    if (machine_is_windows()) {
        cr_skip_test("Windows shares no pools");
    }
    core_pair_open(&pair, core_context, without("pool"));
    check_ok(gpuipc_buffer_create(core_context, &config, &made));
    check_ok(core_send(pair.server, &made, 1));
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "stream-ordered memory",
                  core_receive(pair.client, &received, 1));
    cr_assert_null(received);
    core_pair_close(&pair);
    check_ok(gpuipc_buffer_release(made));
}

Test(missing_group, legacy_ipc) {
    (void)without("legacy");
    check_not_made(GPUIPC_TRANSPORT_LEGACY, GPUIPC_ERR_NOT_SUPPORTED, "legacy IPC");
    machine_expect(lacking, GPUIPC_TRANSPORT_LEGACY, 0, 0, GPUIPC_REASON_DRIVER_TOO_OLD);
    check_vmm_works();
}

static gpuipc_pointer_info classify(const own_kinds *own) {
    gpuipc_pointer_info info = {.struct_size = sizeof(info)};
    check_ok(gpuipc_pointer_classify(lacking, own->address, own->bytes, &info));
    return info;
}

/* Memory of cuMemAlloc is what it is all the same. */
Test(missing_group, what_memory_is_without_virtual_memory_management) {
    (void)without("vmm");
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_PLAIN, 1u << 20);
    cr_assert_eq(classify(&own).kind, GPUIPC_MEMORY_DEVICE);
    own_kinds_undo(&own);
}

Test(missing_group, peer_access) {
    gpuipc_topology topology = {.struct_size = sizeof(topology)};
    const uint32_t devices[] = {GPUIPC_DEVICE(1)};
    core_need_devices(2);
    (void)without("p2p");
    check_ok(gpuipc_topology_get(lacking, 0, 1, &topology));
    cr_assert_eq(topology.link, GPUIPC_LINK_PCIE);
    cr_assert_eq(topology.peer_access, 0);
    machine_expect(lacking, GPUIPC_TRANSPORT_P2P, 0, 1, GPUIPC_REASON_DRIVER_TOO_OLD);
    const gpuipc_buffer_config config = {.struct_size = sizeof(config),
                                         .bytes = 4096,
                                         .transport = GPUIPC_TRANSPORT_P2P,
                                         .access_devices = devices,
                                         .access_device_count = 1};
    gpuipc_buffer *made = NULL;
    check_refused(GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED, "no calls for peer access",
                  gpuipc_buffer_create(lacking, &config, &made));
    cr_assert_null(made);
    check_vmm_works();
}

/* The driver is the one to say what it cannot map. */
Test(missing_group, peer_access_that_nobody_asks_for) {
    gpuipc_buffer *made = NULL;
    core_need_devices(2);
    (void)without("p2p");
    check_ok(create(GPUIPC_TRANSPORT_VMM, &made));
    check_ok(gpuipc_buffer_set_access(made, 1, GPUIPC_ACCESS_READ));
    check_ok(gpuipc_buffer_release(made));
}

Test(missing_group, pinned_memory) {
    (void)without("pinned");
    check_not_made(GPUIPC_TRANSPORT_HOST, GPUIPC_ERR_NOT_SUPPORTED,
                   "host memory that devices reach");
    machine_expect(lacking, GPUIPC_TRANSPORT_HOST, 0, 0, GPUIPC_REASON_DRIVER_TOO_OLD);
    check_vmm_works();
}

/* ---- contents ---------------------------------------------------------------------------------- */

static gpuipc_status send_contents(core_pair *pair, gpuipc_buffer *from) {
    const gpuipc_contents contents = {.struct_size = sizeof(contents),
                                      .buffer = from,
                                      .bytes = 4096,
                                      .stream = NULL,
                                      .transport = GPUIPC_TRANSPORT_HOST};
    return gpuipc_connection_send_contents(pair->client, &contents, SOON_MS);
}

Test(missing_group, contents_that_go_through_pinned_memory) {
    core_pair pair = {0};
    gpuipc_buffer *made = NULL;
    core_pair_open(&pair, core_context, without("pinned"));
    check_ok(create(GPUIPC_TRANSPORT_VMM, &made));
    check_refused(GPUIPC_ERR_DRIVER_TOO_OLD, "pinned host memory", send_contents(&pair, made));
    core_pair_close(&pair);
    check_ok(gpuipc_buffer_release(made));
}

Test(missing_group, contents_that_lie_in_the_host) {
    core_pair pair = {0};
    gpuipc_buffer *made = NULL;
    core_pair_open(&pair, core_context, without("hostfunc"));
    check_ok(create(GPUIPC_TRANSPORT_HOST, &made));
    check_refused(GPUIPC_ERR_DRIVER_TOO_OLD, "host functions", send_contents(&pair, made));
    core_pair_close(&pair);
    check_ok(gpuipc_buffer_release(made));
}

/* ---- dma-bufs ---------------------------------------------------------------------------------- */

Test(missing_group, dma_bufs) {
    gpuipc_native_dmabuf dmabuf = {.struct_size = sizeof(dmabuf), .handle = {-7}};
    gpuipc_buffer *made = NULL;
    if (machine_is_windows()) {
        cr_skip_test("Windows has no dma-bufs");
    }
    (void)without("dmabuf");
    check_ok(create(GPUIPC_TRANSPORT_VMM, &made));
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "too old for dma-bufs",
                  gpuipc_native_export_dmabuf(made, 0, 4096, &dmabuf));
    cr_assert_eq(dmabuf.handle.value, -7);
    check_ok(gpuipc_buffer_release(made));
}

/* ---- copies ------------------------------------------------------------------------------------ */

static void start_apart(void) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", "p2p=none");
    core_start();
}

TestSuite(missing_group_apart, .init = start_apart, .fini = finish, .timeout = 60);

Test(missing_group_apart, copies_through_pinned_memory) {
    gpuipc_buffer *made[2] = {NULL, NULL};
    core_need_devices(2);
    (void)without("pinned");
    for (uint32_t i = 0; i < 2; i++) {
        const gpuipc_buffer_config config = {
            .struct_size = sizeof(config), .bytes = 4096, .device = GPUIPC_DEVICE(i)};
        check_ok(gpuipc_buffer_create(lacking, &config, &made[i]));
    }
    check_refused(GPUIPC_ERR_DRIVER_TOO_OLD, "without peer access",
                  gpuipc_buffer_copy_async(made[1], 0, made[0], 0, 4096, NULL));
    check_ok(gpuipc_buffer_release(made[0]));
    check_ok(gpuipc_buffer_release(made[1]));
}

/* ---- drivers that can less ----------------------------------------------------------------------- */

TestSuite(driver_with_less, .init = core_start, .fini = core_finish, .timeout = 60);

/* The table of core_context, which ends with the test. */
static driver *own_table(void) {
    context *ctx;
    core_need_emulated();
    check_ok(context_acquire(core_context, &ctx));
    driver *const found = &ctx->driver;
    context_unreference(ctx);
    return found;
}

static CUresult has_no_attribute(int *value, CUdevice_attribute attribute, CUdevice of) {
    (void)attribute;
    (void)of;
    *value = 0;
    return CUDA_SUCCESS;
}

Test(driver_with_less, devices_that_do_not_reach_host_memory) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .bytes = 4096, .transport = GPUIPC_TRANSPORT_HOST};
    gpuipc_buffer *made = NULL;
    own_table()->cuDeviceGetAttribute = has_no_attribute;
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "cannot reach host memory",
                  gpuipc_buffer_create(core_context, &config, &made));
    cr_assert_null(made);
}

static CUresult (*whole_pointer)(CUdeviceptr *, void *, unsigned int);
static unsigned pointers_asked;

/* Whoever asks second has it elsewhere. */
static CUresult say_elsewhere(CUdeviceptr *address, void *host, unsigned int flags) {
    const CUresult result = whole_pointer(address, host, flags);
    *address += pointers_asked++ == 1 ? 4096u : 0u;
    return result;
}

Test(driver_with_less, devices_that_have_host_memory_at_different_addresses) {
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .bytes = 4096, .transport = GPUIPC_TRANSPORT_HOST};
    gpuipc_buffer *made = NULL;
    core_need_devices(2);
    driver *drv = own_table();
    whole_pointer = drv->cuMemHostGetDevicePointer;
    drv->cuMemHostGetDevicePointer = say_elsewhere;
    check_ok(gpuipc_buffer_create(core_context, &config, &made));
    check_status(GPUIPC_ERR_NOT_SUPPORTED,
                 gpuipc_buffer_set_access(made, 1, GPUIPC_ACCESS_READ_WRITE));
    check_ok(gpuipc_buffer_set_access(made, 0, GPUIPC_ACCESS_READ_WRITE));
    check_ok(gpuipc_buffer_release(made));
}

Test(driver_with_less, contents_where_the_host_has_other_addresses) {
    core_pair pair = {0};
    gpuipc_context *other = core_context_new();
    gpuipc_buffer *made = core_buffer(4096, 0);
    core_pair_open(&pair, other, core_context);
    driver *drv = own_table();
    whole_pointer = drv->cuMemHostGetDevicePointer;
    pointers_asked = 1;
    drv->cuMemHostGetDevicePointer = say_elsewhere;
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "at other addresses", send_contents(&pair, made));
    core_pair_close(&pair);
    check_ok(gpuipc_buffer_release(made));
    check_ok(gpuipc_context_destroy(other));
}

/* ---- access of what is not the library's own --------------------------------------------------------- */

Test(driver_with_less, a_pool_of_the_caller_s_is_the_caller_s_to_open) {
    gpuipc_buffer *wrapped = NULL;
    core_need_devices(2);
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_DEFAULT_POOL, 1u << 20);
    check_ok(gpuipc_buffer_wrap(core_context, own.address, own.bytes, &wrapped));
    check_ok(gpuipc_buffer_set_access(wrapped, 0, GPUIPC_ACCESS_READ_WRITE));
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "cuMemPoolSetAccess",
                  gpuipc_buffer_set_access(wrapped, 1, GPUIPC_ACCESS_READ_WRITE));
    check_ok(gpuipc_buffer_release(wrapped));
    own_kinds_undo(&own);
}
