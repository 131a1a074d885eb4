/* SPDX-License-Identifier: MIT */
/**
 * @file The other process of the emulated driver's tests. Its first argument says what it does:
 *   calls                    calls cuDeviceGetCount twice and says what it answers
 *   leave                    exits with memory and contexts live, and says what and where
 *   nothing                  releases all before it exits
 *   busy                     exits while a stream has work, with what that needs live
 *   calling                  exits while threads are in the driver
 *   garbage CALL             passes a handle that was never given out for memory; says so if it lives
 *   import DIRECTORY NAME    takes a handle from a connection, opens it, and does as it is told
 *   export DIRECTORY NAME    gives a handle with the word 4711 to a connection, and waits
 */
#include "emulated_helper.h"

#include <stdlib.h>
#include <string.h>

#include "helper_role.h"

#define GRANULE ((size_t)2 << 20)
#define WAIT_MS 20000
/* How many threads are in the driver at the end. */
#define THREADS 4

static int role_calls(char **arguments) {
    int count;
    (void)arguments;
    if (!outputs_join()) {
        return 8;
    }
    emulated_helper_open("emulated");
    helper_say("first %d", (int)drv.cuDeviceGetCount(&count));
    helper_say("second %d", (int)drv.cuDeviceGetCount(&count));
    return 0;
}

static CUmemAllocationProp memory_properties(void) {
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return prop;
}

static CUresult open_range(CUmemGenericAllocationHandle handle, CUdeviceptr *address) {
    const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = drv.cuMemAddressReserve(address, GRANULE, 0, 0, 0);
    if (result == CUDA_SUCCESS) {
        result = drv.cuMemMap(*address, GRANULE, 0, handle, 0);
    }
    return result == CUDA_SUCCESS ? drv.cuMemSetAccess(*address, GRANULE, &desc, 1) : result;
}

static int say_left(bool leaves) {
    const CUmemAllocationProp prop = memory_properties();
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    if (!outputs_join()) {
        return 8;
    }
    emulated_helper_open("emulated");
    if (drv.cuMemCreate(&handle, GRANULE, &prop, 0) != CUDA_SUCCESS ||
        open_range(handle, &address) != CUDA_SUCCESS) {
        return 9;
    }
    if (!leaves && (drv.cuMemUnmap(address, GRANULE) != CUDA_SUCCESS ||
                    drv.cuMemAddressFree(address, GRANULE) != CUDA_SUCCESS ||
                    drv.cuDevicePrimaryCtxRelease(0) != CUDA_SUCCESS)) {
        return 10;
    }
    helper_say("mapped %llx", (unsigned long long)address);
    return drv.cuMemRelease(handle) == CUDA_SUCCESS ? 0 : 11;
}

static int role_leave(char **arguments) {
    (void)arguments;
    return say_left(true);
}

static int role_nothing(char **arguments) {
    (void)arguments;
    return say_left(false);
}

static int role_busy(char **arguments) {
    CUstream stream;
    CUdeviceptr address;
    (void)arguments;
    if (!outputs_join()) {
        return 8;
    }
    emulated_helper_open("emulated");
    if (drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        drv.cuMemAlloc(&address, 4096) != CUDA_SUCCESS ||
        drv.cuMemsetD8Async(address, 1, 4096, stream) != CUDA_SUCCESS) {
        return 9;
    }
    helper_say("query %d", (int)drv.cuStreamQuery(stream));
    return 0;
}

static void call_for_ever(void *argument) {
    CUdeviceptr address;
    (void)argument;
    while (drv.cuCtxSetCurrent(NULL) == CUDA_SUCCESS) {
        CUcontext context;
        if (drv.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
            drv.cuCtxSetCurrent(context) != CUDA_SUCCESS ||
            drv.cuMemAlloc(&address, 64) != CUDA_SUCCESS ||
            drv.cuMemFree(address) != CUDA_SUCCESS ||
            drv.cuDevicePrimaryCtxRelease(0) != CUDA_SUCCESS) {
            helper_say("a call failed");
            return;
        }
    }
}

static int role_calling(char **arguments) {
    static os_thread *threads[THREADS];
    (void)arguments;
    if (!outputs_join()) {
        return 8;
    }
    emulated_helper_open("emulated");
    for (int i = 0; i < THREADS; i++) {
        if (os_thread_start(call_for_ever, NULL, &threads[i]) != GPUIPC_OK) {
            return 9;
        }
    }
    helper_say("calling");
    return 0;
}

