/* SPDX-License-Identifier: MIT */
/** @file The memory behind Buffers and Arrays: one reference on a buffer of the library, and what is known of it. */
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "context.hpp"
#include "slots.hpp"
#include "waiting.hpp"

namespace binding {

/** Whom memory that was wrapped belongs to. Let go by its destructor, on any thread, with or without the GIL. */
class owner {
  public:
    virtual ~owner() = default;
};

/** The owner of memory that somebody has for a time only. */
class lease : public owner {
  public:
    /** Throws when the time is over. */
    virtual void check() const = 0;
};

/** The owner that is a Python object. */
std::shared_ptr<owner> owner_of(nb::object object);

/** One reference on a buffer of the library, which Arrays, their tensors, what lingers and what is opened again have in
 *  common. Dropped by its destructor, on any thread: behind the work that the devices have been given by then. So a tensor
 *  that goes before the others costs the library nothing, and neither does opening what is open. */
class hold {
  public:
    /** Takes the reference over. @p known is what the library says of it. */
    hold(gpuipc_buffer *taken, const gpuipc_buffer_info &known)
        : handle_(taken), info_(known), is_ready_(known.is_ready != 0) {
    }
    hold(const hold &) = delete;
    hold &operator=(const hold &) = delete;
    ~hold() {
        slots_.reset(); /* before others can have its addresses */
        if (!is_released_) {
            (void)gpuipc_buffer_drop(handle_);
        }
    }
    gpuipc_buffer *handle() const {
        return handle_;
    }
    /** What was said of it when it was opened. */
    const gpuipc_buffer_info &info() const {
        return info_;
    }
    /** The contents that it came with are known to be there. */
    bool is_ready() const {
        return is_ready_;
    }
    void note_ready() {
        is_ready_ = true;
    }
    /** A tensor was made of it, whose work may be on any stream. */
    void note_tensor() {
        has_tensors_ = true;
    }
    bool has_tensors() const {
        return has_tensors_;
    }
    /** A channel's slots are in it. With the GIL. */
    void note_slots() {
        if (slots_ == nullptr) {
            slots_ = std::make_unique<slots_mark>(info_.address, info_.bytes);
        }
    }

    /* ---- how often it is open; with the GIL, but for leave() ---- */

    /** Once more, or one that has let go. Of the others there may be tensors. */
    void enter() {
        openings_++;
        was_shared_ = was_shared_ || openings_ > 1 || has_tensors_;
    }
    void leave() {
        openings_--;
    }
    /** Somebody else may use it: another one who has it open, or tensors of one. */
    bool is_shared() const {
        return openings_ > 1 || (was_shared_ && has_tensors_);
    }
    /** Whether whoever opens its ticket may have it, too. */
    bool can_be_shared() const {
        return !is_leaving_ && !is_released_;
    }
    /** Nobody gets it any more: it is being given back. */
    void note_leaving() {
        is_leaving_ = true;
    }
    /** The reference has been given up. */
    void note_release() {
        slots_.reset();
        is_released_ = true;
    }
    bool is_released() const {
        return is_released_;
    }

  private:
    gpuipc_buffer *handle_;
    gpuipc_buffer_info info_;
    std::atomic<bool> is_ready_;
    std::atomic<bool> has_tensors_{false};
    std::atomic<uint32_t> openings_{0}; /* a Python without a GIL ends objects on any thread */
    bool was_shared_ = false;
    bool is_leaving_ = false;
    bool is_released_ = false;
    std::unique_ptr<slots_mark> slots_; /* none: it has no slots */
};

/** A loan that was taken of memory that somebody has. Memory and the tensors made of it have it in common: it is returned
 *  when all of them are gone, on any thread, behind the work that the devices have been given by then. */
class taken_loan {
  public:
    taken_loan(std::shared_ptr<hold> of, const gpuipc_mark &loan)
        : of_(std::move(of)), loan_(loan) {
    }
    taken_loan(const taken_loan &) = delete;
    taken_loan &operator=(const taken_loan &) = delete;
    ~taken_loan();
    /** Returns it at once when a stream is there. */
    gpuipc_status give_back(gpuipc_stream stream);

