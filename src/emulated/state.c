/* SPDX-License-Identifier: MIT */
/** @file See state.h; and cuInit, which fills it, and the functions that show it to tests. */
#include "state.h"

#include <stdatomic.h>
#include <stdio.h>

#include "dma_buf.h"
#include "entry.h"
#include "fault.h"
#include "live.h"

state driver;

/* Guards the way to usable; driver_lock exists only after it. Held over a fork, unlike driver_lock,
 * which a forked child never touches: some thread of the parent may have held it for ever. */
static os_static_mutex start_mutex;
/* Set once, after all that it stands for; so that to ask takes no lock, which on Windows a thread that
 * the exit of the process has ended may hold for ever. */
static atomic_bool is_started;
static uint32_t started_generation;
static os_mutex driver_lock;
static os_condition driver_progress;
/* Set by gpuipc_emulated_set_stream_delay before cuInit. */
static bool delay_is_set;

bool state_is_usable(void) {
    return atomic_load(&is_started) && started_generation == os_fork_generation();
}

void state_lock(void) {
    os_mutex_lock(&driver_lock);
}

bool state_try_lock(void) {
    return os_mutex_try_lock(&driver_lock);
}

void state_unlock(void) {
    os_mutex_unlock(&driver_lock);
}

void state_announce(void) {
    os_condition_signal_all(&driver_progress);
}

void state_wait(void) {
    os_condition_wait(&driver_progress, &driver_lock, os_deadline_after(-1));
}

/* On failure the complaint has been printed and *out is not changed. */
static bool read_machine(machine *out, bool complain) {
    char complaint[600];
    if (machine_parse(os_environment("GPUIPC_EMULATED_MACHINE"), out, complaint,
                      sizeof(complaint))) {
        return true;
    }
    if (complain) {
        fprintf(stderr, "gpuipc emulated driver: GPUIPC_EMULATED_MACHINE: %s\n", complaint);
    }
    return false;
}

/* Its address tells one thread from another. */
static GPUIPC_THREAD_LOCAL char thread_mark;

/* A thread's call does, which makes no other meanwhile. */
static bool keeps_out;

const void *state_thread(void) {
    return &thread_mark;
}

void state_keep_out(void) {
    keeps_out = true;
    driver.live.keeping_out = 1;
}

void state_let_in(void) {
    keeps_out = false;
    driver.live.keeping_out = 0;
    state_announce();
}

void state_wait_admission(void) {
    while (keeps_out) {
        state_wait();
    }
}

void state_machine(machine *out) {
    os_static_mutex_lock(&start_mutex);
    if (atomic_load(&is_started)) {
        *out = driver.computer;
    } else if (!read_machine(out, false)) {
        machine_parse(NULL, out, NULL, 0);
    }
    os_static_mutex_unlock(&start_mutex);
}

CUresult state_device(CUdevice ordinal, device **out) {
    if (ordinal < 0 || (unsigned)ordinal >= driver.device_count) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *out = &driver.devices[ordinal];
    return CUDA_SUCCESS;
}

bool state_has_vmm(void) {
    return driver.computer.has_vmm && driver.computer.model != MACHINE_MODEL_TCC;
}

bool state_has_ipc(void) {
    return !driver.computer.is_wsl;
}

bool state_has_concurrent_managed(void) {
    return driver.computer.model == MACHINE_MODEL_NONE && !driver.computer.is_wsl;
}

bool state_has_pools(void) {
    return state_has_vmm();
}

bool state_has_dma_buf(void) {
    return dma_buf_is_there && driver.computer.has_dma_buf && !driver.computer.is_wsl;
}

CUresult state_result(gpuipc_status status) {
    switch (status) {
    case GPUIPC_OK:
        return CUDA_SUCCESS;
    case GPUIPC_ERR_OUT_OF_MEMORY:
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
}

/* start_mutex is held; nothing is started yet. */
static CUresult start(void) {
    machine computer;
    unsigned visible[MACHINE_DEVICES_MAX];
    if (!read_machine(&computer, true)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const unsigned count =
        machine_visible(&computer, os_environment("CUDA_VISIBLE_DEVICES"), visible);
    if (count == 0) {
        return CUDA_ERROR_NO_DEVICE;
    }
    const CUresult result = live_report_at_exit();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    gpuipc_status status = os_fork_watch();
    if (status != GPUIPC_OK) {
        return state_result(status);
    }
    status = os_condition_init(&driver_progress);
    if (status != GPUIPC_OK) {
        return state_result(status);
    }
    driver.computer = computer;
    driver.device_count = count;
    for (unsigned ordinal = 0; ordinal < count; ordinal++) {
        driver.devices[ordinal].physical = visible[ordinal];
    }
    if (!delay_is_set) {
        driver.stream_delay_ms = computer.stream_delay_ms;
    }
    started_generation = os_fork_generation();
    atomic_store(&is_started, true);
    return CUDA_SUCCESS;
}

GPUIPC_EXPORTED CUresult cuInit(unsigned int flags) {
    const CUresult refused = ENTER_ANYTIME(cuInit);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    if (flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    os_static_mutex_lock(&start_mutex);
    CUresult result = CUDA_SUCCESS;
    if (!atomic_load(&is_started)) {
        result = start();
    } else if (started_generation != os_fork_generation()) {
        result = CUDA_ERROR_NOT_INITIALIZED;
    }
    os_static_mutex_unlock(&start_mutex);
    return result;
}

GPUIPC_EXPORTED CUresult cuDriverGetVersion(int *version) {
    const CUresult refused = ENTER_ANYTIME(cuDriverGetVersion);
    if (refused != CUDA_SUCCESS) {
        return refused;
    }
    if (version == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    machine computer;
    state_machine(&computer);
    *version = computer.version;
    return CUDA_SUCCESS;
}

GPUIPC_EXPORTED int gpuipc_emulated_mark(void);
GPUIPC_EXPORTED int gpuipc_emulated_mark(void) {
    return 1;
}

GPUIPC_EXPORTED int gpuipc_emulated_set_fail(const char *text);
GPUIPC_EXPORTED int gpuipc_emulated_set_fail(const char *text) {
    return fault_set(text);
}

GPUIPC_EXPORTED void gpuipc_emulated_set_judge(gpuipc_emulated_judge judge);
GPUIPC_EXPORTED void gpuipc_emulated_set_judge(gpuipc_emulated_judge judge) {
    fault_set_judge(judge);
}

GPUIPC_EXPORTED uint64_t gpuipc_emulated_get_calls(const char *name);
GPUIPC_EXPORTED uint64_t gpuipc_emulated_get_calls(const char *name) {
    return fault_calls(name);
}

GPUIPC_EXPORTED void gpuipc_emulated_set_stream_delay(unsigned milliseconds);
GPUIPC_EXPORTED void gpuipc_emulated_set_stream_delay(unsigned milliseconds) {
    os_static_mutex_lock(&start_mutex);
    const bool usable = state_is_usable();
    if (usable) {
        state_lock();
    }
    driver.stream_delay_ms = milliseconds;
    delay_is_set = true;
    if (usable) {
        state_unlock();
    }
    os_static_mutex_unlock(&start_mutex);
}
