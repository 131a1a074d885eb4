/* SPDX-License-Identifier: MIT */
/** @file What the library says where the system's handles are those of Windows, although this is another: ld(1), --wrap. There
 *  the other tests see it too; what Windows itself does they alone see. */
#include <string.h>

#include "own_kinds.h"

/* os.h: CU_MEM_HANDLE_TYPE_WIN32 */
extern const int __wrap_os_shareable_handle_type;
const int __wrap_os_shareable_handle_type = CU_MEM_HANDLE_TYPE_WIN32;

TestSuite(other_system, .init = core_start_without_context, .fini = core_finish, .timeout = 60);

static void start_on(const char *machine) {
    core_environment_set("GPUIPC_EMULATED_MACHINE", machine);
    const gpuipc_context_config config = core_context_config();
    check_ok(gpuipc_context_create(&config, &core_context));
}

static uint32_t model_of(const char *machine) {
    gpuipc_device_info info = {.struct_size = sizeof(info)};
    start_on(machine);
    check_ok(gpuipc_device_get_info(core_context, 0, &info));
    check_ok(gpuipc_context_destroy(core_context));
    core_context = NULL;
    return info.driver_model;
}

Test(other_system, drivers_are_of_two_models) {
    cr_assert_eq(model_of("driver-model=wddm"), GPUIPC_DRIVER_MODEL_WDDM);
}

Test(other_system, one_of_which_shares_nothing) {
    cr_assert_eq(model_of("driver-model=tcc"), GPUIPC_DRIVER_MODEL_TCC);
}

Test(other_system, memory_of_a_pool_is_shared_with_nobody) {
    gpuipc_pointer_info info = {.struct_size = sizeof(info)};
    start_on("");
    core_enter_device(0);
    own_kinds own = own_kinds_make(OWN_DEFAULT_POOL, 65536);
    check_ok(gpuipc_pointer_classify(core_context, own.address, 1, &info));
    cr_assert_eq(info.kind, GPUIPC_MEMORY_POOL);
    cr_assert_eq(info.why_not[GPUIPC_TRANSPORT_POOL], GPUIPC_REASON_OPERATING_SYSTEM);
    cr_assert_not_null(strstr(info.sentence, "which Windows shares with no process"), "%s",
                       info.sentence);
    own_kinds_undo(&own);
}

Test(other_system, there_are_no_dma_bufs) {
    gpuipc_native_dmabuf dmabuf = {.struct_size = sizeof(dmabuf), .offset = 77};
    const gpuipc_buffer_config config = {
        .struct_size = sizeof(config), .transport = GPUIPC_TRANSPORT_LEGACY, .bytes = 65536};
    gpuipc_buffer *buffer = NULL;
    start_on("");
    check_ok(gpuipc_buffer_create(core_context, &config, &buffer));
    check_refused(GPUIPC_ERR_NOT_SUPPORTED, "Windows has no dma-bufs",
                  gpuipc_native_export_dmabuf(buffer, 0, 65536, &dmabuf));
    cr_assert_eq(dmabuf.offset, 77);
    check_ok(gpuipc_buffer_release(buffer));
}
