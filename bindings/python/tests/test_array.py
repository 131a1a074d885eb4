# SPDX-License-Identifier: MIT
import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import gpuipc


def host(shape: Any, dtype: Any) -> gpuipc.Array:
    return gpuipc.empty(shape, dtype, transport="host")


# ---- form


def test_what_is_known_of_it() -> None:
    array = gpuipc.empty((3, 4, 5), "float32", device=1)
    assert array.shape == (3, 4, 5) and array.strides == (20, 5, 1)
    assert (array.ndim, array.size, array.itemsize, array.nbytes, len(array)) == (3, 60, 4, 240, 3)
    assert array.dtype == "float32" and array.dlpack_dtype == (2, 32, 1)
    assert array.is_contiguous and array.offset == 0
    assert array.address == array.buffer.address
    assert (array.device, array.access_device, array.transport, array.read_only) == (1, 1, "vmm", False)
    assert repr(array) == "<gpuipc.Array (3, 4, 5) of float32, vmm, device 1>"


def test_one_without_dimensions() -> None:
    array = host((), "int64")
    assert array.shape == () and array.size == 1 and array.nbytes == 8
    with pytest.raises(TypeError):
        len(array)
    numpy = np.from_dlpack(array)
    numpy[...] = 7
    assert array.buffer.read() == (7).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3, -1), "int8"), (-1, "int8"), ((1,) * 9, "int8"), ((1 << 40, 1 << 40), "int8"), (1 << 62, "float64")],
)
def test_what_cannot_be(shape: Any, dtype: Any) -> None:
    with pytest.raises(ValueError):
        gpuipc.empty(shape, dtype)


@pytest.mark.parametrize("shape", ["abc", 1.5, (1.5,), None])
def test_what_is_no_shape(shape: Any) -> None:
    with pytest.raises(TypeError):
        gpuipc.empty(shape, "int8")


NUMPY_TYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip


@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_types_that_numpy_has(name: str) -> None:
    array = host(4, name)
    numpy = np.from_dlpack(array)
    assert numpy.dtype == np.dtype(name) and array.itemsize == numpy.itemsize
    assert host(1, np.dtype(name)).dtype == host(1, numpy.dtype.type).dtype == name
    assert gpuipc.empty(4, name).__cuda_array_interface__["typestr"] == np.dtype(name).str


@pytest.mark.parametrize(
    ("name", "dlpack"),
    [("bfloat16", (4, 16, 1)), ("float8_e4m3fn", (10, 8, 1)), ("float8_e5m2", (12, 8, 1)), ("complex32", (5, 32, 1))],
)
def test_types_that_numpy_has_not(name: str, dlpack: tuple[int, int, int]) -> None:
    array = gpuipc.empty(4, name)
    assert array.dlpack_dtype == dlpack and array.dtype == name
    assert gpuipc.empty(4, dlpack).dtype == name
    assert not hasattr(array, "__cuda_array_interface__")
    assert array.__dlpack__() is not None


def test_types_by_what_has_a_name() -> None:
    class Torch:
        def __str__(self) -> str:
            return "torch.bfloat16"

    assert gpuipc.empty(1, Torch()).dtype == "bfloat16"
    assert gpuipc.empty(1, (2, 32, 4)).itemsize == 16
    assert gpuipc.empty(1, (2, 32, 4)).dtype == "(2, 32, 4)"


