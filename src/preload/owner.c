/* SPDX-License-Identifier: MIT */
/** @file See owner.h. */
#include "owner.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "log.h"
#include "memory.h"
#include "state.h"

static linked_list owners; /* under the lock of memory.h */
static atomic_bool any;

static owner *find(CUcontext context) {
    for (list_link *at = owners.first; at != NULL; at = at->next) {
        owner *self = LIST_ITEM(at, owner, link);
        if (self->context == context) {
            return self;
        }
    }
    return NULL;
}

owner *owner_find(CUcontext context) {
    memory_lock();
    owner *self = find(context);
    memory_unlock();
    return self;
}

owner *owner_find_primary(int device) {
    owner *found = NULL;
    memory_lock();
    for (list_link *at = owners.first; at != NULL && found == NULL; at = at->next) {
        owner *self = LIST_ITEM(at, owner, link);
        if (self->context != NULL && self->is_primary && self->device == device) {
            found = self;
        }
    }
    memory_unlock();
    return found;
}

owner *owner_next(const owner *after) {
    owner *self = NULL;
    memory_lock();
    list_link *at = after == NULL ? owners.first : after->link.next;
    while (at != NULL && LIST_ITEM(at, owner, link)->context == NULL) {
        at = at->next;
    }
    self = LIST_ITEM(at, owner, link);
    memory_unlock();
    return self;
}

static int attribute(const real_driver *driver, CUdevice_attribute which, int device) {
    int value = 0;
    return driver->cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

/* The primary context is the one that is got by asking for it, which makes one where there is none. */
static bool is_primary(const real_driver *driver, CUcontext context, int device) {
    unsigned flags;
    int active = 0;
    CUcontext primary = NULL;
    if (driver->cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active ||
        driver->cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS) {
        return false;
    }
    const CUresult released = driver->cuDevicePrimaryCtxRelease_v2(device);
    return released == CUDA_SUCCESS && primary == context;
}

/* What memory of the device can be. False, with the reason in the log: it is left to the driver. */
static bool learn(const real_driver *driver, owner *self) {
    if (!driver->has_vmm || self->device >= OWNER_DEVICES ||
        attribute(driver, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, self->device) ==
            0 ||
        attribute(driver, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                  self->device) == 0) {
        log_line("device %d: its memory is left to the driver, which has no memory here that is "
                 "shared by descriptors",
                 self->device);
        return false;
    }
    self->prop = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = self->device},
    };
    /* As memory of cuMemAlloc() is. */
    self->prop.allocFlags.gpuDirectRDMACapable =
        attribute(driver, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                  self->device) != 0;
    const CUresult result = driver->cuMemGetAllocationGranularity(&self->granule, &self->prop,
                                                                  CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS || self->granule == 0 || SLAB_BYTES % self->granule != 0) {
        log_line("device %d: its memory is left to the driver (granularity %zu, CUDA code %d)",
                 self->device, self->granule, (int)result);
        return false;
    }
    return true;
}

/* One that no context has any more, or a new one; in the list, and nobody else's as long as its context is NULL. */
static owner *unused(void) {
    owner *self = find(NULL);
    if (self != NULL) {
        return self;
    }
    self = calloc(1, sizeof(*self));
    if (self != NULL) {
        pthread_mutex_init(&self->mutex, NULL);
        list_append(&owners, &self->link);
    }
    return self;
}

/* Its context is current. */
static owner *make(const real_driver *driver, CUcontext context) {
    owner about = {.context = context};
    if (driver->cuCtxGetDevice(&about.device) != CUDA_SUCCESS) {
        return NULL;
    }
    if (!state_watch_forks()) {
        return NULL;
    }
    about.is_primary = is_primary(driver, context, about.device);
    about.takes = learn(driver, &about);
    memory_lock();
    owner *self = find(context); /* another thread may have been faster */
    if (self == NULL && (self = unused()) != NULL) {
        self->device = about.device;
        self->is_primary = about.is_primary;
        self->takes = about.takes;
        self->prop = about.prop;
        self->granule = about.granule;
        self->accessor_count = 0;
        self->context = context;
        atomic_store(&any, true);
    }
    memory_unlock();
    return self;
}

owner *owner_of(CUcontext context) {
    const real_driver *driver = real_get();
    owner *self = owner_find(context);
    CUcontext popped;
    if (self != NULL || driver->cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) {
        return self;
    }
    self = make(driver, context);
    return driver->cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS ? self : NULL;
}

owner *owner_current(void) {
    const real_driver *driver = real_get();
    CUcontext context = NULL;
    if (driver == NULL || driver->cuCtxGetCurrent == NULL ||
        driver->cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL) {
        return NULL;
    }
    owner *self = owner_find(context);
    return self != NULL ? self : make(driver, context);
}

static CUresult wait_for(const real_driver *driver, CUcontext context) {
    CUcontext current = NULL;
    CUcontext popped;
    CUresult result = driver->cuCtxGetCurrent(&current);
    if (result != CUDA_SUCCESS || current == context) {
        return result != CUDA_SUCCESS ? result : driver->cuCtxSynchronize();
    }
    result = driver->cuCtxPushCurrent_v2(context);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = driver->cuCtxSynchronize();
    const CUresult popping = driver->cuCtxPopCurrent_v2(&popped);
    return result != CUDA_SUCCESS ? result : popping;
}

CUresult owner_wait(owner *self) {
    const real_driver *driver = real_get();
    CUcontext others[OWNER_DEVICES];
    pthread_mutex_lock(&self->mutex);
    const unsigned count = self->accessor_count;
    for (unsigned i = 0; i < count; i++) {
        others[i] = self->accessors[i].context;
    }
    pthread_mutex_unlock(&self->mutex);
    CUresult result = wait_for(driver, self->context);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = wait_for(driver, others[i]);
    }
    return result;
}

void owner_forget(owner *self) {
    memory_lock();
    self->context = NULL;
    memory_unlock();
}

bool owner_was_made(void) {
    return atomic_load(&any);
}

size_t owner_rights(const owner *self, CUmemAccessDesc rights[OWNER_DEVICES + 1]) {
    size_t count = 0;
    for (unsigned i = 0; i <= self->accessor_count; i++) {
        const int device = i == 0 ? self->device : self->accessors[i - 1].device;
        bool has = false;
        for (size_t j = 0; j < count; j++) {
            has = has || rights[j].location.id == device;
        }
        if (!has) {
            rights[count++] = (CUmemAccessDesc){
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
        }
    }
    return count;
}
