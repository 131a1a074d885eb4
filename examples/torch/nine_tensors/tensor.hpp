// SPDX-License-Identifier: MIT
// What the producer and the consumer have in common: a tensor over a buffer.
#pragma once
#include <ATen/ATen.h>
#include <gpuipc/gpuipc.h>
#include <gpuipc/gpuipc_ticket.h>

#include <cstdio>
#include <cstdlib>

inline void must(gpuipc_status status) {
    if (status != GPUIPC_OK) {
        std::fprintf(stderr, "%s\n", gpuipc_error_text());
        std::exit(1);
    }
}

// The tensor takes the reference to the buffer. When the last view of the tensor is gone, the buffer is released after the
// preceding work of the device.
inline at::Tensor tensor_over(gpuipc_buffer *buffer, at::IntArrayRef sizes, at::ScalarType type,
                              at::Device device) {
    return at::for_blob(reinterpret_cast<void *>(gpuipc_buffer_address(buffer)), sizes)
        .deleter([buffer](void *) { (void)gpuipc_buffer_drop(buffer); })
        .options(at::TensorOptions().dtype(type).device(device))
        .target_device(device) // the device that uses the memory, whichever owns it
        .make_tensor();
}

// The sum of all elements. It waits until the device has computed it.
inline double sum_of(const at::Tensor &tensor) {
    return tensor.to(at::kDouble).sum().item<double>();
}
