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
        end_ = clock::now() +
               std::chrono::ceil<clock::duration>(std::chrono::duration<double>(*seconds));
    }
}

int patience::left() const {
    if (!end_) {
        return -1;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end_ - clock::now()).count();
    if (left <= 0) {
        return 0;
    }
    return left < std::numeric_limits<int>::max() ? static_cast<int>(left)
                                                  : std::numeric_limits<int>::max();
}

void run_signal_handlers() {
    if (PyErr_CheckSignals() != 0) {
        throw nb::python_error();
    }
}

} // namespace binding
