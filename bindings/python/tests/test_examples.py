# SPDX-License-Identifier: MIT
"""The programs in examples, as they are."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE

SAID = {
    "hand_over.py": [f"the other process found {256 * value}" for value in (1, 2, 3)],
    "weights.py": [f"the reader has 100 arrays, {value * 4}" for value in ("01", "02")],
}


@pytest.mark.parametrize("name", sorted(SAID))
def test_an_example(name: str) -> None:
    program = Path(__file__).parent.parent / "examples" / name
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr, done.stdout.splitlines()) == (0, "", SAID[name])


PAIR = {
    "camera.py": ["all frames for a reader that is active"],
    "model.py": [*(f"picture {i}: (480, 640), brightness {i}" for i in range(1, 6)), "the camera has ended"],
}


def test_a_pair_of_examples() -> None:
    folder = Path(__file__).parent.parent / "examples"
    processes = {
        name: subprocess.Popen(
            [sys.executable, str(folder / name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for name in PAIR
    }
    for name, process in processes.items():
        said, wrong = process.communicate(timeout=PATIENCE)
        assert (process.returncode, wrong, said.splitlines()) == (0, "", PAIR[name])


def test_there_are_no_others() -> None:
    assert {each.name for each in (Path(__file__).parent.parent / "examples").glob("*.py")} == {*SAID, *PAIR}
