/* SPDX-License-Identifier: MIT */
/** @file See work.h. */
#include "work.h"

#include <stdlib.h>
#include <string.h>

#include "host_function.h"
#include "pinned.h"
#include "word.h"

/* What is done to memory, which decides what must be allowed. */
typedef enum touch {
    TOUCH_COPY_FROM,
    TOUCH_COPY_TO,
    TOUCH_FILL,
    TOUCH_LOOK /* without a copy */
} touch;

/* What cuMemMap mapped may be touched by the devices that cuMemSetAccess named. Memory of
 * cuMemAlloc may be copied by any context, because the driver carries it through the host where the
 * devices have no way of their own; all else takes cuCtxEnablePeerAccess. */
static bool may_touch(const mapping *mapped, const context *by, touch how) {
    if (mapped->owner != NULL) {
        return how == TOUCH_COPY_FROM || how == TOUCH_COPY_TO || context_reaches(by, mapped->owner);
    }
    const unsigned wanted = how == TOUCH_COPY_FROM || how == TOUCH_LOOK
                                ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return (mapped->access[by->device] & wanted) == wanted;
}

static bool pieces_add(pieces *list, piece next) {
    /* Grown by doubling: full when the count is a power of two, or 0. */
    if ((list->count & (list->count - 1)) == 0) {
        size_t capacity = list->count == 0 ? 1 : list->count * 2;
        piece *grown = realloc(list->item, capacity * sizeof(*grown));
        if (grown == NULL) {
            return false;
        }
        list->item = grown;
    }
    list->item[list->count++] = next;
    return true;
}

static void pieces_destroy(pieces *list) {
    for (size_t i = 0; i < list->count; i++) {
        allocation_release(list->item[i].memory);
        pinned_release(list->item[i].host);
    }
    free(list->item);
    *list = (pieces){NULL, 0};
}

/* What must be so still when the work's turn comes. 0: cuMemFree waits for it. A pool keeps what was freed in a
 * stream, as long as it has that chunk. */
static uint64_t epoch_of(const mapping *mapped, int by) {
    switch (mapped->kind) {
    case MAPPING_VIRTUAL:
        return mapped->epoch[by];
    case MAPPING_POOLED:
        return address_reservation(mapped->at.base)->epoch;
    default:
        return 0;
    }
}

