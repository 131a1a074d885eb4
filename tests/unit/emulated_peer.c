/* SPDX-License-Identifier: MIT */
/**
 * @file The other process of the tests of memory, pools and events that are shared through 64 bytes:
 *   peer DIRECTORY NAME    connects there for handles, and then obeys line by line
 * Each line is answered with the result of the call, and what there is to say beyond it. There is one
 * address, one pool, one event and one stream, which the lines are about.
 */
#include "emulated_helper.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "helper_role.h"
#include "ipc_event.h"

#define GRANULE ((size_t)2 << 20)
#define WAIT_MS 20000

static os_connection *connection;
static CUdeviceptr address;
static CUmemoryPool pool;
static CUevent event;
static CUstream stream;

typedef struct order {
    const char *name;
    CUresult (*run)(const char *argument); /* answers the result, or has it said */
} order;

/* Behind a result that is no failure: 64 bytes. */
static CUresult say_bytes(CUresult result, const void *bytes) {
    char text[129];
    const unsigned char *from = bytes;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    for (int i = 0; i < 64; i++) {
        snprintf(text + 2 * i, 3, "%02x", from[i]);
    }
    helper_say("0 %s", text);
    return result;
}

static void read_bytes(const char *text, void *bytes) {
    unsigned char *out = bytes;
    for (int i = 0; i < 64; i++) {
        unsigned value = 0;
        if (sscanf(text + 2 * i, "%2x", &value) != 1) {
            exit(20);
        }
        out[i] = (unsigned char)value;
    }
}

static CUresult set_word(const char *argument) {
    const uint32_t word = (uint32_t)strtoul(argument, NULL, 0);
    const CUresult result = drv.cuMemcpyHtoD(address, &word, sizeof(word));
    return result == CUDA_SUCCESS ? drv.cuCtxSynchronize() : result;
}

static CUresult fill_later(const char *argument) {
    return drv.cuMemsetD32Async(address, (unsigned)strtoul(argument, NULL, 0), 1, stream);
}

static CUresult get_word(const char *argument) {
    uint32_t word = 0;
    (void)argument;
    const CUresult result = drv.cuMemcpyDtoHAsync(&word, address, sizeof(word), stream);
    if (result == CUDA_SUCCESS) {
        helper_say("0 %" PRIu32, word);
    }
    return result;
}

static CUresult plain_make(const char *argument) {
    return drv.cuMemAlloc(&address, (size_t)strtoull(argument, NULL, 0));
}

static CUresult plain_free(const char *argument) {
    (void)argument;
    return drv.cuMemFree(address);
}

static CUresult legacy_get(const char *argument) {
    CUipcMemHandle handle;
    (void)argument;
    const CUresult result = drv.cuIpcGetMemHandle(&handle, address);
    return say_bytes(result, handle.reserved);
}

