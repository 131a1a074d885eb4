/* SPDX-License-Identifier: MIT */
/** @file Manifests as Python sees them: which named arrays lie where in one buffer. */
#pragma once

#include "array.hpp"

namespace binding {

/** What an array is to be: (shape, dtype), or whatever has these two. Throws TypeError or ValueError. */
layout layout_of_spec(nb::handle spec);

/** Arrays side by side, each at a multiple of alignment bytes, in the order in which they are named. */
std::vector<std::pair<std::string, layout>> layouts_arranged(const nb::dict &specs,
                                                             uint64_t alignment);

void bind_manifest(nb::module_ &m);

} // namespace binding
