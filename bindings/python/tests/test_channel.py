# SPDX-License-Identifier: MIT
"""Channels: frames from one process to many, with NumPy over memory of the host, and on the emulated GPUs."""

import contextlib
import copy
import ctypes
import gc
import os
import pickle
import threading
import time
from collections.abc import Iterator
from multiprocessing.context import SpawnContext
from typing import Any

import numpy as np
import others
import pytest
from conftest import PATIENCE, Run
from test_process import check_interrupted, ended, received, started

import gpuipc


def descriptors() -> int:
    """All but those of memory that the driver gives up later, since that waits for its devices."""
    count = 0
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += "gpuipc-buffer" not in os.readlink(f"/proc/self/fd/{each}")
    return count


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    gpuipc.empty(1, "int8").ticket()  # what is made once
    gc.collect()
    before = descriptors()
    yield
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    while descriptors() > before + 2:  # a process that ended a moment ago
        assert time.monotonic() < deadline
        time.sleep(0.001)


def made(shape: Any = 16, dtype: Any = "int32", name: str | None = None, **options: Any) -> gpuipc.Channel:
    return gpuipc.Channel(name, shape, dtype, transport="host", **options)


def numbers(frame: Any) -> Any:
    return np.from_dlpack(frame)


def publish(channel: gpuipc.Channel, value: int, **options: Any) -> None:
    with channel.loan(**options) as frame:
        numbers(frame)[...] = value


def state_of_first(channel: gpuipc.Channel) -> str:
    return channel.readers()[0].state


