/* SPDX-License-Identifier: MIT */
/** @file Buffers as Python sees them. */
#pragma once

#include "memory.hpp"

namespace binding {

struct buffer_object {
    std::shared_ptr<memory> core;
};

/** A new buffer of the library: what it says of it, once. */
std::shared_ptr<memory> memory_of(std::shared_ptr<context> of, gpuipc_buffer *taken);

/** Makes memory. Throws; the arguments are those of gpuipc.empty(). */
std::shared_ptr<memory> create_memory(uint64_t bytes, nb::handle device, nb::handle openers,
                                      nb::handle access_devices, nb::handle transport,
                                      nb::handle context);

void bind_buffer(nb::module_ &m);

} // namespace binding
