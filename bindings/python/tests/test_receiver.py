# SPDX-License-Identifier: MIT
"""A process that only receives keeps nothing of what it has dropped."""

import time
from multiprocessing.context import SpawnContext
from pathlib import Path

import others
import pytest
from conftest import PATIENCE

COUNT = 300
# More than what is dropped and not freed yet, and less than a mapping for each array.
MOST = 200
# The C library's own.
FEW = 16

_MAPS = Path("/proc/self/maps")


def mappings() -> int:
    with _MAPS.open() as lines:
        return sum(1 for _ in lines)


@pytest.mark.skipif(not _MAPS.exists(), reason="counts the mappings that Linux shows")
@pytest.mark.parametrize("transport", ["host", "legacy"])
def test_a_receiver_does_not_grow(spawn: SpawnContext, transport: str) -> None:
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=others.send_arrays, args=(theirs, transport, COUNT), daemon=True)
    process.start()
    at_first = 0
    for number in range(COUNT):
        assert ours.poll(PATIENCE), "the other process says nothing"
        array = ours.recv()
        assert int.from_bytes(array.buffer.read(nbytes=4), "little") == number
        del array
        ours.send(number)
        at_first = mappings() if number == 20 else at_first
    assert mappings() < at_first + MOST
    process.join(PATIENCE)
    assert process.exitcode == 0
    # Idle: a thread of the library frees the rest.
    deadline = time.monotonic() + PATIENCE
    while mappings() > at_first + FEW and time.monotonic() < deadline:
        time.sleep(0.01)
    assert mappings() <= at_first + FEW
