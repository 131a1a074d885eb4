# SPDX-License-Identifier: MIT
"""Nine small tensors of integers through a queue of torch.multiprocessing: exact where they arrive, unchanged at home."""

from typing import Any

import proof
import torch
import torch.multiprocessing

import gpuipc.torch


def numbers() -> list[torch.Tensor]:
    """Contents that a mixed up offset, length or type would show."""
    return [
        (torch.arange(i + 1, dtype=dtype) * 3 + i)
        for i, dtype in enumerate([torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64] * 2)
    ][:9]


def receive(queue: Any, device: int) -> list[tuple[str, list[int]]]:
    gpuipc.config.open_device.set(device)
    torch.cuda.set_device(device)
    found = []
    for _ in range(9):
        tensor = queue.get(timeout=proof.PATIENCE)
        assert tensor.device.index == device, tensor.device
        found.append((str(tensor.dtype), tensor.tolist()))
    return found


def main() -> None:
    gpuipc.torch.install()
    expected = [(str(each.dtype), each.tolist()) for each in numbers()]
    for device in {0, torch.cuda.device_count() - 1}:
        with proof.case(f"nine tensors of integers to GPU {device}"):
            queue = proof.spawn.Queue()
            other = proof.Other(receive, queue, device)
            pool = gpuipc.torch.MemPool(openers=[device])
            with pool:
                tensors = [each.cuda(0) for each in numbers()]
            for each in tensors:
                assert gpuipc.torch.classify(each).is_known
                queue.put(each)
            assert other.answer() == expected
            assert [(str(each.dtype), each.tolist()) for each in tensors] == expected
    with proof.case("a tensor that is not gpuipc's goes PyTorch's own way"):
        queue = proof.spawn.Queue()
        other = proof.Other(receive_one, queue)
        ordinary = torch.arange(5, device="cuda:0")
        assert not gpuipc.torch.classify(ordinary).is_known
        queue.put(ordinary)
        assert other.answer() == list(range(5))
    gpuipc.torch.uninstall()
    proof.end()


def receive_one(queue: Any) -> list[int]:
    return list(queue.get(timeout=proof.PATIENCE).tolist())


if __name__ == "__main__":
    main()
