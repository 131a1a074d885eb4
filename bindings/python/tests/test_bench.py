# SPDX-License-Identifier: MIT
"""The measuring program runs, reads what it handed over, and says what it found."""

import json
import os
import subprocess
import sys
from pathlib import Path

from conftest import PATIENCE

PROGRAM = Path(__file__).parents[3] / "tests" / "tensors" / "bench_handover.py"


def test_the_measuring_program(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--smoke", "--json", str(figures)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(figures.read_text())
    assert found["failures"] == {} and found["machine"]["emulated"]
    rows = {tuple(key.split("|")[:3]): row for key, row in found["rows_us"].items()}
    assert {("bare", "bare", each) for each in ("queue", "pipe", "socket")} < set(rows)
    for case in ("new", "part", "again"):
        for channel in ("queue", "pipe", "connection", "connection, pickled"):
            assert rows["gpuipc", case, channel]["rounds"] >= 3
    for channel in ("queue", "pipe"):
        assert rows["gpuipc", "ready", channel]["rounds"] >= 3
    for case in ("frame", "frame, looking"):
        assert rows["gpuipc", case, "channel"]["rounds"] >= 3
    assert {("gpuipc", "state", "queue"), ("gpuipc", "state, new", "queue")} < set(rows)
    assert found["calls_ns"]["gpuipc"]["open again, Array"] > 0
    assert found["calls_ns"]["gpuipc"]["pickle.dumps(ready)"] > 0
    assert "Emulated driver: these figures mean nothing." in done.stdout
    assert "not measured" in done.stdout  # there is no PyTorch beside it
