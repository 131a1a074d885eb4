# SPDX-License-Identifier: MIT
"""All tests run on the emulated driver, in a runtime directory of their own, which processes begun by them inherit."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.context import SpawnContext
from pathlib import Path

import pytest

os.environ["GPUIPC_CUDA_DRIVER"] = "emulated"
# Not pytest's folder: the paths of sockets are short.
_directory = tempfile.TemporaryDirectory(prefix="gpuipc-py-")
os.chmod(_directory.name, 0o700)
os.environ["GPUIPC_RUNTIME_DIR"] = _directory.name

# How long a test waits for another process before it has failed, in seconds.
PATIENCE = 60


@pytest.fixture
def spawn() -> SpawnContext:
    return multiprocessing.get_context("spawn")


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_python() -> Iterator[Run]:
    """Runs a program in a Python of its own, which must end well and say nothing on stderr."""

    def run(program: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, **environment},
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert (done.returncode, done.stderr) == (0, ""), done
        return done

    yield run
