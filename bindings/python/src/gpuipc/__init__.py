# SPDX-License-Identifier: MIT
"""One process uses another process's GPU memory, without copying it.

    array = gpuipc.empty((1024, 1024), "float32", device=0)
    tensor = torch.from_dlpack(array)
    queue.put(array)            # or print(array.ticket())

    array = gpuipc.open(text)   # in another process: the same memory
"""

from pathlib import Path
from typing import Any

from gpuipc import _native, config, errors
from gpuipc._native import (
    Array,
    Buffer,
    Connection,
    Context,
    Device,
    Holder,
    Listener,
    Message,
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
    version,
    wrap,
)
from gpuipc.errors import GpuipcError

__version__ = version()

__all__ = [
    "Array",
    "Buffer",
    "Connection",
    "Context",
    "Device",
    "GpuipcError",
    "Holder",
    "Listener",
    "Message",
    "Ticket",
    "config",
    "connect",
    "create",
    "empty",
    "errors",
    "get_include",
    "get_library",
    "lingering",
    "listen",
    "open",
    "open_buffer",
    "place",
    "share",
    "version",
    "wrap",
]


def _rebuild(*arguments: Any) -> Array:
    """What pickle calls for an Array: pickle finds functions of Python only."""
    return _native.rebuild(*arguments)


def get_include() -> str:
    """The folder of the headers, for extensions of your own in C or C++."""
    return str(Path(__file__).parent / "include")


def get_library() -> str:
    """The shared library that this package uses. An extension uses the same one: two do not know each other's
    memory."""
    (library,) = (Path(__file__).parent / "lib").glob("libgpuipc.so.*")
    return str(library)
