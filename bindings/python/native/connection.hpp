/* SPDX-License-Identifier: MIT */
/** @file Listeners, connections and messages as Python sees them. */
#pragma once

#include "failure.hpp"

namespace binding {

void bind_connection(nb::module_ &m);

} // namespace binding
