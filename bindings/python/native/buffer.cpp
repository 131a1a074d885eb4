/* SPDX-License-Identifier: MIT */
#include "buffer.hpp"

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "asked.hpp"
#include "lingering.hpp"
#include "parcel.hpp"
#include "server.hpp"
#include "share.hpp"
#include "stream.hpp"

namespace binding {

/* ---- making --------------------------------------------------------------------------------- */

std::shared_ptr<memory> memory_of(std::shared_ptr<context> of, gpuipc_buffer *taken) {
    gpuipc_buffer_info info = GPUIPC_BUFFER_INFO_INIT;
    const gpuipc_status status = gpuipc_buffer_get_info(taken, &info);
    if (status != GPUIPC_OK) {
        (void)gpuipc_buffer_release(taken);
    }
    check(status);
    return std::make_shared<memory>(std::move(of), taken, info);
}

/* A GPU for which somebody will open the memory: its number here, or its UUID. */
static gpuipc_uuid uuid_from(const context &of, nb::handle argument) {
    gpuipc_uuid uuid;
    if (nb::isinstance<nb::bytes>(argument)) {
        const nb::bytes bytes = nb::borrow<nb::bytes>(argument);
        if (bytes.size() != sizeof(uuid.bytes)) {
            throw nb::value_error("the UUID of a device has 16 bytes");
        }
        memcpy(uuid.bytes, bytes.data(), sizeof(uuid.bytes));
        return uuid;
    }
    gpuipc_device_info info = GPUIPC_DEVICE_INFO_INIT;
    check(gpuipc_device_get_info(of.handle(), device_number_from(argument), &info));
    return info.uuid;
}

/* A name is a sequence, too: of letters. */
static nb::list devices_of(nb::handle argument, const char *name) {
    if (nb::isinstance<nb::str>(argument) || nb::isinstance<nb::bytes>(argument)) {
        throw nb::type_error(
            (std::string(name) + " must be a list of devices, not a str or bytes").c_str());
    }
    return list_of(argument);
}

/* What was dropped a moment ago is freed by a thread of the library, which may not have come to it. And who received a segment
 * of a pool has it open for a quarter of a second, if he has not chosen otherwise. */
static gpuipc_status create_in_time(const context &of, const gpuipc_buffer_config &config,
                                    gpuipc_buffer **out_buffer) {
    constexpr std::chrono::milliseconds between(10);
    gpuipc_status status = GPUIPC_ERR_OUT_OF_DEVICE_MEMORY;
    for (int i = 0; i < 50 && status == GPUIPC_ERR_OUT_OF_DEVICE_MEMORY; i++) {
        if (i > 0) {
            std::this_thread::sleep_for(between);
        }
        status = gpuipc_buffer_create(of.handle(), &config, out_buffer);
    }
    return status;
}

std::shared_ptr<memory> create_memory(uint64_t bytes, nb::handle device, nb::handle openers,
                                      nb::handle access_devices, nb::handle transport,
                                      nb::handle context_argument) {
    std::shared_ptr<context> of = context_from(context_argument);
    std::vector<gpuipc_uuid> uuids;
    std::vector<uint32_t> devices;
    if (!openers.is_none()) {
        for (nb::handle each : devices_of(openers, "openers")) {
            uuids.push_back(uuid_from(*of, each));
        }
    }
    for (nb::handle each : devices_of(access_devices, "access_devices")) {
        devices.push_back(device_from(each));
    }
    gpuipc_buffer_config config = GPUIPC_BUFFER_CONFIG_INIT;
    config.bytes = bytes;
    config.device = device_from(device);
    config.transport = transport_from(transport);
    config.openers = uuids.data();
    config.opener_count = static_cast<uint32_t>(uuids.size());
    config.access_devices = devices.data();
    config.access_device_count = static_cast<uint32_t>(devices.size());
    gpuipc_buffer *made = nullptr;
    check(released([&] {
        lingering_look(); /* which may make room */
        return create_in_time(*of, config, &made);
    }));
    std::shared_ptr<memory> core = memory_of(std::move(of), made);
    home_begin(core);
    return core;
}

/* ---- contents ------------------------------------------------------------------------------- */

static uint64_t rest(const memory &of, uint64_t offset, std::optional<uint64_t> bytes) {
    return bytes.value_or(offset <= of.bytes() ? of.bytes() - offset : 0);
}

static nb::bytes read(const buffer_object &self, uint64_t offset, std::optional<uint64_t> nbytes) {
    memory &of = *self.core;
    of.check_open();
    const uint64_t count = rest(of, offset, nbytes);
    if (count > of.bytes()) { /* said before so much is allocated */
        throw nb::value_error("offset and nbytes reach beyond the buffer");
    }
    of.ready_here(patience(std::nullopt));
    nb::object bytes =
        nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count)));
    if (!bytes.is_valid()) {
        throw nb::python_error();
    }
    char *room = PyBytes_AsString(bytes.ptr());
    check(released([&] { return gpuipc_buffer_read(of.handle(), offset, room, count); }));
    return nb::borrow<nb::bytes>(bytes);
}

