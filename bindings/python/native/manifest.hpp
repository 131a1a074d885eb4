/* SPDX-License-Identifier: MIT */
/** @file Manifests as Python sees them: which named arrays lie where in one buffer. */
#pragma once

#include "failure.hpp"

namespace binding {

void bind_manifest(nb::module_ &m);

} // namespace binding