def first_until(channel: gpuipc.Channel, state: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while state_of_first(channel) != state:
        assert time.monotonic() < deadline


# ---- frames


def test_frames_arrive_in_order(spawn: SpawnContext) -> None:
    here, there = spawn.Pipe()
    channel = made((2, 3))
    process = started(spawn, others.read_frames, channel.ticket(), {}, there)
    assert received(here) == "subscribed"
    for value in range(1, 11):  # more than there are slots
        with channel.loan() as frame:
            numbers(frame)[...] = value
            frame.header = b"number %d" % value
        assert received(here) == (value, 0, b"number %d" % value, {".": [[value] * 3] * 2})
    reader = channel.readers()[0]
    assert (reader.process_id, reader.is_alive, reader.delivery) == (process.pid, True, "all")
    assert reader.since_ms > 0 and "active" in repr(reader)
    channel.close()
    assert received(here) == "end"
    ended(process)


def test_the_newest_passes_the_others_over(spawn: SpawnContext) -> None:
    channel = made()
    reader = gpuipc.subscribe(str(channel.ticket()), delivery="newest")
    for value in (1, 2, 3):
        publish(channel, value)
    with reader.take(0) as frame:
        assert (frame.sequence, frame.missed, numbers(frame).tolist()) == (3, 2, [3] * 16)
    with pytest.raises(gpuipc.errors.Timeout):
        reader.take(0)
    assert channel.readers()[0].delivery == "newest"


def test_where_a_reader_begins() -> None:
    channel = made()
    for value in (1, 2, 3):
        publish(channel, value)
    for first, sequence in (("oldest", 1), ("newest", 3)):
        with gpuipc.subscribe(channel.ticket(), first=first, look=0.5) as reader:
            assert reader.take(0).sequence == sequence
    with gpuipc.subscribe(channel.ticket()) as reader, pytest.raises(TimeoutError):
        reader.take(0)


def test_several_readers_have_the_same_frame() -> None:
    channel = made()
    readers = [gpuipc.subscribe(channel.ticket()) for _ in range(3)]
    publish(channel, 7)
    frames = [next(reader) for reader in readers]
    assert [numbers(frame)[0] for frame in frames] == [7] * 3
    assert len({frame.array.address for frame in frames}) == 1
    assert [reader.held for reader in channel.readers()] == [1] * 3


def test_shapes_that_change() -> None:
    channel = made((4, 4), slot_bytes=1000)
    assert channel.slot_bytes == 1024
    reader = gpuipc.subscribe(channel.ticket())
    for shape, dtype in (((2, 5), "int64"), ((4, 4), "int32"), ((1024,), "uint8"), ((), "float32"), ((2, 5), "int64")):
        publish(channel, 3, shape=shape, dtype=dtype)
        with reader.take(0) as frame:
            assert (frame.array.shape, frame.array.dtype) == (shape, dtype)
            assert frame.nbytes == numbers(frame).nbytes and frame.capacity == 1024
            assert (numbers(frame) == 3).all()
    with pytest.raises(ValueError, match="larger than a slot"):
        channel.loan(1025, "uint8")


def test_several_arrays_in_one_frame(spawn: SpawnContext) -> None:
    here, there = spawn.Pipe()
    channel = made({"rgb": ((2, 2, 3), "uint8"), "depth": np.zeros((2, 2), np.float32)}, None)
    process = started(spawn, others.read_frames, channel.ticket(), {}, there)
    assert received(here) == "subscribed"
    with channel.loan() as frame:
        numbers(frame["rgb"])[...] = 5
        numbers(frame.arrays["depth"])[...] = 0.5
        frame.header = b"both"
        with pytest.raises(TypeError, match="has not one array alone"):
            frame.array  # noqa: B018
        with pytest.raises(KeyError):
            frame["green"]
    contents = {"rgb": [[[5] * 3] * 2] * 2, "depth": [[0.5] * 2] * 2}
    assert received(here) == (1, 0, b"both", contents)
    channel.close()
    ended(process)


def test_like_an_array() -> None:
    channel = gpuipc.Channel(like=gpuipc.empty((3, 4), "bfloat16"))
    with channel.loan() as frame:
        assert (frame.array.shape, frame.array.dtype, frame.__dlpack_device__()) == ((3, 4), "bfloat16", (2, 0))
        assert frame.array.address % 256 == 0


def test_frames_on_a_gpu() -> None:
    channel = gpuipc.Channel(None, 1024, "uint8", device=1, slots=2)
    reader = gpuipc.subscribe(channel.ticket(), device=0)
    for value in range(1, 8):  # in the order of the default streams, without a wait of the host
        with channel.loan(timeout=PATIENCE) as loan:
            channel.buffer.fill(value, offset=loan.array.offset, nbytes=loan.nbytes)
            assert loan.__cuda_array_interface__["shape"] == (1024,)
        frame = reader.take(PATIENCE)
        assert frame.array.buffer.read(frame.array.offset, frame.nbytes) == bytes([value]) * 1024
        frame.give_back()
    with channel.loan(stream=-1) as loan:  # by the host alone
        channel.buffer.write(b"by hand", loan.array.offset)
    with reader.take(stream=-1) as frame:
        assert frame.array.buffer.read(frame.array.offset, 7) == b"by hand"


def test_what_another_stream_fills() -> None:
    channel = gpuipc.Channel(None, 64, "uint8")
    reader = gpuipc.subscribe(channel.ticket(), stream=1)
    with channel.loan(stream=2) as loan:
        channel.buffer.fill(9, offset=loan.array.offset, nbytes=64, stream=2)
    with next(reader) as frame:
        assert frame.array.buffer.read(frame.array.offset, 64) == bytes([9]) * 64


# ---- loans and what becomes of them


def test_an_exception_discards() -> None:
    channel = made(slots=1)
    reader = gpuipc.subscribe(channel.ticket())
    with pytest.raises(ZeroDivisionError), channel.loan() as frame:
        1 / 0  # noqa: B018
    assert frame.is_over
    with pytest.raises(gpuipc.errors.Timeout):
        reader.take(0)
    publish(channel, 1)
    assert reader.take(0).sequence == 1


def test_what_is_let_go_of_is_discarded() -> None:
    channel = made(slots=1)
    loan = channel.loan()
    with pytest.raises(gpuipc.GpuipcError, match="on loan"):
        channel.loan(timeout=0)
    array = numbers(loan)
    del loan
    with pytest.raises(gpuipc.GpuipcError, match="on loan"):  # the array keeps it
        channel.loan(timeout=0)
    del array
    channel.loan(timeout=0).discard()


def test_it_is_over_once() -> None:
    channel = made()
    reader = gpuipc.subscribe(channel.ticket())
    loan = channel.loan()
    array = loan.array
    loan.publish()
    for use in (loan.publish, loan.discard, lambda: loan.array, lambda: np.from_dlpack(array), lambda: loan["."]):
        with pytest.raises(gpuipc.errors.ReleasedError, match="published or discarded"):
            use()
    with pytest.raises(gpuipc.errors.ReleasedError):
        loan.header = b"late"
    with channel.loan() as other:
        other.discard()  # and the end of `with` does nothing
    frame = reader.take(0)
    array = frame.array[3:]
    frame.give_back()
    for call in (frame.give_back, lambda: frame.header, lambda: frame.arrays, lambda: np.from_dlpack(array)):
        with pytest.raises(gpuipc.errors.ReleasedError, match="given back"):
            call()
    assert frame.is_over and frame.sequence == 1 and "over" in repr(frame)


def test_a_loan_that_cannot_be_published_gives_its_slot_up() -> None:
    channel = made(slots=1)
    with pytest.raises(ValueError, match="header is too long"), channel.loan() as loan:
        loan.header = bytes(513)
    with pytest.raises(gpuipc.errors.ReleasedError):
        loan.publish()
    with channel.loan(timeout=0):
        pass


def test_headers_have_an_end() -> None:
    channel = made()
    reader = gpuipc.subscribe(channel.ticket())
    loan = channel.loan()
    loan.header = bytes(513)
    with pytest.raises(ValueError, match="header is too long"):
        loan.publish()
    loan.header = bytes(380)
    assert len(loan.header) == 380
    loan.publish()
    assert reader.take(0).header == bytes(380)
    with pytest.raises(ValueError, match="does not fit into a frame's header"):
        made({f"array {i}": (1, "int8") for i in range(12)}, None)


# ---- how long a frame is had


def test_the_loop_gives_back() -> None:
    channel = made(slots=3)
    reader = gpuipc.subscribe(channel.ticket())
    for value in range(1, 9):
        publish(channel, value)
        frame = next(reader)
        assert frame.sequence == value and channel.readers()[0].held == 1
    del frame  # the last one, too, when nobody has it
    assert channel.readers()[0].held == 0


def test_several_are_kept() -> None:
    channel = made(slots=4)
    reader = gpuipc.subscribe(channel.ticket(), hold=3)
    for value in (1, 2, 3):
        publish(channel, value)
    kept = [next(reader).keep() for _ in range(3)]
    assert [frame.sequence for frame in kept] == [1, 2, 3]
    with pytest.raises(gpuipc.errors.LimitError):
        reader.take(0)
    kept[1].give_back()  # in any order
    publish(channel, 4)
    assert next(reader).sequence == 4
    assert [numbers(frame)[0] for frame in (kept[0], kept[2])] == [1, 3]


def test_an_array_keeps_its_frame() -> None:
    channel = made(slots=1)
    reader = gpuipc.subscribe(channel.ticket())
    publish(channel, 1)
    part = numbers(reader.take(0))[3:]
    with pytest.raises(gpuipc.errors.Timeout, match=str(os.getpid())):
        channel.loan(timeout=0)
    assert part.tolist() == [1] * 13
    del part
    publish(channel, 2)
    tensor = others.take(reader.take(0).array)
    with pytest.raises(gpuipc.errors.Timeout):
        channel.loan(timeout=0)
    others.delete_on_a_thread(tensor)
    channel.loan(timeout=0)


def test_what_is_used_too_late_is_still_memory(spawn: SpawnContext) -> None:
    """The trap: an array that was made before its frame was given back shows what is written there next."""
    here, there = spawn.Pipe()
    process = started(spawn, others.write_frames, there)
    with gpuipc.subscribe(received(here)) as reader:
        here.send(1)
        received(here)
        frame = reader.take(PATIENCE)
        late = numbers(frame)
        assert late.tolist() == [1] * 16 and not late.flags.writeable
        frame.give_back()
    for value in (2, 3, 4, 5):
        here.send(value)
        received(here)
    assert late.tolist() == [5] * 16
    here.send("close")
    ended(process)
    del reader, frame
    gc.collect()
    assert late.tolist() == [5] * 16


# ---- readers that are slow, and ends


def test_a_writer_that_waits() -> None:
    channel = made(slots=1)
    reader = gpuipc.subscribe(channel.ticket())
    publish(channel, 1)
    frame = reader.take(0)
    with pytest.raises(gpuipc.errors.Timeout, match="readers have all slots"):
        channel.loan(timeout=0.01)
    loans: list[gpuipc.Loan] = []
    thread = threading.Thread(target=lambda: loans.append(channel.loan()))
    thread.start()
    frame.give_back()
    thread.join(PATIENCE)
    assert len(loans) == 1


def test_a_writer_that_skips() -> None:
    channel = made(slots=1, full="skip")
    reader = gpuipc.subscribe(channel.ticket())
    publish(channel, 1)
    frame = reader.take(0)
    with pytest.raises(gpuipc.errors.BusyError, match="readers have all slots"):
        channel.loan()
    frame.give_back()
    publish(channel, 2)
    assert (frame := reader.take(0)).missed == 1 and frame.sequence == 3


def test_a_writer_that_drops(spawn: SpawnContext) -> None:
    here, there = spawn.Pipe()
    channel = made(slots=1, full="drop", drop_after=0.02)
    slow = gpuipc.subscribe(channel.ticket())
    publish(channel, 1)
    frame = slow.take(0)
    publish(channel, 2)  # waits for it no longer than that
    assert state_of_first(channel) == "dropped"
    del frame
    with pytest.raises(gpuipc.errors.PeerClosed, match="too slow") as caught:
        next(slow)  # not the end of a loop
    assert caught.value.name == "GPUIPC_ERR_CONNECTION_BROKEN"


def test_a_reader_that_is_killed(spawn: SpawnContext) -> None:
    here, there = spawn.Pipe()
    channel = made(slots=1)
    process = started(spawn, others.hold_a_frame, channel.ticket(), there)
    while not channel.readers():
        pass
    publish(channel, 1)
    assert received(here) == 1
    process.kill()
    process.join(PATIENCE)
    publish(channel, 2)  # its slot is free again
    first_until(channel, "ended")
    assert not channel.readers()[0].is_alive


def test_a_writer_that_is_killed(spawn: SpawnContext) -> None:
    here, there = spawn.Pipe()
    process = started(spawn, others.write_frames, there)
    reader = gpuipc.subscribe(received(here), hold=2)
    for value in (1, 2, None):  # the last is half made
        here.send(value)
        received(here)
    process.kill()
    process.join()
    assert [numbers(frame).tolist() for frame in reader] == [[1] * 16, [2] * 16]
    with pytest.raises(gpuipc.errors.PeerClosed):
        reader.take()


def test_the_end_of_a_channel() -> None:
    with made() as channel:
        reader = gpuipc.subscribe(channel.ticket(), hold=2)
        loan = channel.loan()
        publish(channel, 1)
    assert [frame.sequence for frame in reader] == [1]
    with pytest.raises(StopIteration):
        next(reader)
    channel.close()
    for use in (channel.loan, channel.readers, loan.publish):
        with pytest.raises(gpuipc.errors.ReleasedError):
            use()
    with pytest.raises(gpuipc.errors.TicketError):
        gpuipc.subscribe(channel.ticket())


def test_the_end_of_a_subscription() -> None:
    channel = made()
    with gpuipc.subscribe(channel.ticket()) as reader:
        publish(channel, 1)
        frame = reader.take(0)
    assert frame.is_over and state_of_first(channel) == "closed"
    reader.close()
    for use in (reader.take, lambda: next(reader), frame.give_back):
        with pytest.raises(gpuipc.errors.ReleasedError):
            use()


def test_closing_while_a_thread_waits() -> None:
    channel, raised = made(), []
    reader = gpuipc.subscribe(channel.ticket())
    waits = threading.Event()

    def wait() -> None:
        waits.set()
        try:
            reader.take()
        except gpuipc.GpuipcError as error:
            raised.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait(PATIENCE)
    reader.close()
    thread.join(PATIENCE)
    assert raised == [gpuipc.errors.ReleasedError]


def test_ctrl_c_while_waiting_for_a_frame(spawn: SpawnContext) -> None:
    here, there = spawn.Pipe()
    channel = made()
    check_interrupted(here, started(spawn, others.wait_for_a_frame, channel.ticket(), there))


@pytest.mark.parametrize("full", ["wait", "drop"])
def test_ctrl_c_while_waiting_for_a_slot(spawn: SpawnContext, full: str) -> None:
    here, there = spawn.Pipe()
    check_interrupted(here, started(spawn, others.wait_for_a_slot, full, there))


def test_a_forked_child_has_neither(run_python: Run) -> None:
    run_python(
        "import gpuipc, os, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "channel = gpuipc.Channel(None, 16, 'int8', transport='host')\n"
        "reader = gpuipc.subscribe(channel.ticket(), hold=2)\n"
        "for i in range(2): channel.loan().publish()\n"
        "frame, loan = reader.take(), channel.loan()\n"
        "if (child := os.fork()) == 0:\n"
        "    for use in (channel.loan, reader.take, frame.give_back, loan.publish, channel.readers):\n"
        "        try: use()\n"
        "        except gpuipc.errors.ForkedError: continue\n"
        "        os._exit(3)\n"
        "    del frame, loan, reader, channel\n"
        "    os._exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "loan.publish(); frame.give_back()\n"
        "assert [reader.take().sequence for i in range(2)] == [2, 3] and len(channel.readers()) == 1\n"
    )


def test_python_ends_with_all_of_it_there(run_python: Run) -> None:
    run_python(
        "import gpuipc, numpy\n"
        "channel = gpuipc.Channel(None, 16, 'int8', transport='host')\n"
        "reader = gpuipc.subscribe(channel.ticket())\n"
        "channel.loan().publish()\n"
        "array, loan = numpy.from_dlpack(reader.take()), channel.loan()\n"
    )


# ---- programs in C


class CFrame(ctypes.Structure):
    """gpuipc_frame"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("id", ctypes.c_uint64), ("address", ctypes.c_uint64),
        ("capacity", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("sequence", ctypes.c_uint64),
        ("missed", ctypes.c_uint64), ("header", ctypes.c_char_p), ("header_bytes", ctypes.c_size_t),
    ]  # fmt: skip


class CBufferConfig(ctypes.Structure):
    """gpuipc_buffer_config"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("device", ctypes.c_uint32), ("transport", ctypes.c_int),
        ("bytes", ctypes.c_uint64), ("rest", ctypes.c_uint8 * 40),
    ]  # fmt: skip


