# SPDX-License-Identifier: MIT
"""Settings of the whole process, for all of its threads. Assign to them: ``gpuipc.config.open_device = 1``. A name that
there is not, and a value that makes no sense, is refused."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from operator import index
from types import ModuleType
from typing import Any

from gpuipc._devices import number as _number

orphan_seconds: float = 600.0
"""How long the memory of a pickled Array, whose process has let go of it, is kept for the process that has yet to unpickle
it."""

room_seconds: float = 30.0
"""How long handing tensors over waits while as many are out as there may be (2,047 loans of a context), before it raises
errors.LimitError."""

keep_segments_seconds: float = 0.25
"""How long the memory of another process's gpuipc.torch.MemPool stays open after the last tensor of it is gone. The next
tensor is mostly in the same memory, and opens several times sooner then. The other process gets freed memory back so much
later. 0: not at all."""

max_connections_per_user: int = 0
"""How many processes of one user may have tickets and pickles of this process open. 0: the library's default. Contexts that
have a limit of their own do not use it. Set it before the first ticket or pickle of the default context."""


class OpenDevice:
    """What gpuipc.config.open_device was when it was read."""

    __slots__ = ("_device",)

    def __init__(self, device: int | None) -> None:
        self._device = device

    def get(self) -> int | None:
        """The number of the GPU, or None."""
        return self._device

    def set(self, device: object) -> None:
        """As assigning to gpuipc.config.open_device."""
        setattr(sys.modules[__name__], "open_device", device)

    def __eq__(self, other: object) -> bool:
        return self._device == (other._device if isinstance(other, OpenDevice) else other)

    def __hash__(self) -> int:
        return hash(self._device)

    def __bool__(self) -> bool:
        return self._device is not None

    def __repr__(self) -> str:
        return repr(self._device)


open_device: Any
"""The GPU for which unpickling opens memory: its number, 'cuda:1' or a torch.device. None: the GPU that owns the memory.
What is read has get(), which answers the number or None."""

_device: int | None = None
_UNSAID = object()
_in_block: ContextVar[object] = ContextVar("gpuipc.config.opening_for", default=_UNSAID)


def _opening() -> int | None:
    """For which GPU unpickling opens memory here and now. (The compiled module asks.)"""
    said = _in_block.get()
    return _device if said is _UNSAID else said  # type: ignore[return-value]


@contextmanager
def opening_for(device: object) -> Iterator[None]:
    """Within `with`, and in this thread or task alone, unpickling opens memory for this GPU; None: for the one that owns it.
    For programs with a thread for each GPU."""
    token = _in_block.set(_device_or_none(device))
    try:
        yield
    finally:
        _in_block.reset(token)


def _device_or_none(device: object) -> int | None:
    if isinstance(device, OpenDevice):
        return device.get()
    if device is None:
        return None
    found = _number(device)
    if found < 0:
        raise ValueError("a device is a number from 0 on, or None: the GPU that owns the memory")
    return found


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise ValueError("a time is a number of seconds, from 0 on")
    return seconds


def _seconds_above_0(value: Any) -> float:
    seconds = _seconds(value)
    if seconds == 0:
        raise ValueError("orphan_seconds is above 0, or no pickle could be read in time")
    return seconds


def _limit(value: Any) -> int:
    limit = index(value)
    if not 0 <= limit < 2**32:
        raise ValueError("max_connections_per_user is from 1 on, or 0: the library's default")
    from gpuipc import _native

    _native.set_max_connections_per_user(limit)
    return limit


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "orphan_seconds": _seconds_above_0,
    "room_seconds": _seconds,
    "keep_segments_seconds": _seconds,
    "max_connections_per_user": _limit,
    "open_device": _device_or_none,
}


class _Config(ModuleType):
    @property
    def open_device(self) -> OpenDevice:
        return OpenDevice(_device)

    def __setattr__(self, name: str, value: Any) -> None:
        global _device
        if name == "open_device":
            _device = _device_or_none(value)
        elif name in _CHECKS:
            super().__setattr__(name, _CHECKS[name](value))
        elif name.startswith("__"):  # Python's own
            super().__setattr__(name, value)
        else:
            near = get_close_matches(name, _CHECKS, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(_CHECKS)}"
            raise AttributeError(f"gpuipc.config has no setting '{name}'; {hint}", name=name, obj=self)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a setting is not deleted: assign to gpuipc.config.{name}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return sorted([*_CHECKS, "OpenDevice", "opening_for", *(name for name in vars(self) if name[:2] == "__")])


sys.modules[__name__].__class__ = _Config
