/* SPDX-License-Identifier: MIT */
#include "manifest.hpp"

#include <unordered_map>

#include "array.hpp"
#include "asked.hpp"
#include "buffer.hpp"

namespace binding {

layout layout_of_spec(nb::handle spec) {
    if (!nb::isinstance<nb::tuple>(spec)) {
        const nb::object dtype = attribute_of(spec, "dtype");
        const nb::object shape = attribute_of(spec, "shape");
        if (!dtype.is_valid() || !shape.is_valid()) {
            throw nb::type_error(
                "an array is told by (shape, dtype), or by something that has both");
        }
        return layout_compact(element_from(dtype), numbers_from(shape));
    }
    const nb::tuple pair = nb::borrow<nb::tuple>(spec);
    if (pair.size() != 2) {
        throw nb::value_error("an array of an arena is (shape, dtype)");
    }
    return layout_compact(element_from(pair[1]), numbers_from(pair[0]));
}

namespace {

struct entry {
    std::string name;
    layout form;
};

/* In the order in which they were named. */
class manifest {
  public:
    void add(std::string name, const layout &form) {
        if (name.empty() || name.size() > GPUIPC_RANGE_NAME_MAX ||
            name.find('\0') != std::string::npos) {
            throw nb::value_error("a name has 1 to 255 bytes, none of which is zero");
        }
        if (!places_.emplace(name, entries_.size()).second) {
            throw nb::value_error("two arrays of one manifest have the same name");
        }
        bytes_ = std::max(bytes_, form.offset + form.extent());
        entries_.push_back({std::move(name), form});
    }
    const std::vector<entry> &entries() const {
        return entries_;
    }
    /** NULL: there is none of this name. */
    const layout *find(const std::string &name) const {
        const auto found = places_.find(name);
        return found == places_.end() ? nullptr : &entries_[found->second].form;
    }
    /** From the beginning of the buffer to the end of the last array. */
    uint64_t bytes() const {
        return bytes_;
    }

  private:
    std::vector<entry> entries_;
    std::unordered_map<std::string, size_t> places_;
    uint64_t bytes_ = 0;
};

/* ---- making one ------------------------------------------------------------------------------ */

uint64_t aligned(uint64_t offset, uint64_t alignment) {
    if (offset > UINT64_MAX - alignment) {
        throw nb::value_error("more bytes than there can be");
    }
    return (offset + alignment - 1) / alignment * alignment;
}

manifest arrange(const nb::dict &specs, uint64_t alignment) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        throw nb::value_error("an alignment is a power of two");
    }
    manifest made;
    for (auto [name, spec] : specs) {
        layout form = layout_of_spec(spec);
        form.offset = aligned(made.bytes(), alignment);
        if (form.extent() > UINT64_MAX - form.offset) {
            throw nb::value_error("more bytes than there can be");
        }
        made.add(nb::cast<std::string>(name), form);
    }
    return made;
}

manifest parse(const nb::bytes &bytes, std::optional<uint64_t> buffer_bytes) {
    std::vector<gpuipc_range> ranges(64);
    size_t count = 0;
    gpuipc_status status = GPUIPC_ERR_TOO_SMALL;
    while (status == GPUIPC_ERR_TOO_SMALL) {
        status = gpuipc_manifest_read(bytes.data(), bytes.size(), buffer_bytes.value_or(UINT64_MAX),
                                      ranges.data(), ranges.size(), &count);
        ranges.resize(count);
    }
    check(status);
    manifest made;
    for (const gpuipc_range &each : ranges) {
        made.add(each.name, layout_of_range(each, buffer_bytes.value_or(INT64_MAX)));
    }
    return made;
}

std::string written(const manifest &self) {
    std::vector<gpuipc_range> ranges;
    ranges.reserve(self.entries().size());
    for (const entry &each : self.entries()) {
        ranges.push_back(each.form.range());
        ranges.back().name = each.name.c_str();
    }
    return manifest_of(ranges);
}

/* ---- what Python sees ------------------------------------------------------------------------ */

nb::dict arrays_in(const manifest &self, const buffer_object &buffer) {
    nb::dict arrays;
    for (const entry &each : self.entries()) {
        layout_check_place(each.form, buffer.core->bytes(), "arrays", each.name.c_str());
        arrays[each.name.c_str()] = array_object{buffer.core, each.form};
    }
    return arrays;
}