class CChannelConfig(ctypes.Structure):
    """gpuipc_channel_config"""

    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("slots", ctypes.c_uint32),
        ("max_readers", ctypes.c_uint32), ("slot_bytes", ctypes.c_uint64), ("header_bytes", ctypes.c_uint32),
        ("max_held", ctypes.c_uint32), ("full", ctypes.c_int), ("drop_after_ms", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
    ]  # fmt: skip


class CWriter:
    """A channel of a program that knows nothing of Python."""

    def __init__(self) -> None:
        self.c = ctypes.CDLL(gpuipc.get_library())
        self.context, self.buffer = ctypes.c_void_p(), ctypes.c_void_p()
        self.server, self.channel = ctypes.c_void_p(), ctypes.c_void_p()
        memory = CBufferConfig(ctypes.sizeof(CBufferConfig), 0, 0, 4096)
        self.call("context_create", None, ctypes.byref(self.context))
        self.call("buffer_create", self.context, ctypes.byref(memory), ctypes.byref(self.buffer))
        self.call("server_create", self.context, None, ctypes.byref(self.server))
        config = CChannelConfig(ctypes.sizeof(CChannelConfig), self.buffer, 4, 0, 1024, 512)
        ticket = ctypes.create_string_buffer(64)
        self.call("channel_create", self.server, ctypes.byref(config), ctypes.byref(self.channel), ticket)
        self.ticket = ticket.raw

    def call(self, name: str, *arguments: Any) -> None:
        assert self.c[f"gpuipc_{name}"](*arguments) == 0, name

    def publish(self, nbytes: int, header: bytes) -> None:
        frame, no_stream = CFrame(ctypes.sizeof(CFrame)), ctypes.c_void_p(-1)
        self.call("channel_loan", self.channel, no_stream, 1000, ctypes.byref(frame))
        frame.bytes, frame.header, frame.header_bytes = nbytes, header, len(header)
        self.call("channel_publish", self.channel, ctypes.byref(frame), no_stream)

    def end(self) -> None:
        self.call("channel_destroy", self.channel)
        self.call("server_destroy", self.server)
        self.call("buffer_release", self.buffer)
        self.call("context_destroy", self.context)


