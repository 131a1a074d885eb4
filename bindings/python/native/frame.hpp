/* SPDX-License-Identifier: MIT */
/** @file Frames of channels: the arrays in one, which its header tells of, and whoever has it for a time. */
#pragma once

#include "array.hpp"

namespace binding {

/** The arrays of a frame. Offsets are from the beginning of its slot. */
struct frame_form {
    std::vector<std::string> names; /* "." alone: it is one array */
    std::vector<layout> layouts;
    std::string prefix;  /* what the header begins with (message.hpp), as it was written or read */
    uint64_t bytes = 0;  /* to the end of the last array */
    uint64_t number = 0; /* of its own, in this process */

    bool is_one() const {
        return names.size() == 1 && names[0] == ".";
    }
    /** Throws KeyError. */
    const layout &find(const std::string &name) const;
};
using form_pointer = std::shared_ptr<const frame_form>;

/** Of a shape and a type; of something that has both; of a dict of such, or of pairs. Throws TypeError or ValueError. */
form_pointer frame_form_from(nb::handle shape, nb::handle dtype);

/** What frames came with. It is mostly the same, so the last ones are kept. With the GIL. */
class frame_forms {
  public:
    /** What the header of a frame tells. Another process wrote it: throws ProtocolError for what none of ours writes. A
     *  frame whose header tells of no arrays is one of bytes, and has none if it is empty. */
    form_pointer read(const gpuipc_frame &frame);

  private:
    form_pointer find(const gpuipc_frame &frame, bool tells) const;

    std::vector<form_pointer> known_;
    size_t oldest_ = 0;
};

/** A frame that somebody has for a time. Arrays and tensors of it keep it, unless it is ended before. */
class frame_lease : public lease {
  public:
    frame_lease(std::shared_ptr<memory> of, const gpuipc_frame &had, form_pointer what,
                std::optional<gpuipc_stream> named, gpuipc_stream on)
        : slots(std::move(of)), frame(had), form(std::move(what)), named_stream(named), stream(on) {
    }
    void check() const override {
        if (is_over) {
            refuse();
        }
    }
    /** What the caller put into the header. */
    std::pair<const char *, size_t> own_header() const;

    const std::shared_ptr<memory> slots;
    const gpuipc_frame frame;
    const form_pointer form;
    const std::optional<gpuipc_stream> named_stream; /* by the caller; none: the current one */
    const gpuipc_stream stream;                      /* that it is had for */
    std::atomic<bool> is_over{false};                /* who changes it ends the lease */

  protected:
    [[noreturn]] virtual void refuse() const = 0;
};

/** What Python has of one. */
struct frame_object {
    std::shared_ptr<frame_lease> of;
};

/** The stream for a call that an argument names. None: the current one, for memory of a GPU; no stream, for that of the
 *  host. -1: no stream. Throws what stream_from() throws. */
gpuipc_stream frame_stream(const memory &slots, nb::handle argument);
/** The stream that was named, if one was. */
std::optional<gpuipc_stream> frame_stream_named(nb::handle argument);
/** For what is done with a frame in the end. */
gpuipc_stream frame_stream_at_end(const frame_lease &of, nb::handle argument);

/** Calls that wait for nothing without a stream keep the GIL: to give it up takes longer than they do. */
template <typename call_type> gpuipc_status frame_call(gpuipc_stream stream, call_type call) {
    return stream == GPUIPC_NO_STREAM ? call() : released(call);
}

void bind_frame(nb::module_ &m);
/** gpuipc.Channel and what it loans. */
void bind_channel(nb::module_ &m);
/** gpuipc.subscribe and what it gives. */
void bind_subscription(nb::module_ &m);

} // namespace binding
