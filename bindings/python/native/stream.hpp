/* SPDX-License-Identifier: MIT */
/** @file CUDA streams of whichever library, as arguments. */
#pragma once

#include "failure.hpp"

namespace binding {

/**
 * The stream that an argument stands for: None (the default stream), a handle as a number, what has the protocol
 * __cuda_stream__, or an object of PyTorch (cuda_stream), CuPy (ptr) or Numba (handle).
 */
gpuipc_stream stream_from(nb::handle argument);
/** The same, and -1: no stream (GPUIPC_NO_STREAM), because the work is done. */
gpuipc_stream stream_or_none_from(nb::handle argument);

/** The stream on which a library computes on this device now, as it has said by set_stream_source(); else the default
 *  stream. With the GIL. Throws what the library throws. */
gpuipc_stream current_stream(uint32_t device);

void bind_stream(nb::module_ &m);

/** A handle as a number. */
inline gpuipc_stream stream_of_handle(uintptr_t handle) {
    return reinterpret_cast<gpuipc_stream>(handle);
}

/** CU_STREAM_LEGACY and CU_STREAM_PER_THREAD (cuda.h), by which DLPack and the CUDA array interface mean them, too. */
constexpr uintptr_t legacy_stream = 1;
constexpr uintptr_t per_thread_stream = 2;

} // namespace binding
