/* SPDX-License-Identifier: MIT */
/** @file What the machine has: ways between devices, what joins them, kinds of memory. gpuipc/machine.py makes objects
 *  of what is answered here. */
#pragma once

#include "failure.hpp"

namespace binding {

void bind_machine(nb::module_ &m);

} // namespace binding
