/* SPDX-License-Identifier: MIT */
/**
 * @file Handles in other processes: who closes which, and how both ends know.
 *
 * A sender puts handles into the receiver and then writes their numbers into the pipe. Between the
 * two, and until the receiver has taken them, they are the sender's to clean up; afterwards they are
 * the receiver's, and closing one from outside could close something else. The receiver says that it
 * has taken a packet's handles in a page of memory that both ends have mapped, the ledger. Such a
 * word can neither be lost nor keep anybody waiting, as an answer in the pipe could.
 *
 * The sender makes the page; its handle goes in front of the first handles that it sends. In it, one
 * 64-bit word: how many packets with handles the receiver has taken, in the order of sending.
 *
 * What nobody closes before the receiver ends: the handles of one packet, of a sender that dies between putting them
 * there and writing, or seeing that the receiver has closed its end; those of a packet that the receiver refused because
 * it broke the rules, if its sender has closed its end by then; those of what nobody took before the sender closed its
 * end, where the system gives no memory to read it (win32_packet.c, REST_TRIES); and those of a receiver that has closed
 * its end, where the system does not tell the sender so.
 */
#include "win32.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096u

static _Atomic uint64_t *page_taken(void *page) {
    return (_Atomic uint64_t *)page;
}

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "the ledger's word is shared between processes");

/** Opens the receiver and makes the page; once. */
static gpuipc_status exporter_begin(win32_exporter *exporter, const os_peer *peer) {
    os_handle process;
    os_handle section;
    void *page;
    if (exporter->page != NULL) {
        return GPUIPC_OK;
    }
    gpuipc_status status = win32_peer_open_for_handles(peer, &process);
    if (status != GPUIPC_OK) {
        return status;
    }
    status = os_memory_create("gpuipc-ledger", PAGE_BYTES, &section);
    if (status != GPUIPC_OK) {
        goto close_process;
    }
    status = os_memory_map(section, PAGE_BYTES, true, &page);
    if (status != GPUIPC_OK) {
        goto close_section;
    }
    exporter->process = process;
    exporter->section = section;
    exporter->page = page;
    return GPUIPC_OK;

close_section:
    os_handle_close(&section);
close_process:
    os_handle_close(&process);
    return status;
}

/** Closes in the receiver what it does not know of, or never took. Through a handle of our own, which
 *  takes the other's place: learn.microsoft.com, DuplicateHandle, DUPLICATE_CLOSE_SOURCE. */
static void export_close_there(const win32_exporter *exporter, const win32_export *export) {
    for (size_t i = 0; i < export->count; i++) {
        HANDLE back;
        if (DuplicateHandle(win32_handle_native(exporter->process),
                            (HANDLE)(uintptr_t) export->values[i], GetCurrentProcess(), &back, 0,
                            FALSE, DUPLICATE_SAME_ACCESS | DUPLICATE_CLOSE_SOURCE)) {
            CloseHandle(back);
        }
    }
}

/** Forgets the loans that the receiver has taken. */
static void exporter_settle(win32_exporter *exporter) {
    uint64_t taken = exporter->page != NULL ? atomic_load(page_taken(exporter->page)) : 0;
    while (exporter->oldest != NULL && exporter->oldest->number <= taken) {
        win32_export *export = exporter->oldest;
        exporter->oldest = export->next;
        free(export);
    }
    if (exporter->oldest == NULL) {
        exporter->newest = NULL;
    }
}

static gpuipc_status export_failed(const win32_exporter *exporter, DWORD code, os_handle handle) {
    /* A process that is just ending refuses handles before it counts as ended; the right to give it
     * some we have. */
    if (code == ERROR_ACCESS_DENIED ||
        WaitForSingleObject(win32_handle_native(exporter->process), 0) == WAIT_OBJECT_0) {
        return win32_fail_as(GPUIPC_ERR_PEER_CLOSED, code, "DuplicateHandle",
                             "the process at the other end has ended");
    }
    if (code == ERROR_INVALID_HANDLE) {
        return win32_fail_as(GPUIPC_ERR_INVALID_ARGUMENT, code, "DuplicateHandle",
                             "handle %lld is not open", (long long)handle.value);
    }
    return win32_fail(code, "DuplicateHandle", "handle %lld cannot be put into the peer",
                      (long long)handle.value);
}

/** Puts one more handle into the peer and on the export. */
static gpuipc_status export_add(const win32_exporter *exporter, win32_export *export,
                                os_handle handle) {
    HANDLE there;
    if (!DuplicateHandle(GetCurrentProcess(), win32_handle_native(handle),
                         win32_handle_native(exporter->process), &there, 0, FALSE,
                         DUPLICATE_SAME_ACCESS)) {
        return export_failed(exporter, GetLastError(), handle);
    }
    export->values[export->count++] = (uint64_t)(uintptr_t)there;
    return GPUIPC_OK;
}

