# SPDX-License-Identifier: MIT
"""Writes the API reference of the installed package into a folder, of its docstrings.

    python reference.py FOLDER          needs pdoc

What is compiled shows its signatures in the stub alone, so the reference is made of that and of the package's own modules.
A warning of pdoc's is an error.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import gpuipc
from gpuipc import _native

# What the modules of Python ask of the compiled one when they are imported.
ASKED_AT_IMPORT = """
def statuses() -> dict[str, tuple[int, str]]:
    return {statuses!r}
def version() -> str:
    return {version!r}
"""


def make_package(folder: Path) -> None:
    """The package with the stub, made a module, in place of what is compiled."""
    installed = Path(gpuipc.__file__).parent
    package = folder / "gpuipc"
    package.mkdir()
    for module in set(installed.glob("*.py")) - {installed / "__main__.py"}:
        (package / module.name).write_bytes(module.read_bytes())
    stub = (installed / "_native.pyi").read_text(encoding="utf-8")
    asked = ASKED_AT_IMPORT.format(statuses=_native.statuses(), version=_native.version())
    text = "from __future__ import annotations\n" + stub + asked
    (package / "_native.py").write_text(text, encoding="utf-8")


def modules() -> list[str]:
    """What users import. pdoc finds by itself what is named in __all__."""
    names = {file.stem for file in Path(gpuipc.__file__).parent.glob("[!_]*.py")} - set(gpuipc.__all__)
    return ["gpuipc", *(f"gpuipc.{name}" for name in sorted(names))]


def main(destination: str) -> None:
    destination = str(Path(destination).resolve())
    with tempfile.TemporaryDirectory() as folder:
        make_package(Path(folder))
        pdoc = [sys.executable, "-W", "error", "-m", "pdoc", "--no-show-source"]
        command = [*pdoc, "--docformat", "markdown", "-o", destination, *modules()]
        # pdoc finds the package in the folder that it is started in.
        subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
