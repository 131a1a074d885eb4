/* SPDX-License-Identifier: MIT */
/** @file See machine.h. */
#include "machine.h"

#include <stdio.h>
#include <string.h>

#include "cuda_api.h"
#include "os.h"

#define UUID_TEXT_SIZE 37

/* Digits from *text on; false when there is none or the value passes @p limit. */
static bool take_number(const char **text, uint64_t limit, uint64_t *out) {
    uint64_t value = 0;
    const char *at = *text;
    if (*at < '0' || *at > '9') {
        return false;
    }
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (digit > limit || value > (limit - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *text = at;
    *out = value;
    return true;
}

static bool read_number(const char *text, uint64_t limit, uint64_t *out) {
    return take_number(&text, limit, out) && *text == '\0';
}

static bool read_unsigned(const char *text, unsigned limit, unsigned *out) {
    uint64_t value;
    if (!read_number(text, limit, &value)) {
        return false;
    }
    *out = (unsigned)value;
    return true;
}

static bool read_bool(const char *text, bool *out) {
    unsigned value;
    if (!read_unsigned(text, 1, &value)) {
        return false;
    }
    *out = value == 1;
    return true;
}

static bool read_bytes(const char *text, uint64_t *out) {
    static const char units[] = "KMG";
    uint64_t value;
    unsigned shift = 0;
    /* 2^50: far above any GPU, far below what overflows when sums are formed. */
    if (!take_number(&text, UINT64_C(1) << 50, &value)) {
        return false;
    }
    const char *unit = *text != '\0' ? strchr(units, *text) : NULL;
    if (unit != NULL) {
        shift = 10 * (unsigned)(unit - units + 1);
        text++;
    }
    if (*text != '\0' || value > (UINT64_C(1) << 50) >> shift) {
        return false;
    }
    *out = value << shift;
    return true;
}

/* One of @p count words: its position. */
static bool read_word(const char *text, const char *const *words, unsigned count, unsigned *out) {
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

static bool read_pairs(const char *text, machine *out) {
    memset(out->p2p, 0, sizeof(out->p2p));
    out->has_p2p_list = false;
    if (strcmp(text, "none") == 0) {
        return true;
    }
    if (strcmp(text, "all") == 0) {
        memset(out->p2p, 0xff, sizeof(out->p2p));
        return true;
    }
    out->has_p2p_list = true;
    for (;;) {
        uint64_t first;
        uint64_t second;
        if (!take_number(&text, MACHINE_DEVICES_MAX - 1, &first) || *text++ != '-' ||
            !take_number(&text, MACHINE_DEVICES_MAX - 1, &second) || first == second) {
            return false;
        }
        out->p2p[first] |= UINT64_C(1) << second;
        out->p2p[second] |= UINT64_C(1) << first;
        if (*text == '\0') {
            return true;
        }
        if (*text++ != ',') {
            return false;
        }
    }
}

static bool read_seed(const char *text, machine *out) {
    if (strlen(text) >= sizeof(out->uuid_seed)) {
        return false;
    }
    memcpy(out->uuid_seed, text, strlen(text) + 1);
    return true;
}

static bool read_version(const char *text, machine *out) {
    unsigned value;
    if (!read_unsigned(text, 99999, &value) || value < 2000) {
        return false;
    }
    out->version = (int)value;
    return true;
}

static bool read_link(const char *text, machine *out) {
    static const char *const words[] = {"nvlink", "pcie"};
    unsigned word;
    if (!read_word(text, words, 2, &word)) {
        return false;
    }
    out->link = (machine_link)word;
    return true;
}

static bool read_model(const char *text, machine *out) {
    static const char *const words[] = {"none", "wddm", "tcc"};
    unsigned word;
    if (!read_word(text, words, 3, &word)) {
        return false;
    }
    out->model = (machine_model)word;
    return true;
}

static bool read_key(const char *key, const char *value, machine *out) {
    if (strcmp(key, "devices") == 0) {
        return read_unsigned(value, MACHINE_DEVICES_MAX, &out->devices);
    }
    if (strcmp(key, "memory") == 0) {
        return read_bytes(value, &out->memory_bytes);
    }
    if (strcmp(key, "p2p") == 0) {
        return read_pairs(value, out);
    }
    if (strcmp(key, "link") == 0) {
        return read_link(value, out);
    }
    if (strcmp(key, "driver-model") == 0) {
        return read_model(value, out);
    }
    if (strcmp(key, "vmm") == 0) {
        return read_bool(value, &out->has_vmm);
    }
    if (strcmp(key, "fd-handles") == 0) {
        return read_bool(value, &out->has_shareable_handles);
    }
    if (strcmp(key, "version") == 0) {
        return read_version(value, out);
    }
    if (strcmp(key, "mig") == 0) {
        return read_bool(value, &out->is_mig);
    }
    if (strcmp(key, "uuid-seed") == 0) {
        return read_seed(value, out);
    }
    if (strcmp(key, "stream-delay-ms") == 0) {
        return read_unsigned(value, 60000, &out->stream_delay_ms);
    }
    return false;
}

static machine machine_default(void) {
    machine computer = {0};
    computer.devices = 2;
    computer.memory_bytes = UINT64_C(4) << 30;
    memset(computer.p2p, 0xff, sizeof(computer.p2p));
    computer.has_vmm = true;
    computer.has_shareable_handles = true;
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
        if (!read_key(pair, value, &computer)) {
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

static void uuid_text(const uint8_t uuid[16], char text[UUID_TEXT_SIZE]) {
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
        char text[UUID_TEXT_SIZE];
        machine_uuid(computer, device, false, uuid);
        uuid_text(uuid, text);
        if (length - 4 < UUID_TEXT_SIZE && strncmp(text, entry + 4, length - 4) == 0) {
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
    if (computer->devices == 0 || !take_number(&end, computer->devices - 1, &ordinal) ||
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
