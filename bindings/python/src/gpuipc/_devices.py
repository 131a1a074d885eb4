# SPDX-License-Identifier: MIT
"""GPUs, as programs name them."""

import sys
from typing import Any

_FORMS = "a device is its number, 'cuda:1', or a device of PyTorch, CuPy or gpuipc"


def _current() -> int:
    """PyTorch's current device in this thread; 0 where PyTorch has not begun to use CUDA."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.current_device())
    return 0


def _named(kind: str, index: int | None) -> int:
    if kind == "cpu":
        raise ValueError("device 'cpu' is no GPU: for memory of the host use transport='host'")
    if kind != "cuda":
        raise ValueError(f"there is no device '{kind}': {_FORMS}")
    return _current() if index is None else index


def _read(text: str) -> int:
    kind, colon, index = text.partition(":")
    if colon and not (index.isascii() and index.isdigit()):
        raise ValueError(f"there is no device '{text}': {_FORMS}")
    return _named(kind, int(index) if colon else None)


def number(device: object) -> int:
    """The number of the GPU that is meant. 'cuda', and a torch.device without an index, is PyTorch's current one, or 0."""
    if isinstance(device, str):
        return _read(device)
    if hasattr(device, "__index__") and not isinstance(device, bool):
        return int(device.__index__())
    kind = getattr(device, "type", None)
    if isinstance(kind, str):  # PyTorch's
        return _named(kind, getattr(device, "index", None))
    for name in ("number", "id"):  # gpuipc's, CuPy's
        found = getattr(device, name, None)
        if isinstance(found, int) and getattr(device, "platform", "gpu") in ("gpu", "cuda"):
            return found
    raise TypeError(f"{_FORMS}, not {device!r}")
