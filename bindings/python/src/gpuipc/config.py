# SPDX-License-Identifier: MIT
"""Settings of the whole process, for all of its threads. Assign to them: ``gpuipc.config.open_device = 1``. Unknown names
raise AttributeError, invalid values ValueError or TypeError."""

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
"""How long the memory of a pickled Array, whose process has released it, is kept for the process that has yet to unpickle
it."""

room_seconds: float = 30.0
"""How long handing tensors over waits while as many are out as there may be (2,047 loans of a context), before it raises
errors.LimitError."""

keep_segments_seconds: float = 0.25
"""How long the memory of another process's gpuipc.torch.MemPool stays open after the last tensor of it is gone. The next
tensor is mostly in the same memory, and opens several times sooner then. The other process gets freed memory back so much
later. 0: not at all."""

max_connections_per_user: int = 0
"""How many processes of one user may have tickets and pickles of this process open. 0 = default (1,024). Contexts that
have a limit of their own do not use it. Set it before the first ticket or pickle of the default context."""


class OpenDevice:
    """A snapshot of gpuipc.config.open_device. It equals its number, or None."""

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


open_device: Any = None
"""The GPU for which unpickling opens memory: its number, 'cuda:1' or a torch.device. None: the GPU that owns the memory.
Reading it returns an OpenDevice; its get() returns the number or None. So compare it with ``== None``, not with ``is None``.
Deleting it sets it to None."""

_UNSAID = object()
_in_block: ContextVar[object] = ContextVar("gpuipc.config.opening_for", default=_UNSAID)


def _opening() -> int | None:
    """For which GPU unpickling opens memory here and now. (The compiled module asks.)"""
    said = _in_block.get()
    return open_device if said is _UNSAID else said  # type: ignore[return-value]


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
        raise ValueError(f"a device must be None (the GPU that owns the memory) or a number, 0 or more, not {device!r}")
    return found


def _seconds(name: str, value: Any) -> float:
    wrong = f"{name} must be a finite number of seconds, 0 or more, not {value!r}"
    try:
        seconds = float(value)
    except TypeError:
        raise TypeError(wrong) from None
    except (ValueError, OverflowError):
        raise ValueError(wrong) from None
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise ValueError(wrong)
    return seconds


def _seconds_above_0(name: str, value: Any) -> float:
    seconds = _seconds(name, value)
    if seconds == 0:
        raise ValueError(f"{name} must be above 0, not {value!r}: no pickle could be read in time")
    return seconds


def _limit(name: str, value: Any) -> int:
    wrong = f"{name} must be an integer from 0 (the default) to {2**32 - 1}, not {value!r}"
    try:
        limit = index(value)
    except TypeError:
        raise TypeError(wrong) from None
    if not 0 <= limit < 2**32:
        raise ValueError(wrong)
    from gpuipc import _native

    _native.set_max_connections_per_user(limit)
    return limit


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "orphan_seconds": _seconds_above_0,
    "room_seconds": _seconds,
    "keep_segments_seconds": _seconds,
    "max_connections_per_user": _limit,
    "open_device": lambda _, device: _device_or_none(device),
}


class _Config(ModuleType):
    @property
    def open_device(self) -> OpenDevice:
        return OpenDevice(vars(self)["open_device"])

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _CHECKS:
            vars(self)[name] = _CHECKS[name](name, value)
        elif name.startswith("__") and name.endswith("__"):  # Python's own
            super().__setattr__(name, value)
        else:
            near = get_close_matches(name, _CHECKS, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(_CHECKS)}"
            raise AttributeError(f"gpuipc.config has no setting '{name}'; {hint}", name=name, obj=self)

    def __delattr__(self, name: str) -> None:
        if name == "open_device":
            vars(self)[name] = None
        else:
            raise AttributeError(f"a setting is not deleted: assign to gpuipc.config.{name}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return sorted([*_CHECKS, "OpenDevice", "opening_for", *(name for name in vars(self) if name[:2] == "__")])


sys.modules[__name__].__class__ = _Config
