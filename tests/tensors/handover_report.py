# SPDX-License-Identifier: MIT
"""The figures of bench_handover.py as tables of Markdown, with what was to be reached."""

from typing import Any

from handover_pair import FRAMES, text_channel

NAMES = {0: "", 1 << 10: "1 KiB", 1 << 20: "1 MiB", 1 << 26: "64 MiB", 1 << 30: "1 GiB"}


class Figures:
    def __init__(self, figures: dict[str, Any]) -> None:
        self.rows, self.calls = figures["rows_us"], figures["calls_ns"]
        self.sizes = sorted({int(key.split("|")[3]) for key in self.rows} - {0})

    def median(self, pair: str, case: str, channel: str, size: int, of: str = "times") -> float | None:
        row = self.rows.get(f"{pair}|{case}|{channel}|{size}")
        return None if row is None or of not in row else float(row[of])

    def text(self, pair: str, case: str, channel: str, size: int) -> float | None:
        """In the same rounds."""
        return self.median(pair, case, channel, size, "texts")

    def bare(self, channel: str) -> float | None:
        return self.median("bare", "bare", channel, 0)


def row(what: str, value: float | None, unit: str, of: float | None, target: float, faster: bool) -> str:
    """A ratio with its target: at most so many times a floor, or at least so many times faster than another."""
    if value is None or of is None:
        return f"| {what} | | | | not measured |"
    ratio = of / value if faster else value / of
    reached = ratio >= target if faster else ratio <= target
    text = f"{ratio:.2f}× {'faster' if faster else 'the floor'}, {'at least' if faster else 'at most'} {target:g}×"
    return f"| {what} | {value:.1f} {unit} | {of:.1f} {unit} | {text} | {'reached' if reached else 'not reached'} |"


def limit(what: str, value: float | None, unit: str, most: float) -> str:
    if value is None:
        return f"| {what} | | | | not measured |"
    return f"| {what} | {value:.1f} {unit} | | at most {most:g} {unit} | {'reached' if value <= most else 'not reached'} |"


MOST = {"queue": 1.5, "pipe": 2.5, "connection": 2.5, "connection, pickled": 2.5}
"""How many times what the channel alone takes."""


def floors(of: Figures, what: str, value: float | None, channel: str, most: float, text: float | None) -> list[str]:
    """Beside a text in the same rounds, and beside a channel between two processes that do nothing else."""
    if value is None:
        return []
    under = text_channel(channel)
    return [
        row(f"{what}, {channel} / a text by {under}, in between", value, "us", text, most, False),
        row(f"{what}, {channel} / bare {under}, alone", value, "us", of.bare(under), most, False),
    ]


def targets(of: Figures) -> list[str]:
    lines = ["| what | gpuipc | beside it | ratio, and target | |", "|---|---|---|---|---|"]
    for where in ("", ", peer"):
        gpuipc, torch = "gpuipc" + where, "torch" + where
        if not any(key.startswith(gpuipc + "|") for key in of.rows):
            continue
        for size in of.sizes:
            name = f"{NAMES[size]}{where}"
            for case in ("part", "again", "ready"):
                what = f"{name}, known ({case})"
                for channel, most in MOST.items():
                    value = of.median(gpuipc, case, channel, size)
                    lines += floors(of, what, value, channel, most, of.text(gpuipc, case, channel, size))
                for channel in ("queue", "pipe"):
                    other = of.median(torch, "again" if case == "ready" else case, channel, size)
                    value = of.median(gpuipc, case, channel, size)
                    lines.append(row(f"{what}, {channel} / torch", value, "us", other, 3, True))
            for case in FRAMES:
                what = f"{name}, {case}, by a channel"
                value = of.median(gpuipc, case, "channel", size)
                lines.append(limit(what, value, "us", 15))
                text = of.text(gpuipc, case, "channel", size)
                lines.append(row(f"{what} / a text by socket, in between", value, "us", text, 1.5, False))
                for channel in ("queue", "pipe"):
                    other = of.median(torch, "again", channel, size)
                    lines.append(row(f"{what} / torch, known, {channel}", value, "us", other, 10, True))
            other = of.median(torch, "new", "queue", size)
            value = of.median(gpuipc, "wrapped", "queue", size)
            lines.append(row(f"{name}, torch's own memory, new, queue / torch", value, "us", other, 1, True))
            value = of.median(gpuipc, "pool", "queue", size)
            lines.append(row(f"{name}, new from the pool, queue / torch", value, "us", other, 3, True))
            for channel in ("queue", "pipe"):
                value = of.median(gpuipc, "pool, again", channel, size)
                text = of.text(gpuipc, "pool, again", channel, size)
                lines += floors(of, f"{name}, tensor of the pool, known", value, channel, MOST[channel], text)
        other = of.median(torch, "state", "queue", 0)
        for case, target in (("bundle", 15), ("bundle, new", 8)):
            value = of.median(gpuipc, case, "queue", 0)
            lines.append(row(f"1,000 tensors{where}, {case} / torch", value, "us", other, target, True))
        value = of.median(gpuipc, "state", "queue", 0)
        lines.append(row(f"1,000 tensors{where}, known / torch", value, "us", other, 15, True))
        value = of.median(gpuipc, "state, new", "queue", 0)
        lines.append(row(f"1,000 tensors{where}, new arena / torch", value, "us", other, 8, True))
    return lines


LIMITS = {
    "open again, Array": 400, "__dlpack__()": 300, "__dlpack__(), version 1": 300,
    "pickle.dumps(array)": 1000, "pickle.dumps(ready)": 1000,
}  # fmt: skip


def calls(of: Figures) -> list[str]:
    pairs = [pair for pair in of.calls if of.calls[pair]]
    names = list(dict.fromkeys(name for pair in pairs for name in of.calls[pair]))
    lines = ["| one call, ns | " + " | ".join(pairs) + " | target |", "|---" * (len(pairs) + 2) + "|"]
    for name in names:
        values = [of.calls[pair].get(name) for pair in pairs]
        limit = LIMITS.get(name)
        known = [value for value in values if value is not None]
        verdict = "" if limit is None else f"{limit}: {'reached' if max(known) <= limit else 'not reached'}"
        texts = ["" if value is None else f"{value:.0f}" for value in values]
        lines.append(f"| {name} | " + " | ".join(texts) + f" | {verdict} |")
    return lines


def everything(of: Figures) -> list[str]:
    names = ["pair", "case", "channel", "size", "median, us", "p99, us"]
    names += ["until given", "until taken out", "reading one", "a text in between", "rounds"]
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for key, each in sorted(of.rows.items()):
        pair, case, channel, size = key.split("|")
        lines.append(
            f"| {pair} | {case} | {channel} | {NAMES.get(int(size), size)} | {each['times']:.1f} | {each['p99']:.1f} "
            f"| {each['given']:.1f} | {each['taken']:.1f} | {each['reads']:.1f} | {each.get('texts', '')} | {each['rounds']} |"
        )
    return lines


def table(figures: dict[str, Any]) -> str:
    of = Figures(figures)
    head = [", ".join(f"{key} {value}" for key, value in figures["machine"].items())]
    if figures["machine"]["emulated"]:
        head.append("Emulated driver: these figures mean nothing.")
    head += [f"{key}: not measured further: {why.strip().splitlines()[-1]}" for key, why in figures["failures"].items()]
    head.append(f"{figures['seconds']['all']} s, of them {figures['seconds']['start']} s until all pairs were ready")
    return "\n".join(head + [""] + targets(of) + [""] + calls(of) + [""] + everything(of))
