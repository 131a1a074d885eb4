/* SPDX-License-Identifier: MIT */
/** @file The writer's end of a channel. */
#include <cmath>
#include <cstring>

#include "buffer.hpp"
#include "frame.hpp"
#include "server.hpp"
#include "stream.hpp"
#include "waiting.hpp"

namespace binding {

namespace {

/* ---- a channel ------------------------------------------------------------------------------- */

/* Loans hold on to it. Ended on any thread, with or without the GIL. */
class channel {
  public:
    channel(gpuipc_channel *taken, const gpuipc_ticket &given, std::shared_ptr<memory> of,
            const gpuipc_channel_config &known, form_pointer usual)
        : handle(taken), ticket(given), slots(std::move(of)), config(known),
          form(std::move(usual)) {
    }
    channel(const channel &) = delete;
    channel &operator=(const channel &) = delete;
    ~channel() {
        (void)end();
    }
    gpuipc_status end() {
        return is_closed.exchange(true) ? GPUIPC_OK : gpuipc_channel_destroy(handle);
    }

    gpuipc_channel *const handle; /* of one that was closed, one that the library refuses */
    const gpuipc_ticket ticket;
    const std::shared_ptr<memory> slots;
    const gpuipc_channel_config config;
    const form_pointer form;
    std::atomic<bool> is_closed{false};
};

/* A slot that is to be filled. What is not published is discarded. */
class channel_loan : public frame_lease {
  public:
    channel_loan(std::shared_ptr<channel> of, const gpuipc_frame &had, form_pointer what,
                 std::optional<gpuipc_stream> named, gpuipc_stream on)
        : frame_lease(of->slots, had, std::move(what), named, on), of_(std::move(of)) {
    }
    ~channel_loan() override {
        (void)discard();
    }
    gpuipc_status discard() {
        return is_over.exchange(true) ? GPUIPC_OK : gpuipc_channel_discard(of_->handle, &frame);
    }
    void publish(gpuipc_stream on);

    std::string header; /* the caller's own */

  protected:
    [[noreturn]] void refuse() const override {
        fail(GPUIPC_ERR_RELEASED, "gpuipc_channel_publish", "this loan was published or discarded");
    }