static CUresult legacy_open(const char *argument) {
    CUipcMemHandle handle;
    read_bytes(argument, handle.reserved);
    return drv.cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static CUresult legacy_close(const char *argument) {
    (void)argument;
    return drv.cuIpcCloseMemHandle(address);
}

static CUresult pool_make(const char *argument) {
    CUmemPoolProps props;
    (void)argument;
    memset(&props, 0, sizeof(props));
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return drv.cuMemPoolCreate(&pool, &props);
}

static CUresult pool_give(const char *argument) {
    int descriptor = -1;
    os_handle handle;
    const char byte = 1;
    (void)argument;
    const CUresult result = drv.cuMemPoolExportToShareableHandle(
        &descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (os_handle_adopt(descriptor, &handle) != GPUIPC_OK ||
        os_connection_send(connection, &byte, 1, &handle, 1, os_deadline_after(WAIT_MS)) !=
            GPUIPC_OK) {
        exit(21);
    }
    os_handle_close(&handle);
    return result;
}

static CUresult pool_take(const char *argument) {
    char byte;
    size_t size;
    size_t count = 0;
    os_handle handles[OS_PACKET_HANDLES_MAX];
    (void)argument;
    if (os_connection_receive(connection, &byte, 1, &size, handles, &count,
                              os_deadline_after(WAIT_MS)) != GPUIPC_OK ||
        count != 1) {
        exit(22);
    }
    const CUresult result = drv.cuMemPoolImportFromShareableHandle(
        &pool, (void *)handles[0].value, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    os_handle_close(&handles[0]);
    return result;
}

static CUresult pool_alloc(const char *argument) {
    return drv.cuMemAllocFromPoolAsync(&address, (size_t)strtoull(argument, NULL, 0), pool, stream);
}

static CUresult pool_allow(const char *argument) {
    const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, atoi(argument)},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return drv.cuMemPoolSetAccess(pool, &desc, 1);
}

static CUresult pool_get(const char *argument) {
    CUmemPoolPtrExportData data;
    (void)argument;
    const CUresult result = drv.cuMemPoolExportPointer(&data, address);
    return say_bytes(result, data.reserved);
}

static CUresult pool_open(const char *argument) {
    CUmemPoolPtrExportData data;
    read_bytes(argument, data.reserved);
    return drv.cuMemPoolImportPointer(&address, pool, &data);
}

static CUresult free_later(const char *argument) {
    (void)argument;
    return drv.cuMemFreeAsync(address, stream);
}

static CUresult pool_destroy(const char *argument) {
    (void)argument;
    return drv.cuMemPoolDestroy(pool);
}

static CUresult event_make(const char *argument) {
    (void)argument;
    return drv.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
}

static CUresult event_get(const char *argument) {
    CUipcEventHandle handle;
    (void)argument;
    const CUresult result = ipc_event_get(&drv, &handle, event);
    return say_bytes(result, handle.reserved);
}

static CUresult event_open(const char *argument) {
    CUipcEventHandle handle;
    read_bytes(argument, handle.reserved);
    return ipc_event_open(&drv, &event, handle);
}

static CUresult event_record(const char *argument) {
    (void)argument;
    return drv.cuEventRecord(event, stream);
}

static CUresult event_wait(const char *argument) {
    (void)argument;
    return drv.cuStreamWaitEvent(stream, event, 0);
}

static CUresult event_query(const char *argument) {
    (void)argument;
    return drv.cuEventQuery(event);
}

static CUresult event_synchronize(const char *argument) {
    (void)argument;
    return drv.cuEventSynchronize(event);
}

static CUresult event_destroy(const char *argument) {
    (void)argument;
    return drv.cuEventDestroy(event);
}

static CUresult synchronize(const char *argument) {
    (void)argument;
    return drv.cuStreamSynchronize(stream);
}

static CUresult fabric_make(const char *argument) {
    CUmemAllocationProp prop;
    CUmemFabricHandle bytes;
    CUmemGenericAllocationHandle handle = 0;
    (void)argument;
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUresult result = drv.cuMemCreate(&handle, GRANULE, &prop, 0);
    if (result == CUDA_SUCCESS) {
        result = drv.cuMemExportToShareableHandle(&bytes, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0);
    }
    return say_bytes(result, bytes.data);
}

static CUresult fabric_open(const char *argument) {
    CUmemFabricHandle bytes;
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAccessDesc desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    read_bytes(argument, bytes.data);
    CUresult result =
        drv.cuMemImportFromShareableHandle(&handle, bytes.data, CU_MEM_HANDLE_TYPE_FABRIC);
    if (result == CUDA_SUCCESS) {
        result = drv.cuMemAddressReserve(&address, GRANULE, 0, 0, 0);
    }
    if (result == CUDA_SUCCESS) {
        result = drv.cuMemMap(address, GRANULE, 0, handle, 0);
    }
    return result == CUDA_SUCCESS ? drv.cuMemSetAccess(address, GRANULE, &desc, 1) : result;
}

static const order orders[] = {
    {"set-word", set_word},           {"fill-later", fill_later},
    {"plain-make", plain_make},       {"plain-free", plain_free},
    {"legacy-open", legacy_open},     {"legacy-close", legacy_close},
    {"pool-make", pool_make},         {"pool-give", pool_give},
    {"pool-take", pool_take},         {"pool-alloc", pool_alloc},
    {"pool-allow", pool_allow},       {"pool-open", pool_open},
    {"free-later", free_later},       {"pool-destroy", pool_destroy},
    {"event-make", event_make},       {"event-open", event_open},
    {"event-record", event_record},   {"event-wait", event_wait},
    {"event-query", event_query},     {"event-synchronize", event_synchronize},
    {"event-destroy", event_destroy}, {"synchronize", synchronize},
    {"fabric-open", fabric_open},
};

/* Those that say more than a result when there is no failure. */
static const order talkers[] = {
    {"get-word", get_word},   {"legacy-get", legacy_get},   {"pool-get", pool_get},
    {"event-get", event_get}, {"fabric-make", fabric_make},
};

static const order *find(const order *list, size_t count, const char *line, size_t length) {
    for (size_t i = 0; i < count; i++) {
        if (strlen(list[i].name) == length && strncmp(list[i].name, line, length) == 0) {
            return &list[i];
        }
    }
    return NULL;
}

static void obey(const char *line) {
    const size_t length = strcspn(line, " ");
    const char *argument = line[length] == '\0' ? "" : line + length + 1;
    const order *plain = find(orders, sizeof(orders) / sizeof(orders[0]), line, length);
    const order *talker = find(talkers, sizeof(talkers) / sizeof(talkers[0]), line, length);
    if (plain == NULL && talker == NULL) {
        helper_say("what is '%s'?", line);
        return;
    }
    const CUresult result = plain != NULL ? plain->run(argument) : talker->run(argument);
    if (plain != NULL || result != CUDA_SUCCESS) {
        helper_say("%d", (int)result);
    }
}

static int role_peer(char **arguments) {
    char line[512];
    const os_directory directory = {arguments[0], false};
    emulated_helper_open("emulated");
    if (os_connection_open(&directory, arguments[1], os_deadline_after(WAIT_MS), &connection) !=
            GPUIPC_OK ||
        drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        return 5;
    }
    while (helper_hear(line, sizeof(line))) {
        obey(line);
    }
    os_connection_destroy(connection);
    return 0;
}

static const helper_role roles[] = {{"peer", 2, role_peer}};

int main(int argc, char **argv) {
    return helper_role_run(roles, sizeof(roles) / sizeof(roles[0]), argc, argv);
}
