/* SPDX-License-Identifier: MIT */
/** @file Arrays given to other libraries: DLPack 0.8 and 1.x, and the CUDA array interface. What a consumer gets holds
 *  the buffer itself and no object of Python, so that it may be given up on any thread and after the interpreter. */
#include <gpuipc/gpuipc_dlpack.h>

#include <algorithm>

#include "array.hpp"
#include "asked.hpp"
#include "stream.hpp"

namespace binding {

std::pair<int, int> dlpack_device(const array_object &self) {
    return self.core->is_on_host()
               ? std::pair<int, int>(GPUIPC_DLPACK_CPU, 0)
               : std::pair<int, int>(GPUIPC_DLPACK_CUDA, self.core->access_device());
}

namespace {

/* ---- DLPack --------------------------------------------------------------------------------- */

constexpr char managed_name[] = "dltensor";
constexpr char versioned_name[] = "dltensor_versioned";

/* One allocation: what the consumer sees, and what it stands on. gpuipc_dlpack.h makes the same of a buffer of which
 * nothing is known yet. */
template <typename tensor_type> struct block {
    tensor_type seen;
    std::shared_ptr<hold> buffer;
    std::shared_ptr<owner> held; /* of memory of somebody else, who is to keep it that long */
    int64_t shape[GPUIPC_DIMENSIONS_MAX];
    int64_t strides[GPUIPC_DIMENSIONS_MAX];

    static void end(tensor_type *tensor) {
        delete static_cast<block *>(tensor->owner); /* on any thread, and while work runs */
    }
};

/* Of a capsule that nobody has taken: a consumer gives it another name. */
template <typename tensor_type> void end_capsule(PyObject *capsule, const char *name) {
    if (PyCapsule_IsValid(capsule, name) != 0) {
        auto *tensor = static_cast<tensor_type *>(PyCapsule_GetPointer(capsule, name));
        tensor->deleter(tensor);
    }
}

void end_managed(PyObject *capsule) {
    end_capsule<gpuipc_dlpack_managed>(capsule, managed_name);
}

void end_versioned(PyObject *capsule) {
    end_capsule<gpuipc_dlpack_versioned>(capsule, versioned_name);
}

void set_version(const array_object &, gpuipc_dlpack_managed &) {
}

void set_version(const array_object &of, gpuipc_dlpack_versioned &tensor) {
    tensor.major = 1;
    tensor.minor = 0;
    tensor.flags = of.core->is_read_only() ? GPUIPC_DLPACK_READ_ONLY : 0;
}

template <typename tensor_type> tensor_type *tensor_of(const array_object &self) {
    self.check_open(); /* to wait for the contents gives other threads time to close it */
    if (!self.core->is_on_host() && !self.form.is_empty()) {
        check_alignment(self.address(), self.form.type);
    }
    auto *made =
        new block<tensor_type>; /* filled in below, but for what lies behind its dimensions */
    const layout &form = self.form;
    const std::pair<int, int> device = dlpack_device(self);
    std::copy_n(form.shape.begin(), form.dimensions, made->shape);
    std::copy_n(form.strides.begin(), form.dimensions, made->strides);
    made->buffer = self.core->hold_for_tensor();
    made->held = self.keeps != nullptr ? self.keeps : self.core->owned_by();
    made->seen.owner = made;
    made->seen.deleter = block<tensor_type>::end;
    made->seen.tensor = {reinterpret_cast<void *>(self.address()),
                         device.first,
                         device.second,
                         static_cast<int32_t>(form.dimensions),
                         form.type.code,
                         form.type.bits,
                         form.type.lanes,
                         made->shape,
                         made->strides,
                         0};
    set_version(self, made->seen);
    return &made->seen;
}

template <typename tensor_type>
nb::object capsule_of(const array_object &self, const char *name, PyCapsule_Destructor end) {
    tensor_type *tensor = tensor_of<tensor_type>(self);
    PyObject *capsule = PyCapsule_New(tensor, name, end);
    if (capsule == nullptr) {
        tensor->deleter(tensor);
        throw nb::python_error();
    }
    return nb::steal(capsule);
}

/* The stream of the protocol: None and 1 the legacy default one, 2 that of the thread, -1 none, otherwise a handle. */
void order_device(memory &core, nb::handle stream) {
    const int64_t number = stream.is_none() ? legacy_stream : nb::cast<int64_t>(stream);
    if (number == 0) {
        throw nb::value_error(
            "stream 0 is ambiguous: 1 is the legacy default stream, 2 that of the thread");
    }
    if (number < -1) {
        throw nb::value_error("a stream is -1 (no order), 1, 2 or a handle");
    }
    if (number != -1) {
        core.ready_for(stream_of_handle(static_cast<uintptr_t>(number)));
    }
}

/* Memory of the host has no streams: its consumer is the host, which waits. */
void order_host(memory &core, nb::handle stream) {
    if (!stream.is_none() && nb::cast<int64_t>(stream) != -1) {
        throw nb::value_error(
            "this array is in memory of the host, where there are no streams: stream is None");
    }
    if (stream.is_none()) {
        core.ready_here(patience(std::nullopt));
    }
}

void check_place(const array_object &self, nb::handle dl_device, nb::handle copy) {
    if (!copy.is_none() && nb::cast<bool>(copy)) {
        throw nb::buffer_error(
            "an Array is shared and not copied; copy the tensor that is made of it");
    }
    if (!dl_device.is_none() && nb::cast<std::pair<int, int>>(dl_device) != dlpack_device(self)) {
        throw nb::buffer_error("the memory is on another device, and is not copied");
    }
}

} // namespace

nb::object dlpack_unordered(const array_object &self) {
    return capsule_of<gpuipc_dlpack_managed>(self, managed_name, end_managed);
}

nb::object dlpack(const array_object &self, nb::handle stream, nb::handle max_version,
                  nb::handle dl_device, nb::handle copy) {
    self.check_open();
    check_place(self, dl_device, copy);
    const bool is_versioned = !max_version.is_none() && nb::cast<int>(item_of(max_version, 0)) >= 1;
    if (!is_versioned && self.core->is_read_only()) {
        throw nb::buffer_error(
            "this array may only be read, which DLPack before 1.0 cannot say: ask with "
            "max_version=(1, 0)");
    }
    if (self.core->is_on_host()) {
        order_host(*self.core, stream);
    } else {
        order_device(*self.core, stream);
    }
    return is_versioned ? capsule_of<gpuipc_dlpack_versioned>(self, versioned_name, end_versioned)
                        : capsule_of<gpuipc_dlpack_managed>(self, managed_name, end_managed);
}

/* ---- the CUDA array interface, version 3 ---------------------------------------------------- */

static nb::object strides_in_bytes(const layout &form) {
    if (form.is_compact()) {
        return nb::none();
    }
    std::array<int64_t, GPUIPC_DIMENSIONS_MAX> strides = form.strides;
    for (int64_t &each : strides) {
        each *= static_cast<int64_t>(form.type.bytes());
    }
    return tuple_of(strides.data(), form.dimensions);
}

nb::dict cuda_array_interface(const array_object &self) {
    const std::string typestr = element_typestr(self.form.type);
    if (self.core->is_on_host()) {
        throw nb::attribute_error(
            "this array is in memory of the host: no __cuda_array_interface__");
    }
    if (typestr.empty()) {
        throw nb::attribute_error(
            "__cuda_array_interface__ has no name for these elements; use from_dlpack");
    }
    self.check_open();
    if (!self.form.is_empty()) {
        check_alignment(self.address(), self.form.type);
    }
    const bool was_ready = self.core->is_settled();
    if (!was_ready) {
        self.core->ready_for(stream_of_handle(legacy_stream));
    }
    nb::dict interface;
    interface["shape"] = tuple_of(self.form.shape.data(), self.form.dimensions);
    interface["typestr"] = typestr;
    /* The protocol wants 0 where there are no elements. */
    interface["data"] =
        nb::make_tuple(self.form.is_empty() ? 0 : self.address(), self.core->is_read_only());
    interface["strides"] = strides_in_bytes(self.form);
    interface["version"] = 3;
    interface["stream"] = was_ready ? nb::none() : nb::object(nb::int_(legacy_stream));
    return interface;
}

void refuse_values(const char *what) {
    throw nb::type_error((std::string(what) +
                          " has no values: use numpy.from_dlpack() (transport='host') or "
                          "torch.from_dlpack()")
                             .c_str());
}

void bind_exports(bound_class<array_object> &type) {
    type.def(
            "__dlpack__", dlpack, nb::arg("stream") = nb::none(),
            nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
            nb::arg("copy") = nb::none(),
            nb::sig(
                "def __dlpack__(self, stream: int | None = None, max_version: tuple[int, int] | None = None, "
                "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> typing.Any"))
        .def("__dlpack_device__", dlpack_device)
        /* Without it NumPy makes an array of Arrays. */
        .def(
            "__array__", [](nb::handle, nb::args, nb::kwargs) { refuse_values("an Array"); },
            nb::sig("def __array__(self, *args: object, **options: object) -> typing.NoReturn"))
        .def_prop_ro("__cuda_array_interface__", cuda_array_interface,
                     nb::sig("def __cuda_array_interface__(self) -> dict[str, object]"));
}

} // namespace binding