static int role_garbage(char **arguments) {
    CUmemGenericAllocationHandle handle = 0x1234;
    CUdeviceptr address = 0;
    CUstream stream = NULL;
    if (!outputs_join()) {
        return 8;
    }
    emulated_helper_open("emulated");
    if (strcmp(arguments[0], "cuMemMap") == 0) {
        if (drv.cuMemAddressReserve(&address, GRANULE, 0, 0, 0) != CUDA_SUCCESS) {
            return 9;
        }
        helper_say("lives %d", (int)drv.cuMemMap(address, GRANULE, 0, handle, 0));
    } else {
        /* given out, but for a stream */
        if (drv.cuStreamCreate(&stream, 0) != CUDA_SUCCESS) {
            return 9;
        }
        handle = (CUmemGenericAllocationHandle)(uintptr_t)stream;
        helper_say("lives %d", (int)drv.cuMemRelease(handle));
    }
    return 0;
}

static os_connection *join(const char *path, const char *name) {
    os_connection *connection;
    const os_directory directory = {path, false};
    if (os_connection_open(&directory, name, os_deadline_after(WAIT_MS), &connection) !=
        GPUIPC_OK) {
        helper_say("no connection: %s", gpuipc_error_get()->sentence);
        exit(5);
    }
    return connection;
}

static void obey(CUdeviceptr address) {
    char line[64];
    while (helper_hear(line, sizeof(line))) {
        uint32_t word = 4711;
        size_t available = 0;
        size_t total = 0;
        if (strcmp(line, "read") == 0 &&
            drv.cuMemcpyDtoH(&word, address, sizeof(word)) == CUDA_SUCCESS) {
            helper_say("word %u", (unsigned)word);
        } else if (strcmp(line, "write") == 0 &&
                   drv.cuMemcpyHtoD(address, &word, sizeof(word)) == CUDA_SUCCESS &&
                   drv.cuCtxSynchronize() == CUDA_SUCCESS) {
            helper_say("written");
        } else if (strcmp(line, "used") == 0 &&
                   drv.cuMemGetInfo(&available, &total) == CUDA_SUCCESS) {
            helper_say("used %zu", total - available);
        } else {
            helper_say("failed");
        }
    }
}

static int role_import(char **arguments) {
    char byte;
    size_t size = 0;
    size_t count = 0;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop;
    CUdeviceptr address = 0;
    emulated_helper_open("emulated");
    os_connection *connection = join(arguments[0], arguments[1]);
    if (os_connection_receive(connection, &byte, 1, &size, handles, &count,
                              os_deadline_after(WAIT_MS)) != GPUIPC_OK ||
        count != 1) {
        return 6;
    }
    const CUresult imported = drv.cuMemImportFromShareableHandle(
        &handle, (void *)handles[0].value, (CUmemAllocationHandleType)os_shareable_handle_type);
    os_handle_close(&handles[0]);
    memset(&prop, 0, sizeof(prop));
    if (imported == CUDA_SUCCESS) {
        drv.cuMemGetAllocationPropertiesFromHandle(&prop, handle);
    }
    helper_say("import %d owner %d access %d", (int)imported, prop.location.id,
               (int)open_range(handle, &address));
    obey(address);
    os_connection_destroy(connection);
    return 0;
}

static int role_export(char **arguments) {
    CUmemAllocationProp prop = memory_properties();
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    intptr_t written = 0;
    const void *rights;
    os_handle exported;
    const uint32_t word = 4711;
    const char byte = 1;
    emulated_helper_open("emulated");
    if (os_handle_attributes(&rights) != GPUIPC_OK) {
        return 12;
    }
    prop.requestedHandleTypes = (CUmemAllocationHandleType)os_shareable_handle_type;
    prop.win32HandleMetaData = (void *)(uintptr_t)rights;
    os_connection *connection = join(arguments[0], arguments[1]);
    if (drv.cuMemCreate(&handle, GRANULE, &prop, 0) != CUDA_SUCCESS ||
        open_range(handle, &address) != CUDA_SUCCESS ||
        drv.cuMemcpyHtoD(address, &word, sizeof(word)) != CUDA_SUCCESS ||
        drv.cuCtxSynchronize() != CUDA_SUCCESS ||
        drv.cuMemExportToShareableHandle(&written, handle, prop.requestedHandleTypes, 0) !=
            CUDA_SUCCESS ||
        os_handle_adopt_exported(&written, &exported) != GPUIPC_OK ||
        os_connection_send(connection, &byte, 1, &exported, 1, os_deadline_after(WAIT_MS)) !=
            GPUIPC_OK) {
        return 7;
    }
    helper_say("sent");
    helper_await("never");
    return 0;
}

static const helper_role roles[] = {
    {"calls", 0, role_calls},   {"leave", 0, role_leave},     {"nothing", 0, role_nothing},
    {"busy", 0, role_busy},     {"calling", 0, role_calling}, {"garbage", 1, role_garbage},
    {"import", 2, role_import}, {"export", 2, role_export},
};

int main(int argc, char **argv) {
    return helper_role_run(roles, sizeof(roles) / sizeof(roles[0]), argc, argv);
}
