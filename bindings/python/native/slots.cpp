/* SPDX-License-Identifier: MIT */
#include "slots.hpp"

#include <map>
#include <mutex>

#include <nanobind/nanobind.h>

namespace binding {

namespace {

struct all_slots {
    std::mutex mutex;
    std::multimap<uint64_t, uint64_t> bytes; /* by addresses; twice for who reads its own channel */
};

/* Never destroyed: what the end of the process ends may come later. */
all_slots *&current() {
    static all_slots *only = new all_slots;
    return only;
}

bool is_in_slot(uint64_t address) {
    all_slots &all = *current();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto after = all.bytes.upper_bound(address);
    return after != all.bytes.begin() &&
           address - std::prev(after)->first < std::prev(after)->second;
}

} // namespace

slots_mark::slots_mark(uint64_t address, uint64_t bytes) : address_(address) {
    all_slots &all = *current();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.bytes.emplace(address, bytes);
}

/* All of one address are of one length, so whichever goes is right. A forked child has none of its parent's. */
slots_mark::~slots_mark() {
    all_slots &all = *current();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.bytes.find(address_);
    if (found != all.bytes.end()) {
        all.bytes.erase(found);
    }
}

void check_no_slot(uint64_t address) {
    if (is_in_slot(address)) {
        throw nanobind::type_error(
            "this is memory of a channel's frame, which shows other frames later: copy it (clone() of a tensor), or "
            "give the other process Channel.ticket()");
    }
}

void slots_forget() {
    current() = new all_slots;
}

} // namespace binding
