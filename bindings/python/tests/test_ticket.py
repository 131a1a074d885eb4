# SPDX-License-Identifier: MIT
import copy
import pickle
from collections.abc import Iterator

import pytest

import gpuipc


@pytest.fixture
def ticket() -> Iterator[gpuipc.Ticket]:
    with gpuipc.create(4096) as buffer:
        yield buffer.ticket()


def test_bytes_and_text_make_it_again(ticket: gpuipc.Ticket) -> None:
    assert len(bytes(ticket)) == 64
    assert str(ticket).startswith("gpuipc1:")
    assert gpuipc.Ticket(bytes(ticket)) == gpuipc.Ticket(str(ticket)) == gpuipc.Ticket(ticket) == ticket
    assert hash(gpuipc.Ticket(str(ticket))) == hash(ticket)
    assert ticket != str(ticket)


def test_it_is_pickled_and_copied(ticket: gpuipc.Ticket) -> None:
    assert pickle.loads(pickle.dumps(ticket)) == ticket
    assert copy.copy(ticket) == copy.deepcopy(ticket) == ticket


def test_repr_hides_the_secret(ticket: gpuipc.Ticket) -> None:
    shown = repr(ticket)
    assert str(ticket)[8:20] not in shown
    assert shown == "<gpuipc.Ticket, a secret>"


def test_a_text_with_a_nul_is_refused(ticket: gpuipc.Ticket) -> None:
    with pytest.raises(ValueError, match="NUL"):
        gpuipc.Ticket(str(ticket) + "\0")
    for call in (gpuipc.listen, gpuipc.connect, gpuipc.subscribe):
        with pytest.raises(ValueError, match="NUL"):
            call("a\0b")
    with pytest.raises(ValueError, match="NUL"):
        gpuipc.listen("a", users=["1000\0x"])
    with pytest.raises(ValueError, match="NUL"):
        gpuipc.Channel("a\0b", 4, "uint8")
    with pytest.raises(ValueError, match="NUL"):
        gpuipc.Context(driver="a\0b")
    with pytest.raises(ValueError, match="NUL"):
        gpuipc.Context(runtime_directory="a\0b")


def test_no_process_at_all_is_no_bound() -> None:
    with gpuipc.create(4096) as buffer, pytest.raises(ValueError, match="max_processes"):
        buffer.share(max_processes=0)


@pytest.mark.parametrize("wrong", ["", "gpuipc1:", "ticket", b"", b"x" * 64, "gpuipc1:" + "A" * 86])
def test_what_is_no_ticket_is_refused(wrong: str | bytes) -> None:
    with pytest.raises(gpuipc.errors.TicketError) as caught:
        gpuipc.Ticket(wrong)
    assert caught.value.name.startswith("GPUIPC_ERR_TICKET_")
    assert caught.value.sentence in str(caught.value)


def test_a_damaged_byte_is_noticed(ticket: gpuipc.Ticket) -> None:
    damaged = bytearray(bytes(ticket))
    damaged[20] ^= 1
    with pytest.raises(gpuipc.errors.TicketError, match="GPUIPC_ERR_TICKET_DAMAGED"):
        gpuipc.Ticket(bytes(damaged))


def test_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="a ticket is"):
        gpuipc.Ticket(12)  # type: ignore[arg-type]


def test_narrowed_it_is_a_part(ticket: gpuipc.Ticket) -> None:
    assert gpuipc.open_buffer(ticket.narrow(16, 32)).nbytes == 32
    with pytest.raises(ValueError, match="GPUIPC_ERR_OUT_OF_RANGE"):
        gpuipc.open_buffer(ticket.narrow(16, 4096))
