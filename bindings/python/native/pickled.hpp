/* SPDX-License-Identifier: MIT */
/** @file The bytes by which pickles hand Arrays over. For each memory a ticket, and the mark of this very hand-over;
 *  for each Array where it is. */
#pragma once

#include "array.hpp"

namespace binding {

/** What copyreg has for Arrays, and what unpickling calls. */
void bind_pickled(nb::module_ &m);

} // namespace binding
