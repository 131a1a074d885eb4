/* SPDX-License-Identifier: MIT */
#include "policy.hpp"

#include "asked.hpp"

namespace binding {

peer_rule::peer_rule(nb::handle users, nb::handle policy) {
    if (!users.is_none()) {
        has_users_ = true;
        if (nb::isinstance<nb::str>(users)) { /* whose characters would be users */
            throw nb::type_error("users is several: numbers, or texts as of Connection.peer_user");
        }
        for (nb::handle each : list_of(users)) {
            users_.insert(c_text(nb::cast<std::string>(text_of(each))));
        }
    }
    if (!policy.is_none()) {
        if (PyCallable_Check(policy.ptr()) == 0) {
            throw nb::type_error(
                "a policy is a function of a gpuipc.Peer that answers True or False");
        }
        policy_ = nb::borrow(policy);
    }
}

gpuipc_peer_policy peer_rule::function() const {
    return has_users_ || calls_python() ? decide : nullptr;
}

/* By the library, on a thread that has not the GIL. */
int peer_rule::decide(void *self, const gpuipc_peer_info *peer) {
    const peer_rule &rule = *static_cast<const peer_rule *>(self);
    if (rule.has_users_ && peer->same_user == 0 && rule.users_.count(peer->user) == 0) {
        return 0;
    }
    return !rule.calls_python() || rule.is_admitted(*peer) ? 1 : 0;
}

/* What raises has not said yes. */
bool peer_rule::is_admitted(const gpuipc_peer_info &peer) const {
    const with_gil with;
    try {
        const nb::object said = asked([&] { return policy_(peer); });
        const int answer = asked([&] { return PyObject_IsTrue(said.ptr()); });
        if (answer >= 0) {
            return answer != 0;
        }
    } catch (nb::python_error &error) {
        error.restore();
    } catch (const std::exception &error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    asked([&] { PyErr_WriteUnraisable(policy_.ptr()); });
    return false;
}

void bind_policy(nb::module_ &m) {
    bound_class<gpuipc_peer_info>(m, "Peer",
                                  "The process at the other end, as the operating system says.")
        .def_ro("process_id", &gpuipc_peer_info::process_id,
                "0: not in this process's PID namespace.")
        .def_prop_ro(
            "user", [](const gpuipc_peer_info &self) { return nb::str(self.user); },
            "Whose process it is, as a number or, on Windows, a SID.")
        .def_prop_ro(
            "is_same_user", [](const gpuipc_peer_info &self) { return self.same_user != 0; },
            "Its user is this process's.")
        .def_prop_ro(
            "is_running",
            [](const gpuipc_peer_info &self) -> std::optional<bool> {
                return self.is_running < 0 ? std::nullopt
                                           : std::optional<bool>(self.is_running != 0);
            },
            "None: cannot be known.")
        .def("__repr__", [](const gpuipc_peer_info &self) {
            return nb::str("<gpuipc.Peer {} of user {}>").format(self.process_id, self.user);
        });
}

} // namespace binding
