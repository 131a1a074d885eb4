/* SPDX-License-Identifier: MIT */
#include "memory.hpp"

#include <algorithm>
#include <vector>

#include "deferred.hpp"
#include "share.hpp"

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

/* ---- memory of somebody else, which is gone here and not elsewhere --------------------------- */

namespace {

using clock = std::chrono::steady_clock;

/* The owner may use the memory anew when nobody can open it any more and nobody has it. */
struct lingering {
    gpuipc_buffer *buffer;
    std::shared_ptr<owner> held;
    clock::time_point shared_until;

    bool is_over() const {
        gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
        return shared_until <= clock::now() &&
               (gpuipc_buffer_get_info(buffer, &info) != GPUIPC_OK || info.lent_count == 0);
    }
};

/* Never destroyed: what is in it when the process ends, ends with that. With the GIL. */
std::vector<lingering> &all_lingering() {
    static std::vector<lingering> &only = *new std::vector<lingering>;
    return only;
}

} // namespace

void memory_look_after() {
    std::vector<lingering> stay;
    for (lingering &each : all_lingering()) {
        if (each.is_over()) {
            (void)gpuipc_buffer_drop(each.buffer);
        } else {
            stay.push_back(std::move(each));
        }
    }
    all_lingering().swap(stay);
}

size_t memory_lingering_count() {
    memory_look_after();
    return all_lingering().size();
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

/* What a server answers that has ended, or that knows the ticket no more, is what is wanted. */
void memory::revoke_tickets() {
    gpuipc_server *server = context_->server_if_any();
    for (const auto &each : tickets_) {
        const gpuipc_status status = gpuipc_server_revoke(server, &each.second);
        (void)status;
    }
}

void memory::give_up() {
    if (owner_ != nullptr) {
        all_lingering().push_back({handle_, std::move(owner_), shared_until_});
        memory_look_after();
    } else {
        (void)gpuipc_buffer_drop(handle_);
    }
}

gpuipc_buffer_info memory::info_now() const {
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    check(gpuipc_buffer_get_info(handle_, &info));
    return info;
}

void memory::check_open() const {
    if (is_closed_) {
        (void)info_now(); /* the library's own words */
    }
}

void memory::close(std::optional<gpuipc_stream> stream) {
    if (is_closed_.exchange(true)) {
        return;
    }
    if (!stream || owner_ != nullptr) {
        give_up();
        return;
    }
    const gpuipc_status status = gpuipc_buffer_release_async(handle_, *stream);
    if (status != GPUIPC_OK) {
        is_closed_ = false; /* the reference is still ours */
    }
    check(status);
}

/* ---- contents that are not there yet -------------------------------------------------------- */

void memory::set_mark(const gpuipc_mark &mark) {
    mark_ = mark;
    is_settled_ = false;
}

bool memory::is_settled() {
    if (is_settled_) {
        return true;
    }
    gpuipc_status status = gpuipc_buffer_await_ready(handle_, 0);
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
    if (!hand_over_ || clock::now() >= hand_over_until_) {
        const double seconds =
            nb::cast<double>(nb::module_::import_("gpuipc.config").attr("orphan_seconds"));
        share_options options;
        options.is_ready = true;
        options.expires = seconds;
        hand_over_ = share(*this, options);
        note_share(static_cast<uint64_t>(seconds * 1000) + 1);
        /* Renewed at half of its time: whoever gets it has the other half to open it. */
        hand_over_until_ = clock::now() + std::chrono::duration_cast<clock::duration>(
                                              std::chrono::duration<double>(seconds / 2));
    }
    return *hand_over_;
}

} // namespace binding
