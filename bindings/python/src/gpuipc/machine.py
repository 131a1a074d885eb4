# SPDX-License-Identifier: MIT
"""What this machine has: GPUs, the ways between them, and which of them a piece of memory can take."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuipc import _native
from gpuipc._devices import number
from gpuipc._native import Array, Buffer, Connection, Context, Device


def _rate(bytes_per_second: int) -> str:
    return f"{bytes_per_second / 1e9:.1f} GB/s"


@dataclass(frozen=True)
class Transport:
    """A way to reach GPU memory, between two devices."""

    name: str
    """vmm, pool, legacy, p2p, host or fabric."""
    available: bool
    reason: str | None
    """The name of the reason why it is not available, such as 'NO_P2P'."""
    sentence: str
    """If it is not available, the cause and the remedy; if it could not be tried, why; else empty."""
    is_zero_copy: bool
    """The other device works in the memory itself. Else copies go through memory of the host."""
    proof: str
    """How availability is known: 'tried' (end to end, with a verified pattern), 'attributes' (of the driver), or ''."""
    bandwidth: int | None
    """Of one large copy, in bytes a second."""
    bandwidth_source: str
    """'measured', 'estimated', or ''."""
    latency_ns: int | None
    """Of one small copy, on the device."""
    latency_source: str

    def __str__(self) -> str:
        if not self.available:
            return f"{self.name}: not available ({self.reason}): {self.sentence}"
        parts = ["without a copy" if self.is_zero_copy else "staged copies"]
        parts += [f"known by {self.proof}" if self.proof == "attributes" else self.proof] if self.proof else ["not tried"]
        if self.bandwidth is not None:
            parts.append(f"{_rate(self.bandwidth)} {self.bandwidth_source}")
        if self.latency_ns is not None:
            parts.append(f"{self.latency_ns / 1000:.1f} us {self.latency_source}")
        return f"{self.name}: {', '.join(parts)}"


@dataclass(frozen=True)
class Selection:
    """The transport that was chosen, and why others were not."""

    name: str
    refused: dict[str, str]
    """For each that would not do, the name of the reason. One that is not in it would do as well."""

    def __str__(self) -> str:
        others = ", ".join(f"{name} {reason}" for name, reason in self.refused.items())
        return f"{self.name} (refused: {others})" if others else self.name


@dataclass(frozen=True)
class Measurement:
    """What was measured of a transport, in bytes a second that arrive."""

    nbytes: int
    """Of one copy."""
    one_way: int
    """The owner's memory read by the user's device."""
    both_ways: int | None
    """Both directions at once, their sum; None for one device."""
    latency_ns: int

    def __str__(self) -> str:
        both = f", both ways {_rate(self.both_ways)}" if self.both_ways is not None else ""
        return f"{_rate(self.one_way)}{both}, {self.latency_ns / 1000:.1f} us"


@dataclass(frozen=True)
class Link:
    """What joins a device to the memory of another."""

    owner: int
    """The device whose memory is reached."""
    user: int
    """The device that reaches it."""
    kind: str
    """nvlink, pcie, same (one device), or unknown."""
    generation: int | None
    width: int | None
    """How many NVLinks, or PCIe lanes."""
    peer_access: bool
    """The user reaches the owner's memory directly."""
    performance_rank: int
    """The driver's: 0 is the best there is on this machine."""
    native_atomics: bool
    is_from_nvml: bool
    """Generation and width are NVML's; else guessed from the device."""

    def __str__(self) -> str:
        if self.kind == "same":
            return f"{self.owner}: its own memory"
        width = f" x{self.width}" if self.width is not None else ""
        generation = f" generation {self.generation}" if self.generation is not None else ""
        access = "" if self.peer_access else ", no peer access"
        return f"{self.owner} -> {self.user}: {self.kind}{width}{generation}{access}"