/* What is at this name, as place() takes it. */
nb::tuple range_of(const manifest &self, const std::string &name) {
    const layout *form = self.find(name);
    if (form == nullptr) {
        throw nb::key_error(name.c_str());
    }
    return nb::make_tuple(tuple_of(form->shape.data(), form->dimensions), element_name(form->type),
                          form->offset, tuple_of(form->strides.data(), form->dimensions));
}

gpuipc_ticket ticket_of(const manifest &self, const buffer_object &buffer) {
    return buffer.core->ticket(0, buffer.core->bytes(), written(self));
}

nb::list names_of(const manifest &self) {
    nb::list names;
    for (const entry &each : self.entries()) {
        names.append(each.name);
    }
    return names;
}

} // namespace

std::vector<std::pair<std::string, layout>> layouts_arranged(const nb::dict &specs,
                                                             uint64_t alignment) {
    std::vector<std::pair<std::string, layout>> found;
    const manifest arranged = arrange(specs, alignment);
    for (const entry &each : arranged.entries()) {
        found.emplace_back(each.name, each.form);
    }
    return found;
}

void bind_manifest(nb::module_ &m) {
    bound_class<manifest>(
        m, "Manifest",
        "Which named arrays lie where in a buffer: bytes that go with a ticket or a message, and are the same for "
        "programs in C (gpuipc_manifest.h).")
        .def(
            "__init__",
            [](manifest *self, const nb::bytes &bytes, std::optional<uint64_t> nbytes) {
                new (self) manifest(parse(bytes, nbytes));
            },
            nb::arg("bytes"), nb::arg("nbytes") = nb::none(),
            nb::sig("def __init__(self, bytes: bytes, nbytes: int | None = None) -> None"),
            "Of bytes that somebody wrote. nbytes: the length of the buffer in which all of it has to lie.")
        .def_static(
            "arrange", arrange, nb::arg("specs"), nb::arg("alignment") = 256,
            nb::sig("def arrange(specs: dict[str, typing.Any], alignment: int = 256) -> Manifest"),
            "Places arrays one behind the other, each at a multiple of alignment bytes. Each spec is (shape, dtype), or something that has both.")
        .def("__bytes__",
             [](const manifest &self) {
                 const std::string bytes = written(self);
                 return nb::bytes(bytes.data(), bytes.size());
             })
        .def("__len__", [](const manifest &self) { return self.entries().size(); })
        .def(
            "__contains__",
            [](const manifest &self, nb::handle name) {
                return nb::isinstance<nb::str>(name) &&
                       self.find(nb::cast<std::string>(name)) != nullptr;
            },
            nb::arg("name").none(), nb::sig("def __contains__(self, name: object, /) -> bool"))
        .def(
            "__iter__", [](const manifest &self) { return nb::iter(names_of(self)); },
            nb::sig("def __iter__(self) -> collections.abc.Iterator[str]"))
        .def("__getitem__", range_of, nb::arg("name"),
             nb::sig("def __getitem__(self, name: str, /) -> tuple[tuple[int, ...], str, int, "
                     "tuple[int, ...]]"),
             "Shape, dtype, offset in bytes, and strides, as place() takes them.")
        .def_prop_ro("nbytes", &manifest::bytes, "How long a buffer has to be for them.")
        .def(
            "arrays", arrays_in, nb::arg("buffer"),
            nb::sig("def arrays(self, buffer: Buffer) -> dict[str, Array]"),
            "The arrays, in a buffer. Their offsets count from its first byte: in a part of a buffer (Ticket.narrow()) the "
            "manifest of the whole names other places, which nobody notices where they exist. Raises errors.OutOfRange "
            "unless each array lies in the buffer.")
        .def(
            "ticket", ticket_of, nb::arg("buffer"),
            "The ticket of a buffer and this manifest, the same each time. It ends with the buffer's last object.")
        .def(
            "__eq__",
            [](const manifest &self, const manifest &other) {
                return written(self) == written(other);
            },
            nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
        .def("__hash__",
             [](const manifest &self) { return std::hash<std::string>()(written(self)) >> 1; })
        .def(
            "__reduce__",
            [](nb::handle self) {
                return nb::make_tuple(self.type(),
                                      nb::make_tuple(nb::steal(PyObject_Bytes(self.ptr()))));
            },
            nb::sig("def __reduce__(self) -> tuple[object, ...]"))
        .def("__repr__", [](const manifest &self) {
            return nb::str("<gpuipc.Manifest of {} arrays, {} bytes>")
                .format(self.entries().size(), self.bytes());
        });
}

} // namespace binding
