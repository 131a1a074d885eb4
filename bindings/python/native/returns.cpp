/* SPDX-License-Identifier: MIT */
#include "returns.hpp"

#include <algorithm>
#include <thread>

#include "buffer.hpp"

namespace binding {

/* ---- who handed over ------------------------------------------------------------------------ */

namespace {

std::vector<gpuipc_loan_state> states_of(gpuipc_buffer *buffer,
                                         const std::vector<gpuipc_mark> &loans) {
    std::vector<gpuipc_loan_state> states(loans.size());
    check(gpuipc_buffer_get_loan_states(buffer, loans.data(), loans.size(), states.data()));
    return states;
}

/* Milliseconds from now on, rounded up, and no more than @p most. */
int until(std::chrono::steady_clock::time_point then, int most) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(then - std::chrono::steady_clock::now())
            .count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, most));
}

} // namespace

uint64_t memory::lent_count() const {
    const uint64_t opened = info_now().lent_count;
    if (std::chrono::steady_clock::now() >= handed_.open_until) {
        return opened;
    }
    const std::vector<gpuipc_loan_state> states = states_of(handle_, handed_.loans);
    /* Those that somebody has taken are openings, too, and counted as such. */
    return opened +
           static_cast<uint64_t>(std::count(states.begin(), states.end(), GPUIPC_LOAN_LENT));
}

/* One after the other. What was not counted is out until its ticket has expired. */
void memory::await_pickles(const patience &time) {
    constexpr int uncounted_stretch_ms = 10;
    while (!handed_.is_over(handle_)) {
        const int left = time.left();
        const int most = left < 0 ? longest_stretch_ms : std::min(left, longest_stretch_ms);
        const int stretch = until(handed_.open_until, most);
        const std::vector<gpuipc_loan_state> states = states_of(handle_, handed_.loans);
        const auto out = std::find_if(states.begin(), states.end(), [](gpuipc_loan_state state) {
            return state != GPUIPC_LOAN_OVER;
        });
        gpuipc_status status = GPUIPC_ERR_TIMEOUT;
        if (out != states.end()) {
            const gpuipc_mark loan = handed_.loans[static_cast<size_t>(out - states.begin())];
            status = released([&] { return gpuipc_buffer_await_loan(handle_, &loan, stretch); });
        } else {
            const without_gil without;
            std::this_thread::sleep_for(
                std::chrono::milliseconds(std::min(stretch, uncounted_stretch_ms)));
        }
        if (status != GPUIPC_OK && status != GPUIPC_ERR_TIMEOUT &&
            status != GPUIPC_ERR_INTERRUPTED) {
            check(status);
        }
        run_signal_handlers();
        if (time.left() == 0 && !handed_.is_over(handle_)) {
            fail(GPUIPC_ERR_TIMEOUT, "await_returns",
                 "what was pickled has not been unpickled and let go of");
        }
    }
}

/* A pickle that is not counted opens by its ticket alone. */
void memory::cancel_lent() {
    check_open();
    for (const gpuipc_mark &each : handed_.loans) { /* those that were taken stay out */
        const gpuipc_status status = gpuipc_buffer_cancel_loan(handle_, &each);
        (void)status;
    }
    for (const gpuipc_ticket &each : handed_.tickets) {
        const gpuipc_status status = gpuipc_server_revoke(context_->server_if_any(), &each);
        (void)status;
    }
    handed_.are_counted = true;
    handed_.fresh_until = {}; /* the next pickle has a new ticket */
}

void memory::await_returns(const patience &time) {
    check_open();
    await_pickles(time);
    wait(time, [&](int left) { return gpuipc_buffer_await_returns(handle_, left); });
}

/* ---- who received --------------------------------------------------------------------------- */

/* A ticket of this very process opened a view, which nobody waits for: it is closed. */
void memory::give_back(gpuipc_stream stream) {
    check_open();
    if (info_.origin != GPUIPC_BUFFER_OPENED && !opened_by_) {
        throw nb::value_error(
            "this memory was made or wrapped here: who received it gives it back; close() it");
    }
    if (loan_ != nullptr) {
        return_loan(stream);
    } else if (info_.origin == GPUIPC_BUFFER_OPENED && !hold_->is_shared()) {
        hold_->note_leaving();
        const gpuipc_status status =
            released([&] { return gpuipc_buffer_return_async(handle_, stream); });
        /* Else, and then, it is open here more than once: it is returned when all have let go. */
        if (status != GPUIPC_ERR_INVALID_ARGUMENT) {
            check(status);
        }
    }
    close(stream);
}

/* ---- for event loops ------------------------------------------------------------------------ */

namespace {

/* Holds the buffer, so that what is waited for stays. */
class returns_wait {
  public:
    explicit returns_wait(std::shared_ptr<memory> of) : of_(std::move(of)) {
        of_->check_open();
        check(gpuipc_buffer_retain(of_->handle()));
        buffer_ = of_->handle();
    }
    returns_wait(const returns_wait &) = delete;
    returns_wait &operator=(const returns_wait &) = delete;
    ~returns_wait() {
        (void)gpuipc_buffer_drop(buffer_);
    }
    intptr_t handle() const {
        intptr_t handle;
        check(gpuipc_buffer_get_returns_wait_handle(buffer_, &handle));
        return handle;
    }
    void await(std::optional<double> timeout) const {
        wait(patience(timeout),
             [&](int left) { return gpuipc_buffer_await_returns(buffer_, left); });
    }

  private:
    std::shared_ptr<memory> of_;
    gpuipc_buffer *buffer_;
};

} // namespace

void bind_returns(nb::module_ &m) {
    bound_class<returns_wait>(
        m, "Returns", nb::is_weak_referenceable(),
        "What a Buffer was handed to and is to come back from, for event loops. Keeps the memory.")
        .def(
            "__init__",
            [](returns_wait *self, const buffer_object &of) { new (self) returns_wait(of.core); },
            nb::arg("buffer"))
        .def("fileno", &returns_wait::handle,
             "Readable when everything is back that was handed over until this call.")
        .def(
            "wait", [](returns_wait &self, std::optional<double> timeout) { self.await(timeout); },
            nb::arg("timeout") = nb::none(),
            nb::sig("def wait(self, timeout: float | None = None) -> None"),
            "Waits for it, but not for pickles that nobody has read. Raises errors.Timeout after so many seconds.");
    define(
        m, "has_pickles_out",
        [](const buffer_object &of) {
            of.core->check_open();
            return of.core->has_pickles_out();
        },
        nb::arg("buffer"), "There are pickles that nobody has read, or that are not let go of.");
}

} // namespace binding
