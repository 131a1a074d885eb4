# SPDX-License-Identifier: MIT
"""Tests of your own, on machines without a GPU."""

import os

from gpuipc._native import Context


def emulated() -> None:
    """Lets this process, and those begun by it from now on, use the emulated driver that came with this package.

    To be called before anything of gpuipc uses a driver. Its memory is real and shared for real, and is reached with
    Buffer.read() and write(); that of transport="host" also with NumPy and PyTorch's CPU tensors. It launches no
    kernels.
    """
    os.environ["GPUIPC_CUDA_DRIVER"] = "emulated"
    if not Context.default().is_emulated:
        raise RuntimeError("this process uses another driver already: call gpuipc.testing.emulated() before")
