/* SPDX-License-Identifier: MIT */
#include "look.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace binding {

const exchange *exchange_from(nb::handle capsule) {
    constexpr char name[] = "dlpack_exchange_api";
    if (PyCapsule_IsValid(capsule.ptr(), name) == 0) {
        return nullptr;
    }
    auto *table = static_cast<const exchange *>(PyCapsule_GetPointer(capsule.ptr(), name));
    while (table != nullptr && table->major > 1) {
        table = table->previous;
    }
    return table != nullptr && table->major == 1 && table->look != nullptr ? table : nullptr;
}

namespace {

/* ---- what tensors are asked for -------------------------------------------------------------- */

/* A name that each tensor is asked for, made once. */
#define NAME(text)                                                                                 \
    ([]() -> PyObject * {                                                                          \
        static PyObject *const only = PyUnicode_InternFromString(text);                            \
        return only;                                                                               \
    }())

nb::object checked(PyObject *answer) {
    if (answer == nullptr) {
        throw nb::python_error();
    }
    return nb::steal(answer);
}

nb::object attribute(nb::handle tensor, PyObject *name) {
    return checked(PyObject_GetAttr(tensor.ptr(), name));
}

PyObject *call(const nb::object &method, nb::handle tensor) {
    PyObject *arguments[] = {tensor.ptr()};
    return PyObject_Vectorcall(method.ptr(), arguments, 1, nullptr);
}

nb::object answer(nb::handle tensor, PyObject *method) {
    PyObject *arguments[] = {tensor.ptr()};
    return checked(PyObject_VectorcallMethod(method, arguments, 1, nullptr));
}

bool is_true(const nb::object &said) {
    return said.ptr() == Py_True;
}

/* The types of PyTorch, each the one object of its name. */
uint32_t type_of(nb::handle dtype) {
    static std::unordered_map<PyObject *, uint32_t> &known =
        *new std::unordered_map<PyObject *, uint32_t>;
    const auto found = known.find(dtype.ptr());
    if (found != known.end()) {
        return found->second;
    }
    const uint32_t type = element_from(dtype).packed();
    dtype.inc_ref(); /* so that no other object gets its address */
    known[dtype.ptr()] = type;
    return type;
}

void numbers_of(nb::handle tuple, std::vector<int64_t> &out_numbers) {
    const Py_ssize_t count = PyTuple_Size(tuple.ptr());
    if (count < 0) {
        throw nb::python_error();
    }
    out_numbers.resize(static_cast<size_t>(count));
    for (Py_ssize_t i = 0; i < count; i++) {
        out_numbers[static_cast<size_t>(i)] =
            PyLong_AsLongLong(PyTuple_GetItem(tuple.ptr(), i)); /* torch's own numbers */
    }
}

/* ---- where a tensor lies --------------------------------------------------------------------- */

uint64_t address_of(const gpuipc_dlpack_tensor &seen) {
    return reinterpret_cast<uintptr_t>(seen.data) + seen.byte_offset;
}

part looked_at(const exchange &by, nb::handle tensor, uint64_t &out_address) {
    gpuipc_dlpack_tensor seen;
    if (by.look(tensor.ptr(), &seen) != 0) {
        throw nb::python_error();
    }
    if (seen.device_type != GPUIPC_DLPACK_CUDA && seen.device_type != GPUIPC_DLPACK_CPU) {
        throw nb::type_error("this is no memory of CUDA");
    }
    part made;
    made.type =
        element_from_packed(GPUIPC_ELEMENT_TYPE(seen.type_kind, seen.type_bits, seen.type_lanes))
            .packed();
    made.shape.assign(seen.shape, seen.shape + seen.dimensions);
    made.strides.assign(seen.strides, seen.strides + seen.dimensions);
    out_address = address_of(seen);
    return made;
}

part asked(nb::handle tensor, uint64_t &out_address) {
    part made;
    made.type = type_of(attribute(tensor, NAME("dtype")));
    numbers_of(attribute(tensor, NAME("shape")), made.shape);
    numbers_of(answer(tensor, NAME("stride")), made.strides);
    out_address = nb::cast<uint64_t>(answer(tensor, NAME("data_ptr")));
    return made;
}

} // namespace

