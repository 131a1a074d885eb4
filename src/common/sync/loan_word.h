/* SPDX-License-Identifier: MIT */
/**
 * @file The words of loans. The first page of points of each connection has one for each loan, behind those of marks. The
 * process that has the page writes it when it takes the loan and when it returns it. The lender writes it once: so that
 * nobody takes it any more.
 */
#ifndef GPUIPC_LOAN_WORD_H
#define GPUIPC_LOAN_WORD_H

#include "sync/mark.h"

/** How often a loan was taken by way of the page, times 2^16, and which was the last. */
#define LOAN_TAKES_WORD  (MARK_WORDS_END)
#define LOAN_WORDS_BEGIN (MARK_WORDS_END + 1u)

_Static_assert(LOAN_WORDS_BEGIN + LOAN_SLOTS <= LIFELINE_WORD, "the words lie in the page");

/** What the word of a loan is when it was taken: the number of the loan's use, above what only the mark tells. */
static inline uint64_t loan_taken_value(uint32_t value, uint16_t secret) {
    return (uint64_t)value << 32 | (uint64_t)secret << 8 | 1u;
}

/** And so much more when it was returned. */
#define LOAN_RETURNED 1u

static inline atomic_uint_least64_t *loan_word(const point_page *page, uint32_t number) {
    return &page->words[LOAN_WORDS_BEGIN + number];
}

static inline point_word loan_returned_word(point_page *page, uint32_t number, uint32_t value,
                                            uint16_t secret) {
    return (point_word){page, LOAN_WORDS_BEGIN + number,
                        loan_taken_value(value, secret) + LOAN_RETURNED};
}

#endif
