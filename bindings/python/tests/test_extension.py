# SPDX-License-Identifier: MIT
"""What others write in C or C++ is built against the package, and uses the very library that the package has loaded."""

import subprocess
from pathlib import Path

import pytest
from conftest import Run

import gpuipc

SOURCE = r"""
#include <gpuipc/gpuipc.h>
int extension_device_count(void);
int extension_device_count(void) {
    gpuipc_context *context = NULL;
    uint32_t count = 0;
    if (gpuipc_version() != GPUIPC_VERSION || gpuipc_context_create(NULL, &context) != GPUIPC_OK) {
        return -1;
    }
    gpuipc_status status = gpuipc_device_count(context, &count);
    gpuipc_context_destroy(context);
    return status == GPUIPC_OK ? (int)count : -1;
}
"""

PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(extension LANGUAGES C)
find_package(gpuipc {version} CONFIG REQUIRED)
add_library(extension MODULE extension.c)
target_link_libraries(extension PRIVATE gpuipc::gpuipc)
"""

# The package, and beside it the extension, which is not told where the library is.
USE = r"""
import ctypes, sys, gpuipc
extension = ctypes.CDLL(sys.argv[1])
assert extension.extension_device_count() == gpuipc.Context.default().device_count > 0
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "/libgpuipc.so" in line}
assert loaded == {gpuipc.get_library()}, loaded
"""


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "extension.c"
    path.write_text(SOURCE)
    return path


def test_built_by_a_compiler(source: Path, run_python: Run) -> None:
    library = source.with_suffix(".so")
    flags = ["-Wall", "-Werror", "-shared", "-fPIC", "-I", gpuipc.get_include()]
    run("cc", *flags, "-o", library, source, gpuipc.get_library())
    run_python(USE, str(library))


def test_built_by_cmake(source: Path, run_python: Run) -> None:
    folder = source.parent
    (folder / "CMakeLists.txt").write_text(PROJECT.format(version=gpuipc.version()))
    run("cmake", "-S", folder, "-B", folder / "build", f"-Dgpuipc_DIR={gpuipc.get_cmake_dir()}")
    run("cmake", "--build", folder / "build")
    run_python(USE, str(folder / "build" / "libextension.so"))


def test_another_version_is_not_found(source: Path) -> None:
    major, minor, _ = gpuipc.version().split(".")
    (source.parent / "CMakeLists.txt").write_text(PROJECT.format(version=f"{major}.{int(minor) + 1}"))
    with pytest.raises(AssertionError, match=r"compatible\s+with requested version"):
        run("cmake", "-S", source.parent, "-B", source.parent / "build", f"-Dgpuipc_DIR={gpuipc.get_cmake_dir()}")
