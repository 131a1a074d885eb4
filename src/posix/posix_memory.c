/* SPDX-License-Identifier: MIT */
/** @file Shared memory of a fixed size: sealed memfds. And pages of the process's own. */
#include "posix.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux 6.3, include/uapi/linux/memfd.h; older C library headers lack it. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* Without these a peer could shrink the memory under us, and touching it would be SIGBUS:
 * fcntl(2), "File sealing". F_SEAL_SEAL: no further seal can take the right to write away. */
#define FIXED_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* With one of these nobody can map it to write. Linux 5.1, include/uapi/linux/fcntl.h; older C library headers lack the
 * second. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#define READING_SEALS (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)

/** Kernels from 6.3 can be set (vm.memfd_noexec) to refuse memory that does not give up execution;
 *  older ones do not know the flag. */
static int memory_make(const char *debug_name) {
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create(debug_name, flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) {
        fd = memfd_create(debug_name, flags);
    }
    return fd;
}

/** truncate(2): a signal may come between. */
static int memory_set_size(int fd, uint64_t bytes) {
    int done;
    do {
        done = ftruncate(fd, (off_t)bytes);
    } while (done != 0 && errno == EINTR);
    return done;
}

gpuipc_status os_memory_create(const char *debug_name, uint64_t bytes, os_handle *out_handle) {
    if (bytes == 0 || bytes > INT64_MAX) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "shared memory cannot have %" PRIu64 " bytes", bytes);
    }
    gpuipc_status status = posix_file_size_check(bytes, "ftruncate");
    if (status != GPUIPC_OK) {
        return status;
    }
    posix_register_lock();
    int fd = memory_make(debug_name);
    status = posix_register_add(fd, "memfd_create");
    posix_register_unlock();
    if (status != GPUIPC_OK) {
        return status;
    }
    if (memory_set_size(fd, bytes) != 0) {
        status = posix_fail(errno, "ftruncate", "no shared memory of %" PRIu64 " bytes", bytes);
        goto close_memory;
    }
    if (fcntl(fd, F_ADD_SEALS, FIXED_SEALS) != 0) {
        status = posix_fail(errno, "fcntl(F_ADD_SEALS)", "shared memory cannot be sealed");
        goto close_memory;
    }
    *out_handle = (os_handle){fd};
    return GPUIPC_OK;

close_memory:
    posix_register_close(fd);
    return status;
}

gpuipc_status os_memory_inspect(os_handle handle, uint64_t *out_bytes) {
    int fd = (int)handle.value;
    struct stat found;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0) {
        return posix_fail_as(GPUIPC_ERR_PROTOCOL, errno, "fcntl(F_GET_SEALS)",
                             "the handle is no shared memory");
    }
    if ((seals & FIXED_SEALS) != FIXED_SEALS) {
        return status_fail(GPUIPC_ERR_PROTOCOL,
                           "the handle is memory whose size can still change (seals 0x%x)",
                           (unsigned)seals);
    }
    if ((seals & READING_SEALS) != 0 || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "the handle is memory that may only be read");
    }
    if (fstat(fd, &found) != 0) {
        return posix_fail(errno, "fstat", "the shared memory cannot be looked at");
    }
    *out_bytes = (uint64_t)found.st_size;
    return GPUIPC_OK;
}

gpuipc_status os_memory_map(os_handle handle, uint64_t bytes, bool writable, void **out_address) {
    int fd = (int)handle.value;
    struct stat found;
    if (fstat(fd, &found) != 0) {
        return posix_fail_as(GPUIPC_ERR_INVALID_ARGUMENT, errno, "fstat", "the handle is not open");
    }
    /* mmap(2): a page beyond the end can be mapped, and answers SIGBUS when it is touched. */
    if (bytes == 0 || found.st_size < 0 || bytes > (uint64_t)found.st_size || bytes > SIZE_MAX) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "%" PRIu64 " bytes cannot be mapped of memory that has %" PRId64, bytes,
                           (int64_t)found.st_size);
    }
    int rights = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *address = mmap(NULL, (size_t)bytes, rights, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        return posix_fail(errno, "mmap", "%" PRIu64 " bytes cannot be mapped", bytes);
    }
    *out_address = address;
    return GPUIPC_OK;
}

/* fcntl(2), "Advisory record locking": closed on exec, the descriptor loses them. A byte beyond the end can be locked. */
static struct flock lock_of(uint64_t byte) {
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
}

gpuipc_status os_memory_lock(os_handle handle, uint64_t byte) {
    const struct flock wanted = lock_of(byte);
    return fcntl((int)handle.value, F_SETLK, &wanted) == 0
               ? GPUIPC_OK
               : posix_fail_as(GPUIPC_ERR_OS, errno, "fcntl(F_SETLK)",
                               "the shared memory cannot be locked");
}

int os_memory_is_locked(os_handle handle, uint64_t byte) {
    struct flock asked = lock_of(byte);
    if (fcntl((int)handle.value, F_GETLK, &asked) != 0) {
        return -1;
    }
    return asked.l_type == F_UNLCK ? 0 : 1;
}

gpuipc_status os_pages_allocate(size_t bytes, void **out_pages) {
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        return posix_fail_as(GPUIPC_ERR_OUT_OF_MEMORY, errno, "mmap", "no memory of %zu bytes",
                             bytes);
    }
    *out_pages = pages;
    return GPUIPC_OK;
}

void os_pages_free(void *pages, size_t bytes) {
    if (pages != NULL) {
        munmap(pages, bytes);
    }
}

void os_memory_unmap(void *address, uint64_t bytes) {
    if (address != NULL) {
        munmap(address, (size_t)bytes);
    }
}

uint64_t os_page_bytes(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE); /* sysconf(3): never fails for a name that there is */
}
