# SPDX-License-Identifier: MIT
"""What a failed call raises. All are GpuipcError; most are also what Python's own calls raise in such a case."""

import os

from gpuipc import _native


class GpuipcError(RuntimeError):
    """A call of the library failed. str() says which, the cause, and what to do."""

    status: int = 0
    """The number of the status."""
    name: str = ""
    """Its name, such as GPUIPC_ERR_TIMEOUT."""
    operation: str = ""
    """The function of the library that was called and failed."""
    native_call: str = ""
    """The call of the driver or of the system that gave native_code, such as 'cuMemCreate'; '' where there is none."""
    native_origin: str = ""
    """Where native_code comes from: 'os', 'cuda', or '' where there is none."""
    native_code: int = 0
    """errno or CUresult."""
    sentence: str = ""
    """What happened, for a person."""


class ReleasedError(GpuipcError):
    """The object was closed before."""


class ForkedError(GpuipcError):
    """CUDA was started, or the object made, before fork(), and this is the child."""


class BusyError(GpuipcError):
    """Another thread does the same on this object now."""


class NotSupported(GpuipcError, NotImplementedError):
    """This platform, GPU or driver does not have what was asked for."""


class OutOfRange(GpuipcError, ValueError):
    """Offset and length reach beyond the buffer."""


class NotShareable(GpuipcError, BufferError):
    """This memory cannot be shared; the sentence says why, and what can."""


class DriverError(GpuipcError):
    """The driver or the GPU: there is none, it is too old, it failed, or it refused."""


class CaptureError(DriverError):
    """A stream that is being captured was to do what a graph cannot repeat. Capture goes on; do it before or after."""


class OutOfDeviceMemory(DriverError, MemoryError):
    """The GPU has not enough free memory."""


class OutOfMemory(GpuipcError, MemoryError):
    """The process has not enough host memory."""


class AccessDenied(GpuipcError, PermissionError):
    """Another user's process, a policy that refused, or memory that may only be read."""


class Timeout(GpuipcError, TimeoutError):
    """The time given ran out; nothing was lost."""


class NotFound(GpuipcError, LookupError):
    """Nothing has this name or address."""


class PeerClosed(GpuipcError, ConnectionError):
    """The other process closed the connection or ended."""


class LostError(GpuipcError):
    """The process that was to fill the memory, or that owns it, has ended."""


class ProtocolError(GpuipcError, ConnectionError):
    """The peer sent what no peer sends."""


class LimitError(ProtocolError):
    """There are as many as there may be; the sentence says of what, and how many. It is a ProtocolError, as it was before
    it had a name of its own, though mostly no peer has done anything wrong."""


class TicketError(GpuipcError):
    """The ticket does not open; the sentence says why."""


class TicketRevoked(TicketError):
    """Its owner has revoked it."""


class TicketExpired(TicketError):
    """Its time is over."""


class ExporterGone(TicketError):
    """The process that gave it out has ended."""


_BY_NAME: dict[str, type[GpuipcError]] = {
    "ERR_RELEASED": ReleasedError,
    "ERR_OUT_OF_RANGE": OutOfRange,
    "ERR_NOT_DEVICE_MEMORY": NotShareable,
    "ERR_NOT_SHAREABLE": NotShareable,
    "ERR_FORKED": ForkedError,
    "ERR_BUSY": BusyError,
    "ERR_NOT_SUPPORTED": NotSupported,
    "ERR_OUT_OF_DEVICE_MEMORY": OutOfDeviceMemory,
    "ERR_OUT_OF_MEMORY": OutOfMemory,
    "ERR_CUDA": DriverError,
    "ERR_TIMEOUT": Timeout,
    "ERR_NOT_FOUND": NotFound,
    "ERR_ACCESS_DENIED": AccessDenied,
    "ERR_PEER_CLOSED": PeerClosed,
    "ERR_CONNECTION_BROKEN": PeerClosed,
    "ERR_LOST": LostError,
    "ERR_LIMIT": LimitError,
    "ERR_TICKET_EXPIRED": TicketExpired,
    "ERR_TICKET_REVOKED": TicketRevoked,
    "ERR_EXPORTER_GONE": ExporterGone,
}


# CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and its kin (cuda.h).
_CAPTURE_CODES = range(900, 910)

# The remedy in Python, where the library's sentences name the one in C.
_NOTES = {
    "GPUIPC_ERR_DEVICE_NOT_VISIBLE": (
        "CUDA_VISIBLE_DEVICES of this process: {visible}. Open it for a GPU that is there: gpuipc.open(ticket, device=0), "
        "or gpuipc.config.open_device = 0 before unpickling"
    ),
    "GPUIPC_ERR_DEVICE_NOT_FOUND": "CUDA_VISIBLE_DEVICES of this process: {visible}. gpuipc.devices() are what it sees",
    "GPUIPC_ERR_NO_DEVICE": "CUDA_VISIBLE_DEVICES of this process: {visible}",
    "GPUIPC_ERR_FORKED": (
        "with multiprocessing: get_context('spawn') or get_context('forkserver'); the child gets arrays by a queue or a pipe"
    ),
}

# Of GPUIPC_ERR_SERVER_BUSY, which has other reasons as well.
_LIMIT_OF_A_USER = "max_connections_per_user"
_LIMIT_NOTE = (
    "in the process that shares the memory: gpuipc.config.max_connections_per_user = N before its first ticket or "
    "pickle, or Context(max_connections_per_user=N), or Server(max_connections_per_user=N)"
)


def _class_of(name: str, status: int) -> type[GpuipcError]:
    if name in _BY_NAME:
        return _BY_NAME[name]
    if 30 <= status <= 38:
        return DriverError
    if 80 <= status < 100:
        return ProtocolError
    return TicketError if 100 <= status < 120 else GpuipcError


_CLASSES: dict[int, tuple[str, type[GpuipcError]]] = {
    status: (f"GPUIPC_{name}", _class_of(name, status)) for name, (status, _) in _native.statuses().items()
}


def _make(
    status: int, text: str, operation: str, native_call: str, native_origin: str, native_code: int, sentence: str
) -> GpuipcError:
    name, kind = _CLASSES.get(status, ("GPUIPC_UNKNOWN_STATUS", GpuipcError))
    if native_origin == "cuda" and native_code in _CAPTURE_CODES:
        kind = CaptureError
    error = kind(text)
    if name in _NOTES:
        error.add_note(_NOTES[name].format(visible=os.environ.get("CUDA_VISIBLE_DEVICES", "not set")))
    elif name == "GPUIPC_ERR_SERVER_BUSY" and _LIMIT_OF_A_USER in sentence:
        error.add_note(_LIMIT_NOTE)
    error.status = status
    error.name = name
    error.operation = operation
    error.native_call = native_call
    error.native_origin = native_origin
    error.native_code = native_code
    error.sentence = sentence
    return error
