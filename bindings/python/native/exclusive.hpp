/* SPDX-License-Identifier: MIT */
/** @file One call of Python's at a time in this module, also where Python has no GIL. */
#pragma once

#include <utility>

#include "keywords.hpp"

namespace nb = nanobind;

namespace binding {

/**
 * For as long as it lives, no other thread of Python's is in the module's own functions: in a Python without a GIL, a
 * critical section of the module (PEP 703). Python gives it up wherever it would give up a GIL, and takes it again: so
 * "with the GIL" in this module means the same in both, and released() lets others in. It is nothing where there is a GIL.
 */
class exclusive {
  public:
    exclusive() : section_(module_) {
    }
    /** Before anything else: what the section is of. It lives as long as the process does. */
    static void begin(const nb::module_ &m) {
        module_ = nb::handle(m).inc_ref();
    }

  private:
    inline static nb::handle module_;
    [[maybe_unused]] nb::ft_object_guard section_;
};

/** A function of the module. One with optional arguments refuses names that it does not know. */
template <typename function, typename... extras>
void define(nb::module_ &m, const char *name, function &&call, const extras &...more) {
    if constexpr (has_keywords<extras...>) {
        m.def(name, with_known_keywords(name, std::forward<function>(call), more...),
              nb::call_guard<exclusive>(), more..., nb::arg("unknown"));
    } else {
        m.def(name, std::forward<function>(call), nb::call_guard<exclusive>(), more...);
    }
}

/** A class of the module: all that Python calls of it is exclusive. */
template <typename bound, typename... bases>
class bound_class : public nb::class_<bound, bases...> {
    using base = nb::class_<bound, bases...>;

  public:
    using base::base;

    template <typename function, typename... extras>
    bound_class &def(const char *name, function &&call, const extras &...more) {
        if constexpr (has_keywords<extras...>) {
            base::def(name,
                      with_known_keywords(called(name), std::forward<function>(call), more...),
                      nb::call_guard<exclusive>(), more..., nb::arg("unknown"));
        } else {
            base::def(name, std::forward<function>(call), nb::call_guard<exclusive>(), more...);
        }
        return *this;
    }
    /** A constructor. */
    template <typename visitor, typename... extras>
    bound_class &def(nb::def_visitor<visitor> &&made, const extras &...more) {
        base::def(std::move(made), nb::call_guard<exclusive>(), more...);
        return *this;
    }
    template <typename function, typename... extras>
    bound_class &def_static(const char *name, function &&call, const extras &...more) {
        if constexpr (has_keywords<extras...>) {
            base::def_static(name, with_known_keywords(name, std::forward<function>(call), more...),
                             nb::call_guard<exclusive>(), more..., nb::arg("unknown"));
        } else {
            base::def_static(name, std::forward<function>(call), nb::call_guard<exclusive>(),
                             more...);
        }
        return *this;
    }
    template <typename getter, typename... extras>
    bound_class &def_prop_ro(const char *name, getter &&get, const extras &...more) {
        base::def_prop_ro(name, std::forward<getter>(get), nb::call_guard<exclusive>(), more...);
        return *this;
    }
    template <typename getter, typename setter, typename... extras>
    bound_class &def_prop_rw(const char *name, getter &&get, setter &&set, const extras &...more) {
        base::def_prop_rw(name, std::forward<getter>(get), std::forward<setter>(set),
                          nb::call_guard<exclusive>(), more...);
        return *this;
    }
    template <typename member, typename... extras>
    bound_class &def_ro(const char *name, member bound::*of, const extras &...more) {
        base::def_ro(name, of, nb::call_guard<exclusive>(), more...);
        return *this;
    }

  private:
    /** As a program calls it: a constructor by its class. */
    std::string called(const std::string &name) const {
        return name == "__init__" ? nb::borrow<nb::str>(this->attr("__name__")).c_str() : name;
    }
};

} // namespace binding
