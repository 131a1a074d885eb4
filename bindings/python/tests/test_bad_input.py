# SPDX-License-Identifier: MIT
"""What goes wrong in programs: each is an exception that says why, or a warning, and nothing stays behind."""

import asyncio
import ctypes
import gc
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

import numpy as np
import others
import pytest
from conftest import PATIENCE, Run
from test_process import ended, filled, received, started
from test_wrap import Driver, Tensor

import gpuipc
from gpuipc import aio


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gpuipc.config, "orphan_seconds", 2.0)  # by when pickles that were read here are out no more
    gpuipc.empty(1, "int8").ticket()  # what is made once
    gc.collect()
    before, lingering = descriptors(), gpuipc.lingering()
    yield
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    while gpuipc.lingering() > lingering or descriptors() > before + 2:  # what is dropped goes a moment later
        assert time.monotonic() < deadline
        time.sleep(0.001)


# ---- tensors


def test_a_tensor_of_the_cpu() -> None:
    with pytest.raises(TypeError, match=r"copy it into an array of gpuipc.empty\(\), with transport='host'"):
        gpuipc.wrap(np.zeros(4))
    with pytest.raises(TypeError, match="has __dlpack__ or __cuda_array_interface__"):
        gpuipc.wrap([1, 2, 3])


def test_one_that_is_not_contiguous() -> None:
    array = filled((4, 6))[:, ::2]
    opened = gpuipc.open(array.ticket())  # its strides travel
    assert isinstance(opened, gpuipc.Array) and opened.strides == (6, 2)
    assert np.array_equal(np.from_dlpack(opened), np.from_dlpack(array))
    assert pickle.loads(pickle.dumps(array)).strides == (6, 2)
    with pytest.raises(ValueError, match="elements that lie side by side"):
        array.view(12)
    for strides in ((-24, 4), (0, 4)):
        with pytest.raises(ValueError, match="copy the array first"):
            gpuipc.wrap(Tensor(array.address, strides=strides))


def test_no_bytes_at_an_address() -> None:
    with pytest.raises(ValueError, match="one byte at least"):
        gpuipc.wrap((64, 0))


def test_one_that_was_freed_meanwhile() -> None:
    driver = Driver()
    address = driver.allocate(1 << 16)
    driver.free(address)
    with pytest.raises(gpuipc.errors.NotShareable, match="GPUIPC_ERR_NOT_DEVICE_MEMORY"):
        gpuipc.wrap((address, 1 << 16))
    assert gpuipc.classify((address, 1 << 16)).kind == "unknown"


def test_one_that_ends_before_its_time() -> None:
    array = gpuipc.empty(16, "int8")
    with pytest.raises(gpuipc.GpuipcError):
        gpuipc.wrap((array.address, 1 << 40))


def test_closed_while_a_tensor_is_there() -> None:
    array = filled((4,))
    numpy = np.from_dlpack(array)
    array.close()
    buffer = array.buffer
    for use in (
        array.__dlpack__, array.share, array.ticket, lambda: pickle.dumps(array), array.give_back, array.await_returns,
        buffer.read, buffer.fill, lambda: buffer.write(b"a"), lambda: buffer.copy_to(buffer),
    ):  # fmt: skip
        with pytest.raises(gpuipc.errors.ReleasedError):
            use()
    assert numpy.sum() == 6


# ---- tickets


def test_a_ticket_whose_owner_has_exited(spawn: SpawnContext) -> None:
    answers = spawn.Queue()
    process = started(spawn, others.give_out_and_end, answers)
    ticket = answers.get(timeout=PATIENCE)
    ended(process)
    for _ in range(2):
        with pytest.raises(gpuipc.errors.ExporterGone, match="ask for a new ticket"):
            gpuipc.open(ticket)


def test_a_ticket_in_the_same_process() -> None:
    array = filled((4,))
    opened = gpuipc.open(array.ticket())
    assert isinstance(opened, gpuipc.Array)
    assert opened.address == array.address and array.buffer.lent_count == 0
    array.await_returns(0)  # nothing is out
    assert pickle.loads(pickle.dumps(array)).address == array.address


def test_a_ticket_twice(spawn: SpawnContext) -> None:
    array = filled((4,))
    here, there = spawn.Pipe()
    process = started(spawn, others.borrow, there)
    for _ in range(2):
        here.send(("take", array.ticket()))
        assert received(here) == 6
    assert len(gpuipc.Context.default().holders(array.ticket())) == 1
    for _ in range(2):
        here.send(("let go", None))
        received(here)
    array.await_returns(PATIENCE)
    here.send(("end", None))
    ended(process)


def test_a_pickle_twice(spawn: SpawnContext) -> None:
    """It is for one. That it was read twice is no harm while somebody has it."""
    array = filled((4,))
    text = pickle.dumps(array)
    here, there = spawn.Pipe()
    process = started(spawn, others.borrow, there)
    for _ in range(2):
        here.send(("take", text))
        assert received(here) == 6
    for _ in range(2):
        here.send(("let go", None))
        received(here)
    array.await_returns(PATIENCE)
    here.send(("end", None))
    ended(process)


