/* SPDX-License-Identifier: MIT */
/** @file See machine.h. */
#include "machine.h"

#include <stdio.h>
#include <string.h>

#include "cuda/cuda_api.h"
#include "machine_key.h"
#include "os.h"

static machine machine_default(void) {
    machine computer = {0};
    computer.devices = 2;
    computer.memory_bytes = UINT64_C(4) << 30;
    memset(computer.p2p, 0xff, sizeof(computer.p2p));
    computer.link_count = MACHINE_LINKS_MAX;
    computer.link_version = 4;
    computer.pcie_generation = 5;
    computer.pcie_width = 16;
    computer.compute_major = 9;
    computer.has_vmm = true;
    computer.has_shareable_handles = true;
    computer.has_stream_words = true;
    computer.has_dma_buf = true;
    computer.has_nvml = true;
    computer.model = os_shareable_handle_type == CU_MEM_HANDLE_TYPE_WIN32 ? MACHINE_MODEL_WDDM
                                                                          : MACHINE_MODEL_NONE;
    computer.version = 13000;
    return computer;
}

/* Whether a list of pairs names only devices that there are ("all" names every one there could be). */
static bool pairs_exist(const machine *computer) {
    for (unsigned first = 0; first < MACHINE_DEVICES_MAX; first++) {
        for (unsigned second = 0; second < first; second++) {
            bool paired = (computer->p2p[first] >> second & 1u) != 0;
            if (paired && computer->has_p2p_list && first >= computer->devices) {
                return false;
            }
        }
    }
    return true;
}

bool machine_parse(const char *text, machine *out, char *complaint, size_t complaint_size) {
    machine computer = machine_default();
    while (text != NULL && *text != '\0') {
        char pair[512];
        size_t length = strcspn(text, ";");
        char *value = NULL;
        if (length < sizeof(pair)) {
            memcpy(pair, text, length);
            pair[length] = '\0';
            value = strchr(pair, '=');
        }
        if (value == NULL) {
            snprintf(complaint, complaint_size, "'%.40s' is not key=value", text);
            return false;
        }
        *value++ = '\0';
        if (!machine_read_key(pair, value, &computer)) {
            snprintf(complaint, complaint_size, "unknown key or wrong value: %s=%s", pair, value);
            return false;
        }
        text += length;
        text += *text == ';';
    }
    if (!pairs_exist(&computer)) {
        snprintf(complaint, complaint_size, "p2p names a device beyond the %u there are",
                 computer.devices);
        return false;
    }
    if (computer
            .is_mig) { /* an instance reaches no other: MIG User Guide, "CUDA Device Enumeration" */
        memset(computer.p2p, 0, sizeof(computer.p2p));
    }
    if (computer.is_wsl) {
        memset(computer.p2p, 0, sizeof(computer.p2p));
        computer.has_shareable_handles = false;
    }
    *out = computer;
    return true;
}

/* FNV-1a, 64 bits: spreads a few bytes over the word, which is all that is wanted here. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

void machine_uuid(const machine *computer, unsigned device, bool whole_gpu, uint8_t uuid[16]) {
    const bool is_instance = computer->is_mig && !whole_gpu;
    for (unsigned half = 0; half < 2; half++) {
        const unsigned char salt[3] = {(unsigned char)half, (unsigned char)device, is_instance};
        uint64_t hash = UINT64_C(0xcbf29ce484222325);
        hash = hash_bytes(hash, salt, sizeof(salt));
        hash = hash_bytes(hash, computer->uuid_seed, strlen(computer->uuid_seed));
        hash = hash_bytes(hash, salt, sizeof(salt)); /* the last bytes alone would mix too little */
        for (unsigned i = 0; i < 8; i++) {
            uuid[half * 8 + i] = (uint8_t)(hash >> (8 * i));
        }
    }
    /* RFC 9562: version 8 is for contents of one's own, variant 10. */
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x80);
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

void machine_uuid_text(const uint8_t uuid[16], char text[MACHINE_UUID_TEXT_SIZE]) {
    static const char digits[] = "0123456789abcdef";
    size_t at = 0;
    for (unsigned i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            text[at++] = '-';
        }
        text[at++] = digits[uuid[i] >> 4];
        text[at++] = digits[uuid[i] & 15];
    }
    text[at] = '\0';
}

/* "GPU-" or "MIG-" and the start of exactly one UUID. */
static bool find_uuid(const machine *computer, const char *entry, size_t length, unsigned *out) {
    const char *wanted = computer->is_mig ? "MIG-" : "GPU-";
    unsigned found = 0;
    if (length <= 4 || strncmp(entry, wanted, 4) != 0) {
        return false;
    }
    for (unsigned device = 0; device < computer->devices; device++) {
        uint8_t uuid[16];
        char text[MACHINE_UUID_TEXT_SIZE];
        machine_uuid(computer, device, false, uuid);
        machine_uuid_text(uuid, text);
        if (length - 4 < MACHINE_UUID_TEXT_SIZE && strncmp(text, entry + 4, length - 4) == 0) {
            *out = device;
            found++;
        }
    }
    return found == 1;
}

static bool find_device(const machine *computer, const char *entry, size_t length, unsigned *out) {
    uint64_t ordinal;
    const char *end = entry;
    if (find_uuid(computer, entry, length, out)) {
        return true;
    }
    if (computer->devices == 0 || !machine_take_number(&end, computer->devices - 1, &ordinal) ||
        end != entry + length) {
        return false;
    }
    *out = (unsigned)ordinal;
    return true;
}

unsigned machine_visible(const machine *computer, const char *list,
                         unsigned out_devices[MACHINE_DEVICES_MAX]) {
    unsigned count = 0;
    if (list == NULL) {
        for (; count < computer->devices; count++) {
            out_devices[count] = count;
        }
        return count;
    }
    for (;;) {
        size_t length;
        unsigned device;
        list += strspn(list, " ");
        length = strcspn(list, ", ");
        if (!find_device(computer, list, length, &device)) {
            return count;
        }
        for (unsigned i = 0; i < count; i++) {
            if (out_devices[i] == device) {
                return count;
            }
        }
        out_devices[count++] = device;
        list += length;
        list += strspn(list, " ");
        if (*list++ != ',') {
            return count;
        }
    }
}
