/* SPDX-License-Identifier: MIT */
/**
 * @file The other process of the emulated driver's tests. Its first argument says what it does:
 *   calls                    calls cuDeviceGetCount twice and says what it answers
 *   system                   loads the driver by the system's name and says whether it is emulated
 *   fork                     calls the driver in a forked child
 *   leave                    exits with memory and contexts live, and says what and where
 *   leave-forked             exits with a context live, after a forked child has exited likewise
 *   nothing                  releases all before it exits
 *   import DIRECTORY NAME    takes a handle from a connection, opens it, and does as it is told
 *   export DIRECTORY NAME    gives a handle with the word 4711 to a connection, and waits
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "helper.h"

#define GRANULE ((size_t)2 << 20)
#define WAIT_MS 20000

static driver drv;
static const char *driver_choice = "emulated";

static void begin(void) {
    CUcontext context;
    if (driver_open(driver_choice, &drv) != GPUIPC_OK ||
        drv.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        drv.cuCtxPushCurrent(context) != CUDA_SUCCESS) {
        helper_say("no driver: %s", gpuipc_error_get()->sentence);
        _exit(4);
    }
}

static int say_calls(void) {
    int count;
    begin();
    helper_say("first %d", (int)drv.cuDeviceGetCount(&count));
    helper_say("second %d", (int)drv.cuDeviceGetCount(&count));
    return 0;
}

static int say_system(void) {
    driver_choice = "auto";
    begin();
    helper_say("emulated %d", drv.is_emulated);
    return 0;
}

static int say_fork(void) {
    int count;
    CUdeviceptr address;
    begin();
    const pid_t child = fork();
    if (child == 0) {
        helper_say("child %d %d %d", (int)drv.cuInit(0), (int)drv.cuDeviceGetCount(&count),
                   (int)drv.cuMemAlloc(&address, 4));
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child) {
        return 1;
    }
    helper_say("parent %d", (int)drv.cuMemAlloc(&address, 4));
    return 0;
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
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    /* The test reads one pipe. */
    if (dup2(STDOUT_FILENO, STDERR_FILENO) < 0) {
        return 8;
    }
    begin();
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
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

static int say_left_forked(void) {
    if (dup2(STDOUT_FILENO, STDERR_FILENO) < 0) {
        return 8;
    }
    begin();
    const pid_t child = fork();
    if (child == 0) {
        exit(0); /* with exit handlers, unlike _exit */
    }
    if (child < 0 || waitpid(child, NULL, 0) != child) {
        return 1;
    }
    helper_say("the child has ended");
    return 0;
}

static os_connection *join(const char *path, const char *name) {
    os_connection *connection;
    const os_directory directory = {path, false};
    if (os_connection_open(&directory, name, os_deadline_after(WAIT_MS), &connection) !=
        GPUIPC_OK) {
        helper_say("no connection: %s", gpuipc_error_get()->sentence);
        _exit(5);
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

static int import(const char *path, const char *name) {
    char byte;
    size_t size = 0;
    size_t count = 0;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop;
    CUdeviceptr address = 0;
    begin();
    os_connection *connection = join(path, name);
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

static int export(const char *path, const char *name) {
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    intptr_t written = 0;
    os_handle exported;
    const uint32_t word = 4711;
    const char byte = 1;
    begin();
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = (CUmemAllocationHandleType)os_shareable_handle_type;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    os_connection *connection = join(path, name);
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

int main(int count, char **arguments) {
    helper_begin();
    if (count == 2 && strcmp(arguments[1], "calls") == 0) {
        return say_calls();
    }
    if (count == 2 && strcmp(arguments[1], "system") == 0) {
        return say_system();
    }
    if (count == 2 && strcmp(arguments[1], "fork") == 0) {
        return say_fork();
    }
    if (count == 2 && strcmp(arguments[1], "leave") == 0) {
        return say_left(true);
    }
    if (count == 2 && strcmp(arguments[1], "leave-forked") == 0) {
        return say_left_forked();
    }
    if (count == 2 && strcmp(arguments[1], "nothing") == 0) {
        return say_left(false);
    }
    if (count == 4 && strcmp(arguments[1], "import") == 0) {
        return import(arguments[2], arguments[3]);
    }
    if (count == 4 && strcmp(arguments[1], "export") == 0) {
        return export(arguments[2], arguments[3]);
    }
    return 2;
}
