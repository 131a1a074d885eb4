# SPDX-License-Identifier: MIT
"""Several processes: what one writes the other reads."""

import gc
import os
import pickle
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any, cast

import numpy as np
import others
import pytest
from conftest import PATIENCE, Run

import gpuipc
from gpuipc import _native


def filled(shape: Any, **options: Any) -> gpuipc.Array:
    array = gpuipc.empty(shape, "int32", transport="host", **options)
    np.from_dlpack(array)[...] = np.arange(array.size).reshape(array.shape)
    return array


def started(spawn: SpawnContext, target: Any, *arguments: Any) -> Any:
    process = spawn.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def received(pipe: Any) -> Any:
    assert pipe.poll(PATIENCE), "the other process says nothing"
    return pipe.recv()


def ended(process: Any) -> None:
    process.join(PATIENCE)
    assert process.exitcode == 0


# ---- tickets


def test_another_process_opens_the_text(spawn: SpawnContext) -> None:
    array = filled((4, 6))
    answer = spawn.Queue()
    process = started(spawn, others.open_and_add, str(array.ticket()), answer)
    assert answer.get(timeout=PATIENCE) == ((4, 6), "int32", sum(range(24)), 0)
    ended(process)
    assert int(np.from_dlpack(array).sum()) == sum(range(24)) + 24


def test_a_part_is_opened_as_that_part(spawn: SpawnContext) -> None:
    array = filled((4, 6))
    answer = spawn.Queue()
    process = started(spawn, others.open_and_add, str(array[1:3, ::2].ticket()), answer)
    assert answer.get(timeout=PATIENCE)[:3] == ((2, 3), "int32", 6 + 8 + 10 + 12 + 14 + 16)
    ended(process)
    assert np.from_dlpack(array)[1].tolist() == [7, 7, 9, 9, 11, 11]


def test_a_ticket_of_one_that_has_ended(spawn: SpawnContext) -> None:
    answer = spawn.Queue()
    process = started(spawn, others.give_out_and_end, answer)
    ticket = answer.get(timeout=PATIENCE)
    ended(process)
    with pytest.raises(gpuipc.errors.ExporterGone) as caught:
        gpuipc.open(ticket)
    assert "ask for a new ticket" in str(caught.value)


# ---- what is open, opened again


@pytest.fixture
def given(spawn: SpawnContext) -> Iterator[gpuipc.Ticket]:
    """The ticket of an array of another process, of 16 numbers from 0 on."""
    here, there = spawn.Pipe()
    process = started(spawn, others.give_out, there)
    yield gpuipc.Ticket(received(here))
    here.send("end")
    ended(process)


def test_of_a_part_nobody_says_where_arrays_lie(given: gpuipc.Ticket) -> None:
    whole = gpuipc.open(given)
    part = given.narrow(16, 32)
    with pytest.raises(gpuipc.errors.OutOfRange, match=r"open_buffer\(\)"):
        gpuipc.open(part)
    with gpuipc.open_buffer(part) as buffer:
        assert buffer.attachment is None and struct.unpack("8i", buffer.read()) == tuple(range(4, 12))
    with pytest.raises(gpuipc.errors.OutOfRange, match=r"open_buffer\(\)"):
        gpuipc.open(part)  # of memory that is not open now
    assert isinstance(whole, gpuipc.Array) and isinstance(gpuipc.open(pickle.loads(pickle.dumps(given))), gpuipc.Array)


def test_open_that_refuses_a_part_uses_its_ticket_up(run_python: Run) -> None:
    program = """
import sys, gpuipc
try:
    print(getattr(gpuipc, sys.argv[1])(sys.argv[2]).nbytes)
except gpuipc.GpuipcError as error:
    print(error.name)
"""
    array = filled((4, 6))
    for first, answers in (("open_buffer", ["8", "GPUIPC_ERR_TICKET_USED_UP"]), ("open", ["GPUIPC_ERR_OUT_OF_RANGE", "GPUIPC_ERR_TICKET_USED_UP"])):
        part = str(array.share(one_shot=True).narrow(16, 8))
        assert [run_python(program, call, part).stdout.strip() for call in (first, "open_buffer")] == answers


def test_what_is_open_is_opened_again_as_itself(given: gpuipc.Ticket) -> None:
    first = gpuipc.open_buffer(given)
    again = gpuipc.open_buffer(given, device=0)
    assert again.address == first.address and again.nbytes == first.nbytes
    first.close()
    with pytest.raises(gpuipc.errors.ReleasedError):
        first.read()
    assert struct.unpack("16i", again.read()) == tuple(range(16))
    again.close(stream=1)
    third = gpuipc.open(given)
    assert isinstance(third, gpuipc.Array) and np.from_dlpack(third).tolist() == list(range(16))


