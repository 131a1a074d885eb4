# SPDX-License-Identifier: MIT
"""PyTorch: pools whose memory other processes can open, bundles and channels of tensors, and torch.multiprocessing over
gpuipc.

    pool = gpuipc.torch.MemPool(openers=[0, 1])
    with pool:
        model = Net().cuda()
    queue.put(gpuipc.torch.Bundle(model.state_dict()))

    channel = gpuipc.torch.Channel("frames", like=tensor)
    with channel.loan() as frame:
        frame.copy_(tensor)
    for frame in gpuipc.torch.subscribe("frames"): ...      # in another process

    gpuipc.torch.install()      # from now on queue.put(tensor) goes by gpuipc, where the tensor's memory is gpuipc's

Importing this starts no driver and changes nothing in PyTorch.
"""

from __future__ import annotations

import io
import os
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any
from weakref import finalize

import torch

from gpuipc import _native, config, errors
from gpuipc._devices import number
from gpuipc._native import Array, Context
from gpuipc._torch_channel import Channel, Frame, FrameDict, Loan, LoanDict, Subscription, subscribe
from gpuipc._torch_streams import NO_DEVICE as _NO_DEVICE
from gpuipc._torch_streams import current_stream as _current_stream
from gpuipc._torch_streams import exchange as _exchange
from gpuipc._torch_streams import start as _start

__all__ = [
    "Bundle", "Channel", "Classification", "Frame", "FrameDict", "Lent", "Loan", "LoanDict", "MemPool", "Subscription",
    "classify", "install", "subscribe", "tensor", "uninstall", "wrap",
]  # fmt: skip

_GRAD, _PARAMETER = 1, 2  # what a tensor is besides its memory

_from_dlpack: Callable[[Any], torch.Tensor] = torch._C._from_dlpack
_CPU = 1  # kDLCPU
_TAKES_VERSIONS = hasattr(torch._C, "_to_dlpack_versioned")
"""PyTorch knows DLPack 1.x."""


# ---- one tensor


if hasattr(torch.Tensor, "untyped_storage"):
    _storage: Callable[[torch.Tensor], Any] = torch.Tensor.untyped_storage
    """What keeps a tensor's memory, whatever becomes of the tensor."""
else:  # before PyTorch 2.0

    def _storage(of: torch.Tensor) -> Any:
        return of.storage()._storage


def _why_not(of: torch.Tensor) -> str | None:
    """Why a tensor is not a plain piece of memory."""
    kind = type(of)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter:
        return f"{kind.__name__} is a subclass of torch.Tensor, of whose parts nothing is known here: share those"
    if of.layout is not torch.strided:
        return "a sparse tensor is several tensors: share its indices() and values()"
    if of.is_quantized:
        return "a quantized tensor has scales beside its memory: share int_repr() and those"
    if of.is_meta:
        return "a tensor of device 'meta' has no memory"
    if of.is_conj() or of.is_neg():
        return "its elements stand for others (conj or neg): share resolve_conj() or resolve_neg() of it"
    if of.requires_grad and not of.is_leaf:
        return "it is no leaf and requires grad, which does not cross processes: share detach() of it"
    if not of.is_cuda and of.device.type != "cpu":
        return f"memory of '{of.device.type}' is not shared here"
    return None


def _is_known(of: torch.Tensor) -> bool:
    """It lies in memory that gpuipc made or opened."""
    return (
        (of.is_cuda or of.device.type == "cpu")
        and of.layout is torch.strided
        and not of.is_quantized
        and _native.torch_is_known(of.data_ptr())
    )


def _flag(of: torch.Tensor) -> int:
    return (_GRAD if of.requires_grad else 0) | (_PARAMETER if type(of) is torch.nn.Parameter else 0)


def _flagged(of: torch.Tensor, flag: int) -> torch.Tensor:
    if flag & _PARAMETER:
        return torch.nn.Parameter(of, requires_grad=bool(flag & _GRAD))
    return of.requires_grad_() if flag & _GRAD else of


