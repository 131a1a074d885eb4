# SPDX-License-Identifier: MIT
"""PyTorch's streams, and its state of CUDA."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gpuipc import _native

NO_DEVICE = 0xFFFFFFFF  # of memory of the host


def current_stream(device: int) -> int:
    """The stream that PyTorch computes on, in this thread; 0: the default one."""
    if device == NO_DEVICE or not torch.cuda.is_initialized():
        return 0
    return int(torch._C._cuda_getCurrentRawStream(device))


def start(devices: Iterable[int]) -> None:
    """PyTorch's own state of CUDA has to be there before a tensor of CUDA is made."""
    if not torch.cuda.is_initialized() and any(device != NO_DEVICE for device in devices):
        torch.cuda.init()


# What is pickled, shared or put into a channel without a stream being named is ready when PyTorch's current one is there.
_native.set_stream_source(current_stream)
