/* SPDX-License-Identifier: MIT */
/** @file What is seen of a system that has what this one has not: NVIDIA's driver, its device files, PCI devices, a container.
 *  Paths of the system lead into a directory of the test's. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os.h"
#include "unique.h"

static char root[RUNTIME_DIRECTORY_MAX]; /* empty: paths lead where they lead */

/* ---- another root: ld(1), --wrap ----------------------------------------------------------------- */

/* What lies in the test's directory; all else is the system's. */
static const char *rerooted(const char *path, char *room, size_t capacity) {
    static const char *const moved[] = {"/proc/driver/nvidia", "/proc/devices",   "/dev/nvidia",
                                        "/sys/bus/pci",        "/tmp/nvidia-mps", "/.dockerenv",
                                        "/run/.containerenv"};
    bool is_moved = root[0] != '\0' && strcmp(path, "/dev") == 0;
    for (size_t i = 0; root[0] != '\0' && i < sizeof(moved) / sizeof(moved[0]); i++) {
        is_moved = is_moved || strncmp(path, moved[i], strlen(moved[i])) == 0;
    }
    (void)snprintf(room, capacity, "%s%s", is_moved ? root : "", path);
    return room;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    char room[512];
    va_list rest;
    va_start(rest, flags);
    const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
    va_end(rest);
    return __real_open(rerooted(path, room, sizeof(room)), flags, mode);
}

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode) {
    char room[512];
    return __real_access(rerooted(path, room, sizeof(room)), mode);
}

DIR *__real_opendir(const char *path);
DIR *__wrap_opendir(const char *path);
DIR *__wrap_opendir(const char *path) {
    char room[512];
    return __real_opendir(rerooted(path, room, sizeof(room)));
}

/* ---- what is in it ------------------------------------------------------------------------------- */

static void put(const char *path, const char *text) {
    char whole[512];
    (void)snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        cr_assert(mkdir(whole, 0700) == 0 || errno == EEXIST, "%s", whole);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    cr_assert_not_null(file, "%s", whole);
    cr_assert_geq(fputs(text, file), 0);
    cr_assert_eq(fclose(file), 0);
}

static void begin(void) {
    cr_assert(runtime_directory_make(root));
    put("/dev/null-of-the-test", "");
}

static void end(void) {
    char command[RUNTIME_DIRECTORY_MAX + 32];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", root);
    cr_assert_eq(system(command), 0);
}

TestSuite(posix_facts, .init = begin, .fini = end, .timeout = 60);

static os_facts look(void) {
    os_facts facts;
    os_facts_find(root, &facts);
    return facts;
}

Test(posix_facts, a_system_without_a_gpu) {
    const os_facts facts = look();
    cr_assert_str_eq(facts.gpu_driver, "");
    cr_assert_eq(facts.gpu_count, 0);
    cr_assert_eq(facts.gpu_nodes, 0);
    cr_assert_str_eq(facts.gpu_node_refused, "");
    cr_assert_eq(facts.imex_is_loaded, OS_UNKNOWN);
    cr_assert_str_eq(facts.imex_channel, "");
    cr_assert_str_eq(facts.mps_control, "");
}

Test(posix_facts, a_driver_and_all_its_device_files) {
    put("/proc/driver/nvidia/version", "GCC version: 12\nNVRM version:   NVIDIA 580.1\nmore\n");
    put("/proc/driver/nvidia/gpus/0000:01:00.0/information", "");
    put("/proc/driver/nvidia/gpus/0000:02:00.0/information", "");
    put("/dev/nvidiactl", "");
    put("/dev/nvidia-uvm", "");
    put("/dev/nvidia0", "");
    put("/dev/nvidia1", "");
    put("/dev/nvidia12x", ""); /* no GPU's */
    const os_facts facts = look();
    cr_assert_str_eq(facts.gpu_driver, "NVIDIA 580.1");
    cr_assert_eq(facts.gpu_count, 2);
    cr_assert_eq(facts.gpu_nodes, 2);
    cr_assert_str_eq(facts.gpu_node_refused, "");
}

