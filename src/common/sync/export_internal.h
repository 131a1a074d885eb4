/* SPDX-License-Identifier: MIT */
/** @file What export_record.c and export_buffer.c share. The mutex is held in all of it. */
#ifndef GPUIPC_EXPORT_INTERNAL_H
#define GPUIPC_EXPORT_INTERNAL_H

#include "sync/export_record.h"

struct export_record {
    export_table *table;
    point at;           /* the value given out last */
    uint64_t serial;    /* among all of the context's */
    point_word written; /* where its ready word is written */
    buffer_exports *of; /* that was handed over; NULL: it is in no list of a buffer's */
    list_link listed;   /* of that: unreturned, or returned */
    list_link busy;     /* of the table; or of its free ones */
};

/** A hand-over of this buffer has begun. */
void export_buffer_joined(buffer_exports *of);
/** A hand-over of it is over. */
void export_buffer_left(buffer_exports *of);

/** The buffer whose list it has just left has ended. */
void export_forget_buffer(export_record *self);
/** Looks what has become of one that was found in a list: afterwards its table may be gone, if its connection is over.
 *  @param asks whether somebody is there who would return it; else it is forgotten, with all that he had
 *  @return whether it has left the list */
bool export_settle_listed(export_record *self, bool asks);

#endif
