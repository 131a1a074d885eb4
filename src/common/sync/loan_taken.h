/* SPDX-License-Identifier: MIT */
/** @file Loans, on the borrower's side: what a buffer of this process has taken of the lender's (loan_word.h). */
#ifndef GPUIPC_LOAN_TAKEN_H
#define GPUIPC_LOAN_TAKEN_H

#include "base/object.h"
#include "sync/import_record.h"

typedef struct mark mark;

/** Takes the loan that a mark stands for, of the process that a buffer came from. ERR_RELEASED: it is over, or
 *  this process has it
 *  @param by returns it when the buffer is not used any more */
gpuipc_status loan_take(import_record *by, const mark *self);
/** ERR_INVALID_ARGUMENT for one that was not taken by this. */
gpuipc_status loan_return(import_record *by, const mark *self);
/** The same when a stream of the current CUDA context comes to it. */
gpuipc_status loan_return_async(import_record *by, const mark *self, gpuipc_stream stream);
/** The same when a device has done what it has been given until now. No driver call, no wait.
 *  @param of the buffer: kept until then  @param behind as drop_add() */
gpuipc_status loan_drop(import_record *by, const mark *self, object *of, uint32_t behind);
/** All that was taken by a buffer. */
void loan_return_all(import_record *by);

#endif