def tensor(array: Array) -> torch.Tensor:
    """The tensor over an Array's memory, on the device that the Array is for. PyTorch's current stream there waits for
    the contents, and no other device is touched."""
    kind, device = array.__dlpack_device__()
    stream: int | None = None
    if kind != _CPU:
        _start([device])
        stream = _current_stream(device) or 1
    if not array.read_only:
        return _from_dlpack(array.__dlpack__(stream))
    if not _TAKES_VERSIONS:
        raise BufferError(
            f"this memory may only be read, which PyTorch {torch.__version__} has no form for: use one that takes "
            "DLPack 1.x, or a ticket of share(access='rw')"
        )
    return _from_dlpack(array.__dlpack__(stream, max_version=(1, 0)))  # only this form says so


def _extent(of: torch.Tensor) -> int:
    """Bytes from the first element to the last."""
    last = sum((int(count) - 1) * int(stride) for count, stride in zip(of.shape, of.stride(), strict=True))
    return (last + 1) * int(of.element_size())


@dataclass(frozen=True)
class Classification:
    """How a tensor's memory can reach another process."""

    kind: str
    """'vmm', 'device' (cudaMalloc), 'pool' (cudaMallocAsync), 'managed', 'pinned', 'imported' or 'unknown'."""
    transports: tuple[str, ...]
    """Those that carry it."""
    is_known: bool
    """It is memory that gpuipc made or opened: install() and Bundle hand it over as it is."""
    allocation_count: int
    """How many allocations lie behind the tensor."""
    base: int
    """Where the first of them begins."""
    allocated_bytes: int
    """Of all of them together; all of it is shared."""
    reason: str
    """Why it cannot be shared without a copy, and which setting to change; empty: it can be."""


_SHAREABLE = {"vmm", "pool", "legacy", "fabric"}
_HINTS = {
    "pool": "PyTorch got it from cudaMallocAsync, whose memory has no handle: use the native backend "
    "(PYTORCH_CUDA_ALLOC_CONF without backend:cudaMallocAsync), and gpuipc.torch.MemPool",
    "vmm": "PyTorch made its expandable segments without handles: set TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1 before it "
    "starts, or use gpuipc.torch.MemPool without expandable_segments",
    "device": "legacy IPC does not work here: use gpuipc.torch.MemPool",
    "imported": "it was opened from another process by PyTorch's own IPC: clone() it, or let its owner share it",
    "unknown": "gpuipc knows no such memory",
}


def classify(of: torch.Tensor) -> Classification:
    """Looks what memory a tensor has, and how that can be shared. Changes nothing."""
    if not of.is_cuda:
        known = of.device.type == "cpu" and _native.torch_is_known(of.data_ptr())
        reason = "" if known else f"it is in memory of '{of.device.type}', which only its own process sees"
        return Classification("pinned" if known else "unknown", ("host",) if known else (), known, 0, 0, 0, reason)
    if of.numel() == 0:
        return Classification("unknown", (), False, 0, 0, 0, "it has no elements, and no memory")
    kind, transports, count, base, nbytes, sentence = _native.pointer_info(of.data_ptr(), _extent(of))
    known = _native.torch_is_known(of.data_ptr())
    reason = "" if _SHAREABLE & set(transports) else "; ".join(filter(None, (sentence, _HINTS.get(kind, ""))))
    return Classification(kind, tuple(transports), known, count, base, nbytes, reason)


class _Exported:
    """A tensor for gpuipc.wrap(), which orders no streams: pickling and share() do that when the time has come."""

    def __init__(self, of: torch.Tensor):
        self._of = of

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self._of.device.index)

    def __dlpack__(self, **_: object) -> object:
        return torch.utils.dlpack.to_dlpack(self._of)


def _check_shareable(of: torch.Tensor) -> None:
    if of.device.type == "cpu" and not _native.torch_is_known(of.data_ptr()):
        raise TypeError(
            "a tensor of the CPU is in memory that only its own process sees: torch.multiprocessing shares those itself"
        )
    found = classify(of)
    if found.reason:
        _native.torch_refuse(found.reason)


def wrap(of: torch.Tensor) -> Array:
    """The Array of any CUDA tensor: to be put on a queue, or shared by a ticket. The tensor's memory is kept until
    the Array is gone and no other process has it. Raises NotShareable with the reason, and with the setting to change.
    """
    why_not = _why_not(of)
    if why_not is not None:
        raise TypeError(why_not)
    if of.numel() == 0 and of.is_cuda:
        return _native.empty(tuple(of.shape), of.dtype, device=of.device)
    _check_shareable(of)
    return _native.wrap(_Exported(of.detach()))


