/* SPDX-License-Identifier: MIT */
/** @file Functions and attributes of other people's Python, which may run for long, and during which the process may end. */
#pragma once

#include <exception>
#include <optional>

#include "without_gil.hpp"

namespace nb = nanobind;

namespace binding {

/**
 * Calls what runs such a function. There a daemon thread may be ended as in without_gil, and stands still before anything above
 * is unwound. With the GIL, and in no handler: an exception that is not C++'s ends the process there. The call itself owns no references meanwhile, and is none that is noexcept (nb::hasattr).
 */
template <typename call_type> auto asked(call_type call) -> decltype(call()) {
    try {
        return call();
    } catch (...) {
        if (std::current_exception() == nullptr) { /* no exception of C++ */
            stand_still();
        }
        throw;
    }
}

/** An attribute; none: it has not that. */
inline nb::object attribute_of(nb::handle of, const char *name) {
    PyObject *const found = asked([&] { return PyObject_GetAttrString(of.ptr(), name); });
    if (found == nullptr) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) {
            throw nb::python_error();
        }
        PyErr_Clear();
    }
    return nb::steal(found);
}

/** What such a call of Python's has answered. */
template <typename call_type> nb::object answer_of(call_type call) {
    PyObject *const answer = asked(call);
    if (answer == nullptr) {
        throw nb::python_error();
    }
    return nb::steal(answer);
}

/** What something goes through, to be gone through here without running what is its own. */
inline nb::list list_of(nb::handle of) {
    return nb::borrow<nb::list>(answer_of([&] { return PySequence_List(of.ptr()); }));
}

/** An integer, by __index__ where it is of another type; none: it does not fit. */
inline std::optional<int64_t> integer_of(nb::handle of) {
    const nb::object exact = answer_of([&] { return PyNumber_Index(of.ptr()); });
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(exact.ptr(), &overflow);
    return overflow == 0 ? std::optional<int64_t>(value) : std::nullopt;
}

/** As of[at]. */
inline nb::object item_of(nb::handle of, nb::handle at) {
    return answer_of([&] { return PyObject_GetItem(of.ptr(), at.ptr()); });
}

inline nb::object item_of(nb::handle of, int at) {
    return item_of(of, nb::int_(at));
}

/** As str(of). */
inline nb::str text_of(nb::handle of) {
    return nb::borrow<nb::str>(answer_of([&] { return PyObject_Str(of.ptr()); }));
}

/** For as long as it lives, a thread that may not be one of Python's has the GIL. */
class with_gil {
  public:
    with_gil() : state_(asked([] { return PyGILState_Ensure(); })) {
    }
    ~with_gil() {
        PyGILState_Release(state_);
    }
    with_gil(const with_gil &) = delete;
    with_gil &operator=(const with_gil &) = delete;

  private:
    PyGILState_STATE state_;
};

} // namespace binding