@pytest.mark.parametrize("dtype", ["float", "", (2, 4, 1), (2, 32, 0), (2, 32), np.dtype(">f4"), 7, None])
def test_what_is_no_type(dtype: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        gpuipc.empty(1, dtype)


# ---- parts and views


def test_slices_are_those_of_numpy() -> None:
    array = host((6, 8), "int32")
    numpy = np.from_dlpack(array)
    numpy[:] = np.arange(48).reshape(6, 8)
    for index in (np.s_[1:3], np.s_[::2], np.s_[..., 3:4], np.s_[2:, 1::3], np.s_[-2:], np.s_[...], np.s_[1:2, ..., :4]):
        part = array[index]
        assert np.array_equal(np.from_dlpack(part), numpy[index]), index
        assert part.buffer == array.buffer
    assert not array[:, ::2].is_contiguous and array[2:4].is_contiguous
    assert np.array_equal(np.from_dlpack(array[1:5][1:3, ::3]), numpy[1:5][1:3, ::3])


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (6, IndexError), (-7, IndexError), (None, TypeError), ((slice(0, 1), 1.5), TypeError), ("a", TypeError),
        (np.s_[::-1], ValueError), (np.s_[::0], ValueError), (np.s_[0, 0, 0], IndexError),
        (np.s_[:, :, :], IndexError), (np.s_[..., ...], IndexError),
    ],
)  # fmt: skip
def test_what_is_no_part(index: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        gpuipc.empty((6, 8), "int32")[index]


def test_views() -> None:
    array = host((4, 8), "float32")
    numpy = np.from_dlpack(array)
    numpy[:] = np.arange(32).reshape(4, 8)
    assert array.view(32).shape == (32,)
    assert array.view((2, -1)).shape == (2, 16)
    assert array.view(dtype="uint8").shape == (4, 32)
    assert array[2:].view((-1,), "uint16").shape == (32,)
    assert np.array_equal(np.from_dlpack(array[2:].view(16)), numpy[2:].reshape(16))
    for shape, dtype in ((33, None), ((-1, 5), None), ((-1, -1), None), (None, (2, 32, 16)), ((), None)):
        with pytest.raises(ValueError):
            array.view(shape, dtype)
    with pytest.raises(ValueError):
        array[:, ::2].view(16)


def test_places_in_a_buffer() -> None:
    buffer = gpuipc.create(256, transport="host")
    one = gpuipc.place(buffer, (2, 3), "int16", 4)
    np.from_dlpack(one)[:] = 5
    assert buffer.read(4, 12) == b"\x05\x00" * 6
    assert gpuipc.place(buffer, (2, 2), "int8", 0, (5, 2)).strides == (5, 2)
    for shape, offset, strides in ((257, 0, None), (8, 250, None), ((2, 2), 0, (256, 1)), (4, 0, (0,)), (4, 0, (-1,)), (4, 0, (1, 1)), (1, 1 << 63, None)):
        with pytest.raises(ValueError):
            gpuipc.place(buffer, shape, "int8", offset, strides)
    with pytest.raises(gpuipc.errors.OutOfRange, match="the array has 8 bytes from byte 250 on, and the buffer 256 in all"):
        gpuipc.place(buffer, 8, "int8", 250)


# ---- other libraries


def test_numpy_has_the_memory_itself() -> None:
    array = host(16, "int32")
    numpy = np.from_dlpack(array)
    numpy[:] = range(16)
    assert array.buffer.read() == numpy.tobytes()
    assert numpy.ctypes.data == array.address
    array.close()
    del array
    gc.collect()
    numpy[:] = numpy + 1  # it keeps the memory
    assert numpy[3] == 4
    again = np.from_dlpack(host(4, "int8"))
    again[:] = 1
    assert again.sum() == 4


def test_one_to_be_read_says_so() -> None:
    array = host(16, "int8")
    opened = gpuipc.open(array.share(access="r"))
    assert isinstance(opened, gpuipc.Array) and opened.read_only
    assert not np.from_dlpack(opened).flags.writeable
    with pytest.raises(BufferError, match="max_version"):
        opened.__dlpack__()
    device = gpuipc.open(gpuipc.empty(4, "int8").share(access="r"))
    assert isinstance(device, gpuipc.Array)
    assert device.__cuda_array_interface__["data"][1] is True  # type: ignore[index]


def test_dlpack_of_a_gpu() -> None:
    array = gpuipc.empty(16, "float32", device=1)
    assert array.__dlpack_device__() == (2, 1)
    for stream in (None, 1, 2, -1):
        array.__dlpack__(stream=stream)
        array.__dlpack__(stream=stream, max_version=(1, 1), dl_device=(2, 1), copy=False)
    for stream in (0, -2):
        with pytest.raises(ValueError):
            array.__dlpack__(stream=stream)
    with pytest.raises(BufferError):
        array.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        array.__dlpack__(dl_device=(1, 0))
    assert "versioned" in repr(array.__dlpack__(max_version=(1, 0)))
    assert "versioned" not in repr(array.__dlpack__(max_version=(0, 8)))
    with pytest.raises((BufferError, RuntimeError)):  # NumPy has memory of the host only
        np.from_dlpack(array)


def test_dlpack_of_the_host() -> None:
    array = host(16, "float32")
    assert array.__dlpack_device__() == (1, 0)
    array.__dlpack__(stream=-1)
    with pytest.raises(ValueError):
        array.__dlpack__(stream=1)
    assert not hasattr(array, "__cuda_array_interface__")


def test_elements_lie_where_a_gpu_can_read_them() -> None:
    """A kernel that reads them elsewhere ends its CUDA context. It may be a peer who said where they lie."""
    buffer = gpuipc.create(4096)
    part = gpuipc.open(buffer.share(offset=1, nbytes=64))
    assert isinstance(part, gpuipc.Array)
    bytes_of = gpuipc.place(buffer, 64, "uint8")
    for array, wanted in (
        (gpuipc.place(buffer, 4, "int32", 2), 4),
        (gpuipc.place(buffer, 4, "complex128", 8), 16),
        (bytes_of[3:11].view(dtype="int16"), 2),
        (part.view(dtype="int16"), 2),
    ):
        with pytest.raises(ValueError, match=f"lie at multiples of {wanted}"):
            array.__dlpack__()
        with pytest.raises(ValueError, match=f"lie at multiples of {wanted}"):
            _ = array.__cuda_array_interface__
    with pytest.raises(ValueError, match="lie at multiples of 4"):
        gpuipc.place(buffer, 4, (2, 32, 3), 6).__dlpack__()
    part.__dlpack__()
    part[1:].view((-1, 1), dtype="int8").__dlpack__()
    gpuipc.place(buffer, 4, (2, 32, 3), 4).__dlpack__()
    assert gpuipc.place(buffer, 4, "int32", 4).__cuda_array_interface__["shape"] == (4,)


def test_cuda_array_interface() -> None:
    array = gpuipc.empty((4, 6), "int16")
    interface = array[1:, ::2].__cuda_array_interface__
    assert interface == {
        "shape": (3, 3), "typestr": "<i2", "data": (array.address + 12, False),
        "strides": (12, 4), "version": 3, "stream": None,
    }  # fmt: skip
    assert array.__cuda_array_interface__["strides"] is None


# ---- end


def test_closed_it_is_known() -> None:
    with gpuipc.empty(4, "int8") as array:
        pass
    for use in (array.__dlpack__, array.share, array.ticket, array.__reduce__, lambda: array.__cuda_array_interface__):
        with pytest.raises(gpuipc.errors.ReleasedError):
            use()
    with pytest.raises(gpuipc.errors.ReleasedError):
        array[1:].__dlpack__()
    array.close()


def test_it_is_not_copied() -> None:
    for refused in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="an Array is memory"):
            refused(gpuipc.empty(4, "int8"))


