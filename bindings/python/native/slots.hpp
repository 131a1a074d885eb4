/* SPDX-License-Identifier: MIT */
/** @file Where the slots of channels lie: memory that shows other frames later, and so is not handed over. */
#pragma once

#include <cstdint>

namespace binding {

/** Memory at this address is a channel's for as long as it lives. Made and ended on any thread, with or without the GIL. */
class slots_mark {
  public:
    slots_mark(uint64_t address, uint64_t bytes);
    slots_mark(const slots_mark &) = delete;
    slots_mark &operator=(const slots_mark &) = delete;
    ~slots_mark();

  private:
    uint64_t address_;
};

/** Throws TypeError where the address is within memory of a channel. */
void check_no_slot(uint64_t address);

/** In a forked child, where another thread of the parent may have had the lock: what is open is the parent's. */
void slots_forget();

} // namespace binding
