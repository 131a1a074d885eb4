/* SPDX-License-Identifier: MIT */
/** @file What is handed to other processes and comes back. */
#pragma once

#include "failure.hpp"

namespace binding {

void bind_returns(nb::module_ &m);

} // namespace binding
