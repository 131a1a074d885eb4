/* SPDX-License-Identifier: MIT */
/** @file What a call answers: one list makes the codes, their names and their sentences. */
#ifndef GPUIPC_STATUS_H
#define GPUIPC_STATUS_H

#include <stdint.h>

#include "gpuipc_export.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Every status: X(code, value, sentence). The sentence says what happened, whose fault it is and
 * what to do; the thread's error record (gpuipc_error_get) adds the particulars of the call.
 * Values are never reused. Groups: 1.. the caller's own call, 30.. this machine,
 * 60.. connecting and waiting, 80.. what the peer sent, 100.. tickets.
 *
 * Unless an entry says otherwise, every object involved is as it was before the call and usable.
 */
#define GPUIPC_STATUS_LIST(X)                                                                                                                   \
    X(OK, 0, "success")                                                                                                                         \
    /* the caller's own call */                                                                                                                 \
    X(ERR_INVALID_ARGUMENT, 1,                                                                                                                  \
      "an argument is not allowed; the error record names it; correct the call")                                                                \
    X(ERR_STRUCT_SIZE, 2,                                                                                                                       \
      "struct_size is zero, too small, or the part this library does not know is not zero; begin "                                              \
      "with the struct's ..._INIT, which sets it, or use a newer library")                                                                      \
    X(ERR_RELEASED, 3,                                                                                                                          \
      "this object was already released, or never came from gpuipc; do not use it again")                                                       \
    X(ERR_TOO_SMALL, 4,                                                                                                                         \
      "the caller's array or memory is too small for the result; the needed size is in the "                                                    \
      "result; call again with enough room")                                                                                                    \
    X(ERR_OUT_OF_RANGE, 5, "offset and length reach beyond the buffer; correct them")                                                           \
    X(ERR_NAME_INVALID, 6,                                                                                                                      \
      "a name is empty or has a character other than A-Z a-z 0-9 . _ -; choose another")                                                        \
    X(ERR_NAME_TOO_LONG, 7,                                                                                                                     \
      "a name, or the socket path that it makes, is too long; shorten the name or the runtime "                                                 \
      "directory")                                                                                                                              \
    X(ERR_NOT_DEVICE_MEMORY, 8,                                                                                                                 \
      "the address is not GPU memory of this process; pass an address that the driver gave out")                                                \
    X(ERR_NOT_SHAREABLE, 9,                                                                                                                     \
      "this memory cannot be shared: it was allocated without an exportable handle type, or came "                                              \
      "from another process, or its server could not hand it over, and its log says why; allocate it with gpuipc_buffer_create")                \
    X(ERR_FORKED, 10,                                                                                                                           \
      "CUDA was started, or the object made, before fork(), and this is the child; CUDA does not "                                              \
      "survive fork; start a program of its own (exec), or use CUDA first after the fork")                                                      \
    X(ERR_BUSY, 11,                                                                                                                             \
      "the object is in use now, by another thread or process or by the caller itself, and this cannot be "                                     \
      "done; let one thread at a time do it, or try again when that use is over")                                                               \
    X(ERR_NOT_SUPPORTED, 12,                                                                                                                    \
      "this platform does not have what was asked for; the error record says what is missing; leave it away, or choose another way")            \
    /* this machine */                                                                                                                          \
    X(ERR_NO_DRIVER, 30,                                                                                                                        \
      "no CUDA driver is installed here; install NVIDIA's, or try without a GPU: GPUIPC_CUDA_DRIVER=emulated in the environment")               \
    X(ERR_DRIVER_TOO_OLD, 31,                                                                                                                   \
      "the CUDA driver is too old; gpuipc needs CUDA 11.4 (driver 470) or newer; update it")                                                    \
    X(ERR_DRIVER_FAILED, 32,                                                                                                                    \
      "the driver's library could not be found, loaded or started; the error record has its own "                                               \
      "words; mend its installation, or GPUIPC_CUDA_DRIVER where that names it")                                                                \
    X(ERR_NO_DEVICE, 33,                                                                                                                        \
      "the CUDA driver finds no GPU; check CUDA_VISIBLE_DEVICES and the "                                                                       \
      "container's device access")                                                                                                              \
    X(ERR_DEVICE_NOT_FOUND, 34,                                                                                                                 \
      "there is no device with this number or UUID in this process; gpuipc_device_count() says how many there are, CUDA_VISIBLE_DEVICES which") \
    X(ERR_DEVICE_NOT_VISIBLE, 35,                                                                                                               \
      "the memory is on a GPU that this process does not see (CUDA_VISIBLE_DEVICES, container); "                                               \
      "name a device that can reach it, or make it visible")                                                                                    \
    X(ERR_VMM_UNSUPPORTED, 36,                                                                                                                  \
      "this GPU or driver model has no virtual memory management; use GPUIPC_TRANSPORT_LEGACY or "                                              \
      "GPUIPC_TRANSPORT_HOST; on Windows, TCC lacks it: switch to WDDM")                                                                        \
    X(ERR_HANDLE_TYPE_UNSUPPORTED, 37,                                                                                                          \
      "this GPU cannot export memory as this system's kind of handle; use GPUIPC_TRANSPORT_LEGACY or GPUIPC_TRANSPORT_HOST")                    \
    X(ERR_PEER_ACCESS_UNSUPPORTED, 38,                                                                                                          \
      "the device cannot reach memory of the GPU that owns it; use a pair with P2P")                                                            \
    X(ERR_OUT_OF_DEVICE_MEMORY, 39,                                                                                                             \
      "the GPU has not enough free memory; free some or ask for less")                                                                          \
    X(ERR_OUT_OF_MEMORY, 40,                                                                                                                    \
      "the process has not enough host memory; free some, ask for less, or raise its limit (ulimit)")                                           \
    X(ERR_TOO_MANY_HANDLES, 41,                                                                                                                 \
      "this process reached its limit of open file descriptors or handles (not of memory); raise "                                              \
      "the limit (ulimit -n) or release buffers")                                                                                               \
    X(ERR_TOO_MANY_IN_FLIGHT, 42,                                                                                                               \
      "the user reached the limit of descriptors in flight between processes (ETOOMANYREFS, man 7 "                                             \
      "unix); let the receivers catch up or raise ulimit -n")                                                                                   \
    X(ERR_CUDA, 43,                                                                                                                             \
      "a CUDA driver call failed; the error record has its name and code, and cuda.h says what the code means")                                 \
    X(ERR_OS, 44,                                                                                                                               \
      "a call of the operating system failed; the error record has its name and code, and the system's manual says what the code means")        \
    X(ERR_NO_TRANSPORT, 45,                                                                                                                     \
      "no transport that the call admits can do this; the error record says why; admit another one, which gpuipc_transport_select() finds")     \
    X(ERR_WRONG_DATA, 46,                                                                                                                       \
      "a copy delivered other data than was written; the machine is broken or misconfigured (IOMMU, "                                           \
      "ACS); do not trust any copy between the two GPUs")                                                                                       \
    /* connecting and waiting */                                                                                                                \
    X(ERR_TIMEOUT, 60, "the time given ran out; nothing was lost; call again to go on waiting")                                                 \
    X(ERR_NOT_FOUND, 61,                                                                                                                        \
      "nothing has this name or address; where another program is to listen under the name, start it, or wait longer")                          \
    X(ERR_NAME_IN_USE, 62, "a living process already listens under this name; choose another")                                                  \
    X(ERR_UNSAFE_DIRECTORY, 63,                                                                                                                 \
      "the runtime directory could be entered or changed by other users; it must be a real "                                                    \
      "directory of this user's alone (mode 0700 on Linux): name one in GPUIPC_RUNTIME_DIR")                                                    \
    X(ERR_ACCESS_DENIED, 64,                                                                                                                    \
      "not allowed: the other process runs as another user, a policy refused it, or the buffer may only be read; the error record says which")  \
    X(ERR_PEER_CLOSED, 65,                                                                                                                      \
      "the other process closed the connection or died; close this end; buffers already received "                                              \
      "stay valid")                                                                                                                             \
    X(ERR_CONNECTION_BROKEN, 66,                                                                                                                \
      "this connection ended after an error, in this call or an earlier one; close it and connect again")                                       \
    X(ERR_LOST, 67,                                                                                                                             \
      "the process that was to fill the buffer, or that owns its memory, has ended; release the "                                               \
      "buffer; the stream is usable")                                                                                                           \
    X(ERR_OTHER_KIND, 68,                                                                                                                       \
      "what comes next (a message, contents), or what a ticket is of (a buffer, a channel), is of the other kind; nothing was lost; "           \
      "call the function for that kind")                                                                                                        \
    X(ERR_INTERRUPTED, 69,                                                                                                                      \
      "a signal handler ran while the call waited, or gpuipc_context_wake() was called; nothing was "                                           \
      "lost; call again to go on waiting")                                                                                                      \
    /* what the peer sent; the connection is broken afterwards unless the sentence says otherwise */                                            \
    X(ERR_PROTOCOL, 80,                                                                                                                         \
      "what came is no gpuipc message or manifest, or a damaged one; find out which program made it")                                           \
    X(ERR_VERSION, 81,                                                                                                                          \
      "what came is of another major version of the protocol or format; update one side")                                                       \
    X(ERR_LIMIT, 82,                                                                                                                            \
      "more bytes, buffers, handles, marks, loans, frames or readers than are possible or than this side accepts; "                             \
      "the error record says which, and whose limit it is; what peers may send is set in the context's config")                                 \
    X(ERR_HANDLE_COUNT, 83,                                                                                                                     \
      "the peer sent more or fewer handles than its message says; correct or update that program")                                              \
    X(ERR_NOT_GPU_MEMORY, 84,                                                                                                                   \
      "a handle, or the bytes that stand for one, names no GPU memory that can be opened here; a "                                              \
      "message with it was dropped, and its connection is usable; ask for the memory again")                                                    \
    X(ERR_SIZE_MISMATCH, 85,                                                                                                                    \
      "memory or contents have another size than was said or expected; a message with them was "                                                \
      "dropped, and its connection is usable; let both sides name the same size")                                                               \
    /* tickets */                                                                                                                               \
    X(ERR_TICKET_TEXT, 100,                                                                                                                     \
      "this text is no ticket: another prefix, white space, or a character that no ticket has; pass "                                           \
      "on exactly what gpuipc_ticket_to_text() wrote")                                                                                          \
    X(ERR_TICKET_SIZE, 101,                                                                                                                     \
      "a ticket has 64 bytes, and its text 94 characters; this one was cut short or has something "                                             \
      "added")                                                                                                                                  \
    X(ERR_TICKET_DAMAGED, 102, "a byte of the ticket was changed on its way; ask for it again")                                                 \
    X(ERR_TICKET_VERSION, 103,                                                                                                                  \
      "the ticket was made by a version of gpuipc whose tickets this one cannot read; update it")                                               \
    X(ERR_TICKET_EXPIRED, 104, "the ticket's time is over; ask its owner for another")                                                          \
    X(ERR_TICKET_REVOKED, 105, "the ticket's owner has revoked it; ask for another")                                                            \
    X(ERR_TICKET_USED_UP, 106,                                                                                                                  \
      "as many processes as the ticket admits have opened it; ask its owner for another")                                                       \
    X(ERR_TICKET_UNKNOWN, 107,                                                                                                                  \
      "the process that the ticket names has given out no such ticket, or forgot it long ago; ask its owner for another")                       \
    X(ERR_TICKET_OTHER_BOOT, 108,                                                                                                               \
      "the ticket was made before this machine was started last, or on another machine; the memory is gone; ask for another ticket")            \
    X(ERR_TICKET_OTHER_USER, 109,                                                                                                               \
      "the ticket was made by another user's process, whose runtime directory this context does not "                                           \
      "look in; share a runtime directory (GPUIPC_CONTEXT_SHARED_DIRECTORY)")                                                                   \
    X(ERR_EXPORTER_GONE, 110,                                                                                                                   \
      "the server that made the ticket has ended, or its socket was removed from the runtime directory (by a logout or a "                      \
      "cleaner); what is open stays usable; ask for a new ticket, or open this one again after a second")                                       \
    X(ERR_SERVER_BUSY, 111,                                                                                                                     \
      "the server has no room now for more of this user or process; release what is not needed, or try "                                        \
      "again later")

