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

/** What Python gets. */
struct message_object {
    nb::bytes data;
    nb::list arrays;
};

/** Of what came. The peer is not to be believed: everything is looked at. Bytes of a program that is not written in Python
 *  are its data, and its buffers are arrays of bytes. Throws ProtocolError. */
message_object message_read(const message &came);

} // namespace binding
