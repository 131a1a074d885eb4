# SPDX-License-Identifier: MIT
"""Single calls, in Python and in C, in the same two processes."""

import copyreg
import ctypes
import os
import pickle
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from handover_pair import Channels, Plan, clock

LIBRARY = "GPUIPC_BENCH_CALLS"
"""The environment variable that names what build() made."""


def build(folder: str) -> None:
    """For all processes begun from now on. Without a compiler there are no figures of C."""
    import gpuipc

    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return
    made = os.path.join(folder, "calls.so")
    source = Path(__file__).with_suffix(".c")
    library = gpuipc.get_library()
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-I", gpuipc.get_include(), "-o", made, str(source), library,
         f"-Wl,-rpath,{os.path.dirname(library)}"],
        check=True,
    )  # fmt: skip
    os.environ[LIBRARY] = made


class C:
    """That, in one of the two processes."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.environ[LIBRARY])
        for name in ("lend", "lend_ready", "open", "dlpack", "clock"):
            getattr(self.library, "calls_time_" + name).restype = ctypes.c_double

    def share(self, on_host: bool) -> bytes:
        ticket = ctypes.create_string_buffer(64)
        assert self.library.calls_share(int(on_host), ticket) == 0
        return ticket.raw

    def open(self, ticket: bytes, device: int) -> float:
        begin = clock()
        status = self.library.calls_open(ticket, device)
        assert status == 0, f"the ticket of C does not open: {status}"
        return clock() - begin

    def time(self, name: str, *arguments: Any, rounds: int = 200, repeats: int = 25) -> float:
        call = getattr(self.library, "calls_time_" + name)
        taken = [call(*arguments, rounds) for _ in range(repeats)]
        assert min(taken) >= 0, name
        return statistics.median(taken)


def timed(call: Any, rounds: int = 200, repeats: int = 25) -> float:
    """Nanoseconds a call, without the loop."""

    def loop(of: Any) -> float:
        taken = []
        for _ in range(repeats):
            begin = clock()
            for _ in range(rounds):
                of()
            taken.append((clock() - begin) / rounds)
        return statistics.median(taken)

    return loop(call) - loop(lambda: None)


def _rebuilt(text: bytes) -> None: ...


FEW = 10
"""What is pickled here nobody reads, so that it stays lent. All of it leaves room for what is handed over afterwards: a
context has 2,047 loans, and who finds none waits."""


class Trivial:
    """As an Array is pickled, by a function and one string of bytes, which are there already."""

    reduced = _rebuilt, (bytes(112),)


copyreg.pickle(Trivial, lambda trivial: trivial.reduced)  # type: ignore[arg-type, return-value]


def measured(calls: dict[str, Any]) -> dict[str, float]:
    """What each of them gives; one that fails costs itself alone."""
    rows = {}
    for name, call in calls.items():
        try:
            rows[name] = call()
        except Exception as error:
            print(f"{name}: {error!r}", file=sys.stderr, flush=True)
    return rows


def of_owner(plan: Plan, channels: Channels, system: Any) -> dict[str, float]:
    link = channels.link
    array = system._new(1 << 18)
    c = C() if LIBRARY in os.environ else None
    link.send("calls")
    link.send((str(array.ticket()), c.share(plan.on_host) if c else None, [pickle.dumps(array) for _ in range(200)]))
    rows: dict[str, float] = link.recv()
    if isinstance(rows, str):
        raise RuntimeError("the receiver: " + rows)
    trivial, ready = Trivial(), array.after(-1)
    calls = {
        "pickle.dumps(array)": lambda: timed(lambda: pickle.dumps(array), FEW),
        "pickle.dumps(ready)": lambda: timed(lambda: pickle.dumps(ready), FEW),
        "pickle.dumps, its floor": lambda: timed(lambda: pickle.dumps(trivial)),
    }
    if c:
        calls["C: lend"] = lambda: c.time("lend", rounds=40)
        calls["C: lend_ready"] = lambda: c.time("lend_ready", rounds=40)
    return rows | measured(calls)


def of_user(plan: Plan, channels: Channels, user: Any) -> None:
    import gpuipc

    ticket, c_ticket, pickles = channels.link.recv()
    ticket = gpuipc.Ticket(ticket)
    device = None if plan.on_host else plan.user
    kept = gpuipc.open(ticket, device=device)
    stream = getattr(user.library, "stream", None)
    calls = {
        "open again, Array": lambda: timed(lambda: gpuipc.open(ticket, device=device)),
        "open again, Buffer": lambda: timed(lambda: gpuipc.open_buffer(ticket, device=device)),
        "__dlpack__()": lambda: timed(lambda: kept.__dlpack__(stream=stream)),
        "__dlpack__(), version 1": lambda: timed(lambda: kept.__dlpack__(stream=stream, max_version=(1, 0))),
        "from_dlpack(array)": lambda: timed(lambda: user.library.of(kept)),
        "pickle.loads, opened again": lambda: loads(pickles),
        "the clock": lambda: timed(clock),
    }
    if not plan.on_host:
        torch = user.library.torch
        calls["torch.from_dlpack(array)"] = lambda: timed(lambda: torch.from_dlpack(kept))
        if plan.user == plan.owner:  # from the address PyTorch takes the memory for the owner's device, and copies it there
            calls["torch.as_tensor(array)"] = lambda: timed(lambda: torch.as_tensor(kept, device="cuda"))
        calls["int(tensor[0])"] = lambda t=user.library.of(kept): timed(lambda: int(t[0]), 50)
    if c_ticket is not None:
        calls |= calls_of_c(c_ticket, plan.user)
    channels.link.send(measured(calls))


def calls_of_c(ticket: bytes, device: int) -> dict[str, Any]:
    c = C()
    return {
        "C: the clock": lambda: c.time("clock"),
        "C: open the first time": lambda: c.open(ticket, device),
        "C: open again": lambda: c.time("open", ticket, device),
        "C: dlpack": lambda: c.time("dlpack"),
    }


def loads(pickles: list[bytes]) -> float:
    kept, taken = pickle.loads(pickles[0]), []
    for each in pickles[1:]:
        begin = clock()
        array = pickle.loads(each)
        taken.append(clock() - begin)
        del array
    return statistics.median(taken)
