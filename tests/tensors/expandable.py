# SPDX-License-Identifier: MIT
"""Tensors of expandable segments, across processes that may not trace each other."""

import ctypes
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

from typing import Any  # noqa: E402

import proof  # noqa: E402
import torch  # noqa: E402

import gpuipc.torch  # noqa: E402

PR_SET_DUMPABLE = 4  # <sys/prctl.h>: 0 takes the right to trace this process, and to take its descriptors, from others


def receive(queue: Any, device: int) -> list[float]:
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
    gpuipc.config.open_device.set(device)
    sums = []
    while (array := queue.get(timeout=proof.PATIENCE)) is not None:
        tensor = gpuipc.torch.tensor(array)
        sums.append(float(tensor.double().sum().item()))
        tensor += 1
        torch.cuda.synchronize()
        del tensor, array
    return sums


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
    tensors = [torch.full((count,), 2.0, device="cuda:0") for count in (16, 1 << 20, 48 << 20)]
    with proof.case("expandable segments are what they are taken for"):
        found = [gpuipc.torch.classify(each) for each in tensors]
        print("  ", [(each.kind, each.transports, each.allocation_count, each.allocated_bytes >> 20) for each in found])
        assert all(each.kind == "vmm" and "vmm" in each.transports for each in found)
        assert found[-1].allocation_count > 1
    for device in {0, torch.cuda.device_count() - 1}:
        with proof.case(f"tensors of expandable segments to GPU {device}, without the right to trace"):
            queue = proof.spawn.Queue()
            other = proof.Other(receive, queue, device)
            before = [float(each.double().sum().item()) for each in tensors]
            for each in tensors:
                queue.put(gpuipc.torch.wrap(each))
            queue.put(None)
            assert other.answer() == before
            torch.cuda.synchronize()
            for each, old in zip(tensors, before, strict=True):
                assert float(each.double().sum().item()) == old + each.numel()
    with proof.case("a pool with expandable segments is refused with the reason"):
        try:
            gpuipc.torch.MemPool()
        except RuntimeError as error:
            assert "147851" in str(error), error
        else:
            raise AssertionError("it was made")
    with proof.case("a bundle of tensors of expandable segments"):
        queue = proof.spawn.Queue()
        other = proof.Other(receive_bundle, queue)
        queue.put(gpuipc.torch.Bundle({str(i): each for i, each in enumerate(tensors)}))
        assert other.answer() == [float(each.double().sum().item()) for each in tensors]
    proof.end()


def receive_bundle(queue: Any) -> list[float]:
    return [float(each.double().sum().item()) for each in queue.get(timeout=proof.PATIENCE).values()]


if __name__ == "__main__":
    main()
