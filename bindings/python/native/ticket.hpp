/* SPDX-License-Identifier: MIT */
/** @file Tickets as Python's values. */
#pragma once

#include "failure.hpp"

namespace binding {

/** A ticket, or the bytes or the text of one. */
gpuipc_ticket ticket_from(nb::handle argument);

void bind_ticket(nb::module_ &m);

} // namespace binding
