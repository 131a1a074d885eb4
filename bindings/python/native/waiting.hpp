/* SPDX-License-Identifier: MIT */
/** @file Waits that end in time, and that Ctrl-C ends. */
#pragma once

#include <chrono>
#include <optional>

#include "failure.hpp"

namespace binding {

/** How long a call may wait, as Python's own calls are told: seconds, None for ever. The time begins when it is first asked
 *  what is left: most calls wait for nothing, and the clock takes as long as a part of them. */
class patience {
  public:
    /** Throws ValueError for what is no length of time. */
    explicit patience(std::optional<double> seconds);
    /** What is left, in milliseconds and rounded up; -1: for ever. */
    int left() const;
    /** All of it, likewise. It does not begin. */
    int whole() const;

  private:
    using clock = std::chrono::steady_clock;
    std::optional<clock::duration> whole_;         /* none: for ever */
    mutable std::optional<clock::time_point> end_; /* none: it has not begun */
};

/** Runs the handlers of signals that have come: throws what they raise. */
void run_signal_handlers();

/** The longest that a call waits at a stretch. A signal that arrives just before the call begins to wait does not
 *  interrupt it (GPUIPC_CONTEXT_INTERRUPTIBLE): its handler runs when the stretch is over. */
constexpr int longest_stretch_ms = 500;

/**
 * Waits without the GIL until the call answers something else than that it was interrupted, or that its time ran out
 * before all of it was over. For calls that lose nothing by being made again.
 * @param call what is called, with the milliseconds that it may take
 * @param not_yet what it answers, beside GPUIPC_ERR_TIMEOUT, when it would have had to wait longer
 */
template <typename call_type>
void wait(const patience &time, call_type call, gpuipc_status not_yet = GPUIPC_ERR_TIMEOUT) {
    for (;;) {
        const int left = time.left();
        const bool is_last = left >= 0 && left <= longest_stretch_ms;
        const int stretch = is_last ? left : longest_stretch_ms;
        const gpuipc_status status = released([&] { return call(stretch); });
        const bool goes_on = status == GPUIPC_ERR_INTERRUPTED ||
                             (!is_last && (status == GPUIPC_ERR_TIMEOUT || status == not_yet));
        if (!goes_on) {
            check(status);
            return;
        }
        run_signal_handlers();
    }
}

/** The same for a call that may not be cut into stretches, because running out of time costs something. Mostly it waits for
 *  nothing, so the time begins when it is interrupted. */
template <typename call_type> void wait_at_once(const patience &time, call_type call) {
    for (int left = time.whole();; left = time.left()) {
        const gpuipc_status status = released([&] { return call(left); });
        if (status != GPUIPC_ERR_INTERRUPTED) {
            check(status);
            return;
        }
        run_signal_handlers();
    }
}

} // namespace binding
