# SPDX-License-Identifier: MIT
import copy
import gc
import pickle
import struct
from multiprocessing.context import SpawnContext
from typing import Any

import numpy as np
import others
import pytest
from conftest import PATIENCE
from test_process import ended, started

import gpuipc

SPECS = {"layer.weight": ((4, 8), "float32"), "layer.bias": (8, "bfloat16"), "wört": ((2, 2, 2), np.dtype("int64"))}


def test_arrays_lie_side_by_side() -> None:
    arena = gpuipc.Arena(SPECS, transport="host", alignment=64)
    assert list(arena) == list(SPECS) and len(arena) == 3 and "layer.bias" in arena and "bias" not in arena
    assert [array.offset for array in arena.values()] == [0, 128, 192]
    assert [array.shape for array in arena.values()] == [(4, 8), (8,), (2, 2, 2)]
    assert [array.dtype for array in arena.values()] == ["float32", "bfloat16", "int64"]
    assert all(array.buffer == arena.buffer for array in arena.values())
    assert arena.nbytes == 256 == arena.manifest.nbytes
    assert repr(arena) == "<gpuipc.Arena of 3 arrays, 256 bytes, host, device 0>"
    with pytest.raises(KeyError):
        arena["bias"]


def test_as_something_that_has_shape_and_type() -> None:
    arena = gpuipc.Arena({"a": np.zeros((3, 4), np.float16), "b": gpuipc.empty(5, "float8_e4m3fn")}, device=1)
    assert (arena["a"].shape, arena["a"].dtype, arena["a"].device) == ((3, 4), "float16", 1)
    assert (arena["b"].shape, arena["b"].dtype, arena["b"].offset) == ((5,), "float8_e4m3fn", 256)


@pytest.mark.parametrize(
    ("specs", "alignment"),
    [
        ({}, 256), ({"a": (-1, "int8")}, 256), ({"a": (3, "nothing")}, 256), ({"": (3, "int8")}, 256), ({"a": (3,)}, 256),
        ({"a\0b": (3, "int8")}, 256), ({"x" * 256: (3, "int8")}, 256), ({"a": (3, "int8")}, 3), ({"a": (3, "int8")}, 0),
        ({"a": (1 << 62, "int8"), "b": (1 << 62, "int8"), "c": (1 << 62, "int8"), "d": (1 << 62, "int8")}, 256),
    ],
)  # fmt: skip
def test_what_cannot_be(specs: dict[str, Any], alignment: int) -> None:
    with pytest.raises(ValueError):
        gpuipc.Arena(specs, alignment=alignment)


