/* SPDX-License-Identifier: MIT */
/** @file What can be seen of the system around this process, without rights. */
#include "posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The first namespaces of a machine have fixed numbers: linux/nsfs.h of 6.16, and include/linux/proc_ns.h before. */
#define FIRST_IPC  0xEFFFFFFFu
#define FIRST_USER 0xEFFFFFFDu
#define FIRST_PID  0xEFFFFFFCu

/* capabilities(7) */
#define CAPABILITY_PTRACE 19

/* Linux 5.6, asm-generic/unistd.h; older C library headers lack it. */
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

/* Where an MPS daemon listens unless told otherwise: docs.nvidia.com, "Multi-Process Service", CUDA_MPS_PIPE_DIRECTORY. */
#define MPS_CONTROL "/tmp/nvidia-mps/control"

/** A file for a moment; a forked child does not get it. -1 with errno. */
static int file_open(const char *path, int flags) {
    posix_register_lock();
    int fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const int code = errno;
    if (fd >= 0 && posix_register_add(fd, "open") != GPUIPC_OK) {
        fd = -1;
    }
    posix_register_unlock();
    errno = code;
    return fd;
}

/** The beginning of a file as text; empty when it cannot be read. */
static void file_read(const char *path, char *text, size_t capacity) {
    const int fd = file_open(path, O_RDONLY);
    size_t size = 0;
    ssize_t got = fd >= 0 ? 1 : 0;
    while (got > 0 || (got < 0 && errno == EINTR)) {
        got = read(fd, text + size, capacity - 1 - size);
        size += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0) {
        posix_register_close(fd);
    }
    text[size] = '\0';
}

/** The rest of the line that begins so. NULL: there is none. */
static const char *line_after(const char *text, const char *beginning) {
    const size_t length = strlen(beginning);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, beginning, length) == 0) {
            return line + length;
        }
    }
    return NULL;
}

static void find_system(os_facts *facts) {
    struct utsname system;
    if (uname(&system) == 0) {
        (void)snprintf(facts->system, sizeof(facts->system), "%.40s %.70s %.40s", system.sysname,
                       system.release, system.machine);
    }
}

/* What Docker, Podman, systemd-nspawn and Kubernetes leave to be seen by those inside. */
static void find_container(os_facts *facts) {
    static const char *const files[] = {"/.dockerenv", "/run/.containerenv"};
    static const char *const variables[] = {"container", "KUBERNETES_SERVICE_HOST"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (access(files[i], F_OK) == 0) {
            (void)snprintf(facts->container, sizeof(facts->container), "%s", files[i]);
            return;
        }
    }
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *value = os_environment(variables[i]);
        if (value != NULL && value[0] != '\0') {
            (void)snprintf(facts->container, sizeof(facts->container), "%s=%.80s", variables[i],
                           value);
            return;
        }
    }
}

/** namespaces(7): the link reads "pid:[4026531836]", and the number is that of the file behind it. */
static void find_namespace(const char *path, unsigned first, char *text, size_t capacity) {
    struct stat found;
    ssize_t length;
    if (stat(path, &found) != 0 || found.st_ino == first) {
        return;
    }
    length = readlink(path, text, capacity - 1);
    text[length > 0 ? length : 0] = '\0';
}

static void find_file(const char *path, char *text, size_t capacity) {
    struct stat found;
    if (stat(path, &found) == 0) {
        (void)snprintf(text, capacity, "%llu:%llu", (unsigned long long)found.st_dev,
                       (unsigned long long)found.st_ino);
    }
}

/** Which user, network and directories this process has: what two ends compare. */
static void find_place(const char *directory, os_facts *facts) {
    find_namespace("/proc/self/ns/mnt", 0, facts->mount_namespace, sizeof(facts->mount_namespace));
    find_namespace("/proc/self/ns/net", 0, facts->net_namespace, sizeof(facts->net_namespace));
    (void)snprintf(facts->user, sizeof(facts->user), "%lu", (unsigned long)geteuid());
    find_file(directory, facts->directory_file, sizeof(facts->directory_file));
    find_file("/dev/shm", facts->shm_file, sizeof(facts->shm_file));
}

static os_answer answer_of(bool is_so) {
    return is_so ? OS_YES : OS_NO;
}

/** Nothing of it may be there yet: then where it would be made. */
static os_answer is_on_root(const char *directory) {
    char path[OS_PATH_MAX];
    struct stat root;
    struct stat found;
    (void)snprintf(path, sizeof(path), "%s", directory);
    while (path[0] == '/' && path[1] != '\0' && stat(path, &found) != 0) {
        char *last = strrchr(path, '/');
        last[last == path] = '\0';
    }
    if (path[0] != '/' || stat(path, &found) != 0 || stat("/", &root) != 0) {
        return OS_UNKNOWN;
    }
    return answer_of(found.st_dev == root.st_dev);
}

