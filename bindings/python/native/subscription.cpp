/* SPDX-License-Identifier: MIT */
/** @file A reader's end of a channel. */
#include <array>
#include <cmath>

#include "buffer.hpp"
#include "frame.hpp"
#include "policy.hpp"
#include "stream.hpp"
#include "ticket.hpp"
#include "waiting.hpp"

namespace binding {

namespace {

class taken_frame;

/* ---- a subscription -------------------------------------------------------------------------- */

/* Frames hold on to it. Ended on any thread, with or without the GIL. */
class subscription {
  public:
    subscription(std::shared_ptr<context> context, gpuipc_subscription *taken,
                 std::optional<gpuipc_stream> named)
        : of(std::move(context)), handle(taken), stream(named) {
    }
    subscription(const subscription &) = delete;
    subscription &operator=(const subscription &) = delete;
    ~subscription() {
        (void)end();
    }
    gpuipc_status end() {
        return is_closed.exchange(true) ? GPUIPC_OK : gpuipc_subscription_close(handle);
    }
    /* The memory of all slots, which is found when it is first met. It stays as long as any tensor is over it. */
    void meet(const gpuipc_frame &frame);

    const std::shared_ptr<context> of;
    gpuipc_subscription *const handle; /* of one that was closed, one that the library refuses */
    const std::optional<gpuipc_stream> stream; /* for all frames; none: the current one */
    std::shared_ptr<memory> slots;             /* none: not met yet */
    frame_forms forms;
    std::array<std::weak_ptr<taken_frame>, GPUIPC_CHANNEL_SLOTS_MAX> out; /* by their slots */
    std::weak_ptr<taken_frame> last;                                      /* that the loop had */
    std::atomic<bool> is_closed{false};
};

void subscription::meet(const gpuipc_frame &frame) {
    gpuipc_buffer *found = nullptr;
    uint64_t offset = 0;
    if (slots == nullptr) {
        check(gpuipc_buffer_find(of->handle(), frame.address, &found, &offset));
        slots = memory_of(of, found);
        slots->held()->note_slots();
    }
}

/* ---- a frame --------------------------------------------------------------------------------- */

/* What is not given back before is given back when nobody has it any more, in the order of its stream. */
class taken_frame : public frame_lease {
  public:
    taken_frame(std::shared_ptr<subscription> of, const gpuipc_frame &had, form_pointer what,
                std::optional<gpuipc_stream> named, gpuipc_stream on)
        : frame_lease(of->slots, had, std::move(what), named, on), of_(std::move(of)) {
    }
    ~taken_frame() override {
        (void)end(stream);
    }
    /* What was given back is nobody's, also when the answer is that it was none (ERR_LOST). */
    gpuipc_status end(gpuipc_stream on) {
        if (is_over.exchange(true)) {
            return GPUIPC_OK;
        }
        const gpuipc_status status = gpuipc_subscription_give_back(of_->handle, &frame, on);
        is_over = status != GPUIPC_ERR_CUDA && status != GPUIPC_ERR_INVALID_ARGUMENT;
        return status;
    }
    void give_back(gpuipc_stream on) {
        binding::check(frame_call(on, [&] { return end(on); }));
    }

    bool is_kept = false; /* the loop does not give it back */

  protected:
    [[noreturn]] void refuse() const override {
        fail(GPUIPC_ERR_RELEASED, "gpuipc_subscription_give_back", "this frame was given back");
    }