  private:
    std::shared_ptr<channel> of_;
};

void channel_loan::publish(gpuipc_stream on) {
    char bytes[GPUIPC_FRAME_HEADER_MAX];
    if (header.size() > sizeof(bytes) - form->prefix.size()) {
        throw nb::value_error(
            "the header is too long: what tells of the arrays and the header have 512 bytes together");
    }
    memcpy(bytes, form->prefix.data(), form->prefix.size());
    memcpy(bytes + form->prefix.size(), header.data(), header.size());
    gpuipc_frame full = frame;
    full.bytes = form->bytes;
    full.header = bytes;
    full.header_bytes = form->prefix.size() + header.size();
    check(); /* it is over, whoever else is about to publish it */
    is_over = true;
    const gpuipc_status status =
        frame_call(on, [&] { return gpuipc_channel_publish(of_->handle, &full, on); });
    is_over = status == GPUIPC_OK;
    binding::check(status);
}

/* ---- making one ------------------------------------------------------------------------------ */

struct channel_object {
    std::shared_ptr<channel> core;
};

struct loan_object : frame_object {
    channel_loan &loan() const {
        return static_cast<channel_loan &>(*of);
    }
};

gpuipc_full_policy policy_from(const std::string &name) {
    if (name == "wait") {
        return GPUIPC_FULL_WAIT;
    }
    if (name == "skip") {
        return GPUIPC_FULL_SKIP;
    }
    if (name == "drop") {
        return GPUIPC_FULL_DROP;
    }
    throw nb::value_error("full is 'wait', 'skip' or 'drop'");
}

uint32_t drop_milliseconds(gpuipc_full_policy full, std::optional<double> seconds) {
    if ((full == GPUIPC_FULL_DROP) != seconds.has_value()) {
        throw nb::value_error("drop_after goes with full='drop', and is needed there");
    }
    if (seconds && !(*seconds >= 0 && *seconds < 1e6)) {
        throw nb::value_error("drop_after is a number of seconds");
    }
    return seconds ? static_cast<uint32_t>(std::ceil(*seconds * 1000)) : 0;
}

uint64_t slot_size(const frame_form &form, std::optional<uint64_t> asked) {
    constexpr uint64_t unit = 256; /* so that each slot begins as well as the first */
    const uint64_t bytes = std::max<uint64_t>(asked.value_or(form.bytes), 1);
    if (bytes < form.bytes) {
        throw nb::value_error("slot_bytes is less than a frame of that shape has");
    }
    if (bytes > UINT64_MAX / GPUIPC_CHANNEL_SLOTS_MAX - unit) {
        throw nb::value_error("more bytes than there can be");
    }
    return (bytes + unit - 1) / unit * unit;
}

void construct(channel_object *self, std::optional<std::string> name, nb::handle shape,
               nb::handle dtype, nb::handle like, uint32_t slots,
               std::optional<uint64_t> slot_bytes, uint32_t max_readers, uint32_t max_held,
               const std::string &full, std::optional<double> drop_after, nb::handle device,
               nb::handle openers, nb::handle access_devices, nb::handle transport,
               nb::handle server, nb::handle context_argument) {
    if (like.is_none() == shape.is_none()) {
        throw nb::type_error(
            "a channel is of frames with this shape and dtype, or like something that has both");
    }
    const form_pointer form = frame_form_from(like.is_none() ? shape : like, dtype);
    gpuipc_channel_config config = GPUIPC_CHANNEL_CONFIG_INIT;
    config.full = policy_from(full);
    config.drop_after_ms = drop_milliseconds(config.full, drop_after);
    config.slots = slots;
    config.max_readers = max_readers;
    config.slot_bytes = slot_size(*form, slot_bytes);
    config.header_bytes = GPUIPC_FRAME_HEADER_MAX;
    config.max_held = max_held;
    config.name = name ? c_text(*name) : nullptr;
    if (slots == 0 || slots > GPUIPC_CHANNEL_SLOTS_MAX) {
        throw nb::value_error("a channel has 1 to 64 slots");
    }
    gpuipc_server *from = server_from(server);
    const std::shared_ptr<memory> made_of = create_memory(
        slots * config.slot_bytes, device, openers, access_devices, transport, context_argument);
    config.buffer = made_of->handle();
    gpuipc_channel *made = nullptr;
    gpuipc_ticket ticket;
    check(released([&] {
        const gpuipc_status status = from == nullptr ? made_of->of()->server(&from) : GPUIPC_OK;
        return status == GPUIPC_OK ? gpuipc_channel_create(from, &config, &made, &ticket) : status;
    }));
    config.name = nullptr; /* the caller's */
    made_of->held()->note_slots();
    new (self) channel_object{std::make_shared<channel>(made, ticket, made_of, config, form)};
}

/* ---- loans ----------------------------------------------------------------------------------- */

/* What is there at once is had without giving the GIL up. */
void await_loan(const channel &of, gpuipc_stream stream, const patience &time,
                gpuipc_frame *frame) {
    const auto call = [&](int left) { return gpuipc_channel_loan(of.handle, stream, left, frame); };
    const gpuipc_status status = frame_call(stream, [&] { return call(0); });
    if (status != GPUIPC_ERR_TIMEOUT || time.whole() == 0) {
        check(status);
    } else {
        wait(time, call);
    }
}

loan_object loan(const channel_object &self, nb::handle shape, nb::handle dtype, nb::handle stream,
                 std::optional<double> timeout) {
    const std::shared_ptr<channel> &core = self.core;
    const form_pointer form = shape.is_none() ? core->form : frame_form_from(shape, dtype);
    if (form->bytes > core->config.slot_bytes) {
        throw nb::value_error("a frame of this shape is larger than a slot: see slot_bytes");
    }
    const std::optional<gpuipc_stream> named = frame_stream_named(stream);
    const gpuipc_stream on = frame_stream(*core->slots, stream);
    gpuipc_frame frame = GPUIPC_FRAME_INIT;
    await_loan(*core, on, patience(timeout), &frame);
    return {{std::make_shared<channel_loan>(core, frame, form, named, on)}};
}

void publish(const loan_object &self, nb::handle stream) {
    self.loan().check();
    self.loan().publish(frame_stream_at_end(self.loan(), stream));
}

void discard(const loan_object &self) {
    self.loan().check();
    check(self.loan().discard());
}

void leave(const loan_object &self, nb::handle error, nb::args) {
    if (self.loan().is_over) {
        return;
    }
    if (!error.is_none()) {
        check(self.loan().discard());
        return;
    }
    try {
        publish(self, nb::none());
    } catch (const std::exception &) { /* who has the loan still does not keep its slot */
        (void)self.loan().discard();   /* what went wrong first is what is told */
        throw;
    }
}

void set_header(const loan_object &self, const nb::bytes &header) {
    self.loan().check();
    self.loan().header.assign(header.c_str(), header.size());
}

/* ---- readers --------------------------------------------------------------------------------- */

std::vector<gpuipc_reader_info> readers(const channel_object &self) {
    std::vector<gpuipc_reader_info> found(GPUIPC_CHANNEL_READERS_MAX);
    size_t count = 0;
    check(gpuipc_channel_readers(self.core->handle, found.data(), found.size(), &count));
    found.resize(count);
    return found;
}

const char *state_name(gpuipc_reader_state state) {
    switch (state) {
    case GPUIPC_READER_ACTIVE:
        return "active";
    case GPUIPC_READER_CLOSED:
        return "closed";
    case GPUIPC_READER_DROPPED:
        return "dropped";
    default:
        return "ended";
    }
}

void bind_reader(nb::module_ &m) {
    bound_class<gpuipc_reader_info>(m, "Reader", "How a reader of a channel stands.")
        .def_ro("process_id", &gpuipc_reader_info::process_id,
                "0: not in this process's PID namespace.")
        .def_ro("since_ms", &gpuipc_reader_info::since_ms,
                "When it came, in milliseconds since 1970.")
        .def_ro("lag", &gpuipc_reader_info::lag, "Frames that wait for it.")
        .def_ro("held", &gpuipc_reader_info::held, "Frames that it has, and has not given back.")
        .def_ro("passed_over", &gpuipc_reader_info::passed_over,
                "Frames that it did not take in time, since it wants the newest.")
        .def_prop_ro(
            "state", [](const gpuipc_reader_info &self) { return state_name(self.state); },
            "'active', 'closed', 'dropped' (it was too slow), or 'ended' (its process has).")
        .def_prop_ro(
            "is_alive",
            [](const gpuipc_reader_info &self) { return self.state == GPUIPC_READER_ACTIVE; },
            "It reads.")
        .def_prop_ro(
            "delivery",
            [](const gpuipc_reader_info &self) {
                return self.delivery == GPUIPC_DELIVERY_NEWEST ? "newest" : "all";
            },
            "Which frames it gets: 'all' or 'newest'.")
        .def("__repr__", [](const gpuipc_reader_info &self) {
            return nb::str("<gpuipc.Reader {}: {}, {} held>")
                .format(self.process_id, state_name(self.state), self.held);
        });
}

/* ---- what Python sees ------------------------------------------------------------------------ */

void bind_loan(nb::module_ &m) {
    bound_class<loan_object, frame_object>(
        m, "Loan",
        "A slot of a channel to be filled. With `with` it is published at the end, or discarded when there was an "
        "exception. What is neither is discarded when the last object over it is gone.")
        .def_prop_rw(
            "header",
            [](const loan_object &self) {
                const std::string &header = self.loan().header;
                return nb::bytes(header.data(), header.size());
            },
            set_header, nb::for_getter(nb::sig("def header(self) -> bytes")),
            nb::for_setter(nb::sig("def header(self, header: bytes, /) -> None")),
            "Bytes of your own beside the frame, such as its time: some 380, where it is one array.")
        .def(
            "publish", publish, nb::arg("stream") = nb::none(),
            nb::sig("def publish(self, stream: object | None = None) -> None"),
            "All readers see it from now on, and its contents are ready when the stream comes to this. None: the "
            "stream that the loan was made for, or the current one.")
        .def("discard", discard,
             "Nobody sees it. No stream may write it any more: wait for yours before.")
        .def(
            "__enter__", [](nb::handle self) { return nb::borrow(self); },
            nb::sig("def __enter__(self) -> Loan"))
        .def("__exit__", leave, nb::arg("type").none(), nb::arg("rest"),
             nb::sig("def __exit__(self, type: object, *rest: object) -> None"));
}

} // namespace

void bind_channel(nb::module_ &m) {
    bind_reader(m);
    bind_loan(m);
    bound_class<channel_object>(
        m, "Channel", nb::is_weak_referenceable(),
        "Frames for other processes, in memory that all have open: slots are loaned, filled and published.")
        .def(
            "__init__", construct, nb::arg("name") = nb::none(), nb::arg("shape") = nb::none(),
            nb::arg("dtype") = nb::none(), nb::kw_only(), nb::arg("like") = nb::none(),
            nb::arg("slots") = 4, nb::arg("slot_bytes") = nb::none(), nb::arg("max_readers") = 0,
            nb::arg("max_held") = 0, nb::arg("full") = "wait", nb::arg("drop_after") = nb::none(),
            nb::arg("device") = 0, nb::arg("openers") = nb::none(),
            nb::arg("access_devices") = nb::make_tuple(), nb::arg("transport") = nb::none(),
            nb::arg("server") = nb::none(), nb::arg("context") = nb::none(),
            nb::sig(
                "def __init__(self, name: str | None = None, shape: int | collections.abc.Sequence[int] | collections.abc.Mapping[str, "
                "typing.Any] | None = None, dtype: object | None = None, *, like: object | None = None, slots: int "
                "= 4, slot_bytes: int | None = None, max_readers: int = 0, max_held: int = 0, full: str = "
                "\"wait\", drop_after: float | None = None, device: object = 0, openers: "
                "collections.abc.Iterable[object] | None = None, access_devices: "
                "collections.abc.Iterable[object] = (), transport: str | None = None, server: Server | None = None, "
                "context: Context | None = None) -> None"),
            "name: by which readers find it in the runtime directory, beside its ticket. Of frames of this shape and dtype, or like something that has both; a dict of such, or of (shape, "
            "dtype), is several arrays in one frame. slot_bytes: bytes of a slot, where single frames may be "
            "larger. max_readers: 0: 32. max_held: how many frames a reader may have at most; 0: one less than "
            "slots. full: what a loan does when readers that want every frame have all slots. 'wait'; 'skip': it "
            "raises errors.BusyError, and readers miss a frame; 'drop': after drop_after seconds it ends the "
            "readers in its way. The rest is as in empty().")
        .def(
            "loan", loan, nb::arg("shape") = nb::none(), nb::arg("dtype") = nb::none(),
            nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("timeout") = nb::none(),
            nb::sig(
                "def loan(self, shape: int | collections.abc.Sequence[int] | collections.abc.Mapping[str, "
                "typing.Any] | None = None, dtype: object | None = None, *, stream: object | None = None, "
                "timeout: float | None = None) -> Loan"),
            "A slot to be filled, for `with`. Waits until readers have given one back, for at most timeout seconds; "
            "a stream waits by itself for those that gave back in the order of theirs. stream: which fills it; "
            "None: the current one, and none for memory of the host; -1: none, you fill it. shape, dtype: of this "
            "frame alone.")
        .def(
            "ticket", [](const channel_object &self) { return self.core->ticket; },
            "What readers open it by, as long as it is there.")
        .def("readers", readers, nb::sig("def readers(self) -> list[Reader]"),
             "Those that read, and the last of those that did.")
        .def_prop_ro(
            "slots", [](const channel_object &self) { return self.core->config.slots; },
            "How many slots there are.")
        .def_prop_ro(
            "slot_bytes", [](const channel_object &self) { return self.core->config.slot_bytes; },
            "Bytes of each slot.")
        .def_prop_ro(
            "buffer", [](const channel_object &self) { return buffer_object{self.core->slots}; },
            "The memory that the slots are in.")
        .def(
            "close",
            [](const channel_object &self) { check(released([&] { return self.core->end(); })); },
            "Readers get what was published, and then the end. What is on loan is never seen. Takes some 20 ms.")
        .def(
            "__enter__", [](nb::handle self) { return nb::borrow(self); },
            nb::sig("def __enter__(self) -> Channel"))
        .def(
            "__exit__",
            [](const channel_object &self, nb::args) {
                check(released([&] { return self.core->end(); }));
            },
            nb::sig("def __exit__(self, *args: object) -> None"))
        .def(
            "__reduce__",
            [](nb::handle) {
                throw nb::type_error(
                    "a channel stays where it is made: give the other process its ticket()");
            },
            nb::sig("def __reduce__(self) -> typing.NoReturn"))
        .def("__repr__", [](const channel_object &self) {
            return nb::str("<gpuipc.Channel of {} slots of {} bytes>")
                .format(self.core->config.slots, self.core->config.slot_bytes);
        });
}

} // namespace binding