  private:
    std::shared_ptr<hold> of_;
    gpuipc_mark loan_;
    bool is_returned_ = false;
};

/** What was given out by pickles: tickets that end by themselves, and a loan for each pickle, by which it is known that
 *  who unpickled it has let go. */
struct hand_overs {
    std::vector<gpuipc_ticket> tickets;
    std::vector<gpuipc_mark> loans;
    size_t look_at = 16;     /* when there are so many loans, those that are over are forgotten */
    bool are_counted = true; /* each of them is among the loans */
    std::chrono::steady_clock::time_point fresh_until{};
    std::chrono::steady_clock::time_point open_until{};

    /** Nobody has any of them any more, and nobody is going to. */
    bool is_over(gpuipc_buffer *buffer) const;
    void forget_those_over(gpuipc_buffer *buffer);
};

/** All Arrays over one Buffer share one of these. */
class memory {
  public:
    /** Takes the reference over. @p known is what the library says of it. */
    memory(std::shared_ptr<context> of, gpuipc_buffer *taken, const gpuipc_buffer_info &known)
        : memory(std::move(of), std::make_shared<hold>(taken, known)) {
    }
    /** One more that has it open. */
    memory(std::shared_ptr<context> of, std::shared_ptr<hold> shared)
        : context_(std::move(of)), hold_(std::move(shared)), handle_(hold_->handle()),
          info_(hold_->info()), is_settled_(hold_->is_ready()) {
        hold_->enter();
    }
    memory(const memory &) = delete;
    memory &operator=(const memory &) = delete;
    ~memory();

    /** Of memory that was closed, a handle that the library refuses. */
    gpuipc_buffer *handle() const {
        return handle_;
    }
    /** For a tensor, which keeps the memory, and the loan by which it came. */
    std::shared_ptr<hold> hold_for_tensor() const {
        hold_->note_tensor();
        return loan_ == nullptr ? hold_ : std::shared_ptr<hold>(loan_, hold_.get());
    }
    /** None: it was closed. */
    const std::shared_ptr<hold> &held() const {
        return hold_;
    }
    const std::shared_ptr<context> &of() const {
        return context_;
    }

    uint64_t address() const {
        return info_.address;
    }
    uint64_t bytes() const {
        return info_.bytes;
    }
    uint32_t device() const {
        return info_.device;
    }
    uint32_t access_device() const {
        return info_.access_device;
    }
    gpuipc_transport transport() const {
        return info_.transport;
    }
    gpuipc_buffer_origin origin() const {
        return info_.origin;
    }
    /** It was made by the context that it is open in. */
    bool is_of_this_process() const {
        return context_->is_instance(info_.exporter_id);
    }
    bool is_on_host() const {
        return info_.transport == GPUIPC_TRANSPORT_HOST;
    }
    bool is_read_only() const {
        return info_.access == GPUIPC_ACCESS_READ;
    }
    const uint8_t *attachment() const {
        return static_cast<const uint8_t *>(info_.attachment);
    }
    size_t attachment_bytes() const {
        return info_.attachment == nullptr ? 0 : info_.attachment_bytes;
    }

    /** It is a part of what was shared, and what came with that may not be true of it. */
    bool is_attachment_withheld() const {
        return info_.is_attachment_withheld != 0;
    }

    /** What the library says of it now. */
    gpuipc_buffer_info info_now() const;
    /** Throws unless it is open. */
    void check_open() const;
    bool is_closed() const {
        return is_closed_;
    }

    /** Gives the reference up: when all work that the devices have been given is done, or when @p stream is there. */
    void close(std::optional<gpuipc_stream> stream);

    /* ---- contents that are not there yet ---- */

