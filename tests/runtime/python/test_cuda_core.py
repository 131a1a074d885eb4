# SPDX-License-Identifier: MIT
"""cuda.core and cuda.bindings, NVIDIA's own for Python, on whichever libcuda.so.1 the loader finds.

They call the driver, and know nothing of gpuipc. On the emulated driver they take all paths below but kernels.
"""

from __future__ import annotations

import ctypes
import multiprocessing

import numpy as np
import pytest
from cuda.bindings import driver
from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions, LegacyPinnedMemoryResource

BYTES = 1 << 20
PATIENCE_S = 60


def words_of(buffer):
    """The words of a pinned buffer, which lie where the host sees them."""
    raw = (ctypes.c_char * BYTES).from_address(int(buffer.handle))
    return np.frombuffer(raw, dtype=np.uint32)


@pytest.fixture
def device():
    one = Device(0)
    one.set_current()
    return one


def test_bindings_copy_there_and_back(device):
    out = np.arange(1000, dtype=np.uint32)
    back = np.zeros_like(out)
    result, address = driver.cuMemAlloc(out.nbytes)
    assert result == driver.CUresult.CUDA_SUCCESS
    assert driver.cuMemcpyHtoD(address, out.ctypes.data, out.nbytes) == (driver.CUresult.CUDA_SUCCESS,)
    assert driver.cuMemcpyDtoH(back.ctypes.data, address, out.nbytes) == (driver.CUresult.CUDA_SUCCESS,)
    assert (out == back).all()
    assert driver.cuMemFree(address) == (driver.CUresult.CUDA_SUCCESS,)
    assert driver.cuMemFree(address) == (driver.CUresult.CUDA_ERROR_INVALID_VALUE,)


def test_streams_events_and_memory(device):
    stream = device.create_stream()
    pinned = LegacyPinnedMemoryResource().allocate(BYTES)
    first = device.allocate(BYTES, stream=stream)
    second = device.allocate(BYTES, stream=stream)
    words_of(pinned)[:] = np.arange(BYTES // 4)
    first.copy_from(pinned, stream=stream)
    second.copy_from(first, stream=stream)
    stream.sync()
    words_of(pinned)[:] = 0
    pinned.copy_from(second, stream=stream)
    event = stream.record()
    event.sync()
    assert event.is_done
    assert (words_of(pinned) == np.arange(BYTES // 4)).all()
    second.close(stream)
    first.close(stream)
    pinned.close()


def add_one(take, give):
    """The other process: adds 1 to each word of the buffer that comes."""
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    buffer = take.get(timeout=PATIENCE_S)
    pinned = LegacyPinnedMemoryResource().allocate(BYTES)
    pinned.copy_from(buffer, stream=stream)
    stream.sync()
    words_of(pinned)[:] += 1
    pinned.copy_to(buffer, stream=stream)
    stream.sync()
    buffer.close()
    give.put("done")


def test_memory_of_a_pool_in_another_process(device):
    context = multiprocessing.get_context("spawn")
    stream = device.create_stream()
    pool = DeviceMemoryResource(device, options=DeviceMemoryResourceOptions(max_size=4 * BYTES, ipc_enabled=True))
    buffer = pool.allocate(BYTES, stream=stream)
    pinned = LegacyPinnedMemoryResource().allocate(BYTES)
    words_of(pinned)[:] = np.arange(BYTES // 4)
    pinned.copy_to(buffer, stream=stream)
    stream.sync()
    there, back = context.Queue(), context.Queue()
    other = context.Process(target=add_one, args=(there, back), daemon=True)
    other.start()
    there.put(buffer)
    assert back.get(timeout=PATIENCE_S) == "done"
    other.join(PATIENCE_S)
    assert other.exitcode == 0
    pinned.copy_from(buffer, stream=stream)
    stream.sync()
    assert (words_of(pinned) == np.arange(BYTES // 4) + 1).all()
    buffer.close(stream)
    pinned.close()
