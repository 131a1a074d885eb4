# SPDX-License-Identifier: MIT
"""Many threads use the same objects at once: with a GIL, and in a Python that has none."""

import pickle
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import PATIENCE

import gpuipc

THREADS = 8
ROUNDS = 200


def at_once(call: Callable[[int], object], threads: int = THREADS) -> None:
    """Calls it in so many threads, each with its number, and raises what any of them raised."""
    raised: list[BaseException] = []
    all_are_there = threading.Barrier(threads)

    def run(number: int) -> None:
        try:
            all_are_there.wait(PATIENCE)
            call(number)
        except BaseException as error:
            raised.append(error)

    running = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join(PATIENCE)
        assert not each.is_alive(), "a thread hangs"
    if raised:
        raise raised[0]


def values(array: Any) -> "np.ndarray[tuple[int, ...], np.dtype[np.int32]]":
    return np.from_dlpack(array).view(np.int32)


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="a Python that has always a GIL")
def test_it_needs_no_gil() -> None:
    assert not getattr(sys, "_is_gil_enabled")()


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="a Python that has always a GIL")
def test_one_call_at_a_time() -> None:
    """What would be undone by a thread that comes in between happens once in many runs only: so this looks at the cause."""
    left: list[str] = []
    begins: list[int] = []
    is_inside = threading.Event()

    class Length:
        def __index__(self) -> int:
            is_inside.set()
            end = time.monotonic() + PATIENCE
            while not begins and time.monotonic() < end:  # without a wait, in which it would let others in
                pass
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                pass
            left.append("the first")
            return 1

    def work(number: int) -> None:
        if number == 0:
            gpuipc.empty((Length(),), "int32", transport="host")  # type: ignore[arg-type]  # a number, as Python sees it
        else:
            is_inside.wait(PATIENCE)
            begins.append(number)
            gpuipc.version()
            left.append("the second")

    at_once(work, threads=2)
    assert left == ["the first", "the second"]


def test_one_array_has_one_ticket() -> None:
    """That is made once, whoever asks for it first."""
    for _ in range(20):
        array = gpuipc.empty(64, "int32", transport="host")
        tickets: list[str] = []

        def ask(_: int, of: gpuipc.Array = array, to: list[str] = tickets) -> None:
            to.append(str(of.ticket()))

        at_once(ask)
        assert len(tickets) == THREADS and len(set(tickets)) == 1


def test_parts_of_one_array_have_tickets() -> None:
    """Of a list that all threads write in."""
    array = gpuipc.empty(THREADS * ROUNDS, "int32", transport="host")
    tickets: dict[int, str] = {}

    def work(number: int) -> None:
        for at in range(number, THREADS * ROUNDS, THREADS):
            tickets[at] = str(array[at : at + 1].ticket())

    at_once(work)
    assert len(set(tickets.values())) == THREADS * ROUNDS
    assert all(str(array[at : at + 1].ticket()) == ticket for at, ticket in tickets.items())


def test_everything_at_once() -> None:
    """Each thread makes, shares, pickles and lets go of the same arrays as the others do."""
    shared = gpuipc.empty((THREADS, 16), "int32", transport="host")
    values(shared)[:] = 0

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            own = gpuipc.empty(16, "int32", transport="host")
            values(own)[:] = number
            again = pickle.loads(pickle.dumps(shared))
            row = values(again[number : number + 1])
            row += 1
            opened = gpuipc.open(own.ticket())
            assert isinstance(opened, gpuipc.Array) and int(values(opened).sum()) == 16 * number
            assert shared.shape == (THREADS, 16) and shared.buffer.nbytes == THREADS * 16 * 4

    at_once(work)
    assert (values(shared) == ROUNDS).all()


def test_one_closes_what_others_use() -> None:
    """They have it, or are told that it was closed."""
    for _ in range(50):
        array = gpuipc.empty(16, "int32", transport="host")

        def use(number: int, of: gpuipc.Array = array) -> None:
            for _ in range(10):
                if number == 0:
                    of.buffer.close()
                    return
                try:
                    of.buffer.read(0, 4)
                    of.ticket()
                    of.__dlpack_device__()
                except gpuipc.errors.ReleasedError:
                    return

        at_once(use)


def test_one_channel_of_many_threads() -> None:
    """Each frame is taken by one of the threads, and is whole."""
    channel = gpuipc.Channel(None, 16, "int32", slots=8, max_held=4, transport="host")
    reader = gpuipc.subscribe(channel.ticket(), hold=4)
    seen: list[int] = []
    frames = 400

    def work(number: int) -> None:
        if number == 0:
            for i in range(frames):
                with channel.loan(timeout=PATIENCE) as frame:
                    values(frame)[:] = i
            return
        while len(seen) < frames:
            try:
                with reader.take(timeout=0.05) as frame:
                    found = values(frame)
                    assert (found == found[0]).all()
                    seen.append(int(found[0]))
            except (gpuipc.errors.Timeout, gpuipc.errors.BusyError):
                continue

    at_once(work, threads=4)
    assert sorted(seen) == list(range(frames))
