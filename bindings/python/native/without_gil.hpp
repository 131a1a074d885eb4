/* SPDX-License-Identifier: MIT */
/** @file Without the GIL for a while. */
#pragma once

#include <chrono>
#include <thread>

#include <nanobind/nanobind.h>

namespace binding {

/** To the end of the process, without the GIL. */
[[noreturn]] inline void stand_still() {
    for (;;) {
        std::this_thread::sleep_for(std::chrono::hours(1));
    }
}

/**
 * For as long as it lives, other threads of Python's run. When the interpreter ends, Python before 3.14 ends a daemon thread
 * that takes the GIL again: pthread_exit() unwinds the thread's stack (docs.python.org, PyEval_RestoreThread). A destructor
 * that is unwound through ends the process, and those above would drop references without the GIL. So the thread stands still
 * here to the end of the process, as it does from 3.14 on.
 */
class without_gil {
  public:
    without_gil() : state_(PyEval_SaveThread()) {
    }
    ~without_gil() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) { /* it throws nothing itself */
            stand_still();
        }
    }
    without_gil(const without_gil &) = delete;
    without_gil &operator=(const without_gil &) = delete;

  private:
    PyThreadState *state_;
};

} // namespace binding
