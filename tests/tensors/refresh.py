# SPDX-License-Identifier: MIT
"""A trainer publishes its weights again and again to two readers, who compute meanwhile. No reader ever sees two
versions at once. There are two sets of weights: the one that nobody has is written."""

from typing import Any

import proof
import torch

import gpuipc.torch

VERSIONS, LAYERS, SIDE = 40, 24, 1024


def reader(queue: Any, device: int) -> tuple[int, int]:
    gpuipc.config.open_device.set(device)
    torch.cuda.set_device(device)
    versions, torn = [], 0
    with torch.cuda.stream(torch.cuda.Stream()):
        while (bundle := queue.get(timeout=proof.PATIENCE)) is not None:
            tensors = bundle.tensors
            first = tensors["layer.0"][0, 0].clone()
            product = torch.ones(SIDE, SIDE, device=f"cuda:{device}")
            for _ in range(3):  # several looks, while the trainer goes on
                product = product @ tensors["layer.0"] * 0
                for each in tensors.values():
                    torn += int((each != first + product[0, 0]).sum().item())
            versions.append(int(first.item()))
            del tensors, bundle, each
    assert versions == sorted(versions), versions
    return len(versions), torn


def main() -> None:
    with proof.case(f"{VERSIONS} versions to two readers, none torn"):
        last = torch.cuda.device_count() - 1
        queues = [proof.spawn.Queue(), proof.spawn.Queue()]
        others = [proof.Other(reader, queue, device) for queue, device in zip(queues, (0, last), strict=True)]
        pool = gpuipc.torch.MemPool(openers=[0, last])
        with pool:
            sets = [{f"layer.{i}": torch.zeros(SIDE, SIDE, device="cuda:0") for i in range(LAYERS)} for _ in range(2)]
        bundles = [gpuipc.torch.Bundle(each) for each in sets]
        with torch.cuda.stream(torch.cuda.Stream()):
            for version in range(VERSIONS):
                bundle = bundles[version % 2]
                bundle.await_returns(proof.PATIENCE)
                for each in sets[version % 2].values():
                    each.fill_(version)
                for queue in queues:
                    queue.put(bundle.lend())  # now, and on this stream: the queue pickles later
        for queue in queues:
            queue.put(None)
        for other in others:
            count, torn = other.answer()
            assert (count, torn) == (VERSIONS, 0), (count, torn)
    proof.end()


if __name__ == "__main__":
    main()
