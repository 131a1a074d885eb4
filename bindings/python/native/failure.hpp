/* SPDX-License-Identifier: MIT */
/** @file Failures of the library as Python's exceptions: the tree is in gpuipc/errors.py. */
#pragma once

#include <gpuipc/gpuipc.h>
#include <nanobind/nanobind.h>
/* Here for all: a file that casts without them would compile, and mean something else. */
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "exclusive.hpp"
#include "without_gil.hpp"

namespace binding {

/** Throws unless the call went well. To be called with the GIL, by the thread that made the call, before anything else
 *  of gpuipc runs there: the particulars are in that thread's record. */
void check(gpuipc_status status);

/** Throws the exception of a status that the binding itself decided on, with a sentence of its own. */
[[noreturn]] void fail(gpuipc_status status, const char *operation, const char *sentence);

/** A text as the library has it. Throws a ValueError where a NUL in its midst would end it early. */
const char *c_text(const std::string &text);

/** What a call answers that runs without the GIL; for check(). */
template <typename call_type> gpuipc_status released(call_type call) {
    const without_gil without;
    return call();
}

} // namespace binding
