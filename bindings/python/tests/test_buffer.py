# SPDX-License-Identifier: MIT
import copy
import pickle

import pytest

import gpuipc


def test_what_is_known_of_it() -> None:
    buffer = gpuipc.create(1 << 20, device=1, openers=[0, gpuipc.Context.default().devices[1].uuid])
    assert buffer.nbytes == 1 << 20
    assert buffer.address != 0
    assert (buffer.device, buffer.access_device, buffer.transport) == (1, 1, "vmm")
    assert not buffer.read_only and not buffer.is_lost and buffer.is_ready
    assert buffer.lent_count == 0 and buffer.attachment is None
    assert "1048576" in repr(buffer)


def test_contents() -> None:
    buffer = gpuipc.create(4096)
    buffer.fill(0x01020304, width=4)
    assert buffer.read(0, 8) == bytes([4, 3, 2, 1]) * 2
    buffer.write(memoryview(b"in the middle"), 100)
    assert buffer.read(100, 13) == b"in the middle"
    assert len(buffer.read(4000)) == 96
    other = gpuipc.create(64, device=1)
    buffer.copy_to(other, offset=100, destination_offset=3, nbytes=13)
    assert other.read(3, 13) == b"in the middle"


def test_what_reaches_beyond_is_refused() -> None:
    buffer = gpuipc.create(64)
    with pytest.raises(ValueError):
        buffer.read(60, 8)
    with pytest.raises(ValueError):
        buffer.read(0, 1 << 60)
    with pytest.raises(gpuipc.errors.OutOfRange):
        buffer.write(bytes(8), 60)
    with pytest.raises(gpuipc.errors.OutOfRange):
        buffer.fill(0, offset=65, nbytes=1)


@pytest.mark.parametrize("arguments", [{"device": 7}, {"device": -1}, {"transport": "pigeon"}, {"openers": [b"short"]}])
def test_what_cannot_be_made(arguments: dict[str, object]) -> None:
    with pytest.raises((ValueError, gpuipc.errors.DriverError)):
        gpuipc.create(64, **arguments)  # type: ignore[arg-type]


def test_too_large_a_buffer_is_refused() -> None:
    with pytest.raises(MemoryError) as caught:
        gpuipc.create(1 << 40)
    assert isinstance(caught.value, gpuipc.errors.OutOfDeviceMemory)


def test_closed_it_is_known_and_may_be_closed_again() -> None:
    with gpuipc.create(64) as buffer:
        buffer.fill(1)
    for use in (buffer.read, buffer.fill, lambda: buffer.is_lost, buffer.share, lambda: buffer.attachment):
        with pytest.raises(gpuipc.errors.ReleasedError):
            use()
    buffer.close()


def test_closed_behind_a_stream() -> None:
    buffer = gpuipc.create(64)
    buffer.fill(1)
    buffer.close(stream=1)
    with pytest.raises(gpuipc.errors.ReleasedError):
        buffer.read()


def test_it_is_neither_copied_nor_pickled() -> None:
    buffer = gpuipc.create(64)
    for refused in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a Buffer is no value"):
            refused(buffer)


def test_two_names_of_one_memory_are_equal() -> None:
    array = gpuipc.empty(64, "int8")
    assert array.buffer == array.buffer == array[:3].buffer
    assert hash(array.buffer) == hash(array[1:].buffer)
    assert array.buffer != gpuipc.create(64)


@pytest.mark.parametrize("stream", [-5, "a", 1.5])
def test_what_is_no_stream(stream: object) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError, RuntimeError)):
        gpuipc.create(64).fill(1, stream=stream)


def test_streams_of_other_libraries() -> None:
    class Torch:
        cuda_stream = 1

    class Cupy:
        ptr = 2

    class Core:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 1)

    buffer = gpuipc.create(64)
    for value, stream in enumerate((Torch(), Cupy(), Core(), 1, None), start=1):
        buffer.fill(value, stream=stream)
        assert buffer.read(0, 1) == bytes([value])


# ---- sharing


def test_a_ticket_opens_the_same_memory() -> None:
    buffer = gpuipc.create(4096)
    assert buffer.ticket() == buffer.ticket()
    opened = gpuipc.open_buffer(buffer.ticket())
    opened.write(b"seen")
    assert buffer.read(0, 4) == b"seen"


def test_ticket_ends_with_the_last_object_and_share_does_not() -> None:
    buffer = gpuipc.create(4096)
    ends, stays = buffer.ticket(), buffer.share()
    part = gpuipc.place(buffer, 4, "int8")
    del buffer
    assert gpuipc.Context.default().holders(ends) == []
    del part
    with pytest.raises(gpuipc.errors.TicketRevoked):
        gpuipc.open_buffer(ends)
    assert gpuipc.open_buffer(stays).nbytes == 4096


def test_a_revoked_ticket_opens_nothing() -> None:
    buffer = gpuipc.create(4096)
    ticket = buffer.share()
    gpuipc.Context.default().revoke(ticket)
    with pytest.raises(gpuipc.errors.TicketRevoked):
        gpuipc.open_buffer(ticket)
    with pytest.raises(gpuipc.errors.TicketRevoked):
        gpuipc.Context.default().revoke(ticket)


def test_a_share_has_options() -> None:
    buffer = gpuipc.create(4096)
    opened = gpuipc.open_buffer(buffer.share(offset=16, nbytes=32, attachment=b"of mine"))
    assert opened.nbytes == 32 and opened.attachment == b"of mine"
    assert gpuipc.open_buffer(buffer.share(access="r")).read_only
    with pytest.raises(ValueError, match="access is"):
        buffer.share(access="w")
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="expires"):
            buffer.share(expires=wrong)
    with pytest.raises(gpuipc.errors.OutOfRange):
        buffer.share(offset=4000, nbytes=4000)
    assert gpuipc.Context.default().holders(buffer.share()) == []


def test_a_device_that_is_not_there() -> None:
    buffer = gpuipc.create(64)
    with pytest.raises(gpuipc.errors.DriverError):
        gpuipc.open_buffer(buffer.ticket(), device=9)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_what_is_no_timeout(timeout: float) -> None:
    with pytest.raises(ValueError, match="a timeout is"):
        gpuipc.create(64).await_returns(timeout)
