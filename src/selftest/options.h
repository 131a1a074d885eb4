/* SPDX-License-Identifier: MIT */
/** @file What the command line asks for. */
#ifndef GPUIPC_SELFTEST_OPTIONS_H
#define GPUIPC_SELFTEST_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpuipc/gpuipc.h>

/** Exit codes of the tool and of both its roles. */
enum {
    EXIT_PASS = 0,
    EXIT_FAIL = 1,
    EXIT_USAGE = 2,
    EXIT_NOTHING = 77 /**< nothing to test; CTest and Automake take it as "skipped" */
};

#define SIZES_MAX 16
/** "Not given", of a device's number. */
#define DEVICE_ANY UINT32_MAX

#define DEMANDS_MAX 12
#define ONLY_MAX    16

struct report;

/** What a transport must be between every two devices. */
typedef struct demand {
    gpuipc_transport transport;
    double gb_per_s; /**< at least, measured; 0: it must only be there */
} demand;

typedef enum command {
    COMMAND_RUN,         /**< start both roles for every case */
    COMMAND_PRODUCE,     /**< be the producer */
    COMMAND_CONSUME,     /**< be the consumer */
    COMMAND_MATRIX,      /**< measure every transport between all devices */
    COMMAND_LIST,        /**< say what checks there are */
    COMMAND_TRANSPORTS,  /**< list the ways to reach memory */
    COMMAND_DOCTOR,      /**< say what is in the way */
    COMMAND_PEER_GIVE,   /**< be the end that a run climbs with */
    COMMAND_PEER_END,    /**< be what doctor --peer kills */
    COMMAND_RING,        /**< start a ring of programs */
    COMMAND_RING_MEMBER, /**< be one of them */
    COMMAND_CHANNEL,     /**< frames through channels */
    COMMAND_CHANNEL_WRITER,
    COMMAND_CHANNEL_READER
} command;

typedef struct options {
    command command;
    const char *driver; /**< "auto", "cuda", "emulated" or a path; never NULL */
    const char *name;   /**< of the endpoint the roles meet at */
    uint32_t device;    /**< owner of the memory, or DEVICE_ANY */
    uint32_t peer;      /**< the consumer's device, or DEVICE_ANY */
    uint64_t sizes[SIZES_MAX];
    size_t size_count;   /**< 0: the defaults of the driver */
    int timeout_ms;      /**< of one step */
    unsigned duration_s; /**< for how long all is tried again; 0: once */
    bool verbose;
    bool is_ascii; /**< lines for people are, and have no colours */
    bool bench_copy;
    bool measure;
    bool is_quick;
    bool is_full;
    bool wants_help;
    demand demands[DEMANDS_MAX];
    size_t demand_count;
    const char *only[ONLY_MAX]; /**< beginnings of the ids of checks; none: all are wanted */
    size_t only_count;
    int format;            /**< report_format */
    const char *page;      /**< where the page is written; NULL: nowhere */
    const char *junit;     /**< where JUnit's XML is written; NULL: nowhere */
    struct report *report; /**< what is found goes there; NULL in a role */
    bool by_ticket;        /**< of produce and consume */
    const char *ticket;    /**< its text; NULL with produce */
    bool has_peer;         /**< --peer was given */
    const char *line;      /**< doctor: what the other end printed; NULL: this end prints it */
    const char *admit;     /**< doctor --peer: as in admit.h; NULL: nobody but this user */
    const char
        *pairs; /**< of a producer of the tool's: as pair_read_all() reads it; NULL: one pair */
    uint64_t
        until_ns; /**< by os_clock_ns(): from then on only the first case of a pair is tried; 0: all are */
    uint32_t members; /**< programs in a ring; 0: one for each device */
    uint32_t index;   /**< which of them this one is */
    uint64_t parent;  /**< process that started this one as a role, 0: a person did */
} options;

/** Reads the command line.
 *  @param out_exit_code what to end with when there is nothing to go on with
 *  @return whether to go on */
bool options_read(int count, char **arguments, options *out_options, int *out_exit_code);

#endif
