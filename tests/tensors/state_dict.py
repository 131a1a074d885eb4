# SPDX-License-Identifier: MIT
"""A state dict of 1,000 tensors, handed to three processes at once; and how long that takes beside PyTorch's own way."""

import pickle
import statistics
import time
from typing import Any

import proof
import torch
import torch.multiprocessing

import gpuipc.torch

COUNT, ROUNDS = 1000, 20


def state(device: int) -> dict[str, torch.Tensor]:
    return {
        f"layer.{i}.weight": torch.full((128, 128), i, dtype=torch.float32, device=f"cuda:{device}") for i in range(COUNT)
    }


def check(tensors: Any, add: int = 0) -> None:
    found = torch.stack([each[0, 0] for each in tensors.values()]).cpu()
    assert torch.equal(found, torch.arange(COUNT, dtype=torch.float32) + add), found


def three(queue: Any, shared: Any, device: int) -> None:
    gpuipc.config.open_device.set(device)
    bundle = queue.get(timeout=proof.PATIENCE)
    check(bundle)
    assert {each.device.index for each in bundle.values()} == {device}
    shared.wait(proof.PATIENCE)  # all three have it open


def timed(pipe: Any, way: str, device: int) -> None:
    torch.cuda.set_device(device)
    gpuipc.config.open_device.set(device)
    held = None
    while (text := pipe.recv_bytes()) != b"end":
        times = [time.perf_counter()]
        tensors = pickle.loads(text)
        times.append(time.perf_counter())
        tensors = tensors.tensors if way.startswith("gpuipc") else tensors
        times.append(time.perf_counter())
        torch.cuda.current_stream().synchronize()
        pipe.send([*times, time.perf_counter()])
        check(tensors)
        if way != "gpuipc, new each time":
            held = tensors
        del tensors
        pipe.recv()
    del held


def measure(way: str, device: int) -> list[list[float]]:
    from multiprocessing.reduction import ForkingPickler

    here, there = proof.spawn.Pipe()
    other = proof.Other(timed, there, way, device)
    taken = []
    pool = gpuipc.torch.MemPool(openers=[device])
    tensors = state(0)
    if way.startswith("gpuipc"):
        with pool:
            tensors = state(0)
    for _ in range(ROUNDS):
        if way == "gpuipc, new each time":
            pool = gpuipc.torch.MemPool(openers=[device])
            with pool:
                tensors = state(0)
        torch.cuda.synchronize()
        times = [time.perf_counter()]
        value = gpuipc.torch.Bundle(tensors) if way.startswith("gpuipc") else tensors
        times.append(time.perf_counter())
        text = bytes(ForkingPickler.dumps(value))
        times.append(time.perf_counter())
        here.send_bytes(text)
        times += here.recv()
        taken.append([(time - times[0]) * 1e3 for time in times[1:]])
        here.send(None)
        del value
    here.send_bytes(b"end")
    other.answer()
    return taken


def main() -> None:
    with proof.case("1,000 tensors of a pool in three processes"):
        pool = gpuipc.torch.MemPool(openers=range(torch.cuda.device_count()))
        with pool:
            tensors = state(0)
        shared = proof.spawn.Barrier(3)
        queues = [proof.spawn.Queue() for _ in range(3)]
        last = torch.cuda.device_count() - 1
        others = [proof.Other(three, queue, shared, device) for queue, device in zip(queues, (0, last, last), strict=True)]
        bundle = gpuipc.torch.Bundle(tensors)
        for queue in queues:
            queue.put(bundle)
        for other in others:
            other.answer()
        bundle.await_returns(proof.PATIENCE)
        check(tensors)
    for device in {0, torch.cuda.device_count() - 1}:
        for way in ("torch", "gpuipc, known", "gpuipc, new each time"):
            with proof.case(f"1,000 tensors to GPU {device}, {way}"):
                taken = measure(way, device)
                steps = [f"{statistics.median(each):.2f}" for each in zip(*taken[1:], strict=True)]
                print(f"  ms until bundled, pickled, sent, read, made, usable: {', '.join(steps)}")
    proof.end()


if __name__ == "__main__":
    main()
