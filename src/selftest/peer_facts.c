/* SPDX-License-Identifier: MIT */
/** @file See peer_facts.h. */
#include "peer_facts.h"

#include <stdio.h>
#include <string.h>

#include "admit.h"
#include "diagnose/diagnosis.h"

/* How a line begins; the number is counted up when a field gets another meaning. */
#define LINE_BEGINS  "gpuipc-peer1"
#define FIELD_NAME   "name"
#define FIELD_DEVICE "device"
/* Of a namespace that is the machine's first one. */
#define FIRST "first"
/* What a value may have: nothing that a shell expands or breaks at, and neither ',' nor '='. */
#define VALUE_LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.:+_-"

typedef struct fact_row {
    const char *key;
    const char *label;
    uint32_t number; /* of GPUIPC_FINDING_LIST, or 0 */
    gpuipc_severity severity;
    const char *matters;
    const char *remedy; /* NULL: the finding's */
} fact_row;

static const fact_row rows[FACT_COUNT] = {
    [FACT_MACHINE] = {"machine", "machine", 0, GPUIPC_SEVERITY_BLOCKS,
                      "to every transport but fabric: memory is shared on one machine",
                      "run both ends on one machine; two virtual machines are two"},
    [FACT_USER] =
        {"user", "user", 0, GPUIPC_SEVERITY_BLOCKS,
         "to every transport: peers of other users are refused unless a policy admits them",
         "run both as one user (runAsUser), or set a policy and share the directory "
         "(GPUIPC_CONTEXT_SHARED_DIRECTORY); here: --admit=USER at both ends, and " ADMIT_RECIPE},
    [FACT_DIRECTORY] = {"directory", "runtime directory", FINDING_PRIVATE_DIRECTORY,
                        GPUIPC_SEVERITY_BLOCKS,
                        "to every transport: the ends find each other there, and nowhere else",
                        NULL},
    [FACT_GPUS] =
        {"gpus", "GPUs", FINDING_GPU_HIDDEN, GPUIPC_SEVERITY_NOTE,
         "to every transport: memory opens on its owner's GPU, unless another device that "
         "reaches it is named; host memory opens on any that is named",
         NULL},
    [FACT_EMULATED] = {"emulated", "emulated driver", FINDING_EMULATED, GPUIPC_SEVERITY_BLOCKS,
                       "to every transport: one end uses a GPU and the other none", NULL},
    [FACT_CUDA] = {"cuda", "CUDA version of the driver's library", FINDING_DRIVER_MISMATCH,
                   GPUIPC_SEVERITY_NOTE,
                   "to vmm, pool and fabric, should one end lack a call of the other's", NULL},
    [FACT_DRIVER] = {"driver", "driver in the kernel", 0, GPUIPC_SEVERITY_NOTE,
                     "to every transport but host: one machine has one driver in its kernel",
                     "find out at which end /proc/driver/nvidia is not the machine's"},
    [FACT_PID] = {"pid", "PID namespace", FINDING_PID_NAMESPACE, GPUIPC_SEVERITY_NOTE,
                  "to legacy alone, whose handles name a process by its number", NULL},
    [FACT_USERS] = {"users", "user namespace", FINDING_USER_NAMESPACE, GPUIPC_SEVERITY_NOTE,
                    "to every transport, should the other end's user not be mapped here", NULL},
    [FACT_IPC] = {"ipc", "IPC namespace", FINDING_IPC_NAMESPACE, GPUIPC_SEVERITY_NOTE,
                  "to no transport; see /dev/shm", NULL},
    [FACT_SHM] = {"shm", "/dev/shm", FINDING_IPC_NAMESPACE, GPUIPC_SEVERITY_NOTE,
                  "to no transport; CUDA's own IPC events do not open, or hang", NULL},
    [FACT_MOUNT] = {"mount", "mount namespace", 0, GPUIPC_SEVERITY_NOTE,
                    "to no transport, as long as the runtime directory is one",
                    "nothing, unless the runtime directory differs as well"},
    [FACT_NET] = {"net", "network namespace", 0, GPUIPC_SEVERITY_NOTE,
                  "to no transport; names that begin with @ end there",
                  "meet in a directory, not by a name with @"},
    [FACT_SECCOMP] = {"seccomp", "seccomp mode", FINDING_SECCOMP, GPUIPC_SEVERITY_NOTE,
                      "to no transport; libraries that take descriptors by pidfd_getfd fail", NULL},
    [FACT_CONTAINER] = {"container", "container", 0, GPUIPC_SEVERITY_NOTE,
                        "to no transport by itself; it is why the others differ",
                        "see the other lines"}};

