/* SPDX-License-Identifier: MIT */
#include "connection.hpp"

#include "message.hpp"
#include "policy.hpp"
#include "share.hpp"
#include "stream.hpp"

namespace binding {

namespace {

/* ---- what is owned -------------------------------------------------------------------------- */

/** A listener or a connection. Closed, it keeps its handle, which the library then refuses. */
template <typename type, gpuipc_status (*end)(type *)> class endpoint {
  public:
    endpoint(std::shared_ptr<context> of, type *taken, std::unique_ptr<peer_rule> rule = nullptr)
        : of_(std::move(of)), handle_(taken), rule_(std::move(rule)) {
    }
    endpoint(endpoint &&other) noexcept
        : of_(std::move(other.of_)), handle_(other.handle_), rule_(std::move(other.rule_)),
          is_closed_(other.is_closed_.exchange(true)) {
    }
    ~endpoint() {
        close();
    }
    type *handle() const {
        return handle_;
    }
    const std::shared_ptr<context> &of() const {
        return of_;
    }
    void close() {
        if (!is_closed_.exchange(true)) {
            (void)end(handle_);
        }
    }

  private:
    std::shared_ptr<context> of_;
    type *handle_;
    std::unique_ptr<peer_rule> rule_;
    std::atomic<bool> is_closed_{false};
};

using listener = endpoint<gpuipc_listener, gpuipc_listener_close>;
using connection = endpoint<gpuipc_connection, gpuipc_connection_close>;

template <typename endpoint_type> void close(endpoint_type &self) {
    const without_gil without;
    self.close();
}

/* ---- opening -------------------------------------------------------------------------------- */

gpuipc_endpoint_config config_of(peer_rule &rule) {
    gpuipc_endpoint_config config = GPUIPC_ENDPOINT_CONFIG_INIT;
    config.policy = rule.function();
    config.policy_user_data = rule.data();
    return config;
}

listener listen(const std::string &name, nb::handle users, nb::handle policy,
                nb::handle context_argument) {
    std::shared_ptr<context> of = context_from(context_argument);
    auto rule = std::make_unique<peer_rule>(users, policy);
    const gpuipc_endpoint_config config = config_of(*rule);
    const char *const known = c_text(name);
    gpuipc_listener *made = nullptr;
    check(released([&] { return gpuipc_listener_open(of->handle(), known, &config, &made); }));
    return {std::move(of), made, std::move(rule)};
}

connection accept(const listener &self, std::optional<double> timeout) {
    gpuipc_connection *made = nullptr;
    wait(patience(timeout),
         [&](int left) { return gpuipc_listener_accept(self.handle(), left, &made); });
    return {self.of(), made};
}

connection connect(const std::string &name, std::optional<double> timeout, nb::handle users,
                   nb::handle policy, nb::handle context_argument) {
    std::shared_ptr<context> of = context_from(context_argument);
    peer_rule rule(users, policy);
    const gpuipc_endpoint_config config = config_of(rule);
    const char *const known = c_text(name);
    gpuipc_connection *made = nullptr;
    wait(
        patience(timeout),
        [&](int left) { return gpuipc_connection_open(of->handle(), known, &config, left, &made); },
        GPUIPC_ERR_NOT_FOUND);
    return {std::move(of), made};
}

/* ---- messages ------------------------------------------------------------------------------- */

void send(const connection &self, const nb::bytes &data, nb::handle arrays, nb::handle stream,
          bool waits, nb::handle access, std::optional<double> timeout) {
    const patience time(timeout);
    const message made = message_of(data, arrays);
    std::vector<gpuipc_buffer *> handles;
    for (const std::shared_ptr<memory> &each : made.buffers) {
        each->check_open();
        each->ready_here(time);
        handles.push_back(each->handle());
    }
    gpuipc_outgoing outgoing = GPUIPC_OUTGOING_INIT;
    outgoing.bytes = made.bytes.data();
    outgoing.bytes_size = made.bytes.size();
    outgoing.buffers = handles.data();
    outgoing.buffer_count = handles.size();
    outgoing.flags = waits ? 0 : GPUIPC_SEND_ASYNC;
    outgoing.access = access_from(access);
    outgoing.stream = stream_from(stream);
    wait_at_once(time,
                 [&](int left) { return gpuipc_connection_send(self.handle(), &outgoing, left); });
}

/* Room for a message, which grows to what one needs; each thread keeps what it had. */
struct room {
    std::string bytes = std::string(4096, '\0');
    std::vector<gpuipc_buffer *> buffers = std::vector<gpuipc_buffer *>(16);
    std::vector<gpuipc_buffer_info> infos;
};

gpuipc_status receive_into(const connection &self, room &into, gpuipc_incoming &incoming,
                           int left) {
    for (;;) {
        into.infos.resize(into.buffers.size(), GPUIPC_BUFFER_INFO_INIT);
        incoming.bytes = into.bytes.data();
        incoming.bytes_capacity = into.bytes.size();
        incoming.buffers = into.buffers.data();
        incoming.buffer_capacity = into.buffers.size();
        incoming.infos = into.infos.data();
        const gpuipc_status status = gpuipc_connection_receive(self.handle(), &incoming, left);
        if (status != GPUIPC_ERR_TOO_SMALL) {
            return status;
        }
        into.bytes.resize(std::max(into.bytes.size(), incoming.bytes_size));
        into.buffers.resize(std::max(into.buffers.size(), incoming.buffer_count));
    }
}

message_object receive(const connection &self, std::optional<double> timeout, nb::handle device,
                       nb::handle access, nb::handle stream, bool waits) {
    const patience time(timeout);
    const gpuipc_stream on = stream_from(stream);
    thread_local room into;
    gpuipc_incoming incoming = GPUIPC_INCOMING_INIT;
    incoming.flags = GPUIPC_RECEIVE_DEFERRED;
    incoming.device = device_or_owner(device);
    incoming.access = access_from(access);
    wait(time, [&](int left) { return receive_into(self, into, incoming, left); });
    message came;
    came.bytes.assign(into.bytes.data(), incoming.bytes_size);
    for (size_t i = 0; i < incoming.buffer_count; i++) {
        came.buffers.push_back(std::make_shared<memory>(self.of(), into.buffers[i], into.infos[i]));
    }
    for (const std::shared_ptr<memory> &each : came.buffers) {
        if (waits) { /* without the timeout, which would throw away what has come */
            each->ready_here(patience(std::nullopt));
        } else if (!stream.is_none()) {
            each->ready_for(on);
        }
    }
    return message_read(came);
}

/* Whether it leaves in one packet, as a whole or not at all. By what the library's packets have room for, and by far
 * less where that is not known exactly. */
bool leaves_at_once(const nb::bytes &data, nb::handle arrays) {
    constexpr size_t bytes_most = 48u << 10;
    constexpr size_t each_buffer = 256;
    constexpr size_t each_segment = 128;
    constexpr size_t segments_most = 128;
    const message made = message_of(data, arrays);
    size_t segments = 0;
    for (const std::shared_ptr<memory> &each : made.buffers) {
        segments += each->info_now().segment_count;
    }
    return segments <= segments_most &&
           made.bytes.size() + made.buffers.size() * each_buffer + segments * each_segment <=
               bytes_most;
}

gpuipc_peer_info peer_of(const connection &self) {
    gpuipc_peer_info peer = GPUIPC_PEER_INFO_INIT;
    check(gpuipc_connection_get_peer(self.handle(), &peer));
    return peer;
}

intptr_t wait_handle(const listener &self) {
    intptr_t handle;
    check(gpuipc_listener_get_wait_handle(self.handle(), &handle));
    return handle;
}

intptr_t connection_wait_handle(const connection &self) {
    intptr_t handle;
    check(gpuipc_connection_get_wait_handle(self.handle(), &handle));
    return handle;
}

/* ---- what Python sees ----------------------------------------------------------------------- */

void bind_message(nb::module_ &m) {
    bound_class<message_object>(m, "Message", "What came over a connection.")
        .def_prop_ro(
            "data", [](const message_object &self) { return self.data; },
            "The bytes that were sent.")
        .def_prop_ro(
            "arrays", [](const message_object &self) { return self.arrays; },
            nb::sig("def arrays(self) -> list[Array]"),
            "The arrays that were sent, in their order. They are this process's: they stay when the connection ends.")
        .def("__repr__", [](const message_object &self) {
            return nb::str("<gpuipc.Message of {} bytes and {} arrays>")
                .format(self.data.size(), self.arrays.size());
        });
}

void bind_listener(nb::module_ &m) {
    bound_class<listener>(m, "Listener", nb::is_weak_referenceable(),
                          "A name under which other processes of this user connect.")
        .def("accept", accept, nb::arg("timeout") = nb::none(),
             nb::sig("def accept(self, timeout: float | None = None) -> Connection"),
             "Waits for a process to connect. Raises errors.Timeout after so many seconds.")
        .def("fileno", wait_handle, "Readable when somebody has connected.")
        .def("close", close<listener>, "Frees the name. Connections stay.")
        .def(
            "__enter__", [](nb::handle self) { return nb::borrow(self); },
            nb::sig("def __enter__(self) -> Listener"))
        .def(
            "__exit__", [](listener &self, nb::args) { close(self); },
            nb::sig("def __exit__(self, *args: object) -> None"));
}

} // namespace

gpuipc_connection *connection_from(nb::handle argument) {
    return argument.is_none() ? nullptr : nb::cast<connection &>(argument).handle();
}

void bind_connection(nb::module_ &m) {
    bind_message(m);
    bound_class<connection>(
        m, "Connection", nb::is_weak_referenceable(),
        "A conversation with one process. One thread sends and one receives at a time.")
        .def(
            "send", send, nb::arg("data") = nb::bytes("", 0), nb::arg("arrays") = nb::make_tuple(),
            nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("wait") = true,
            nb::arg("access") = nb::none(), nb::arg("timeout") = nb::none(),
            nb::sig(
                "def send(self, data: bytes = b'', arrays: collections.abc.Iterable[Array | Buffer] = (), *, "
                "stream: object | None = None, wait: bool = True, access: str | None = None, timeout: float | "
                "None = None) -> None"),
            "Sends bytes and arrays when the work of the stream that makes their contents is done; with wait=False "
            "at once, and who receives them waits. The arrays may be let go of afterwards. Raises errors.Timeout when "
            "the peer does not read for so many seconds and nothing has left, and errors.PeerClosed when a part had: "
            "then the conversation has ended.")
        .def(
            "receive", receive, nb::arg("timeout") = nb::none(), nb::kw_only(),
            nb::arg("device") = nb::none(), nb::arg("access") = nb::none(),
            nb::arg("stream") = nb::none(), nb::arg("wait") = true,
            nb::sig(
                "def receive(self, timeout: float | None = None, *, device: object | None = None, access: str | None "
                "= None, stream: object | None = None, wait: bool = True) -> Message"),
            "Waits for a message. The arguments are those of gpuipc.open(). Raises errors.Timeout when none came for so many "
            "seconds, and errors.PeerClosed when none will.")
        .def_prop_ro(
            "peer_process_id", [](const connection &self) { return peer_of(self).process_id; },
            "As the system says; 0: not in this process's PID namespace.")
        .def_prop_ro(
            "peer_user", [](const connection &self) { return nb::str(peer_of(self).user); },
            "The user of the process at the other end, as a number or, on Windows, a SID.")
        .def_prop_ro("peer", peer_of, "The process at the other end.")
        .def("fileno", connection_wait_handle, "Readable when there is something to receive.")
        .def("close", close<connection>, "Ends the conversation. Arrays that came stay.")
        .def(
            "__enter__", [](nb::handle self) { return nb::borrow(self); },
            nb::sig("def __enter__(self) -> Connection"))
        .def(
            "__exit__", [](connection &self, nb::args) { close(self); },
            nb::sig("def __exit__(self, *args: object) -> None"));
    bind_listener(m);
    define(
        m, "listen", listen, nb::arg("name"), nb::kw_only(), nb::arg("users") = nb::none(),
        nb::arg("policy") = nb::none(), nb::arg("context") = nb::none(),
        nb::sig(
            "def listen(name: str, *, users: collections.abc.Iterable[int | str] | None = None, policy: "
            "collections.abc.Callable[[Peer], bool] | None = None, context: Context | None = None) -> Listener"),
        "A name under which other processes of this user connect, and of the users named. policy: is asked of "
        "each of them, in accept(), and must not use gpuipc.");
    define(
        m, "connect", connect, nb::arg("name"), nb::arg("timeout") = 5.0, nb::kw_only(),
        nb::arg("users") = nb::none(), nb::arg("policy") = nb::none(),
        nb::arg("context") = nb::none(),
        nb::sig(
            "def connect(name: str, timeout: float | None = 5.0, *, users: collections.abc.Iterable[int | str] | "
            "None = None, policy: collections.abc.Callable[[Peer], bool] | None = None, context: Context | None "
            "= None) -> Connection"),
        "Connects to a listener, and waits so many seconds for one to appear: then errors.NotFound. users and policy: whose it may "
        "be, as listen() has them.");
    define(m, "leaves_at_once", leaves_at_once, nb::arg("data"), nb::arg("arrays"),
           nb::sig("def leaves_at_once(data: bytes, arrays: "
                   "collections.abc.Iterable[Array | Buffer]) -> bool"),
           "A message of these leaves as a whole or, when the time is over, not at all.");
}

} // namespace binding