/* A container may have another GPU's file than the first. */
Test(posix_facts, the_first_gpu_may_be_another_container_s) {
    put("/dev/nvidiactl", "");
    put("/dev/nvidia-uvm", "");
    put("/dev/nvidia3", "");
    cr_assert_str_eq(look().gpu_node_refused, "");
    cr_assert_eq(look().gpu_nodes, 1);
}

Test(posix_facts, the_device_file_that_is_missing_is_named) {
    put("/proc/driver/nvidia/version", "NVRM version: NVIDIA 580.1\n");
    put("/dev/nvidiactl", "");
    const os_facts facts = look();
    cr_assert_not_null(strstr(facts.gpu_node_refused, "/dev/nvidia-uvm: "), "%s",
                       facts.gpu_node_refused);
    cr_assert_not_null(strstr(facts.gpu_node_refused, "No such file"));
}

Test(posix_facts, an_imex_channel_and_a_daemon_of_mps) {
    put("/proc/devices", "Character devices:\n195 nvidia\n");
    cr_assert_eq(look().imex_is_loaded, OS_NO);
    put("/proc/devices", "Character devices:\n509 nvidia-caps-imex-channels\n");
    put("/dev/nvidia-caps-imex-channels/channel0", "");
    put("/tmp/nvidia-mps/control", "");
    const os_facts facts = look();
    cr_assert_eq(facts.imex_is_loaded, OS_YES);
    cr_assert_str_eq(facts.imex_channel, "/dev/nvidia-caps-imex-channels/channel0");
    cr_assert_str_eq(facts.mps_control, "/tmp/nvidia-mps/control");
}

Test(posix_facts, a_container_is_known_by_a_file_or_a_variable) {
    cr_assert_eq(unsetenv("container"), 0);
    cr_assert_eq(unsetenv("KUBERNETES_SERVICE_HOST"), 0);
    cr_assert_str_eq(look().container, "");
    cr_assert_eq(setenv("container", "", 1), 0);
    cr_assert_eq(setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1), 0);
    cr_assert_str_eq(look().container, "KUBERNETES_SERVICE_HOST=10.0.0.1");
    cr_assert_eq(setenv("container", "podman", 1), 0);
    cr_assert_str_eq(look().container, "container=podman");
    put("/run/.containerenv", "");
    cr_assert_str_eq(look().container, "/run/.containerenv");
    put("/.dockerenv", "");
    cr_assert_str_eq(look().container, "/.dockerenv");
}

/* ---- PCI devices --------------------------------------------------------------------------------- */

#define PLACE "/sys/bus/pci/devices/0000:1a:00.0/"

Test(posix_facts, a_pci_device_and_its_second_region) {
    put(PLACE "iommu_group/type", "DMA-FQ\n");
    put(PLACE "resource", "0x00000000d0000000 0x00000000d0ffffff 0x0000000000040200\n"
                          "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
                          "0x0000038000000000 0x0000039fffffffff 0x000000000014220c\n"
                          "0x000003a000000000 0x000003a001ffffff 0x000000000014220c\n");
    const os_pci pci = os_pci_find(0, 0x1a, 0);
    cr_assert_str_eq(pci.iommu, "DMA-FQ");
    cr_assert_eq(pci.bar1_bytes, UINT64_C(0x2000000000));
}

Test(posix_facts, a_pci_device_with_one_region_or_none) {
    put(PLACE "resource", "0x00000000d0000000 0x00000000d0ffffff 0x0000000000040200\n");
    cr_assert_eq(os_pci_find(0, 0x1a, 0).bar1_bytes, 0);
    cr_assert_str_eq(os_pci_find(0, 0x1a, 0).iommu, "");
    cr_assert_eq(os_pci_find(7, 7, 7).bar1_bytes, 0);
}

/* ---- paths --------------------------------------------------------------------------------------- */

Test(posix_facts, a_real_path_that_does_not_fit_is_none) {
    char real[64] = "kept";
    cr_assert(os_path_real("/proc/../dev", real, sizeof(real)));
    cr_assert_str_eq(real, "/dev");
    cr_assert_not(os_path_real("/proc", real, 5));
    cr_assert_not(os_path_real("/there/is/no/such/path", real, sizeof(real)));
    cr_assert_str_eq(real, "/dev");
}
