/* SPDX-License-Identifier: MIT */
/** @file Arrays: shape, strides and type of elements over memory. */
#pragma once

#include <array>
#include <vector>

#include "element.hpp"
#include "memory.hpp"

namespace binding {

/** What an Array is within its memory. Strides are in elements, as DLPack and manifests have them, and never negative. */
struct layout {
    uint64_t offset = 0; /* in bytes */
    element type = {};
    uint32_t dimensions = 0;
    std::array<int64_t, GPUIPC_DIMENSIONS_MAX> shape = {};
    std::array<int64_t, GPUIPC_DIMENSIONS_MAX> strides = {};

    int64_t elements() const;
    /** From its first byte to its last. */
    uint64_t extent() const;
    bool is_compact() const;
    gpuipc_range range() const;
};

/** Elements side by side. Throws ValueError for what has no elements, too many dimensions or too many bytes. */
layout layout_compact(const element &type, const std::vector<int64_t> &shape);
/** With strides. Throws ValueError also where they are negative, or elements share memory. */
layout layout_strided(const element &type, const std::vector<int64_t> &shape,
                      const std::vector<int64_t> &strides, uint64_t offset);
/** Throws ValueError unless all of it lies in so many bytes, aligned as its elements want. */
void layout_check(const layout &of, uint64_t bytes);
/** What slices select. Throws TypeError, IndexError, ValueError. */
layout layout_sliced(const layout &of, nb::handle index);
/** The same bytes as elements of another shape or type. Throws ValueError. */
layout layout_viewed(const layout &of, nb::handle shape, nb::handle type);
/** What a range of a manifest says. Throws ValueError. */
layout layout_of_range(const gpuipc_range &range, uint64_t bytes);

/** A number, or several. */
std::vector<int64_t> numbers_from(nb::handle argument);
nb::tuple tuple_of(const int64_t *numbers, uint32_t count);

struct array_object {
    std::shared_ptr<memory> core;
    layout form;

    uint64_t address() const {
        return core->address() + form.offset;
    }
};

void bind_array(nb::module_ &m);
/** gpuipc.open and what is near to it. */
void bind_open(nb::module_ &m);
/** gpuipc.wrap. */
void bind_wrap(nb::module_ &m);

/** DLPack's and the CUDA array interface's methods of an Array. */
void bind_exports(nb::class_<array_object> &type);

std::string manifest_of(const std::vector<gpuipc_range> &ranges);
/** The bytes that go with an Array's ticket: a manifest of one range. */
std::string manifest_of(const layout &form);

} // namespace binding