def test_it_ends_with_its_last_reference() -> None:
    array = gpuipc.empty(4, "int8")
    seen = weakref.ref(array)
    del array
    assert seen() is None


def test_those_let_go_of_make_room() -> None:
    for _ in range(64):  # of 4 GiB, in pieces of 1
        gpuipc.empty(1 << 30, "int8").__dlpack__()


# ---- manifests


def test_named_arrays_of_one_buffer() -> None:
    buffer = gpuipc.create(4096, transport="host")
    weights = gpuipc.place(buffer, (4, 8), "float32")
    bias = gpuipc.place(buffer, 8, "bfloat16", 1024)
    np.from_dlpack(weights)[:] = 1.5
    opened = gpuipc.open(gpuipc.share({"layer.weight": weights, "layer.bias": bias, "wört": weights[:, ::2]}))
    assert isinstance(opened, dict) and list(opened) == ["layer.weight", "layer.bias", "wört"]
    assert np.from_dlpack(opened["layer.weight"]).sum() == 48
    assert opened["layer.bias"].dtype == "bfloat16" and opened["layer.bias"].offset == 1024
    assert opened["wört"].strides == (8, 2)
    assert opened["layer.bias"].buffer == opened["layer.weight"].buffer


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 256])
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises((ValueError, gpuipc.GpuipcError)):
        gpuipc.share({name: gpuipc.empty(1, "int8")})


def test_arrays_of_two_buffers_have_two_tickets() -> None:
    with pytest.raises(ValueError, match="lie in one buffer"):
        gpuipc.share({"a": gpuipc.empty(1, "int8"), "b": gpuipc.empty(1, "int8")})
    with pytest.raises(ValueError, match="no array"):
        gpuipc.share({})


def test_without_a_manifest_it_is_bytes() -> None:
    buffer = gpuipc.create(64)
    for ticket in (buffer.share(), buffer.share(attachment=b"no manifest")):
        opened = gpuipc.open(ticket)
        assert isinstance(opened, gpuipc.Array)
        assert (opened.shape, opened.dtype) == ((64,), "uint8")


def test_a_manifest_of_something_else_is_refused() -> None:
    array = gpuipc.empty(64, "int8")
    manifest = gpuipc.open_buffer(array.ticket()).attachment
    assert manifest is not None
    with pytest.raises(gpuipc.errors.OutOfRange):
        gpuipc.open(gpuipc.create(32).share(attachment=manifest))


def test_closed_while_a_tensor_keeps_the_memory() -> None:
    array = gpuipc.empty(16, "int32", transport="host")
    tensor = np.from_dlpack(array)
    tensor[:] = 7
    array.close()
    for use in (array.__dlpack__, lambda: pickle.dumps(array)):
        with pytest.raises(gpuipc.errors.ReleasedError):
            use()
    assert set(tensor.tolist()) == {7}


def test_closed_behind_a_stream_after_its_tensors_have_gone() -> None:
    """What they were used for may be on other streams: so it is behind all."""
    array = gpuipc.empty(16, "int32")
    array.__dlpack__()
    array.close(stream=1)
    with pytest.raises(gpuipc.errors.ReleasedError):
        array.__dlpack__()


def test_a_pickle_names_the_package_once() -> None:
    """What is pickled thousands of times a second has no name in it twice."""
    text = pickle.dumps(host(4, "int8").after(-1))
    assert text.count(b"gpuipc") == 1 and b"_rebuild" not in text
