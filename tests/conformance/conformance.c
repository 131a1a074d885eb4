/* SPDX-License-Identifier: MIT */
/** @file The driver under test, opened once per test, and memory for it. */
#include "conformance.h"

#include <stdio.h>
#include <string.h>

#include "conformance_process.h"
#include "emulated.h"

driver drv;
int device_count;

/** More devices than any one machine has. */
#define DEVICES_MAX 64

static CUcontext contexts[DEVICES_MAX];

void conformance_start(void) {
    const char *choice = os_environment("GPUIPC_CUDA_DRIVER");
    if (choice == NULL) {
        choice = "auto";
    }
    const gpuipc_status status = driver_open(choice, &drv);
    if (strcmp(choice, "auto") == 0 &&
        (status == GPUIPC_ERR_NO_DRIVER || status == GPUIPC_ERR_NO_DEVICE)) {
        cr_skip_test("no CUDA driver, or no GPU that it could use");
    }
    cr_assert_eq(status, GPUIPC_OK, "the driver \"%s\" does not open: %s", choice,
                 gpuipc_status_name(status));
    OK(drv.cuDeviceGetCount(&device_count));
    cr_assert(device_count >= 1 && device_count <= DEVICES_MAX, "%d devices", device_count);
    conformance_use(0);
}

/** Ends the test as failed. Criterion ignores an assertion that fails in a .fini, but not this. */
static void fail_in_finish(const char *what, unsigned long long count) {
    fprintf(stderr, "after the test: %s (%llu)\n", what, count);
    program_crash();
}

/** On the emulated driver: everything that was made is gone again. */
static void check_nothing_is_left(void) {
    void *symbol = os_library_symbol(drv.library, GPUIPC_EMULATED_LIVE);
    gpuipc_emulated_live_fn get_live = NULL;
    gpuipc_emulated_live live;
    if (symbol == NULL) {
        fail_in_finish("the emulated driver does not export " GPUIPC_EMULATED_LIVE, 0);
    }
    memcpy(&get_live, &symbol, sizeof get_live);
    get_live(&live);
    const struct {
        const char *what;
        uint64_t count;
    } left[] = {
        {"handles left", live.allocations}, {"address ranges left", live.reservations},
        {"mappings left", live.mappings},   {"cuMemAlloc left", live.plain},
        {"streams left", live.streams},     {"events left", live.events},
        {"contexts left", live.contexts},   {"primary contexts left", live.primary},
        {"pools left", live.pools},         {"allocations of pools left", live.pooled},
        {"opened memory left", live.ipc},   {"pinned memory left", live.pinned},
        {"graphs left", live.graphs},       {"executable graphs left", live.graph_execs},
    };
    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        if (left[i].count != 0) {
            fail_in_finish(left[i].what, left[i].count);
        }
    }
}

void conformance_finish(void) {
    if (drv.library == NULL) {
        return; /* skipped in conformance_start */
    }
    CUresult result = drv.cuCtxSetCurrent(NULL);
    for (int device = 0; device < device_count; device++) {
        if (result == CUDA_SUCCESS && contexts[device] != NULL) {
            result = drv.cuDevicePrimaryCtxRelease(device);
        }
    }
    if (result != CUDA_SUCCESS) {
        fail_in_finish("giving back the primary contexts failed", (unsigned long long)result);
    }
    if (drv.is_emulated) {
        check_nothing_is_left();
    }
}

CUcontext conformance_context(int device) {
    if (contexts[device] == NULL) {
        CUdevice number;
        OK(drv.cuDeviceGet(&number, device));
        cr_assert_eq(number, device, "a CUdevice is its ordinal");
        OK(drv.cuDevicePrimaryCtxRetain(&contexts[device], number));
    }
    return contexts[device];
}

void conformance_use(int device) {
    OK(drv.cuCtxSetCurrent(conformance_context(device)));
}

void conformance_need_devices(int count) {
    if (device_count < count) {
        cr_skip_test("needs %d GPUs, this machine has %d", count, device_count);
    }
}

bool conformance_is_measured_machine(void) {
    char name[128] = "";
    OK(drv.cuDeviceGetName(name, sizeof name, 0));
    return drv.is_emulated ? os_environment("GPUIPC_EMULATED_MACHINE") == NULL
                           : SYSTEM_TYPE == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                                 strstr(name, "H200") != NULL;
}

void conformance_find(const char *symbol, void *function) {
    void *found = os_library_symbol(drv.library, symbol);
    cr_assert_not_null(found, "the driver does not export %s", symbol);
    memcpy(function, &found, sizeof found);
}

const char *conformance_code(CUresult code) {
    static char texts[4][80];
    static size_t next;
    char *text = texts[next++ % 4];
    const char *name = NULL;
    if (drv.cuGetErrorName == NULL || drv.cuGetErrorName(code, &name) != CUDA_SUCCESS) {
        name = "a code without a name";
    }
    snprintf(text, sizeof texts[0], "%s (%d)", name, (int)code);
    return text;
}

