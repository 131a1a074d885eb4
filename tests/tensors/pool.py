# SPDX-License-Identifier: MIT
"""Pools, what their memory is used for again, and tensors of all allocators of PyTorch."""

import gc
import os
import pickle
import threading
from typing import Any

import proof
import torch
import torch.multiprocessing

import gpuipc.torch


def hold(queue: Any, told: Any) -> float:
    tensor = queue.get(timeout=proof.PATIENCE)
    told.put("open")
    told.join()  # until the other has done everything that it does meanwhile
    return float(tensor.double().sum().item())


def classified(device: int) -> Any:
    tensors = [torch.full((count,), 3.0, device=f"cuda:{device}") for count in (64, 1 << 20, 64 << 20)]
    found = [gpuipc.torch.classify(each) for each in tensors]
    queue = proof.spawn.Queue()
    refused = None
    try:
        array = gpuipc.torch.wrap(tensors[1])
        other = proof.Other(summed, queue)
        queue.put(array)
        assert other.answer() == 3.0 * (1 << 20)
    except gpuipc.errors.NotShareable as error:
        refused = str(error)
    return [(each.kind, each.transports, each.allocation_count) for each in found], refused


def added(queue: Any) -> float:
    tensor = queue.get(timeout=proof.PATIENCE)
    (bundled,) = queue.get(timeout=proof.PATIENCE).tensors
    return float(tensor.double().sum().item()) + float(bundled.double().sum().item())


def summed(queue: Any) -> float:
    return float(gpuipc.torch.tensor(queue.get(timeout=proof.PATIENCE)).double().sum().item())


