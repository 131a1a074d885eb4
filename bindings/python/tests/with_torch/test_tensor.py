# SPDX-License-Identifier: MIT
"""What PyTorch's own tensors on the host see of gpuipc's memory."""

import torch

import gpuipc


def test_tensor_is_the_memory_itself() -> None:
    array = gpuipc.empty((3, 4), "bfloat16", transport="host")
    tensor = torch.from_dlpack(array)
    assert (tensor.dtype, tensor.shape) == (torch.bfloat16, (3, 4))
    tensor.fill_(1.5)
    assert array.buffer.read(0, 2) == b"\xc0\x3f"
