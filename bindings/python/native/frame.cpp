/* SPDX-License-Identifier: MIT */
#include "frame.hpp"

#include <cstring>

#include "manifest.hpp"
#include "message.hpp"
#include "stream.hpp"

namespace binding {

/* ---- what a frame holds --------------------------------------------------------------------- */

namespace {

/* Each begins at a multiple of this, as those of an Arena. */
constexpr uint64_t alignment = 256;
constexpr char only_name[] = ".";

uint64_t next_number() {
    static uint64_t last = 0; /* with the GIL */
    return ++last;
}

void add(frame_form &to, std::string name, const layout &of) {
    to.bytes = std::max(to.bytes, of.offset + of.extent());
    to.names.push_back(std::move(name));
    to.layouts.push_back(of);
}

std::string prefix_of(const frame_form &form) {
    std::vector<gpuipc_range> ranges;
    for (size_t i = 0; i < form.layouts.size(); i++) {
        ranges.push_back(form.layouts[i].range());
        ranges.back().name = form.names[i].c_str();
    }
    std::string prefix = arrays_prefix(ranges);
    if (prefix.size() > GPUIPC_FRAME_HEADER_MAX) {
        throw nb::value_error(
            "what tells of so many arrays does not fit into a frame's header of 512 bytes: use "
            "fewer, or one array of all");
    }
    return prefix;
}

frame_form form_of_bytes(uint64_t bytes) {
    frame_form form;
    if (bytes > 0) {
        add(form, only_name,
            layout_compact(element_from_packed(GPUIPC_ELEMENT_TYPE(GPUIPC_ELEMENT_UINT, 8, 1)),
                           {static_cast<int64_t>(bytes)}));
    }
    return form;
}

[[noreturn]] void refuse_header() {
    fail(GPUIPC_ERR_PROTOCOL, "gpuipc_subscription_take",
         "what the writer says of a frame's arrays is not right");
}

frame_form form_of_manifest(const arrays_said &said, uint64_t bytes) {
    frame_form form;
    std::vector<gpuipc_range> ranges(GPUIPC_FRAME_HEADER_MAX / 32); /* more do not fit */
    size_t count = 0;
    check(gpuipc_manifest_read(said.manifest, said.manifest_bytes, bytes, ranges.data(),
                               ranges.size(), &count));
    try {
        for (size_t i = 0; i < count; i++) {
            add(form, ranges[i].name, layout_of_range(ranges[i], bytes));
        }
    } catch (const nb::builtin_exception &) { /* a value that none of ours writes */
        refuse_header();
    }
    return form;
}

} // namespace

const layout &frame_form::find(const std::string &name) const {
    for (size_t i = 0; i < names.size(); i++) {
        if (names[i] == name) {
            return layouts[i];
        }
    }
    throw nb::key_error(name.c_str());
}

form_pointer frame_form_from(nb::handle shape, nb::handle dtype) {
    auto form = std::make_shared<frame_form>();
    if (nb::isinstance<nb::dict>(shape)) {
        for (auto &[name, each] : layouts_arranged(nb::borrow<nb::dict>(shape), alignment)) {
            add(*form, name, each);
        }
        if (form->names.empty()) {
            throw nb::value_error("a frame has one array at least");
        }
    } else if (dtype.is_none()) {
        add(*form, only_name, layout_of_spec(shape));
    } else {
        add(*form, only_name, layout_compact(element_from(dtype), numbers_from(shape)));
    }
    form->prefix = prefix_of(*form);
    form->number = next_number();
    return form;
}

/* Of those that are known, one with this beginning of the header; of so many bytes, where that tells nothing. */
form_pointer frame_forms::find(const gpuipc_frame &frame, bool tells) const {
    for (const form_pointer &each : known_) {
        const size_t size = each->prefix.size();
        const bool is_it = tells ? size > 0 && size <= frame.header_bytes &&
                                       memcmp(frame.header, each->prefix.data(), size) == 0 &&
                                       each->bytes <= frame.bytes
                                 : size == 0 && each->bytes == frame.bytes;
        if (is_it) {
            return each;
        }
    }
    return nullptr;
}

form_pointer frame_forms::read(const gpuipc_frame &frame) {
    if (form_pointer known = find(frame, true)) {
        return known;
    }
    const char *header = static_cast<const char *>(frame.header);
    const arrays_said said = arrays_said_in(header, frame.header_bytes);
    if (said.manifest == nullptr) {
        if (form_pointer known = find(frame, false)) {
            return known;
        }
    }
    auto form = std::make_shared<frame_form>(said.manifest == nullptr
                                                 ? form_of_bytes(frame.bytes)
                                                 : form_of_manifest(said, frame.bytes));
    form->prefix.assign(said.end > 0 ? header : "", said.end);
    form->number = next_number();
    constexpr size_t most = 8;
    if (known_.size() < most) {
        known_.push_back(form);
    } else {
        known_[oldest_++ % most] = form;
    }
    return form;
}

/* ---- who has one ---------------------------------------------------------------------------- */

std::pair<const char *, size_t> frame_lease::own_header() const {
    const size_t before = form->prefix.size();
    return {static_cast<const char *>(frame.header) + before, frame.header_bytes - before};
}

std::optional<gpuipc_stream> frame_stream_named(nb::handle argument) {
    if (argument.is_none()) {
        return std::nullopt;
    }
    return stream_or_none_from(argument);
}

static gpuipc_stream current_or_none(const memory &slots) {
    return slots.is_on_host() ? GPUIPC_NO_STREAM : current_stream(slots.access_device());
}

gpuipc_stream frame_stream(const memory &slots, nb::handle argument) {
    const std::optional<gpuipc_stream> named = frame_stream_named(argument);
    return named ? *named : current_or_none(slots);
}

gpuipc_stream frame_stream_at_end(const frame_lease &of, nb::handle argument) {
    const std::optional<gpuipc_stream> named =
        argument.is_none() ? of.named_stream : frame_stream_named(argument);
    return named ? *named : current_or_none(*of.slots);
}

/* ---- what Python sees ----------------------------------------------------------------------- */

namespace {

array_object placed(const frame_object &self, const layout &of, bool keeps) {
    const frame_lease &lease = *self.of;
    layout at = of;
    at.offset += lease.frame.address - lease.slots->address();
    return {lease.slots, at, nullptr, keeps ? self.of : nullptr};
}

array_object only_array(const frame_object &self) {
    self.of->check();
    if (!self.of->form->is_one()) {
        throw nb::type_error(
            "this frame has not one array alone: name one, as frame['name'], or ask for frame.arrays");
    }
    return placed(self, self.of->form->layouts[0], true);
}

array_object named_array(const frame_object &self, const std::string &name) {
    self.of->check();
    return placed(self, self.of->form->find(name), true);
}

nb::dict all_arrays(const frame_object &self) {
    self.of->check();
    const frame_form &form = *self.of->form;
    nb::dict arrays;
    for (size_t i = 0; i < form.names.size(); i++) {
        arrays[form.names[i].c_str()] = placed(self, form.layouts[i], true);
    }
    return arrays;
}

/* Of the slot, and for as long as its memory is: for those who make tensors of a slot once, and keep them. Each with the
 * name of its type, where it comes as numbers of the same size. */
nb::list capsules(const frame_object &self) {
    nb::list made;
    const frame_form &form = *self.of->form;
    for (size_t i = 0; i < form.names.size(); i++) {
        array_object array = placed(self, form.layouts[i], false);
        const element type = array.form.type;
        const bool is_plain = element_is_plain(type);
        if (!is_plain) {
            array.form.type = type.as_integer();
        }
        made.append(nb::make_tuple(form.names[i], dlpack_unordered(array),
                                   is_plain ? nb::none()
                                            : nb::object(nb::str(element_name(type).c_str()))));
    }
    return made;
}

uint64_t place_of(const frame_lease &of) {
    const uint64_t slot = (of.frame.address - of.slots->address()) / of.frame.capacity;
    return of.form->number * GPUIPC_CHANNEL_SLOTS_MAX + slot;
}

/* In one call: who has just slept for the frame has cold caches, in which each step of Python's is slow. */
nb::object dressed(const nb::dict &spare, const nb::list &last, nb::handle otherwise,
                   nb::handle_t<frame_object> frame) {
    static PyObject *const name = PyUnicode_InternFromString("_frame");
    nb::object place = nb::int_(place_of(*nb::inst_ptr<frame_object>(frame)->of));
    PyObject *const found = PyDict_GetItemWithError(spare.ptr(), place.ptr());
    const Py_ssize_t count = found != nullptr ? PyList_Size(found) : 0;
    if (PyErr_Occurred() != nullptr || PyList_SetItem(last.ptr(), 0, place.release().ptr()) != 0) {
        throw nb::python_error();
    }
    if (count == 0) {
        return otherwise(frame);
    }
    const nb::list prepared = nb::borrow<nb::list>(found);
    nb::object made = prepared[count - 1];
    nb::del(prepared[count - 1]);
    if (PyObject_SetAttr(made.ptr(), name, frame.ptr()) != 0) {
        throw nb::python_error();
    }
    return made;
}

nb::str represent(nb::handle self) {
    const frame_lease &of = *nb::inst_ptr<frame_object>(self)->of;
    return nb::str("<gpuipc.{} of {} arrays, {} bytes{}>")
        .format(self.type().attr("__name__"), of.form->names.size(), of.form->bytes,
                of.is_over ? ", over" : "");
}

[[noreturn]] void refuse_pickle(nb::handle) {
    throw nb::type_error(
        "a frame is memory for a time: copy what is in it, or give the other process Channel.ticket()");
}

} // namespace

void bind_frame(nb::module_ &m) {
    bound_class<frame_object>(
        m, "FrameBase",
        "What Loan and Frame have in common: arrays in a slot of a channel. Where it is one array, it is taken by "
        "from_dlpack() as that is.")
        .def_prop_ro(
            "array", only_array,
            "The array. Raises TypeError where there are several, errors.ReleasedError where it is over.")
        .def_prop_ro("arrays", all_arrays, nb::sig("def arrays(self) -> dict[str, Array]"),
                     "All arrays by their names; of one alone that is '.'.")
        .def("__getitem__", named_array, nb::arg("name"),
             nb::sig("def __getitem__(self, name: str, /) -> Array"), "The array of this name.")
        .def_prop_ro(
            "nbytes", [](const frame_object &self) { return self.of->form->bytes; },
            "Bytes from the beginning of the slot to the end of the last array.")
        .def_prop_ro(
            "capacity", [](const frame_object &self) { return self.of->frame.capacity; },
            "Bytes of the slot.")
        .def_prop_ro(
            "is_over", [](const frame_object &self) { return self.of->is_over.load(); },
            "It was published, discarded or given back.")
        .def(
            "__dlpack__",
            [](const frame_object &self, nb::handle stream, nb::handle max_version,
               nb::handle dl_device, nb::handle copy) {
                return dlpack(only_array(self), stream, max_version, dl_device, copy);
            },
            nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
            nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none(),
            nb::sig(
                "def __dlpack__(self, stream: int | None = None, max_version: tuple[int, int] | None = None, "
                "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> typing.Any"))
        .def(
            "__array__", [](nb::handle, nb::args, nb::kwargs) { refuse_values("a frame"); },
            nb::sig("def __array__(self, *args: object, **options: object) -> typing.NoReturn"))
        .def("__dlpack_device__",
             [](const frame_object &self) { return dlpack_device(only_array(self)); })
        .def_prop_ro(
            "__cuda_array_interface__",
            [](const frame_object &self) { return cuda_array_interface(only_array(self)); },
            nb::sig("def __cuda_array_interface__(self) -> dict[str, object]"))
        .def("__reduce__", refuse_pickle, nb::sig("def __reduce__(self) -> typing.NoReturn"))
        .def("__repr__", represent);
    define(
        m, "frame_place", [](const frame_object &self) { return place_of(*self.of); },
        nb::arg("frame"), nb::sig("def frame_place(frame: FrameBase) -> int"),
        "A number for its slot and its form: what was made of both once is right again.");
    define(
        m, "frame_dressed", dressed, nb::arg("spare"), nb::arg("last"), nb::arg("otherwise"),
        nb::arg("frame"),
        nb::sig(
            "def frame_dressed(spare: dict[int, list[typing.Any]], last: list[int], otherwise: "
            "collections.abc.Callable[[FrameBase], typing.Any], frame: FrameBase) -> typing.Any"),
        "A spare object of its place, whose _frame it becomes; what otherwise makes of it, where there is none. The "
        "place becomes last[0].");
    define(
        m, "frame_capsules", capsules, nb::arg("frame"),
        nb::sig("def frame_capsules(frame: FrameBase) -> list[tuple[str, object, str | None]]"),
        "DLPack's capsules of its slot, by name, each with the name of its type where it comes as numbers.");
}

} // namespace binding
