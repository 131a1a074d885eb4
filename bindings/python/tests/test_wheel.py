# SPDX-License-Identifier: MIT
"""What is installed: these files and no others, and nothing in them that ties them to the machine that built them."""

import importlib.metadata
import re
import subprocess
from pathlib import Path

import pytest
from conftest import Run

import gpuipc

PACKAGE = Path(gpuipc.__file__).parent
SHARED = "gpuipc/lib/libgpuipc.so." + ".".join(gpuipc.version().split(".")[:2])

# What the wheel must hold, beside the headers and the package's own files, which are looked up in the sources.
BINARIES = {
    SHARED,
    "gpuipc/_native*.so",
    "gpuipc/bin/gpuipc-selftest",
    "gpuipc/lib/libgpuipc-emulated-cuda.so",
    "gpuipc/lib/libgpuipc-emulated-nvml.so",
    "gpuipc/lib/libgpuipc-preload.so",
    "gpuipc/lib/libgpuipc_torch.so",
}
TEXTS = {
    "gpuipc/_native.pyi",
    "gpuipc/cmake/gpuipcConfig.cmake",
    "gpuipc/cmake/gpuipcConfigVersion.cmake",
    "gpuipc/cmake/gpuipcTargets-*.cmake",
    "gpuipc/cmake/gpuipcTargets.cmake",
    "gpuipc/include/gpuipc_torch.h",
}
DIST_INFO = {"METADATA", "RECORD", "WHEEL", "licenses/LICENSE"} | {
    f"licenses/licenses/{name}.txt" for name in ("cJSON", "Mini-XML", "nanobind", "robin-map")
}
# In a wheel that auditwheel has repaired: what the tool links that has no static library.
COPIED = re.compile(r"gpuipc\.libs/lib(cjson|mxml)-[0-9a-f]+\.so[.0-9]*|sboms/auditwheel\.cdx\.json")
WRITTEN_BY_PIP = {"INSTALLER", "REQUESTED", "direct_url.json"}
TOOL = "gpuipc-selftest"
OF_THE_TOOL = re.compile(r"lib(cjson|mxml)(-[0-9a-f]+)?\.so[.0-9]*")
SYSTEM = re.compile(r"(libc|libm|libstdc\+\+|libgcc_s|libdl|libpthread|ld-linux-[a-z0-9-]+)\.so\.\d+")


def installed() -> set[str]:
    files = importlib.metadata.files("gpuipc")
    assert files
    names = {str(file) for file in files if "__pycache__" not in file.parts}
    return {re.sub(r"^(gpuipc/_native)\..*so$", r"\1*.so", re.sub(r"(Targets-)[a-z]+", r"\1*", name)) for name in names}


def sources() -> set[str]:
    """The package's own files and the headers, as they are beside these tests."""
    top = Path(__file__).parent.parent
    library = top / "library" if (top / "library").exists() else top.parent.parent
    files = [file for file in (top / "src").rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    modules = {str(file.relative_to(top / "src")) for file in files}
    headers = {f"gpuipc/include/gpuipc/{file.name}" for file in (library / "include" / "gpuipc").iterdir()}
    assert len(modules) > 3 and len(headers) > 5
    return modules | headers


def binaries() -> list[Path]:
    found = [path for pattern in sorted(BINARIES) for path in PACKAGE.parent.glob(pattern)]
    assert len(found) == len(BINARIES)
    return found


def dynamic_section(path: Path) -> list[tuple[str, str]]:
    text = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\((NEEDED|RPATH|RUNPATH|SONAME)\).*\[(.*)\]", text)


def test_all_files_are_there_and_no_others() -> None:
    dist_info = f"gpuipc-{gpuipc.version()}.dist-info/"
    files = {name.removeprefix(dist_info) for name in installed()} - WRITTEN_BY_PIP
    files -= {name for name in files if COPIED.fullmatch(name)}
    assert files == BINARIES | TEXTS | DIST_INFO | sources()


def test_nothing_else_is_required() -> None:
    required = importlib.metadata.requires("gpuipc") or []
    assert [line for line in required if "extra ==" not in line] == []
    metadata = importlib.metadata.metadata("gpuipc")
    assert metadata["Version"] == gpuipc.version()


def test_licences_of_all_that_is_compiled_in() -> None:
    metadata = importlib.metadata.metadata("gpuipc")
    assert metadata["License-Expression"] == "MIT AND BSD-3-Clause AND Apache-2.0"
    named = metadata.get_all("License-File") or []
    assert {f"licenses/{name}" for name in named} == {name for name in DIST_INFO if name.startswith("licenses/")}


def test_typing_is_declared() -> None:
    assert (PACKAGE / "py.typed").read_bytes() == b""


@pytest.mark.parametrize("path", binaries(), ids=lambda path: path.name)
def test_binary_needs_the_system_alone_and_the_one_library(path: Path) -> None:
    library, allocator = Path(SHARED).name, "libgpuipc_torch.so"
    own, place = set(), ""
    if path.name.startswith("_native"):
        own, place = {library, allocator}, "$ORIGIN/lib"
    elif path.name == allocator:
        own, place = {library}, "$ORIGIN"
    entries = dynamic_section(path)
    needed = {value for name, value in entries if name == "NEEDED"}
    if path.name == TOOL:
        needed = {value for value in needed if not OF_THE_TOOL.fullmatch(value)}
        # Written by auditwheel, whose patchelf makes an RPATH.
        entries = [(name, value) for name, value in entries if (name, value) != ("RPATH", "$ORIGIN/../../gpuipc.libs")]
    assert needed and {name for name in needed - own if not SYSTEM.fullmatch(name)} == set()
    assert own <= needed
    assert [value for name, value in entries if name == "RPATH"] == []
    assert [value for name, value in entries if name == "RUNPATH"] == ([place] if own else [])


def test_the_library_has_the_name_that_is_looked_for() -> None:
    library = Path(gpuipc.get_library())
    assert library == PACKAGE.parent / SHARED
    assert ("SONAME", library.name) in dynamic_section(library)


def test_the_hook_goes_before_programs(run_python: Run) -> None:
    done = run_python("print(open('/proc/self/maps').read())", LD_PRELOAD=gpuipc.get_preload())
    assert gpuipc.get_preload() in done.stdout


def test_selftest_runs_as_a_module(run_python: Run) -> None:
    done = run_python("import runpy, sys; sys.argv = ['gpuipc', '--version']; runpy.run_module('gpuipc')")
    assert gpuipc.version() in done.stdout
