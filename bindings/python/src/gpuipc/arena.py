# SPDX-License-Identifier: MIT
"""Many named arrays in one buffer: one allocation, one handle, one ticket."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from gpuipc._native import Array, Buffer, Context, Manifest, Ticket, create, place


class Arena(Mapping[str, Array]):
    """Named arrays, side by side in one buffer that is made for them.

        arena = gpuipc.Arena({"weight": ((4096, 4096), "bfloat16"), "bias": (4096, "float32")})
        queue.put(arena)                  # arrives as an Arena
        gpuipc.open(arena.ticket())       # a dict of Arrays

    Each is described by (shape, dtype), or by something that has both, such as a tensor. It begins at a multiple of
    alignment bytes. The other arguments are those of gpuipc.empty().
    """

    def __init__(
        self,
        specs: Mapping[str, Any],
        *,
        alignment: int = 256,
        device: object = 0,
        openers: Iterable[object] | None = None,
        access_devices: Iterable[object] = (),
        transport: str | None = None,
        context: Context | None = None,
    ) -> None:
        manifest = Manifest.arrange(dict(specs), alignment)
        if not len(manifest):
            raise ValueError("an arena has one array at least")
        buffer = create(
            max(manifest.nbytes, 1),
            device=device,
            openers=openers,
            access_devices=access_devices,
            transport=transport,
            context=context,
        )
        self._set(manifest, buffer)

    def _set(self, manifest: Manifest, buffer: Buffer) -> None:
        self.manifest = manifest
        self.buffer = buffer
        self._arrays = manifest.arrays(buffer)

    @classmethod
    def of(cls, buffer: Buffer, manifest: Manifest) -> "Arena":
        """In a buffer that there is already."""
        arena = cls.__new__(cls)
        arena._set(manifest, buffer)
        return arena

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return self.buffer.nbytes

    def ticket(self) -> Ticket:
        """The ticket of all of it, the same each time. It ends with the last object over the memory."""
        return self.manifest.ticket(self.buffer)

    def share(self, **options: Any) -> Ticket:
        """A new ticket, as Buffer.share()."""
        return self.buffer.share(attachment=bytes(self.manifest), **options)

    def await_returns(self, timeout: float | None = None) -> None:
        """As Buffer.await_returns()."""
        self.buffer.await_returns(timeout)

    def cancel_lent(self) -> None:
        """As Buffer.cancel_lent()."""
        self.buffer.cancel_lent()

    def give_back(self, stream: object | None = None) -> None:
        """As Buffer.give_back()."""
        self.buffer.give_back(stream)

    def close(self, stream: object | None = None) -> None:
        """Closes the buffer, for all arrays in it."""
        self.buffer.close(stream)

    def __enter__(self) -> "Arena":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        # As bytes, which say by themselves where and when they are there.
        return _rebuild, (place(self.buffer, self.buffer.nbytes, "uint8"), bytes(self.manifest))

    # It is memory, and equal to itself alone.
    def __eq__(self, other: object) -> bool:
        return True if self is other else NotImplemented

    def __hash__(self) -> int:
        return id(self) >> 4

    def __copy__(self) -> NoReturn:
        raise TypeError("an Arena is memory that others may have: make tensors of its arrays and copy those")

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__copy__()

    def __repr__(self) -> str:
        return (
            f"<gpuipc.Arena of {len(self)} arrays, {self.nbytes} bytes, {self.buffer.transport}, "
            f"device {self.buffer.access_device}>"
        )


def _rebuild(whole: Array, manifest: bytes) -> Arena:
    return Arena.of(whole.buffer, Manifest(manifest, whole.buffer.nbytes))