/* ---- this end ------------------------------------------------------------------------------- */

/* "pid:[4026532281]" without what a shell has a meaning for.
 *  @param is_linux elsewhere there are no namespaces */
static void put_namespace(char *value, const char *text, bool is_linux) {
    const size_t skip = strcspn(text, "0123456789");
    const size_t digits = strspn(text + skip, "0123456789");
    if (is_linux) {
        (void)snprintf(value, PEER_VALUE_MAX, "%.*s", (int)(digits > 0 ? digits : sizeof(FIRST)),
                       digits > 0 ? text + skip : FIRST);
    }
}

static void put_system(peer_facts *into, const os_facts *facts) {
    const bool is_linux = facts->mount_namespace[0] != '\0';
    uint8_t boot[16];
    os_boot_id(boot);
    for (size_t i = 0; i < sizeof(boot); i++) {
        (void)snprintf(into->values[FACT_MACHINE] + 2 * i, 3, "%02x", boot[i]);
    }
    (void)snprintf(into->values[FACT_USER], PEER_VALUE_MAX, "%s", facts->user);
    (void)snprintf(into->values[FACT_DIRECTORY], PEER_VALUE_MAX, "%s",
                   is_linux && facts->directory_file[0] == '\0' ? "missing"
                                                                : facts->directory_file);
    put_namespace(into->values[FACT_PID], facts->pid_namespace, is_linux);
    put_namespace(into->values[FACT_USERS], facts->user_namespace, is_linux);
    put_namespace(into->values[FACT_IPC], facts->ipc_namespace, is_linux);
    (void)snprintf(into->values[FACT_SHM], PEER_VALUE_MAX, "%s", facts->shm_file);
    put_namespace(into->values[FACT_MOUNT], facts->mount_namespace, is_linux);
    put_namespace(into->values[FACT_NET], facts->net_namespace, is_linux);
    if (facts->seccomp >= 0) {
        (void)snprintf(into->values[FACT_SECCOMP], PEER_VALUE_MAX, "%d", facts->seccomp);
    }
    (void)snprintf(into->values[FACT_CONTAINER], PEER_VALUE_MAX, "%s",
                   facts->container[0] != '\0' ? "yes" : "no");
    (void)diagnosis_version(facts->gpu_driver, into->values[FACT_DRIVER], PEER_VALUE_MAX);
}

/* All of it, or "more" at its end where it does not fit. */
static void put_gpus(peer_facts *into, const session *at) {
    char *value = into->values[FACT_GPUS];
    size_t used = 0;
    for (uint32_t i = 0; i < at->info.device_count; i++) {
        gpuipc_device_info info;
        char uuid[REPORT_UUID_MAX];
        if (session_device(at, i, &info) != GPUIPC_OK) {
            continue;
        }
        const bool fits = used + REPORT_UUID_MAX + sizeof("+more") < PEER_VALUE_MAX;
        used += (size_t)snprintf(value + used, PEER_VALUE_MAX - used, "%s%s", used > 0 ? "+" : "",
                                 fits ? report_uuid(&info, uuid) : "more");
        if (!fits) {
            return;
        }
    }
}

void peer_facts_find(const session *at, peer_facts *out_facts) {
    char directory[OS_PATH_MAX];
    os_facts facts;
    *out_facts = (peer_facts){.name = ""};
    if (os_directory_resolve(NULL, directory, sizeof(directory)) != GPUIPC_OK) {
        directory[0] = '\0';
    }
    os_facts_find(directory, &facts);
    put_system(out_facts, &facts);
    put_gpus(out_facts, at);
    (void)snprintf(out_facts->values[FACT_EMULATED], PEER_VALUE_MAX, "%s",
                   at->info.is_emulated ? "yes" : "no");
    (void)snprintf(out_facts->values[FACT_CUDA], PEER_VALUE_MAX, "%d.%d",
                   at->info.driver_version / 1000, at->info.driver_version % 1000 / 10);
}

/* ---- the line ------------------------------------------------------------------------------- */

const char *peer_facts_write(const peer_facts *facts, char line[PEER_LINE_MAX]) {
    size_t used =
        (size_t)snprintf(line, PEER_LINE_MAX, LINE_BEGINS "," FIELD_NAME "=%s," FIELD_DEVICE "=%s",
                         facts->name, facts->device);
    for (size_t i = 0; i < FACT_COUNT; i++) {
        const char *value = facts->values[i];
        const size_t needed = strlen(rows[i].key) + strlen(value) + 2;
        if (value[0] != '\0' && value[strspn(value, VALUE_LETTERS)] == '\0' &&
            used + needed < PEER_LINE_MAX) {
            used +=
                (size_t)snprintf(line + used, PEER_LINE_MAX - used, ",%s=%s", rows[i].key, value);
        }
    }
    return line;
}

