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
 * What nobody closes before the receiver ends: the handles of one packet, of a sender that dies
 * between putting them there and writing; those of a packet that the receiver refused because it
 * broke the rules, if its sender has closed its end by then; those of what nobody took before the sender closed its
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
static gpuipc_status lender_begin(win32_lender *lender, const os_peer *peer) {
    os_handle process;
    os_handle section;
    void *page;
    if (lender->page != NULL) {
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
    lender->process = process;
    lender->section = section;
    lender->page = page;
    return GPUIPC_OK;

close_section:
    os_handle_close(&section);
close_process:
    os_handle_close(&process);
    return status;
}

/** Closes in the receiver what it does not know of, or never took. Through a handle of our own, which
 *  takes the other's place: learn.microsoft.com, DuplicateHandle, DUPLICATE_CLOSE_SOURCE. */
static void loan_close_there(const win32_lender *lender, const win32_loan *loan) {
    for (size_t i = 0; i < loan->count; i++) {
        HANDLE back;
        if (DuplicateHandle(win32_handle_native(lender->process),
                            (HANDLE)(uintptr_t)loan->values[i], GetCurrentProcess(), &back, 0,
                            FALSE, DUPLICATE_SAME_ACCESS | DUPLICATE_CLOSE_SOURCE)) {
            CloseHandle(back);
        }
    }
}

/** Forgets the loans that the receiver has taken. */
static void lender_settle(win32_lender *lender) {
    uint64_t taken = lender->page != NULL ? atomic_load(page_taken(lender->page)) : 0;
    while (lender->oldest != NULL && lender->oldest->number <= taken) {
        win32_loan *loan = lender->oldest;
        lender->oldest = loan->next;
        free(loan);
    }
    if (lender->oldest == NULL) {
        lender->newest = NULL;
    }
}

static gpuipc_status lend_failed(const win32_lender *lender, DWORD code, os_handle handle) {
    /* A process that is just ending refuses handles before it counts as ended; the right to give it
     * some we have. */
    if (code == ERROR_ACCESS_DENIED ||
        WaitForSingleObject(win32_handle_native(lender->process), 0) == WAIT_OBJECT_0) {
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

/** Puts one more handle into the peer and on the loan. */
static gpuipc_status loan_add(const win32_lender *lender, win32_loan *loan, os_handle handle) {
    HANDLE there;
    if (!DuplicateHandle(GetCurrentProcess(), win32_handle_native(handle),
                         win32_handle_native(lender->process), &there, 0, FALSE,
                         DUPLICATE_SAME_ACCESS)) {
        return lend_failed(lender, GetLastError(), handle);
    }
    loan->values[loan->count++] = (uint64_t)(uintptr_t)there;
    return GPUIPC_OK;
}

gpuipc_status win32_lender_lend(win32_lender *lender, const os_peer *peer, const os_handle *handles,
                                size_t count, win32_loan **out_loan) {
    gpuipc_status status = lender_begin(lender, peer);
    if (status != GPUIPC_OK) {
        return status;
    }
    lender_settle(lender);
    win32_loan *loan = calloc(1, sizeof(*loan));
    if (loan == NULL) {
        return status_out_of_memory(sizeof(*loan));
    }
    loan->number = lender->sent + 1;
    loan->has_ledger = !lender->ledger_sent;
    if (loan->has_ledger) {
        status = loan_add(lender, loan, lender->section);
    }
    for (size_t i = 0; i < count && status == GPUIPC_OK; i++) {
        status = loan_add(lender, loan, handles[i]);
    }
    if (status != GPUIPC_OK) {
        win32_lender_take_back(lender, loan);
        return status;
    }
    *out_loan = loan;
    return GPUIPC_OK;
}

void win32_lender_keep(win32_lender *lender, win32_loan *loan) {
    lender->sent = loan->number;
    lender->ledger_sent = true;
    if (lender->newest != NULL) {
        lender->newest->next = loan;
    } else {
        lender->oldest = loan;
    }
    lender->newest = loan;
}

void win32_lender_take_back(win32_lender *lender, win32_loan *loan) {
    loan_close_there(lender, loan);
    free(loan);
}

void win32_lender_end(win32_lender *lender, bool peer_closed) {
    lender_settle(lender);
    while (lender->oldest != NULL) {
        win32_loan *loan = lender->oldest;
        lender->oldest = loan->next;
        if (peer_closed) {
            loan_close_there(lender, loan);
        }
        free(loan);
    }
    if (lender->page != NULL) {
        os_memory_unmap(lender->page, PAGE_BYTES);
        os_handle_close(&lender->section);
        os_handle_close(&lender->process);
    }
    memset(lender, 0, sizeof(*lender));
}

/** Maps the ledger that came with the first packet. */
static gpuipc_status borrower_begin(win32_borrower *borrower, os_handle section) {
    uint64_t bytes;
    void *page;
    gpuipc_status status = os_memory_inspect(section, &bytes);
    if (status == GPUIPC_OK) {
        status = bytes < PAGE_BYTES
                     ? status_fail(GPUIPC_ERR_PROTOCOL, "the peer's ledger is shorter than a page")
                     : os_memory_map(section, PAGE_BYTES, true, &page);
    }
    if (status == GPUIPC_OK) {
        borrower->page = page;
    }
    /* Most likely the peer kept the right to write back. */
    return status == GPUIPC_ERR_OS ? status_change(GPUIPC_ERR_PROTOCOL) : status;
}

static void handles_give_back(os_handle *handles, size_t count) {
    for (size_t i = 0; i < count; i++) {
        os_handle_give_up(&handles[i]); /* still the sender's: it closes them */
    }
}

static gpuipc_status borrower_take(win32_borrower *borrower, uint64_t number, bool has_ledger,
                                   const uint64_t *values, size_t count, os_handle *out_handles) {
    os_handle claimed[WIN32_LENT_MAX];
    if (number != borrower->taken + 1 || has_ledger != (borrower->page == NULL)) {
        return status_fail(GPUIPC_ERR_PROTOCOL,
                           "the peer's packets with handles are numbered wrong: %llu after %llu",
                           (unsigned long long)number, (unsigned long long)borrower->taken);
    }
    gpuipc_status status = win32_handle_claim(values, count, claimed);
    if (status != GPUIPC_OK) {
        return status;
    }
    if (has_ledger) {
        status = borrower_begin(borrower, claimed[0]);
        if (status != GPUIPC_OK) {
            handles_give_back(claimed, count);
            return status;
        }
    }
    borrower->taken = number;
    atomic_store(page_taken(borrower->page), number);
    if (has_ledger) {
        os_handle_close(&claimed[0]);
    }
    for (size_t i = has_ledger; i < count; i++) {
        *out_handles++ = claimed[i];
    }
    return GPUIPC_OK;
}

gpuipc_status win32_borrower_take(win32_borrower *borrower, uint64_t number, bool has_ledger,
                                  const uint64_t *values, size_t count, os_handle *out_handles) {
    if (borrower->refused) {
        return status_fail(GPUIPC_ERR_PROTOCOL, "an earlier packet of this peer was refused");
    }
    gpuipc_status status = borrower_take(borrower, number, has_ledger, values, count, out_handles);
    borrower->refused = status != GPUIPC_OK && status != GPUIPC_ERR_OUT_OF_MEMORY;
    return status;
}

void win32_borrower_end(win32_borrower *borrower) {
    os_memory_unmap(borrower->page, PAGE_BYTES);
    memset(borrower, 0, sizeof(*borrower));
}
