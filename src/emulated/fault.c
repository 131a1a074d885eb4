/* SPDX-License-Identifier: MIT */
/** @file See fault.h. */
#include "fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "live.h"
#include "os.h"

#define FAULT_RULES_MAX 64
#define FAULT_NAME_MAX  64
/* The status of a process that "die" ended: the one a shell reports for SIGKILL. */
#define FAULT_EXIT_STATUS 137

typedef enum fault_action {
    FAULT_ANSWER,
    FAULT_DIE,
    FAULT_DELAY
} fault_action;

typedef struct fault_rule {
    char name[FAULT_NAME_MAX]; /* "*": any entry point, counted together */
    uint64_t at;               /* 0: every call */
    uint64_t seen;
    fault_action action;
    unsigned value; /* code or milliseconds */
} fault_rule;

/* What the rules want of one call. */
typedef struct fault_effect {
    uint64_t delay_ms;
    bool die;
    CUresult answer;
} fault_effect;

typedef struct fault_rules {
    fault_rule item[FAULT_RULES_MAX];
    size_t count;
} fault_rules;

static os_static_mutex fault_mutex;
static fault_rules rules;
static uint64_t calls[ENTRY_COUNT];
static bool environment_is_read;
static int (*_Atomic judge)(const char *name);

static bool name_is_known(const char *name) {
    if (strcmp(name, "*") == 0) {
        return true;
    }
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        if (strcmp(entry_table[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Digits to the end of the text, nothing else. */
static bool read_number(const char *text, uint64_t limit, uint64_t *out) {
    uint64_t value = 0;
    if (*text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') {
            return false;
        }
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > limit) {
            return false;
        }
    }
    *out = value;
    return true;
}

static bool read_action(const char *text, fault_rule *rule) {
    static const char delay[] = "delay";
    uint64_t value = 0;
    if (strcmp(text, "die") == 0) {
        rule->action = FAULT_DIE;
        return true;
    }
    rule->action = FAULT_ANSWER;
    if (strncmp(text, delay, sizeof(delay) - 1) == 0) {
        rule->action = FAULT_DELAY;
        text += sizeof(delay) - 1;
    }
    /* An answer of 0 would be no failure at all. */
    if (!read_number(text, 1000000, &value) || (rule->action == FAULT_ANSWER && value == 0)) {
        return false;
    }
    rule->value = (unsigned)value;
    return true;
}

/* One "name:count=action". */
static bool read_rule(char *text, fault_rule *rule) {
    char *count = strchr(text, ':');
    char *action = strchr(text, '=');
    if (count == NULL || action == NULL || action < count) {
        return false;
    }
    *count++ = '\0';
    *action++ = '\0';
    if (strlen(text) >= FAULT_NAME_MAX || !name_is_known(text)) {
        return false;
    }
    memset(rule, 0, sizeof(*rule));
    memcpy(rule->name, text, strlen(text) + 1);
    if (strcmp(count, "*") != 0 && (!read_number(count, UINT32_MAX, &rule->at) || rule->at == 0)) {
        return false;
    }
    return read_action(action, rule);
}

static bool read_rules(const char *text, fault_rules *out) {
    out->count = 0;
    while (text != NULL && *text != '\0') {
        char part[FAULT_NAME_MAX * 2];
        size_t length = strcspn(text, ";");
        if (length >= sizeof(part) || out->count == FAULT_RULES_MAX) {
            return false;
        }
        memcpy(part, text, length);
        part[length] = '\0';
        if (!read_rule(part, &out->item[out->count])) {
            return false;
        }
        out->count++;
        text += length;
        text += *text == ';';
    }
    return true;
}

/* fault_mutex is held. */
static int set_locked(const char *text) {
    static fault_rules fresh; /* too large for a stack that is not ours */
    if (!read_rules(text, &fresh)) {
        return -1;
    }
    rules = fresh;
    memset(calls, 0, sizeof(calls));
    environment_is_read = true;
    return 0;
}

int fault_set(const char *text) {
    os_static_mutex_lock(&fault_mutex);
    int result = set_locked(text);
    os_static_mutex_unlock(&fault_mutex);
    return result;
}

/* fault_mutex is held. */
static CUresult read_environment(void) {
    const char *text = os_environment("GPUIPC_EMULATED_FAIL");
    if (set_locked(text) != 0) {
        fprintf(stderr, "gpuipc emulated driver: GPUIPC_EMULATED_FAIL is malformed: %s\n", text);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* The first rule that answers wins, delays add up. */
static fault_effect apply_rules(const char *name) {
    fault_effect effect = {0, false, CUDA_SUCCESS};
    for (size_t i = 0; i < rules.count; i++) {
        fault_rule *rule = &rules.item[i];
        if (strcmp(rule->name, "*") != 0 && strcmp(rule->name, name) != 0) {
            continue;
        }
        rule->seen++;
        if (rule->at != 0 && rule->seen != rule->at) {
            continue;
        }
        if (rule->action == FAULT_DELAY) {
            effect.delay_ms += rule->value;
        } else if (rule->action == FAULT_DIE) {
            effect.die = true;
        } else if (effect.answer == CUDA_SUCCESS) {
            effect.answer = (CUresult)rule->value;
        }
    }
    return effect;
}

CUresult fault_check(entry_id id) {
    CUresult result = CUDA_SUCCESS;
    os_static_mutex_lock(&fault_mutex);
    if (id == ENTRY_cuInit && !environment_is_read) {
        result = read_environment();
    }
    calls[id]++;
    const fault_effect effect = apply_rules(entry_table[id].name);
    os_static_mutex_unlock(&fault_mutex);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (effect.delay_ms > 0) {
        os_sleep_ms((unsigned)effect.delay_ms);
    }
    if (effect.die) {
        live_report_cancel();
        _Exit(FAULT_EXIT_STATUS);
    }
    int (*const asked)(const char *name) = atomic_load(&judge);
    return effect.answer != CUDA_SUCCESS || asked == NULL ? effect.answer
                                                          : (CUresult)asked(entry_table[id].name);
}

void fault_set_judge(int (*wanted)(const char *name)) {
    atomic_store(&judge, wanted);
}

uint64_t fault_calls(const char *name) {
    uint64_t sum = 0;
    os_static_mutex_lock(&fault_mutex);
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        if (name == NULL || strcmp(entry_table[i].name, name) == 0) {
            sum += calls[i];
        }
    }
    os_static_mutex_unlock(&fault_mutex);
    return sum;
}
