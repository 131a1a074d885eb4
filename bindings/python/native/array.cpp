/* SPDX-License-Identifier: MIT */
#include "array.hpp"

#include <algorithm>

#include "buffer.hpp"
#include "server.hpp"
#include "share.hpp"
#include "stream.hpp"

namespace binding {

/* ---- making --------------------------------------------------------------------------------- */

static array_object empty(nb::handle shape, nb::handle dtype, nb::handle device, nb::handle openers,
                          nb::handle access_devices, nb::handle transport, nb::handle context) {
    const layout form = layout_compact(element_from(dtype), numbers_from(shape));
    return {create_memory(std::max<uint64_t>(form.extent(), 1), device, openers, access_devices,
                          transport, context),
            form};
}

/* An array anywhere in a buffer. */
static array_object place(const buffer_object &buffer, nb::handle shape, nb::handle dtype,
                          uint64_t offset, nb::handle strides) {
    const element type = element_from(dtype);
    layout form = strides.is_none()
                      ? layout_compact(type, numbers_from(shape))
                      : layout_strided(type, numbers_from(shape), numbers_from(strides), offset);
    form.offset = offset;
    layout_check_place(form, buffer.core->bytes(), "place", nullptr);
    return {buffer.core, form};
}

/* ---- sharing -------------------------------------------------------------------------------- */

/* That of a few fits at once: being told that there is too little room takes longer than writing it. */
std::string manifest_of(const std::vector<gpuipc_range> &ranges) {
    constexpr size_t of_few = 512;
    char few[of_few];
    size_t size = 0;
    gpuipc_status status =
        gpuipc_manifest_write(ranges.data(), ranges.size(), few, sizeof(few), &size);
    if (status != GPUIPC_ERR_TOO_SMALL) {
        check(status);
        return {few, size};
    }
    std::string bytes(size, '\0');
    check(gpuipc_manifest_write(ranges.data(), ranges.size(), bytes.data(), bytes.size(), &size));
    return bytes;
}

std::string manifest_of(const layout &form) {
    gpuipc_range range = form.range();
    range.name = "."; /* the ticket's memory itself, and no name in it */
    range.offset = 0;
    return manifest_of(std::vector<gpuipc_range>{range});
}

/* Bytes of the memory that a ticket of the array is for. Without elements it has none, and takes one that there is. */
static std::pair<uint64_t, uint64_t> bytes_to_share(const array_object &of) {
    if (of.form.is_empty()) {
        return {std::min(of.form.offset, of.core->bytes() - 1), 1};
    }
    return {of.form.offset, of.form.extent()};
}

static gpuipc_ticket share_array(const array_object &self, nb::handle access,
                                 std::optional<double> expires,
                                 std::optional<uint32_t> max_processes, bool one_shot,
                                 nb::handle stream, bool ready, bool wait, nb::handle server) {
    self.check_for_others();
    share_options options;
    options.server = server_from(server);
    const auto [offset, bytes] = bytes_to_share(self);
    options.offset = offset;
    options.bytes = bytes;
    options.access = access_from(access);
    options.expires = expires;
    options.max_processes = max_processes;
    options.one_shot = one_shot;
    options.stream = stream_from(stream);
    options.is_ready = ready;
    options.waits = wait;
    options.attachment = manifest_of(self.form);
    const gpuipc_ticket ticket = share(*self.core, options);
    self.core->note_share(expires ? static_cast<uint64_t>(*expires * 1000) + 1 : 0);
    return ticket;
}

static gpuipc_ticket ticket_of(const array_object &self) {
    self.check_for_others();
    const auto [offset, bytes] = bytes_to_share(self);
    return self.core->ticket(offset, bytes, manifest_of(self.form));
}

void array_object::check_own() const {
    if (keeps != nullptr) {
        throw nb::type_error(
            "an Array of a frame is a part of its channel's memory: copy it, or give the other process "
            "Channel.ticket()");
    }
}

void array_object::check_for_others() const {
    check_own();
    if (!core->is_closed()) { /* else its address may be another's */
        check_no_slot(address());
    }
}

[[noreturn]] static void refuse_copy(nb::handle, nb::args) {
    throw nb::type_error(
        "an Array is memory that others may have: make a tensor of it (from_dlpack) and copy that");
}

/* ---- what Python sees ----------------------------------------------------------------------- */

static nb::str represent(const array_object &self) {
    return nb::str("<gpuipc.Array {} of {}, {}, device {}>")
        .format(tuple_of(self.form.shape.data(), self.form.dimensions),
                element_name(self.form.type), gpuipc_transport_name(self.core->transport()),
                self.core->access_device());
}

static void bind_form(bound_class<array_object> &type) {
    type.def_prop_ro(
            "shape",
            [](const array_object &self) {
                return tuple_of(self.form.shape.data(), self.form.dimensions);
            },
            nb::sig("def shape(self) -> tuple[int, ...]"), "How many elements each dimension has.")
        .def_prop_ro(
            "strides",
            [](const array_object &self) {
                return tuple_of(self.form.strides.data(), self.form.dimensions);
            },
            nb::sig("def strides(self) -> tuple[int, ...]"), "In elements, as DLPack has them.")
        .def_prop_ro(
            "ndim", [](const array_object &self) { return self.form.dimensions; },
            "How many dimensions.")
        .def_prop_ro(
            "size", [](const array_object &self) { return self.form.elements(); },
            "How many elements.")
        .def_prop_ro(
            "itemsize", [](const array_object &self) { return self.form.type.bytes(); },
            "Bytes of an element.")
        .def_prop_ro(
            "nbytes",
            [](const array_object &self) {
                return self.form.elements() * static_cast<int64_t>(self.form.type.bytes());
            },
            "Bytes of all elements, without what may lie between them.")
        .def_prop_ro(
            "dtype", [](const array_object &self) { return element_name(self.form.type); },
            "A name, such as 'bfloat16'.")
        .def_prop_ro(
            "dlpack_dtype",
            [](const array_object &self) {
                return nb::make_tuple(self.form.type.code, self.form.type.bits,
                                      self.form.type.lanes);
            },
            nb::sig("def dlpack_dtype(self) -> tuple[int, int, int]"), "Code, bits and lanes.")
        .def_prop_ro(
            "is_contiguous", [](const array_object &self) { return self.form.is_compact(); },
            "The elements lie one behind the other, the last dimension first (as in C).")
        .def_prop_ro(
            "offset", [](const array_object &self) { return self.form.offset; },
            "In bytes, in its buffer.")
        .def(
            "__bool__", [](const array_object &) { return true; },
            "Always True. Test size for elements.")
        .def("__len__", [](const array_object &self) {
            if (self.form.dimensions == 0) {
                throw nb::type_error("an Array without dimensions has no length");
            }
            return static_cast<size_t>(self.form.shape[0]);
        });
}

static void bind_place(bound_class<array_object> &type) {
    type.def_prop_ro(
            "buffer", [](const array_object &self) { return buffer_object{self.core}; },
            "The memory that it is in.")
        .def_prop_ro("address", &array_object::address, "Device address of the first element.")
        .def_prop_ro(
            "device",
            [](const array_object &self) -> std::optional<uint32_t> {
                const uint32_t device = self.core->device();
                return device == GPUIPC_DEVICE_NONE ? std::nullopt
                                                    : std::optional<uint32_t>(device);
            },
            "The GPU that owns the memory; None: this process does not see it.")
        .def_prop_ro(
            "access_device", [](const array_object &self) { return self.core->access_device(); },
            "The GPU that it is mapped for.")
        .def_prop_ro(
            "transport",
            [](const array_object &self) { return gpuipc_transport_name(self.core->transport()); },
            "What kind of memory it is in: 'vmm', 'pool', 'legacy', 'p2p', 'host' or 'fabric'.")
        .def_prop_ro(
            "read_only", [](const array_object &self) { return self.core->is_read_only(); },
            "It was opened with access='r': its memory may not be written.");
}

static void bind_views(bound_class<array_object> &type) {
    type.def(
            "view",
            [](const array_object &self, nb::handle shape, nb::handle dtype) {
                return array_object{self.core, layout_viewed(self.form, shape, dtype), self.stream,
                                    self.keeps};
            },
            nb::arg("shape") = nb::none(), nb::arg("dtype") = nb::none(),
            nb::sig(
                "def view(self, shape: int | collections.abc.Sequence[int] | None = None, dtype: object | None = None) -> Array"),
            "The same bytes with another shape (one dimension may be -1) or as other elements.")
        .def(
            "__getitem__",
            [](const array_object &self, nb::handle index) {
                return array_object{self.core, layout_sliced(self.form, index), self.stream,
                                    self.keeps};
            },
            nb::arg("index").none(),
            nb::sig(
                "def __getitem__(self, index: typing.SupportsIndex | slice | types.EllipsisType | "
                "tuple[typing.SupportsIndex | slice | types.EllipsisType, ...], /) -> Array"),
            "A part, by integers and slices: the same memory. An integer index removes its dimension.")
        .def(
            "__iter__",
            [](nb::handle self) {
                const auto &array = *nb::inst_ptr<array_object>(self);
                if (array.form.dimensions == 0) {
                    throw nb::type_error("an Array without dimensions has no parts");
                }
                return nb::steal(PySeqIter_New(self.ptr()));
            },
            nb::sig("def __iter__(self) -> collections.abc.Iterator[Array]"))
        /* Without it Python compares the value with each part. */
        .def(
            "__contains__", [](nb::handle, nb::handle) -> bool { refuse_values("an Array"); },
            nb::arg("value").none(),
            nb::sig("def __contains__(self, value: object, /) -> typing.NoReturn"));
}

static void bind_sharing(bound_class<array_object> &type) {
    type.def(
            "share", share_array, nb::kw_only(), nb::arg("access") = nb::none(),
            nb::arg("expires") = nb::none(), nb::arg("max_processes") = nb::none(),
            nb::arg("one_shot") = false, nb::arg("stream") = nb::none(), nb::arg("ready") = false,
            nb::arg("wait") = true, nb::arg("server") = nb::none(),
            nb::sig(
                "def share(self, *, access: str | None = None, expires: float | None = None, max_processes: int "
                "| None = None, one_shot: bool = False, stream: object | None = None, ready: bool = False, "
                "wait: bool = True, server: Server | None = None) -> Ticket"),
            "A new ticket, as Buffer.share(), by which gpuipc.open() makes this array again.")
        .def(
            "ticket", ticket_of,
            "The ticket of this array, the same each time. It ends with the last Buffer or Array of this memory.")
        .def(
            "after",
            [](const array_object &self, nb::handle stream) {
                return array_object{self.core, self.form, stream_or_none_from(stream), self.keeps};
            },
            nb::arg("stream").none(), nb::sig("def after(self, stream: object | None) -> Array"),
            "The same Array, whose contents are made by what that stream has been given when it is pickled. Without "
            "this it is the default stream's work, which is not that of non-blocking streams. -1: the contents are there "
            "already, written by the host or by work that you have waited for; then pickling asks no driver.")
        .def(
            "__reduce__",
            [](nb::handle self) {
                return nb::module_::import_("gpuipc._native").attr("reduce")(self);
            },
            nb::sig("def __reduce__(self) -> tuple[object, ...]"));
}

void bind_array(nb::module_ &m) {
    bound_class<array_object> type(
        m, "Array", nb::is_weak_referenceable(),
        "Shape and type of elements over a Buffer: a way into PyTorch, CuPy, JAX, Numba and "
        "NumPy. It has no arithmetic.");
    bind_form(type);
    bind_place(type);
    bind_views(type);
    bind_sharing(type);
    bind_exports(type);
    type.def(
            "close",
            [](const array_object &self, nb::handle stream) {
                self.check_own();
                self.core->close(stream.is_none()
                                     ? std::nullopt
                                     : std::optional<gpuipc_stream>(stream_from(stream)));
            },
            nb::arg("stream") = nb::none(),
            nb::sig("def close(self, stream: object | None = None) -> None"),
            "Closes its buffer, for all Arrays over it.")
        .def(
            "await_returns",
            [](const array_object &self, std::optional<double> timeout) {
                self.check_own();
                self.core->await_returns(patience(timeout));
            },
            nb::arg("timeout") = nb::none(),
            nb::sig("def await_returns(self, timeout: float | None = None) -> None"),
            "As Buffer.await_returns(), of its buffer.")
        .def(
            "cancel_lent",
            [](const array_object &self) {
                self.check_own();
                self.core->cancel_lent();
            },
            "As Buffer.cancel_lent(), of its buffer.")
        .def(
            "give_back",
            [](const array_object &self, nb::handle stream) {
                self.check_own();
                self.core->give_back(stream_from(stream));
            },
            nb::arg("stream") = nb::none(),
            nb::sig("def give_back(self, stream: object | None = None) -> None"),
            "As Buffer.give_back(), of its buffer.")
        .def(
            "__enter__", [](nb::handle self) { return nb::borrow(self); },
            nb::sig("def __enter__(self) -> Array"))
        .def(
            "__exit__",
            [](const array_object &self, nb::args) {
                self.check_own();
                self.core->close(std::nullopt);
            },
            nb::sig("def __exit__(self, *args: object) -> None"))
        .def("__copy__", refuse_copy, nb::sig("def __copy__(self) -> typing.NoReturn"))
        .def("__deepcopy__", refuse_copy,
             nb::sig("def __deepcopy__(self, memo: object) -> typing.NoReturn"))
        .def("__repr__", represent);

    define(
        m, "empty", empty, nb::arg("shape"), nb::arg("dtype"), nb::kw_only(), nb::arg("device") = 0,
        nb::arg("openers") = nb::none(), nb::arg("access_devices") = nb::make_tuple(),
        nb::arg("transport") = nb::none(), nb::arg("context") = nb::none(),
        nb::sig(
            "def empty(shape: int | collections.abc.Sequence[int], dtype: object, *, device: object = 0, openers: "
            "collections.abc.Iterable[object] | None = None, access_devices: "
            "collections.abc.Iterable[object] = (), transport: str | None = None, context: Context | None = None) "
            "-> Array"),
        "Makes an Array in memory of its own that can be shared, with undefined contents. openers: the GPUs for "
        "which others will open it, as numbers here or UUIDs, as far as that is known.");
    define(
        m, "place", place, nb::arg("buffer"), nb::arg("shape"), nb::arg("dtype"),
        nb::arg("offset") = 0, nb::arg("strides") = nb::none(),
        nb::sig(
            "def place(buffer: Buffer, shape: int | collections.abc.Sequence[int], dtype: object, offset: int = "
            "0, strides: collections.abc.Sequence[int] | None = None) -> Array"),
        "An Array in a Buffer, offset bytes from its beginning. Raises errors.OutOfRange unless all of it lies there.");
}

} // namespace binding