static CUresult resolve_device(side at, uint64_t bytes, touch how, pieces *list) {
    while (bytes > 0) {
        mapping *mapped = address_mapping(at.address);
        if (mapped == NULL || !may_touch(mapped, at.by, how)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const uint64_t offset = at.address - mapped->at.base;
        const uint64_t left = mapped->at.size - offset;
        const uint64_t size = bytes < left ? bytes : left;
        const piece next = {
            .memory = mapped->memory,
            .bytes = mapped->memory->bytes + mapped->offset + offset,
            .size = size,
            .address = at.address,
            .device = at.by->device,
            .epoch = epoch_of(mapped, at.by->device),
        };
        if (!pieces_add(list, next)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        allocation_retain(mapped->memory);
        at.address += size;
        bytes -= size;
    }
    return CUDA_SUCCESS;
}

static CUresult resolve_pinned(CUdeviceptr address, uint64_t bytes, touch how, pieces *list) {
    const bool is_written = how == TOUCH_COPY_TO || how == TOUCH_FILL;
    while (bytes > 0) {
        pinned *found = pinned_find(address);
        if (found == NULL) {
            return CUDA_ERROR_INVALID_VALUE; /* it starts in pinned memory and leaves it */
        }
        if (is_written && found->kind == PINNED_REGISTERED &&
            (found->flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0) {
            return CUDA_ERROR_INVALID_VALUE; /* a GPU takes it, and its context dies (measured) */
        }
        const uint64_t left = found->at.size - (address - found->at.base);
        const uint64_t size = bytes < left ? bytes : left;
        const piece next = {
            .host = found,
            .bytes = (uint8_t *)(uintptr_t)address,
            .size = size,
            .address = address,
        };
        if (!pieces_add(list, next)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        pinned_retain(found);
        address += size;
        bytes -= size;
    }
    return CUDA_SUCCESS;
}

/* The pieces of a range. On failure what was found so far stays in the list. */
static CUresult resolve(side at, uint64_t bytes, touch how, pieces *list) {
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    if (address_is_device(at.address)) {
        return resolve_device(at, bytes, how, list);
    }
    if (pinned_find(at.address) != NULL) {
        return resolve_pinned(at.address, bytes, how, list);
    }
    if (at.address == 0 || at.address > UINTPTR_MAX) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const piece host = {.bytes = (uint8_t *)(uintptr_t)at.address, .size = bytes};
    return pieces_add(list, host) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static work *work_new(work_kind kind) {
    work *todo = calloc(1, sizeof(*todo));
    if (todo != NULL) {
        todo->kind = kind;
    }
    return todo;
}

CUresult work_copy(side destination, side source, uint64_t bytes, work **out) {
    work *todo = work_new(WORK_COPY);
    if (todo == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = resolve(destination, bytes, TOUCH_COPY_TO, &todo->destination);
    if (result == CUDA_SUCCESS) {
        result = resolve(source, bytes, TOUCH_COPY_FROM, &todo->source);
    }
    if (result != CUDA_SUCCESS) {
        work_free(todo);
        return result;
    }
    *out = todo;
    return CUDA_SUCCESS;
}

CUresult work_stage(work *todo) {
    piece *source = &todo->source.item[0];
    todo->staged = malloc(source->size);
    if (todo->staged == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    state_unlock();
    memcpy(todo->staged, source->bytes, source->size);
    state_lock();
    source->bytes = todo->staged;
    return CUDA_SUCCESS;
}

CUresult work_fill(side destination, uint64_t row_bytes, uint64_t rows, uint64_t pitch,
                   uint32_t value, unsigned width, work **out) {
    CUresult result = CUDA_SUCCESS;
    work *todo = work_new(WORK_FILL);
    if (todo == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    todo->value = value;
    todo->width = width;
    for (uint64_t row = 0; row < rows && row_bytes > 0 && result == CUDA_SUCCESS; row++) {
        result = resolve(destination, row_bytes, TOUCH_FILL, &todo->destination);
        destination.address += pitch;
    }
    if (result != CUDA_SUCCESS) {
        work_free(todo);
        return result;
    }
    *out = todo;
    return CUDA_SUCCESS;
}

CUresult work_word(work_kind kind, side at, uint64_t value, unsigned width, unsigned compare,
                   work **out) {
    work *todo = work_new(kind);
    if (todo == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    todo->value = value;
    todo->width = width;
    todo->compare = compare;
    const mapping *mapped = address_mapping(at.address);
    const bool is_pooled = mapped != NULL && mapped->kind == MAPPING_POOLED;
    const CUresult result =
        is_pooled
            ? CUDA_ERROR_INVALID_VALUE /* measured */
            : resolve(at, width, kind == WORK_WAIT ? TOUCH_LOOK : TOUCH_FILL, &todo->destination);
    if (result != CUDA_SUCCESS) {
        work_free(todo);
        return result;
    }
    *out = todo;
    return CUDA_SUCCESS;
}

CUresult work_page_word(work_kind kind, allocation *page, uint64_t offset, uint64_t value,
                        work **out) {
    const piece word = {.memory = page, .bytes = page->bytes + offset, .size = sizeof(value)};
    work *todo = work_new(kind);
    if (todo == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!pieces_add(&todo->destination, word)) {
        work_free(todo);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation_retain(page);
    todo->value = value;
    todo->width = sizeof(value);
    todo->compare = CU_STREAM_WAIT_VALUE_GEQ;
    *out = todo;
    return CUDA_SUCCESS;
}

CUresult work_function(CUhostFn function, void *data, work **out) {
    work *todo = work_new(WORK_FUNCTION);
    if (todo == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    todo->function = function;
    todo->data = data;
    *out = todo;
    return CUDA_SUCCESS;
}

/* Pieces end where mappings do, at multiples of more than a value, so none is cut. */
static void fill_piece(const piece *at, uint32_t value, unsigned width) {
    const uint16_t half = (uint16_t)value;
    if (width == 1) {
        memset(at->bytes, (int)(value & 0xff), at->size);
        return;
    }
    if (width == 2) {
        for (uint64_t i = 0; i < at->size; i += sizeof(half)) {
            memcpy(at->bytes + i, &half, sizeof(half));
        }
        return;
    }
    for (uint64_t i = 0; i < at->size; i += sizeof(value)) {
        memcpy(at->bytes + i, &value, sizeof(value));
    }
}

static void copy_pieces(const pieces *to, const pieces *from) {
    size_t i = 0;
    size_t j = 0;
    uint64_t done_to = 0;
    uint64_t done_from = 0;
    while (i < to->count && j < from->count) {
        const uint64_t left_to = to->item[i].size - done_to;
        const uint64_t left_from = from->item[j].size - done_from;
        const uint64_t size = left_to < left_from ? left_to : left_from;
        memmove(to->item[i].bytes + done_to, from->item[j].bytes + done_from, size);
        done_to += size;
        done_from += size;
        if (done_to == to->item[i].size) {
            i++;
            done_to = 0;
        }
        if (done_from == from->item[j].size) {
            j++;
            done_from = 0;
        }
    }
}

static bool piece_is_mapped(const piece *at) {
    const mapping *mapped = address_mapping(at->address);
    const reservation *reserved = address_reservation(at->address);
    return at->epoch == 0 || (mapped != NULL && mapped->epoch[at->device] == at->epoch) ||
           (reserved != NULL && reserved->epoch == at->epoch);
}

static bool pieces_are_mapped(const pieces *list) {
    for (size_t i = 0; i < list->count; i++) {
        if (!piece_is_mapped(&list->item[i])) {
            return false;
        }
    }
    return true;
}

CUresult work_illegal(work **out) {
    *out = work_new(WORK_ILLEGAL);
    return *out == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

bool work_is_mapped(const work *todo) {
    return todo->kind != WORK_ILLEGAL && pieces_are_mapped(&todo->destination) &&
           pieces_are_mapped(&todo->source);
}

void work_run(const work *todo) {
    switch (todo->kind) {
    case WORK_COPY:
        copy_pieces(&todo->destination, &todo->source);
        break;
    case WORK_FILL:
        for (size_t i = 0; i < todo->destination.count; i++) {
            fill_piece(&todo->destination.item[i], (uint32_t)todo->value, todo->width);
        }
        break;
    case WORK_FUNCTION:
        host_function_run(todo->function, todo->data);
        break;
    case WORK_WRITE:
        word_write(todo);
        break;
    case WORK_RAISE:
        word_raise(todo->destination.item[0].bytes, todo->value);
        break;
    case WORK_WAIT:
    case WORK_ILLEGAL:
        break; /* not here: the one who waits looks after the context too */
    }
}

void work_free(work *todo) {
    if (todo == NULL) {
        return;
    }
    pieces_destroy(&todo->destination);
    pieces_destroy(&todo->source);
    free(todo->staged);
    free(todo);
}
