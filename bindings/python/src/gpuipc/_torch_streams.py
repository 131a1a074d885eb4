# SPDX-License-Identifier: MIT
"""PyTorch's streams, and its state of CUDA."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from gpuipc import _native

NO_DEVICE = 0xFFFFFFFF  # of memory of the host

# DLPack's functions for C, which PyTorch has from 2.10 on: by them tensors are looked at and made faster.
exchange: Any = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


def current_stream(device: int) -> int:
    """The stream that PyTorch computes on, in this thread; 0: the default one."""
    if device == NO_DEVICE or not torch.cuda.is_initialized():
        return 0
    if exchange is not None:
        _native.set_stream_functions(exchange)  # from now on the module asks them, and not this one
    return int(torch._C._cuda_getCurrentRawStream(device))


def start(devices: Iterable[int]) -> None:
    """PyTorch's own state of CUDA has to be there before a tensor of CUDA is made."""
    if not torch.cuda.is_initialized() and any(device != NO_DEVICE for device in devices):
        torch.cuda.init()


# What is pickled, shared or put into a channel without a stream being named is ready when PyTorch's current one is there.
_native.set_stream_source(current_stream)
# In a forked child PyTorch has no CUDA.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _native.set_stream_functions(None))
