# SPDX-License-Identifier: MIT
"""The programs in examples/torch print what their first lines state. Only ci/python --all builds and runs nine_tensors."""

import ast
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # an older PyTorch warns of a newer NumPy
    import torch

from conftest import PATIENCE

EXAMPLES = Path(__file__).parents[4] / "examples" / "torch"
PYTHON = [sys.executable, "-W", "ignore"]
TORCHRUN = [*PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


def stated_lines(program: Path) -> list[str]:
    """Those after "It prints", in the first lines of the program."""
    text = ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or ""
    return [line.strip() for line in text.partition("It prints")[2].splitlines() if line.startswith("    ")]


def started(command: list[str], **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def printed(process: "subprocess.Popen[str]") -> list[str]:
    with process:
        try:
            lines, wrong = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, wrong
    return lines.splitlines()


@pytest.mark.parametrize("name", ["kv_blocks.py", "weight_update.py"])
def test_an_example(name: str) -> None:
    stated = stated_lines(EXAMPLES / name)
    assert len(stated) > 3
    assert printed(started([*PYTHON, str(EXAMPLES / name)])) == stated


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def of_rank(rank: int, count: int, port: int) -> dict[str, str]:
    """The environment variables that torchrun sets."""
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count), "RANK": str(rank)}


def test_two_ranks() -> None:
    program = EXAMPLES / "two_ranks.py"
    if torch.__version__ >= (2,):
        found = printed(started([*TORCHRUN, str(program)]))
    else:  # on Python 3.11 the torchrun of PyTorch 1.13 ends with an error: these are the variables that it sets
        port = free_port()
        ranks = [started([*PYTHON, str(program)], **of_rank(rank, 2, port)) for rank in range(2)]
        found = [line for each in ranks for line in printed(each)]
    stated = stated_lines(program)
    assert len(stated) == 4
    assert sorted(found) == sorted(stated)


def test_one_rank_is_refused() -> None:
    with started([*PYTHON, str(EXAMPLES / "two_ranks.py")], **of_rank(0, 1, free_port())) as process:
        _, wrong = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "for two ranks" in wrong


def test_there_are_no_others() -> None:
    names = {each.name for each in EXAMPLES.iterdir() if each.name[0] not in "._"}
    assert names == {"kv_blocks.py", "nine_tensors", "two_ranks.py", "weight_update.py"}