# ---- several tensors


def _seconds() -> float:
    return float(config.orphan_seconds)


def _current_streams(parcel: _native.Parcel) -> list[int]:
    return [_current_stream(device) for device in parcel.devices]


def _await_makers(parcel: _native.Parcel) -> None:
    """The current streams wait for those that the memory was made for. A queue pickles on a thread of its own, whose
    current streams are not those of the thread that put something on the queue."""
    for device, maker in zip(parcel.devices, parcel.streams, strict=True):
        if device != _NO_DEVICE and maker != 0 and maker != _current_stream(device):
            torch.cuda.current_stream(device).wait_stream(torch.cuda.ExternalStream(maker, device=device))


def _await(delivery: _native.Delivery) -> None:
    """The current streams wait for the contents."""
    if not torch.cuda.is_initialized():
        _start(delivery.devices)
    delivery.await_contents()


def _made(delivery: _native.Delivery) -> list[torch.Tensor]:
    """All tensors of a delivery."""
    tensors: list[Any] = delivery.tensors()
    commons: dict[int, Any] = {}
    for number in [number for number, each in enumerate(tensors) if each is None]:
        shared = delivery.common_of(number)
        if shared is None:
            name = delivery.view_of(number)
            tensors[number] = delivery.tensor(number).view(getattr(torch, name or ""))
            continue
        common, offset, shape, strides, name = shared
        if common not in commons:
            commons[common] = delivery.common(common)
        whole = commons[common]
        made = torch.empty(0, dtype=getattr(torch, name), device=whole.device)
        tensors[number] = made.set_(_storage(whole), offset // made.element_size(), shape, strides)
    return tensors


class _Pickler(pickle.Pickler):
    """Pickles everything but tensors whose memory is handed over: those are their numbers."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors: list[torch.Tensor] = []
        self.flags = bytearray()
        self._numbers: dict[int, int] = {}

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        number = self._numbers.get(id(value))
        if number is not None:
            return number
        flag = _reducer.flag(value)
        if flag is None:  # not simply memory that is handed over
            if value.device.type == "cpu" and (value.numel() == 0 or not _is_known(value)):
                return None  # by value, as PyTorch pickles it
            why_not = _why_not(value)
            if why_not is not None:
                raise TypeError(why_not)
            flag = _flag(value)
            if value.numel() == 0:
                return (value.dtype, tuple(value.shape), value.stride(), flag)
        number = len(self.tensors)
        self._numbers[id(value)] = number
        self.tensors.append(value)
        self.flags.append(flag)
        return number


def _structure(value: Any) -> tuple[list[torch.Tensor], bytes, bytes]:
    """The tensors of a value that are handed over, everything else of it, and what the tensors are besides their memory."""
    kind = type(value)
    if (kind is dict or kind is OrderedDict) and value:
        tensors = list(value.values())
        flags = _reducer.flags(tensors)
        if flags is not None:  # a state dict: faster than a pickler that asks for each
            rest = (kind, list(value), vars(value) if kind is OrderedDict else None)
            return tensors, b"F" + pickle.dumps(rest, pickle.HIGHEST_PROTOCOL), flags
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return pickler.tensors, b"P" + file.getvalue(), bytes(pickler.flags)


def _restored(structure: bytes, tensors: list[torch.Tensor], device: int) -> Any:
    """What _structure() has taken apart."""
    if structure[:1] == b"P":
        return _Unpickler(structure[1:], tensors, device).load()
    kind, keys, attributes = pickle.loads(structure[1:])
    value = kind(zip(keys, tensors, strict=True))
    if attributes:
        vars(value).update(attributes)
    return value


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, tensors: list[torch.Tensor], device: int):
        super().__init__(io.BytesIO(data))
        self._tensors = tensors
        self._device = device

    def persistent_load(self, pid: Any) -> torch.Tensor:
        if isinstance(pid, int):
            return self._tensors[pid]
        dtype, shape, strides, flag = pid
        made = torch.empty_strided(shape, strides, dtype=dtype, device=f"cuda:{self._device}")
        return _flagged(made, flag)


_copy_pools: dict[int, MemPool] = {}


def _copied(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """With copies, side by side in a pool, of those that are not in memory of gpuipc."""
    made = list(tensors)
    strange: dict[int, list[int]] = {}
    for number, each in enumerate(tensors):
        if each.is_cuda and not _native.torch_is_known(each.data_ptr()):
            strange.setdefault(each.device.index, []).append(number)
    for device, numbers in strange.items():
        starts, end = [], 0
        for number in numbers:
            starts.append(end)
            end += -(-tensors[number].numel() * tensors[number].element_size() // 256) * 256
        if device not in _copy_pools:
            _copy_pools[device] = MemPool(device=device)
        with _copy_pools[device], torch.no_grad():
            whole = torch.empty(end, dtype=torch.uint8, device=f"cuda:{device}")
            for number, start in zip(numbers, starts, strict=True):
                each = tensors[number]
                part = whole[start : start + each.numel() * each.element_size()].view(each.dtype).view(each.shape)
                part.copy_(each)
                made[number] = part
    return made


class Bundle:
    """Any nested dicts, lists, tuples and other picklable values with tensors in them, to be handed over as one: one
    pickle, and one ticket, one ready point and one loan for each piece of memory that the tensors lie in.

    Tensors of CUDA are handed over as they are. Those that are not in memory of gpuipc (a MemPool, for one) go by
    whatever their memory allows, or with copy=True as copies, made now. Tensors of the CPU are copied, but for those
    in memory of gpuipc. What is one tensor in several places is one where it arrives, and what overlaps shares its
    storage there, too. Parameters are Parameters, and what requires grad does.

    The Bundle keeps the memory that the tensors have when it is made. Each pickle is for one receiver. The contents are
    those that the current streams have been given when it is pickled. A queue does that later, on a thread of its own:
    there the streams are those that were current when the Bundle was made. What is written anew and handed over again
    goes by lend().
    """

    def __init__(self, tensors: Any, *, copy: bool = False):
        self._tensors = tensors
        handed, self._structure, self._flags = _structure(tensors)
        shared = _copied(handed) if copy else handed
        kept = list(map(_storage, shared))
        self._parcel: _native.Parcel | None = _native.Parcel(shared, kept, True, _exchange)
        self._thread = threading.get_ident()
        self._streams = _current_streams(self._parcel)
        self._delivery: _native.Delivery | None = None
        self._is_made = True

    @classmethod
    def _arrived(
        cls, segments: tuple[tuple[bytes, bytes], ...], contents: bytes, structure: bytes, flags: bytes
    ) -> Bundle:
        self = cls.__new__(cls)
        self._parcel = None
        self._delivery = _native.Delivery(segments, contents, _exchange or _from_dlpack)
        self._thread, self._streams = 0, []
        self._structure = structure
        self._flags = flags
        self._tensors = None
        self._is_made = False
        return self

    def lend(self, to: object | None = None) -> Lent:
        """Hands it over now, to the process that gets what this returns, by any channel that pickles. The contents are
        those that the current streams have been given until now, and await_returns() waits for this hand-over, too.

        to: the process that is to get it: its number, or an object with that as pid (multiprocessing.Process,
        subprocess.Popen). When the process ends before it has unpickled, the hand-over is cancelled within a second.
        Raises ProcessLookupError where it has ended already. None: Lent.cancel() does it, or the time
        (gpuipc.config.orphan_seconds)."""
        return Lent(self._handed_over(here=True, to=_process_number(to)))

    def cancel_lent(self) -> None:
        """Cancels every hand-over, pickles too, that no process has unpickled yet. Receivers that have it keep it."""
        if self._parcel is not None:
            self._parcel.cancel_lent()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_bundle, self._handed_over(here=threading.get_ident() == self._thread))

    def _handed_over(self, here: bool, to: int | None = None) -> tuple[Any, ...]:
        if self._parcel is None:
            raise TypeError(
                "this Bundle came from another process, which would not know of a further receiver: put copies of its "
                "tensors on the queue, or let its owner hand it over"
            )
        streams = _current_streams(self._parcel) if here else self._streams
        return (self._parcel.hand_over(streams, _seconds(), to), self._parcel.contents, self._structure, self._flags)

    @property
    def tensors(self) -> Any:
        """What the Bundle was made of. Where it has arrived, the tensors are made at first use, and the current
        streams wait for their contents."""
        if self._delivery is None and not self._is_made:
            raise errors.ReleasedError("this Bundle was given back")
        if self._delivery is not None:
            _await(self._delivery)  # each stream that asks: another one may have asked before
        if not self._is_made:
            assert self._delivery is not None
            made = _made(self._delivery)
            if any(self._flags):
                made = [_flagged(each, flag) for each, flag in zip(made, self._flags, strict=True)]
            devices = [device for device in self._delivery.devices if device != _NO_DEVICE]
            device = devices[0] if devices else config._opening() or 0
            self._tensors = _restored(self._structure, made, device)
            self._is_made = True
        return self._tensors

    def __getitem__(self, key: Any) -> Any:
        return self.tensors[key]

    def __len__(self) -> int:
        return len(self.tensors)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tensors)

    def keys(self) -> Any:
        return self.tensors.keys()

    def values(self) -> Any:
        return self.tensors.values()

    def items(self) -> Any:
        return self.tensors.items()

    @property
    def lent_count(self) -> int:
        """How many of its loans are out: one for each receiver and piece of memory."""
        return self._parcel.lent if self._parcel is not None else 0

    def await_returns(self, timeout: float | None = None) -> None:
        """Waits until every receiver has given it back (let go of all of its tensors, or ended): from then on the
        tensors may be written again. Raises errors.Timeout."""
        if self._parcel is not None:
            try:
                self._parcel.await_returns(timeout)
            except errors.Timeout as error:
                error.add_note(
                    "what a process has not unpickled is cancelled by Lent.cancel() and Bundle.cancel_lent(), and by itself "
                    "when the process named in lend(to=) has ended"
                )
                raise

    def give_back(self) -> None:
        """Gives a Bundle that has arrived back, when the current streams are there. Its tensors, and what views them,
        may not be used afterwards. Without this it is given back when the last of them is gone."""
        if self._delivery is not None:
            self._delivery.give_back([_current_stream(device) for device in self._delivery.devices])
            self._delivery, self._tensors, self._is_made = None, None, False

    def __repr__(self) -> str:
        return f"<gpuipc.torch.Bundle of {len(self._flags)} tensors>"


class Lent:
    """A hand-over of a Bundle, for one receiver: what is unpickled of it is the Bundle."""

    def __init__(self, arguments: tuple[Any, ...]):
        self._arguments = arguments
        self._process = os.getpid()

    def cancel(self) -> bool:
        """Cancels the hand-over unless a process has unpickled it; await_returns() then does not wait for it. Returns False
        while a process has the tensors. Returns True otherwise; no process can then unpickle it. Call it in the process
        that lent, from any thread and as often as needed. Raises errors.ForkedError, a RuntimeError, in a forked child."""
        if self._process != os.getpid():
            raise errors.ForkedError(f"process {self._process} lent this: only that process can cancel it")
        return _native.cancel_hand_over([loan for _, loan in self._arguments[0]])

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_bundle, self._arguments)


def _process_number(of: object | None) -> int | None:
    if of is None:
        return None
    number = of if isinstance(of, int) else getattr(of, "pid", None)
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"a process is its number, or an object with a pid that was started, not {of!r}")
    if not 0 < number < 2**31:
        raise ValueError(f"the number of a process must be from 1 to {2**31 - 1}, not {number}")
    for name in ("exitcode", "returncode"):  # its parent has waited for it, and the number may be another's
        if getattr(of, name, None) is not None:
            raise ProcessLookupError(f"process {number} has ended")
    return number


def _rebuild_bundle(*arguments: Any) -> Bundle:
    return Bundle._arrived(*arguments)


# ---- torch.multiprocessing


def _rebuild_tensor(segments: tuple[tuple[bytes, bytes], ...], contents: bytes, flag: int) -> torch.Tensor:
    delivery = _native.Delivery(segments, contents, _exchange or _from_dlpack)
    _await(delivery)
    made = delivery.tensors()[0]
    if made is None:  # of a type that DLPack has not
        made = _made(delivery)[0]
    return _flagged(made, flag) if flag else made


_before: dict[type, Any] = {}
_registered: dict[type, Any] = getattr(ForkingPickler, "_extra_reducers")  # noqa: B009  # where register() puts them


def _reduce_else(of: torch.Tensor) -> Any:
    """What the compiled module leaves: tensors that are PyTorch's to hand over, or that cannot be, and streams that wait."""
    if _is_known(of):
        why_not = _why_not(of)
        if why_not is not None:
            raise RuntimeError(why_not)
        parcel = _native.Parcel([of], _storage(of), False, _exchange)
        _await_makers(parcel)
        return (_rebuild_tensor, (parcel.hand_over(_current_streams(parcel), _seconds()), parcel.contents, _flag(of)))
    return _before[type(of)](of)


_reducer = _native.Reducer(
    torch.Tensor, torch.nn.Parameter, torch.strided, _exchange, _storage, _rebuild_tensor, _reduce_else
)
_reduce = _reducer.reduce


def install() -> None:
    """From now on tensors in memory of gpuipc go through torch.multiprocessing (its queues, pipes, arguments of
    processes) by gpuipc: those of a MemPool, those over an Array, made here. All others go PyTorch's own way. To be
    called by those who send; who receives needs only the package."""
    import torch.multiprocessing  # registers PyTorch's own

    for kind in (torch.Tensor, torch.nn.Parameter):
        current = _registered[kind]
        if current is not _reduce:
            _before[kind] = current
            ForkingPickler.register(kind, _reduce)


def uninstall() -> None:
    """Ends what install() began."""
    for kind, before in _before.items():
        if _registered.get(kind) is _reduce:
            ForkingPickler.register(kind, before)


# ---- pools


def _is_expandable() -> bool:
    """PyTorch's allocator is set to expandable segments now."""
    snapshot = torch._C._cuda_memorySnapshot
    try:
        found = snapshot((0, 0))
    except TypeError:  # before PyTorch 2.8
        found = snapshot()
    return bool(found["allocator_settings"].get("expandable_segments", False))


_kinds: dict[tuple[Any, ...], int] = {}
_allocators: dict[int, Any] = {}  # for ever: PyTorch frees by them after a pool's own end
_lock = threading.Lock()


def _allocator(openers: tuple[bytes, ...], access_devices: tuple[int, ...]) -> Any:
    """PyTorch's allocator of memory of this kind."""
    key = (Context.default(), openers, access_devices)
    with _lock:
        kind = _kinds.setdefault(key, len(_kinds))
        if kind >= _native.torch_kinds:
            del _kinds[key]
            raise RuntimeError(
                f"there are {_native.torch_kinds} kinds of pools in this process already, and no more can be: use the "
                "same openers for several pools"
            )
        if kind not in _allocators:
            _native.torch_configure(kind, list(openers), list(access_devices))
            library = Path(__file__).parent / "lib" / "libgpuipc_torch.so"
            _allocators[kind] = torch.cuda.memory.CUDAPluggableAllocator(
                str(library), f"gpuipc_torch_alloc_{kind}", "gpuipc_torch_free"
            )
        return _allocators[kind].allocator()


# PyTorch ends the process where one of its pools ends while any is entered (CUDACachingAllocator, captures_underway).
_pools_lock = threading.RLock()  # the collector may end a pool anywhere
_entered_count = 0
_ended_pools: list[Any] = []


def _end_pools(idle: dict[int, list[Any]]) -> None:
    with _pools_lock:
        for each in idle.values():
            _ended_pools.extend(each)
        idle.clear()
        if _entered_count == 0:
            _ended_pools.clear()


class _Local(threading.local):
    """What a thread has entered of a pool, for each device: PyTorch's pool, the way out, and how often."""

    def __init__(self) -> None:
        self.entered: list[list[int]] = []
        self.pools: dict[int, tuple[Any, ExitStack]] = {}
        self.depths: dict[int, int] = {}


class MemPool:
    """A pool of PyTorch's allocator whose memory other processes can open. What is allocated under `with pool:`, by
    this thread, comes from it.

        pool = gpuipc.torch.MemPool(openers=[0, 1])
        with pool:
            model = Net().cuda()

    openers: the GPUs for which others will open it, as numbers here or UUIDs, as far as that is known. device: where it
    allocates, a number or several; None: the device that is current when the pool is entered. access_devices: further
    GPUs of this process that use the memory, such as for copies between them; None: all that reach it.

    Memory that was handed over to another process is kept until it has been given back, and then used again. The pool
    may go before its tensors. Threads may use it at the same time.
    """

    def __init__(
        self,
        openers: Iterable[object] = (),
        device: object | Iterable[object] | None = None,
        *,
        access_devices: Iterable[object] | None = None,
    ):
        if not hasattr(torch.cuda, "MemPool") or not hasattr(torch.cuda, "use_mem_pool"):
            raise RuntimeError(f"PyTorch {torch.__version__} has no torch.cuda.MemPool: use 2.6 or newer, with CUDA")
        if torch.cuda.get_allocator_backend() != "native":
            raise RuntimeError(
                "PyTorch has pools only with its native allocator: set PYTORCH_CUDA_ALLOC_CONF without "
                "backend:cudaMallocAsync"
            )
        torch.cuda.init()
        if _is_expandable():
            raise RuntimeError(
                "with expandable_segments:True PyTorch does not ask a pool's allocator for memory "
                "(https://github.com/pytorch/pytorch/issues/147851): take it out of PYTORCH_CUDA_ALLOC_CONF, or share "
                "the tensors as they are, by gpuipc.torch.wrap() or Bundle()"
            )
        uuids = [each if isinstance(each, bytes) else Context.default().devices[number(each)].uuid for each in openers]
        others = range(torch.cuda.device_count()) if access_devices is None else map(number, access_devices)
        self._allocator = _allocator(tuple(uuids), tuple(others))
        self._devices: tuple[int, ...] | None
        if device is None:
            self._devices = None
        elif isinstance(device, Iterable) and not isinstance(device, str):
            self._devices = tuple(map(number, device))
        else:
            self._devices = (number(device),)
        self._local = _Local()
        self._idle: dict[int, list[Any]] = {}  # of PyTorch's, of which each takes one thread at a time
        finalize(self, _end_pools, self._idle).atexit = False

    def _take(self, device: int) -> Any:
        """One of PyTorch's pools that no thread has entered."""
        global _entered_count
        with _pools_lock:
            _entered_count += 1
            idle = self._idle.get(device)
            if idle:
                return idle.pop()
        try:
            with torch.cuda.device(device):
                return torch.cuda.MemPool(self._allocator)
        except BaseException:
            self._put(device, None)
            raise

    def _put(self, device: int, pool: Any) -> None:
        global _entered_count
        with _pools_lock:
            if pool is not None:
                self._idle.setdefault(device, []).append(pool)
            _entered_count -= 1
            if _entered_count == 0:
                _ended_pools.clear()

    def _enter(self, device: int) -> None:
        local = self._local
        depth = local.depths.get(device, 0)
        if depth == 0:  # PyTorch enters a pool once
            pool, stack = self._take(device), ExitStack()
            try:
                stack.enter_context(torch.cuda.use_mem_pool(pool, device=device))
            except BaseException:
                self._put(device, pool)
                raise
            local.pools[device] = (pool, stack)
        local.depths[device] = depth + 1

    def _leave(self, device: int) -> None:
        self._local.depths[device] -= 1
        if self._local.depths[device] == 0:
            pool, stack = self._local.pools.pop(device)
            stack.close()
            self._put(device, pool)

    def __enter__(self) -> MemPool:
        _native.lingering()
        entered: list[int] = []
        try:
            for device in self._devices if self._devices is not None else (torch.cuda.current_device(),):
                self._enter(device)
                entered.append(device)
        except BaseException:
            for device in entered:
                self._leave(device)
            raise
        self._local.entered.append(entered)
        return self

    def __exit__(self, *error: object) -> None:
        for device in self._local.entered.pop():
            self._leave(device)
        if isinstance(error[1], torch.cuda.OutOfMemoryError) and (failure := _native.torch_failure()):
            error[1].add_note(f"gpuipc could not make memory: {failure}")

    def __repr__(self) -> str:
        return f"<gpuipc.torch.MemPool on {'the current device' if self._devices is None else list(self._devices)}>"
