/* SPDX-License-Identifier: MIT */
/** @file See ipc.h: what stands before cuIpcGetMemHandle() and its kin. */
#include "ipc.h"

#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "log.h"
#include "sharing.h"
#include "state.h"

/* cuda.h: a handle has 64 bytes that mean nothing to the program. A ticket is as long. */
_Static_assert(sizeof(CUipcMemHandle) == sizeof(gpuipc_ticket), "a ticket is a handle");

static pthread_mutex_t ipc_mutex = PTHREAD_MUTEX_INITIALIZER;

void ipc_lock(void) {
    pthread_mutex_lock(&ipc_mutex);
}

bool ipc_try_lock(void) {
    return pthread_mutex_trylock(&ipc_mutex) == 0;
}

void ipc_unlock(void) {
    pthread_mutex_unlock(&ipc_mutex);
}

/* The codes that cuda.h lists for these calls. The sentence goes to the log. */
static CUresult refuse(gpuipc_status status, const char *call) {
    const gpuipc_error *error = gpuipc_error_get();
    log_count(COUNT_REFUSED);
    log_warning("%s: %s", call, gpuipc_error_text());
    if (error->native_origin == GPUIPC_NATIVE_CUDA) {
        return (CUresult)error->native_code;
    }
    switch (status) {
    case GPUIPC_ERR_OUT_OF_DEVICE_MEMORY:
    case GPUIPC_ERR_OUT_OF_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case GPUIPC_ERR_EXPORTER_GONE: /* measured: so the driver says when the maker has ended */
    case GPUIPC_ERR_TICKET_OTHER_BOOT:
        return CUDA_ERROR_INVALID_HANDLE;
    case GPUIPC_ERR_PEER_ACCESS_UNSUPPORTED:
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    case GPUIPC_ERR_OS:
    case GPUIPC_ERR_TOO_MANY_HANDLES:
    case GPUIPC_ERR_UNSAFE_DIRECTORY:
        return CUDA_ERROR_OPERATING_SYSTEM;
    default:
        return gpuipc_status_group(status) == GPUIPC_GROUP_TICKET ? CUDA_ERROR_INVALID_VALUE
                                                                  : CUDA_ERROR_MAP_FAILED;
    }
}

/* ---- handles of own memory ----------------------------------------------------------------------- */

static memory *find_own(CUdeviceptr address) {
    memory_lock();
    memory *self = memory_find(address);
    memory_unlock();
    return self;
}

static CUresult get_handle(CUipcMemHandle *out, memory *self) {
    if (self->chunk == NULL) {
        return CUDA_ERROR_INVALID_VALUE; /* as the driver says of what was opened */
    }
    const bool is_new = self->buffer == NULL;
    const gpuipc_status status = sharing_share(self);
    if (status != GPUIPC_OK) {
        return refuse(status, "cuIpcGetMemHandle");
    }
    if (is_new) {
        memory_lock();
        self->has_ticket = true;
        memory_enter_ticket(self);
        memory_unlock();
        log_count(COUNT_SHARED);
    }
    memcpy(out->reserved, self->ticket.bytes, sizeof(out->reserved));
    return CUDA_SUCCESS;
}

/* False: it is none of ours, or there is no context, which the driver says. */
static bool get_own_handle(CUipcMemHandle *out, CUdeviceptr address, CUresult *out_result) {
    CUcontext context = NULL;
    if (!state_is_on() || out == NULL || real_get()->cuCtxGetCurrent(&context) != CUDA_SUCCESS ||
        context == NULL) {
        return false;
    }
    ipc_lock();
    memory *self = find_own(address);
    if (self != NULL) {
        *out_result = get_handle(out, self);
    }
    ipc_unlock();
    return self != NULL;
}

GPUIPC_EXPORTED CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    CUresult result;
    return get_own_handle(handle, address, &result)
               ? result
               : REAL_CALL(cuIpcGetMemHandle, (handle, address));
}

/* ---- handles of other processes ------------------------------------------------------------------ */

