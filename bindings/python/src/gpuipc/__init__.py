# SPDX-License-Identifier: MIT
"""One process uses another process's GPU memory, without copying it.

    array = gpuipc.empty((1024, 1024), "float32", device=0)
    tensor = torch.from_dlpack(array)
    queue.put(array)            # or print(array.ticket())

    array = gpuipc.open(text)   # in another process: the same memory

What holds for all of it:

- Sizes and offsets are in bytes, strides in elements, times in seconds. `timeout=None` waits without end.
- Every call may be made on any thread. A Connection sends for one thread and receives for one at a time.
- Calls that wait do so without the GIL, and Ctrl-C ends them. Which ones wait is said there.
- `stream` is None (the default stream), a handle, or a stream object of PyTorch, CuPy, Numba or cuda.core.
- Failures of the library are `gpuipc.GpuipcError`, of a kind in `gpuipc.errors`. What makes no sense as an argument is
  a TypeError or a ValueError.
- An object keeps its memory until it is closed or gone. Tensors made of it keep it, too.
"""

import copyreg
from pathlib import Path

from gpuipc import _copies, _native, config, errors
from gpuipc._native import (
    Array,
    Buffer,
    Channel,
    Connection,
    Context,
    Device,
    Frame,
    Holder,
    Listener,
    Loan,
    Manifest,
    Message,
    Peer,
    Reader,
    Returns,
    Server,
    Subscription,
    Ticket,
    connect,
    create,
    empty,
    lingering,
    listen,
    open,
    open_buffer,
    place,
    share,
    subscribe,
    version,
    wrap,
)
from gpuipc.arena import Arena
from gpuipc.errors import GpuipcError
from gpuipc.machine import (
    Link,
    Measurement,
    Memory,
    Selection,
    Transport,
    classify,
    devices,
    measure,
    select,
    topology,
    transports,
)

__version__ = version()

__all__ = [
    "Arena",
    "Array",
    "Buffer",
    "Channel",
    "Connection",
    "Context",
    "Device",
    "Frame",
    "GpuipcError",
    "Holder",
    "Link",
    "Listener",
    "Loan",
    "Manifest",
    "Measurement",
    "Memory",
    "Message",
    "Peer",
    "Reader",
    "Returns",
    "Selection",
    "Server",
    "Subscription",
    "Ticket",
    "Transport",
    "classify",
    "config",
    "connect",
    "create",
    "devices",
    "empty",
    "errors",
    "get_cmake_dir",
    "get_include",
    "get_library",
    "get_preload",
    "is_available",
    "lingering",
    "listen",
    "measure",
    "open",
    "open_buffer",
    "place",
    "select",
    "share",
    "subscribe",
    "topology",
    "transports",
    "version",
    "wrap",
]


def _rebuild(text: bytes) -> Array:
    """What pickle calls for an Array: pickle finds functions of Python only."""
    return _native.rebuild(text)


# Found as gpuipc.gpuipc: pickle writes a name that comes twice once, and has one thing less to remember.
gpuipc = _rebuild
_rebuild.__qualname__ = _rebuild.__module__

# Sooner found than a method, and by multiprocessing's pickler, too.
copyreg.pickle(Array, _native.reduce)  # type: ignore[arg-type]


def is_available() -> bool:
    """Returns True if a driver (also the emulated one) and a GPU whose memory can be shared are available.

    Never raises an exception. Starts CUDA: do not fork afterwards. Context.default() raises the reason.
    """
    try:
        return any(device.can_share for device in devices())
    except Exception:
        return False


def get_include() -> str:
    """The folder of the C and C++ headers, for extensions of your own."""
    return str(Path(__file__).parent / "include")


def get_library() -> str:
    """The path of the shared library that this package uses, for extensions of your own.

    Link that one. Two copies of the library in a process do not know each other's memory.
    """
    return _copies.ours()


def get_cmake_dir() -> str:
    """The folder that CMake finds this package's headers and library by.

    Give it as ``-Dgpuipc_DIR=...``; then ``find_package(gpuipc)`` has the target ``gpuipc::gpuipc``.
    """
    return str(Path(__file__).parent / "cmake")


def get_preload() -> str:
    """The path of the hook, for LD_PRELOAD: it gives programs that know nothing of gpuipc memory that can be shared.

    Raises FileNotFoundError where there is none: it is for Linux on x86-64.
    """
    path = Path(__file__).parent / "lib" / "libgpuipc-preload.so"
    if not path.exists():
        raise FileNotFoundError("this build of gpuipc has no hook, which is for Linux on x86-64")
    return str(path)


_copies.warn()
