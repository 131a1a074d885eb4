/* SPDX-License-Identifier: MIT */
#include "array.hpp"

#include <algorithm>

#include "asked.hpp"

namespace binding {

/* ---- numbers -------------------------------------------------------------------------------- */

void numbers::push_back(int64_t number) {
    if (count == GPUIPC_DIMENSIONS_MAX) {
        throw nb::value_error("an array has 8 dimensions at most");
    }
    values[count++] = number;
}

/* Of a shape, or of strides. */
static int64_t number_from(nb::handle argument) {
    const std::optional<int64_t> number = integer_of(argument);
    if (!number) {
        throw nb::value_error(
            nb::str("a dimension or a stride must fit into 64 bits, which {} does not")
                .format(argument)
                .c_str());
    }
    return *number;
}

numbers numbers_from(nb::handle argument) {
    numbers found;
    if (nb::isinstance<nb::int_>(argument)) {
        found.push_back(number_from(argument));
        return found;
    }
    for (nb::handle each : list_of(argument)) {
        found.push_back(number_from(each));
    }
    return found;
}

nb::tuple tuple_of(const int64_t *numbers, uint32_t count) {
    nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
    for (uint32_t i = 0; tuple.is_valid() && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == nullptr ||
            PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), number) != 0) {
            tuple.reset();
        }
    }
    if (!tuple.is_valid()) {
        throw nb::python_error();
    }
    return nb::borrow<nb::tuple>(tuple);
}

static int64_t product(int64_t one, int64_t other) {
    int64_t both;
    if (__builtin_mul_overflow(one, other, &both)) {
        throw nb::value_error("an array of more bytes than there can be");
    }
    return both;
}

static int64_t sum(int64_t one, int64_t other) {
    int64_t both;
    if (__builtin_add_overflow(one, other, &both)) {
        throw nb::value_error("an array of more bytes than there can be");
    }
    return both;
}

/* ---- what is known of one ------------------------------------------------------------------- */

int64_t layout::elements() const {
    int64_t count = 1;
    for (uint32_t i = 0; i < dimensions; i++) {
        count *= shape[i]; /* was looked at when it was made */
    }
    return count;
}

uint64_t layout::extent() const {
    int64_t last = 0;
    if (is_empty()) {
        return 0;
    }
    for (uint32_t i = 0; i < dimensions; i++) {
        last = sum(last, product(shape[i] - 1, strides[i]));
    }
    return static_cast<uint64_t>(product(sum(last, 1), static_cast<int64_t>(type.bytes())));
}

bool layout::is_empty() const {
    return std::find(shape.begin(), shape.begin() + dimensions, 0) != shape.begin() + dimensions;
}

bool layout::is_compact() const {
    int64_t step = 1;
    if (is_empty()) {
        return true; /* whatever its strides */
    }
    for (uint32_t i = dimensions; i > 0; i--) {
        if (shape[i - 1] != 1 && strides[i - 1] != step) {
            return false;
        }
        step *= shape[i - 1];
    }
    return true;
}

gpuipc_range layout::range() const {
    gpuipc_range range = {};
    range.offset = offset;
    range.bytes = extent();
    range.element_type = type.packed();
    range.dimensions = dimensions;
    for (uint32_t i = 0; i < dimensions; i++) {
        range.shape[i] = shape[i];
        range.strides[i] = strides[i];
    }
    return range;
}

/* ---- making one ----------------------------------------------------------------------------- */

static void set_shape(layout &made, const numbers &shape) {
    made.dimensions = shape.count;
    for (uint32_t i = 0; i < made.dimensions; i++) {
        if (shape[i] < 0) {
            throw nb::value_error(
                nb::str("a dimension must be 0 or more, not {}").format(shape[i]).c_str());
        }
        made.shape[i] = shape[i];
    }
}

layout layout_compact(const element &type, const numbers &shape) {
    layout made;
    made.type = type;
    set_shape(made, shape);
    int64_t step = 1;
    for (uint32_t i = made.dimensions; i > 0; i--) {
        made.strides[i - 1] = step;
        step = product(step, std::max<int64_t>(made.shape[i - 1], 1)); /* as NumPy's strides are */
    }
    (void)product(step, static_cast<int64_t>(type.bytes()));
    return made;
}

