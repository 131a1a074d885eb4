/* SPDX-License-Identifier: MIT */
/** @file Tensors of PyTorch, looked at: whether they are plain memory, where that is, and what they are besides. */
#pragma once

#include "parcel.hpp"

namespace binding {

/** Where a tensor lies, and how. Throws what PyTorch throws, and TypeError for memory of neither CUDA nor the host. */
part look_at(const exchange *by, nb::handle tensor, uint64_t &out_address);

/** It lies in memory that gpuipc made or opened. */
bool is_known(uint64_t address);

/** What is to be known of each tensor before it is handed over. */
class looker {
  public:
    /** @p strided is what PyTorch's layout of plain memory is. */
    looker(nb::object tensor_type, nb::object parameter_type, nb::object strided,
           nb::object capsule);

    /** What a tensor is besides its memory: requires_grad and is_parameter. None: it is not all elements of one kind in
     *  plain memory, or there are none, or it is memory of the host that gpuipc does not know. */
    std::optional<uint8_t> flag(nb::handle tensor) const;
    /** Of all of them, as bytes; None: of one it is none, or one of them is there twice. */
    nb::object flags(const nb::list &tensors) const;

    static constexpr uint8_t requires_grad = 1;
    static constexpr uint8_t is_parameter = 2;

    /* What of a tensor tells whether it is plain. */
    struct glance {
        uint64_t address;
        bool is_cuda;
        bool is_complex; /* or may be */
    };
    /** The same, also where gpuipc does not know the memory. */
    std::optional<uint8_t> flag(nb::handle tensor, glance &out_seen) const;

    const exchange *by() const {
        return exchange_;
    }

  private:
    bool glance_at(nb::handle tensor, glance &out_seen) const;
    bool ask(nb::handle tensor, glance &out_seen) const;

    nb::object tensor_type_;
    nb::object parameter_type_;
    nb::object strided_;
    nb::object capsule_;
    nb::object data_ptr_; /* methods of all tensors */
    nb::object numel_;
    nb::object is_neg_;
    nb::object is_conj_;
    const exchange *exchange_;
};

} // namespace binding