/* Bytes of an object that has the buffer protocol, for as long as this lives. */
class host_bytes {
  public:
    explicit host_bytes(nb::handle object) {
        if (asked([&] { return PyObject_GetBuffer(object.ptr(), &view_, PyBUF_C_CONTIGUOUS); }) !=
            0) {
            throw nb::python_error();
        }
    }
    host_bytes(const host_bytes &) = delete;
    host_bytes &operator=(const host_bytes &) = delete;
    ~host_bytes() {
        PyBuffer_Release(&view_);
    }
    const void *data() const {
        return view_.buf;
    }
    uint64_t size() const {
        return static_cast<uint64_t>(view_.len);
    }

  private:
    Py_buffer view_;
};

static void write(const buffer_object &self, nb::handle data, uint64_t offset) {
    const host_bytes bytes(data);
    self.core->check_open();
    self.core->ready_here(patience(std::nullopt));
    check(released([&] {
        return gpuipc_buffer_write(self.core->handle(), offset, bytes.data(), bytes.size());
    }));
}

static void fill(const buffer_object &self, int64_t value, uint32_t width, uint64_t offset,
                 std::optional<uint64_t> nbytes, nb::handle stream) {
    if (value < 0 || (width < 8 && value >> 8 * width != 0)) {
        throw nb::value_error("a value that memory is filled with has width bytes, and no sign");
    }
    memory &of = *self.core;
    of.check_open();
    const gpuipc_stream on = stream_from(stream);
    of.ready_for(on);
    check(released([&] {
        return gpuipc_buffer_fill_async(of.handle(), offset, rest(of, offset, nbytes),
                                        static_cast<uint32_t>(value), width, on);
    }));
}

static void copy_to(const buffer_object &self, const buffer_object &destination, uint64_t offset,
                    uint64_t destination_offset, std::optional<uint64_t> nbytes,
                    nb::handle stream) {
    memory &from = *self.core;
    memory &to = *destination.core;
    from.check_open();
    to.check_open();
    const gpuipc_stream on = stream_from(stream);
    from.ready_for(on);
    to.ready_for(on);
    check(released([&] {
        return gpuipc_buffer_copy_async(to.handle(), destination_offset, from.handle(), offset,
                                        rest(from, offset, nbytes), on);
    }));
}

/* ---- sharing -------------------------------------------------------------------------------- */

static gpuipc_ticket share_buffer(const buffer_object &self, uint64_t offset,
                                  std::optional<uint64_t> nbytes, nb::handle access,
                                  std::optional<double> expires,
                                  std::optional<uint32_t> max_processes, bool one_shot,
                                  std::optional<nb::bytes> attachment, nb::handle stream,
                                  bool ready, bool wait, nb::handle server) {
    share_options options;
    options.server = server_from(server);
    options.offset = offset;
    options.bytes = nbytes;
    options.access = access_from(access);
    options.expires = expires;
    options.max_processes = max_processes;
    options.one_shot = one_shot;
    options.stream = stream_from(stream);
    options.is_ready = ready;
    options.waits = wait;
    if (attachment) {
        options.attachment.assign(attachment->c_str(), attachment->size());
    }
    const gpuipc_ticket ticket = share(*self.core, options);
    self.core->note_share(expires ? static_cast<uint64_t>(*expires * 1000) + 1 : 0);
    return ticket;
}

static void await_returns(const buffer_object &self, std::optional<double> timeout) {
    self.core->await_returns(patience(timeout));
}

static void await_ready(const buffer_object &self, std::optional<double> timeout) {
    self.core->check_open();
    self.core->ready_here(patience(timeout));
}

/* ---- what Python sees ----------------------------------------------------------------------- */

static void close(const buffer_object &self, nb::handle stream) {
    self.core->close(stream.is_none() ? std::nullopt
                                      : std::optional<gpuipc_stream>(stream_from(stream)));
}

static std::optional<uint32_t> device_of(const buffer_object &self) {
    const uint32_t device = self.core->device();
    return device == GPUIPC_DEVICE_NONE ? std::nullopt : std::optional<uint32_t>(device);
}

[[noreturn]] static void refuse_copy(nb::handle, nb::args) {
    throw nb::type_error(
        "a Buffer is no value: it is memory, which is copied with copy_to(), and goes to another "
        "process as an Array, or by its ticket");
}