/** The result of every call that can fail. */
typedef enum gpuipc_status {
#define GPUIPC_STATUS_ENUMERATOR(code, value, sentence) GPUIPC_##code = (value),
    GPUIPC_STATUS_LIST(GPUIPC_STATUS_ENUMERATOR)
#undef GPUIPC_STATUS_ENUMERATOR
    GPUIPC_STATUS_FORCE_INT32 = 0x7FFFFFFF
} gpuipc_status;

/**
 * The name of a status, such as "GPUIPC_ERR_TIMEOUT"; "GPUIPC_UNKNOWN_STATUS" for other values.
 * @param status any number
 * @errors none  @ownership static text, never freed  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API const char *gpuipc_status_name(gpuipc_status status);

/**
 * The sentence of GPUIPC_STATUS_LIST.
 * @param status any number
 * @errors none  @ownership static text, never freed  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API const char *gpuipc_status_message(gpuipc_status status);

/** Whose business a status is: the groups of GPUIPC_STATUS_LIST. */
typedef enum gpuipc_group {
    GPUIPC_GROUP_UNKNOWN = -1, /**< a number that no status has */
    GPUIPC_GROUP_OK = 0,       /**< ::GPUIPC_OK */
    GPUIPC_GROUP_CALL = 1,     /**< 1 to 29: the caller's own call */
    GPUIPC_GROUP_MACHINE = 30, /**< 30 to 59: this machine */
    GPUIPC_GROUP_WAITING = 60, /**< 60 to 79: connecting and waiting */
    GPUIPC_GROUP_PEER = 80,    /**< 80 to 99: what the peer sent */
    GPUIPC_GROUP_TICKET = 100  /**< 100 to 119: tickets */
} gpuipc_group;

