/* SPDX-License-Identifier: MIT */
/** @file Tickets given out for memory. */
#pragma once

#include <optional>
#include <string>

#include "memory.hpp"

namespace binding {

/** What may be said of a ticket, as Python's arguments have it. */
struct share_options {
    uint64_t offset = 0;
    std::optional<uint64_t> bytes;
    gpuipc_access access = GPUIPC_ACCESS_DEFAULT;
    std::optional<double> expires;
    std::optional<uint32_t> max_processes;
    bool one_shot = false;
    gpuipc_stream stream = nullptr;
    bool is_ready = false;
    bool waits = true;
    std::string attachment;
    gpuipc_server *server = nullptr; /* that of the memory's context */
};

/** Waits for the GPU work that makes the contents, as the options say. */
gpuipc_ticket share(memory &shared, const share_options &options);

/** "r" or "rw"; None: the default. Throws ValueError. */
gpuipc_access access_from(nb::handle argument);
/** Whom the memory that it is for belongs to. NULL: nobody else, or another process made the ticket. With the GIL. */
std::shared_ptr<owner> owner_by_ticket(const gpuipc_ticket &ticket);

} // namespace binding