static void bind_properties(bound_class<buffer_object> &type) {
    type.def_prop_ro(
            "address", [](const buffer_object &self) { return self.core->address(); },
            "Device address of the first byte.")
        .def_prop_ro(
            "nbytes", [](const buffer_object &self) { return self.core->bytes(); },
            "How many bytes it has.")
        .def_prop_ro("device", device_of,
                     "The GPU that owns the memory; None: this process does not see it.")
        .def_prop_ro(
            "access_device", [](const buffer_object &self) { return self.core->access_device(); },
            "The GPU that it is mapped for.")
        .def_prop_ro(
            "transport",
            [](const buffer_object &self) { return gpuipc_transport_name(self.core->transport()); },
            "What kind of memory it is: 'vmm', 'pool', 'legacy', 'p2p', 'host' or 'fabric'.")
        .def_prop_ro(
            "read_only", [](const buffer_object &self) { return self.core->is_read_only(); },
            "It was opened with access='r' and may not be written.")
        .def_prop_ro(
            "attachment",
            [](const buffer_object &self) -> std::optional<nb::bytes> {
                self.core->check_open();
                if (self.core->attachment() == nullptr) {
                    return std::nullopt;
                }
                return nb::bytes(self.core->attachment(), self.core->attachment_bytes());
            },
            "The bytes that came with the ticket by which it was opened; None: there were none, or it is a part, made by "
            "Ticket.narrow(), of what they came with.")
        .def_prop_ro(
            "is_ready",
            [](const buffer_object &self) { return self.core->info_now().is_ready != 0; },
            "The contents that it was opened with are there.")
        .def_prop_ro(
            "is_lost", [](const buffer_object &self) { return self.core->info_now().is_lost != 0; },
            "The process that was to fill it has ended before: the contents are not valid.")
        .def_prop_ro(
            "lent_count", [](const buffer_object &self) { return self.core->lent_count(); },
            "How often it was handed to other processes, or pickled, and has not come back.")
        .def_prop_ro(
            "context", [](const buffer_object &self) { return context_object{self.core->of()}; },
            "The Context that it is open in.");
}

static void bind_contents(bound_class<buffer_object> &type) {
    type.def(
            "read", read, nb::arg("offset") = 0, nb::arg("nbytes") = nb::none(),
            nb::sig("def read(self, offset: int = 0, nbytes: int | None = None) -> bytes"),
            "The contents, as bytes, from offset bytes on; without nbytes to the end. Waits until they are there and the work of "
            "the default stream is done.")
        .def(
            "write", write, nb::arg("data"), nb::arg("offset") = 0,
            nb::sig("def write(self, data: object, offset: int = 0) -> None"),
            "Copies bytes (whatever has the buffer protocol) into it, offset bytes from its beginning, and waits until they "
            "are there.")
        .def(
            "fill", fill, nb::arg("value") = 0, nb::kw_only(), nb::arg("width") = 1,
            nb::arg("offset") = 0, nb::arg("nbytes") = nb::none(), nb::arg("stream") = nb::none(),
            nb::sig(
                "def fill(self, value: int = 0, *, width: int = 1, offset: int = 0, nbytes: int | None = None, "
                "stream: object | None = None) -> None"),
            "Fills nbytes bytes from offset on with a value of 1, 2 or 4 bytes (width). The stream does it, and nobody waits; "
            "None: the default stream of its device.")
        .def(
            "copy_to", copy_to, nb::arg("destination"), nb::kw_only(), nb::arg("offset") = 0,
            nb::arg("destination_offset") = 0, nb::arg("nbytes") = nb::none(),
            nb::arg("stream") = nb::none(),
            nb::sig(
                "def copy_to(self, destination: Buffer, *, offset: int = 0, destination_offset: int = 0, nbytes: "
                "int | None = None, stream: object | None = None) -> None"),
            "Copies nbytes bytes from offset on into another buffer of the same context. The stream does it, and nobody waits.")
        .def(
            "await_ready", await_ready, nb::arg("timeout") = nb::none(),
            nb::sig("def await_ready(self, timeout: float | None = None) -> None"),
            "Waits until the contents that it was opened with are there. Raises errors.Timeout after so many seconds.");
}

