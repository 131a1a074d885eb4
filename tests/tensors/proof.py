# SPDX-License-Identifier: MIT
"""What the programs of this folder have in common: lines that say PASS or FAIL, and processes that are waited for."""

import contextlib
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE = 60  # seconds until another process counts as hung
spawn = multiprocessing.get_context("spawn")
_failed = False


@contextlib.contextmanager
def case(name: str) -> Iterator[None]:
    """One line for what happens in it."""
    global _failed
    begin = time.perf_counter()
    try:
        yield
        print(f"PASS {name} ({time.perf_counter() - begin:.2f} s)", flush=True)
    except Exception:
        _failed = True
        print(f"FAIL {name}", flush=True)
        traceback.print_exc()


def _call(what: Callable[..., Any], answers: Any, arguments: Any) -> None:
    try:
        answers.put(("answer", what(*arguments)))
    except BaseException:
        answers.put(("failure", traceback.format_exc()))


class Other:
    """A function that runs in another process."""

    def __init__(self, what: Callable[..., Any], *arguments: Any, **environment: str):
        before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        self._answers = spawn.Queue()
        self._process = spawn.Process(target=_call, args=(what, self._answers, arguments), daemon=True)
        self._process.start()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        self.pid = self._process.pid

    def answer(self) -> Any:
        """What it returned; raises what it raised."""
        kind, value = self._answers.get(timeout=PATIENCE)
        self._process.join(PATIENCE)
        if kind == "failure":
            raise RuntimeError(f"in the other process:\n{value}")
        return value


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.001)


def end() -> None:
    sys.exit(1 if _failed else 0)
