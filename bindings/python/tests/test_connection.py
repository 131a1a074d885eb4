# SPDX-License-Identifier: MIT
import ctypes
import os
import select
import threading
from collections.abc import Iterator
from multiprocessing.context import SpawnContext

import numpy as np
import others
import pytest
from conftest import PATIENCE
from test_process import check_interrupted, ended, filled, started

import gpuipc


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"python-{os.getpid()}-{abs(hash(request.node.name)) % 10**9}"


@pytest.fixture
def pair(name: str) -> Iterator[tuple[gpuipc.Connection, gpuipc.Connection]]:
    """Both ends, in one process."""
    with gpuipc.listen(name) as listener, gpuipc.connect(name) as one, listener.accept(PATIENCE) as other:
        yield one, other


def test_messages_to_another_process(spawn: SpawnContext, name: str) -> None:
    with gpuipc.listen(name) as listener:
        process = started(spawn, others.answer_messages, name)
        with listener.accept(PATIENCE) as connection:
            assert connection.peer_process_id == process.pid and connection.peer_user == str(os.getuid())
            array = filled((8, 8))
            expected = [int(np.from_dlpack(array[2:4]).sum()), int(np.from_dlpack(array[:, ::4]).sum()) + 4]
            connection.send(b"two: ", [array[2:4], array[:, ::4]])
            assert connection.receive(PATIENCE).data == b"two: " + repr(expected).encode()
            assert int(np.from_dlpack(array).sum()) == sum(range(64)) + 16 + 16
            connection.send(b"none: ")
            assert connection.receive(PATIENCE).data == b"none: []"
            connection.send(b"end")
            ended(process)
            with pytest.raises(gpuipc.errors.PeerClosed):
                connection.receive(PATIENCE)


def test_forms_and_bytes_arrive(pair: tuple[gpuipc.Connection, gpuipc.Connection]) -> None:
    one, other = pair
    array = gpuipc.empty((4, 6), "bfloat16", device=1)
    buffer = gpuipc.create(64)
    one.send(bytes(range(256)), [array[1:, ::2], buffer, array])
    message = other.receive(PATIENCE)
    assert message.data == bytes(range(256))
    part, raw, whole = message.arrays
    assert (part.shape, part.strides, part.dtype, part.device) == ((3, 3), (6, 2), "bfloat16", 1)
    assert (raw.shape, raw.dtype) == ((64,), "uint8")
    assert whole.buffer == part.buffer != raw.buffer
    assert repr(message) == "<gpuipc.Message of 256 bytes and 3 arrays>"


def test_many_arrays_and_bytes(pair: tuple[gpuipc.Connection, gpuipc.Connection]) -> None:
    one, other = pair
    arrays = [gpuipc.empty(4, "int8") for _ in range(40)]
    sender = threading.Thread(target=one.send, args=(bytes(300_000), arrays))  # more than fits without a reader
    sender.start()
    message = other.receive(PATIENCE)
    sender.join()
    assert len(message.data) == 300_000 and len(message.arrays) == 40


