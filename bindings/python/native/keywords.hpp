/* SPDX-License-Identifier: MIT */
/** @file Arguments by name: a misspelt one is refused with the nearest name. */
#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace binding {

/** "; did you mean 'X'?" for the one of @p names that is spelt like @p name. Where none is, @p otherwise. */
std::string nearest(const std::string &name, const std::vector<std::string> &names,
                    const std::string &otherwise);

/** Throws TypeError for the first of @p unknown, which may be none. */
void refuse_keywords(const char *function, const nb::dict &unknown,
                     const std::vector<std::string> &names);

namespace keywords {

template <typename extra, typename = void> constexpr bool is_argument = false;
template <typename extra>
constexpr bool is_argument<extra, std::void_t<decltype(std::declval<extra>().name_)>> = true;

template <typename extra, typename = void> constexpr bool is_optional = false;
template <typename extra>
constexpr bool is_optional<
    extra, std::void_t<decltype(std::declval<extra>().name_, std::declval<extra>().value)>> = true;

template <typename extra> void add(std::vector<std::string> &names, const extra &each) {
    if constexpr (is_argument<extra>) {
        names.emplace_back(each.name_);
    }
}

template <typename function, typename result, typename... arguments>
auto checked(function &&call, result (*)(arguments...), std::string name,
             std::vector<std::string> names) {
    return [call = std::forward<function>(call), name = std::move(name),
            names = std::move(names)](arguments... given, nb::kwargs unknown) -> result {
        if (unknown.size() != 0) {
            refuse_keywords(name.c_str(), unknown, names);
        }
        return call(std::forward<arguments>(given)...);
    };
}

template <typename type> struct signature : signature<decltype(&type::operator())> {};
template <typename result, typename... arguments> struct signature<result (*)(arguments...)> {
    using type = result (*)(arguments...);
};
template <typename of, typename result, typename... arguments>
struct signature<result (of::*)(arguments...) const> {
    using type = result (*)(arguments...);
};

} // namespace keywords

/** Whether a function has arguments that a call may omit. Without a required one, nanobind refuses the call itself. */
template <typename... extras>
constexpr bool has_keywords = (keywords::is_optional<std::decay_t<extras>> || ...);

/** The function with one more argument, for nb::arg("unknown"): the names that it does not have. */
template <typename function, typename... extras>
auto with_known_keywords(std::string name, function &&call, const extras &...more) {
    std::vector<std::string> names;
    (keywords::add(names, more), ...);
    using pointer = typename keywords::signature<std::decay_t<function>>::type;
    return keywords::checked(std::forward<function>(call), pointer{}, std::move(name),
                             std::move(names));
}

} // namespace binding