def said_of(names: dict[str, tuple[Any, str]]) -> bytes:
    """What stands in a header before the caller's bytes, where a manifest tells of arrays."""
    manifest = bytes(gpuipc.Manifest.arrange(names))
    return b"gpuipcA1" + len(manifest).to_bytes(4, "little") + manifest


def test_frames_of_a_program_in_c(spawn: SpawnContext) -> None:
    here, there = spawn.Pipe()
    writer = CWriter()
    process = started(spawn, others.take_when_told, writer.ticket, there)
    assert received(here) == "subscribed"
    two = said_of({"a": (4, "int32"), "b": ((2, 2), "int8")})
    large = said_of({"a": (1025, "int8")})
    refused = (b"gpuipcA1", b"gpuipcA1\xff\xff\xff\xff", b"gpuipcA1\x04\0\0\0junk", two[:60], large)
    for nbytes, header, expected in (
        (100, b"its own", ({".": ((100,), "uint8")}, b"its own")),
        (0, b"", ({}, b"")),
        (1024, two + b"and more", ({"a": ((4,), "int32"), "b": ((2, 2), "int8")}, b"and more")),
        *((1024, each, "refused") for each in refused),
        (10, b"", ({".": ((10,), "uint8")}, b"")),  # nothing is held of those
    ):
        writer.publish(nbytes, header)
        here.send("take")
        assert received(here) == expected
    here.send(None)
    ended(process)
    writer.end()


