/* SPDX-License-Identifier: MIT */
/** @file Who may talk to this process: users by a list, or each process by a function of Python. */
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "failure.hpp"

namespace binding {

/** Kept by whatever was made with it, until that has ended. Destroyed with the GIL. */
class peer_rule {
  public:
    /** Throws TypeError for what is neither users nor a function. */
    peer_rule(nb::handle users, nb::handle policy);

    /** Without either: what the library does by itself, that is, this user's processes only. */
    gpuipc_peer_policy function() const;
    void *data() {
        return this;
    }
    /** It calls Python, and so has to be done with before Python ends. */
    bool calls_python() const {
        return policy_.is_valid();
    }

  private:
    static int decide(void *self, const gpuipc_peer_info *peer);
    bool is_admitted(const gpuipc_peer_info &peer) const;

    std::set<std::string> users_;
    bool has_users_ = false;
    nb::object policy_;
};

void bind_policy(nb::module_ &m);

} // namespace binding