def test_what_is_open_twice_is_returned_when_both_have_let_go(given: gpuipc.Ticket) -> None:
    first, again = gpuipc.open(given), gpuipc.open(given)
    assert isinstance(first, gpuipc.Array) and isinstance(again, gpuipc.Array)
    kept = np.from_dlpack(again)
    first.give_back(stream=1)
    assert kept.tolist() == list(range(16))  # it is there still
    with pytest.raises(gpuipc.errors.ReleasedError):
        first.give_back()
    assert gpuipc.Array is type(gpuipc.open(given))


COUNTER = r"""
#include <dlfcn.h>
#include <gpuipc/gpuipc.h>
#include <stdlib.h>
static unsigned calls;
static void *of_library(const char *name) { /* which Python has loaded for itself alone */
    return dlsym(dlopen(getenv("COUNTED_LIBRARY"), RTLD_NOLOAD | RTLD_LAZY), name);
}
gpuipc_status gpuipc_buffer_open(gpuipc_context *context, const gpuipc_ticket *ticket,
                                 const gpuipc_open_config *config, gpuipc_buffer **out_buffer) {
    gpuipc_status (*open)(gpuipc_context *, const gpuipc_ticket *, const gpuipc_open_config *, gpuipc_buffer **);
    *(void **)&open = of_library("gpuipc_buffer_open");
    calls++;
    return open(context, ticket, config, out_buffer);
}
gpuipc_status gpuipc_buffer_drop(gpuipc_buffer *buffer) {
    gpuipc_status (*drop)(gpuipc_buffer *);
    *(void **)&drop = of_library("gpuipc_buffer_drop");
    calls++;
    return drop(buffer);
}
unsigned counted_calls(void);
unsigned counted_calls(void) { return calls; }
"""


def test_opening_again_makes_no_call_of_the_library(given: gpuipc.Ticket, run_python: Run, tmp_path: Path) -> None:
    source, library = tmp_path / "counter.c", tmp_path / "counter.so"
    source.write_text(COUNTER)
    flags = ["-Wall", "-Werror", "-shared", "-fPIC", "-I", gpuipc.get_include()]
    subprocess.run(["cc", *flags, "-o", str(library), str(source)], check=True)
    run_python(
        "import ctypes, sys, gpuipc\n"
        "counted = ctypes.CDLL(sys.argv[2]).counted_calls\n"
        "kept = gpuipc.open(sys.argv[1])\n"
        "assert counted() == 1\n"
        "for i in range(100): gpuipc.open(sys.argv[1]); gpuipc.open_buffer(sys.argv[1], device=0)\n"
        "assert counted() == 1, counted()\n"
        "del kept\n"
        "assert counted() == 2, counted()\n"
        "gpuipc.open(sys.argv[1])\n"
        "assert counted() == 4, counted()\n",
        str(given), str(library), LD_PRELOAD=str(library), COUNTED_LIBRARY=gpuipc.get_library(),
    )  # fmt: skip


# ---- arrays through queues


def test_arrays_go_through_a_queue(spawn: SpawnContext) -> None:
    arrays, answer = spawn.Queue(), spawn.Queue()
    process = started(spawn, others.receive_and_add, arrays, answer)
    array = filled((8, 8))
    for part in (array, array[2:4], array[:, ::3], array[4:5, 1:2]):
        expected = (part.shape, int(np.from_dlpack(part).sum()))
        arrays.put(part)
        assert answer.get(timeout=PATIENCE) == expected
    arrays.put(None)
    ended(process)
    assert int(np.from_dlpack(array).sum()) == sum(range(64)) + 64 + 16 + 24 + 1


def test_the_sender_may_let_go_at_once(spawn: SpawnContext) -> None:
    arrays, answer = spawn.Queue(), spawn.Queue()
    process = started(spawn, others.receive_and_add, arrays, answer)
    for i in range(8):
        array = filled(16)
        arrays.put(array)
        del array
    for i in range(8):
        assert answer.get(timeout=PATIENCE)[1] == sum(range(16))
    arrays.put(None)
    ended(process)


