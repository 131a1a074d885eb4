/* SPDX-License-Identifier: MIT */
/** @file See admission.h. */
#include "admission.h"

#include <stdlib.h>

#include "status.h"

bool admission_has(const admission *self, const known_process *process) {
    if (process == NULL) {
        return self->has_own;
    }
    for (uint32_t i = 0; i < self->count; i++) {
        if (self->processes[i] == process) {
            return true;
        }
    }
    return false;
}

gpuipc_status admission_add(admission *self, known_process *process) {
    if (process == NULL) {
        self->has_own = true;
        return GPUIPC_OK;
    }
    if (self->count == self->capacity) {
        const uint32_t capacity = self->capacity == 0 ? 4 : self->capacity * 2;
        known_process **processes = realloc(self->processes, capacity * sizeof(*processes));
        if (processes == NULL) {
            return status_out_of_memory("admission_add", capacity * sizeof(*processes));
        }
        self->processes = processes;
        self->capacity = capacity;
    }
    known_process_reference(process);
    self->processes[self->count++] = process;
    return GPUIPC_OK;
}

void admission_remove(admission *self, known_process *process) {
    if (process == NULL) {
        self->has_own = false;
        return;
    }
    for (uint32_t i = self->count; i > 0; i--) {
        if (self->processes[i - 1] == process) {
            self->processes[i - 1] = self->processes[--self->count];
            known_process_unreference(process, false);
            return;
        }
    }
}

uint64_t admission_count(const admission *self) {
    return (uint64_t)self->count + (self->has_own ? 1 : 0);
}

void admission_clear(admission *self, bool forked) {
    for (uint32_t i = 0; i < self->count; i++) {
        known_process_unreference(self->processes[i], forked);
    }
    free(self->processes);
    *self = (admission){.processes = NULL};
}
