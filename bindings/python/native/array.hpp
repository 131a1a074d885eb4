/* SPDX-License-Identifier: MIT */
/** @file Arrays: shape, strides and type of elements over memory. */
#pragma once

#include <array>
#include <vector>

#include "element.hpp"
#include "memory.hpp"

namespace binding {

/** Of a shape or of strides, without an allocation. */
struct numbers {
    std::array<int64_t, GPUIPC_DIMENSIONS_MAX> values = {};
    uint32_t count = 0;

    numbers() = default;
    numbers(std::initializer_list<int64_t> of) {
        for (int64_t each : of) {
            push_back(each);
        }
    }
    numbers(const int64_t *first, uint32_t length) {
        for (uint32_t i = 0; i < length; i++) {
            push_back(first[i]);
        }
    }
    /** Throws ValueError where there are too many. */
    void push_back(int64_t number);
    int64_t &operator[](uint32_t at) {
        return values[at];
    }
    int64_t operator[](uint32_t at) const {
        return values[at];
    }
    int64_t *begin() {
        return values.data();
    }
    int64_t *end() {
        return values.data() + count;
    }
};

/** What an Array is within its memory. Strides are in elements, as DLPack and manifests have them, and never negative. */
struct layout {
    uint64_t offset = 0; /* in bytes */
    element type = {};
    uint32_t dimensions = 0;
    std::array<int64_t, GPUIPC_DIMENSIONS_MAX> shape = {};
    std::array<int64_t, GPUIPC_DIMENSIONS_MAX> strides = {};

    int64_t elements() const;
    /** It has no elements, and no place in memory. */
    bool is_empty() const;
    /** From its first byte to its last. */
    uint64_t extent() const;
    bool is_compact() const;
    gpuipc_range range() const;
};

/** Elements side by side. Throws ValueError for too many dimensions or too many bytes. */
layout layout_compact(const element &type, const numbers &shape);
/** With strides. Throws ValueError also where they are negative, or elements share memory. */
layout layout_strided(const element &type, const numbers &shape, const numbers &strides,
                      uint64_t offset);
/** Throws ValueError unless all of it lies in so many bytes. Whether its elements may lie there is asked when a tensor is made. */
void layout_check(const layout &of, uint64_t bytes);
/** Throws OutOfRange, which names the sizes, unless all of it lies in so many bytes of a buffer of the caller's choice.
 *  name: the array's, NULL if it has none. */
void layout_check_place(const layout &of, uint64_t bytes, const char *operation, const char *name);
/** The part that integers and slices select. Throws TypeError, IndexError, ValueError. */
layout layout_sliced(const layout &of, nb::handle index);
/** The same bytes as elements of another shape or type. Throws ValueError. */
layout layout_viewed(const layout &of, nb::handle shape, nb::handle type);
/** What a range of a manifest says. Throws ValueError. */
layout layout_of_range(const gpuipc_range &range, uint64_t bytes);

/** A number, or several. */
numbers numbers_from(nb::handle argument);
nb::tuple tuple_of(const int64_t *numbers, uint32_t count);

struct array_object {
    std::shared_ptr<memory> core;
    layout form;
    gpuipc_stream stream =
        nullptr; /* whose work makes the contents, for who unpickles it; GPUIPC_NO_STREAM: it is done */
    std::shared_ptr<lease> keeps =
        nullptr; /* of the memory of others that it is a part of for a time */

    uint64_t address() const {
        return core->address() + form.offset;
    }
    /** Throws unless the memory is open, and its. */
    void check_open() const {
        core->check_open();
        if (keeps != nullptr) {
            keeps->check();
        }
    }
    /** Throws TypeError of a part of a frame, whose memory is not this Array's to share or to close. */
    void check_own() const;
    /** Throws TypeError of what is not handed over: also of memory of a channel that came some other way. */
    void check_for_others() const;
};

/** DLPack's method. */
nb::object dlpack(const array_object &self, nb::handle stream, nb::handle max_version,
                  nb::handle dl_device, nb::handle copy);
std::pair<int, int> dlpack_device(const array_object &self);
/** The same in the form that every consumer knows. It says neither that memory may only be read nor when its contents are
 *  ready: for those who see to that. */
nb::object dlpack_unordered(const array_object &self);
nb::dict cuda_array_interface(const array_object &self);

/** Throws TypeError: what asks for values gets them from a tensor. */
[[noreturn]] void refuse_values(const char *what);

void bind_array(nb::module_ &m);
/** gpuipc.open and what is near to it. */
void bind_open(nb::module_ &m);
/** Memory that was handed over by a ticket. Waits for no contents. */
std::shared_ptr<memory> open_handed_over(nb::handle ticket, nb::handle device);
/** gpuipc.wrap. */
void bind_wrap(nb::module_ &m);

/** DLPack's and the CUDA array interface's methods of an Array. */
void bind_exports(bound_class<array_object> &type);

std::string manifest_of(const std::vector<gpuipc_range> &ranges);
/** The bytes that go with an Array's ticket: a manifest of one range. */
std::string manifest_of(const layout &form);

} // namespace binding