part look_at(const exchange *by, nb::handle tensor, uint64_t &out_address) {
    return by != nullptr ? looked_at(*by, tensor, out_address) : asked(tensor, out_address);
}

/* ---- whether it is plain ---------------------------------------------------------------------- */

looker::looker(nb::object tensor_type, nb::object parameter_type, nb::object strided,
               nb::object capsule)
    : tensor_type_(std::move(tensor_type)), parameter_type_(std::move(parameter_type)),
      strided_(std::move(strided)), capsule_(std::move(capsule)),
      data_ptr_(tensor_type_.attr("data_ptr")), numel_(tensor_type_.attr("numel")),
      is_neg_(tensor_type_.attr("is_neg")), is_conj_(tensor_type_.attr("is_conj")),
      exchange_(exchange_from(capsule_)) {
}

/* As PyTorch before 2.10 answers. What is neither of CUDA nor the host's lies in no memory that gpuipc knows. */
bool looker::ask(nb::handle tensor, glance &out_seen) const {
    if (!attribute(tensor, NAME("layout")).is(strided_) ||
        is_true(attribute(tensor, NAME("is_quantized")))) {
        return false;
    }
    const nb::object address = nb::steal(call(data_ptr_, tensor));
    if (!address.is_valid()) {
        PyErr_Clear(); /* memory that is no memory */
        return false;
    }
    out_seen = {nb::cast<uint64_t>(address), is_true(attribute(tensor, NAME("is_cuda"))), true};
    return nb::cast<int64_t>(checked(call(numel_, tensor))) > 0;
}

/* What has no plain memory, PyTorch itself refuses to tell of. */
bool looker::glance_at(nb::handle tensor, glance &out_seen) const {
    constexpr uint8_t complex_numbers = 5; /* kDLComplex */
    gpuipc_dlpack_tensor seen;
    if (exchange_ == nullptr) {
        return ask(tensor, out_seen);
    }
    if (exchange_->look(tensor.ptr(), &seen) != 0) {
        PyErr_Clear();
        return false;
    }
    out_seen = {address_of(seen), seen.device_type == GPUIPC_DLPACK_CUDA,
                seen.type_kind == complex_numbers};
    return (out_seen.is_cuda || seen.device_type == GPUIPC_DLPACK_CPU) &&
           std::find(seen.shape, seen.shape + seen.dimensions, 0) == seen.shape + seen.dimensions;
}

std::optional<uint8_t> looker::flag(nb::handle tensor, glance &out_seen) const {
    const auto *type = reinterpret_cast<PyObject *>(Py_TYPE(tensor.ptr()));
    const bool is_one = type == parameter_type_.ptr();
    if ((type != tensor_type_.ptr() && !is_one) || !glance_at(tensor, out_seen) ||
        is_true(checked(call(is_neg_, tensor))) ||
        (out_seen.is_complex && is_true(checked(call(is_conj_, tensor))))) {
        return std::nullopt;
    }
    const bool has_grad = is_true(attribute(tensor, NAME("requires_grad")));
    if (has_grad && !is_true(attribute(tensor, NAME("is_leaf")))) {
        return std::nullopt;
    }
    return static_cast<uint8_t>((has_grad ? requires_grad : 0) | (is_one ? is_parameter : 0));
}

std::optional<uint8_t> looker::flag(nb::handle tensor) const {
    glance seen;
    const std::optional<uint8_t> found = flag(tensor, seen);
    return found && (seen.is_cuda || is_known(seen.address)) ? found : std::nullopt;
}

nb::object looker::flags(const nb::list &tensors) const {
    const size_t count = nb::len(tensors);
    std::string found;
    std::unordered_set<PyObject *> before;
    found.reserve(count);
    before.reserve(count);
    for (nb::handle each : tensors) {
        const std::optional<uint8_t> one = flag(each);
        if (!one || !before.insert(each.ptr()).second) {
            return nb::none();
        }
        found.push_back(static_cast<char>(*one));
    }
    return nb::bytes(found.data(), found.size());
}

} // namespace binding
