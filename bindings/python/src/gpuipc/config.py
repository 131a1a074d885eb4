# SPDX-License-Identifier: MIT
"""What may be chosen for the whole process."""

from contextvars import ContextVar

orphan_seconds: float = 600.0
"""How long the memory of a pickled Array, whose process has let go of it, is kept for whoever has yet to unpickle it."""

room_seconds: float = 30.0
"""How long handing tensors over waits while as many are out as there may be (2,047 loans of a context), before it raises
errors.LimitError."""

keep_segments_seconds: float = 0.25
"""How long the memory of another process's gpuipc.torch.MemPool stays open after a tensor of it has come, when nobody has one
any more. The next tensor is mostly in the same memory, and is there several times sooner then. What the other process frees
meanwhile it gets back so much later. 0: not at all."""

open_device: ContextVar[int | None] = ContextVar("gpuipc.config.open_device", default=None)
"""The GPU for which unpickling opens memory; None: the one that owns it."""
