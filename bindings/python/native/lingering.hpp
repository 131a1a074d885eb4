/* SPDX-License-Identifier: MIT */
/** @file Memory that is gone here and not elsewhere: it was wrapped or pickled, and other processes have it, or may yet open
 *  it. A thread looks whether that is over, as long as there is any. It takes the GIL for nothing but
 *  objects of Python that were kept for it. */
#pragma once

#include "memory.hpp"

namespace binding {

/** Its owner may use it anew, or it is freed, when nobody can open it any more and nobody has it. */
struct lingering {
    std::shared_ptr<context> of;
    std::shared_ptr<hold> held_buffer;
    std::shared_ptr<owner> held;
    std::chrono::steady_clock::time_point shared_until;
    hand_overs handed;

    gpuipc_buffer *buffer() const {
        return held_buffer->handle();
    }
};

/** Takes it over until then, which may be now. On any thread, with or without the GIL. */
void linger(lingering what);

/** What was opened stays open for so long from now on, whoever lets go of it: what comes next in the same memory finds it
 *  open. The thread ends that, or who closes its context. Of those that are kept there are 64 at most. */
void keep_open(const std::shared_ptr<context> &of, const std::shared_ptr<hold> &what,
               double seconds);
/** Before a context is closed. */
void keep_no_more(const context *of);

/** The thread is to look after the hand-overs of tensors (parcel.hpp), too: there is one more. */
void lingering_expect();

/** Gives up at once what is over by now, which the thread does by and by. On any thread. */
void lingering_look();

/** How much there still is. */
size_t lingering_count();

/** Once, when the module is loaded. */
void lingering_begin();
/** Ends the thread: when Python has ended, and before the contexts are closed. */
void lingering_end();

} // namespace binding
