# SPDX-License-Identifier: MIT
"""What CuPy calls. In place of CuPy, which wants a GPU, there is something that calls it so."""

import gc
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gpuipc


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        self.status = status


class PythonFunctionAllocator:
    def __init__(self, malloc: Callable[[int, int], int], free: Callable[[int, int], None]) -> None:
        self.malloc, self.free = malloc, free


@pytest.fixture
def allocators(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    cupy = types.ModuleType("cupy")
    runtime = types.SimpleNamespace(CUDARuntimeError=CUDARuntimeError)
    cupy.cuda = types.SimpleNamespace(PythonFunctionAllocator=PythonFunctionAllocator, runtime=runtime)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    yield importlib.import_module("gpuipc.cupy")
    sys.modules.pop("gpuipc.cupy")


def test_its_memory_can_be_shared(allocators: Any) -> None:
    allocator = allocators.allocator(openers=[0, 1])
    address = allocator.malloc(4096, 1)
    memory = gpuipc.classify((address, 4096))
    assert (memory.kind, memory.device) == ("vmm", 1) and "vmm" in memory.transports
    array = gpuipc.wrap((address, 4096))
    array.buffer.write(b"from CuPy")
    opened = gpuipc.open(array.ticket())
    assert isinstance(opened, gpuipc.Array) and opened.buffer.read(0, 9) == b"from CuPy"
    del array, opened
    allocator.free(address, 1)
    gc.collect()
    assert allocator.malloc.__self__.buffers == {}


def test_its_pools_are_told_that_there_is_no_memory(allocators: Any) -> None:
    allocator = allocators.allocator()
    with pytest.raises(CUDARuntimeError) as caught:
        allocator.malloc(1 << 40, 0)
    assert caught.value.status == 2
    assert isinstance(caught.value.__cause__, gpuipc.errors.OutOfDeviceMemory)
    with pytest.raises(gpuipc.errors.DriverError):
        allocator.malloc(16, 9)
