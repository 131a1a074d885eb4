/* SPDX-License-Identifier: MIT */
/** @file Types of elements, kept as DLPack has them, by the names that NumPy, PyTorch and JAX give them. */
#pragma once

#include <cstdint>
#include <string>

#include "failure.hpp"

namespace binding {

struct element {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;

    uint64_t bytes() const {
        return uint64_t{bits} * lanes / 8;
    }
    /** Integers of the same size, by which tensors of other types travel. */
    element as_integer() const {
        return {0, static_cast<uint8_t>(8 * bytes()), 1};
    }
    uint32_t packed() const {
        return GPUIPC_ELEMENT_TYPE(code, bits, lanes);
    }
};

/** The type that an argument stands for: a name, what has a name (a dtype of NumPy, PyTorch or JAX), one of Python's own
 *  types of numbers, or DLPack's code, bits and lanes. Throws TypeError or ValueError. */
element element_from(nb::handle argument);

/** The type of GPUIPC_ELEMENT_TYPE. Throws ValueError for one whose elements are no whole bytes. */
element element_from_packed(uint32_t packed);

/** Its name, such as "bfloat16"; where it has none, "(code, bits, lanes)". */
std::string element_name(const element &type);

/** Throws ValueError unless elements may lie there: a kernel that reads others ends its CUDA context, and where they lie may
 *  come from a peer. */
void check_alignment(uint64_t address, const element &type);

/** PyTorch takes it by DLPack in every version; the others go as numbers of the same size. */
bool element_is_plain(const element &type);

/** As __cuda_array_interface__ has it, such as "<f4"; empty where that has none. */
std::string element_typestr(const element &type);

/** The type of such a text. Throws ValueError. */
element element_from_typestr(const std::string &typestr);

} // namespace binding
