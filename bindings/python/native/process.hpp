/* SPDX-License-Identifier: MIT */
/** @file Processes that a program names. */
#pragma once

#include <memory>

#include "failure.hpp"

namespace binding {

/** A process, of which it can be asked whether it has ended. Another one with the same number is not taken for it. */
class process {
  public:
    /** Takes the descriptor over: what pidfd_open(2) gives. */
    explicit process(int descriptor) : descriptor_(descriptor) {
    }
    process(const process &) = delete;
    process &operator=(const process &) = delete;
    ~process();
    /** On any thread, with or without the GIL. */
    bool has_ended() const;

  private:
    int descriptor_;
};

/** The process of this number; None: nothing is named, and the answer is NULL. All callers that name one process have one
 *  descriptor in common. With the GIL. Throws ProcessLookupError where it has ended, and what the system answers else. */
std::shared_ptr<process> process_from(nb::handle number);

} // namespace binding
