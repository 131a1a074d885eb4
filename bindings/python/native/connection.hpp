/* SPDX-License-Identifier: MIT */
/** @file Listeners, connections and messages as Python sees them. */
#pragma once

#include "failure.hpp"

namespace binding {

/** The connection that an argument is; None: nullptr. Throws TypeError. */
gpuipc_connection *connection_from(nb::handle argument);

void bind_connection(nb::module_ &m);

} // namespace binding
