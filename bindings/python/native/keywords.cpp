/* SPDX-License-Identifier: MIT */
#include "keywords.hpp"

#include "failure.hpp"

namespace binding {

std::string nearest(const std::string &name, const std::vector<std::string> &names,
                    const std::string &otherwise) {
    const nb::list found = nb::borrow<nb::list>(
        nb::module_::import_("difflib").attr("get_close_matches")(name, names, 1));
    return nb::len(found) == 0 ? otherwise
                               : "; did you mean '" + nb::cast<std::string>(found[0]) + "'?";
}

void refuse_keywords(const char *function, const nb::dict &unknown,
                     const std::vector<std::string> &names) {
    for (auto [key, value] : unknown) {
        std::string all;
        for (const std::string &each : names) {
            all += (all.empty() ? "" : ", ") + each;
        }
        const std::string name = nb::cast<std::string>(key);
        throw nb::type_error((std::string(function) + "() has no argument '" + name + "'" +
                              nearest(name, names, "; it has " + all))
                                 .c_str());
    }
}

} // namespace binding