static void find_shm(os_facts *facts) {
    struct statvfs found;
    const bool is_there = statvfs("/dev/shm", &found) == 0;
    facts->has_shm = answer_of(is_there);
    if (is_there) {
        facts->shm_bytes = (uint64_t)found.f_frsize * found.f_blocks;
        facts->shm_free_bytes = (uint64_t)found.f_frsize * found.f_bavail;
    }
}

static void find_tracing(os_facts *facts) {
    char text[4096];
    file_read("/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text));
    facts->ptrace_scope = text[0] >= '0' && text[0] <= '9' ? text[0] - '0' : -1;
    file_read("/proc/self/status", text, sizeof(text));
    const char *effective = line_after(text, "CapEff:");
    if (effective != NULL) {
        facts->can_trace =
            answer_of((strtoull(effective, NULL, 16) >> CAPABILITY_PTRACE & 1u) != 0);
    }
    const char *filter = line_after(text, "Seccomp:");
    facts->seccomp = filter != NULL ? (int)strtol(filter, NULL, 10) : -1;
}

/** The code of a call that answers a descriptor, which is not wanted. */
static int code_of(long fd, char *text, size_t capacity) {
    const int code = fd < 0 ? errno : 0;
    if (fd >= 0) {
        close((int)fd);
    } else {
        char words[64];
        (void)snprintf(text, capacity, "%s", strerror_r(code, words, sizeof(words)));
    }
    return code;
}

/** pidfd_getfd(2): of a process itself no right to trace is wanted, so what refuses it is a filter, or the kernel's age.
 *  Both make their descriptors closed on exec; a fork in another thread waits. */
static void find_pidfd(os_facts *facts) {
    posix_register_lock();
    const int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    const int code = self < 0 ? errno : 0;
    facts->pidfd_getfd_code = code_of(syscall(SYS_pidfd_getfd, self, self, 0),
                                      facts->pidfd_getfd_text, sizeof(facts->pidfd_getfd_text));
    errno = code;
    facts->pidfd_open_code = code_of(self, facts->pidfd_open_text, sizeof(facts->pidfd_open_text));
    posix_register_unlock();
}

static uint64_t limit_of(rlim_t limit) {
    return limit == RLIM_INFINITY ? OS_NO_NUMBER : (uint64_t)limit;
}

/** Entries whose name begins so; OS_NO_NUMBER when the directory cannot be read.
 *  @param and_digits nothing but digits follows */
static uint64_t entry_count(const char *path, const char *beginning, bool and_digits) {
    const size_t length = strlen(beginning);
    uint64_t count = 0;
    const struct dirent *entry;
    posix_register_lock(); /* opendir(3) has its descriptor closed on exec; a fork waits */
    DIR *directory = opendir(path);
    while (directory != NULL && (entry = readdir(directory)) != NULL) {
        const char *rest = entry->d_name + length;
        count += entry->d_name[0] != '.' && strncmp(entry->d_name, beginning, length) == 0 &&
                 (!and_digits || (*rest != '\0' && strspn(rest, "0123456789") == strlen(rest)));
    }
    if (directory != NULL) {
        closedir(directory);
    }
    posix_register_unlock();
    return directory != NULL ? count : OS_NO_NUMBER;
}

static void find_limits(os_facts *facts) {
    struct rlimit limit;
    facts->handle_limit = facts->handle_limit_hard = facts->locked_limit = OS_NO_NUMBER;
    facts->address_limit = OS_NO_NUMBER;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        facts->handle_limit = limit_of(limit.rlim_cur);
        facts->handle_limit_hard = limit_of(limit.rlim_max);
    }
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        facts->locked_limit = limit_of(limit.rlim_cur);
    }
    if (getrlimit(RLIMIT_AS, &limit) == 0) {
        facts->address_limit = limit_of(limit.rlim_cur);
    }
    facts->handles_open = entry_count("/proc/self/fd", "", true);
    if (facts->handles_open != OS_NO_NUMBER && facts->handles_open > 0) {
        facts->handles_open--; /* the directory itself was one */
    }
}

/** Writes why the first of the driver's device files does not open, where there are any. */
static void find_refused_node(os_facts *facts) {
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"};
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        const int fd = file_open(nodes[i], O_RDWR);
        char words[64];
        if (fd >= 0) {
            posix_register_close(fd);
            continue;
        }
        if (errno == ENOENT && i == 2) {
            continue; /* a container may have others */
        }
        (void)snprintf(facts->gpu_node_refused, sizeof(facts->gpu_node_refused), "%s: %s", nodes[i],
                       strerror_r(errno, words, sizeof(words)));
        return;
    }
}

