/* SPDX-License-Identifier: MIT */
#include "process.hpp"

#include <cerrno>
#include <map>

#include <poll.h>
#include <unistd.h>

#include "asked.hpp"

namespace binding {

process::~process() {
    (void)close(descriptor_);
}

/* pidfd_open(2): it is readable when the process has ended, also before its parent has waited for it. */
bool process::has_ended() const {
    pollfd look = {descriptor_, POLLIN, 0};
    return poll(&look, 1, 0) == 1;
}

namespace {

/* Never destroyed, as everything that the end of the process ends. With the GIL. */
std::map<int, std::weak_ptr<process>> &all_processes() {
    static auto &only = *new std::map<int, std::weak_ptr<process>>;
    return only;
}

void forget_those_gone() {
    for (auto each = all_processes().begin(); each != all_processes().end();) {
        each = each->second.expired() ? all_processes().erase(each) : std::next(each);
    }
}

[[noreturn]] void refuse_ended(int id) {
    PyErr_Format(PyExc_ProcessLookupError, "process %d has ended", id);
    throw nb::python_error();
}

[[noreturn]] void refuse_without_pidfd() {
    fail(
        GPUIPC_ERR_NOT_SUPPORTED, "lend",
        "pidfd_open() is not available here: omit 'to', and call Lent.cancel() when the process ends");
}

/* Kernels before 5.3 do not have it, and the seccomp filters of some containers refuse it with EPERM. */
bool is_missing(const nb::python_error &error) {
    if (!error.matches(PyExc_OSError)) {
        return false;
    }
    const int code = nb::cast<int>(error.value().attr("errno"));
    return code == ENOSYS || code == EPERM;
}

} // namespace

std::shared_ptr<process> process_from(nb::handle number) {
    if (number.is_none()) {
        return nullptr;
    }
    const int id = nb::cast<int>(number);
    const auto known = all_processes().find(id);
    if (known != all_processes().end()) {
        std::shared_ptr<process> same = known->second.lock();
        if (same != nullptr && !same->has_ended()) { /* else the number may be another's by now */
            return same;
        }
    }
    const nb::object open = attribute_of(nb::module_::import_("os"), "pidfd_open");
    if (!open.is_valid()) {
        refuse_without_pidfd();
    }
    nb::object descriptor;
    try {
        descriptor = asked([&] { return open(id); });
    } catch (nb::python_error &error) {
        if (error.matches(PyExc_ProcessLookupError)) {
            refuse_ended(id);
        }
        if (is_missing(error)) {
            refuse_without_pidfd();
        }
        throw;
    }
    auto made = std::make_shared<process>(nb::cast<int>(descriptor));
    if (made->has_ended()) {
        refuse_ended(id);
    }
    forget_those_gone();
    all_processes()[id] = made;
    return made;
}

} // namespace binding