def main() -> None:
    gpuipc.torch.install()
    pool = gpuipc.torch.MemPool(openers=range(torch.cuda.device_count()))
    with proof.case("memory of a pool is known, and of transport vmm"):
        with pool:
            tensor = torch.ones(1 << 20, device="cuda:0")
        outside = torch.ones(1 << 20, device="cuda:0")
        assert gpuipc.torch.classify(tensor).is_known and not gpuipc.torch.classify(outside).is_known
        assert "vmm" in gpuipc.torch.classify(tensor).transports
        assert gpuipc.torch.tensor(gpuipc.torch.wrap(tensor)).data_ptr() == tensor.data_ptr()
        del tensor, outside

    with proof.case("a block on loan is not used again until it is given back"):
        queue, told = proof.spawn.Queue(), proof.spawn.JoinableQueue()
        other = proof.Other(hold, queue, told)
        with pool:
            tensor = torch.full((1 << 20,), 5.0, device="cuda:0")
        lent = tensor.data_ptr()
        queue.put(tensor)
        assert told.get(timeout=proof.PATIENCE) == "open"
        del tensor
        gc.collect()
        for _ in range(50):
            with pool:
                another = torch.full((1 << 20,), 9.0, device="cuda:0")
            assert another.data_ptr() != lent
            del another
        torch.cuda.synchronize()
        told.task_done()
        assert other.answer() == 5.0 * (1 << 20)
        proof.until(lambda: gpuipc.lingering() == 0, "it was given back")
        with pool:
            again = [torch.empty(1 << 20, device="cuda:0") for _ in range(8)]
        assert lent in [each.data_ptr() for each in again]
        del again

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    with proof.case("no memory is PyTorch's own error, and the pool is usable afterwards"):
        free, _ = torch.cuda.mem_get_info(0)
        try:
            with pool:
                torch.empty(free + (1 << 30), dtype=torch.uint8, device="cuda:0")
        except torch.cuda.OutOfMemoryError:
            pass
        else:
            raise AssertionError("there was memory")
        with pool:
            most = torch.empty(int(free * 0.6), dtype=torch.uint8, device="cuda:0")
            most.fill_(1)
        del most, pool
        gc.collect()
        torch.cuda.empty_cache()
        pool = gpuipc.torch.MemPool()
        with pool:  # of memory that was freed a moment ago, behind work
            most = torch.empty(int(free * 0.7), dtype=torch.uint8, device="cuda:0")
        most.fill_(1)
        torch.cuda.synchronize()
        del most, pool
        gc.collect()
        torch.cuda.empty_cache()
        proof.until(lambda: torch.cuda.mem_get_info(0)[0] > free * 0.95, "the memory is free again")

    with proof.case("memory that a process had open is free when the pool is gone and it was given back"):
        queue, told = proof.spawn.Queue(), proof.spawn.JoinableQueue()
        other = proof.Other(hold, queue, told)
        pool = gpuipc.torch.MemPool()
        with pool:
            tensor = torch.full((1 << 28,), 5.0, device="cuda:0")
        queue.put(tensor)
        assert told.get(timeout=proof.PATIENCE) == "open"
        del tensor, pool
        told.task_done()
        assert other.answer() == 5.0 * (1 << 28)
        proof.until(lambda: gpuipc.lingering() == 0, "it was given back")
        gc.collect()
        torch.cuda.empty_cache()
        proof.until(lambda: torch.cuda.mem_get_info(0)[0] > free * 0.95, "the memory is free again")

    with proof.case("tensors outlive their pool"):
        pool = gpuipc.torch.MemPool()
        with pool:
            tensor = torch.ones(1 << 22, device="cuda:0")
        del pool
        gc.collect()
        torch.cuda.empty_cache()
        assert float(tensor.sum().item()) == 1 << 22
        del tensor
        torch.cuda.empty_cache()

    with proof.case("threads allocate from one pool at the same time"):
        pool = gpuipc.torch.MemPool()
        wrong: list[Any] = []
        done: list[int] = []

        def work(number: int) -> None:
            with pool:
                for i in range(100):
                    tensor = torch.full((1 << 14,), float(number), device="cuda:0")
                    if not gpuipc.torch.classify(tensor).is_known or float(tensor.sum().item()) != number * (1 << 14):
                        wrong.append((number, i))
                with pool, pool:  # entered twice
                    torch.empty(1, device="cuda:0")
            done.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert wrong == [] and sorted(done) == [0, 1, 2, 3], (wrong, done)

    with proof.case("what another stream writes is there where a queue's own thread has pickled it"):
        side = torch.cuda.Stream()
        for number in range(3):
            queue = proof.spawn.Queue()
            other = proof.Other(added, queue)
            with torch.cuda.stream(side), pool:
                tensor = torch.zeros(1 << 24, device="cuda:0")
            bundled = torch.zeros(1 << 24, device="cuda:0")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(500_000_000)  # cycles: a quarter of a second
                tensor.fill_(number + 1)
                bundled.fill_(number + 1)
                queue.put(tensor)
                queue.put(gpuipc.torch.Bundle([bundled]))
            assert other.answer() == (number + 1) * 2.0 * (1 << 24)

    if torch.cuda.device_count() > 1:
        with proof.case("a pool on two GPUs, and copies between them"):
            both = gpuipc.torch.MemPool(device=[0, 1])
            with both:
                one = torch.full((1 << 22,), 2.0, device="cuda:0")
                other_gpu = torch.full((1 << 22,), 3.0, device="cuda:1")
            assert gpuipc.torch.classify(one).is_known and gpuipc.torch.classify(other_gpu).is_known
            assert float(one.to("cuda:1").sum().item()) == 2.0 * (1 << 22)
            with both:
                moved = other_gpu.to("cuda:0")
            assert float(moved.sum().item()) == 3.0 * (1 << 22)
            one.copy_(other_gpu)
            assert float(one.sum().item()) == 3.0 * (1 << 22)
            ordinary = torch.full((1 << 22,), 4.0, device="cuda:1")
            one.copy_(ordinary)
            assert float(one.sum().item()) == 4.0 * (1 << 22)
            ordinary.copy_(one)
            assert float(ordinary.sum().item()) == 4.0 * (1 << 22)

    with proof.case("bad input is refused with the reason"):
        pool = gpuipc.torch.MemPool()
        with pool:
            tensor = torch.ones(8, 8, device="cuda:0")
        for wrong_one, error, text in (
            (torch.ones(3), TypeError, "CPU"),
            (torch.empty(0, device="cuda:0"), ValueError, "without elements"),
            (torch.ones(3, 3, device="cuda:0").to_sparse(), TypeError, "sparse"),
            (torch.ones(3, device="meta"), TypeError, "meta"),
            (torch.ones(3, dtype=torch.complex64, device="cuda:0").conj(), TypeError, "conj"),
        ):
            try:
                gpuipc.torch.wrap(wrong_one)
            except error as raised:
                assert text in str(raised), raised
            else:
                raise AssertionError(f"{text} was taken")
        assert gpuipc.torch.wrap(tensor.t()[2:]).strides == (1, 8)
        text = pickle.dumps(gpuipc.torch.Bundle([tensor]))
        here = pickle.loads(text)
        assert here[0].data_ptr() == tensor.data_ptr()
        try:
            pickle.loads(text)
        except gpuipc.errors.TicketError:
            pass
        else:
            raise AssertionError("it was read twice")

    for name, setting in (
        ("cudaMalloc", ""), ("expandable", "expandable_segments:True"), ("cudaMallocAsync", "backend:cudaMallocAsync")
    ):  # fmt: skip
        with proof.case(f"tensors of {name}"):
            found, refused = proof.Other(classified_apart, 0, setting).answer()
            print("  ", found, refused)
            kinds = {"cudaMalloc": "device", "expandable": "vmm", "cudaMallocAsync": "pool"}
            assert {each[0] for each in found} == {kinds[name]}
            assert (refused is not None) == (name == "cudaMallocAsync")
    proof.end()


def classified_apart(device: int, setting: str) -> Any:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, __file__, "classify", str(device)],
        env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": setting},
        stdout=subprocess.PIPE,
        timeout=proof.PATIENCE,
        check=True,
    )
    return pickle.loads(done.stdout)


if __name__ == "__main__":
    import sys

    if sys.argv[1:2] == ["classify"]:
        sys.stdout.buffer.write(pickle.dumps(classified(int(sys.argv[2]))))
    else:
        main()
