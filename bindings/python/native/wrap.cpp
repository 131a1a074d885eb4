/* SPDX-License-Identifier: MIT */
/** @file Memory that another library allocated: taken by DLPack, by the CUDA array interface, or as a bare address. */
#include <gpuipc/gpuipc_dlpack.h>

#include "array.hpp"
#include "asked.hpp"
#include "buffer.hpp"
#include "deferred.hpp"
#include "lingering.hpp"
#include "stream.hpp"

namespace binding {

namespace {

/* What is taken: where it is, what it is, and whose. */
struct taken {
    uint64_t address;
    layout form;
    std::shared_ptr<owner> held;
    int32_t device = 0; /* where it is told */
};

array_object wrap_taken(const taken &from, const std::shared_ptr<context> &of) {
    if (from.form.is_empty()) { /* there is no memory that could belong to a process */
        return {create_memory(1, nb::int_(from.device), nb::none(), nb::make_tuple(), nb::none(),
                              nb::cast(context_object{of})),
                from.form};
    }
    check_no_slot(from.address);
    gpuipc_buffer *wrapped = nullptr;
    check(released([&] {
        return gpuipc_buffer_wrap(of->handle(), from.address, from.form.extent(), &wrapped);
    }));
    std::shared_ptr<memory> core = memory_of(of, wrapped);
    core->set_owner(from.held);
    return {core, from.form};
}

/* ---- DLPack --------------------------------------------------------------------------------- */

/* kDLCUDAHost and kDLCUDAManaged of dlpack.h. The library says what of such memory can be shared. */
constexpr int pinned_device = 3;
constexpr int managed_device = 13;

/* A tensor that a producer gave, until nobody has it any more. Its deleter may want Python (CuPy's does). */
template <typename tensor_type> class tensor_owner : public owner {
  public:
    explicit tensor_owner(tensor_type *tensor) : tensor_(tensor) {
    }
    ~tensor_owner() override {
        when_python_runs(end, tensor_);
    }

  private:
    static void end(void *tensor) {
        auto *ended = static_cast<tensor_type *>(tensor);
        if (ended->deleter != nullptr) {
            ended->deleter(ended);
        }
    }
    tensor_type *tensor_;
};

void check_device(int type) {
    if (type == GPUIPC_DLPACK_CPU) {
        throw nb::type_error(
            "this is memory of the CPU, which only its own process sees: copy it into an array of "
            "gpuipc.empty(), with transport='host' for one that NumPy can use");
    }
    if (type != GPUIPC_DLPACK_CUDA && type != pinned_device && type != managed_device) {
        throw nb::type_error("this is no memory of CUDA");
    }
}

/* A dimension of NULL strides is compact (DLPack before 1.2). */
layout form_of(const gpuipc_dlpack_tensor &tensor) {
    if (tensor.dimensions < 0 || tensor.dimensions > GPUIPC_DIMENSIONS_MAX) {
        throw nb::value_error("an array has 8 dimensions at most");
    }
    const element type = element_from_packed(
        GPUIPC_ELEMENT_TYPE(tensor.type_kind, tensor.type_bits, tensor.type_lanes));
    const uint32_t dimensions = static_cast<uint32_t>(tensor.dimensions);
    const numbers shape(tensor.shape, dimensions);
    if (tensor.strides == nullptr) {
        return layout_compact(type, shape);
    }
    return layout_strided(type, shape, numbers(tensor.strides, dimensions), 0);
}

template <typename tensor_type>
taken take_tensor(nb::handle capsule, const char *name, const char *used_name) {
    auto *tensor = static_cast<tensor_type *>(PyCapsule_GetPointer(capsule.ptr(), name));
    if (tensor == nullptr || PyCapsule_SetName(capsule.ptr(), used_name) != 0) {
        throw nb::python_error();
    }
    auto held = std::make_shared<tensor_owner<tensor_type>>(tensor);
    check_device(tensor->tensor.device_type);
    return {reinterpret_cast<uintptr_t>(tensor->tensor.data) + tensor->tensor.byte_offset,
            form_of(tensor->tensor), std::move(held), tensor->tensor.device_id};
}

/* What the producer's streams were given is before what the legacy default stream is given from now on. */
nb::object capsule_from(const nb::object &method) {
    nb::object stream = nb::int_(legacy_stream);
    nb::dict options;
    options["stream"] = stream;
    options["max_version"] = nb::make_tuple(1, 0);
    try {
        return asked([&] { return method(**options); });
    } catch (nb::python_error &error) {
        if (!error.matches(PyExc_TypeError)) {
            throw;
        }
    }
    PyDict_DelItemString(options.ptr(), "max_version"); /* from before DLPack 1.0 */
    return asked([&] { return method(**options); });
}

taken take_dlpack(nb::handle producer, const nb::object &method) {
    const nb::object ask = attribute_of(producer, "__dlpack_device__");
    if (!ask.is_valid()) {
        throw nb::type_error("what has __dlpack__ has __dlpack_device__, too");
    }
    const nb::object device = asked([&] { return ask(); });
    const nb::object kind = item_of(device, 0);
    check_device(nb::cast<int>(answer_of([&] { return PyNumber_Long(kind.ptr()); })));
    const nb::object capsule = capsule_from(method);
    if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
        return take_tensor<gpuipc_dlpack_versioned>(capsule, "dltensor_versioned",
                                                    "used_dltensor_versioned");
    }
    return take_tensor<gpuipc_dlpack_managed>(capsule, "dltensor", "used_dltensor");
}

/* ---- the CUDA array interface --------------------------------------------------------------- */

nb::object entry(const nb::dict &interface, const char *name) {
    return interface.contains(name) ? item_of(interface, nb::str(name)) : nb::none();
}

numbers strides_in_elements(nb::handle strides, const element &type) {
    numbers found = numbers_from(strides);
    for (int64_t &each : found) {
        if (each % static_cast<int64_t>(type.bytes()) != 0) {
            throw nb::value_error("strides are multiples of an element");
        }
        each /= static_cast<int64_t>(type.bytes());
    }
    return found;
}

taken take_interface(nb::handle producer, const nb::object &described) {
    const nb::dict interface = nb::cast<nb::dict>(described);
    const element type =
        element_from_typestr(nb::cast<std::string>(item_of(interface, nb::str("typestr"))));
    const numbers shape = numbers_from(item_of(interface, nb::str("shape")));
    const nb::object strides = entry(interface, "strides");
    if (!entry(interface, "mask").is_none()) {
        throw nb::value_error("a masked array is not shared: its mask is memory of its own");
    }
    const nb::object data = item_of(interface, nb::str("data"));
    return {nb::cast<uint64_t>(item_of(data, 0)),
            strides.is_none() ? layout_compact(type, shape)
                              : layout_strided(type, shape, strides_in_elements(strides, type), 0),
            owner_of(nb::borrow(producer))};
}

/* ---- a bare address ------------------------------------------------------------------------- */

taken take_address(const nb::tuple &pair) {
    if (pair.size() != 2) {
        throw nb::value_error("memory as a tuple is (address, nbytes)");
    }
    const element byte = element_from_packed(GPUIPC_ELEMENT_TYPE(GPUIPC_ELEMENT_UINT, 8, 1));
    if (nb::cast<int64_t>(pair[1]) == 0) {
        throw nb::value_error("memory as a tuple has one byte at least");
    }
    return {nb::cast<uint64_t>(pair[0]), layout_compact(byte, {nb::cast<int64_t>(pair[1])}),
            nullptr};
}

taken take(nb::handle producer) {
    if (nb::isinstance<nb::tuple>(producer)) {
        return take_address(nb::borrow<nb::tuple>(producer));
    }
    if (const nb::object method = attribute_of(producer, "__dlpack__"); method.is_valid()) {
        return take_dlpack(producer, method);
    }
    const nb::object interface = attribute_of(producer, "__cuda_array_interface__");
    if (interface.is_valid()) {
        return take_interface(producer, interface);
    }
    throw nb::type_error(
        "what is wrapped has __dlpack__ or __cuda_array_interface__, or is (address, nbytes)");
}

} // namespace

void bind_wrap(nb::module_ &m) {
    define(
        m, "wrap",
        [](nb::handle producer, nb::handle context) {
            const std::shared_ptr<binding::context> of = context_from(context);
            {
                const without_gil without;
                lingering_look(); /* what it is taken of may be among that */
            }
            return wrap_taken(take(producer), of);
        },
        nb::arg("producer"), nb::kw_only(), nb::arg("context") = nb::none(),
        nb::sig("def wrap(producer: object, *, context: Context | None = None) -> Array"),
        "An Array of memory that another library allocated: of a tensor (__dlpack__), of what has "
        "__cuda_array_interface__, or of (address, nbytes). The tensor is kept until the Array and all that was made "
        "of it are gone and no other process has it; of a bare address the memory stays the caller's to keep.");
    define(
        m, "range_of",
        [](nb::handle producer) {
            const taken from = take(producer);
            return std::pair<uint64_t, uint64_t>(from.address, from.form.extent());
        },
        nb::arg("producer"), "Where the memory is that wrap() would take, and how much of it.");
    define(
        m, "lingering", lingering_count,
        "How many pieces of memory are gone here and kept, because other processes have what was "
        "wrapped or pickled here, or may yet open it.");
}

} // namespace binding
