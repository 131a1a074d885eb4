/* SPDX-License-Identifier: MIT */
/** @file What tickets become in the process that opens them. */
#pragma once

#include "memory.hpp"

namespace binding {

/** Opens memory that was handed over, for gpuipc.config.open_device. Waits for the server where it is not open yet, and
 *  not for the contents. */
std::shared_ptr<memory> open_handed_over(const gpuipc_ticket &ticket);

} // namespace binding