gpuipc_status win32_exporter_export(win32_exporter *exporter, const os_peer *peer,
                                    const os_handle *handles, size_t count,
                                    win32_export **out_export) {
    gpuipc_status status = exporter_begin(exporter, peer);
    if (status != GPUIPC_OK) {
        return status;
    }
    exporter_settle(exporter);
    win32_export *export = calloc(1, sizeof(*export));
    if (export == NULL) {
        return status_out_of_memory(sizeof(*export));
    }
    export->number = exporter->sent + 1;
    export->has_ledger = !exporter->ledger_sent;
    if (export->has_ledger) {
        status = export_add(exporter, export, exporter->section);
    }
    for (size_t i = 0; i < count && status == GPUIPC_OK; i++) {
        status = export_add(exporter, export, handles[i]);
    }
    if (status != GPUIPC_OK) {
        win32_exporter_take_back(exporter, export);
        return status;
    }
    *out_export = export;
    return GPUIPC_OK;
}

void win32_exporter_keep(win32_exporter *exporter, win32_export *export) {
    exporter->sent = export->number;
    exporter->ledger_sent = true;
    if (exporter->newest != NULL) {
        exporter->newest->next = export;
    } else {
        exporter->oldest = export;
    }
    exporter->newest = export;
}

void win32_exporter_take_back(win32_exporter *exporter, win32_export *export) {
    export_close_there(exporter, export);
    free(export);
}

void win32_exporter_end(win32_exporter *exporter, bool peer_closed) {
    exporter_settle(exporter);
    while (exporter->oldest != NULL) {
        win32_export *export = exporter->oldest;
        exporter->oldest = export->next;
        if (peer_closed) {
            export_close_there(exporter, export);
        }
        free(export);
    }
    if (exporter->page != NULL) {
        os_memory_unmap(exporter->page, PAGE_BYTES);
        os_handle_close(&exporter->section);
        os_handle_close(&exporter->process);
    }
    memset(exporter, 0, sizeof(*exporter));
}

/** Maps the ledger that came with the first packet. */
static gpuipc_status importer_begin(win32_importer *importer, os_handle section) {
    uint64_t bytes;
    void *page;
    gpuipc_status status = os_memory_inspect(section, &bytes);
    if (status == GPUIPC_OK) {
        status = bytes < PAGE_BYTES
                     ? status_fail(GPUIPC_ERR_PROTOCOL, "the peer's ledger is shorter than a page")
                     : os_memory_map(section, PAGE_BYTES, true, &page);
    }
    if (status == GPUIPC_OK) {
        importer->page = page;
    }
    /* Most likely the peer kept the right to write back. */
    return status == GPUIPC_ERR_OS ? status_change(GPUIPC_ERR_PROTOCOL) : status;
}

static void handles_give_back(os_handle *handles, size_t count) {
    for (size_t i = 0; i < count; i++) {
        os_handle_give_up(&handles[i]); /* still the sender's: it closes them */
    }
}

static gpuipc_status importer_take(win32_importer *importer, uint64_t number, bool has_ledger,
                                   const uint64_t *values, size_t count, os_handle *out_handles) {
    os_handle claimed[WIN32_EXPORTED_MAX];
    if (number != importer->taken + 1 || has_ledger != (importer->page == NULL)) {
        return status_fail(GPUIPC_ERR_PROTOCOL,
                           "the peer's packets with handles are numbered wrong: %llu after %llu",
                           (unsigned long long)number, (unsigned long long)importer->taken);
    }
    gpuipc_status status = win32_handle_claim(values, count, claimed);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (has_ledger) {
        status = importer_begin(importer, claimed[0]);
        if (status != GPUIPC_OK) {
            handles_give_back(claimed, count);
            return status;
        }
    }
    importer->taken = number;
    atomic_store(page_taken(importer->page), number);
    if (has_ledger) {
        os_handle_close(&claimed[0]);
    }
    for (size_t i = has_ledger; i < count; i++) {
        *out_handles++ = claimed[i];
    }
    return GPUIPC_OK;
}

gpuipc_status win32_importer_take(win32_importer *importer, uint64_t number, bool has_ledger,
                                  const uint64_t *values, size_t count, os_handle *out_handles) {
    if (importer->refused) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "an earlier packet of this peer was refused");
    }
    gpuipc_status status = importer_take(importer, number, has_ledger, values, count, out_handles);
    importer->refused = status != GPUIPC_OK && status != GPUIPC_ERR_OUT_OF_MEMORY;
    return status;
}

void win32_importer_end(win32_importer *importer) {
    os_memory_unmap(importer->page, PAGE_BYTES);
    memset(importer, 0, sizeof(*importer));
}
