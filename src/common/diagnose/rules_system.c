/* SPDX-License-Identifier: MIT */
/** @file What the operating system and the environment do to sharing memory. docs/doctor.md says of each where it was seen. */
#include <string.h>

#include "cuda/context.h"
#include "cuda/cuda_api.h"
#include "diagnose/diagnosis.h"

#define MIB (1024.0 * 1024.0)
/* What Docker gives a container unless told otherwise: docs.docker.com, "docker run", --shm-size. */
#define SHM_SMALL_BYTES (64ull * 1024 * 1024)
/* Below it, what is left is used up by the next few buffers of any program. */
#define SHM_FREE_BYTES (8ull * 1024 * 1024)
/* One packet's handles and some for the rest of the program. */
#define HANDLES_NEEDED (OS_PACKET_HANDLES_MAX + 16)
/* What most systems give; more than a thousand segments do not fit. */
#define HANDLES_USUAL 1024
/* systemd's and Docker's default is 8 MiB, older systems' 64 KiB: RDMA wants whole buffers. */
#define LOCKED_SMALL_BYTES (64ull * 1024 * 1024)

/* proc(5), /proc/PID/status */
#define SECCOMP_FILTER 2

static const char *variable(const char *name) {
    const char *value = os_environment(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static void find_namespaces(diagnosis *self, const os_facts *facts) {
    if (facts->pid_namespace[0] != '\0') {
        diagnosis_add(self, FINDING_PID_NAMESPACE, GPUIPC_SEVERITY_NOTE, "this process is in %s",
                      facts->pid_namespace);
    }
    if (facts->user_namespace[0] != '\0') {
        diagnosis_add(self, FINDING_USER_NAMESPACE, GPUIPC_SEVERITY_NOTE, "this process is in %s",
                      facts->user_namespace);
    }
    if (facts->ipc_namespace[0] != '\0') {
        diagnosis_add(self, FINDING_IPC_NAMESPACE, GPUIPC_SEVERITY_NOTE, "this process is in %s",
                      facts->ipc_namespace);
    }
}

/* A container's own root ends with it; a directory that two of them have is a file system of its own. */
static void find_private_directory(diagnosis *self, const os_facts *facts, const char *directory) {
    if (facts->container[0] != '\0' && facts->directory_on_root == OS_YES) {
        diagnosis_add(self, FINDING_PRIVATE_DIRECTORY, GPUIPC_SEVERITY_NOTE,
                      "%.200s is part of the file system at /, and this is a container (%s)",
                      directory, facts->container);
    }
}

static void find_shm(diagnosis *self, const os_facts *facts) {
    if (facts->has_shm == OS_NO) {
        diagnosis_add(self, FINDING_SMALL_SHM, GPUIPC_SEVERITY_NOTE, "there is no /dev/shm");
    } else if (facts->has_shm == OS_YES &&
               (facts->shm_bytes <= SHM_SMALL_BYTES || facts->shm_free_bytes < SHM_FREE_BYTES)) {
        diagnosis_add(self, FINDING_SMALL_SHM, GPUIPC_SEVERITY_NOTE,
                      "of %.1f MiB in /dev/shm %.1f MiB are free", (double)facts->shm_bytes / MIB,
                      (double)facts->shm_free_bytes / MIB);
    }
}

static void find_pidfd(diagnosis *self, const os_facts *facts) {
    if (facts->pidfd_open_code != 0) {
        diagnosis_add(self, FINDING_NO_PIDFD, GPUIPC_SEVERITY_SLOWS,
                      "pidfd_open of this process itself: %s (%s)", facts->pidfd_open_text,
                      facts->system);
    } else if (facts->pidfd_getfd_code != 0) {
        diagnosis_add(self, FINDING_SECCOMP, GPUIPC_SEVERITY_NOTE,
                      "pidfd_getfd of a descriptor of its own: %s (%s; %s)",
                      facts->pidfd_getfd_text,
                      facts->seccomp == SECCOMP_FILTER ? "a filter is set" : "no filter is set",
                      facts->system);
    }
    if (facts->ptrace_scope > 0 && facts->can_trace == OS_NO) {
        diagnosis_add(self, FINDING_PTRACE, GPUIPC_SEVERITY_NOTE,
                      "kernel.yama.ptrace_scope is %d, and there is no CAP_SYS_PTRACE",
                      facts->ptrace_scope);
    }
}

static void find_limits(diagnosis *self, const os_facts *facts) {
    const uint64_t limit = facts->handle_limit;
    const uint64_t open = facts->handles_open == OS_NO_NUMBER ? 0 : facts->handles_open;
    if (limit != OS_NO_NUMBER && limit < HANDLES_USUAL) {
        const bool is_short = limit < open + HANDLES_NEEDED;
        diagnosis_add(self, FINDING_HANDLE_LIMIT,
                      is_short ? GPUIPC_SEVERITY_BLOCKS : GPUIPC_SEVERITY_NOTE,
                      "%llu descriptors are open; the limit is %llu, and one packet may bring %d",
                      (unsigned long long)open, (unsigned long long)limit, OS_PACKET_HANDLES_MAX);
    } else if (limit != OS_NO_NUMBER && limit < open + HANDLES_NEEDED) {
        diagnosis_add(self, FINDING_HANDLE_LIMIT, GPUIPC_SEVERITY_BLOCKS,
                      "%llu of %llu descriptors are open; one packet may bring %d",
                      (unsigned long long)open, (unsigned long long)limit, OS_PACKET_HANDLES_MAX);
    }
    if (facts->locked_limit != OS_NO_NUMBER && facts->locked_limit < LOCKED_SMALL_BYTES) {
        diagnosis_add(self, FINDING_LOCKED_MEMORY, GPUIPC_SEVERITY_NOTE,
                      "%.2f MiB may be locked (ulimit -l)", (double)facts->locked_limit / MIB);
    }
    if (facts->address_limit != OS_NO_NUMBER) {
        diagnosis_add(self, FINDING_ADDRESS_LIMIT, GPUIPC_SEVERITY_NOTE, "the limit is %.0f MiB",
                      (double)facts->address_limit / MIB);
    }
}

/* https://pytorch.org/docs/stable/notes/cuda.html, "Optimizing memory usage": the first name is the older one. */
static void find_allocators(diagnosis *self) {
    static const char *const names[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = variable(names[i]);
        if (value != NULL && strstr(value, "expandable_segments:True") != NULL) {
            diagnosis_add(self, FINDING_EXPANDABLE_SEGMENTS, GPUIPC_SEVERITY_NOTE, "%s=%.120s",
                          names[i], value);
        }
        if (value != NULL && strstr(value, "backend:cudaMallocAsync") != NULL) {
            diagnosis_add(self, FINDING_ASYNC_ALLOCATOR, GPUIPC_SEVERITY_SLOWS, "%s=%.120s",
                          names[i], value);
        }
    }
    const char *tensorflow = variable("TF_GPU_ALLOCATOR");
    if (tensorflow != NULL && strcmp(tensorflow, "cuda_malloc_async") == 0) {
        diagnosis_add(self, FINDING_ASYNC_ALLOCATOR, GPUIPC_SEVERITY_SLOWS, "TF_GPU_ALLOCATOR=%s",
                      tensorflow);
    }
}

static void find_mps(diagnosis *self, const os_facts *facts) {
    const char *place = variable("CUDA_MPS_PIPE_DIRECTORY");
    if (place != NULL) {
        diagnosis_add(self, FINDING_MPS, GPUIPC_SEVERITY_NOTE, "CUDA_MPS_PIPE_DIRECTORY=%.200s",
                      place);
    } else if (facts->mps_control[0] != '\0') {
        diagnosis_add(self, FINDING_MPS, GPUIPC_SEVERITY_NOTE, "there is %s", facts->mps_control);
    }
}

/* docs/channels.md has what was measured. */
static void find_one_connection(diagnosis *self) {
    if (context_has_one_connection()) {
        diagnosis_add(self, FINDING_ONE_CONNECTION, GPUIPC_SEVERITY_SLOWS,
                      "CUDA_DEVICE_MAX_CONNECTIONS=%.20s", variable("CUDA_DEVICE_MAX_CONNECTIONS"));
    }
}

void rules_system(diagnosis *self, const os_facts *facts, const char *directory) {
    find_namespaces(self, facts);
    find_private_directory(self, facts, directory);
    find_shm(self, facts);
    find_pidfd(self, facts);
    find_limits(self, facts);
    find_allocators(self);
    find_mps(self, facts);
    find_one_connection(self);
    if (facts->is_wsl == OS_YES) {
        diagnosis_add(self, FINDING_WSL, GPUIPC_SEVERITY_SLOWS, "the system is %s", facts->system);
    }
}

/* The machine has the driver, and this process some of it. What the container toolkit was told is part of the evidence:
 * docs.nvidia.com, "NVIDIA Container Toolkit", NVIDIA_DRIVER_CAPABILITIES and NVIDIA_VISIBLE_DEVICES. */
static bool find_container(diagnosis *self, const os_facts *facts, const char *what) {
    static const char *const told[] = {"NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES"};
    const bool is_there = facts->gpu_driver[0] != '\0' || facts->gpu_nodes > 0;
    if (!is_there) {
        return false;
    }
    diagnosis_add(self, FINDING_CONTAINER_WITHOUT_DRIVER, GPUIPC_SEVERITY_BLOCKS, "%s", what);
    if (facts->gpu_driver[0] != '\0') {
        diagnosis_add(self, FINDING_CONTAINER_WITHOUT_DRIVER, GPUIPC_SEVERITY_BLOCKS,
                      "the kernel's driver is %s", facts->gpu_driver);
    }
    if (facts->gpu_node_refused[0] != '\0') {
        diagnosis_add(self, FINDING_CONTAINER_WITHOUT_DRIVER, GPUIPC_SEVERITY_BLOCKS, "%s",
                      facts->gpu_node_refused);
    }
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        const char *value = variable(told[i]);
        if (value != NULL) {
            diagnosis_add(self, FINDING_CONTAINER_WITHOUT_DRIVER, GPUIPC_SEVERITY_BLOCKS,
                          "%s=%.80s", told[i], value);
        }
    }
    return true;
}

static void find_no_gpu(diagnosis *self, const os_facts *facts, const gpuipc_error *error) {
    const char *visible = os_environment("CUDA_VISIBLE_DEVICES"); /* empty hides all of them */
    const bool is_refused = facts->gpu_node_refused[0] != '\0';
    if (visible != NULL) {
        diagnosis_add(self, FINDING_GPU_HIDDEN, GPUIPC_SEVERITY_BLOCKS,
                      "CUDA_VISIBLE_DEVICES=\"%.120s\": none is left", visible);
    }
    if (facts->gpu_count > 0 && (visible == NULL || is_refused)) {
        diagnosis_add(self, FINDING_GPU_WITHHELD, GPUIPC_SEVERITY_BLOCKS,
                      "the kernel's driver lists %llu GPUs, and this process sees none (%s)",
                      (unsigned long long)facts->gpu_count,
                      is_refused ? facts->gpu_node_refused : "its device files open");
    } else if (visible == NULL) {
        diagnosis_add(self, FINDING_NO_GPU, GPUIPC_SEVERITY_BLOCKS, "%s", error->sentence);
    }
}

/* A library that was named says nothing about the installed driver, unless it was loaded and did not start. */
static bool is_named(const char *choice, const gpuipc_error *error) {
    return strcmp(choice, "auto") != 0 && error->status == GPUIPC_ERR_DRIVER_FAILED &&
           error->native_origin != GPUIPC_NATIVE_CUDA;
}

/* Measured, two H100, driver 580: with 7.6 GiB of addresses cuInit answers that memory is out, with 15.3 GiB it starts. */
static bool is_short_of_addresses(const os_facts *facts, const gpuipc_error *error) {
    return facts->address_limit != OS_NO_NUMBER && error->native_origin == GPUIPC_NATIVE_CUDA &&
           error->native_code == CUDA_ERROR_OUT_OF_MEMORY;
}

static void find_failed(diagnosis *self, const os_facts *facts, const gpuipc_error *error,
                        const char *choice) {
    if (is_named(choice, error)) {
        diagnosis_add(self, FINDING_DRIVER_NAMED, GPUIPC_SEVERITY_BLOCKS, "%s", error->sentence);
    } else if (error->native_origin == GPUIPC_NATIVE_CUDA &&
               error->native_code == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH) {
        diagnosis_add(self, FINDING_DRIVER_MISMATCH, GPUIPC_SEVERITY_BLOCKS, "%s", error->sentence);
    } else if (is_short_of_addresses(facts, error)) {
        diagnosis_add(self, FINDING_ADDRESS_LIMIT, GPUIPC_SEVERITY_BLOCKS, "%s", error->sentence);
    } else if (facts->gpu_node_refused[0] == '\0' ||
               !find_container(self, facts, error->sentence)) {
        diagnosis_add(self, FINDING_DRIVER_FAILED, GPUIPC_SEVERITY_BLOCKS, "%s", error->sentence);
    }
}

bool rules_no_context(diagnosis *self, const os_facts *facts, const gpuipc_error *error,
                      const char *choice) {
    switch (error->status) {
    case GPUIPC_ERR_NO_DRIVER:
        if (!find_container(self, facts, error->sentence)) {
            diagnosis_add(self, FINDING_NO_DRIVER, GPUIPC_SEVERITY_BLOCKS, "%s", error->sentence);
        }
        return true;
    case GPUIPC_ERR_DRIVER_TOO_OLD:
        diagnosis_add(self, FINDING_DRIVER_TOO_OLD, GPUIPC_SEVERITY_BLOCKS, "%s", error->sentence);
        return true;
    case GPUIPC_ERR_NOT_SUPPORTED: /* a program that was linked with -static */
    case GPUIPC_ERR_DRIVER_FAILED:
        find_failed(self, facts, error, choice);
        return true;
    case GPUIPC_ERR_NO_DEVICE:
        find_no_gpu(self, facts, error);
        return true;
    case GPUIPC_ERR_FORKED:
        diagnosis_add(self, FINDING_FORKED, GPUIPC_SEVERITY_BLOCKS, "%s", error->sentence);
        return true;
    default:
        return false;
    }
}