/* What is open already, for this context. Of one's own memory *out_own. */
static memory *find_open(const gpuipc_ticket *ticket, const owner *by, bool *out_own) {
    memory *self = NULL;
    memory_lock();
    while ((self = memory_find_ticket(ticket, self)) != NULL) {
        if (self->chunk != NULL) {
            *out_own = true;
            break;
        }
        if (self->owner == by) {
            self->opens++;
            break;
        }
    }
    memory_unlock();
    return self;
}

/* As memory of the context is open to those that it let at it. Where one cannot reach it, its work will say so. */
static void let_one_at(const memory *opened, int device) {
    if (gpuipc_buffer_set_access(opened->buffer, (uint32_t)device, GPUIPC_ACCESS_READ_WRITE) !=
        GPUIPC_OK) {
        log_line("device %d cannot be let at what is open: %s", device, gpuipc_error_text());
    }
}

static void enter_opened(memory *self) {
    CUmemAccessDesc rights[OWNER_DEVICES + 1];
    owner *by = self->owner;
    pthread_mutex_lock(&by->mutex);
    const size_t count = owner_rights(by, rights);
    pthread_mutex_unlock(&by->mutex);
    for (size_t i = 1; i < count; i++) { /* the first is the device itself */
        let_one_at(self, rights[i].location.id);
    }
    memory_lock();
    self->has_ticket = true;
    memory_enter(self);
    memory_enter_ticket(self);
    memory_unlock();
    log_count(COUNT_OPENED);
}

/* False: nobody has it open for this context. The lock is held, as in the next. */
static bool open_again(const gpuipc_ticket *ticket, const owner *by, CUdeviceptr *out,
                       CUresult *out_result) {
    bool is_own = false;
    const memory *self = find_open(ticket, by, &is_own);
    if (is_own) { /* as the driver says to the process that made the handle */
        *out_result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (self != NULL) {
        log_count(COUNT_OPENED_AGAIN);
        *out = self->at.begin;
        *out_result = CUDA_SUCCESS;
    }
    return is_own || self != NULL;
}

/* What has come, for a context as it was before. Another thread may have opened the same meanwhile, at the same address, or
 * ended the context. Takes it over. */
static CUresult enter(memory *self, CUcontext context, const gpuipc_context *in, CUdeviceptr *out) {
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    gpuipc_context *now = NULL;
    if (!open_again(&self->ticket, self->owner, out, &result) && self->owner->context == context &&
        sharing_find(self->owner->device, &now) == GPUIPC_OK && now == in) {
        *out = self->at.begin;
        enter_opened(self);
        return CUDA_SUCCESS;
    }
    (void)gpuipc_buffer_release(self->buffer);
    free(self);
    return result;
}

/* The maker is asked without the lock: one that is stopped does not answer, and other threads go on. */
static CUresult open_new(const gpuipc_ticket *ticket, owner *by, gpuipc_context *in,
                         CUdeviceptr *out) {
    const CUcontext context = by->context;
    memory *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    self->owner = by;
    self->opens = 1;
    const gpuipc_status status = sharing_open(in, ticket, by->device, self);
    if (status != GPUIPC_OK) {
        free(self);
        return refuse(status, "cuIpcOpenMemHandle");
    }
    ipc_lock();
    const CUresult result = enter(self, context, in, out);
    ipc_unlock();
    return result;
}

static CUresult open_ticket(const gpuipc_ticket *ticket, owner *by, CUdeviceptr *out) {
    CUresult result;
    gpuipc_context *in = NULL;
    gpuipc_status status = GPUIPC_OK;
    ipc_lock();
    const bool is_open = open_again(ticket, by, out, &result);
    if (!is_open) {
        status = sharing_find(by->device, &in);
    }
    ipc_unlock();
    if (is_open) {
        return result;
    }
    return status == GPUIPC_OK ? open_new(ticket, by, in, out)
                               : refuse(status, "cuIpcOpenMemHandle");
}

/* False: the handle is the driver's, or the call is for it to refuse. */
static bool open_handle(CUdeviceptr *address, const CUipcMemHandle *handle, unsigned flags,
                        CUresult *out_result) {
    gpuipc_ticket ticket;
    if (!state_is_on() || address == NULL || (flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == 0) {
        return false;
    }
    if (gpuipc_ticket_from_bytes(handle->reserved, sizeof(handle->reserved), &ticket) !=
        GPUIPC_OK) {
        log_count(COUNT_FOREIGN);
        return false;
    }
    owner *by = owner_current();
    if (by == NULL || by->device >= OWNER_DEVICES) {
        return false;
    }
    *out_result = open_ticket(&ticket, by, address);
    return true;
}

GPUIPC_EXPORTED CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle,
                                            unsigned int flags) {
    CUresult result;
    return open_handle(address, &handle, flags, &result)
               ? result
               : REAL_CALL(cuIpcOpenMemHandle, (address, handle, flags));
}

GPUIPC_EXPORTED CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle,
                                               unsigned int flags) {
    CUresult result;
    return open_handle(address, &handle, flags, &result)
               ? result
               : REAL_CALL(cuIpcOpenMemHandle_v2, (address, handle, flags));
}

