/* SPDX-License-Identifier: MIT */
#include "context.hpp"

#include "asked.hpp"
#include "deferred.hpp"
#include "lingering.hpp"
#include "server.hpp"
#include "ticket.hpp"

namespace binding {

/* ---- the library's context ------------------------------------------------------------------ */

gpuipc_status context::server(gpuipc_server **out_server) {
    const std::lock_guard<std::mutex> lock(server_lock_);
    gpuipc_server *made = server_;
    if (made == nullptr) {
        gpuipc_server_config config = GPUIPC_SERVER_CONFIG_INIT;
        config.flags = GPUIPC_SERVER_THREAD;
        config.max_connections_per_user = max_connections_per_user_ != 0
                                              ? max_connections_per_user_
                                              : usual_connections_per_user_.load();
        const gpuipc_status status = gpuipc_server_create(handle_, &config, &made);
        if (status != GPUIPC_OK) {
            return status;
        }
        server_ = made;
    }
    *out_server = made;
    return GPUIPC_OK;
}

void context::close() {
    if (is_closed_.exchange(true)) {
        return;
    }
    keep_no_more(this);
    (void)gpuipc_server_destroy(server_.exchange(nullptr));
    (void)gpuipc_context_destroy(handle_);
}

/* ---- the log -------------------------------------------------------------------------------- */

namespace {

struct log_line {
    gpuipc_log_level level;
    std::string sentence;
};

void log_in_python(void *argument) {
    const std::unique_ptr<log_line> line(static_cast<log_line *>(argument));
    try {
        nb::object logger = nb::module_::import_("logging").attr("getLogger")("gpuipc");
        logger.attr(line->level == GPUIPC_LOG_WARNING ? "warning" : "info")("%s",
                                                                            line->sentence.c_str());
    } catch (nb::python_error &error) {
        error.discard_as_unraisable("gpuipc's log");
    }
}

/* Called inside the library, maybe with its locks and without the GIL, for which nobody must wait there. */
void log(void *, gpuipc_log_level level, const char *sentence) {
    when_python_runs(log_in_python, new log_line{level, sentence});
}

/* ---- the default context -------------------------------------------------------------------- */

/* Never destroyed: it is given up when Python has ended, and what the process ends with is not waited for. */
std::shared_ptr<context> &default_slot() {
    static std::shared_ptr<context> &slot = *new std::shared_ptr<context>;
    return slot;
}

std::shared_ptr<context> create(const gpuipc_context_config &config,
                                uint32_t max_connections_per_user = 0) {
    gpuipc_context *made = nullptr;
    check(released([&] { return gpuipc_context_create(&config, &made); }));
    gpuipc_context_info info = GPUIPC_CONTEXT_INFO_INIT;
    check(gpuipc_context_get_info(made, &info));
    return std::make_shared<context>(made, info, max_connections_per_user);
}

gpuipc_context_config config_of_ours() {
    gpuipc_context_config config = GPUIPC_CONTEXT_CONFIG_INIT;
    config.flags = GPUIPC_CONTEXT_INTERRUPTIBLE;
    config.log = log;
    return config;
}

std::shared_ptr<context> default_context() {
    if (default_slot() == nullptr || default_slot()->is_closed()) {
        std::shared_ptr<context> made = create(config_of_ours());
        /* Another thread may have made one meanwhile. */
        if (default_slot() == nullptr || default_slot()->is_closed()) {
            default_slot() = made;
        }
    }
    return default_slot();
}

/* A forked child cannot use its parent's context; giving it up there only frees memory. */
void forget_default_context() {
    context::note_fork();
    default_slot().reset();
}

void close_default_context() {
    lingering_end();
    if (default_slot() != nullptr) {
        default_slot()->close();
    }
}

/* ---- what Python sees ----------------------------------------------------------------------- */

void construct(context_object *self, std::optional<std::string> driver,
               std::optional<std::string> runtime_directory, bool shared_directory, bool keep_alive,
               uint32_t max_cached_imports, uint32_t max_buffers_per_message,
               uint32_t max_handles_per_message, uint32_t max_connections_per_user) {
    gpuipc_context_config config = config_of_ours();
    config.driver = driver ? c_text(*driver) : nullptr;
    config.runtime_directory = runtime_directory ? c_text(*runtime_directory) : nullptr;
    config.flags |= shared_directory ? GPUIPC_CONTEXT_SHARED_DIRECTORY : 0;
    config.flags |= keep_alive ? 0 : GPUIPC_CONTEXT_NO_KEEP_ALIVE;
    config.max_cached_imports = max_cached_imports;
    config.max_buffers_per_message = max_buffers_per_message;
    config.max_handles_per_message = max_handles_per_message;
    new (self) context_object{create(config, max_connections_per_user)};
}

gpuipc_context_info info_of(const context_object &self) {
    gpuipc_context_info info = GPUIPC_CONTEXT_INFO_INIT;
    check(gpuipc_context_get_info(self.core->handle(), &info));
    return info;
}

struct device {
    uint32_t number;
    gpuipc_device_info info;
};

std::vector<device> devices_of(const context_object &self) {
    std::vector<device> devices;
    for (uint32_t i = 0; i < info_of(self).device_count; i++) {
        device each = {i, GPUIPC_DEVICE_INFO_INIT};
        check(gpuipc_device_get_info(self.core->handle(), i, &each.info));
        devices.push_back(each);
    }
    return devices;
}

void close(const context_object &self) {
    const without_gil without;
    self.core->close();
}

void revoke(const context_object &self, nb::handle ticket) {
    const gpuipc_ticket revoked = ticket_from(ticket);
    gpuipc_server *server = nullptr;
    check(released([&] { return self.core->server(&server); }));
    check(gpuipc_server_revoke(server, &revoked));
}

std::vector<gpuipc_holder> holders(const context_object &self, nb::handle ticket) {
    gpuipc_server *server = nullptr;
    check(released([&] { return self.core->server(&server); }));
    return holders_of(server, ticket);
}

void bind_device(nb::module_ &m) {
    bound_class<device>(m, "Device", "A GPU of this process.")
        .def_prop_ro(
            "number", [](const device &self) { return self.number; },
            "From 0 on, as CUDA counts the devices that this process sees.")
        .def_prop_ro(
            "name", [](const device &self) { return nb::str(self.info.name); },
            "What its maker calls it.")
        .def_prop_ro(
            "uuid",
            [](const device &self) {
                return nb::bytes(self.info.uuid.bytes, sizeof(self.info.uuid.bytes));
            },
            "16 bytes that name it in every process.")
        .def_prop_ro(
            "memory_bytes", [](const device &self) { return self.info.memory_bytes; },
            "All of its memory, in bytes.")
        .def_prop_ro(
            "granularity_bytes", [](const device &self) { return self.info.granularity_bytes; },
            "Shareable memory is made in multiples of this.")
        .def_prop_ro(
            "compute_capability",
            [](const device &self) {
                return std::pair<int, int>(self.info.compute_major, self.info.compute_minor);
            },
            nb::sig("def compute_capability(self) -> tuple[int, int]"), "Major and minor number.")
        .def_prop_ro(
            "is_mig", [](const device &self) { return self.info.is_mig != 0; }, "A slice of a GPU.")
        .def_prop_ro(
            "can_share", [](const device &self) { return self.info.can_share != 0; },
            "Memory of it can be shared as it is.")
        .def_prop_ro(
            "why_not", [](const device &self) { return nb::str(self.info.why_not); },
            "If it cannot share, the reason; else empty.")
        .def(
            "__eq__",
            [](const device &self, const device &other) {
                return self.number == other.number &&
                       memcmp(&self.info.uuid, &other.info.uuid, sizeof(self.info.uuid)) == 0;
            },
            nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
        .def("__hash__", [](const device &self) { return self.number; })
        .def("__repr__", [](const device &self) {
            return nb::str("<gpuipc.Device {}: {}>").format(self.number, self.info.name);
        });
}

void bind_holder(nb::module_ &m) {
    bound_class<gpuipc_holder>(m, "Holder", "A process that has a ticket's buffer open.")
        .def_ro("process_id", &gpuipc_holder::process_id, "0: not in this process's PID namespace.")
        .def_ro("since_ms", &gpuipc_holder::since_ms, "In milliseconds since 1970.")
        .def_ro("openings", &gpuipc_holder::openings, "How often it has the buffer open.")
        .def_prop_ro(
            "is_running",
            [](const gpuipc_holder &self) -> std::optional<bool> {
                return self.is_running < 0 ? std::nullopt
                                           : std::optional<bool>(self.is_running != 0);
            },
            "None: cannot be known.")
        .def_prop_ro(
            "user", [](const gpuipc_holder &self) { return nb::str(self.user); },
            "Whose process it is, as a number or, on Windows, a SID.");
}

} // namespace

std::shared_ptr<context> context_from(nb::handle argument) {
    return argument.is_none() ? default_context() : nb::cast<context_object &>(argument).core;
}

std::shared_ptr<context> context_if_any() {
    return default_slot();
}

uint32_t device_number_from(nb::handle argument) {
    /* Python code checks all other objects. */
    const nb::object exact =
        PyLong_CheckExact(argument.ptr()) != 0 ? nb::borrow(argument) : nb::object(asked([&] {
            return nb::module_::import_("gpuipc._devices").attr("number")(argument);
        }));
    const int64_t number = integer_of(exact).value_or(-1);
    if (number < 0 || number > UINT16_MAX) {
        throw nb::value_error(nb::str("the number of a device must be from 0 to {}, not {}")
                                  .format(UINT16_MAX, exact)
                                  .c_str());
    }
    return static_cast<uint32_t>(number);
}

uint32_t device_from(nb::handle argument) {
    return GPUIPC_DEVICE(device_number_from(argument));
}

uint32_t device_or_owner(nb::handle argument) {
    return argument.is_none() ? GPUIPC_DEVICE_OWNER : device_from(argument);
}

gpuipc_transport transport_from(nb::handle argument) {
    if (argument.is_none()) {
        return GPUIPC_TRANSPORT_DEFAULT;
    }
    const std::string name = nb::cast<std::string>(argument);
    for (int i = 1; i <= GPUIPC_TRANSPORT_COUNT; i++) {
        const gpuipc_transport transport = static_cast<gpuipc_transport>(i);
        if (name == gpuipc_transport_name(transport)) {
            return transport;
        }
    }
    throw nb::value_error("a transport is vmm, pool, legacy, p2p, host or fabric");
}

void bind_context(nb::module_ &m) {
    bind_device(m);
    bind_holder(m);
    bound_class<context_object>(
        m, "Context", nb::is_weak_referenceable(),
        "One process's use of gpuipc: a CUDA driver, a runtime directory, a server for tickets.")
        .def(
            "__init__", construct, nb::kw_only(), nb::arg("driver") = nb::none(),
            nb::arg("runtime_directory") = nb::none(), nb::arg("shared_directory") = false,
            nb::arg("keep_alive") = true, nb::arg("max_cached_imports") = 0,
            nb::arg("max_buffers_per_message") = 0, nb::arg("max_handles_per_message") = 0,
            nb::arg("max_connections_per_user") = 0,
            nb::sig(
                "def __init__(self, *, driver: str | None = None, runtime_directory: str | None = None, "
                "shared_directory: bool = False, keep_alive: bool = True, max_cached_imports: int = 0, "
                "max_buffers_per_message: int = 0, max_handles_per_message: int = 0, max_connections_per_user: "
                "int = 0) -> None"),
            "driver: 'auto', 'emulated', or the path of a library; None: as the environment variable "
            "GPUIPC_CUDA_DRIVER says, else 'auto'. max_connections_per_user: how many processes of one user may have "
            "tickets of this context open; 0: as gpuipc.config.max_connections_per_user says. The rest is as in "
            "gpuipc_context_config.")
        .def_static(
            "default", [] { return context_object{default_context()}; },
            "The context of everything that names none: made at first use, and anew in a forked child.")
        .def_prop_ro(
            "device_count", [](const context_object &self) { return info_of(self).device_count; },
            "How many GPUs this process sees.")
        .def_prop_ro(
            "driver_version",
            [](const context_object &self) { return info_of(self).driver_version; },
            "1000 * major + 10 * minor, such as 13000 for CUDA 13.0.")
        .def_prop_ro(
            "driver_path",
            [](const context_object &self) { return nb::str(info_of(self).driver_path); },
            "The file of the driver that was loaded.")
        .def_prop_ro(
            "is_emulated",
            [](const context_object &self) { return info_of(self).is_emulated != 0; },
            "True: nothing is a real GPU.")
        .def_prop_ro("devices", devices_of, "The GPUs that this process sees.")
        .def("revoke", revoke, nb::arg("ticket"),
             nb::sig("def revoke(self, ticket: Ticket | bytes | str) -> None"),
             "Nobody opens the ticket from now on. Who has it open keeps it.")
        .def("holders", holders, nb::arg("ticket"),
             nb::sig("def holders(self, ticket: Ticket | bytes | str) -> list[Holder]"),
             "Which processes opened the ticket and have it open still.")
        .def(
            "close", close,
            "Ends the server, so that nobody opens a ticket of this context any more, and gives the context up. "
            "Buffers made of it stay usable.")
        .def(
            "__enter__", [](nb::handle self) { return nb::borrow(self); },
            nb::sig("def __enter__(self) -> Context"))
        .def(
            "__exit__", [](const context_object &self, nb::args) { close(self); },
            nb::sig("def __exit__(self, *args: object) -> None"))
        .def(
            "__eq__",
            [](const context_object &self, const context_object &other) {
                return self.core == other.core;
            },
            nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
        .def("__hash__", [](const context_object &self) {
            return reinterpret_cast<intptr_t>(self.core.get()) >> 4;
        });

    define(
        m, "set_max_connections_per_user",
        [](uint32_t limit) {
            if (default_slot() != nullptr && default_slot()->server_if_any() != nullptr) {
                throw std::runtime_error(
                    "the default context answers tickets already: set gpuipc.config.max_connections_per_user "
                    "before the first ticket or pickle");
            }
            context::set_max_connections_per_user(limit);
        },
        nb::arg("limit"), "For servers that are made from now on; 0: the library's own limit.");

    nb::dict hooks;
    hooks["after_in_child"] = nb::cpp_function(forget_default_context);
    nb::module_::import_("os").attr("register_at_fork")(**hooks);
    /* Not by atexit: what other packages do there may still share, as the threads of multiprocessing's queues. */
    Py_AtExit(close_default_context);
}

} // namespace binding