void posix_driver_line(const char *path, char *line, size_t capacity) {
    char text[512];
    size_t length = 0;
    file_read(path, text, sizeof(text));
    const char *at = line_after(text, "NVRM version:");
    at = at != NULL ? at + strspn(at, " \t") : "";
    while (at[length] >= ' ' && at[length] <= '~' && length + 1 < capacity) {
        line[length] = at[length];
        length++;
    }
    line[length] = '\0';
}

static void find_gpus(os_facts *facts) {
    posix_driver_line("/proc/driver/nvidia/version", facts->gpu_driver, sizeof(facts->gpu_driver));
    const uint64_t listed = entry_count("/proc/driver/nvidia/gpus", "", false);
    facts->gpu_count = listed == OS_NO_NUMBER ? 0 : listed;
    const uint64_t nodes = entry_count("/dev", "nvidia", true);
    facts->gpu_nodes = nodes == OS_NO_NUMBER ? 0 : nodes;
    if (facts->gpu_driver[0] != '\0' || facts->gpu_nodes > 0) {
        find_refused_node(facts);
    }
}

/** docs.nvidia.com, "IMEX channels": the driver's channels are character devices of their own. */
static void find_imex(os_facts *facts) {
    static const char folder[] = "/dev/nvidia-caps-imex-channels";
    char text[4096];
    file_read("/proc/devices", text, sizeof(text));
    facts->imex_is_loaded = text[0] == '\0'
                                ? OS_UNKNOWN
                                : answer_of(strstr(text, " nvidia-caps-imex-channels") != NULL);
    (void)snprintf(text, sizeof(text), "%s/channel0", folder);
    const int fd = file_open(text, O_RDWR);
    if (fd >= 0) {
        posix_register_close(fd);
        (void)snprintf(facts->imex_channel, sizeof(facts->imex_channel), "%s/channel0", folder);
    }
}

void os_facts_find(const char *runtime_directory, os_facts *out_facts) {
    gpuipc_error why = status_save();
    os_facts facts = {0};
    find_system(&facts);
    find_container(&facts);
    find_namespace("/proc/self/ns/pid", FIRST_PID, facts.pid_namespace,
                   sizeof(facts.pid_namespace));
    find_namespace("/proc/self/ns/ipc", FIRST_IPC, facts.ipc_namespace,
                   sizeof(facts.ipc_namespace));
    find_namespace("/proc/self/ns/user", FIRST_USER, facts.user_namespace,
                   sizeof(facts.user_namespace));
    find_place(runtime_directory, &facts);
    facts.is_wsl = answer_of(os_is_wsl());
    facts.directory_on_root = is_on_root(runtime_directory);
    find_shm(&facts);
    find_tracing(&facts);
    find_pidfd(&facts);
    find_limits(&facts);
    find_gpus(&facts);
    find_imex(&facts);
    if (access(MPS_CONTROL, F_OK) == 0) {
        (void)snprintf(facts.mps_control, sizeof(facts.mps_control), "%s", MPS_CONTROL);
    }
    status_restore(&why);
    *out_facts = facts;
}

/** sysfs-bus-pci: one line for each region, with its first and last address, zeroes where there is none. BAR1 of a GPU is
 *  its second one, behind the registers; which line that is depends on whether those have addresses of 64 bits. */
static uint64_t bar1_of(const char *text) {
    unsigned regions = 0;
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        char *end;
        line += *line == '\n';
        const uint64_t first = strtoull(line, &end, 16);
        const uint64_t last = strtoull(end, NULL, 16);
        regions += last > first;
        if (last > first && regions == 2) {
            return last - first + 1;
        }
    }
    return 0;
}

os_pci os_pci_find(unsigned domain, unsigned bus, unsigned slot) {
    gpuipc_error why = status_save();
    os_pci pci = {0};
    char path[128];
    char text[2048];
    (void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%04x:%02x:%02x.0/iommu_group/type",
                   domain, bus, slot);
    file_read(path, text, sizeof(text));
    (void)snprintf(pci.iommu, sizeof(pci.iommu), "%.*s", (int)strcspn(text, "\n"), text);
    (void)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%04x:%02x:%02x.0/resource", domain,
                   bus, slot);
    file_read(path, text, sizeof(text));
    pci.bar1_bytes = bar1_of(text);
    status_restore(&why);
    return pci;
}

bool os_path_real(const char *path, char *real, size_t capacity) {
    char *found = realpath(path, NULL);
    const bool fits = found != NULL && strlen(found) < capacity;
    if (fits) {
        (void)snprintf(real, capacity, "%s", found);
    }
    free(found);
    return fits;
}
