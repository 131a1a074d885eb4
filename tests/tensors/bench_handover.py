#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long a tensor takes from one process to another until it can be used there: gpuipc beside torch.multiprocessing and
cuda.core, in turns, and what the bare channels take.

usage: bench_handover.py [--quick | --smoke] [--json FILE]

Six pairs of processes run a block of rounds each in turn, so that whatever changes on the machine changes all of them.
With two GPUs the memory is on the first, and its receiver on either. Without a GPU (--smoke) the host's memory and the
emulated driver stand for them: that shows that the program runs, and its figures mean nothing. Contents are read in every
round, and a wrong one ends the program.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import socket
import statistics
import sys
import tempfile
import time
from typing import Any

import handover_calls
import handover_pair
from handover_pair import Block, Channels, Plan, Result
from handover_report import table

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Pair:
    """A pair of processes, which lives as long as it answers."""

    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        link, pipe, orders = context.Pipe(), context.Pipe(), context.Pipe()
        sockets = socket.socketpair()
        queue = context.Queue()
        ours = Channels(link[0], queue, pipe[0], sockets[0])
        theirs = Channels(link[1], queue, pipe[1], sockets[1])
        self.plan, self.failure, self.orders = plan, "", orders[0]
        self.queue = queue  # its end here would take its semaphores away
        self.name = plan.system + (", peer" if plan.user != plan.owner else "")
        self.processes = [
            context.Process(target=handover_pair.own, args=(plan, ours, orders[1]), daemon=True),
            context.Process(target=handover_pair.use, args=(plan, theirs), daemon=True),
        ]
        for process in self.processes:
            process.start()
        # So that who waits for one that has ended is told.
        for end in (link[0], link[1], pipe[0], pipe[1], orders[1]):
            end.close()
        for each in sockets:
            each.close()

    def answer(self, patience: float) -> Any:
        if self.failure:
            return None
        try:
            if not self.orders.poll(patience):
                self._fail(f"no answer in {patience:.0f} s")
                return None
            answer = self.orders.recv()
        except (EOFError, OSError):
            self._fail("its process has ended")
            return None
        if isinstance(answer, str) and answer != "ready":
            self._fail(answer)
            return None
        return answer

    def ask(self, order: Any, patience: float) -> Any:
        if self.failure:
            return None
        self.orders.send(order)
        return self.answer(patience)

    def _fail(self, why: str) -> None:
        self.failure = why
        print(f"{self.name}: {why}", file=sys.stderr, flush=True)
        self.end()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


def kinds_of(plan: Plan, sizes: list[int], has_torch: bool) -> list[tuple[str, str, int]]:
    """What a pair measures: case, channel and size."""
    if plan.system == "bare":
        return [("bare", channel, 0) for channel in ("queue", "pipe", "socket")]
    if plan.system == "cuda.core":
        cases = [("new", "queue"), ("known pool", "queue"), ("known pool", "pipe")]
        return [(*each, size) for size in sizes for each in cases]
    kinds: list[tuple[str, str, int]] = []
    channels = ["queue", "pipe"]
    cases_of = ["new", "part", "again"]
    if plan.system == "gpuipc":
        channels += ["connection", "connection, pickled"]
        cases_of += ["ready"] + (["wrapped"] if has_torch else [])
    for size in sizes:
        for case in cases_of:
            for channel in channels:
                if not (case in ("ready", "wrapped") and channel.startswith("connection")):
                    kinds.append((case, channel, size))
        if plan.system == "gpuipc":
            kinds += [(case, "channel", size) for case in handover_pair.FRAMES]
    kinds.append(("state", "queue", 0))
    if plan.system == "gpuipc":
        kinds.append(("state, new", "queue", 0))
    if plan.system == "gpuipc" and handover_pair.has_pools(plan):
        kinds += [(case, channel, size) for size in sizes for case in ("pool", "pool, again") for channel in channels[:2]]
        kinds += [(case, "queue", 0) for case in ("bundle", "bundle, new")]
    return kinds


def plans(smoke: bool) -> list[Plan]:
    name = f"bench-handover-{os.getpid()}"
    if smoke:
        return [Plan("bare"), Plan("gpuipc", on_host=True, name=name)]
    found = [Plan("bare"), Plan("torch"), Plan("gpuipc", name=name)]
    with contextlib.suppress(ImportError):
        import cuda.core  # noqa: F401

        found.append(Plan("cuda.core"))
    import torch

    if torch.cuda.device_count() > 1:
        found += [Plan("torch", user=1), Plan("gpuipc", user=1, name=name + "-peer")]
    return found