static void bind_sharing(bound_class<buffer_object> &type) {
    type.def(
            "share", share_buffer, nb::kw_only(), nb::arg("offset") = 0,
            nb::arg("nbytes") = nb::none(), nb::arg("access") = nb::none(),
            nb::arg("expires") = nb::none(), nb::arg("max_processes") = nb::none(),
            nb::arg("one_shot") = false, nb::arg("attachment") = nb::none(),
            nb::arg("stream") = nb::none(), nb::arg("ready") = false, nb::arg("wait") = true,
            nb::arg("server") = nb::none(),
            nb::sig(
                "def share(self, *, offset: int = 0, nbytes: int | None = None, access: str | None = None, "
                "expires: float | None = None, max_processes: int | None = None, one_shot: bool = False, "
                "attachment: bytes | None = None, stream: object | None = None, ready: bool = False, "
                "wait: bool = True, server: Server | None = None) -> Ticket"),
            "A new ticket for it, or for nbytes bytes from offset on. It ends when it expires (seconds), is used up or is "
            "revoked, and not with this object: until then it keeps the memory. stream: whose work makes the contents, "
            "which this call waits for. ready: they are there already. wait=False: who opens it waits for them.")
        .def(
            "ticket",
            [](const buffer_object &self) { return self.core->ticket(0, self.core->bytes(), ""); },
            "The ticket of all of it, the same each time. It ends with the last Buffer or Array of this memory.")
        .def(
            "await_returns", await_returns, nb::arg("timeout") = nb::none(),
            nb::sig("def await_returns(self, timeout: float | None = None) -> None"),
            "Waits until every process that it was handed to has returned it or has ended; errors.Timeout after so many seconds. What was pickled is "
            "out until who was to get it has unpickled it and let go, or its time to do so is over.")
        .def(
            "cancel_lent", [](const buffer_object &self) { self.core->cancel_lent(); },
            "Cancels every pickle that no process has unpickled yet: it opens nothing from now on, and await_returns() does not wait for it. "
            "For receivers that have ended. Those that have unpickled theirs keep the memory.")
        .def(
            "give_back",
            [](const buffer_object &self, nb::handle stream) {
                self.core->give_back(stream_from(stream));
            },
            nb::arg("stream") = nb::none(),
            nb::sig("def give_back(self, stream: object | None = None) -> None"),
            "Gives received memory back in stream order, and closes it: when the stream has done its work so far, the "
            "sender may write it again. None: the default stream. Tensors made of it must not be used afterwards.");
}

void bind_buffer(nb::module_ &m) {
    bound_class<buffer_object> type(
        m, "Buffer", nb::is_weak_referenceable(),
        "Memory of a GPU (or pinned memory of the host), made here or opened from another "
        "process.");
    bind_properties(type);
    bind_contents(type);
    bind_sharing(type);
    type.def(
            "close", close, nb::arg("stream") = nb::none(),
            nb::sig("def close(self, stream: object | None = None) -> None"),
            "Gives the memory up, for all Arrays over it. It is unmapped when the work that the devices have been "
            "given until now is done, or with a stream, when that is there. Tensors made of it keep it.")
        .def(
            "__enter__", [](nb::handle self) { return nb::borrow(self); },
            nb::sig("def __enter__(self) -> Buffer"))
        .def(
            "__exit__", [](const buffer_object &self, nb::args) { self.core->close(std::nullopt); },
            nb::sig("def __exit__(self, *args: object) -> None"))
        .def(
            "__eq__",
            [](const buffer_object &self, const buffer_object &other) {
                return self.core == other.core;
            },
            nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
        .def("__hash__",
             [](const buffer_object &self) {
                 return reinterpret_cast<intptr_t>(self.core.get()) >> 4;
             })
        .def("__copy__", refuse_copy, nb::sig("def __copy__(self) -> typing.NoReturn"))
        .def("__deepcopy__", refuse_copy,
             nb::sig("def __deepcopy__(self, memo: object) -> typing.NoReturn"))
        .def("__reduce__", refuse_copy, nb::sig("def __reduce__(self) -> typing.NoReturn"))
        .def("__repr__", [](const buffer_object &self) {
            return nb::str("<gpuipc.Buffer of {} bytes, {}, device {}>")
                .format(self.core->bytes(), gpuipc_transport_name(self.core->transport()),
                        self.core->access_device());
        });

    define(
        m, "create",
        [](uint64_t nbytes, nb::handle device, nb::handle openers, nb::handle access_devices,
           nb::handle transport, nb::handle context) {
            return buffer_object{
                create_memory(nbytes, device, openers, access_devices, transport, context)};
        },
        nb::arg("nbytes"), nb::kw_only(), nb::arg("device") = 0, nb::arg("openers") = nb::none(),
        nb::arg("access_devices") = nb::make_tuple(), nb::arg("transport") = nb::none(),
        nb::arg("context") = nb::none(),
        nb::sig(
            "def create(nbytes: int, *, device: object = 0, openers: collections.abc.Iterable[object] | None = "
            "None, access_devices: collections.abc.Iterable[object] = (), transport: str | None = None, context: "
            "Context | None = None) -> Buffer"),
        "Makes a Buffer of nbytes bytes, whose contents are undefined. openers: the GPUs for which others will open it, as numbers "
        "here or UUIDs, as far as that is known.");
}

} // namespace binding
