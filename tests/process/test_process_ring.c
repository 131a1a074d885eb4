/* SPDX-License-Identifier: MIT */
/** @file gpuipc-selftest's ring and its list of transports, on machines of several kinds. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "cuda/cuda_api.h"
#include "os.h"
#include "selftest_run.h"
#include "system.h"

TestSuite(ring, .timeout = 100);

/* Stream-ordered pools cannot be exported on Windows. */
static bool has_pools(void) {
    return os_shareable_handle_type != CU_MEM_HANDLE_TYPE_WIN32;
}

/* Nor has it IMEX channels, which fabric handles need. */
static bool has_fabric(void) {
    return os_shareable_handle_type != CU_MEM_HANDLE_TYPE_WIN32;
}

static void expect_round(const selftest_outcome *found, const char *transport, unsigned members) {
    char text[160];
    for (unsigned i = 0; i < members; i++) {
        (void)snprintf(text, sizeof(text),
                       "pass  ring of %u over %s: member %u (device %u) wrote all 524288 words "
                       "into memory of member %u (device %u)",
                       members, transport, i, i, (i + 1) % members, (i + 1) % members);
        selftest_expect_text(found, text);
    }
}

Test(ring, eight_devices_write_into_each_other_over_every_transport) {
    selftest_outcome found =
        selftest_run((selftest_words){"ring", "--driver=emulated", "--size=2M", NULL},
                     (selftest_words){"GPUIPC_EMULATED_MACHINE=devices=8;imex=1", NULL});
    selftest_expect_code(&found, 0);
    expect_round(&found, "vmm", 8);
    expect_round(&found, "legacy", 8);
    expect_round(&found, "host", 8);
    if (has_pools()) {
        expect_round(&found, "pool", 8);
    } else {
        selftest_expect_text(&found, "skip  ring of 8 over pool: ");
    }
    selftest_expect_text(&found, "pass  inside one program over p2p: device 7 wrote all 524288 "
                                 "words into memory of device 0");
    selftest_expect_text(&found, "pass  inside one program over vmm: device 3 wrote all 524288 "
                                 "words into memory of device 4");
    cr_assert(strstr(found.last, " 0 failed, ") != NULL, "%s", found.last);
}

Test(ring, one_device_is_a_ring_of_two_programs) {
    selftest_outcome found =
        selftest_run((selftest_words){"ring", "--driver=emulated", "--size=4096", NULL},
                     (selftest_words){"GPUIPC_EMULATED_MACHINE=devices=1", NULL});
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "pass  ring of 2 over vmm: member 1 (device 0) wrote all 1024 "
                                 "words into memory of member 0 (device 0)");
    selftest_expect_text(&found, "skip  ring of 2 over fabric: ");
    selftest_expect_text(&found, has_fabric() ? "IMEX" : "device 0 has no fabric handles");
}

Test(ring, many_programs) {
    selftest_outcome found = selftest_run(
        (selftest_words){"ring", "--driver=emulated", "--members=12", "--size=4096", NULL},
        (selftest_words){"GPUIPC_EMULATED_MACHINE=devices=1", NULL});
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, "pass  ring of 12 over vmm: member 11 (device 0) wrote all 1024 "
                                 "words into memory of member 0 (device 0)");
}

Test(ring, where_there_is_no_peer_access_the_host_carries_and_the_others_say_why) {
    selftest_outcome found =
        selftest_run((selftest_words){"ring", "--driver=emulated", "--size=2M", NULL},
                     (selftest_words){"GPUIPC_EMULATED_MACHINE=devices=2;p2p=none", NULL});
    selftest_expect_code(&found, 0);
    expect_round(&found, "host", 2);
    selftest_expect_text(&found, "skip  ring of 2 over vmm: member 0 (device 0) -> member 1 "
                                 "(device 1): ");
    selftest_expect_text(&found, "skip  inside one program over p2p: device 0 -> device 1: ");
}

Test(ring, a_failing_driver_fails_it) {
    selftest_outcome found = selftest_run(
        (selftest_words){"ring", "--driver=emulated", "--size=2M", "--timeout=5", NULL},
        (selftest_words){"GPUIPC_EMULATED_FAIL=cuMemcpyDtoH:*=999", NULL});
    selftest_expect_code(&found, 1);
    selftest_expect_text(&found, "FAIL  ring of 2");
}

typedef struct listed {
    const char *machine;
    const char *lines[4]; /* each printed; up to a NULL */
} listed;

Test(ring, the_list_of_transports_says_what_works_and_why_not) {
    const listed rows[] = {
        {"GPUIPC_EMULATED_MACHINE=devices=2",
         {"memory of device 0 used by device 1: NVLink 4 x18; peer access 1",
          "    vmm     yes  zero-copy, tried\n",
          has_fabric() ? "    fabric  no   NO_IMEX_CHANNEL: "
                       : "    fabric  no   OPERATING_SYSTEM: "}},
        {"GPUIPC_EMULATED_MACHINE=devices=2;link=pcie", {"used by device 1: PCIe 5 x16; "}},
        {"GPUIPC_EMULATED_MACHINE=devices=2;p2p=none",
         {"    vmm     no   NO_P2P: ", "    host    yes  staged copies, tried\n"}},
        {"GPUIPC_EMULATED_MACHINE=devices=2;mig=1;p2p=none", {"    vmm     no   MIG: "}},
        {"GPUIPC_EMULATED_MACHINE=devices=1;compute-mode=prohibited",
         {"    vmm     no   COMPUTE_MODE: "}},
        {"GPUIPC_EMULATED_MACHINE=devices=1;vmm=0", {"    vmm     no   "}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        selftest_outcome found =
            selftest_run((selftest_words){"transports", "--driver=emulated", NULL},
                         (selftest_words){rows[i].machine, NULL});
        cr_assert_eq(found.code, 0, "%s: exit code %d\n%s", rows[i].machine, found.code, found.all);
        for (size_t line = 0; line < 4 && rows[i].lines[line] != NULL; line++) {
            cr_assert(strstr(found.all, rows[i].lines[line]) != NULL, "%s: no \"%s\" in\n%s",
                      rows[i].machine, rows[i].lines[line], found.all);
        }
    }
}

Test(ring, transports_can_be_measured) {
    selftest_outcome found =
        selftest_run((selftest_words){"transports", "--driver=emulated", "--device=0", "--peer=1",
                                      "--measure", NULL},
                     NULL);
    selftest_expect_code(&found, 0);
    selftest_expect_text(&found, " GB/s (measured), ");
    selftest_expect_text(&found, "both ways ");
    selftest_expect_text(&found, "(emulated)");
}

Test(ring, wrong_usage) {
    static const char *const lines[][4] = {
        {"ring", "--members=1", NULL}, {"ring", "--members=61", NULL},
        {"ring", "x", NULL},           {"ring", "--measure", NULL},
        {"transports", "x", NULL},     {"transports", "--members=3", NULL}};
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        selftest_outcome found = selftest_run(lines[i], NULL);
        cr_assert_eq(found.code, 2, "%s %s: exit code %d", lines[i][0], lines[i][1], found.code);
    }
}
