/* SPDX-License-Identifier: MIT */
#include "message.hpp"

#include <cstring>

#include "asked.hpp"
#include "buffer.hpp"

namespace binding {

namespace {

/* Of a message each range is an array, whose name is the number of its buffer there. */
constexpr char mark[] = {'g', 'p', 'u', 'i', 'p', 'c', 'A', '1'};
constexpr size_t length_bytes = 4;
constexpr size_t prefix_bytes = sizeof(mark) + length_bytes;

bool has_mark(const char *bytes, size_t size) {
    return size >= sizeof(mark) && memcmp(bytes, mark, sizeof(mark)) == 0;
}

layout bytes_of(const memory &core) {
    return layout_compact(element_from_packed(GPUIPC_ELEMENT_TYPE(GPUIPC_ELEMENT_UINT, 8, 1)),
                          {static_cast<int64_t>(core.bytes())});
}

array_object array_from(nb::handle item) {
    if (nb::isinstance<array_object>(item)) {
        nb::inst_ptr<array_object>(item)->check_for_others();
        return *nb::inst_ptr<array_object>(item);
    }
    if (nb::isinstance<buffer_object>(item)) {
        const std::shared_ptr<memory> &core = nb::inst_ptr<buffer_object>(item)->core;
        return {core, bytes_of(*core)};
    }
    throw nb::type_error("a message carries Arrays and Buffers");
}

size_t place_of(std::vector<std::shared_ptr<memory>> &buffers,
                const std::shared_ptr<memory> &wanted) {
    for (size_t i = 0; i < buffers.size(); i++) {
        if (buffers[i] == wanted) {
            return i;
        }
    }
    buffers.push_back(wanted);
    return buffers.size() - 1;
}

std::string prefix_of(const std::vector<array_object> &arrays, message &made) {
    std::vector<gpuipc_range> ranges;
    std::vector<std::string> names;
    names.reserve(arrays.size()); /* the ranges point into it */
    for (const array_object &each : arrays) {
        names.push_back(std::to_string(place_of(made.buffers, each.core)));
        ranges.push_back(each.form.range());
        ranges.back().name = names.back().c_str();
    }
    return arrays_prefix(ranges);
}

[[noreturn]] void refuse() {
    fail(GPUIPC_ERR_PROTOCOL, "receive", "what the peer says of its arrays is not right");
}

array_object array_of(const gpuipc_range &range, const message &came) {
    char *end = nullptr;
    const unsigned long number = strtoul(range.name, &end, 10);
    if (range.name[0] < '0' || range.name[0] > '9' || *end != '\0' ||
        number >= came.buffers.size()) {
        refuse();
    }
    const std::shared_ptr<memory> &core = came.buffers[number];
    try {
        return {core, layout_of_range(range, core->bytes())};
    } catch (const nb::builtin_exception &) { /* a value that none of ours sends */
        refuse();
    }
}

nb::list arrays_of(const char *manifest, size_t size, const message &came) {
    nb::list arrays;
    size_t count = 0;
    std::vector<gpuipc_range> ranges(16);
    gpuipc_status status;
    do { /* whether a range lies in its own buffer is looked at for each of them */
        status =
            gpuipc_manifest_read(manifest, size, UINT64_MAX, ranges.data(), ranges.size(), &count);
        ranges.resize(count);
    } while (status == GPUIPC_ERR_TOO_SMALL);
    check(status);
    for (const gpuipc_range &each : ranges) {
        arrays.append(nb::cast(array_of(each, came)));
    }
    return arrays;
}

} // namespace

std::string arrays_prefix(const std::vector<gpuipc_range> &ranges) {
    const std::string manifest = manifest_of(ranges);
    std::string prefix(mark, sizeof(mark));
    for (size_t i = 0; i < length_bytes; i++) {
        prefix.push_back(static_cast<char>(manifest.size() >> 8 * i & 0xFF));
    }
    return prefix + manifest;
}

arrays_said arrays_said_in(const char *bytes, size_t size) {
    if (!has_mark(bytes, size)) {
        return {nullptr, 0, 0};
    }
    if (size < prefix_bytes) {
        refuse();
    }
    size_t length = 0;
    for (size_t i = 0; i < length_bytes; i++) {
        length |= size_t{static_cast<uint8_t>(bytes[sizeof(mark) + i])} << 8 * i;
    }
    if (length > size - prefix_bytes) {
        refuse();
    }
    return {bytes + prefix_bytes, length, prefix_bytes + length};
}

message message_of(const nb::bytes &data, nb::handle arrays) {
    message made;
    std::vector<array_object> items;
    for (nb::handle each : list_of(arrays)) {
        items.push_back(array_from(each));
    }
    /* Bytes that would be taken for what is said of arrays have that in front, of none. */
    if (!items.empty() || has_mark(data.c_str(), data.size())) {
        made.bytes = prefix_of(items, made);
    }
    made.bytes.append(data.c_str(), data.size());
    return made;
}

message_object message_read(const message &came) {
    const std::string &bytes = came.bytes;
    if (!has_mark(bytes.data(), bytes.size())) {
        nb::list arrays;
        for (const std::shared_ptr<memory> &each : came.buffers) {
            arrays.append(nb::cast(array_object{each, bytes_of(*each)}));
        }
        return {nb::bytes(bytes.data(), bytes.size()), arrays};
    }
    const arrays_said said = arrays_said_in(bytes.data(), bytes.size());
    return {nb::bytes(bytes.data() + said.end, bytes.size() - said.end),
            arrays_of(said.manifest, said.manifest_bytes, came)};
}

} // namespace binding
