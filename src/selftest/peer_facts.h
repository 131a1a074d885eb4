/* SPDX-License-Identifier: MIT */
/** @file What two ends of a sharing compare, and the line in which one end tells the other. The line is somebody else's
 *  text: what is read of it is bounded, and none of it is believed to be more than text. */
#ifndef GPUIPC_SELFTEST_PEER_FACTS_H
#define GPUIPC_SELFTEST_PEER_FACTS_H

#include "report.h"
#include "session.h"

/** What is compared, in the order in which it is told. */
typedef enum peer_fact {
    FACT_MACHINE,
    FACT_USER,
    FACT_DIRECTORY,
    FACT_GPUS,
    FACT_EMULATED,
    FACT_CUDA,
    FACT_DRIVER,
    FACT_PID,
    FACT_USERS,
    FACT_IPC,
    FACT_SHM,
    FACT_MOUNT,
    FACT_NET,
    FACT_SECCOMP,
    FACT_CONTAINER,
    FACT_COUNT
} peer_fact;

/** The longest value, with its end: UUIDs of 16 GPUs. */
#define PEER_VALUE_MAX 704
/** The longest name of an endpoint in a line, with its end. */
#define PEER_NAME_MAX 64
/** The longest line, with its end. */
#define PEER_LINE_MAX 3072

typedef struct peer_facts {
    char name[PEER_NAME_MAX];     /**< where the end that printed the line is met */
    char device[REPORT_UUID_MAX]; /**< the UUID of the device whose memory it gives */
    char values[FACT_COUNT]
               [PEER_VALUE_MAX]; /**< empty: not known, or there is no such thing there */
} peer_facts;

/** What is so at this end, now. The name and the device stay empty. */
void peer_facts_find(const session *at, peer_facts *out_facts);

/** One word without anything that a shell takes for its own. @return line */
const char *peer_facts_write(const peer_facts *facts, char line[PEER_LINE_MAX]);

/** False: it is no line of peer_facts_write(). */
bool peer_facts_read(const char *line, peer_facts *out_facts);

/** How two ends stand to each other in a fact. */
typedef enum peer_relation {
    PEER_EQUAL,
    PEER_DIFFERS,
    PEER_UNKNOWN /**< at one end at least */
} peer_relation;
peer_relation peer_facts_compare(const peer_facts *here, const peer_facts *there, peer_fact which);

/** False: that end sees no GPU of that UUID, or has not told it. */
bool peer_facts_have_gpu(const peer_facts *of, const char *uuid);

/** "PID namespace" */
const char *peer_fact_label(peer_fact which);

/** What a difference matters to, and what to do. Its number is 0, and its id "-", where no finding of gpuipc_diagnose.h
 *  fits. */
typedef struct peer_difference {
    gpuipc_finding finding;
    const char *matters;
} peer_difference;
void peer_facts_explain(const peer_facts *here, const peer_facts *there, peer_fact which,
                        peer_difference *out_difference);

#endif
