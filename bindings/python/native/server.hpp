/* SPDX-License-Identifier: MIT */
/** @file Servers of one's own, beside that of a context: with a policy, or polled by the program. */
#pragma once

#include <vector>

#include "context.hpp"
#include "policy.hpp"

namespace binding {

class server_object;

/** The server that an argument names; None: nullptr, the context's own. Throws TypeError. */
gpuipc_server *server_from(nb::handle argument);

/** Who has a ticket's buffer open. */
std::vector<gpuipc_holder> holders_of(gpuipc_server *server, nb::handle ticket);

void bind_server(nb::module_ &m);

} // namespace binding
