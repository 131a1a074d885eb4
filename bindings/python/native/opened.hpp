/* SPDX-License-Identifier: MIT */
/** @file What is open by which ticket: who opens one again gets the same reference, without a call of the library. */
#pragma once

#include <map>
#include <memory>

#include <gpuipc/gpuipc.h>

namespace binding {

class hold;

/** How something was opened. No part needs padding. */
struct opening {
    gpuipc_ticket ticket;
    uint32_t device; /* as gpuipc_open_config has it */
    gpuipc_access access;

    bool operator<(const opening &other) const;
};

/** Of a context. What is opened by a policy is not in it, since each policy is to be asked. With the GIL. */
class opened_holds {
  public:
    /** NULL: nobody has it open. */
    std::shared_ptr<hold> find(const opening &by) const;
    /** Also for who says its device, or its owner, in the other way. */
    void add(const opening &by, const std::shared_ptr<hold> &made);

  private:
    void forget_those_gone();

    /* In order, and not by a hash: whoever makes tickets cannot make finding them slow. */
    std::map<opening, std::weak_ptr<hold>> all_;
    size_t look_at_ = 16; /* when there are so many, those that are gone are forgotten */
};

} // namespace binding