/**
 * The group of a status. It goes by the number, so that a status of a newer library has one too.
 * @param status any number
 * @return the group; ::GPUIPC_GROUP_UNKNOWN where there is none
 * @errors none  @ownership a value  @threads any  @blocking no  @since 0.1
 */
GPUIPC_API gpuipc_group gpuipc_status_group(gpuipc_status status);

/** Where a native code in an error record comes from. */
typedef enum gpuipc_native_origin {
    GPUIPC_NATIVE_NONE = 0, /**< no native code */
    GPUIPC_NATIVE_OS = 1,   /**< errno on Linux, GetLastError() on Windows */
    GPUIPC_NATIVE_CUDA = 2  /**< CUresult */
} gpuipc_native_origin;

/** The last failure of the calling thread. Fixed size: an error path allocates nothing. */
typedef struct gpuipc_error {
    gpuipc_status status;               /**< what the failing call returned */
    gpuipc_native_origin native_origin; /**< where native_code comes from */
    int64_t native_code;                /**< errno, GetLastError() or CUresult */
    char native_call[48]; /**< who answered native_code, such as "cuMemCreate"; else empty */
    char operation[48];   /**< the function of this library that was called and failed */
    char sentence[304];   /**< what happened, for a person */
} gpuipc_error;

/**
 * The calling thread's last failure. Success does not clear it: look only after a call failed.
 * @return a record that stays valid, and is overwritten by this thread's next failing call
 * @errors none  @ownership the library's  @threads any; each thread has its own
 * @blocking no  @since 0.1
 */
GPUIPC_API const gpuipc_error *gpuipc_error_get(void);

/**
 * The calling thread's last failure as one text for a person: the call, the cause, the status, the code and who answered
 * it, the remedy. "success" before the first failure.
 * @return a text that stays valid, and is overwritten by this thread's next call of this function
 * @errors none  @ownership the library's  @threads any; each thread has its own
 * @blocking no  @since 0.1
 */
GPUIPC_API const char *gpuipc_error_text(void);

#ifdef __cplusplus
}
#endif

#endif