layout layout_strided(const element &type, const numbers &shape, const numbers &strides,
                      uint64_t offset) {
    layout made = layout_compact(type, shape);
    made.offset = offset;
    if (strides.count != shape.count) {
        throw nb::value_error("there are as many strides as dimensions");
    }
    for (uint32_t i = 0; i < made.dimensions && !made.is_empty(); i++) {
        if (made.shape[i] == 1) {
            continue; /* whatever it says; the compact one is as right, and all-zero strides mean something else */
        }
        if (strides[i] < 0) {
            throw nb::value_error(
                "negative strides are what most libraries do not take; copy the array first");
        }
        if (strides[i] == 0) {
            throw nb::value_error(
                "a stride of 0 makes elements share memory (broadcasting); copy the array first");
        }
        made.strides[i] = strides[i];
    }
    (void)made.extent();
    return made;
}

static bool lies_in(const layout &of, uint64_t bytes) {
    return of.offset <= bytes && of.extent() <= bytes - of.offset;
}

void layout_check(const layout &of, uint64_t bytes) {
    if (!lies_in(of, bytes)) {
        throw nb::value_error("the array does not lie in the buffer");
    }
}

void layout_check_place(const layout &of, uint64_t bytes, const char *operation, const char *name) {
    if (!lies_in(of, bytes)) {
        /* As ASCII, since the record of an error cuts a long sentence off anywhere. */
        const nb::str which = name == nullptr ? nb::str("") : nb::str(" {!a}").format(name);
        const nb::str sentence =
            nb::str("the array{} has {} bytes from byte {} on, and the buffer {} in all")
                .format(which, of.extent(), of.offset, bytes);
        fail(GPUIPC_ERR_OUT_OF_RANGE, operation, sentence.c_str());
    }
}

layout layout_of_range(const gpuipc_range &range, uint64_t bytes) {
    const numbers shape(range.shape, range.dimensions);
    numbers strides(range.strides, range.dimensions);
    const element type = element_from_packed(range.element_type);
    bool is_compact = true; /* strides that are all 0 */
    for (int64_t each : strides) {
        is_compact = is_compact && each == 0;
    }
    layout made =
        is_compact ? layout_compact(type, shape) : layout_strided(type, shape, strides, 0);
    made.offset = range.offset;
    layout_check(made, bytes);
    return made;
}

/* ---- slices --------------------------------------------------------------------------------- */

/* A dimension, of which an index selects elements. */
struct selected {
    int64_t first;
    int64_t count;
    int64_t step;
    bool is_one; /* by its number: the dimension goes */
};

static selected select_one(int64_t length, uint32_t dimension, nb::handle index) {
    const int64_t number = integer_of(index).value_or(INT64_MIN);
    const int64_t first = number < 0 ? number + length : number;
    if (first < 0 || first >= length) {
        const nb::str sentence = nb::str("index {} is outside dimension {}, which has {} elements")
                                     .format(index, dimension, length);
        throw nb::index_error(sentence.c_str());
    }
    return {first, 1, 1, true};
}

static selected select_some(int64_t length, nb::handle index) {
    Py_ssize_t start;
    Py_ssize_t stop;
    Py_ssize_t step;
    if (PySlice_Unpack(index.ptr(), &start, &stop, &step) != 0) {
        throw nb::python_error();
    }
    if (step < 0) {
        throw nb::value_error("negative steps are what most libraries do not take");
    }
    const Py_ssize_t count = PySlice_AdjustIndices(length, &start, &stop, step);
    return {start, count, step, false};
}

static selected select_in(const layout &of, uint32_t dimension, nb::handle index) {
    if (PySlice_Check(index.ptr()) != 0) {
        return select_some(of.shape[dimension], index);
    }
    if (PyBool_Check(index.ptr()) == 0 && PyIndex_Check(index.ptr()) != 0) {
        return select_one(of.shape[dimension], dimension, index);
    }
    throw nb::type_error(
        "an Array is indexed by numbers, slices and ...; for anything else make a tensor of it (from_dlpack)");
}

