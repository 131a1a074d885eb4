# SPDX-License-Identifier: MIT
"""What PyTorch's allocator calls, and how tensors leave and arrive, without PyTorch: objects that answer as tensors do."""

import ctypes
import gc
import pickle
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

import others
import pytest

import gpuipc
from gpuipc import _native

from conftest import PATIENCE

MIB = 1 << 20


class Allocator:
    """libgpuipc_torch.so, called as PyTorch calls it: without the GIL."""

    def __init__(self, kind: int = 0):
        library = ctypes.CDLL(str(Path(gpuipc.__file__).parent / "lib" / "libgpuipc_torch.so"))
        _native.torch_configure(kind, [], [])
        self._make, self._free = getattr(library, f"gpuipc_torch_alloc_{kind}"), library.gpuipc_torch_free
        self._make.restype = ctypes.c_void_p
        self._make.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self._free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]

    def make(self, nbytes: int, device: int = 0, stream: int | None = None) -> int | None:
        address: int | None = self._make(nbytes, device, stream)
        return address

    def free(self, address: int) -> None:
        self._free(address, 0, 0, None)


@pytest.fixture
def allocator() -> Allocator:
    return Allocator()


@pytest.fixture
def segment(allocator: Allocator) -> Iterator[int]:
    address = allocator.make(2 * MIB)
    assert address is not None
    yield address
    allocator.free(address)


class Tensor:
    """As much of one as is asked for."""

    def __init__(self, address: int, shape: tuple[int, ...] = (256,), dtype: str = "int32", strides: Any = None):
        self.shape, self.dtype, self._address = shape, dtype, address
        steps: list[int] = []
        step = 1
        for count in reversed(shape):
            steps.insert(0, step)
            step *= count
        self._strides = tuple(steps) if strides is None else strides

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def data_ptr(self) -> int:
        return self._address


class Kept:
    """Whose end is seen."""


def parcel_of(*tensors: Tensor, kept: object = None, wraps: bool = False) -> Any:
    return _native.Parcel(list(tensors), kept, wraps)


def handed(parcel: Any, seconds: float = 60) -> Any:
    return parcel.hand_over([0] * parcel.segments, seconds), parcel.contents


def buffer_at(address: int) -> gpuipc.Buffer:
    """To read and write what a segment holds."""
    return gpuipc.wrap((address, 2 * MIB)).buffer


# ---- the allocator


def test_memory_is_known_until_it_is_freed(allocator: Allocator) -> None:
    address = allocator.make(2 * MIB)
    assert address is not None
    assert _native.torch_is_known(address) and _native.torch_is_known(address + 2 * MIB - 1)
    kind, transports, *_ = _native.pointer_info(address, 2 * MIB)
    assert kind == "vmm" and "vmm" in transports
    allocator.free(address)
    while _native.torch_is_known(address):  # until the device has passed it
        pass
    allocator.free(address)  # nothing, as an address that is not the allocator's
    allocator.free(0)


def test_too_much_is_answered_by_no_memory(allocator: Allocator) -> None:
    assert allocator.make(1 << 50) is None
    assert _native.torch_failure() == ""  # want of memory is no other failure
    assert allocator.make(0) is None and allocator.make(-1) is None


def test_another_failure_has_a_sentence(allocator: Allocator) -> None:
    assert allocator.make(MIB, device=999) is None
    assert "999" in _native.torch_failure()
    assert _native.torch_failure() == ""


def test_kinds() -> None:
    openers = [gpuipc.Context.default().devices[0].uuid]
    _native.torch_configure(15, openers, [])
    last = Allocator(15)
    address = last.make(MIB)
    assert address is not None
    last.free(address)
    with pytest.raises(gpuipc.GpuipcError):
        _native.torch_configure(16, openers, [])
    with pytest.raises(ValueError, match="16 bytes"):
        _native.torch_configure(0, [b"short"], [])