# ---- what is wrong


@pytest.mark.parametrize(
    "arguments",
    [
        {"slots": 0}, {"slots": 65}, {"full": "panic"}, {"full": "drop"}, {"drop_after": 1.0},
        {"full": "drop", "drop_after": -1.0}, {"slot_bytes": 3}, {"slot_bytes": 1 << 62}, {"dtype": "int7"},
        {"max_readers": 33}, {"max_held": 5}, {"like": np.zeros(3)}, {"shape": None}, {"shape": {}, "dtype": None},
    ],
)  # fmt: skip
def test_a_channel_that_cannot_be(arguments: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, gpuipc.GpuipcError)):
        gpuipc.Channel(None, **{"shape": 16, "dtype": "int8", "transport": "host", **arguments})


@pytest.mark.parametrize(
    "arguments",
    [
        {"delivery": "some"}, {"first": "last"}, {"hold": 0}, {"hold": 4}, {"hold": 65},
        {"look": -1.0}, {"look": 1.1}, {"look": float("nan")},
    ],
)  # fmt: skip
def test_a_reader_that_cannot_be(arguments: dict[str, Any]) -> None:
    channel = made()
    with pytest.raises((ValueError, gpuipc.GpuipcError)):
        gpuipc.subscribe(channel.ticket(), **arguments)


