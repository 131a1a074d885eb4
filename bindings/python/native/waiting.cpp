/* SPDX-License-Identifier: MIT */
#include "waiting.hpp"

#include <cmath>
#include <limits>

namespace binding {

patience::patience(std::optional<double> seconds) {
    if (!seconds) {
        return;
    }
    if (std::isnan(*seconds) || *seconds < 0) {
        throw nb::value_error("a timeout is a number of seconds from 0 on, or None: for ever");
    }
    /* Longer than a process lives: for ever. */
    constexpr double ten_years = 10.0 * 365 * 24 * 3600;
    if (*seconds < ten_years) {
        whole_ = std::chrono::ceil<clock::duration>(std::chrono::duration<double>(*seconds));
    }
}

static int milliseconds(std::chrono::steady_clock::duration time) {
    const auto count = std::chrono::ceil<std::chrono::milliseconds>(time).count();
    if (count <= 0) {
        return 0;
    }
    return count < std::numeric_limits<int>::max() ? static_cast<int>(count)
                                                   : std::numeric_limits<int>::max();
}

int patience::whole() const {
    return whole_ ? milliseconds(*whole_) : -1;
}

int patience::left() const {
    if (!whole_) {
        return -1;
    }
    if (!end_) {
        end_ = clock::now() + *whole_;
        return whole();
    }
    return milliseconds(*end_ - clock::now());
}

void run_signal_handlers() {
    if (PyErr_CheckSignals() != 0) {
        throw nb::python_error();
    }
}

} // namespace binding
