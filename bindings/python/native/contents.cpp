/* SPDX-License-Identifier: MIT */
/** @file What a parcel says of its tensors: as bytes, and read from them. */
#include <cstring>

#include "parcel.hpp"

namespace binding {

namespace {

constexpr uint32_t contents_version = 1;

/* With the number of dimensions: what of a tensor is written besides. Strides are where it is not compact. */
constexpr uint32_t with_strides = 1u << 31;
constexpr uint32_t with_common = 1u << 30;
constexpr uint32_t in_segment = 1u << 29;

template <typename number_type> void append(std::string &bytes, number_type number) {
    bytes.append(reinterpret_cast<const char *>(&number), sizeof(number));
}

template <typename number_type> number_type next(const std::string &bytes, size_t &at) {
    number_type number;
    if (bytes.size() - at < sizeof(number)) {
        throw nb::value_error("what is said of the tensors ends too early");
    }
    memcpy(&number, bytes.data() + at, sizeof(number));
    at += sizeof(number);
    return number;
}

void append_place(std::string &bytes, const place &at) {
    append(bytes, at.home);
    append(bytes, at.offset);
    append(bytes, at.bytes);
}

place next_place(const std::string &bytes, size_t &at) {
    place read;
    read.home = next<uint32_t>(bytes, at);
    read.offset = next<uint64_t>(bytes, at);
    read.bytes = next<uint64_t>(bytes, at);
    return read;
}

} // namespace

uint64_t extent_of(const part &of) {
    const auto bytes = static_cast<int64_t>(element_from_packed(of.type).bytes());
    int64_t last = 0;
    for (size_t i = 0; i < of.shape.size(); i++) {
        int64_t reach;
        if (of.shape[i] <= 0 || of.strides[i] < 0 ||
            __builtin_mul_overflow(of.shape[i] - 1, of.strides[i], &reach) ||
            __builtin_add_overflow(last, reach, &last)) {
            throw nb::value_error("a tensor has numbers of elements and strides that cannot be");
        }
    }
    int64_t all;
    if (__builtin_add_overflow(last, int64_t{1}, &last) ||
        __builtin_mul_overflow(last, bytes, &all)) {
        throw nb::value_error("a tensor has more bytes than there can be");
    }
    return static_cast<uint64_t>(all);
}

namespace {

std::vector<int64_t> compact_strides(const std::vector<int64_t> &shape) {
    std::vector<int64_t> strides(shape.size());
    int64_t step = 1;
    for (size_t i = shape.size(); i > 0; i--) {
        strides[i - 1] = step;
        if (__builtin_mul_overflow(step, shape[i - 1], &step)) {
            throw nb::value_error("a tensor has more bytes than there can be");
        }
    }
    return strides;
}

std::vector<int64_t> next_numbers(const std::string &bytes, size_t &at, uint32_t count) {
    if (count > (bytes.size() - at) / sizeof(int64_t)) {
        throw nb::value_error("what is said of the tensors ends too early");
    }
    std::vector<int64_t> numbers(count);
    if (count > 0) {
        memcpy(numbers.data(), bytes.data() + at, count * sizeof(int64_t));
    }
    at += count * sizeof(int64_t);
    return numbers;
}

void append_part(std::string &bytes, const part &said) {
    const bool is_compact = said.strides == compact_strides(said.shape);
    append(bytes, static_cast<uint32_t>(said.shape.size()) | (is_compact ? 0 : with_strides) |
                      (said.common == no_common ? 0 : with_common) |
                      (said.is_in_segment ? in_segment : 0));
    append(bytes, said.type);
    append(bytes, said.at.home);
    append(bytes, said.at.offset);
    if (said.common != no_common) {
        append(bytes, said.common);
    }
    bytes.append(reinterpret_cast<const char *>(said.shape.data()),
                 said.shape.size() * sizeof(int64_t));
    if (!is_compact) {
        bytes.append(reinterpret_cast<const char *>(said.strides.data()),
                     said.strides.size() * sizeof(int64_t));
    }
}

part next_part(const std::string &bytes, size_t &at) {
    part read;
    const uint32_t head = next<uint32_t>(bytes, at);
    const uint32_t dimensions = head & ~(with_strides | with_common | in_segment);
    read.is_in_segment = (head & in_segment) != 0;
    read.type = next<uint32_t>(bytes, at);
    read.at.home = next<uint32_t>(bytes, at);
    read.at.offset = next<uint64_t>(bytes, at);
    read.common = (head & with_common) != 0 ? next<uint32_t>(bytes, at) : no_common;
    read.shape = next_numbers(bytes, at, dimensions);
    read.strides = (head & with_strides) != 0 ? next_numbers(bytes, at, dimensions)
                                              : compact_strides(read.shape);
    read.at.bytes = extent_of(read);
    return read;
}

void check_common(const contents &of, const part &with) {
    if (with.common == no_common) {
        return;
    }
    if (with.common >= of.commons.size()) {
        throw nb::value_error("a tensor shares memory that there is not");
    }
    const place &common = of.commons[with.common];
    if (with.at.home != common.home || with.at.offset < common.offset ||
        with.at.offset - common.offset > common.bytes ||
        with.at.bytes > common.bytes - (with.at.offset - common.offset)) {
        throw nb::value_error("a tensor does not lie in the memory that it shares");
    }
}

} // namespace

std::string contents::written() const {
    std::string bytes;
    bytes.reserve(64 + parts.size() * 48);
    append(bytes, contents_version);
    append(bytes, static_cast<uint32_t>(commons.size()));
    append(bytes, static_cast<uint32_t>(parts.size()));
    for (const place &each : commons) {
        append_place(bytes, each);
    }
    for (const part &each : parts) {
        append_part(bytes, each);
    }
    return bytes;
}

contents contents_read(const std::string &bytes) {
    size_t at = 0;
    contents read;
    if (next<uint32_t>(bytes, at) != contents_version) {
        throw nb::value_error("another version of gpuipc has written what is said of the tensors");
    }
    const uint32_t commons = next<uint32_t>(bytes, at);
    const uint32_t parts = next<uint32_t>(bytes, at);
    for (uint32_t i = 0; i < commons; i++) {
        read.commons.push_back(next_place(bytes, at));
    }
    for (uint32_t i = 0; i < parts; i++) {
        read.parts.push_back(next_part(bytes, at));
        check_common(read, read.parts.back());
    }
    return read;
}

} // namespace binding