  private:
    std::shared_ptr<subscription> of_;
};

struct subscription_object {
    std::shared_ptr<subscription> core;
};

struct taken_object : frame_object {
    taken_frame &frame() const {
        return static_cast<taken_frame &>(*of);
    }
};

/* ---- taking ---------------------------------------------------------------------------------- */

/* What is there at once is had without giving the GIL up. */
void await_frame(const subscription &of, gpuipc_stream stream, const patience &time,
                 gpuipc_frame *frame) {
    const auto call = [&](int left) {
        return gpuipc_subscription_take(of.handle, stream, left, frame);
    };
    const gpuipc_status status = frame_call(stream, [&] { return call(0); });
    if (status != GPUIPC_ERR_TIMEOUT || time.whole() == 0) {
        check(status);
    } else {
        wait(time, call);
    }
}

/* Whether there are streams is known from the first frame on: that one the host waits for. */
gpuipc_stream stream_for(const subscription &of, std::optional<gpuipc_stream> named) {
    if (named || of.slots == nullptr) {
        return named.value_or(GPUIPC_NO_STREAM);
    }
    return frame_stream(*of.slots, nb::none());
}

std::shared_ptr<taken_frame> take(const std::shared_ptr<subscription> &of,
                                  std::optional<gpuipc_stream> named, const patience &time) {
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    const bool is_first = of->slots == nullptr;
    const gpuipc_stream on = stream_for(*of, named);
    await_frame(*of, on, time, &frame);
    try {
        of->meet(frame);
        auto made = std::make_shared<taken_frame>(
            of, frame, of->forms.read(frame), named,
            is_first && !named ? frame_stream(*of->slots, nb::none()) : on);
        const uint64_t slot = (frame.address - of->slots->address()) / frame.capacity;
        of->out[slot % of->out.size()] = made;
        return made;
    } catch (...) {
        const gpuipc_status status = gpuipc_subscription_give_back(of->handle, &frame, on);
        (void)status; /* what went wrong first is what is told */
        throw;
    }
}

taken_object take_one(const subscription_object &self, std::optional<double> timeout,
                      nb::handle stream) {
    return {{take(self.core, stream.is_none() ? self.core->stream : frame_stream_named(stream),
                  patience(timeout))}};
}

/* Of the loop: the frame before is given back, unless it is to be kept, or was given back. */
taken_object take_next(const subscription_object &self, std::optional<double> timeout) {
    subscription &core = *self.core;
    if (const std::shared_ptr<taken_frame> before = core.last.lock()) {
        core.last.reset();
        if (!before->is_kept && !before->is_over) {
            before->give_back(frame_stream_at_end(*before, nb::none()));
        }
    }
    const std::shared_ptr<taken_frame> frame = take(self.core, core.stream, patience(timeout));
    core.last = frame;
    return {{frame}};
}

/* One that was dropped has not come to the end. */
bool is_end(const nb::python_error &error) {
    return error.matches(nb::module_::import_("gpuipc.errors").attr("PeerClosed")) &&
           nb::cast<int>(error.value().attr("status")) == GPUIPC_ERR_PEER_CLOSED;
}

taken_object take_in_loop(const subscription_object &self) {
    try {
        return take_next(self, std::nullopt);
    } catch (nb::python_error &error) {
        if (is_end(error)) {
            throw nb::stop_iteration();
        }
        throw;
    }
}

intptr_t wait_handle(const subscription_object &self) {
    intptr_t handle;
    check(gpuipc_subscription_get_wait_handle(self.core->handle, &handle));
    return handle;
}

void give_back(const taken_object &self, nb::handle stream) {
    self.frame().check();
    self.frame().give_back(frame_stream_at_end(self.frame(), stream));
}

/* ---- opening and closing --------------------------------------------------------------------- */

gpuipc_delivery delivery_from(const std::string &name) {
    if (name == "all") {
        return GPUIPC_DELIVERY_ALL;
    }
    if (name == "newest") {
        return GPUIPC_DELIVERY_NEWEST;
    }
    throw nb::value_error("delivery is 'all' or 'newest'");
}

gpuipc_first first_from(const std::string &name) {
    if (name == "next") {
        return GPUIPC_FIRST_NEXT;
    }
    if (name == "newest") {
        return GPUIPC_FIRST_NEWEST;
    }
    if (name == "oldest") {
        return GPUIPC_FIRST_OLDEST;
    }
    throw nb::value_error("first is 'next', 'newest' or 'oldest'");
}

/* The text of a ticket is none of a name: that has no ':'. */
bool is_name(nb::handle channel) {
    return nb::isinstance<nb::str>(channel) &&
           nb::cast<std::string>(channel).find(':') == std::string::npos;
}

/* The name may appear later, which loses nothing: every signal is noticed meanwhile. */
gpuipc_subscription *open_named(const context &of, const std::string &name, const patience &time,
                                gpuipc_subscription_config config) {
    const char *const known = c_text(name);
    gpuipc_subscription *made = nullptr;
    wait(
        time,
        [&](int left) {
            config.timeout_ms = left == 0 ? 1 : left; /* 0 stands for its own five seconds */
            return gpuipc_subscription_open_named(of.handle(), known, &config, &made);
        },
        GPUIPC_ERR_NOT_FOUND);
    return made;
}

gpuipc_subscription *open_by_ticket(const context &of, const gpuipc_ticket &ticket,
                                    const patience &time, gpuipc_subscription_config config) {
    gpuipc_subscription *made = nullptr;
    wait_at_once(time, [&](int left) {
        config.timeout_ms = left == 0 ? 1 : left;
        return gpuipc_subscription_open(of.handle(), &ticket, &config, &made);
    });
    return made;
}

/* None, like 0, is the library's own time. */
uint32_t look_us_from(std::optional<double> seconds) {
    constexpr double most = GPUIPC_LOOK_US_MAX / 1e6;
    if (seconds && !(*seconds >= 0 && *seconds <= most)) {
        throw nb::value_error("look is a number of seconds, from 0 to 1");
    }
    return seconds ? static_cast<uint32_t>(std::ceil(*seconds * 1e6)) : 0;
}

subscription_object subscribe(nb::handle channel, const std::string &delivery, uint32_t hold,
                              const std::string &first, nb::handle device, nb::handle stream,
                              std::optional<double> look, std::optional<double> timeout,
                              nb::handle users, nb::handle context_argument) {
    const patience time(timeout);
    const std::optional<gpuipc_stream> named = frame_stream_named(stream);
    peer_rule rule(users, nb::none());
    gpuipc_subscription_config config = GPUIPC_SUBSCRIPTION_CONFIG_INIT;
    config.device = device_or_owner(device);
    config.delivery = delivery_from(delivery);
    config.first = first_from(first);
    config.policy = rule.function();
    config.policy_user_data = rule.data();
    config.max_held = hold;
    config.look_us = look_us_from(look);
    if (hold == 0) {
        throw nb::value_error("a reader holds one frame at least");
    }
    std::shared_ptr<context> of = context_from(context_argument);
    gpuipc_subscription *made = is_name(channel)
                                    ? open_named(*of, nb::cast<std::string>(channel), time, config)
                                    : open_by_ticket(*of, ticket_from(channel), time, config);
    return {std::make_shared<subscription>(std::move(of), made, named)};
}

/* What is out is given back in the order of streams, which the library's own closing does not do. */
void close(const subscription_object &self) {
    for (const std::weak_ptr<taken_frame> &each : self.core->out) {
        if (const std::shared_ptr<taken_frame> frame = each.lock()) {
            (void)frame_call(frame->stream, [&] { return frame->end(frame->stream); });
        }
    }
    check(released([&] { return self.core->end(); }));
}

/* ---- what Python sees ------------------------------------------------------------------------ */

void bind_taken(nb::module_ &m) {
    bound_class<taken_object, frame_object>(
        m, "Frame", nb::is_weak_referenceable(),
        "A frame that was taken. It is given back by give_back(), by `with`, by the loop that goes on, or when the "
        "last object over it is gone; from then on its memory is another frame's.")
        .def_prop_ro(
            "sequence", [](const taken_object &self) { return self.of->frame.sequence; },
            "From 1 on, and one more for each frame that the writer made or skipped.")
        .def_prop_ro(
            "missed", [](const taken_object &self) { return self.of->frame.missed; },
            "How many frames there were between the one that was taken before and this one.")
        .def_prop_ro(
            "header",
            [](const taken_object &self) {
                self.of->check();
                const auto [bytes, size] = self.of->own_header();
                return nb::bytes(bytes, size);
            },
            "The writer's own bytes beside the frame.")
        .def(
            "give_back", give_back, nb::arg("stream") = nb::none(),
            nb::sig("def give_back(self, stream: object | None = None) -> None"),
            "Its slot may be written when the stream comes to this. None: the stream that was named for it, or the "
            "current one. Raises errors.LostError where the writer ended before the contents were there.")
        .def(
            "keep",
            [](nb::handle self) {
                nb::inst_ptr<taken_object>(self)->frame().is_kept = true;
                return nb::borrow(self);
            },
            nb::sig("def keep(self) -> Frame"),
            "The loop does not give it back when it goes on: that is yours to do. Answers the frame.")
        .def(
            "__enter__", [](nb::handle self) { return nb::borrow(self); },
            nb::sig("def __enter__(self) -> Frame"))
        .def(
            "__exit__",
            [](const taken_object &self, nb::args) {
                if (!self.of->is_over) {
                    give_back(self, nb::none());
                }
            },
            nb::sig("def __exit__(self, *args: object) -> None"));
}

} // namespace

void bind_subscription(nb::module_ &m) {
    bind_taken(m);
    bound_class<subscription_object>(
        m, "Subscription", nb::is_weak_referenceable(),
        "A reader of a channel. A loop over it takes frame after frame until the writer has ended, and gives each "
        "back when it goes on to the next. For one thread at a time.")
        .def(
            "take", take_one, nb::arg("timeout") = nb::none(), nb::arg("stream") = nb::none(),
            nb::sig(
                "def take(self, timeout: float | None = None, stream: object | None = None) -> Frame"),
            "Waits for a frame, for at most timeout seconds. Its contents are ready for the stream, as in subscribe(). "
            "Raises errors.Timeout; errors.PeerClosed when the writer has ended and there is none any more, or has "
            "dropped this reader.")
        .def(
            "__iter__", [](nb::handle self) { return nb::borrow(self); },
            nb::sig("def __iter__(self) -> Subscription"))
        .def("__next__", take_in_loop, nb::sig("def __next__(self) -> Frame"))
        .def(
            "next", take_next, nb::arg("timeout") = nb::none(),
            nb::sig("def next(self, timeout: float | None = None) -> Frame"),
            "What a loop does to go on: gives the frame before back, unless it is kept, and waits for the next one, for "
            "at most timeout seconds. Raises as take() does.")
        .def(
            "fileno", wait_handle,
            "For event loops: readable while take(0) may have something to say, a frame or the end. Not after close().")
        .def(
            "close", close,
            "Gives back what was taken, in the order of its streams, and ends it. Tensors of its memory stay valid, "
            "and hold what the writer writes next.")
        .def(
            "__enter__", [](nb::handle self) { return nb::borrow(self); },
            nb::sig("def __enter__(self) -> Subscription"))
        .def(
            "__exit__", [](const subscription_object &self, nb::args) { close(self); },
            nb::sig("def __exit__(self, *args: object) -> None"))
        .def(
            "__reduce__",
            [](nb::handle) {
                throw nb::type_error(
                    "a subscription stays where it is made: subscribe in the other process");
            },
            nb::sig("def __reduce__(self) -> typing.NoReturn"));
    define(
        m, "subscribe", subscribe, nb::arg("channel"), nb::kw_only(), nb::arg("delivery") = "all",
        nb::arg("hold") = 1, nb::arg("first") = "next", nb::arg("device") = nb::none(),
        nb::arg("stream") = nb::none(), nb::arg("look") = nb::none(), nb::arg("timeout") = 5.0,
        nb::arg("users") = nb::none(), nb::arg("context") = nb::none(),
        nb::sig(
            "def subscribe(channel: Ticket | bytes | str, *, delivery: str = \"all\", hold: int = 1, first: str = "
            "\"next\", device: object | None = None, stream: object | None = None, look: float | None = None, "
            "timeout: float | None = 5.0, users: collections.abc.Iterable[int | str] | None = None, context: Context | None = None) -> "
            "Subscription"),
        "Opens a channel for reading, by its name or by Channel.ticket(). delivery: 'all' frames in order, which the writer waits "
        "for, or the 'newest' there is. hold: how many frames it has at a time at most. first: the 'next' that is "
        "published, the 'newest' that is there, or all from the 'oldest' on. stream: for which contents are ready, "
        "and whose work a frame is given back behind; None: the current one at each time, and none for memory of the "
        "host; -1: none. look: for so many seconds who waits for a frame looks for it before it sleeps, and keeps a processor "
        "busy; None: 50 us; up to 1. Ctrl-C comes up to half a second late meanwhile. timeout: seconds for the name to appear and its "
        "server to answer. The rest is as in open().");
}

} // namespace binding
