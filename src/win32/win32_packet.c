/* SPDX-License-Identifier: MIT */
/**
 * @file Packets: bytes and handles, sent and received whole or not at all.
 *
 * A packet is one message of the pipe: an envelope, which stands for what SCM_RIGHTS is on Linux, and
 * then the packet's bytes, which are the same on both systems. docs/wire-format.md has its layout.
 */
#include "win32.h"

#include <string.h>

#define ENVELOPE_BYTES   24u
#define ENVELOPE_VERSION 1u
#define FLAG_LEDGER      1u

static const unsigned char envelope_magic[4] = {'G', 'I', 'P', 'E'};

/** What stands in an envelope. */
typedef struct envelope {
    bool has_ledger;
    size_t handle_count; /**< with the ledger */
    size_t byte_count;
    uint64_t number; /**< of the packet, among those with handles; 0 without any */
} envelope;

static void put_number(unsigned char *at, size_t size, uint64_t value) {
    for (size_t i = 0; i < size; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

static uint64_t get_number(const unsigned char *at, size_t size) {
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

/** Writes the whole frame. @return its size */
static size_t frame_put(unsigned char *frame, const win32_export *export, const void *bytes,
                        size_t size) {
    size_t count = export != NULL ? export->count : 0;
    memcpy(frame, envelope_magic, sizeof(envelope_magic));
    put_number(frame + 4, 2, ENVELOPE_VERSION);
    put_number(frame + 6, 2, export != NULL && export->has_ledger ? FLAG_LEDGER : 0);
    put_number(frame + 8, 4, count);
    put_number(frame + 12, 4, size);
    put_number(frame + 16, 8, export != NULL ? export->number : 0);
    for (size_t i = 0; i < count; i++) {
        put_number(frame + ENVELOPE_BYTES + 8 * i, 8, export->values[i]);
    }
    memcpy(frame + ENVELOPE_BYTES + 8 * count, bytes, size);
    return ENVELOPE_BYTES + 8 * count + size;
}

static gpuipc_status frame_broken(const char *what) {
    return status_fail(GPUIPC_ERR_PROTOCOL, "the peer sent a packet %s", what);
}

static gpuipc_status frame_get(const unsigned char *frame, size_t size, envelope *out) {
    if (size < ENVELOPE_BYTES || memcmp(frame, envelope_magic, sizeof(envelope_magic)) != 0) {
        return frame_broken("without gpuipc's envelope");
    }
    uint64_t version = get_number(frame + 4, 2);
    uint64_t flags = get_number(frame + 6, 2);
    if (version != ENVELOPE_VERSION) {
        return status_fail(GPUIPC_ERR_VERSION,
                           "the peer's envelopes have version %u; this side knows %u",
                           (unsigned)version, ENVELOPE_VERSION);
    }
    envelope found = {.has_ledger = (flags & FLAG_LEDGER) != 0,
                      .handle_count = (size_t)get_number(frame + 8, 4),
                      .byte_count = (size_t)get_number(frame + 12, 4),
                      .number = get_number(frame + 16, 8)};
    if ((flags & ~(uint64_t)FLAG_LEDGER) != 0) {
        return frame_broken("with flags that are not known");
    }
    size_t most = OS_PACKET_HANDLES_MAX + (found.has_ledger ? 1u : 0u);
    if (found.handle_count > most) {
        return status_fail(GPUIPC_ERR_HANDLE_COUNT, "the peer sent %zu handles; %d are possible",
                           found.handle_count, OS_PACKET_HANDLES_MAX);
    }
    /* A ledger comes with handles only, and a number with either. */
    if ((found.has_ledger && found.handle_count < 2) ||
        (found.handle_count == 0) != (found.number == 0)) {
        return frame_broken("whose envelope contradicts itself");
    }
    if (found.byte_count == 0 ||
        size != ENVELOPE_BYTES + 8 * found.handle_count + found.byte_count) {
        return frame_broken("of another length than its envelope says, or empty");
    }
    *out = found;
    return GPUIPC_OK;
}

static gpuipc_status send_failed(DWORD code) {
    switch (code) {
    case WAIT_TIMEOUT:
        return status_fail(GPUIPC_ERR_TIMEOUT,
                           "the peer did not take its packets before the time ran out");
    case ERROR_OPERATION_ABORTED:
        return status_fail(GPUIPC_ERR_RELEASED, "another thread closed the connection meanwhile");
    default:
        return win32_fail(code, "WriteFile", "the packet cannot be sent");
    }
}

/** Writes one message of the pipe. */
static gpuipc_status frame_write(os_connection *connection, size_t size, os_deadline deadline) {
    HANDLE pipe = win32_handle_native(connection->pipe);
    OVERLAPPED operation = {.hEvent = win32_handle_native(connection->writing)};
    DWORD written = 0;
    if (!WriteFile(pipe, connection->frame_out, (DWORD)size, NULL, &operation) &&
        GetLastError() != ERROR_IO_PENDING) {
        return send_failed(GetLastError());
    }
    DWORD code = win32_pipe_finish(pipe, &operation, win32_handle_native(connection->interrupted),
                                   deadline, &written);
    return code == 0 ? GPUIPC_OK : send_failed(code);
}

/* Asked before anything is made: a pseudo-handle can be duplicated, and would hand this whole process
 * over. */
static gpuipc_status handles_check(const os_handle *handles, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!win32_handle_is_open(handles[i].value)) {
            return status_fail(GPUIPC_ERR_INVALID_ARGUMENT, "handle %lld is not open",
                               (long long)handles[i].value);
        }
    }
    return GPUIPC_OK;
}

static gpuipc_status packet_send(os_connection *connection, const void *bytes, size_t size,
                                 const os_handle *handles, size_t count, os_deadline deadline) {
    win32_export *export = NULL;
    const os_peer *peer;
    gpuipc_status status = win32_connection_usable(connection);
    if (status == GPUIPC_OK) {
        status = handles_check(handles, count);
    }
    if (status == GPUIPC_OK && count > 0) {
        status = win32_connection_peer(connection, &peer);
        if (status == GPUIPC_OK) {
            status = win32_exporter_export(&connection->exporter, peer, handles, count, &export);
        }
    }
    if (status != GPUIPC_OK) {
        return status;
    }
    size_t whole = frame_put(connection->frame_out, export, bytes, size);
    status = frame_write(connection, whole, deadline);
    if (export != NULL && status == GPUIPC_OK) {
        win32_exporter_keep(&connection->exporter, export);
    } else if (export != NULL) {
        /* The receiver never saw their numbers. */
        gpuipc_error why = status_save();
        win32_exporter_take_back(&connection->exporter, export);
        status_restore(&why);
    }
    return status;
}

gpuipc_status os_connection_send(os_connection *connection, const void *bytes, size_t size,
                                 const os_handle *handles, size_t count, os_deadline deadline) {
    if (size == 0 || size > OS_PACKET_BYTES_MAX || count > OS_PACKET_HANDLES_MAX) {
        return status_fail(GPUIPC_ERR_INVALID_ARGUMENT,
                           "a packet has 1 to %d bytes and up to %d handles, not %zu and %zu",
                           OS_PACKET_BYTES_MAX, OS_PACKET_HANDLES_MAX, size, count);
    }
    AcquireSRWLockShared(&connection->use);
    atomic_store(&connection->is_used, true);
    gpuipc_status status = packet_send(connection, bytes, size, handles, count, deadline);
    ReleaseSRWLockShared(&connection->use);
    return status;
}

static gpuipc_status receive_failed(DWORD code) {
    switch (code) {
    case WAIT_TIMEOUT:
        return status_fail(GPUIPC_ERR_TIMEOUT, "no packet came before the time ran out");
    case ERROR_OPERATION_ABORTED:
        return status_fail(GPUIPC_ERR_RELEASED, "another thread closed the connection meanwhile");
    case ERROR_MORE_DATA:
        return frame_broken("longer than any may be");
    default:
        return win32_fail(code, "ReadFile", "no packet can be received");
    }
}

/** Looks for a while, as os_connection_set_look() says, whether a reading has ended. */
static void frame_look(os_connection *connection, const OVERLAPPED *operation) {
    const uint64_t until = os_clock_ns() + connection->look_us * UINT64_C(1000);
    while (!HasOverlappedIoCompleted(operation) && !atomic_load(&connection->is_interrupted) &&
           os_clock_ns() < until) {
        SwitchToThread(); /* who is to answer may need this very processor */
    }
}

/** Reads one message of the pipe into frame_in. */
static gpuipc_status frame_read(os_connection *connection, os_deadline deadline, size_t *out_size) {
    HANDLE pipe = win32_handle_native(connection->pipe);
    OVERLAPPED operation = {.hEvent = win32_handle_native(connection->reading)};
    DWORD got = 0;
    if (!win32_watch_pause(connection)) {
        *out_size = 0;
        return GPUIPC_OK;
    }
    if (!ReadFile(pipe, connection->frame_in, WIN32_FRAME_BYTES_MAX, NULL, &operation)) {
        DWORD code = GetLastError();
        /* After ERROR_MORE_DATA the operation is over as well. */
        if (code != ERROR_IO_PENDING) {
            return receive_failed(code);
        }
        if (connection->look_us > 0 && !os_deadline_passed(deadline)) {
            frame_look(connection, &operation);
        }
    }
    DWORD code = win32_pipe_finish(pipe, &operation, win32_handle_native(connection->interrupted),
                                   deadline, &got);
    if (code != 0) {
        return receive_failed(code);
    }
    *out_size = got;
    return GPUIPC_OK;
}

/** Takes the handles of the packet that lies in frame_in. */
static gpuipc_status frame_take(os_connection *connection, const envelope *found,
                                os_handle *handles, size_t *out_count) {
    uint64_t values[WIN32_EXPORTED_MAX];
    if (found->handle_count == 0) {
        *out_count = 0;
        return GPUIPC_OK;
    }
    for (size_t i = 0; i < found->handle_count; i++) {
        values[i] = get_number(connection->frame_in + ENVELOPE_BYTES + 8 * i, 8);
    }
    gpuipc_status status =
        win32_importer_take(&connection->importer, found->number, found->has_ledger, values,
                            found->handle_count, handles);
    if (status == GPUIPC_OK) {
        *out_count = found->handle_count - (found->has_ledger ? 1 : 0);
    }
    return status;
}

/** One packet as it came, with what of it was taken. */
typedef struct packet {
    envelope found;
    size_t count;
    os_handle handles[OS_PACKET_HANDLES_MAX];
} packet;

static void packet_close(packet *received) {
    for (size_t i = 0; i < received->count; i++) {
        os_handle_close(&received->handles[i]);
    }
}

/** Whether it failed for want of something that may be there the next time. */
static bool may_pass(gpuipc_status status) {
    return status == GPUIPC_ERR_OUT_OF_MEMORY || status == GPUIPC_ERR_OS;
}

/** A frame that is refused may have had handles; from now on none is taken (win32_ledger.c).
 *  @param tries how often what fails for want of memory is done */
static gpuipc_status packet_receive(os_connection *connection, packet *received,
                                    os_deadline deadline, unsigned tries) {
    size_t size = 0;
    unsigned left = tries;
    gpuipc_status status;
    do {
        status = frame_read(connection, deadline, &size);
    } while (may_pass(status) && --left > 0);
    if (status != GPUIPC_OK) {
        connection->importer.refused |= status == GPUIPC_ERR_PROTOCOL;
        return status;
    }
    status = frame_get(connection->frame_in, size, &received->found);
    if (status != GPUIPC_OK) {
        connection->importer.refused = true;
        return status;
    }
    left = tries;
    do {
        status = frame_take(connection, &received->found, received->handles, &received->count);
    } while (may_pass(status) && --left > 0);
    return status;
}

/** Gives out the packet that lies in frame_in. */
static gpuipc_status packet_deliver(const os_connection *connection, packet *received, void *bytes,
                                    size_t capacity, size_t *out_size, os_handle *handles,
                                    size_t *out_count) {
    const envelope *found = &received->found;
    if (found->byte_count > capacity) {
        packet_close(received);
        return status_fail(GPUIPC_ERR_PROTOCOL,
                           "the peer sent a packet longer than the %zu bytes there may be",
                           capacity);
    }
    memcpy(bytes, connection->frame_in + ENVELOPE_BYTES + 8 * found->handle_count,
           found->byte_count);
    memcpy(handles, received->handles, received->count * sizeof(*handles));
    *out_size = found->byte_count;
    *out_count = received->count;
    return GPUIPC_OK;
}

gpuipc_status os_connection_receive(os_connection *connection, void *bytes, size_t capacity,
                                    size_t *out_size, os_handle *handles, size_t *out_count,
                                    os_deadline deadline) {
    packet received;
    AcquireSRWLockShared(&connection->use);
    atomic_store(&connection->is_used, true);
    gpuipc_status status = win32_connection_usable(connection);
    if (status == GPUIPC_OK) {
        status = packet_receive(connection, &received, deadline, 1);
    }
    if (status == GPUIPC_OK) {
        status =
            packet_deliver(connection, &received, bytes, capacity, out_size, handles, out_count);
    }
    ReleaseSRWLockShared(&connection->use);
    return status;
}

/* ---- what is left when this end has been stopped -------------------------------------------- */

#define REST_TRIES 8u

/** Whether handles of this peer may be taken by an end that never asked for its packets: one that was
 *  refused could name numbers of this process's own. */
static bool rest_may_be_taken(os_connection *connection) {
    const os_peer *peer;
    if (connection->peer_was_refused) {
        return false;
    }
    return atomic_load(&connection->is_used) ||
           (win32_connection_peer(connection, &peer) == GPUIPC_OK && peer->same_user);
}

/* The peer is not kept from writing: of the two ends of a pipe neither can be closed in one direction alone. So this
 * ends after what the pipe can have held when this end was stopped, however much comes; and with the first packet that
 * breaks a rule, after which nothing is taken (win32_ledger.c). The interrupt event is set by now and would take every
 * reading back, so it is reset meanwhile: nobody else is in here. A sender that has closed its end has left its handles to
 * this one, so that a failure that passes must not leave them open. */
static gpuipc_status rest_receive(os_connection *connection, packet *received) {
    connection->rest_is_over = connection->rest_is_over ||
                               connection->rest_bytes > WIN32_PIPE_ROOM ||
                               !rest_may_be_taken(connection);
    if (connection->rest_is_over) {
        return win32_connection_usable(connection);
    }
    ResetEvent(win32_handle_native(connection->interrupted));
    gpuipc_status status = packet_receive(connection, received, os_deadline_after(0), REST_TRIES);
    SetEvent(win32_handle_native(connection->interrupted));
    if (status == GPUIPC_OK) {
        const envelope *found = &received->found;
        connection->rest_bytes += ENVELOPE_BYTES + 8 * found->handle_count + found->byte_count;
    }
    connection->rest_is_over = status != GPUIPC_OK && status != GPUIPC_ERR_TIMEOUT;
    return status;
}

void win32_packet_drain(os_connection *connection) {
    packet received;
    while (rest_receive(connection, &received) == GPUIPC_OK) {
        packet_close(&received);
    }
}

gpuipc_status os_connection_take_rest(os_connection *connection, void *bytes, size_t capacity,
                                      size_t *out_size, os_handle *handles, size_t *out_count) {
    packet received;
    AcquireSRWLockExclusive(&connection->use);
    gpuipc_status status = win32_connection_usable(connection);
    if (os_handle_is_valid(connection->pipe)) {
        win32_watch_end(connection);
        status = rest_receive(connection, &received);
    }
    if (status == GPUIPC_OK) {
        status =
            packet_deliver(connection, &received, bytes, capacity, out_size, handles, out_count);
    }
    ReleaseSRWLockExclusive(&connection->use);
    return status;
}