def test_memory_that_was_freed_is_there_for_the_next(allocator: Allocator) -> None:
    # More in all than the device has, one after the other.
    total = gpuipc.Context.default().devices[0].memory_bytes
    for _ in range(4):
        address = allocator.make(total // 2)
        assert address is not None
        allocator.free(address)


def test_threads(allocator: Allocator) -> None:
    def work() -> None:
        for _ in range(50):
            addresses = [allocator.make(2 * MIB) for _ in range(3)]
            assert None not in addresses and len(set(addresses)) == 3
            for each in addresses:
                assert each is not None
                allocator.free(each)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


# ---- small requests, which have segments in common


@pytest.fixture
def parts(allocator: Allocator) -> Iterator[list[int]]:
    """As PyTorch has for small tensors: 2 MiB each."""
    made = [allocator.make(2 * MIB) for _ in range(32)]
    addresses = [each for each in made if each is not None]
    assert len(addresses) == 32
    yield addresses
    for each in addresses:
        allocator.free(each)


def test_the_more_there_are_the_more_have_a_segment_in_common(parts: list[int]) -> None:
    assert parcel_of(*map(Tensor, parts)).segments == 6  # of 1, 1, 2, 4, 8 and 16 parts
    ordered = sorted(parts)
    assert all(after - before >= 2 * MIB for before, after in zip(ordered, ordered[1:], strict=False))


def test_a_part_is_freed_once_and_not_given_out_again(allocator: Allocator, parts: list[int]) -> None:
    """Who has freed it may have work on any stream that still uses it."""
    freed = parts.pop(20)
    allocator.free(parts[20] + 4096)  # nothing: no part begins there
    allocator.free(freed)
    allocator.free(freed)  # nothing: it is free
    more = [allocator.make(2 * MIB) for _ in range(4)]
    parts += [each for each in more if each is not None]
    assert freed not in parts and len(set(parts)) == 35


def test_no_more_is_unused_than_is_used(allocator: Allocator) -> None:
    """Of a program that keeps one of many, and frees the others, again and again."""
    kept: list[int] = []
    for _ in range(64):
        made = [each for each in (allocator.make(2 * MIB) for _ in range(4)) if each is not None]
        kept.append(made.pop())
        for each in made:
            allocator.free(each)
    taken = sum({base: nbytes for *_, base, nbytes, _ in (_native.pointer_info(each, MIB) for each in kept)}.values())
    assert taken <= 2 * len(kept) * 2 * MIB + 32 * MIB
    for each in kept:
        allocator.free(each)


def test_a_part_is_handed_over_whichever_others_are_free(allocator: Allocator, parts: list[int]) -> None:
    whole = sorted(parts.pop() for _ in range(16))  # the largest
    allocator.free(whole.pop(0))  # with which the segment begins
    ((ticket, _),), _ = handed(parcel_of(Tensor(whole[3])))
    ((again, _),), _ = handed(parcel_of(Tensor(whole[7])))
    assert again == ticket
    for each in whole:
        allocator.free(each)


def test_a_ticket_ends_with_the_last_part_of_its_segment(allocator: Allocator, parts: list[int]) -> None:
    whole = sorted(parts.pop() for _ in range(16))  # the largest
    ((ticket, _),), _ = handed(parcel_of(Tensor(whole[0])))
    for each in whole[:-1]:
        allocator.free(each)
    ((again, _),), _ = handed(parcel_of(Tensor(whole[-1])))
    assert again == ticket
    allocator.free(whole[-1])
    with pytest.raises(gpuipc.errors.TicketRevoked):
        gpuipc.open(ticket)


def test_where_memory_is_short_a_segment_is_one_part(allocator: Allocator) -> None:
    large = gpuipc.Context.default().devices[0].memory_bytes
    made = []
    while large >= 2 * MIB:
        address = allocator.make(large) if large > 8 * MIB else allocator.make(2 * MIB)
        if address is not None:
            made.append(address)
        else:
            large //= 2
    assert Allocator(1).make(2 * MIB) is None  # nothing is left
    for each in made:
        allocator.free(each)


# ---- a parcel


def test_tensors_of_a_segment_share_its_ticket_and_loan(segment: int) -> None:
    parcel = parcel_of(*(Tensor(segment + i * 4096) for i in range(100)))
    assert parcel.segments == 1
    pieces, contents = handed(parcel)
    assert len(pieces) == 1 and (len(pieces[0][0]), len(pieces[0][1])) == (64, 16)
    again, _ = handed(parcel)
    assert again[0][0] == pieces[0][0] and again[0][1] != pieces[0][1]  # the same ticket, another loan
    assert parcel.lent == 2


def test_what_is_handed_over_is_kept_until_it_is_given_back(segment: int, spawn: SpawnContext) -> None:
    buffer_at(segment).write(b"\x07" * 1024)
    kept = Kept()
    seen = weakref.ref(kept)
    parcel = parcel_of(Tensor(segment), kept=kept)
    del kept
    here, there = spawn.Pipe()
    process = spawn.Process(target=others.deliver, args=(there,))
    process.start()
    here.send(handed(parcel))
    assert here.recv() == (1, b"\x07" * 1024)
    del parcel
    gc.collect()
    gpuipc.lingering()
    assert seen() is not None
    here.send("give back")
    assert here.recv() == "given back"
    while seen() is not None:
        gpuipc.lingering()
    here.send(None)
    process.join(PATIENCE)
    assert process.exitcode == 0


def test_what_nobody_takes_is_kept_for_a_time(segment: int) -> None:
    kept = Kept()
    seen = weakref.ref(kept)
    parcel = parcel_of(Tensor(segment), kept=kept)
    pieces, contents = handed(parcel, seconds=0.05)
    del parcel, kept
    assert seen() is not None
    while seen() is not None:
        gpuipc.lingering()
    with pytest.raises(gpuipc.errors.TicketError):
        _native.Delivery(pieces, contents, lambda capsule: capsule)


def test_a_receiver_that_ends_gives_back(segment: int, spawn: SpawnContext) -> None:
    kept = Kept()
    seen = weakref.ref(kept)
    parcel = parcel_of(Tensor(segment), kept=kept)
    del kept
    here, there = spawn.Pipe()
    process = spawn.Process(target=others.deliver, args=(there,))
    process.start()
    here.send(handed(parcel))
    here.recv()
    process.kill()
    process.join(PATIENCE)
    parcel.await_returns(PATIENCE)
    assert parcel.lent == 0
    del parcel
    gpuipc.lingering()
    assert seen() is None


@contextmanager
def receiver(spawn: SpawnContext, target: Any, *arguments: object) -> Iterator[Any]:
    """What a process gets, which answers each time."""
    here, there = spawn.Pipe()
    process = spawn.Process(target=target, args=(there, *arguments))
    process.start()

    def give(value: Any) -> None:
        here.send(value)
        assert here.poll(PATIENCE)
        here.recv()

    yield give
    here.send(None)
    process.join(PATIENCE)
    assert process.exitcode == 0


@pytest.fixture
def keeper(spawn: SpawnContext) -> Iterator[Any]:
    """A process that keeps the first of what it is given."""
    with receiver(spawn, others.deliver_and_keep) as give:
        yield give


def test_each_hand_over_is_given_back_by_itself(segment: int, keeper: Any) -> None:
    """Although the receiver keeps others of the same memory."""
    first, second = parcel_of(Tensor(segment)), parcel_of(Tensor(segment))
    keeper(handed(first))
    keeper(handed(second))
    second.await_returns(PATIENCE)
    assert (first.lent, second.lent) == (1, 0)


@pytest.fixture
def letting_go(spawn: SpawnContext) -> Iterator[Any]:
    """A process that lets go of what it is given, and keeps segments open for so long."""
    with ExitStack() as at_the_end:
        yield lambda seconds: at_the_end.enter_context(receiver(spawn, others.deliver_and_let_go, seconds))


def ticket_of(segment: int) -> Any:
    return handed(parcel_of(Tensor(segment)))[0][0][0]


def await_nobody(ticket: Any, seconds: float = PATIENCE) -> bool:
    """Has it open, before so many seconds are over."""
    end = time.monotonic() + seconds
    while gpuipc.Context.default().holders(ticket):
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def test_a_segment_stays_open_for_a_time(segment: int, letting_go: Any) -> None:
    give = letting_go(1000)
    for each in [parcel_of(Tensor(segment)) for _ in range(3)]:
        give(handed(each))
        each.await_returns(PATIENCE)  # the tensor is given back all the same
    assert not await_nobody(ticket_of(segment), 0.3)
    give("close")  # the context
    assert await_nobody(ticket_of(segment))


@pytest.mark.parametrize("seconds", [0, 0.2])
def test_and_no_longer(segment: int, letting_go: Any, seconds: float) -> None:
    letting_go(seconds)(handed(parcel_of(Tensor(segment))))
    assert await_nobody(ticket_of(segment))


def test_of_segments_many_do_not_stay(allocator: Allocator, letting_go: Any) -> None:
    give = letting_go(1000)
    segments = [allocator.make(4 * MIB) or 0 for _ in range(65)]
    for each in segments:
        give(handed(parcel_of(Tensor(each))))
    assert await_nobody(ticket_of(segments[0]))
    assert not await_nobody(ticket_of(segments[1]), 0)
    for each in segments:
        allocator.free(each)


def test_the_memory_of_an_array_does_not_stay(letting_go: Any) -> None:
    array = gpuipc.empty(256, "int32")
    letting_go(1000)(handed(parcel_of(Tensor(array.address))))
    array.buffer.await_returns(PATIENCE)


def test_a_receiver_that_keeps_an_array_may_get_any_number(keeper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    array = gpuipc.empty(256, "int32")
    for _ in range(2100):  # more than may be out
        keeper(pickle.dumps(array))
    monkeypatch.setattr(gpuipc.config, "room_seconds", 0)
    parcel = parcel_of(Tensor(array.address))
    keeper(handed(parcel))
    parcel.await_returns(PATIENCE)


def test_waiting_for_returns_has_an_end(segment: int) -> None:
    parcel = parcel_of(Tensor(segment))
    handed(parcel)
    with pytest.raises(gpuipc.errors.Timeout):
        parcel.await_returns(0.01)


def test_a_ticket_ends_with_its_segment(allocator: Allocator) -> None:
    address = allocator.make(2 * MIB)
    assert address is not None
    parcel = parcel_of(Tensor(address))
    pieces, _ = handed(parcel)
    del parcel
    allocator.free(address)
    with pytest.raises(gpuipc.errors.TicketRevoked):
        gpuipc.open(pieces[0][0])


def test_memory_of_others_is_refused_or_wrapped() -> None:
    with pytest.raises(KeyError, match="not in memory of gpuipc"):
        parcel_of(Tensor(0x1000))
    with pytest.raises(gpuipc.GpuipcError):
        parcel_of(Tensor(0x1000), wraps=True)


@pytest.mark.parametrize("wrong", [{"shape": (0,)}, {"strides": (-1,)}, {"shape": (1 << 62, 4)}])
def test_shapes_that_cannot_be(segment: int, wrong: Any) -> None:
    with pytest.raises(ValueError):
        parcel_of(Tensor(segment, **wrong))


# ---- what the compiled module does for each tensor


LAYOUT = object()


class Plain(Tensor):
    """A tensor that answers what a Reducer asks."""

    layout: object = LAYOUT
    is_quantized, is_cuda, requires_grad, is_leaf = False, True, False, True
    elements, negative, conjugate = 256, False, False

    def numel(self) -> int:
        return self.elements

    def is_neg(self) -> bool:
        return self.negative

    def is_conj(self) -> bool:
        return self.conjugate


class PlainParameter(Plain):
    requires_grad = True


def rebuilt() -> None:
    """What would be pickled for them."""


REDUCER = _native.Reducer(Plain, PlainParameter, LAYOUT, None, lambda of: of, rebuilt, lambda of: ("otherwise", of))

ODD = [
    {"layout": object()}, {"is_quantized": True}, {"elements": 0}, {"negative": True}, {"conjugate": True},
    {"requires_grad": True, "is_leaf": False},
]  # fmt: skip


def odd(address: int, **answers: object) -> Plain:
    made = Plain(address)
    vars(made).update(answers)
    return made


def test_a_tensor_is_handed_over_by_itself(segment: int) -> None:
    for tensor, flag in ((Plain(segment), 0), (PlainParameter(segment), 3)):
        rebuild, (pieces, contents, found) = REDUCER.reduce(tensor)
        assert (rebuild, found) == (rebuilt, flag)
        assert contents == parcel_of(tensor).contents
        delivery = _native.Delivery(pieces, contents, names_of)
        assert len(delivery) == 1


@pytest.mark.parametrize("answers", ODD)
def test_what_is_not_plain_is_left_to_others(segment: int, answers: dict[str, object]) -> None:
    tensor = odd(segment, **answers)
    assert REDUCER.reduce(tensor) == ("otherwise", tensor)
    assert REDUCER.flag(tensor) is None
    assert REDUCER.flags([Plain(segment), tensor]) is None


def test_so_is_what_is_not_known(segment: int) -> None:
    strange, subclass = Plain(0x1000), type("Subclass", (Plain,), {})(segment)
    assert REDUCER.reduce(strange) == ("otherwise", strange)
    assert REDUCER.reduce(subclass) == ("otherwise", subclass)
    assert REDUCER.flag(strange) == 0  # of CUDA: it may be wrapped
    assert REDUCER.flag(odd(0x1000, is_cuda=False)) is None
    assert REDUCER.flag(odd(segment, is_cuda=False)) == 0


def test_so_is_memory_that_was_made_for_another_stream(allocator: Allocator) -> None:
    address = allocator.make(2 * MIB, stream=0x10)
    assert address is not None
    tensor = Plain(address)
    assert REDUCER.reduce(tensor) == ("otherwise", tensor)
    allocator.free(address)


def test_several_are_looked_at_together(segment: int) -> None:
    one, other = Plain(segment), PlainParameter(segment + 4096)
    assert REDUCER.flags([one, other]) == b"\0\3"
    assert REDUCER.flags([one, other, one]) is None  # which is one tensor where it arrives, too


def test_what_a_tensor_raises_is_raised(segment: int) -> None:
    class Broken(Plain):
        def is_neg(self) -> bool:
            raise OSError

    broken = _native.Reducer(Broken, PlainParameter, LAYOUT, None, lambda of: of, rebuilt, lambda of: of)
    with pytest.raises(OSError):
        broken.reduce(Broken(segment))


# ---- a delivery


def names_of(capsule: Any) -> Any:
    """Holds the tensor, as PyTorch does."""
    return capsule


def test_in_its_own_process_the_memory_is_kept_by_what_arrives(segment: int) -> None:
    kept = Kept()
    seen = weakref.ref(kept)
    parcel = parcel_of(Tensor(segment), kept=kept)
    pieces, contents = handed(parcel)
    del parcel, kept
    delivery = _native.Delivery(pieces, contents, names_of)
    tensor = delivery.tensor(0)
    del delivery
    gc.collect()
    gpuipc.lingering()
    assert seen() is not None
    del tensor
    while seen() is not None:
        gpuipc.lingering()
    with pytest.raises(gpuipc.errors.TicketError, match="one receiver"):
        _native.Delivery(pieces, contents, names_of)


def test_what_overlaps_has_memory_in_common(segment: int) -> None:
    tensors = [Tensor(segment + 4, (8,)), Tensor(segment, (4, 8), strides=(8, 1)), Tensor(segment + 4096), Tensor(segment)]
    parcel = parcel_of(*tensors)
    pieces, contents = handed(parcel)
    delivery = _native.Delivery(pieces, contents, names_of)
    found: list[Any] = [delivery.common_of(number) for number in range(len(delivery))]
    assert found[0] == (0, 4, (8,), (1,), "int32")
    assert found[1] == (0, 0, (4, 8), (8, 1), "int32")
    assert found[2] is None
    assert found[3] is not None and found[3][0] == 0
    assert [each is None for each in delivery.tensors()] == [True, True, False, True]


def test_contents_are_looked_at(segment: int) -> None:
    parcel = parcel_of(Tensor(segment), Tensor(segment + 64), Tensor(segment + 8192, (2, 2)))
    pieces, contents = handed(parcel)
    for length in range(len(contents)):
        with pytest.raises(ValueError):
            _native.Delivery(pieces, contents[:length], names_of)
    refused = 0
    for at in range(len(contents)):
        changed = contents[:at] + bytes([contents[at] ^ 0x81]) + contents[at + 1 :]
        try:
            _native.Delivery((), changed, names_of)
        except ValueError:
            refused += 1
    assert refused == len(contents)  # none of it lies in memory that did not come


def test_pieces_are_looked_at(segment: int) -> None:
    parcel = parcel_of(Tensor(segment))
    pieces, contents = handed(parcel)
    (ticket, loan), = pieces
    for wrong in ((ticket, loan[:-1]), (ticket[:-1], loan), (ticket, bytes(16)), (b"", b"")):
        with pytest.raises((ValueError, gpuipc.GpuipcError)):
            _native.Delivery((wrong,), contents, names_of)


def test_bare_memory_goes_as_segments_do(spawn: SpawnContext) -> None:
    """A buffer of gpuipc's own: its ticket ends when nobody has it any more."""
    array = gpuipc.empty(256, "int32")
    array.buffer.write(b"\x09" * 1024)
    parcel = parcel_of(Tensor(array.address), kept=array)
    address = array.address
    del array
    here, there = spawn.Pipe()
    process = spawn.Process(target=others.deliver, args=(there,))
    process.start()
    here.send(handed(parcel))
    assert here.recv() == (1, b"\x09" * 1024)
    del parcel
    assert _native.torch_is_known(address)
    here.send("give back")
    assert here.recv() == "given back"
    here.send(None)
    process.join(PATIENCE)
    while _native.torch_is_known(address):
        gpuipc.lingering()


def test_what_has_arrived_is_not_passed_on(segment: int, spawn: SpawnContext) -> None:
    here, there = spawn.Pipe()
    process = spawn.Process(target=others.deliver_further, args=(there,))
    process.start()
    parcel = parcel_of(Tensor(segment))
    here.send(handed(parcel))
    assert "another process" in here.recv()
    here.send(None)
    process.join(PATIENCE)
    assert process.exitcode == 0


def test_importing_it_needs_pytorch(run_python: Any) -> None:
    done = run_python(
        "import sys; sys.modules['torch'] = None\nimport gpuipc\ntry:\n import gpuipc.torch\nexcept ImportError: print('no')"
    )
    assert done.stdout == "no\n"


def test_pickles_of_arrays_take_the_stream_that_is_named() -> None:
    asked = []

    def source(device: int) -> int:
        asked.append(device)
        return 0

    array = gpuipc.empty(16, "int8")
    try:
        _native.set_stream_source(source)
        pickle.dumps(array)
        array.share(expires=1)
        assert asked == [0, 0]
        array.share(expires=1, ready=True)
        pickle.dumps(gpuipc.empty(16, "int8", transport="host"))
        assert asked == [0, 0]
    finally:
        _native.set_stream_source(None)


STREAM_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


def functions_of(current_stream: Any) -> Any:
    """DLPack's table of a library's functions, with that one and none that is called."""
    table = (ctypes.c_void_p * 7)(1, None, None, None, None, 1, ctypes.cast(current_stream, ctypes.c_void_p).value)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(table, b"dlpack_exchange_api", None), table


def test_the_current_stream_is_told_by_functions_of_dlpack() -> None:
    asked = []

    def current_stream(kind: int, device: int, out_stream: Any) -> int:
        asked.append((kind, device))
        out_stream[0] = None
        return 0

    function = STREAM_FUNCTION(current_stream)
    capsule, table = functions_of(function)
    array = gpuipc.empty(16, "int8")
    try:
        _native.set_stream_functions(capsule)
        pickle.dumps(array)
        assert asked == [(2, 0)]
        _native.set_stream_functions(object())  # no such table
        pickle.dumps(array)
        assert asked == [(2, 0)]
    finally:
        _native.set_stream_functions(None)
    del table, function  # they were needed so long
