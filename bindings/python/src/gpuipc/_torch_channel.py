# SPDX-License-Identifier: MIT
"""Channels of tensors: what is loaned and taken is a tensor over a slot, made once for each slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from gpuipc import _native
from gpuipc._devices import number
from gpuipc._torch_streams import start

_from_dlpack: Any = torch._C._from_dlpack
_make_subclass: Any = torch.Tensor._make_subclass
_frame_place = _native.frame_place
_frame_dressed = _native.frame_dressed
_KNOWN_MAX = 256
"""How many tensors are kept: of each slot, for each shape that frames have had."""


# ---- tensors over slots


def _each(tensors: Any) -> Any:
    return tensors.values() if type(tensors) is dict else (tensors,)


def _over(frame: _native.FrameBase) -> Any:
    """New tensors over the slot: one, or several by their names."""
    made: dict[str, Any] = {}
    for name, capsule, kind in _native.frame_capsules(frame):
        each = _from_dlpack(capsule)
        made[name] = each if kind is None else each.view(getattr(torch, kind))
    return made["."] if list(made) == ["."] else made


class _Known:
    """Tensors over one slot, and where they were when they were made."""

    def __init__(self, tensors: Any):
        self.tensors = tensors
        self.places = [(each, each.data_ptr()) for each in _each(tensors) if each.device.type == "cpu"]
        """Of those that can move: none on a GPU, so that nobody asks."""
        self.spare: list[Any] = []
        """The next one that is had, where it was made before."""

    def has_moved(self) -> bool:
        """PyTorch moves what it shares of the CPU's memory into memory of its own (a queue, share_memory_()), and all tensors
        over it: those are not over the slot any more."""
        for each, address in self.places:
            if each.data_ptr() != address:
                return True
        return False

    def bring_back(self, frame: _native.FrameBase) -> None:
        """What was written after they were moved, into the slot."""
        with torch.no_grad():
            for slot, moved in zip(_each(_over(frame)), _each(self.tensors), strict=True):
                slot.copy_(moved)


class _Slots:
    """Tensors over the slots of a channel. Each is made once, since that takes longer than a frame does."""

    def __init__(self, one: Any, several: Any) -> None:
        """What is had of a slot is of the one kind, or of the other where there are several tensors in it."""
        self._one, self._several = one, several
        self._known: dict[int, _Known] = {}
        self.spare: dict[int, list[Any]] = {}
        """Those of the places that need no more than their frame: one tensor, which nobody moves."""
        self.last = [0]
        """The place of a reader's last frame: never the frame, which is given back when nobody has it."""

    def of(self, frame: Any) -> Any:
        """What is had now: a new object, so that nothing that was done to the last one is seen. It keeps the frame. No
        stream is ordered by this: the channel does that."""
        place = _frame_place(frame)
        known = self._known.get(place)
        if known is None or (known.places and known.has_moved()):
            known = self._make(frame, place)
        try:
            made = known.spare.pop()  # one step: another thread may do the same
        except IndexError:
            made = self._new(known)
        made._known = known  # that a loan asks, and a reader's frame does not
        made._frame = frame
        if type(made) is self._several:
            for each in made.values():
                each._known = known
                each._frame = frame
        return made

    def prepare(self) -> None:
        """The next one for the slot that was had last, while nobody waits for it."""
        known = self._known.get(self.last[0])
        if known is not None and not known.spare:
            known.spare.append(self._new(known))

    def _new(self, known: _Known) -> Any:
        if type(known.tensors) is dict:
            return self._several({name: _make_subclass(self._one, each) for name, each in known.tensors.items()})
        return _make_subclass(self._one, known.tensors)

    def _make(self, frame: _native.FrameBase, place: int) -> _Known:
        self._forget(place)
        if len(self._known) >= _KNOWN_MAX:
            for oldest in list(self._known)[: _KNOWN_MAX // 2]:
                self._forget(oldest)
        known = _Known(_over(frame))
        if not known.places and type(known.tensors) is not dict:
            self.spare[place] = known.spare  # before it is known, and may be forgotten
        self._known[place] = known
        return known

    def _forget(self, place: int) -> None:
        self._known.pop(place, None)  # another thread may do the same
        self.spare.pop(place, None)


class _Borrowed:
    """What tensors of frames have in common."""

    # As of a Parameter: what is computed of a frame is an ordinary tensor.
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a frame is memory for a time: clone() it, or give the other process Channel.ticket()")

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("a frame is memory for a time: clone() it")


if TYPE_CHECKING:

    class _Tensor:
        """As much as checkers of types know of a tensor where there is no PyTorch."""

        def __getattr__(self, name: str) -> Any: ...

else:
    _Tensor = torch.Tensor


# ---- the writer


class _Loaned(_Borrowed):
    _frame: _native.Loan
    _known: _Known

    @property
    def header(self) -> bytes:
        """Bytes of your own beside the frame, such as its time: some 380, where it is one tensor."""
        return self._frame.header

    @header.setter
    def header(self, header: bytes) -> None:
        self._frame.header = header

    def publish(self, stream: object | None = None) -> None:
        """All readers see it from now on, and its contents are ready when the stream comes to this. None: the one that
        the loan was made for, or PyTorch's current one. What PyTorch has moved out of the slot meanwhile (share_memory_(), its
        queues) is copied into it."""
        known = self._known
        if known.places and known.has_moved() and not self._frame.is_over:
            known.bring_back(self._frame)
        self._frame.publish(stream)

    def discard(self) -> None:
        """Nobody sees it. Waits for the current stream, which may be filling it."""
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
        self._frame.discard()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        if self._frame.is_over:
            return
        if error[0] is not None:
            self.discard()
            return
        try:
            self.publish()
        except BaseException:
            if not self._frame.is_over:
                self.discard()  # who has the loan still does not keep its slot
            raise


class Loan(_Loaned, _Tensor):
    """A tensor over a slot that is to be filled. With `with` it is published at the end, or discarded when there was an
    exception. What is computed of it is an ordinary tensor."""


class LoanDict(_Loaned, dict[str, Any]):
    """The same of several tensors, by their names."""


class Channel:
    """Frames for other processes: tensors in slots that all have open.

        channel = gpuipc.torch.Channel("frames", like=tensor, slots=4)
        with channel.loan() as frame:
            frame.copy_(tensor)

    like: a tensor whose shape, type and device frames have, or a dict of such; in place of it shape, dtype and device.
    Frames of the CPU are in memory of the host that other processes have open. The other arguments are those of
    gpuipc.Channel.
    """

    def __init__(
        self,
        name: str | None = None,
        like: torch.Tensor | Mapping[str, torch.Tensor] | None = None,
        *,
        shape: Any = None,
        dtype: torch.dtype | None = None,
        device: object | None = None,
        **options: Any,
    ):
        place = _device_of(like, device)
        if place.type == "cpu":
            options.setdefault("transport", "host")
        elif place.type == "cuda":
            options["device"] = number(place)
        else:
            raise TypeError(f"memory of '{place.type}' is not shared here")
        self.native: _native.Channel = _native.Channel(name, shape, dtype, like=_plain(like), **options)
        """The channel below, which knows nothing of PyTorch."""
        self._slots = _Slots(Loan, LoanDict)
        if place.type == "cuda":
            start([options["device"]])

    def loan(
        self,
        like: torch.Tensor | Mapping[str, torch.Tensor] | None = None,
        *,
        shape: Any = None,
        dtype: torch.dtype | None = None,
        stream: object | None = None,
        timeout: float | None = None,
    ) -> Any:
        """A Loan, or a LoanDict of several tensors: for `with`. Waits until readers have given a slot back, for at most
        timeout seconds; the stream waits by itself for those that gave back in the order of theirs. like, or shape and
        dtype: of this frame alone. stream: None: PyTorch's current one; -1: none."""
        loan = self.native.loan(shape if like is None else _plain(like), dtype, stream=stream, timeout=timeout)
        return self._slots.of(loan)

    def ticket(self) -> _native.Ticket:
        """What readers open it by, as long as it is there."""
        return self.native.ticket()

    def readers(self) -> list[_native.Reader]:
        """Those that read, and the last of those that did."""
        return self.native.readers()

    def close(self) -> None:
        """Readers get what was published, and then the end."""
        self.native.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a channel stays where it is made: give the other process its ticket()")


def _device_of(like: Any, device: Any) -> torch.device:
    if device is not None:
        if isinstance(device, str) and device.partition(":")[0] == "cpu":
            device = torch.device(device)
        return torch.device("cpu") if getattr(device, "type", None) == "cpu" else torch.device("cuda", number(device))
    if like is None:
        raise TypeError("a channel is like a tensor, or has a shape, a dtype and a device")
    tensors = list(like.values()) if isinstance(like, Mapping) else [like]
    if not all(isinstance(each, torch.Tensor) for each in tensors):
        raise TypeError("a channel is like a tensor, or like a dict of tensors")
    devices = {each.device for each in tensors}
    if len(devices) != 1:
        raise TypeError("the tensors of a frame are on one device")
    return devices.pop()


def _plain(like: Any) -> Any:
    return dict(like) if isinstance(like, Mapping) else like


# ---- the reader


class _Taken(_Borrowed):
    _frame: _native.Frame

    @property
    def sequence(self) -> int:
        """From 1 on, and one more for each frame that the writer made or skipped."""
        return self._frame.sequence

    @property
    def missed(self) -> int:
        """How many frames there were between the one that was taken before and this one."""
        return self._frame.missed

    @property
    def header(self) -> bytes:
        """The writer's own bytes beside the frame."""
        return self._frame.header

    def give_back(self, stream: object | None = None) -> None:
        """Its slot may be written when the stream comes to this. None: the one that was named for it, or PyTorch's
        current one. Raises errors.LostError where the writer ended before the contents were there."""
        self._frame.give_back(stream)

    def keep(self) -> Any:
        """The loop does not give it back when it goes on: that is yours to do. Answers the frame."""
        self._frame.keep()
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._frame.is_over:
            self._frame.give_back()


class Frame(_Taken, _Tensor):
    """A tensor over a frame that was taken: to be read, and to be used until it is given back. That is done by
    give_back(), by `with`, by the loop that goes on, or when nobody has it any more. What is computed of it is an
    ordinary tensor. A part of it (frame[0]) keeps it; what detach() and numpy() make does not."""


class FrameDict(_Taken, dict[str, Any]):
    """The same of several tensors, by their names, of which each keeps the frame."""


class Subscription:
    """A reader of a channel. A loop over it takes frame after frame until the writer has ended, and gives each back when
    it goes on to the next. For one thread at a time."""

    # All that is needed once the frame is there is looked up before the wait for it.

    def __init__(self, native: _native.Subscription):
        """Takes a subscription over."""
        self.native: _native.Subscription = native
        """The one below, which knows nothing of PyTorch."""
        self._slots = _Slots(Frame, FrameDict)

    def take(self, timeout: float | None = None, stream: object | None = None) -> Any:
        """Waits for a frame, for at most timeout seconds: a Frame, or a FrameDict of several tensors. The stream waits
        for the contents; None: the one of subscribe(), or PyTorch's current one."""
        slots = self._slots
        slots.prepare()
        return _frame_dressed(slots.spare, slots.last, slots.of, self.native.take(timeout, stream))

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> Any:
        slots = self._slots
        slots.prepare()
        return _frame_dressed(slots.spare, slots.last, slots.of, self.native.__next__())

    def next(self, timeout: float | None = None) -> Any:
        """What a loop does to go on: gives the frame before back, unless it is kept, and waits for the next one, for at
        most timeout seconds. Raises as take() does."""
        slots = self._slots
        slots.prepare()
        return _frame_dressed(slots.spare, slots.last, slots.of, self.native.next(timeout))

    def fileno(self) -> int:
        """For event loops: readable while take(0) may have something to say, a frame or the end. Not after close()."""
        return self.native.fileno()

    def close(self) -> None:
        """Gives back what was taken, in the order of its streams, and ends it."""
        self.native.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a subscription stays where it is made: subscribe in the other process")


def subscribe(
    channel: _native.Ticket | bytes | str, *, device: object | None = None, **options: Any
) -> Subscription:
    """Opens a channel for reading: by its name, or by Channel.ticket(). device: whose tensors frames are to be; None: that
    of the memory. The other arguments are those of gpuipc.subscribe()."""
    if device is not None:
        options["device"] = number(device)
        start([options["device"]])
    return Subscription(_native.subscribe(channel, **options))