def test_what_was_let_go_of_is_freed_when_it_has_come_back(spawn: SpawnContext) -> None:
    """3 of 4 GiB, three times: the second and the third find room only if the one before has been freed."""
    arrays, answer = spawn.Queue(), spawn.Queue()
    process = started(spawn, others.name_shape, arrays, answer)
    before = gpuipc.lingering()  # of other tests
    for i in range(3):
        array = gpuipc.empty((3 << 30) + i, "int8", device=1)
        arrays.put(array)
        assert answer.get(timeout=PATIENCE) == (array.nbytes,)
        del array
        deadline = time.monotonic() + PATIENCE
        while gpuipc.lingering() > before:
            assert time.monotonic() < deadline
    arrays.put(None)
    ended(process)


def test_a_forked_child_leaves_what_its_parent_gave_out(run_python: Run) -> None:
    run_python(
        "import os, pickle, gpuipc, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "array, other = gpuipc.empty(16, 'int8'), gpuipc.empty(16, 'int8')\n"
        "kept = pickle.dumps(array), pickle.dumps(other)\n"
        "del array\n"
        "assert gpuipc.lingering() == 1\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    assert gpuipc.lingering() == 0\n"
        "    del other\n"
        "    while gpuipc.lingering() > 0: pass\n"
        "    os._exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "assert gpuipc.lingering() == 1 and pickle.loads(kept[0]).shape == (16,)\n"
    )


def test_one_thread_looks_after_all_hand_overs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpuipc.config, "orphan_seconds", 0.01)
    before, threads, seen = gpuipc.lingering(), set(os.listdir("/proc/self/task")), set()
    for _ in range(20):
        array = filled(16)
        pickle.dumps(array)
        del array
        deadline = time.monotonic() + PATIENCE
        while gpuipc.lingering() > before:
            seen.update(os.listdir("/proc/self/task"))
            assert time.monotonic() < deadline
    assert len(seen - threads) < 10  # the driver has some of its own


def test_what_nobody_unpickled_yet_is_kept(spawn: SpawnContext) -> None:
    array = filled(16)
    pickles = [pickle.dumps(array) for _ in range(2)]
    del array
    gc.collect()
    arrays, answer = spawn.Queue(), spawn.Queue()
    process = started(spawn, others.unpickle_and_add, arrays, answer)
    for i, each in enumerate(pickles):
        arrays.put(each)
        assert answer.get(timeout=PATIENCE) == sum(range(16)) + 16 * i
    arrays.put(pickles[0])  # once more, where it was opened before: the memory may be gone by now
    assert answer.get(timeout=PATIENCE) in (sum(range(16)) + 32, "TicketRevoked", "TicketError")
    arrays.put(None)
    ended(process)


def test_what_came_is_passed_on(spawn: SpawnContext) -> None:
    first, second, answer = spawn.Queue(), spawn.Queue(), spawn.Queue()
    between = started(spawn, others.pass_on, first, second)
    last = started(spawn, others.receive_and_add, second, answer)
    array = filled(16)
    first.put(array[4:8])
    assert answer.get(timeout=PATIENCE) == ((4,), 4 + 5 + 6 + 7)
    first.put(None)
    second.put(None)
    ended(between)
    ended(last)


