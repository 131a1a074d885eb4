# SPDX-License-Identifier: MIT
"""CUDA tensors through torch.multiprocessing, which knows nothing of gpuipc.

    LD_PRELOAD=libgpuipc-preload.so python3 queue_of_tensors.py [--hooked]

A spawned process gets tensors through a queue, checks every byte, writes into them, and sends tensors of its own
back. --hooked: fails unless the memory is of the kind that the hook gives.
"""

import sys
import time

import torch
import torch.multiprocessing as mp

from memory_kind import is_shareable

SIZES = [1, 100, 4096, 300_000, 1 << 20, (1 << 20) + 7, 5 << 20, 40 << 20]
ROUNDS = 3
PATIENCE_SECONDS = 120  # a process of PyTorch takes its time to start


def pattern(count: int, seed: int, device: int) -> torch.Tensor:
    return ((torch.arange(count, device=f"cuda:{device}", dtype=torch.int64) * 31 + seed) % 251).to(torch.uint8)


def same(tensor: torch.Tensor, seed: int) -> bool:
    return bool(torch.equal(tensor.reshape(-1), pattern(tensor.numel(), seed, tensor.get_device())))


def consume(device: int, to_consumer, to_producer) -> None:
    torch.cuda.set_device(device)
    while True:
        item = to_consumer.get(timeout=PATIENCE_SECONDS)
        if item is None:
            break
        tensors, seed = item
        for i, tensor in enumerate(tensors):
            assert same(tensor, seed + i), f"tensor {i} of seed {seed} arrived with other contents"
            tensor.copy_(pattern(tensor.numel(), seed + i + 100, tensor.get_device()).reshape(tensor.shape))
        torch.cuda.synchronize()
        own = [pattern(t.numel(), seed + 7, device) for t in tensors[:3]]
        torch.cuda.synchronize()
        to_producer.put(own)
        to_producer.join()  # until the other side has read them
        del own, tensors, tensor, item


def main() -> None:
    hooked = "--hooked" in sys.argv
    context = mp.get_context("spawn")
    to_consumer, to_producer = context.Queue(), context.JoinableQueue()
    device = torch.cuda.device_count() - 1
    process = context.Process(target=consume, args=(device, to_consumer, to_producer))
    process.start()
    times = []
    for round_ in range(ROUNDS):
        seed = round_ * 20
        tensors = [pattern(size, seed + i, 0) for i, size in enumerate(SIZES)]
        if hooked:
            assert all(is_shareable(t) for t in tensors), "the memory is not of the hook"
        torch.cuda.synchronize()
        start = time.perf_counter()
        to_consumer.put((tensors, seed))
        back = to_producer.get(timeout=PATIENCE_SECONDS)
        times.append(time.perf_counter() - start)
        for i, tensor in enumerate(tensors):
            assert same(tensor, seed + i + 100), f"tensor {i}: what the other process wrote is not here"
        for tensor, sent in zip(back, tensors):
            assert same(tensor, seed + 7) and tensor.numel() == sent.numel()
        del back, tensor
        to_producer.task_done()
    to_consumer.put(None)
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == 0, f"the consumer ended with {process.exitcode}"
    kind = "shareable" if is_shareable(tensors[0]) else "ordinary"
    print(f"queue of tensors: {ROUNDS * len(SIZES)} there and back, device 0 and {device}, {kind} memory, "
          f"a round {min(times) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
