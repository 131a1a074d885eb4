/* SPDX-License-Identifier: MIT */
/**
 * @file What nobody tells of and somebody has to look for: a thread of the process looks at each in turn, some 20 ms
 * apart, and is there only while anything is looked for. It is the process's, since a context may end with what it looks
 * for, and a thread cannot wait for its own end.
 */
#ifndef GPUIPC_LOOKOUT_H
#define GPUIPC_LOOKOUT_H

#include "base/list.h"
#include "base/object.h"
#include "base/wait_handle.h"
#include "os.h"

/** Lies in an object. All zero: nothing is looked for. */
typedef struct lookout {
    list_link link;
    object *of;               /**< no reference: lookout_end() comes before its end */
    bool (*look)(object *of); /**< whether it has come; a reference is held, no lock is */
    wait_handle *tells;       /**< whom, once; NULL: nobody */
    uint64_t begun;           /**< how often it was begun */
} lookout;

/** Looks for it (again) from now on. Fails where no thread can be started. */
gpuipc_status lookout_begin(lookout *self, object *of, bool (*look)(object *of),
                            wait_handle *tells);
void lookout_end(lookout *self);

/** Ends the thread, if nothing is looked for. */
void lookout_dismiss(void);

#endif
