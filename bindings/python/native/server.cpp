/* SPDX-License-Identifier: MIT */
#include "server.hpp"

#include <algorithm>
#include <future>
#include <thread>

#include "ticket.hpp"
#include "waiting.hpp"

namespace binding {

/* ---- one ------------------------------------------------------------------------------------ */

class server_object {
  public:
    server_object(std::shared_ptr<context> of, gpuipc_server *taken,
                  std::unique_ptr<peer_rule> rule)
        : of_(std::move(of)), handle_(taken), rule_(std::move(rule)) {
    }
    server_object(const server_object &) = delete;
    server_object &operator=(const server_object &) = delete;
    ~server_object();

    gpuipc_server *handle() const {
        return handle_;
    }
    const std::shared_ptr<context> &of() const {
        return of_;
    }
    /** At the end of Python. A policy that does not return is left to itself: it stands still when it is to go on. */
    void end();
    /** Waits for the thread that serves, which may be in a policy: without the GIL. */
    void close() {
        if (!is_closed_.exchange(true)) {
            const gpuipc_status status = released([&] { return gpuipc_server_destroy(handle_); });
            is_closed_ = status == GPUIPC_OK;
            check(status);
        }
    }

  private:
    std::shared_ptr<context> of_;
    gpuipc_server *handle_;
    std::unique_ptr<peer_rule> rule_;
    std::atomic<bool> is_closed_{false};
};

namespace {

/* Those whose policy is a function of Python, which cannot be asked when Python has ended. With the GIL. */
std::vector<server_object *> &those_with_policies() {
    static std::vector<server_object *> &only = *new std::vector<server_object *>;
    return only;
}

void end_those_with_policies() {
    for (;;) { // the list as it is: other threads may run while one ends
        server_object *last;
        nb::object kept; // another thread may give it up meanwhile
        {
            const exclusive others;
            std::vector<server_object *> &left = those_with_policies();
            if (left.empty()) {
                return;
            }
            last = left.back();
            left.pop_back();
            kept = nb::find(last);
        }
        if (kept.is_valid()) { // else that thread is just ending it
            last->end();
        }
    }
}

} // namespace

void server_object::end() {
    if (is_closed_.exchange(true)) {
        return;
    }
    std::packaged_task<void()> ending([ended = handle_] { (void)gpuipc_server_destroy(ended); });
    const std::future<void> done = ending.get_future();
    std::thread(std::move(ending)).detach();
    constexpr std::chrono::seconds patience(1);
    const without_gil without;
    if (done.wait_for(patience) == std::future_status::timeout) {
        (void)rule_.release(); /* for the thread that is in it, to the end of the process */
    }
}

server_object::~server_object() {
    {
        const exclusive others;
        auto &listed = those_with_policies();
        listed.erase(std::remove(listed.begin(), listed.end(), this), listed.end());
    }
    if (!is_closed_.exchange(true)) {
        (void)released([&] { return gpuipc_server_destroy(handle_); });
    }
}

/* ---- what Python sees ------------------------------------------------------------------------ */

namespace {

void construct(server_object *self, nb::handle users, nb::handle policy, bool thread,
               uint32_t max_connections, uint32_t max_connections_per_user,
               nb::handle context_argument) {
    std::shared_ptr<context> of = context_from(context_argument);
    auto rule = std::make_unique<peer_rule>(users, policy);
    gpuipc_server_config config = GPUIPC_SERVER_CONFIG_INIT;
    config.flags = thread ? GPUIPC_SERVER_THREAD : 0;
    config.max_connections = max_connections;
    config.max_connections_per_user = max_connections_per_user;
    config.policy = rule->function();
    config.policy_user_data = rule->data();
    gpuipc_server *made = nullptr;
    check(released([&] { return gpuipc_server_create(of->handle(), &config, &made); }));
    const bool calls_python = rule->calls_python();
    new (self) server_object(std::move(of), made, std::move(rule));
    if (calls_python) {
        those_with_policies().push_back(self);
    }
}

nb::object share(nb::handle self, nb::handle shared, nb::kwargs options) {
    options["server"] = self;
    return nb::module_::import_("gpuipc._native").attr("share")(shared, **options);
}

void revoke(const server_object &self, nb::handle ticket) {
    const gpuipc_ticket revoked = ticket_from(ticket);
    check(gpuipc_server_revoke(self.handle(), &revoked));
}

void poll(const server_object &self, std::optional<double> timeout) {
    wait(patience(timeout), [&](int left) { return gpuipc_server_poll(self.handle(), left); });
}

intptr_t wait_handle(const server_object &self) {
    intptr_t handle;
    check(gpuipc_server_get_wait_handle(self.handle(), &handle));
    return handle;
}

} // namespace

gpuipc_server *server_from(nb::handle argument) {
    return argument.is_none() ? nullptr : nb::cast<server_object &>(argument).handle();
}

std::vector<gpuipc_holder> holders_of(gpuipc_server *server, nb::handle ticket) {
    const gpuipc_ticket asked = ticket_from(ticket);
    std::vector<gpuipc_holder> found(16);
    for (;;) {
        size_t count = 0;
        const gpuipc_status status =
            gpuipc_server_holders(server, &asked, found.data(), found.size(), &count);
        found.resize(count);
        if (status != GPUIPC_ERR_TOO_SMALL) {
            check(status);
            return found;
        }
    }
}

void bind_server(nb::module_ &m) {
    bound_class<server_object>(
        m, "Server", nb::is_weak_referenceable(),
        "Answers tickets, beside the server that each context has: for other users, with a policy "
        "of one's own, or polled by the program instead of by a thread.")
        .def(
            "__init__", construct, nb::kw_only(), nb::arg("users") = nb::none(),
            nb::arg("policy") = nb::none(), nb::arg("thread") = true,
            nb::arg("max_connections") = 0, nb::arg("max_connections_per_user") = 0,
            nb::arg("context") = nb::none(),
            nb::sig(
                "def __init__(self, *, users: collections.abc.Iterable[int | str] | None = None, policy: "
                "collections.abc.Callable[[Peer], bool] | None = None, thread: bool = True, "
                "max_connections: int = 0, max_connections_per_user: int = 0, context: Context | None = None) "
                "-> None"),
            "users: who may open tickets beside this user, which takes a Context(shared_directory=True). "
            "policy: a function that is asked of each process (of those users); it runs on the server's "
            "thread and must not use gpuipc. thread=False: the program calls poll().")
        .def("share", share, nb::arg("shared"), nb::arg("options"),
             nb::sig("def share(self, shared: Buffer | Array | dict[str, Array], **options: "
                     "typing.Any) -> Ticket"),
             "A new ticket, as gpuipc.share(), that this server answers.")
        .def("revoke", revoke, nb::arg("ticket"),
             nb::sig("def revoke(self, ticket: Ticket | bytes | str) -> None"),
             "Nobody opens the ticket from now on. Who has it open keeps it.")
        .def(
            "holders",
            [](const server_object &self, nb::handle ticket) {
                return holders_of(self.handle(), ticket);
            },
            nb::arg("ticket"),
            nb::sig("def holders(self, ticket: Ticket | bytes | str) -> list[Holder]"),
            "Which processes opened the ticket and have it open still.")
        .def(
            "poll", poll, nb::arg("timeout") = nb::none(),
            nb::sig("def poll(self, timeout: float | None = None) -> None"),
            "Answers what has come, of a server without a thread. Waits for it. Raises errors.Timeout "
            "when nothing came for so many seconds.")
        .def("fileno", wait_handle, "Readable when poll() has something to do.")
        .def("close", &server_object::close,
             "Nobody opens its tickets any more. What is open stays open.")
        .def_prop_ro(
            "context", [](const server_object &self) { return context_object{self.of()}; },
            "The Context that it belongs to.")
        .def(
            "__enter__", [](nb::handle self) { return nb::borrow(self); },
            nb::sig("def __enter__(self) -> Server"))
        .def(
            "__exit__", [](server_object &self, nb::args) { self.close(); },
            nb::sig("def __exit__(self, *args: object) -> None"));
    nb::module_::import_("atexit").attr("register")(nb::cpp_function(end_those_with_policies));
}

} // namespace binding
