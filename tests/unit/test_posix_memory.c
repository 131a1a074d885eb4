/* SPDX-License-Identifier: MIT */
/** @file Shared memory: handles that are none, and what the seals forbid. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "leak_gate.h"
#include "os.h"
#include "os_pair.h"

TestSuite(posix_memory, .timeout = 60);

/* Memory of a fixed size that nobody may write any more. */
static int sealed_for_reading(void) {
    int fd = memfd_create("read-only", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert_eq(ftruncate(fd, 4096), 0);
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL),
                 0);
    return fd;
}

/* Memory of ours, whose descriptor may only read it. */
static int opened_for_reading(void) {
    char path[64];
    os_handle made;
    check_ok(os_memory_create("read-only", 4096, &made));
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", (int)made.value);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    os_handle_close(&made);
    return fd;
}

/** @return a descriptor that is no sealed memory, the @p kind -th; -1: there are no more kinds */
static int impostor(size_t kind) {
    int pair[2] = {-1, -1};
    switch (kind) {
    case 0:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    case 1:
        return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    case 2:
        return open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    case 3:
        return open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    case 4:
        cr_assert_eq(pipe2(pair, O_CLOEXEC), 0);
        close(pair[1]);
        return pair[0];
    case 5:
        return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    case 6:
        return memfd_create("no-seals", MFD_CLOEXEC);
    case 7:
        return memfd_create("could-be-sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    case 8:
    case 9: {
        int fd = memfd_create("half-sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        cr_assert_eq(ftruncate(fd, 4096), 0);
        int seals = kind == 8 ? F_SEAL_GROW | F_SEAL_SEAL : F_SEAL_SHRINK | F_SEAL_SEAL;
        cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
        return fd;
    }
    case 10:
        return open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    case 11:
        return sealed_for_reading();
    case 12:
        return opened_for_reading();
    default:
        return -1;
    }
}

Test(posix_memory, what_is_no_sealed_memory_is_refused) {
    enum {
        KINDS = 13
    };
    leak_gate gate;
    leak_gate_begin(&gate);
    for (size_t kind = 0; kind < KINDS; kind++) {
        os_handle handle;
        uint64_t bytes = 77;
        int fd = impostor(kind);
        cr_assert(fd >= 0, "%zu: %s", kind, strerror(errno));
        check_ok(os_handle_adopt(fd, &handle));
        gpuipc_status status = os_memory_inspect(handle, &bytes);
        cr_assert_eq(status, GPUIPC_ERR_PROTOCOL, "%zu: %s", kind, gpuipc_status_name(status));
        cr_assert_eq(bytes, 77);
        os_handle_close(&handle);
    }
    cr_assert_eq(impostor(KINDS), -1);
    check_status(GPUIPC_ERR_PROTOCOL, os_memory_inspect(OS_HANDLE_NONE, &(uint64_t){0}));
    cr_assert_eq(leak_gate_await(&gate, SOON_MS), 0, "%s", gate.text);
}

Test(posix_memory, says_its_exact_size) {
    static const uint64_t sizes[] = {1, 4095, 4096, 2u << 20, UINT64_C(1) << 40};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        os_handle handle;
        uint64_t bytes = 0;
        check_ok(os_memory_create("size", sizes[i], &handle));
        check_ok(os_memory_inspect(handle, &bytes));
        cr_assert_eq(bytes, sizes[i]);
        os_handle_close(&handle);
    }
}

static void file_limit_set(rlim_t bytes) {
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Asking the system would end this process (setrlimit(2), SIGXFSZ). */
Test(posix_memory, a_limit_of_file_sizes_is_told_and_ends_nobody) {
    os_handle handle;
    leak_gate gate;
    leak_gate_begin(&gate);
    file_limit_set(4096);
    check_refused(GPUIPC_ERR_OS, "RLIMIT_FSIZE", os_memory_create("limit", 4097, &handle));
    cr_assert_eq(gpuipc_error_get()->native_code, EFBIG);
    check_ok(os_memory_create("limit", 4096, &handle));
    os_handle_close(&handle);
    file_limit_set(RLIM_INFINITY);
    check_ok(os_memory_create("limit", 4097, &handle));
    os_handle_close(&handle);
    cr_assert_eq(leak_gate_end(&gate), 0, "%s", gate.text);
}

Test(posix_memory, sealed_memory_cannot_change_its_size) {
    os_handle handle;
    check_ok(os_memory_create("sealed", 8192, &handle));
    int fd = (int)handle.value;
    cr_assert_neq(ftruncate(fd, 4096), 0);
    cr_assert_neq(ftruncate(fd, 16384), 0);
    cr_assert_neq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    os_handle_close(&handle);
}

Test(posix_memory, memory_mapped_for_reading_takes_no_bytes) {
    os_handle handle;
    void *address;
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    check_ok(os_memory_create("read", 4096, &handle));
    check_ok(os_memory_map(handle, 4096, false, &address));
    /* The kernel writes for us, and answers where an own write would be a crash. */
    cr_assert_eq(read(zero, address, 1), -1);
    cr_assert_eq(errno, EFAULT);
    os_memory_unmap(address, 4096);
    check_ok(os_memory_map(handle, 4096, true, &address));
    cr_assert_eq(read(zero, address, 1), 1);
    os_memory_unmap(address, 4096);
    os_handle_close(&handle);
    close(zero);
}
