/* SPDX-License-Identifier: MIT */
/**
 * @file The emulated driver's description of a machine (GPUIPC_EMULATED_MACHINE), and behind the first line's end the list
 * of devices that are seen (CUDA_VISIBLE_DEVICES).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "machine.h"

/* A pair of a description has less than 512 characters, and a list of pairs is one. */
#define TEXT_SIZE 2048

static void write_pairs(const machine *of, char *text) {
    const char *between = "";
    char *at = text;
    *at = '\0';
    for (unsigned i = 0; i < MACHINE_DEVICES_MAX; i++) {
        for (unsigned j = i + 1; j < MACHINE_DEVICES_MAX; j++) {
            FUZZ_CHECK((of->p2p[i] >> j & 1u) == (of->p2p[j] >> i & 1u));
            if ((of->p2p[i] >> j & 1u) != 0) {
                at += sprintf(at, "%s%u-%u", between, i, j);
                between = ",";
            }
        }
    }
    if (*text == '\0') {
        strcpy(text, "none");
    }
}

/* The description that names every key. */
static void write_text(const machine *of, char text[TEXT_SIZE]) {
    static const char *const links[] = {"nvlink", "pcie"};
    static const char *const models[] = {"none", "wddm", "tcc", "mcdm"};
    static const char *const modes[] = {"default", NULL, "prohibited", "exclusive"};
    static char pairs[MACHINE_DEVICES_MAX * MACHINE_DEVICES_MAX * 3 + 8];
    if (of->p2p[0] == UINT64_MAX) {
        strcpy(pairs, "all");
    } else {
        write_pairs(of, pairs);
    }
    const int length = snprintf(
        text, TEXT_SIZE,
        "devices=%u;memory=%" PRIu64 ";p2p=%s;link=%s;links=%u;link-version=%u;pcie-gen=%u;"
        "pcie-width=%u;driver-model=%s;compute=%d.%d;compute-mode=%s;vmm=%d;fd-handles=%d;"
        "stream-words=%d;dma-buf=%d;imex=%d;wsl=%d;nvml=%d;version=%d;mig=%d;uuid-seed=%s;"
        "stream-delay-ms=%u",
        of->devices, of->memory_bytes, pairs, links[of->link], of->link_count, of->link_version,
        of->pcie_generation, of->pcie_width, models[of->model], of->compute_major,
        of->compute_minor, modes[of->compute_mode], of->has_vmm, of->has_shareable_handles,
        of->has_stream_words, of->has_dma_buf, of->has_imex, of->is_wsl, of->has_nvml, of->version,
        of->is_mig, of->uuid_seed, of->stream_delay_ms);
    FUZZ_CHECK(length > 0 && length < TEXT_SIZE);
}

static void check_visible(const machine *of, const char *list) {
    unsigned seen[MACHINE_DEVICES_MAX];
    uint64_t devices = 0;
    const unsigned count = machine_visible(of, list, seen);
    FUZZ_CHECK(count <= of->devices && of->devices <= MACHINE_DEVICES_MAX);
    for (unsigned i = 0; i < count; i++) {
        FUZZ_CHECK(seen[i] < of->devices && (devices >> seen[i] & 1u) == 0);
        devices |= UINT64_C(1) << seen[i];
    }
}

/* What was read is written, and what was written is read. */
static void check_again(const machine *of, const uint8_t *data, size_t size) {
    char first[TEXT_SIZE];
    char second[TEXT_SIZE];
    char complaint[64];
    machine again;
    write_text(of, first);
    FUZZ_CHECK(machine_parse(first, &again, complaint, sizeof(complaint)));
    write_text(&again, second);
    fuzz_check_same(second, first, strlen(first) + 1, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char complaint[64] = "";
    machine read;
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    char *list = strchr(text, '\n');
    if (list != NULL) {
        *list++ = '\0';
    }
    if (machine_parse(text, &read, complaint, sizeof(complaint))) {
        check_again(&read, data, size);
        check_visible(&read, list);
    } else {
        FUZZ_CHECK(complaint[0] != '\0' && memchr(complaint, '\0', sizeof(complaint)) != NULL);
    }
    free(text);
    return 0;
}