@pytest.mark.parametrize("spec", ["abc", 5, ("abc", "int8"), None])
def test_what_is_no_spec(spec: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        gpuipc.Arena({"a": spec})


def test_a_ticket_opens_all_of_it() -> None:
    arena = gpuipc.Arena(SPECS, transport="host")
    np.from_dlpack(arena["layer.weight"])[:] = 1.5
    assert arena.ticket() == arena.ticket()
    for ticket, read_only in ((arena.ticket(), False), (arena.share(access="r"), True)):
        opened = gpuipc.open(ticket)
        assert isinstance(opened, dict) and list(opened) == list(SPECS)
        assert np.from_dlpack(opened["layer.weight"]).sum() == 48
        assert opened["wört"].shape == (2, 2, 2) and opened["wört"].offset == arena["wört"].offset
        assert opened["wört"].read_only == read_only


def test_it_ends_with_its_last_array() -> None:
    arena = gpuipc.Arena(SPECS)
    ticket, part = arena.ticket(), arena["wört"]
    del arena
    gc.collect()
    # Not opened: what this process has open is opened again until a thread has unmapped it, also after the ticket's end.
    assert gpuipc.Context.default().holders(ticket) == []
    del part
    gc.collect()
    with pytest.raises(gpuipc.errors.TicketRevoked):
        gpuipc.open(ticket)


def test_it_goes_to_another_process(spawn: SpawnContext) -> None:
    arenas, answers = spawn.Queue(), spawn.Queue()
    process = started(spawn, others.add_to_all, arenas, answers)
    arena = gpuipc.Arena({"a": (16, "int32"), "b": ((2, 3), "int32")}, transport="host")
    for i, array in enumerate(arena.values()):
        np.from_dlpack(array)[:] = i
    arenas.put(arena)
    assert answers.get(timeout=PATIENCE) == {"a": 0, "b": 6}
    arena.await_returns(PATIENCE)
    assert [int(np.from_dlpack(array).sum()) for array in arena.values()] == [16, 12]
    arenas.put(None)
    ended(process)


def test_in_one_process_it_is_the_same_memory() -> None:
    arena = gpuipc.Arena(SPECS, transport="host")
    again = pickle.loads(pickle.dumps(arena))
    assert isinstance(again, gpuipc.Arena) and again.manifest == arena.manifest and again != arena
    np.from_dlpack(again["layer.weight"])[:] = 2
    assert np.from_dlpack(arena["layer.weight"]).sum() == 64
    with pytest.raises(TypeError, match="an Arena is memory"):
        copy.copy(arena)
    with pytest.raises(TypeError, match="an Arena is memory"):
        copy.deepcopy(arena)


def test_closed_it_is_known() -> None:
    with gpuipc.Arena(SPECS) as arena:
        pass
    with pytest.raises(gpuipc.errors.ReleasedError):
        arena["wört"].__dlpack__()
    with pytest.raises(gpuipc.errors.ReleasedError):
        pickle.dumps(arena)


# ---- manifests


def test_a_manifest_is_bytes() -> None:
    manifest = gpuipc.Manifest.arrange(SPECS, 128)
    again = gpuipc.Manifest(bytes(manifest), manifest.nbytes)
    assert again == manifest and hash(again) == hash(manifest) and list(again) == list(SPECS) and len(again) == 3
    assert pickle.loads(pickle.dumps(manifest)) == manifest != gpuipc.Manifest.arrange(SPECS, 64)
    assert again["layer.bias"] == ((8,), "bfloat16", 128, (1,))
    assert "layer.bias" in again and "bias" not in again
    with pytest.raises(KeyError):
        again["bias"]
    assert repr(manifest) == "<gpuipc.Manifest of 3 arrays, 320 bytes>"


def test_a_manifest_for_a_buffer() -> None:
    manifest = gpuipc.Manifest.arrange({"a": (16, "int32"), "b": (4, "int8")})
    arrays = manifest.arrays(gpuipc.create(300))
    assert arrays["b"].offset == 256
    with pytest.raises(gpuipc.errors.OutOfRange, match="the array 'b' has 4 bytes from byte 256 on, and the buffer 259 in all"):
        manifest.arrays(gpuipc.create(259))
    attached = gpuipc.open_buffer(gpuipc.share(arrays)).attachment
    assert attached is not None and gpuipc.Manifest(attached) == manifest


def test_a_manifest_for_a_part_of_a_buffer() -> None:
    buffer = gpuipc.create(1024)
    buffer.fill(7, offset=512, nbytes=64)
    part = gpuipc.open_buffer(buffer.ticket().narrow(512, 256))
    arrays = gpuipc.Manifest.arrange({"a": (64, "uint8"), "b": (192, "uint8")}, 64).arrays(part)
    assert arrays["a"].offset == 0 and part.read(arrays["b"].offset - 1, 2) == b"\7\0"
    with pytest.raises(gpuipc.errors.OutOfRange, match="'b' has 193 bytes from byte 64 on, and the buffer 256 in all"):
        gpuipc.Manifest.arrange({"a": (64, "uint8"), "b": (193, "uint8")}, 64).arrays(part)
    with pytest.raises(gpuipc.errors.OutOfRange, match="'a' has 1 bytes from byte 512 on, and the buffer 256 in all"):
        manifest_of_one(1, 512).arrays(part)


def manifest_of_one(shape: int, offset: int, stride: int = 1, nbytes: int = 1) -> gpuipc.Manifest:
    """Of an array "a" of bytes, which says of itself that it has nbytes: docs/wire-format.md has the table."""
    record = struct.pack("<IHHIIQQqq", 50, 1, 1, 1 | 8 << 8 | 1 << 16, 0, offset, nbytes, shape, stride) + b"a\0"
    return gpuipc.Manifest(b"GPIM" + struct.pack("<HHII", 1, 0, 16 + len(record), 1) + record)


@pytest.mark.parametrize(
    ("shape", "offset", "stride"),
    [(257, 0, 1), (2, 255, 1), (2, 0, 256), (1, 256, 1), ((1 << 63) - 1, 0, 1), (1, (1 << 63) - 2, 1), (2, 0, (1 << 63) - 2)],
)  # fmt: skip
def test_no_array_of_a_manifest_reaches_beyond_the_buffer(shape: int, offset: int, stride: int) -> None:
    # Whatever it says that its bytes are: what counts is where its elements lie.
    manifest = manifest_of_one(shape, offset, stride)
    with pytest.raises(gpuipc.errors.OutOfRange, match=f"from byte {offset} on, and the buffer 256 in all"):
        manifest.arrays(gpuipc.create(256))


@pytest.mark.parametrize(
    ("shape", "offset", "stride"),
    [(2, 128, -1), (-1, 0, 1), (0, 1 << 63, 1), (3, 0, (1 << 63) - 1), (3, 0, 1 << 62), (1, 1 << 63, 1), (2, (1 << 63) - 1, 1)],
)  # fmt: skip
def test_no_array_of_a_manifest_is_what_cannot_be(shape: int, offset: int, stride: int) -> None:
    with pytest.raises(ValueError):
        manifest_of_one(shape, offset, stride)


def test_the_last_byte_of_a_buffer_is_an_array_too() -> None:
    assert manifest_of_one(1, 255).arrays(gpuipc.create(256))["a"].offset == 255
    assert manifest_of_one(2, 0, 255).arrays(gpuipc.create(256))["a"].strides == (255,)


def test_bytes_that_are_no_manifest() -> None:
    manifest = bytes(gpuipc.Manifest.arrange(SPECS))
    with pytest.raises(gpuipc.errors.OutOfRange):
        gpuipc.Manifest(manifest, 16)
    for wrong in (b"", b"bytes", manifest[:-1]):
        with pytest.raises(gpuipc.errors.ProtocolError):
            gpuipc.Manifest(wrong)
    for i in range(0, len(manifest), 3):  # whatever it means now, nothing else happens
        damaged = bytearray(manifest)
        damaged[i] ^= 0x41
        try:
            gpuipc.Manifest(bytes(damaged), 1 << 20)
        except (ValueError, gpuipc.GpuipcError):
            pass
