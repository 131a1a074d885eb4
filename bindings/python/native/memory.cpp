/* SPDX-License-Identifier: MIT */
#include "memory.hpp"

#include <algorithm>
#include <vector>

#include "deferred.hpp"
#include "lingering.hpp"
#include "share.hpp"
#include "stream.hpp"

namespace binding {

/* ---- owners --------------------------------------------------------------------------------- */

namespace {

void let_go(void *object) {
    Py_DECREF(static_cast<PyObject *>(object));
}

class python_owner : public owner {
  public:
    explicit python_owner(nb::object object) : object_(object.release().ptr()) {
    }
    ~python_owner() override {
        when_python_runs(let_go, object_);
    }

  private:
    PyObject *object_;
};

} // namespace

std::shared_ptr<owner> owner_of(nb::object object) {
    return std::make_shared<python_owner>(std::move(object));
}

namespace {

using clock = std::chrono::steady_clock;

/* What a server answers that has ended, or that knows the ticket no more, is what is wanted. */
void revoke(const context &of, const gpuipc_ticket &ticket) {
    const gpuipc_status status = gpuipc_server_revoke(of.server_if_any(), &ticket);
    (void)status;
}

} // namespace

/* ---- loans that were taken ------------------------------------------------------------------ */

taken_loan::~taken_loan() {
    if (!is_returned_ && !of_->is_released()) { /* else the library returns it with the buffer */
        const gpuipc_status status = gpuipc_buffer_drop_loan(of_->handle(), &loan_);
        (void)status;
    }
}

gpuipc_status taken_loan::give_back(gpuipc_stream stream) {
    const gpuipc_status status = gpuipc_buffer_return_loan_async(of_->handle(), &loan_, stream);
    is_returned_ = status == GPUIPC_OK;
    return status;
}

/* ---- hand-overs by pickles ------------------------------------------------------------------ */

bool hand_overs::is_over(gpuipc_buffer *buffer) const {
    if (tickets.empty() || clock::now() >= open_until) {
        return true;
    }
    std::vector<gpuipc_loan_state> states(loans.size());
    if (!are_counted || gpuipc_buffer_get_loan_states(buffer, loans.data(), loans.size(),
                                                      states.data()) != GPUIPC_OK) {
        return false;
    }
    return std::all_of(states.begin(), states.end(),
                       [](gpuipc_loan_state state) { return state == GPUIPC_LOAN_OVER; });
}

void hand_overs::forget_those_over(gpuipc_buffer *buffer) {
    std::vector<gpuipc_loan_state> states(loans.size());
    if (gpuipc_buffer_get_loan_states(buffer, loans.data(), loans.size(), states.data()) !=
        GPUIPC_OK) {
        return;
    }
    std::vector<gpuipc_mark> stay;
    for (size_t i = 0; i < loans.size(); i++) {
        if (states[i] != GPUIPC_LOAN_OVER) {
            stay.push_back(loans[i]);
        }
    }
    loans.swap(stay);
    constexpr size_t least = 16;
    look_at = std::max(least, 2 * loans.size()); /* so that the looks at each stay few */
}

void memory::note_share(uint64_t expires_ms) {
    const clock::time_point until = expires_ms == 0
                                        ? clock::time_point::max()
                                        : clock::now() + std::chrono::milliseconds(expires_ms);
    shared_until_ = std::max(shared_until_, until);
}

/* ---- open and closed ------------------------------------------------------------------------ */

memory::~memory() {
    revoke_tickets();
    if (!is_closed_.exchange(true)) {
        give_up();
    }
}

void memory::revoke_tickets() {
    for (const auto &each : tickets_) {
        revoke(*context_, each.second);
    }
}

void memory::give_up() {
    hold_->leave();
    loan_.reset(); /* before the hold, behind which nothing of the memory is left */
    if (owner_ == nullptr && handed_.tickets.empty()) { /* nobody waits for anything */
        hold_.reset();
        return;
    }
    linger({context_, std::move(hold_), std::move(owner_), shared_until_, std::move(handed_)});
}

gpuipc_buffer_info memory::info_now() const {
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    check(gpuipc_buffer_get_info(handle_, &info));
    return info;
}

void memory::check_open() const {
    if (is_closed_ || context_->is_of_the_parent()) {
        (void)info_now(); /* the library's own words, unless it lives on */
        fail(GPUIPC_ERR_RELEASED, "gpuipc_buffer_get_info",
             "it was closed, and only what was made of it before keeps the memory");
    }
}

void memory::close(std::optional<gpuipc_stream> stream) {
    if (is_closed_.exchange(true)) {
        return;
    }
    /* Tensors were used on whichever streams; those that are gone left their work to this. */
    if (!stream || owner_ != nullptr || hold_->has_tensors() || hold_->is_shared()) {
        give_up();
        return;
    }
    const gpuipc_status status = gpuipc_buffer_release_async(handle_, *stream);
    if (status != GPUIPC_OK) {
        is_closed_ = false; /* the reference is still ours */
    }
    check(status);
    hold_->note_release();
}

/* ---- contents that are not there yet -------------------------------------------------------- */

/* Of those that it came with, but for what its mark says. */
gpuipc_status memory::look_for_contents() {
    if (hold_ != nullptr && hold_->is_ready()) {
        return GPUIPC_OK;
    }
    const gpuipc_status status = gpuipc_buffer_await_ready(handle_, 0);
    if (status == GPUIPC_OK && hold_ != nullptr) {
        hold_->note_ready();
    }
    return status;
}

bool memory::is_settled() {
    if (is_settled_) {
        return true;
    }
    gpuipc_status status = look_for_contents();
    if (status == GPUIPC_OK && mark_) {
        status = gpuipc_buffer_await_mark(handle_, &*mark_, 0);
    }
    if (status == GPUIPC_ERR_TIMEOUT) {
        return false;
    }
    check(status);
    is_settled_ = true;
    return true;
}

void memory::ready_for(gpuipc_stream stream) {
    if (is_settled()) {
        return;
    }
    check(released([&] { return gpuipc_buffer_await_ready_async(handle_, stream); }));
    if (mark_) {
        check(released([&] { return gpuipc_buffer_await_mark_async(handle_, &*mark_, stream); }));
    }
}

void memory::ready_here(const patience &time) {
    if (is_settled()) {
        return;
    }
    wait(time, [&](int left) { return gpuipc_buffer_await_ready(handle_, left); });
    if (mark_) {
        wait(time, [&](int left) { return gpuipc_buffer_await_mark(handle_, &*mark_, left); });
    }
    is_settled_ = true;
}

/* ---- tickets -------------------------------------------------------------------------------- */

gpuipc_ticket memory::ticket(uint64_t offset, uint64_t bytes, const std::string &attachment) {
    const auto key = std::make_tuple(offset, bytes, attachment);
    const auto found = tickets_.find(key);
    if (found != tickets_.end()) {
        return found->second;
    }
    share_options options;
    options.offset = offset;
    options.bytes = bytes;
    options.attachment = attachment;
    const gpuipc_ticket made = share(*this, options); /* revoked with this: nobody opens it later */
    /* Another thread may have been quicker while this one was without the GIL: either is right. */
    return tickets_.emplace(key, made).first->second;
}

gpuipc_ticket memory::hand_over_ticket() {
    if (opened_by_) {
        return *opened_by_;
    }
    if (handed_.tickets.empty() || clock::now() >= handed_.fresh_until) {
        const double seconds =
            nb::cast<double>(nb::module_::import_("gpuipc.config").attr("orphan_seconds"));
        const auto length =
            std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
        share_options options;
        options.is_ready = true;
        options.expires = seconds;
        handed_.tickets.push_back(share(*this, options));
        /* Renewed at half of its time: whoever gets it has the other half to open it. */
        handed_.fresh_until = clock::now() + length / 2;
        handed_.open_until = clock::now() + length;
    }
    return handed_.tickets.back();
}

void memory::note_loan(const gpuipc_mark &loan) {
    if (handed_.loans.size() >= handed_.look_at) {
        handed_.forget_those_over(handle_);
    }
    handed_.loans.push_back(loan);
}

/* What waits for no driver keeps the GIL. */
gpuipc_status memory::lend(gpuipc_stream stream, gpuipc_mark &out_loan) const {
    return stream == GPUIPC_NO_STREAM
               ? gpuipc_buffer_lend_ready(handle_, &out_loan)
               : released([&] { return gpuipc_buffer_lend(handle_, stream, &out_loan); });
}

std::optional<gpuipc_mark> memory::hand_over_mark(gpuipc_stream stream) {
    if (opened_by_ || info_.origin == GPUIPC_BUFFER_OPENED) {
        return std::nullopt; /* whoever opens it could not wait for a mark of this process */
    }
    if (stream == nullptr && !is_on_host()) {
        stream = current_stream(access_device());
    }
    gpuipc_mark mark;
    gpuipc_status status = lend(stream, mark);
    if (status == GPUIPC_OK) {
        note_loan(mark);
        return mark;
    }
    if (status == GPUIPC_ERR_LIMIT) { /* so many are out: this one is not counted */
        handed_.are_counted = false;
        if (stream == GPUIPC_NO_STREAM) {
            return std::nullopt;
        }
        status = released([&] { return gpuipc_buffer_mark(handle_, stream, &mark); });
    }
    if (status == GPUIPC_ERR_LIMIT) {
        return std::nullopt;
    }
    check(status);
    return mark;
}

gpuipc_status memory::take(const gpuipc_mark &mark) {
    const gpuipc_status status = gpuipc_buffer_take_loan(handle_, &mark);
    if (status == GPUIPC_OK) {
        loan_ = std::make_shared<taken_loan>(hold_, mark);
        set_mark(mark);
    } else if (status != GPUIPC_ERR_RELEASED && status != GPUIPC_ERR_INVALID_ARGUMENT) {
        check(status);
    }
    return status;
}

void memory::return_loan(gpuipc_stream stream) {
    if (loan_ != nullptr) {
        check(released([&] { return loan_->give_back(stream); }));
        loan_.reset();
    }
}

} // namespace binding