def test_another_cuda_visible_devices(run_python: Run) -> None:
    array = gpuipc.empty(4, "int8", device=1)
    program = (
        "import gpuipc, pickle, sys, traceback\n"
        "ticket, text = sys.argv[1], bytes.fromhex(sys.argv[2])\n"
        "for call in (lambda: gpuipc.open(ticket), lambda: pickle.loads(text), lambda: gpuipc.empty(1, 'int8', device=1)):\n"
        "    try: call()\n"
        "    except gpuipc.errors.DriverError as error:\n"
        "        assert 'CUDA_VISIBLE_DEVICES' in str(error), error\n"
        "        assert 'CUDA_VISIBLE_DEVICES of this process: 0' in ''.join(traceback.format_exception(error))\n"
        "    else: raise SystemExit('no error')\n"
        "gpuipc.config.open_device = 0\n"
        "for array in (gpuipc.open(ticket, device=0), pickle.loads(text)):\n"
        "    assert (array.device, array.access_device) == (None, 0)\n"
    )
    run_python(program, str(array.ticket()), pickle.dumps(array).hex(), CUDA_VISIBLE_DEVICES="0")
    gone = subprocess.run(
        [sys.executable, "-c", "import gpuipc; gpuipc.empty(1, 'int8')"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert "GPUIPC_ERR_NO_DEVICE" in gone.stderr and "CUDA_VISIBLE_DEVICES of this process: \n" in gone.stderr


# ---- processes


def test_fork_with_multiprocessing(run_python: Run) -> None:
    run_python(
        "import gpuipc, multiprocessing, traceback\n"
        "array = gpuipc.empty(4, 'int8')\n"
        "def child():\n"
        "    for use in (array.buffer.read, array.__dlpack__, lambda: gpuipc.empty(1, 'int8'), array.ticket):\n"
        "        try: use()\n"
        "        except gpuipc.errors.ForkedError as error:\n"
        "            assert \"get_context('spawn')\" in ''.join(traceback.format_exception(error)), error\n"
        "        else: raise SystemExit(3)\n"
        "process = multiprocessing.get_context('fork').Process(target=child)\n"
        "process.start(); process.join()\n"
        "assert process.exitcode == 0, process.exitcode\n"
        "array.buffer.write(bytes(4))\n"
    )


# ---- streams


def test_a_stream_that_is_being_captured() -> None:
    driver, stream = Driver(), ctypes.c_void_p()
    array, other = gpuipc.empty(4, "int8"), gpuipc.empty(4, "int8")
    driver.allocate(16)  # which makes the CUDA context the current one
    driver.call("cuStreamCreate", ctypes.byref(stream), 1)
    assert stream.value
    driver.call("cuStreamBeginCapture_v2", stream, 0)
    for use in (
        lambda: array.share(stream=stream.value, wait=False),
        lambda: array.close(stream=stream.value),
    ):
        with pytest.raises(gpuipc.errors.CaptureError, match="captur"):
            use()
    graph = ctypes.c_void_p()
    driver.call("cuStreamEndCapture", stream, ctypes.byref(graph))  # it was not invalidated
    driver.call("cuStreamDestroy_v2", stream)
    array.buffer.copy_to(other.buffer)
    assert issubclass(gpuipc.errors.CaptureError, gpuipc.errors.DriverError)


# ---- arguments

WRONG: list[tuple[str, Callable[[Any], object]]] = [
    ("what is shared is a Buffer, an Array, or a dict", gpuipc.share),
    ("has names, which are str, and Arrays", lambda wrong: gpuipc.share({"a": wrong})),
    ("has names, which are str, and Arrays", lambda wrong: gpuipc.share({wrong: gpuipc.empty(4, "int8")})),
    ("shape, dtype", lambda wrong: gpuipc.Arena({"a": wrong})),
    ("shape, dtype", lambda wrong: gpuipc.Channel(None, wrong)),
    ("a Buffer, an Array or an Arena, and not int", lambda wrong: asyncio.run(aio.await_returns(wrong))),
    ("a Buffer, an Array or an Arena, and not int", lambda wrong: asyncio.run(aio.await_ready(wrong))),
    ("are bytes, and not int", lambda wrong: asyncio.run(aio.Connection(connection()).send(wrong))),
    ("carries Arrays and Buffers", lambda wrong: asyncio.run(aio.Connection(connection()).send(b"", [wrong]))),
]


def connection() -> gpuipc.Connection:
    name = f"wrong-{os.getpid()}"
    with gpuipc.listen(name):
        return gpuipc.connect(name)


@pytest.mark.parametrize(("sentence", "use"), WRONG)
def test_wrong_arguments_are_named(sentence: str, use: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match=sentence):
        use(5)


@pytest.mark.parametrize(("value", "width"), [(256, 1), (-1, 1), (1 << 16, 2), (1 << 32, 4), (-1, 4)])
def test_a_value_that_is_too_wide_fills_nothing(value: int, width: int) -> None:
    buffer = gpuipc.create(16)
    buffer.fill((1 << 8 * width) - 1, width=width)
    with pytest.raises(ValueError, match="width"):
        buffer.fill(value, width=width)
    assert buffer.read() == b"\xff" * 16


def check_a_part_is_bare(ticket: gpuipc.Ticket, offset: int, nbytes: int) -> None:
    part = ticket.narrow(offset, nbytes)
    for _ in range(2):  # asked for, and found open
        with pytest.raises(gpuipc.errors.OutOfRange, match=r"narrow\(\).*open_buffer\(\)"):
            gpuipc.open(part)
    opened = gpuipc.open_buffer(part)
    assert opened.nbytes == nbytes and opened.attachment is None


def test_the_ticket_of_a_part_of_an_array() -> None:
    array = gpuipc.empty(16, "uint8")
    check_a_part_is_bare(array.ticket(), 4, 8)
    array.buffer.fill(7, offset=4, nbytes=8)
    assert gpuipc.open_buffer(array.ticket().narrow(4, 8)).read() == b"\7" * 8


def test_no_array_is_placed_in_a_part_even_where_it_fits() -> None:
    buffer = gpuipc.create(4096)
    named = {"a": gpuipc.place(buffer, 16, "int32"), "b": gpuipc.place(buffer, 16, "int32", offset=1024)}
    arena = gpuipc.Arena({"a": (16, "int32"), "b": (16, "int32")})
    check_a_part_is_bare(gpuipc.share(named), 2048, 2048)  # all would fit
    check_a_part_is_bare(gpuipc.share(named), 0, 2048)  # and would be right
    check_a_part_is_bare(gpuipc.share({"a": named["a"]}), 2048, 64)
    check_a_part_is_bare(arena.manifest.ticket(buffer), 1024, 2048)
    check_a_part_is_bare(arena.ticket().narrow(0, arena.manifest.nbytes), 4, 256)
    check_a_part_is_bare(buffer.share(attachment=b"no manifest"), 4, 256)


def test_all_of_a_ticket_is_no_part() -> None:
    array = gpuipc.empty((2, 8), "int32")
    opened = gpuipc.open(array.ticket().narrow(0, 64))
    assert isinstance(opened, gpuipc.Array) and (opened.shape, opened.dtype) == ((2, 8), "int32")


def test_the_ticket_of_a_part_of_bare_memory() -> None:
    with gpuipc.create(4096) as buffer:
        opened = gpuipc.open(buffer.ticket().narrow(16, 32))
    assert isinstance(opened, gpuipc.Array) and (opened.shape, opened.dtype, opened.nbytes) == ((32,), "uint8", 32)


# ---- two copies of the library


def copy_of_the_library(folder: Path, version: str) -> Path:
    """The same under another name, by which the loader takes it for another one."""
    own = Path(gpuipc.get_library())
    there = own.name.removeprefix("libgpuipc.so.")
    assert len(version) == len(there)
    copy = folder / f"libgpuipc.so.{version}"
    shutil.copy(own, copy)
    copy.write_bytes(copy.read_bytes().replace(own.name.encode() + b"\0", copy.name.encode() + b"\0"))
    return copy


IMPORT = (
    "import ctypes, sys, warnings\n"
    "ctypes.CDLL(sys.argv[1])\n"
    "with warnings.catch_warnings(record=True) as caught:\n"
    "    warnings.simplefilter('always')\n"
    "    import gpuipc\n"
    "print(*[f'{each.category.__name__}: {each.message}' for each in caught], sep='\\n')\n"
    "print(gpuipc.get_library())\n"
)


def test_two_copies_are_warned_about(run_python: Run, tmp_path: Path) -> None:
    copy = copy_of_the_library(tmp_path, "9.9")
    warning, library = run_python(IMPORT, str(copy)).stdout.splitlines()
    assert warning.startswith("RuntimeWarning: two copies of the gpuipc library") and str(copy) in warning
    assert library == gpuipc.get_library()


def test_another_copy_in_place_of_ours_is_warned_about(run_python: Run, tmp_path: Path) -> None:
    copy = tmp_path / Path(gpuipc.get_library()).name
    shutil.copy(gpuipc.get_library(), copy)
    warning, library = run_python(IMPORT, str(copy)).stdout.splitlines()
    assert str(copy) in warning and "in place of" in warning
    assert library == str(copy)


def test_one_copy_is_not_warned_about(run_python: Run) -> None:
    assert run_python(IMPORT, gpuipc.get_library()).stdout.splitlines() == ["", gpuipc.get_library()]
