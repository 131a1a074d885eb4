/* SPDX-License-Identifier: MIT */
#include "opened.hpp"

#include <algorithm>
#include <cstring>

#include "memory.hpp"

namespace binding {

static_assert(sizeof(opening) == sizeof(gpuipc_ticket) + sizeof(uint32_t) + sizeof(gpuipc_access));

bool opening::operator<(const opening &other) const {
    return memcmp(this, &other, sizeof(other)) < 0;
}

std::shared_ptr<hold> opened_holds::find(const opening &by) const {
    const auto found = all_.find(by);
    std::shared_ptr<hold> made = found != all_.end() ? found->second.lock() : nullptr;
    return made != nullptr && made->can_be_shared() ? made : nullptr;
}

void opened_holds::add(const opening &by, const std::shared_ptr<hold> &made) {
    const gpuipc_buffer_info &info = made->info();
    opening other = by; /* that says the same */
    forget_those_gone();
    all_[by] = made;
    if (info.access_device == info.device) {
        other.device =
            by.device == GPUIPC_DEVICE_OWNER ? GPUIPC_DEVICE(info.device) : GPUIPC_DEVICE_OWNER;
        all_[other] = made;
    }
}

/* So that it does not grow with what is gone. */
void opened_holds::forget_those_gone() {
    if (all_.size() < look_at_) {
        return;
    }
    for (auto each = all_.begin(); each != all_.end();) {
        each = each->second.expired() ? all_.erase(each) : std::next(each);
    }
    look_at_ = std::max<size_t>(16, 2 * all_.size());
}

} // namespace binding