def test_tickets_of_the_other_kind() -> None:
    array, channel = gpuipc.empty(16, "int8"), made()
    for use in (lambda: gpuipc.subscribe(array.ticket()), lambda: gpuipc.open(channel.ticket())):
        with pytest.raises(gpuipc.GpuipcError) as caught:
            use()
        assert caught.value.name == "GPUIPC_ERR_OTHER_KIND"
    with pytest.raises(gpuipc.errors.TicketError):
        gpuipc.subscribe("gpuipc1:nonsense")


def test_names(spawn: SpawnContext) -> None:
    here, there = spawn.Pipe()
    name = f"frames-{os.getpid()}"
    with pytest.raises(gpuipc.errors.NotFound):
        gpuipc.subscribe(name, timeout=0)
    process = started(spawn, others.read_frames, name, {"timeout": None}, there)  # waits for it
    channel = gpuipc.Channel(name, 4, "int32", transport="host")
    assert received(here) == "subscribed"
    with pytest.raises(gpuipc.GpuipcError) as caught:
        made(name=name)
    assert caught.value.name == "GPUIPC_ERR_NAME_IN_USE"
    publish(channel, 1)
    assert received(here)[3] == {".": [1] * 4}
    channel.close()
    ended(process)
    with gpuipc.Channel(name, 4, "int32"), gpuipc.subscribe(name):  # another one, of the same name
        pass
    with pytest.raises(gpuipc.GpuipcError):
        gpuipc.Channel("a/b", 4, "int32")


