# SPDX-License-Identifier: MIT
"""Memory that somebody else allocated: here by the driver's own calls."""

import ctypes
import gc
import pickle
import time
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import PATIENCE

import gpuipc


class Driver:
    """cuMemAlloc and its kin, of the driver that gpuipc has loaded."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(gpuipc.Context.default().driver_path)

    def call(self, name: str, *arguments: Any) -> None:
        assert getattr(self.library, name)(*arguments) == 0, name

    def allocate(self, nbytes: int) -> int:
        context, address = ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address.value

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))


@pytest.fixture
def memory() -> Iterator[int]:
    driver = Driver()
    address = driver.allocate(1 << 16)
    before = gpuipc.lingering()  # of other tests
    yield address
    gc.collect()
    assert gpuipc.lingering() <= before
    driver.free(address)


class Tensor:
    """As CuPy's and Numba's arrays describe themselves."""

    def __init__(self, address: int, **others: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": (4, 8), "typestr": "<f4", "data": (address, False), "strides": None, "version": 3, **others,
        }  # fmt: skip


def test_a_bare_address(memory: int) -> None:
    array = gpuipc.wrap((memory, 4096))
    assert (array.shape, array.dtype, array.address, array.transport) == ((4096,), "uint8", memory, "legacy")
    array.buffer.write(b"mine")
    assert gpuipc.wrap((memory + 1, 3)).buffer.read() == b"ine"


def test_the_cuda_array_interface(memory: int) -> None:
    array = gpuipc.wrap(Tensor(memory))
    assert (array.shape, array.strides, array.dtype) == ((4, 8), (8, 1), "float32")
    array = gpuipc.wrap(Tensor(memory, strides=(64, 4)))
    assert array.strides == (16, 1) and not array.is_contiguous


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": (4, -1)}, {"typestr": ">f4"}, {"typestr": "<V4"}, {"strides": (-32, 4)}, {"strides": (0, 0)},
        {"strides": (33, 4)}, {"mask": object()}, {"strides": (4,)}, {"shape": (1 << 40,)},
    ],
)  # fmt: skip
def test_interfaces_that_are_refused(memory: int, wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, gpuipc.GpuipcError)):
        gpuipc.wrap(Tensor(memory, **wrong))


def test_dlpack_of_both_versions() -> None:
    array = gpuipc.empty((4, 8), "bfloat16")

    class Old:
        def __dlpack__(self, stream: Any = None) -> Any:
            return array.__dlpack__(stream)

        def __dlpack_device__(self) -> tuple[int, int]:
            return array.__dlpack_device__()

    for producer in (array, array[1:3, ::2], Old()):
        wrapped = gpuipc.wrap(producer)
        assert wrapped.dtype == "bfloat16"
        assert wrapped.address == (producer.address if isinstance(producer, gpuipc.Array) else array.address)
    part = gpuipc.wrap(array[1:3, ::2])
    assert (part.shape, part.strides) == ((2, 4), (8, 2))


@pytest.mark.parametrize("wrong", [None, 5, "tensor", object()])
def test_what_is_no_memory(wrong: object) -> None:
    with pytest.raises(TypeError):
        gpuipc.wrap(wrong)


@pytest.mark.parametrize("wrong", [(1,), (0x1234, 0), (0x1234, -1), (0x1234, 64)])
def test_addresses_that_are_refused(wrong: Any) -> None:
    with pytest.raises((ValueError, gpuipc.GpuipcError)):
        gpuipc.wrap(wrong)


def test_memory_of_the_cpu_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"copy it into an array of gpuipc.empty\(\)"):
        gpuipc.wrap(np.zeros(4))


# ---- who keeps whom


def test_the_owner_is_kept_by_the_array_and_what_is_made_of_it(memory: int) -> None:
    tensor = Tensor(memory)
    seen = weakref.ref(tensor)
    before = gpuipc.lingering()
    array = gpuipc.wrap(tensor)
    del tensor
    assert seen() is not None
    capsule = array.__dlpack__()
    del array
    gc.collect()
    assert seen() is not None
    del capsule
    assert gpuipc.lingering() <= before
    assert seen() is None


def test_the_owner_is_kept_while_others_may_open_the_memory(memory: int) -> None:
    tensor = Tensor(memory)
    seen = weakref.ref(tensor)
    before = gpuipc.lingering()
    array = gpuipc.wrap(tensor)
    array.share(expires=0.2)
    del tensor, array
    assert gpuipc.lingering() == before + 1 and seen() is not None
    deadline = time.monotonic() + PATIENCE
    while seen() is not None:  # without a call of gpuipc
        assert time.monotonic() < deadline


@pytest.mark.parametrize("way", ["ticket", "share", "pickle"])
def test_the_owner_is_kept_by_what_is_opened_in_this_process(memory: int, way: str) -> None:
    owner = Tensor(memory)
    seen = weakref.ref(owner)
    array = gpuipc.wrap(owner)
    there: Any
    if way == "pickle":
        there = pickle.loads(pickle.dumps(array))
    else:
        there = gpuipc.open(array.ticket() if way == "ticket" else array.share(expires=0.1))
    tensor = there.__dlpack__()
    del owner, array
    for held in ("array", "tensor"):
        gc.collect()
        time.sleep(0.2)  # the thread that lets go looks every 0.1 seconds
        assert seen() is not None, held
        there = None
    del tensor
    deadline = time.monotonic() + PATIENCE
    while seen() is not None:
        assert time.monotonic() < deadline


def test_a_capsule_nobody_takes_gives_the_tensor_back() -> None:
    array = gpuipc.empty(16, "int8")
    before = gpuipc.lingering()
    wrapped = gpuipc.wrap(array)
    del wrapped
    assert gpuipc.lingering() <= before