/* What is open at an address. */
static memory *find_opened(CUdeviceptr address) {
    memory_lock();
    memory *self = memory_find(address);
    if (self != NULL && (self->chunk != NULL || self->at.begin != address)) {
        self = NULL;
    }
    memory_unlock();
    return self;
}

/* The last closing waits for the work that may use the memory, as the driver's does. */
static CUresult close_opened(memory *self) {
    if (self->opens > 1) {
        self->opens--;
        log_count(COUNT_CLOSED);
        return CUDA_SUCCESS;
    }
    const bool is_captured = capture_is_underway();
    const CUresult result = is_captured ? CUDA_SUCCESS : owner_wait(self->owner);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    memory_lock();
    memory_take_out(self);
    memory_unlock();
    log_count(COUNT_CLOSED);
    if (is_captured) {
        capture_hold_back(self);
        return CUDA_SUCCESS;
    }
    return memory_end(self);
}

GPUIPC_EXPORTED CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    if (!state_is_on()) {
        return REAL_CALL(cuIpcCloseMemHandle, (address));
    }
    ipc_lock();
    memory *self = find_opened(address);
    const CUresult result = self == NULL ? CUDA_SUCCESS : close_opened(self);
    ipc_unlock();
    return self == NULL ? REAL_CALL(cuIpcCloseMemHandle, (address)) : result;
}

/* ---- for contexts.c ------------------------------------------------------------------------------ */

/* The first of an owner's memory behind another. What has a buffer changes only under the ipc_lock() of the caller. */
static memory *next_with_buffer(owner *of, const memory *after) {
    memory_lock();
    list_link *at = after == NULL ? of->memories.first : after->of_owner.next;
    while (at != NULL && LIST_ITEM(at, memory, of_owner)->buffer == NULL) {
        at = at->next;
    }
    memory_unlock();
    return LIST_ITEM(at, memory, of_owner);
}

void ipc_let_at(owner *of, int device) {
    ipc_lock();
    for (memory *at = next_with_buffer(of, NULL); at != NULL; at = next_with_buffer(of, at)) {
        if (at->chunk == NULL) {
            let_one_at(at, device);
        }
    }
    ipc_unlock();
}

void ipc_leave(owner *of) {
    memory *next;
    ipc_lock();
    for (memory *self = next_with_buffer(of, NULL); self != NULL; self = next) {
        next = next_with_buffer(of, self);
        if (self->chunk == NULL) {
            memory_lock();
            memory_take_out(self);
            memory_unlock();
            (void)memory_end(self);
        } else {
            memory_lock();
            memory_forget_ticket(self);
            memory_unlock();
            sharing_end(self);
        }
    }
    if (of->is_primary) {
        sharing_end_device(of->device);
    }
    ipc_unlock();
}
