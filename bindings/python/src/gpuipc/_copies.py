# SPDX-License-Identifier: MIT
"""The library in this process. There should be one: two do not know each other's memory."""

import os
import re
import warnings
from pathlib import Path

_NAME = re.compile(r"libgpuipc\.so(\.[0-9]+)*$")


def bundled() -> str:
    """That of this package."""
    (library,) = (Path(__file__).parent / "lib").glob("libgpuipc.so.*")
    return str(library)


def loaded() -> list[str]:
    """All that are loaded, by their names, in the order of their addresses. Linux only; elsewhere none."""
    try:
        maps = Path("/proc/self/maps").read_text(errors="surrogateescape")
    except OSError:
        return []
    paths: dict[tuple[str, str], str] = {}
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and _NAME.search(fields[5]):
            paths.setdefault((fields[3], fields[4]), fields[5])  # a file is its device and inode
    return list(paths.values())


def ours() -> str:
    """That which this package uses: its own, unless one of the same name was loaded before."""
    own, there = bundled(), loaded()
    return own if os.path.realpath(own) in there or not there else there[0]


def warn() -> None:
    """Says so where there is another one. That is as it is now: what is loaded later is not seen."""
    there = loaded()
    own = os.path.realpath(bundled()) if there else ""
    others = [path for path in there if path != own]
    if not others:
        return
    if own in there:
        text = f"two copies of the gpuipc library are in this process, {own} and {', '.join(others)}: memory of the one is "
        text += "a stranger's to the other. Let everything use gpuipc.get_library()"
    else:
        text = f"the gpuipc library that was loaded before, {others[0]}, is used in place of the package's own"
    warnings.warn(text, RuntimeWarning, stacklevel=3)