@dataclass(frozen=True)
class Memory:
    """Which kind of memory something is in, and which transports can carry it to another process."""

    address: int
    nbytes: int
    kind: str
    """vmm, device (cudaMalloc), pool (cudaMallocAsync), managed, pinned, imported, or unknown."""
    device: int | None
    transports: tuple[str, ...]
    """Those that can carry it: host as a copy, p2p to another device of this process, the others as it is."""
    refused: dict[str, str]
    """For each other one, the name of the reason."""
    sentence: str
    """What it is, and what to do if it cannot be shared without a copy."""
    base: int
    """Where the first allocation behind it begins."""
    allocations: int
    allocated_nbytes: int

    def __str__(self) -> str:
        by = ", ".join(self.transports) or "nothing"
        return f"{self.kind} memory, carried by {by}: {self.sentence}"


# ---- questions


def _pair(owner: object, user: object | None) -> tuple[int, int]:
    first = number(owner)
    return first, first if user is None else number(user)


def devices(*, context: Context | None = None) -> list[Device]:
    """The GPUs that this process sees."""
    return (context or Context.default()).devices


def transports(
    owner: object = 0, user: object | None = None, *, connection: Connection | None = None, context: Context | None = None
) -> dict[str, Transport]:
    """Every way by which device user (None: the owner) reaches memory of device owner in another process.

    Found by doing it, once for each pair, and remembered: milliseconds at first. connection: the process at the other
    end, for what lies between the two processes.
    """
    pair = _pair(owner, user)
    names = _native.transport_names()
    return {name: Transport(**_native.query(name, *pair, connection, context)) for name in names}


def select(
    owner: object = 0,
    user: object | None = None,
    *,
    buffer: Buffer | None = None,
    policy: str = "zero-copy",
    connection: Connection | None = None,
    context: Context | None = None,
) -> Selection:
    """The transport to take between two devices: policy is zero-copy, prefer-zero-copy, or any (the fastest).

    buffer: memory that there is already. Raises GpuipcError (GPUIPC_ERR_NO_TRANSPORT) when there is none.
    """
    return Selection(*_native.select(*_pair(owner, user), buffer, policy, connection, context))


def measure(
    transport: str, owner: object = 0, user: object | None = None, *, context: Context | None = None
) -> Measurement:
    """Measures a transport, in about a second; the devices should be idle. transports() answers with it later on."""
    return Measurement(**_native.measure(transport, *_pair(owner, user), context))


def topology(*, context: Context | None = None) -> dict[tuple[int, int], Link]:
    """What joins each device (owner) with each device (user)."""
    count = (context or Context.default()).device_count
    pairs = [(owner, user) for owner in range(count) for user in range(count)]
    return {pair: Link(**_native.link(*pair, context)) for pair in pairs}


def _span(shape: Sequence[int], strides: Sequence[int] | None, itemsize: int) -> int:
    """From the first byte to the last."""
    if 0 in shape:
        return 0
    if strides is None:
        nbytes = itemsize
        for each in shape:
            nbytes *= each
        return nbytes
    return sum((each - 1) * stride for each, stride in zip(shape, strides, strict=True)) + itemsize


def _range_of(x: Any) -> tuple[int, int]:
    if isinstance(x, tuple):
        address, nbytes = x
        return address, nbytes
    if isinstance(x, Buffer):
        return x.address, x.nbytes
    if isinstance(x, Array):
        strides = [each * x.itemsize for each in x.strides]
        return x.address, _span(x.shape, strides, x.itemsize)
    if hasattr(x, "data_ptr"):  # PyTorch, whose tensors say nothing else where they require a gradient
        strides = [each * x.element_size() for each in x.stride()]
        return x.data_ptr(), _span(x.shape, strides, x.element_size())
    for protocol in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(x, protocol, None)
        if interface is not None:
            itemsize = int(interface["typestr"][2:])
            return interface["data"][0], _span(interface["shape"], interface.get("strides"), itemsize)
    return _native.range_of(x)


def classify(x: Any, *, context: Context | None = None) -> Memory:
    """Which kind of memory something is in: a tensor of whichever library, an Array, or (address, nbytes).

    Looks, and changes nothing. str() of the answer says what to do if it cannot be shared as it is.
    """
    address, nbytes = _range_of(x)
    return Memory(address=address, nbytes=nbytes, **_native.classify(address, nbytes, context))