def test_more_readers_than_may_be() -> None:
    channel = made(max_readers=1)
    reader = gpuipc.subscribe(channel.ticket())
    with pytest.raises(gpuipc.errors.LimitError):
        gpuipc.subscribe(channel.ticket())
    reader.close()
    gpuipc.subscribe(channel.ticket())


def test_none_of_it_is_handed_over() -> None:
    channel = made()
    reader = gpuipc.subscribe(channel.ticket())
    publish(channel, 1)
    loan, frame = channel.loan(), reader.take(0)
    for each in (channel, reader, loan, frame, frame.array):
        with pytest.raises(TypeError):
            pickle.dumps(each)
        with pytest.raises(TypeError):
            copy.copy(each)
    for use in (frame.array.close, frame.array.share, frame.array.ticket, frame.array.give_back, loan.array.await_returns):
        with pytest.raises(TypeError, match="part of its channel's memory"):
            use()
    assert pickle.loads(pickle.dumps(channel.ticket())) == channel.ticket()


@pytest.mark.parametrize("end", ["loan", "frame"])
def test_other_ways_to_the_memory_of_a_frame_do_not_hand_it_over(end: str) -> None:
    channel = gpuipc.Channel(None, {"a": (16, "int32"), "b": (16, "int32")})  # of a GPU, emulated
    frames = gpuipc.subscribe(channel.ticket())
    loan = channel.loan()
    if end == "frame":
        loan.publish()
    frame = loan if end == "loan" else frames.take(PATIENCE)
    array = gpuipc.place(frame["b"].buffer, 4, "int32", frame["b"].offset)
    uses = (array.share, array.ticket, lambda: pickle.dumps(array), lambda: gpuipc.share({"b": array}))
    for use in (*uses, lambda: gpuipc.share({"b": frame["b"][:2]}), lambda: gpuipc.wrap(frame["b"].view(dtype="uint8"))):
        with pytest.raises(TypeError, match="frame"):
            use()
    channel.close()
    frames.close()
    del frame, array, loan, channel, frames, uses, use
    gc.collect()
    assert [gpuipc.empty(64, "int32").ticket() for _ in range(4)]  # also where slots were
