# SPDX-License-Identifier: MIT
"""CuPy's memory from gpuipc, so that its arrays can be shared.

    pool = cupy.cuda.MemoryPool(gpuipc.cupy.allocator(openers=[0, 1]).malloc)
    with cupy.cuda.using_allocator(pool.malloc):
        x = cupy.zeros((1024, 1024))
    queue.put(gpuipc.wrap(x))

    y = cupy.from_dlpack(queue.get())       # in another process
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import gpuipc


_OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation"""


class _Allocations:
    """Each is a Buffer. Given up, it stays until the GPU's work so far is done, and as long as others have it open."""

    def __init__(self, openers: Iterable[object] | None, context: gpuipc.Context | None) -> None:
        self.openers = None if openers is None else list(openers)
        self.context = context
        self.buffers: dict[int, gpuipc.Buffer] = {}

    def malloc(self, size: int, device: int) -> int:
        try:
            buffer = gpuipc.create(size, device=device, openers=self.openers, context=self.context)
        except gpuipc.errors.OutOfDeviceMemory as error:
            # By which CuPy's pools know that they are to give up what they keep, and try again.
            raise import_module("cupy").cuda.runtime.CUDARuntimeError(_OUT_OF_MEMORY) from error
        self.buffers[buffer.address] = buffer
        return buffer.address

    def free(self, address: int, device: int) -> None:
        self.buffers.pop(address, None)


def allocator(*, openers: Iterable[object] | None = None, context: gpuipc.Context | None = None) -> Any:
    """A cupy.cuda.PythonFunctionAllocator. Each allocation takes the driver's time and granularity (2 MiB), so it
    belongs under a cupy.cuda.MemoryPool. openers: as in gpuipc.empty()."""
    allocations = _Allocations(openers, context)
    return import_module("cupy").cuda.PythonFunctionAllocator(allocations.malloc, allocations.free)
