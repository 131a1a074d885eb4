# SPDX-License-Identifier: MIT
"""CuPy, JAX and Numba on what PyTorch shared, on the same GPU and on a peer."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import importlib.util  # noqa: E402
from typing import Any  # noqa: E402

import proof  # noqa: E402

COUNT = 1 << 20


def with_cupy(queue: Any, device: int) -> float:
    import cupy

    with cupy.cuda.Device(device):
        import gpuipc

        gpuipc.config.open_device.set(device)
        array = queue.get(timeout=proof.PATIENCE)
        return float(cupy.from_dlpack(array).sum(dtype="float64").get())


def with_jax(queue: Any, device: int) -> float:
    import jax

    import gpuipc

    jax.numpy.zeros(1, device=jax.devices()[device]).block_until_ready()
    gpuipc.config.open_device.set(device)
    array = queue.get(timeout=proof.PATIENCE)
    with jax.default_device(jax.devices()[device]):
        found = jax.dlpack.from_dlpack(array)
        return float(found.sum())


def with_numba(queue: Any, device: int) -> float:
    from numba import cuda

    cuda.select_device(device)
    import gpuipc

    gpuipc.config.open_device.set(device)
    array = queue.get(timeout=proof.PATIENCE)
    return float(cuda.as_cuda_array(array).copy_to_host().astype("float64").sum())


def main() -> None:
    import torch

    import gpuipc.torch

    pool = gpuipc.torch.MemPool(openers=range(torch.cuda.device_count()))
    for name, function in (("cupy", with_cupy), ("jax", with_jax), ("numba", with_numba)):
        if importlib.util.find_spec(name) is None:
            print(f"SKIP {name}: it is not installed")
            continue
        for device in sorted({0, torch.cuda.device_count() - 1}):
            for number in range(3):  # once read wrong: again, with other contents
                with proof.case(f"{name} on GPU {device}, {number}"):
                    queue = proof.spawn.Queue()
                    other = proof.Other(function, queue, device)
                    with pool:
                        tensor = torch.full((COUNT,), float(number + 1), device="cuda:0")
                    tensor += 1
                    queue.put(gpuipc.torch.wrap(tensor))
                    found = other.answer()
                    assert found == COUNT * (number + 2), (found, COUNT * (number + 2))
                    del tensor
    proof.end()


if __name__ == "__main__":
    main()