CUmemAllocationProp memory_properties(int device, bool exportable) {
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    if (exportable) {
        const void *rights = NULL;
        cr_assert_eq(os_handle_attributes(&rights), GPUIPC_OK);
        properties.requestedHandleTypes = SYSTEM_TYPE;
        properties.win32HandleMetaData = (void *)(uintptr_t)rights;
    }
    return properties;
}

CUmemGenericAllocationHandle memory_create(int device, size_t bytes) {
    const CUmemAllocationProp properties = memory_properties(device, true);
    CUmemGenericAllocationHandle handle = 0;
    OK(drv.cuMemCreate(&handle, bytes, &properties, 0));
    return handle;
}

CUdeviceptr memory_map(CUmemGenericAllocationHandle handle, size_t bytes) {
    CUdeviceptr address = 0;
    OK(drv.cuMemAddressReserve(&address, bytes, 0, 0, 0));
    OK(drv.cuMemMap(address, bytes, 0, handle, 0));
    return address;
}

CUresult memory_access(CUdeviceptr address, size_t bytes, int device, CUmemAccess_flags flags) {
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
                                    .flags = flags};
    return drv.cuMemSetAccess(address, bytes, &access, 1);
}

void memory_unmap(CUdeviceptr address, size_t bytes) {
    OK(drv.cuMemUnmap(address, bytes));
    OK(drv.cuMemAddressFree(address, bytes));
}

memory memory_make(int device, size_t bytes) {
    memory made = {.handle = memory_create(device, bytes), .bytes = bytes};
    made.address = memory_map(made.handle, bytes);
    OK(memory_access(made.address, bytes, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    return made;
}

void memory_undo(const memory *made) {
    memory_unmap(made->address, made->bytes);
    OK(drv.cuMemRelease(made->handle));
}

os_handle memory_export(CUmemGenericAllocationHandle handle) {
    uint64_t written = 0;
    os_handle shareable = OS_HANDLE_NONE;
    OK(drv.cuMemExportToShareableHandle(&written, handle, SYSTEM_TYPE, 0));
    cr_assert_eq(os_handle_adopt_exported(&written, &shareable), GPUIPC_OK);
    return shareable;
}

CUresult memory_import(os_handle shareable, CUmemGenericAllocationHandle *out_handle) {
    /* The call takes the handle's value where a pointer stands (cuda.h's own example does so). */
    return drv.cuMemImportFromShareableHandle(out_handle, (void *)shareable.value, SYSTEM_TYPE);
}

uint32_t word_read(CUdeviceptr address) {
    uint32_t word = 0;
    OK(drv.cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

void word_write(CUdeviceptr address, uint32_t word) {
    OK(drv.cuMemcpyHtoD(address, &word, sizeof word));
    /* From pageable memory it returns when the word is staged; another process that looks at once
     * saw the old one on an H200 (CUDA Driver API, "API synchronization behavior"). */
    OK(drv.cuCtxSynchronize());
}

/** A GPU fills 256 MiB in about 0.1 ms; the emulated driver is told to take its time instead. */
#define BUSY_BYTES    ((size_t)256 << 20)
#define BUSY_FILLS    200
#define BUSY_DELAY_MS 200

static void set_emulated_delay(unsigned milliseconds) {
    void *symbol = os_library_symbol(drv.library, GPUIPC_EMULATED_SET_DELAY);
    gpuipc_emulated_delay_fn set_delay = NULL;
    cr_assert_not_null(symbol, "the emulated driver does not export " GPUIPC_EMULATED_SET_DELAY);
    memcpy(&set_delay, &symbol, sizeof set_delay);
    set_delay(milliseconds);
}

busy_work busy_start(void) {
    busy_work work = {.bytes = drv.is_emulated ? GRANULE : BUSY_BYTES};
    OK(drv.cuMemAlloc(&work.address, work.bytes));
    OK(drv.cuMemsetD8(work.address, 0, work.bytes));
    OK(drv.cuCtxSynchronize());
    return work;
}

void busy_submit(const busy_work *work, CUstream stream, unsigned char value) {
    if (drv.is_emulated) {
        set_emulated_delay(BUSY_DELAY_MS);
    } else {
        for (int i = 1; i < BUSY_FILLS; i++) {
            OK(drv.cuMemsetD8Async(work->address, 0, work->bytes, stream));
        }
    }
    OK(drv.cuMemsetD8Async(work->address, value, work->bytes, stream));
}

void busy_end(const busy_work *work) {
    if (drv.is_emulated) {
        set_emulated_delay(0);
    }
    OK(drv.cuCtxSynchronize());
    OK(drv.cuMemFree(work->address));
}
