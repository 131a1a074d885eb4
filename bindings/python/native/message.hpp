/* SPDX-License-Identifier: MIT */
/** @file What a message holds besides the bytes of the program: where in its buffers its arrays lie. */
#pragma once

#include <string>
#include <vector>

#include "array.hpp"

namespace binding {

/** A message as it goes out: the program's bytes behind what is said of the arrays, and each buffer once. */
struct message {
    std::string bytes;
    std::vector<std::shared_ptr<memory>> buffers;
};

/** Of the program's bytes and its arrays. Throws TypeError for what is neither an Array nor a Buffer. */
message message_of(const nb::bytes &data, nb::handle arrays);

/** What stands in front of the caller's bytes where there are arrays: a word by which it is known, the length of a manifest
 *  (low byte first), and the manifest. */
std::string arrays_prefix(const std::vector<gpuipc_range> &ranges);

struct arrays_said {
    const char *manifest; /* in the bytes; NULL: nothing is said of arrays */
    size_t manifest_bytes;
    size_t end; /* where the caller's bytes begin */
};
/** Finds it. Throws ProtocolError where it is not whole. */
arrays_said arrays_said_in(const char *bytes, size_t size);

/** What Python gets. */
struct message_object {
    nb::bytes data;
    nb::list arrays;
};

/** Of what came. The peer is not to be believed: everything is looked at. Bytes of a program that is not written in Python
 *  are its data, and its buffers are arrays of bytes. Throws ProtocolError. */
message_object message_read(const message &came);

} // namespace binding
