/* SPDX-License-Identifier: MIT */
#include "stream.hpp"

#include "asked.hpp"
#include "parcel.hpp"

namespace binding {

/* The handle that an object gives by the protocol of cuda.core: a pair of version and handle. */
static bool from_protocol(nb::handle argument, uintptr_t &out_handle) {
    const nb::object method = attribute_of(argument, "__cuda_stream__");
    if (!method.is_valid()) {
        return false;
    }
    /* Early versions of the protocol had an attribute here. */
    const nb::object pair =
        PyCallable_Check(method.ptr()) != 0 ? asked([&] { return method(); }) : method;
    out_handle = nb::cast<uintptr_t>(item_of(pair, 1));
    return true;
}

gpuipc_stream stream_from(nb::handle argument) {
    uintptr_t handle = 0;
    if (argument.is_none()) {
        return nullptr;
    }
    if (nb::isinstance<nb::int_>(argument)) {
        return stream_of_handle(nb::cast<uintptr_t>(argument));
    }
    if (from_protocol(argument, handle)) {
        return stream_of_handle(handle);
    }
    for (const char *name : {"cuda_stream", "ptr", "handle"}) {
        nb::object value = attribute_of(argument, name);
        if (value.is_valid()) {
            /* Numba's are of ctypes; None there is the default stream. */
            if (nb::object inner = attribute_of(value, "value"); inner.is_valid()) {
                value = std::move(inner);
            }
            return value.is_none() ? nullptr : stream_of_handle(nb::cast<uintptr_t>(value));
        }
    }
    throw nb::type_error(
        "a stream is None, a handle as a number, or a stream of PyTorch, CuPy, Numba or cuda.core");
}

gpuipc_stream stream_or_none_from(nb::handle argument) {
    if (PyLong_Check(argument.ptr()) != 0 && nb::cast<int64_t>(argument) == -1) {
        return GPUIPC_NO_STREAM;
    }
    return stream_from(argument);
}

/* Never destroyed: it is asked until Python ends. With the GIL. */
static nb::object &stream_source() {
    static nb::object &only = *new nb::object;
    return only;
}

/* Likewise: DLPack's table of a library's functions, which tells it without a call of Python. */
struct stream_table {
    nb::object capsule;
    const exchange *functions = nullptr;
};

static stream_table &stream_functions() {
    static stream_table &only = *new stream_table;
    return only;
}

static void set_stream_functions(nb::object capsule) {
    const exchange *functions = exchange_from(capsule);
    const bool can = functions != nullptr && functions->current_stream != nullptr;
    stream_functions() = {can ? std::move(capsule) : nb::object(), can ? functions : nullptr};
}

gpuipc_stream current_stream(uint32_t device) {
    if (const exchange *by = stream_functions().functions) {
        void *stream = nullptr;
        if (by->current_stream(GPUIPC_DLPACK_CUDA, static_cast<int32_t>(device), &stream) != 0) {
            throw nb::python_error();
        }
        return static_cast<gpuipc_stream>(stream);
    }
    if (!stream_source().is_valid()) {
        return nullptr;
    }
    const nb::object handle = asked([&] { return stream_source()(device); });
    return stream_of_handle(nb::cast<uintptr_t>(handle));
}

void bind_stream(nb::module_ &m) {
    define(
        m, "set_stream_source",
        [](nb::object source) {
            stream_source() = source.is_none() ? nb::object() : std::move(source);
            set_stream_functions(nb::none()); /* of the one before */
        },
        nb::arg("source").none(),
        nb::sig(
            "def set_stream_source(source: collections.abc.Callable[[int], int] | None) -> None"),
        "Names a function that tells on which stream a library computes on a device in this thread.");
    define(m, "set_stream_functions", set_stream_functions, nb::arg("capsule").none(),
           nb::sig("def set_stream_functions(capsule: object | None) -> None"),
           "The same by DLPack's table of functions, where that tells it. None: not any more.");
}

} // namespace binding
