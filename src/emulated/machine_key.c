/* SPDX-License-Identifier: MIT */
/** @file The keys of a machine's description, see machine.h. */
#include "machine_key.h"

#include <string.h>

bool machine_take_number(const char **text, uint64_t limit, uint64_t *out) {
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
    return machine_take_number(&text, limit, out) && *text == '\0';
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
    if (!machine_take_number(&text, UINT64_C(1) << 50, &value)) {
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
        if (!machine_take_number(&text, MACHINE_DEVICES_MAX - 1, &first) || *text++ != '-' ||
            !machine_take_number(&text, MACHINE_DEVICES_MAX - 1, &second) || first == second) {
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
    static const char *const words[] = {"none", "wddm", "tcc", "mcdm"};
    unsigned word;
    if (!read_word(text, words, 4, &word)) {
        return false;
    }
    out->model = (machine_model)word;
    return true;
}

static bool read_compute_mode(const char *text, machine *out) {
    static const char *const words[] = {"default", "exclusive", "prohibited"};
    static const machine_compute_mode modes[] = {MACHINE_COMPUTE_DEFAULT, MACHINE_COMPUTE_EXCLUSIVE,
                                                 MACHINE_COMPUTE_PROHIBITED};
    unsigned word;
    if (!read_word(text, words, 3, &word)) {
        return false;
    }
    out->compute_mode = modes[word];
    return true;
}

/* Such as 9.0. */
static bool read_compute(const char *text, machine *out) {
    uint64_t major;
    uint64_t minor;
    if (!machine_take_number(&text, 99, &major) || *text++ != '.' ||
        !read_number(text, 9, &minor) || major == 0) {
        return false;
    }
    out->compute_major = (int)major;
    out->compute_minor = (int)minor;
    return true;
}

/* A key, and what reads it: a reader of its own, or a member with its limits. */
typedef struct key_row {
    const char *key;
    bool (*read)(const char *text, machine *out);
    size_t flag;   /**< the member, a bool, if there is no reader and no limit */
    size_t number; /**< the member, an unsigned, if there is a limit */
    unsigned least;
    unsigned most;
} key_row;

#define KEY_READ(key, reader)                                                                      \
    { key, reader, 0, 0, 0, 0 }
#define KEY_FLAG(key, member)                                                                      \
    { key, NULL, offsetof(machine, member), 0, 0, 0 }
#define KEY_NUMBER(key, member, least, most)                                                       \
    { key, NULL, 0, offsetof(machine, member), least, most }

static bool read_memory(const char *text, machine *out) {
    return read_bytes(text, &out->memory_bytes);
}

static const key_row keys[] = {
    KEY_NUMBER("devices", devices, 0, MACHINE_DEVICES_MAX),
    KEY_READ("memory", read_memory),
    KEY_READ("p2p", read_pairs),
    KEY_READ("link", read_link),
    KEY_NUMBER("links", link_count, 0, MACHINE_LINKS_MAX),
    KEY_NUMBER("link-version", link_version, 1, 5),
    KEY_NUMBER("pcie-gen", pcie_generation, 1, 7),
    KEY_NUMBER("pcie-width", pcie_width, 1, 32),
    KEY_READ("driver-model", read_model),
    KEY_READ("compute", read_compute),
    KEY_READ("compute-mode", read_compute_mode),
    KEY_FLAG("vmm", has_vmm),
    KEY_FLAG("fd-handles", has_shareable_handles),
    KEY_FLAG("stream-words", has_stream_words),
    KEY_FLAG("dma-buf", has_dma_buf),
    KEY_FLAG("imex", has_imex),
    KEY_FLAG("wsl", is_wsl),
    KEY_FLAG("nvml", has_nvml),
    KEY_READ("version", read_version),
    KEY_FLAG("mig", is_mig),
    KEY_READ("uuid-seed", read_seed),
    KEY_NUMBER("stream-delay-ms", stream_delay_ms, 0, 60000),
};

static bool read_row(const key_row *row, const char *text, machine *out) {
    unsigned number;
    bool flag;
    if (row->read != NULL) {
        return row->read(text, out);
    }
    if (row->most == 0) {
        if (!read_bool(text, &flag)) {
            return false;
        }
        memcpy((char *)out + row->flag, &flag, sizeof(flag));
        return true;
    }
    if (!read_unsigned(text, row->most, &number) || number < row->least) {
        return false;
    }
    memcpy((char *)out + row->number, &number, sizeof(number));
    return true;
}

bool machine_read_key(const char *key, const char *value, machine *out) {
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (strcmp(key, keys[i].key) == 0) {
            return read_row(&keys[i], value, out);
        }
    }
    return false;
}