/* Puts what was selected behind the dimensions that the array has already. */
static void add_dimension(layout &to, int64_t stride, const selected &what) {
    to.offset += static_cast<uint64_t>(what.first * stride) * to.type.bytes();
    if (!what.is_one) {
        to.shape[to.dimensions] = what.count;
        /* Of one element any stride is right, and a large step would not fit. */
        to.strides[to.dimensions] = what.count > 1 ? stride * what.step : stride;
        to.dimensions++;
    }
}

layout layout_sliced(const layout &of, nb::handle index) {
    layout made;
    made.offset = of.offset;
    made.type = of.type;
    const nb::tuple indices =
        nb::isinstance<nb::tuple>(index) ? nb::borrow<nb::tuple>(index) : nb::make_tuple(index);
    size_t ellipses = 0;
    for (nb::handle each : indices) {
        ellipses += each.ptr() == Py_Ellipsis ? 1 : 0;
    }
    if (ellipses > 1) {
        throw nb::index_error("there is more than one ...");
    }
    const size_t named = indices.size() - ellipses;
    if (named > of.dimensions) {
        throw nb::index_error("there are more indices than dimensions");
    }
    uint32_t dimension = 0;
    const auto keep = [&](size_t count) {
        for (size_t i = 0; i < count; i++, dimension++) {
            add_dimension(made, of.strides[dimension], {0, of.shape[dimension], 1, false});
        }
    };
    for (nb::handle each : indices) {
        if (each.ptr() == Py_Ellipsis) {
            keep(of.dimensions - named);
        } else {
            const selected what = select_in(of, dimension, each);
            add_dimension(made, of.strides[dimension], what);
            dimension++;
        }
    }
    keep(of.dimensions - dimension);
    if (made.is_empty()) {
        made.offset = of.offset; /* which lies in the memory, as what was selected need not */
    }
    return made;
}

/* ---- views ---------------------------------------------------------------------------------- */

/* Puts a number in the place of one -1. */
static void complete_shape(numbers &shape, int64_t elements) {
    int64_t *missing = nullptr;
    int64_t others = 1;
    for (int64_t &each : shape) {
        if (each == -1 && missing == nullptr) {
            missing = &each;
        } else {
            others = product(others, each);
        }
    }
    if (missing != nullptr) {
        *missing = others > 0 && elements % others == 0 ? elements / others : -1;
    }
}

layout layout_viewed(const layout &of, nb::handle shape, nb::handle type) {
    if (!of.is_compact()) {
        throw nb::value_error("a view is of elements that lie side by side");
    }
    const element viewed = type.is_none() ? of.type : element_from(type);
    const int64_t bytes = of.elements() * static_cast<int64_t>(of.type.bytes());
    numbers dimensions;
    if (!shape.is_none()) {
        dimensions = numbers_from(shape);
        complete_shape(dimensions, bytes / static_cast<int64_t>(viewed.bytes()));
    } else {
        dimensions = numbers(of.shape.data(), of.dimensions);
        if (dimensions.count > 0) { /* the last dimension has as many elements as fill its bytes */
            int64_t &last = dimensions[dimensions.count - 1];
            const int64_t row = last * static_cast<int64_t>(of.type.bytes());
            last = row % static_cast<int64_t>(viewed.bytes()) == 0
                       ? row / static_cast<int64_t>(viewed.bytes())
                       : -1;
        }
    }
    for (int64_t each : dimensions) {
        if (each < 0) {
            throw nb::value_error("a view has as many bytes as the array that it is of");
        }
    }
    layout made = layout_compact(viewed, dimensions);
    made.offset = of.offset;
    if (made.extent() != static_cast<uint64_t>(bytes)) {
        throw nb::value_error("a view has as many bytes as the array that it is of");
    }
    return made;
}

} // namespace binding
