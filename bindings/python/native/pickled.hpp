/* SPDX-License-Identifier: MIT */
/** @file The bytes by which pickles hand Arrays over. For each memory a ticket, and the mark of this very hand-over;
 *  for each Array where it is. */
#pragma once

#include "array.hpp"

namespace binding {

/** A tuple of objects, as nb::make_tuple() makes it, and in less time. */
template <typename... kinds> nb::object packed(const kinds &...items) {
    nb::object made = nb::steal(PyTuple_Pack(sizeof...(items), items.ptr()...));
    if (!made.is_valid()) {
        throw nb::python_error();
    }
    return made;
}

/** What copyreg has for Arrays, and what unpickling calls. */
void bind_pickled(nb::module_ &m);

} // namespace binding