/* Where the value of a field goes; NULL: there is no such field. */
static char *place_of(peer_facts *into, const char *field, size_t length, size_t *out_capacity) {
    if (length == strlen(FIELD_NAME) && strncmp(field, FIELD_NAME, length) == 0) {
        *out_capacity = PEER_NAME_MAX;
        return into->name;
    }
    if (length == strlen(FIELD_DEVICE) && strncmp(field, FIELD_DEVICE, length) == 0) {
        *out_capacity = REPORT_UUID_MAX;
        return into->device;
    }
    *out_capacity = PEER_VALUE_MAX;
    for (size_t i = 0; i < FACT_COUNT; i++) {
        if (strlen(rows[i].key) == length && strncmp(field, rows[i].key, length) == 0) {
            return into->values[i];
        }
    }
    return NULL;
}

bool peer_facts_read(const char *line, peer_facts *out_facts) {
    peer_facts facts = {.name = ""};
    if (strncmp(line, LINE_BEGINS ",", strlen(LINE_BEGINS ",")) != 0) {
        return false;
    }
    for (const char *field = line + strlen(LINE_BEGINS); *field == ',';) {
        size_t capacity;
        field++;
        const size_t key = strcspn(field, "=,");
        const char *value = field + key + (field[key] == '=');
        const size_t length = strspn(value, VALUE_LETTERS);
        char *place = place_of(&facts, field, key, &capacity);
        if (field[key] != '=' || place == NULL || place[0] != '\0' || length == 0 ||
            length >= capacity || (value[length] != ',' && value[length] != '\0')) {
            return false;
        }
        memcpy(place, value, length);
        place[length] = '\0';
        field = value + length;
    }
    if (facts.name[0] == '\0' || facts.device[0] == '\0') {
        return false;
    }
    *out_facts = facts;
    return true;
}

/* ---- both ends ------------------------------------------------------------------------------ */

peer_relation peer_facts_compare(const peer_facts *here, const peer_facts *there, peer_fact which) {
    const char *mine = here->values[which];
    const char *theirs = there->values[which];
    if (mine[0] == '\0' || theirs[0] == '\0') {
        return PEER_UNKNOWN;
    }
    return strcmp(mine, theirs) == 0 ? PEER_EQUAL : PEER_DIFFERS;
}

const char *peer_fact_label(peer_fact which) {
    return rows[which].label;
}

/* UUIDs stand with a "+" between them. */
static bool has_uuid(const char *uuids, const char *uuid, size_t length) {
    for (const char *found = uuids; *found != '\0';) {
        const size_t other = strcspn(found, "+");
        if (length == other && strncmp(uuid, found, length) == 0) {
            return true;
        }
        found += other + (found[other] == '+');
    }
    return false;
}

bool peer_facts_have_gpu(const peer_facts *of, const char *uuid) {
    return has_uuid(of->values[FACT_GPUS], uuid, strlen(uuid));
}

static bool has_common_gpu(const char *mine, const char *theirs) {
    for (const char *uuid = mine; *uuid != '\0';) {
        const size_t length = strcspn(uuid, "+");
        if (has_uuid(theirs, uuid, length)) {
            return true;
        }
        uuid += length + (uuid[length] == '+');
    }
    return false;
}

void peer_facts_explain(const peer_facts *here, const peer_facts *there, peer_fact which,
                        peer_difference *out_difference) {
    const fact_row *row = &rows[which];
    gpuipc_finding found = {.id = "-", .name = "", .cost = "none"};
    if (row->number != 0 && gpuipc_finding_describe(row->number, &found) != GPUIPC_OK) {
        found.number = 0;
    }
    found.severity = row->severity;
    if (which == FACT_USER) {
        found.cost =
            "who is in that group may name what is shared, and whom a policy admits may use it";
    }
    if (which == FACT_GPUS && !has_common_gpu(here->values[which], there->values[which])) {
        found.severity = GPUIPC_SEVERITY_BLOCKS;
    }
    found.cause = row->label;
    found.remedy = row->remedy != NULL ? row->remedy : found.remedy;
    (void)snprintf(found.evidence, sizeof(found.evidence), "here %.200s, there %.200s",
                   here->values[which], there->values[which]);
    *out_difference = (peer_difference){.finding = found, .matters = row->matters};
}
