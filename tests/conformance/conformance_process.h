/* SPDX-License-Identifier: MIT */
/**
 * @file The helper process of a conformance test, and what else only the operating system can give:
 * handles that are no GPU memory, and a look at one that is. Assertions are made here, so that a
 * test reads as a list of steps.
 */
#ifndef GPUIPC_TEST_CONFORMANCE_PROCESS_H
#define GPUIPC_TEST_CONFORMANCE_PROCESS_H

#include "conformance.h"
#include "conformance_link.h"

/** A running conformance_helper. */
typedef struct helper helper;

/** What became of a helper. */
typedef struct helper_ending {
    int exit_code; /**< -1 when it crashed or was killed */
    int crash;     /**< 0 when it exited; else the signal, or the code that Windows ended it with */
} helper_ending;

/** Starts one. @param visible_devices its CUDA_VISIBLE_DEVICES; NULL: the same as here */
helper *helper_start(const char *visible_devices);
/** Sends a command (conformance_helper.c lists them), with a handle or none. */
void helper_tell(helper *process, os_handle handle, const char *format, ...) GPUIPC_PRINTF(3, 4);
/** Receives an answer. @param out_handle takes the handle that came with it; NULL: none may */
void helper_hear(helper *process, char line[MESSAGE_BYTES], os_handle *out_handle);
/** Waits until an answer has come, and leaves it there; a handle with it is nobody's until then. */
void helper_await_answer(helper *process);
/** Kills it and waits until it is gone. The answer that has come stays. */
void helper_kill(helper *process);
/** Waits for it to end; it does when it has answered everything, because nothing more comes. */
helper_ending helper_end(helper *process);
/** Waits for it to end by its own doing. */
helper_ending helper_await_end(helper *process);

/** What a helper's "import" answers. Steps behind the first failure are -1. */
typedef struct import_report {
    int imported;             /**< cuMemImportFromShareableHandle */
    int properties;           /**< cuMemGetAllocationPropertiesFromHandle */
    int location_type;        /**< in the properties */
    int location;             /**< likewise */
    int handle_types;         /**< likewise */
    int mapped;               /**< cuMemMap */
    int accessed;             /**< cuMemSetAccess */
    int copied;               /**< cuMemcpyDtoH of the first word */
    uint32_t word;            /**< the first word */
    unsigned long long range; /**< cuMemGetAddressRange */
} import_report;

/** Has the helper import and map @p bytes on a device. */
import_report helper_import(helper *process, os_handle shareable, int device, size_t bytes);
/** Has the helper make memory that starts with @p word, and takes its handle. */
os_handle helper_create(helper *process, int device, size_t bytes, uint32_t word);
/** A command that is answered with a CUresult. */
CUresult helper_result(helper *process, const char *command);
/** The first word of the helper's memory. */
uint32_t helper_read(helper *process);

/** "GPU-..." of a device, as CUDA_VISIBLE_DEVICES takes it. */
void device_uuid_text(int device, char text[48]);

/** Handles that are open but no GPU memory, and values that are no open handle. */
typedef struct wrong_handle {
    const char *what;
    os_handle handle;
    bool is_open; /**< to be closed */
} wrong_handle;
#define WRONG_HANDLES_MAX 16
/** @return how many this machine has */
size_t wrong_handles_open(wrong_handle wrong[WRONG_HANDLES_MAX]);
/** Asserts that the driver closed none of them. */
void wrong_handles_close(const wrong_handle *wrong, size_t count);

/** Ends this program in a way that Criterion counts as a failure, in a .fini as well. */
void program_crash(void);

/** True when the handle is still open here. */
bool handle_is_open(os_handle handle);
/** Asserts what the system says about what an export wrote. It is looked at before
 *  os_handle_adopt_exported, which would itself see to it that no other program inherits it. */
void handle_check_exported(const void *written);

#endif
