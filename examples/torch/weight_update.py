# SPDX-License-Identifier: MIT
"""A trainer hands each version of its weights to two workers, without a copy. A worker that fails is started again.

    python weight_update.py

The workers use the last GPU, the trainer the first. Without a GPU, set GPUIPC_CUDA_DRIVER=emulated: the tensors are then in
host memory. It prints:

    version 1: the workers compute 4160.0 and 4160.0
    worker 1 has ended, and is started again
    version 2: the workers compute 8320.0 and 8320.0
    version 3: the workers compute 12480.0 and 12480.0
    version 4: the workers compute 16640.0 and 16640.0
    version 5: the workers compute 20800.0 and 20800.0
"""

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection

import torch

import gpuipc.torch

SHAPES = {"layer.weight": ((64, 64), "float32"), "layer.bias": ((64,), "float32")}
PATIENCE = 60  # seconds
spawn = multiprocessing.get_context("spawn")


def work(pipe: Connection, fails_at: int) -> None:
    """A worker. Its weights are the trainer's memory, opened at the first version of each set."""
    if torch.cuda.is_available():
        gpuipc.config.open_device.set(torch.cuda.device_count() - 1)
    for version in iter(pipe.recv, None):
        if version == fails_at:
            pipe.recv_bytes()  # the bundle has arrived, and is never unpickled
            os.kill(os.getpid(), signal.SIGKILL)
        bundle = pipe.recv()
        pipe.send(sum(weight.sum().item() for weight in bundle.values()))
        bundle.give_back()  # after preceding work of the current stream


class Worker:
    def __init__(self, fails_at: int = 0):
        self.pipe, there = spawn.Pipe()
        self.process = spawn.Process(target=work, args=(there, fails_at), daemon=True)
        self.process.start()
        there.close()

    def compute(self, version: int, bundle: gpuipc.torch.Bundle) -> float:
        """Raises EOFError or an OSError when the worker has ended."""
        self.pipe.send(version)
        self.pipe.send(bundle.lend(to=self.process))  # the end of the worker cancels it
        if not self.pipe.poll(PATIENCE):
            raise RuntimeError("the worker does not answer")
        return float(self.pipe.recv())


def make_weights() -> dict[str, torch.Tensor]:
    """Tensors in one allocation, which other processes can open."""
    if torch.cuda.is_available():
        arena = gpuipc.Arena(SHAPES, device=0, openers=range(torch.cuda.device_count()))
    else:
        arena = gpuipc.Arena(SHAPES, transport="host")
    return {name: gpuipc.torch.tensor(array) for name, array in arena.items()}


def main() -> None:
    # Two sets, so that a set may still be on loan while the trainer writes the other one.
    sets = [make_weights(), make_weights()]
    bundles = [gpuipc.torch.Bundle(weights) for weights in sets]
    workers = [Worker(), Worker(fails_at=2)]
    for version in range(1, 6):
        weights, bundle = sets[version % 2], bundles[version % 2]
        bundle.await_returns(PATIENCE)  # each worker has given this set back, or has ended
        for weight in weights.values():
            weight.fill_(version)  # an optimizer's step
        results = []
        for number in range(len(workers)):
            try:
                results.append(workers[number].compute(version, bundle))
            except (EOFError, OSError):
                print(f"worker {number} has ended, and is started again", flush=True)
                workers[number] = Worker()
                results.append(workers[number].compute(version, bundle))
        print(f"version {version}: the workers compute", " and ".join(map(str, results)), flush=True)
    for worker in workers:
        worker.pipe.send(None)
        worker.process.join(PATIENCE)


if __name__ == "__main__":
    main()