def measure(pairs: list[Pair], arguments: argparse.Namespace, end: float) -> dict[str, Result]:
    """All kinds of all pairs, a block of each in turn, again and again."""
    if arguments.smoke:
        passes, rounds, sizes = 1, 3, [KIB, MIB]
    elif arguments.quick:
        passes, rounds, sizes = 8, 25, [64 * MIB]
    else:
        passes, rounds, sizes = 8, 40, [KIB, 64 * MIB, GIB]
    kinds = {pair.name: kinds_of(pair.plan, sizes, not arguments.smoke) for pair in pairs}
    results: dict[str, Result] = {}
    total = passes * sum(len(each) for each in kinds.values())
    done = 0
    for _ in range(passes):
        for at in range(max(len(each) for each in kinds.values())):
            for pair in pairs:
                if at >= len(kinds[pair.name]):
                    continue
                # What is left of the time is for all that is left, so that slow kinds cost others nothing.
                seconds = max(0.02, 0.9 * (end - time.monotonic()) / (total - done))
                done += 1
                case, channel, size = kinds[pair.name][at]
                known = results.setdefault(f"{pair.name}|{case}|{channel}|{size}", Result())
                if known.failure or (known.times and time.monotonic() > end):
                    continue
                result = pair.ask(Block(case, channel, size, rounds, seconds), 30)
                if result is None:
                    continue
                known.times += result.times
                known.given += result.given
                known.taken += result.taken
                known.reads += result.reads
                known.texts += result.texts
                known.failure = result.failure
    return results


def percentile(of: list[int], share: float) -> float:
    return sorted(of)[min(len(of) - 1, int(share * len(of)))]


def summary(results: dict[str, Result]) -> dict[str, Any]:
    """In microseconds."""
    rows = {}
    for key, each in results.items():
        if each.times:
            median = {name: round(statistics.median(getattr(each, name)) / 1e3, 2)
                      for name in ("times", "given", "taken", "reads", "texts") if getattr(each, name)}  # fmt: skip
            rows[key] = {**median, "p99": round(percentile(each.times, 0.99) / 1e3, 2), "rounds": len(each.times)}
    return rows


def machine() -> dict[str, Any]:
    import gpuipc

    context = gpuipc.Context.default()
    about: dict[str, Any] = {
        "gpuipc": gpuipc.version(),
        "driver": context.driver_version,
        "emulated": context.is_emulated,
        "devices": [each.name for each in context.devices],
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    with contextlib.suppress(ImportError):
        import torch

        about["torch"] = torch.__version__
    return about


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one size and few rounds; at most 40 s")
    parser.add_argument("--smoke", action="store_true", help="without a GPU, to see that it runs")
    parser.add_argument("--json", help="writes all figures there")
    parser.add_argument("--seconds", type=float, help="how long in all; 120, with --quick 34")
    arguments = parser.parse_args()
    begin = time.monotonic()
    seconds = arguments.seconds or (34 if arguments.quick else 20 if arguments.smoke else 120)
    if arguments.smoke:
        os.environ["GPUIPC_CUDA_DRIVER"] = "emulated"
    with tempfile.TemporaryDirectory(prefix="gpuipc-bench-") as folder:
        handover_calls.build(folder)
        pairs = [Pair(plan) for plan in plans(arguments.smoke)]
        for pair in pairs:
            pair.answer(60)
        started = time.monotonic() - begin
        calls = {pair.name: pair.ask("calls", 60) for pair in pairs if pair.plan.system == "gpuipc"}
        results = measure(pairs, arguments, begin + seconds)
        failures = {pair.name: pair.failure for pair in pairs if pair.failure}
        failures |= {key: each.failure for key, each in results.items() if each.failure}
        for pair in pairs:
            pair.end()
    figures = {
        "machine": machine(),
        "seconds": {"start": round(started, 1), "all": round(time.monotonic() - begin, 1)},
        "calls_ns": calls,
        "rows_us": summary(results),
        "failures": failures,
    }
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    print(table(figures))
    return 1 if any(name.startswith("gpuipc") for name in failures) else 0


if __name__ == "__main__":
    sys.exit(main())