    /** Takes a hand-over by its mark, before which the contents are not ready. The sender knows that it is given back
     *  when this memory is gone, and the tensors made of it. ERR_RELEASED, ERR_INVALID_ARGUMENT: as
     *  gpuipc_buffer_take_loan(), which others throw. */
    gpuipc_status take(const gpuipc_mark &mark);
    /** The sender may have the hand-over again when the stream is there; does nothing where none was taken. */
    void return_loan(gpuipc_stream stream);
    /** The contents are those before this mark. */
    void set_mark(const gpuipc_mark &mark) {
        mark_ = mark;
        is_settled_ = false;
    }
    /** Looks whether they are there, and waits for nothing. */
    bool is_settled();
    /** Lets a stream wait for the contents, unless they are known to be ready. With the GIL. */
    void ready_for(gpuipc_stream stream);
    /** Waits for them. With the GIL, which is released meanwhile. */
    void ready_here(const patience &time);

    /* ---- handed over, and given back ---- */

    /** How many hand-overs are out, pickles that nobody has read among them. */
    uint64_t lent_count() const;
    /** There are pickles that nobody has read, or that are not let go of. With the GIL. */
    bool has_pickles_out() const {
        return !handed_.is_over(handle_);
    }
    /** Takes back every pickle that no process has read; it then opens nothing. With the GIL. */
    void cancel_lent();
    /** Waits until nothing is out. With the GIL, which is released meanwhile. */
    void await_returns(const patience &time);
    /** Of memory that was received: the sender may have it again when the stream is there. Closes it. */
    void give_back(gpuipc_stream stream);

    /* ---- memory of somebody else ---- */

    void set_owner(std::shared_ptr<owner> of) {
        owner_ = std::move(of);
    }
    const std::shared_ptr<owner> &owned_by() const {
        return owner_;
    }
    /** Others can open it for so long, 0: without end, also when this is gone. */
    void note_share(uint64_t expires_ms);

    /* ---- tickets ---- */

    /** The ticket of a range with these bytes attached, which is made once, and is revoked with this object. */
    gpuipc_ticket ticket(uint64_t offset, uint64_t bytes, const std::string &attachment);

    /** The ticket of the whole by which it is handed to other processes again and again. Its contents are not waited
     *  for: each hand-over says by itself when they are ready. It ends by itself some time after the last one, so that
     *  what nobody opens is not kept for ever. */
    gpuipc_ticket hand_over_ticket();

    /** The point on a stream at which the contents of this very hand-over are ready; none where nobody could wait for
     *  it: then the host has to. GPUIPC_NO_STREAM: they are. */
    std::optional<gpuipc_mark> hand_over_mark(gpuipc_stream stream);

    /** It was handed over by that ticket with this loan, too. */
    void note_loan(const gpuipc_mark &loan);

    /** It was opened by this ticket, which so is that of all further hand-overs. */
    void set_opened_by(const gpuipc_ticket &ticket) {
        opened_by_ = ticket;
    }

  private:
    gpuipc_status lend(gpuipc_stream stream, gpuipc_mark &out_loan) const;
    void await_pickles(const patience &time);
    void revoke_tickets();
    void give_up();
    gpuipc_status look_for_contents();

    std::shared_ptr<context> context_;
    std::shared_ptr<hold> hold_; /* none: it is closed */
    gpuipc_buffer *handle_;
    gpuipc_buffer_info info_;
    std::atomic<bool> is_closed_{false};
    std::atomic<bool> is_settled_;
    std::optional<gpuipc_mark> mark_;
    std::shared_ptr<taken_loan>
        loan_; /* by which it came; none: that is not counted, or returned */
    std::shared_ptr<owner> owner_;
    std::chrono::steady_clock::time_point shared_until_{};
    std::map<std::tuple<uint64_t, uint64_t, std::string>, gpuipc_ticket> tickets_;
    std::optional<gpuipc_ticket> opened_by_;
    hand_overs handed_;
};

} // namespace binding