class Outgoing(ctypes.Structure):
    """gpuipc_outgoing."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("bytes", ctypes.c_char_p), ("bytes_size", ctypes.c_size_t),
        ("buffers", ctypes.c_void_p), ("buffer_count", ctypes.c_size_t), ("flags", ctypes.c_uint32),
        ("access", ctypes.c_int), ("stream", ctypes.c_void_p),
    ]  # fmt: skip


class ProgramInC:
    """Sends bytes as they are, by calls of the library."""

    def __init__(self, name: str) -> None:
        self.library = ctypes.CDLL(gpuipc.get_library())
        context, self.connection = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.library.gpuipc_context_create(None, ctypes.byref(context)) == 0
        opened = self.library.gpuipc_connection_open(
            context, name.encode(), None, PATIENCE * 1000, ctypes.byref(self.connection)
        )
        assert opened == 0
        self.library.gpuipc_context_destroy(context)

    def send(self, data: bytes) -> None:
        outgoing = Outgoing(struct_size=ctypes.sizeof(Outgoing), bytes=data, bytes_size=len(data))
        assert self.library.gpuipc_connection_send(self.connection, ctypes.byref(outgoing), PATIENCE * 1000) == 0


@pytest.fixture
def peer(name: str) -> Iterator[tuple[ProgramInC, gpuipc.Connection]]:
    with gpuipc.listen(name) as listener:
        program = ProgramInC(name)
        with listener.accept(PATIENCE) as connection:
            yield program, connection
        program.library.gpuipc_connection_close(program.connection)


def test_messages_of_programs_in_c(peer: tuple[ProgramInC, gpuipc.Connection]) -> None:
    program, connection = peer
    for data in (b"", b"gpuipcA", b"bytes"):
        program.send(data)
        message = connection.receive(PATIENCE)
        assert (message.data, message.arrays) == (data, [])


@pytest.mark.parametrize(
    "bad",
    [
        b"gpuipcA1", b"gpuipcA1\xff\xff\xff\xff", b"gpuipcA1\x04\x00\x00\x00abcd", b"gpuipcA1\x00\x00\x00\x00",
        b"gpuipcA1\x05\x00\x00\x00abcd",
    ],
)  # fmt: skip
def test_what_no_peer_says_is_refused(peer: tuple[ProgramInC, gpuipc.Connection], bad: bytes) -> None:
    program, connection = peer
    program.send(bad)
    with pytest.raises(gpuipc.errors.ProtocolError):
        connection.receive(PATIENCE)
    program.send(b"and on it goes")
    assert connection.receive(PATIENCE).data == b"and on it goes"


@pytest.mark.parametrize("named", ["0", "-1", "+0", "", "x", "0x0", "99999999999999999999"])
def test_arrays_outside_of_what_came_are_refused(peer: tuple[ProgramInC, gpuipc.Connection], named: str) -> None:
    program, connection = peer
    array = gpuipc.empty(4, "int8")
    manifest = gpuipc.open_buffer(gpuipc.share({named or ".": array})).attachment
    assert manifest is not None
    program.send(b"gpuipcA1" + len(manifest).to_bytes(4, "little") + manifest)  # and no buffer
    with pytest.raises(gpuipc.errors.ProtocolError):
        connection.receive(PATIENCE)


def test_bytes_that_look_like_a_prefix_arrive(pair: tuple[gpuipc.Connection, gpuipc.Connection]) -> None:
    one, other = pair
    for data in (b"gpuipcA1", b"gpuipcA1\xff\xff\xff\xff"):
        one.send(data)
        message = other.receive(PATIENCE)
        assert (message.data, message.arrays) == (data, [])


def test_to_be_read_only(pair: tuple[gpuipc.Connection, gpuipc.Connection]) -> None:
    one, other = pair
    one.send(b"", [gpuipc.empty(4, "int8")], access="r", wait=False)
    (array,) = other.receive(PATIENCE, wait=False).arrays
    assert array.read_only


def test_waits_end(name: str, pair: tuple[gpuipc.Connection, gpuipc.Connection]) -> None:
    one, other = pair
    with pytest.raises(gpuipc.errors.Timeout):
        other.receive(0.01)
    with gpuipc.listen(name + "-2") as listener, pytest.raises(gpuipc.errors.Timeout):
        listener.accept(0.01)
    with pytest.raises(gpuipc.errors.NotFound):
        gpuipc.connect("nobody-listens", 0.01)
    with pytest.raises(gpuipc.GpuipcError, match="GPUIPC_ERR_NAME"):
        gpuipc.listen("a/b")
    with pytest.raises(gpuipc.GpuipcError, match="GPUIPC_ERR_NAME_IN_USE"):
        gpuipc.listen(name)


def test_what_is_not_sent(pair: tuple[gpuipc.Connection, gpuipc.Connection]) -> None:
    one, other = pair
    with pytest.raises(TypeError, match="carries Arrays and Buffers"):
        one.send(b"", [np.zeros(3)])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        one.send("text")  # type: ignore[arg-type]
    closed = gpuipc.empty(4, "int8")
    closed.close()
    with pytest.raises(gpuipc.errors.ReleasedError):
        one.send(b"", [closed])
    one.send(b"still usable")
    assert other.receive(PATIENCE).data == b"still usable"


def test_it_can_be_waited_for(name: str) -> None:
    with gpuipc.listen(name) as listener:
        assert select.select([listener], [], [], 0)[0] == []
        with gpuipc.connect(name) as one:
            assert select.select([listener], [], [], PATIENCE)[0] == [listener]
            with listener.accept(0) as other:
                assert select.select([other], [], [], 0)[0] == []
                one.send(b"now")
                assert select.select([other], [], [], PATIENCE)[0] == [other]
                assert other.receive(0).data == b"now"


def test_closed_they_are_known(name: str) -> None:
    listener = gpuipc.listen(name)
    one = gpuipc.connect(name)
    listener.close()
    listener.close()
    one.close()
    one.close()
    for use in (lambda: listener.accept(0), lambda: one.send(b""), lambda: one.receive(0), one.fileno):
        with pytest.raises(gpuipc.errors.ReleasedError):
            use()


def test_closing_wakes_who_waits(name: str) -> None:
    listener = gpuipc.listen(name)
    answers = []

    def accept() -> None:
        try:
            listener.accept()
        except gpuipc.errors.ReleasedError as error:
            answers.append(error)

    thread = threading.Thread(target=accept)
    thread.start()
    listener.close()
    thread.join(PATIENCE)
    assert len(answers) == 1


def test_ctrl_c_while_waiting_for_a_message(spawn: SpawnContext, name: str) -> None:
    here, there = spawn.Pipe()
    with gpuipc.listen(name) as listener:
        process = started(spawn, others.wait_for_message, name, there)
        with listener.accept(PATIENCE):
            check_interrupted(here, process)