@pytest.fixture
def late(spawn: SpawnContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A process whose streams begin each piece of work late: what it is told to send, by which transport and how late
    in milliseconds."""
    begun = []

    def begin(milliseconds: int, transport: str, as_ticket: bool, values: list[int]) -> Any:
        here, there = spawn.Pipe()
        with monkeypatch.context() as patch:
            patch.setenv("GPUIPC_EMULATED_MACHINE", f"stream-delay-ms={milliseconds}")
            begun.append((started(spawn, others.fill_and_send, transport, as_ticket, values, there), here))
        return here

    yield begin
    for process, _ in begun:
        process.kill()
        process.join()


@pytest.mark.parametrize("transport", ["vmm", "host"])
def test_who_unpickles_waits_for_contents_that_are_not_there_yet(late: Any, transport: str) -> None:
    """Of one memory, again and again: each hand-over has a point of its own."""
    pipe = late(100, transport, False, [1, 2, 3])
    for value in (1, 2, 3):
        array = pickle.loads(received(pipe))
        if transport == "host":
            assert set(np.from_dlpack(array).tolist()) == {value}
        else:
            assert set(array.buffer.read()) == {value}
        pipe.send("next")


def test_no_tensor_is_made_of_what_another_thread_closes_meanwhile(late: Any) -> None:
    """Who makes one waits for the contents without the GIL: time enough to close the memory."""
    array = pickle.loads(received(late(300, "host", False, [1])))
    begins = threading.Event()

    def close() -> None:
        begins.wait(PATIENCE)
        array.buffer.close()

    thread = threading.Thread(target=close)
    thread.start()
    with pytest.raises(gpuipc.errors.ReleasedError):
        begins.set()
        np.from_dlpack(array)
    thread.join(PATIENCE)


def test_a_stream_waits_for_contents_that_are_not_there_yet(late: Any) -> None:
    pipe = late(300, "vmm", False, [7])
    array = pickle.loads(received(pipe))
    copied = gpuipc.create(array.nbytes)
    array.__dlpack__(stream=1)  # the default stream waits, and not this thread
    array.buffer.copy_to(copied, stream=1)
    assert set(copied.read()) == {7}
    assert array.__cuda_array_interface__["stream"] is None


def test_a_ticket_whose_contents_are_not_there_yet(late: Any) -> None:
    ticket = received(late(300, "vmm", True, [9]))
    with pytest.raises(gpuipc.errors.Timeout):
        gpuipc.open(ticket, timeout=0.01)
    array = gpuipc.open(ticket, wait=False)
    assert isinstance(array, gpuipc.Array) and not array.buffer.is_ready
    with pytest.raises(gpuipc.errors.Timeout):
        array.buffer.await_ready(0.001)
    array.buffer.await_ready(PATIENCE)
    assert array.buffer.is_ready and set(array.buffer.read()) == {9}


def test_contents_that_never_come_are_lost(late: Any) -> None:
    pipe = late(60_000, "vmm", True, [9])
    array = gpuipc.open(received(pipe), wait=False)
    assert isinstance(array, gpuipc.Array)
    pipe.send("end")
    with pytest.raises(gpuipc.errors.LostError):
        array.buffer.await_ready(PATIENCE)
    assert array.buffer.is_lost
    with pytest.raises(gpuipc.errors.LostError):
        array.__dlpack__()


def test_pickled_within_one_process() -> None:
    array = filled(16)
    again = pickle.loads(pickle.dumps(array))
    np.from_dlpack(again)[3] = 99
    assert np.from_dlpack(array)[3] == 99
    assert len(pickle.dumps(array)) < 250


TICKET = slice(8, 72)
"""Where it is among the bytes that a pickle has of an Array."""


def parcel_of(array: gpuipc.Array) -> tuple[Any, bytes]:
    function, (parcel,) = cast(Any, array.__reduce__())
    return function, parcel


def test_what_is_read_in_its_own_process_is_back_at_once() -> None:
    before = gpuipc.lingering()
    array = filled(16)
    text = pickle.dumps(array)
    with pytest.raises(TimeoutError):
        array.await_returns(0)
    there = pickle.loads(text)
    array.await_returns(0)
    del array
    deadline = time.monotonic() + PATIENCE
    while gpuipc.lingering() > before:
        assert time.monotonic() < deadline
    assert np.from_dlpack(there)[3] == 3


def test_what_is_there_already_is_pickled_without_a_driver(run_python: Run) -> None:
    run_python(
        "import pickle, gpuipc\n"
        "array = gpuipc.empty(16, 'int8')\n"
        "text = pickle.dumps(array.after(-1))\n"
        "assert array.buffer.lent_count == 1 and pickle.loads(text).shape == (16,)\n"
        "assert gpuipc._native.pack([array], -1)\n"
        "try: pickle.dumps(array)\n"
        "except gpuipc.errors.DriverError as error: assert error.native_call == 'cuStreamIsCapturing', error\n"
        "else: raise SystemExit('no error')",
        GPUIPC_EMULATED_FAIL="cuStreamIsCapturing:*=999",
    )


def test_what_is_there_already_goes_through_a_queue(spawn: SpawnContext) -> None:
    arrays, answer = spawn.Queue(), spawn.Queue()
    process = started(spawn, others.receive_and_add, arrays, answer)
    array = filled(16)
    for i in range(3):
        arrays.put(array.after(-1))
        assert answer.get(timeout=PATIENCE) == ((16,), sum(range(16)) + 16 * i)
    arrays.put(None)
    ended(process)
    array.await_returns(PATIENCE)


def test_more_arrays_out_than_are_counted(run_python: Run) -> None:
    run_python(
        "import pickle, gpuipc\n"
        "array = gpuipc.empty(16, 'int8').after(-1)\n"
        "texts = [pickle.dumps(array) for _ in range(2048)]\n"
        "assert pickle.loads(texts[-1]).shape == (16,) and array.buffer.lent_count == 2047\n"
    )


def test_one_pickle_share_for_an_allocation() -> None:
    array = filled(16)
    assert parcel_of(array)[1][TICKET] == parcel_of(array[2:4])[1][TICKET]


def test_several_arrays_in_one(spawn: SpawnContext) -> None:
    parcels, answer = spawn.Queue(), spawn.Queue()
    process = started(spawn, others.unpack_and_add, parcels, answer)
    one, other = filled((4, 4)), filled(8)
    parts = [one[1:2], other, one[:, 2:3], one]
    text = _native.pack(parts)
    assert len(text) < len(parts) * 48 + 2 * 80 + 8
    for _ in range(2):  # each time with a point and a loan of its own
        expected = [(part.shape, int(np.from_dlpack(part).sum())) for part in parts]
        parcels.put(_native.pack(parts))
        assert answer.get(timeout=PATIENCE) == expected
    parcels.put(_native.pack([]))
    assert answer.get(timeout=PATIENCE) == []
    parcels.put(None)
    ended(process)
    assert int(np.from_dlpack(other).sum()) == sum(range(8)) + 2 * 8


def test_what_is_not_packed() -> None:
    with pytest.raises(TypeError):
        _native.pack([filled(4), 5])  # type: ignore[list-item]
    closed = filled(4)
    closed.close()
    with pytest.raises(gpuipc.errors.ReleasedError):
        _native.pack([filled(4), closed])


def test_an_orphan_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpuipc.config, "orphan_seconds", 0.05)
    before = gpuipc.lingering()
    array = filled(16)
    text = pickle.dumps(array)
    del array
    deadline = time.monotonic() + PATIENCE
    while gpuipc.lingering() > before:
        assert time.monotonic() < deadline
    with pytest.raises(gpuipc.errors.TicketExpired):
        pickle.loads(text)


def test_unpickling_opens_for_the_device_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    array = gpuipc.empty(16, "int8", device=0)
    text = pickle.dumps(array)
    monkeypatch.setattr(gpuipc.config, "open_device", 1)
    assert pickle.loads(text).access_device == 1


def test_a_damaged_pickle_is_refused() -> None:
    function, parcel = parcel_of(filled(4))
    with pytest.raises(gpuipc.errors.TicketError):
        function(parcel[:8] + bytes(64) + parcel[72:])
    for damage in (b"", parcel[:7], parcel[:-1], b"\x02" + parcel[1:], _native.pack([]), bytes(200)):
        with pytest.raises(ValueError):
            function(damage)
    with pytest.raises(ValueError, match="name memory"):
        _native.unpack(parcel[:88] + b"\x01" + parcel[89:])


def test_a_pickle_that_reaches_beyond_is_refused() -> None:
    function, parcel = parcel_of(filled(4))
    start = parcel[:88]
    kind = parcel[92:96]

    def of(offset: int, *numbers: int, dimensions: int = 1) -> bytes:
        head = struct.pack("<HBB", 0, dimensions, len(numbers) > dimensions) + kind
        return start + head + struct.pack(f"<Q{len(numbers)}q", offset, *numbers)

    assert function(of(0, 4)).shape == (4,) and function(of(4, 0)).shape == (0,)
    for beyond in (of(8, 4), of(0, 5), of(0, 2, 4), of(0, 1 << 61), of(0, -1), of(1 << 40, 0), of(0, *[1] * 9, dimensions=9)):
        with pytest.raises(ValueError):
            function(beyond)


def test_who_unpickles_waits_for_the_stream_that_is_named(spawn: SpawnContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that do not wait for the default one, of which pickling knows nothing by itself."""
    monkeypatch.setenv("GPUIPC_EMULATED_MACHINE", "stream-delay-ms=200")
    here, there = spawn.Pipe()
    process = started(spawn, others.fill_on_a_stream_and_send, [1, 2, 3], there)
    for value in (1, 2, 3):
        array = received(here)
        assert set(array.buffer.read()) == {value}
        here.send("next")
    ended(process)


def test_after_a_stream() -> None:
    array = filled(16).after(1)
    assert array[2:4].shape == (2,)
    assert pickle.loads(pickle.dumps(array)).shape == array.after(None).shape
    with pytest.raises(TypeError, match="stream"):
        array.after("no stream")
    opened = gpuipc.open(array.ticket())
    assert isinstance(opened, gpuipc.Array)
    pickle.dumps(opened)
    with pytest.raises(ValueError, match="default stream"):
        pickle.dumps(opened.after(4711))


# ---- the end of things


def test_a_deleter_runs_on_a_thread_of_c(spawn: SpawnContext) -> None:
    array = gpuipc.empty(16, "int8")
    here, there = spawn.Pipe()
    process = started(spawn, others.hold_until_told, str(array.ticket()), there)
    assert received(here) == "holding"
    with pytest.raises(gpuipc.errors.Timeout):
        array.buffer.await_returns(0.05)
    assert array.buffer.lent_count == 1
    (holder,) = gpuipc.Context.default().holders(array.ticket())
    assert holder.process_id == process.pid and holder.is_running and holder.openings == 1
    here.send("let go")
    assert received(here) == "gone"
    array.buffer.await_returns(PATIENCE)
    here.send("end")
    ended(process)


def test_a_process_that_is_killed_returns_what_it_had(spawn: SpawnContext) -> None:
    array = gpuipc.empty(16, "int8")
    here, there = spawn.Pipe()
    process = started(spawn, others.hold_until_told, str(array.ticket()), there)
    assert received(here) == "holding"
    process.kill()
    array.buffer.await_returns(PATIENCE)


def test_deleters_run_after_python_has_ended(run_python: Run) -> None:
    """By atexit of C, which comes after the interpreter's end."""
    run_python(
        "import ctypes, gpuipc, numpy, others\n"
        "kept = gpuipc.empty(16, 'int8')\n"
        "numpy_kept = numpy.from_dlpack(gpuipc.empty(16, 'int8', transport='host'))\n"
        "wrapped = gpuipc.wrap((kept.address, 16))\n"
        "owned = gpuipc.wrap(gpuipc.empty(16, 'int8'))\n"
        "c = ctypes.CDLL(None)\n"
        "for array in (kept, wrapped, owned):\n"
        "    tensor = others.take(array)\n"
        "    assert getattr(c, '__cxa_atexit')(ctypes.c_void_p(tensor.contents.deleter), tensor, None) == 0\n"
        "ticket = kept.ticket()\n"
        "import sys; sys.kept = kept, owned\n"
    )


def test_a_process_ends_with_everything_open(run_python: Run) -> None:
    run_python(
        "import gpuipc\n"
        "buffer = gpuipc.create(64); buffer.fill(1)\n"
        "array = gpuipc.empty(64, 'int8'); ticket = array.ticket(); again = gpuipc.open(ticket, wait=False)\n"
        "context = gpuipc.Context(); other = gpuipc.empty(4, 'int8', context=context); other.ticket()\n"
    )
    assert not [name for name in os.listdir(os.environ["GPUIPC_RUNTIME_DIR"]) if "never" in name]


def test_a_process_ends_while_memory_lingers(run_python: Run) -> None:
    """What is pickled and gone is looked after by a thread, which lets go of objects of Python."""
    run_python(
        "import ctypes, pickle, gpuipc\n"
        "class Kept:\n"
        "    def __init__(self): self.array = gpuipc.empty(64, 'int8')\n"
        "    def __dlpack_device__(self): return self.array.__dlpack_device__()\n"
        "    def __dlpack__(self, **options): return self.array.__dlpack__(**options)\n"
        "arrays = [gpuipc.wrap(Kept()) for _ in range(20)]\n"
        "for i, array in enumerate(arrays):\n"
        "    array.share(expires=0.001 * (i + 1)); pickle.dumps(gpuipc.empty(64, 'int8'))\n"
        "del arrays, array\n"
        "assert gpuipc.lingering() >= 20\n"
    )


# ---- Ctrl-C


def check_interrupted(here: Any, process: Any) -> None:
    assert received(here) == "waiting"
    os.kill(process.pid, signal.SIGINT)
    assert received(here) == "interrupted"
    assert received(here) == "usable"
    ended(process)


def test_ctrl_c_while_waiting_for_returns(spawn: SpawnContext) -> None:
    here, there = spawn.Pipe()
    process = started(spawn, others.wait_for_returns, there)
    opened = gpuipc.open(received(here))
    here.send("open")
    check_interrupted(here, process)
    del opened


@pytest.mark.parametrize("as_ticket", [True, False])
def test_ctrl_c_while_waiting_for_contents(spawn: SpawnContext, late: Any, as_ticket: bool) -> None:
    here, there = spawn.Pipe()
    sent = received(late(60_000, "vmm", as_ticket, [1]))
    check_interrupted(here, started(spawn, others.wait_for_contents, sent, there))
