# SPDX-License-Identifier: MIT
import inspect
import pickle

import pytest
from conftest import Run

import gpuipc
from gpuipc import errors


def test_the_record_is_in_the_exception() -> None:
    with pytest.raises(errors.TicketError) as caught:
        gpuipc.open("gpuipc1:")
    error = caught.value
    assert (error.status, error.name) == (101, "GPUIPC_ERR_TICKET_SIZE")
    assert error.operation == "gpuipc_ticket_from_text"
    assert error.native_code == 0 and error.native_origin == ""
    assert error.sentence and error.sentence in str(error) and "in general" in str(error)


def test_a_native_code_is_in_it() -> None:
    with pytest.raises(errors.GpuipcError) as caught:
        gpuipc.Context(driver="/nowhere")
    assert caught.value.native_origin == "os" and caught.value.native_code == 2


def test_it_travels_through_pickle() -> None:
    with pytest.raises(errors.GpuipcError) as caught:
        gpuipc.open("gpuipc1:")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert (str(again), again.status, again.sentence) == (str(caught.value), 101, caught.value.sentence)


@pytest.mark.parametrize(
    ("kind", "standard"),
    [
        (errors.Timeout, TimeoutError), (errors.PeerClosed, ConnectionError), (errors.OutOfDeviceMemory, MemoryError),
        (errors.NotShareable, BufferError), (errors.AccessDenied, PermissionError), (errors.OutOfRange, ValueError),
    ],
)  # fmt: skip
def test_what_python_raises_in_such_a_case(kind: type[Exception], standard: type[Exception]) -> None:
    assert issubclass(kind, standard) and issubclass(kind, errors.GpuipcError)


def test_every_status_makes_an_exception() -> None:
    classes = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.GpuipcError)}
    made = set()
    for name, (status, _) in gpuipc._native.statuses().items():
        error = errors._make(status, "text", "call", "cuCall", "cuda", 7, "sentence")
        assert (str(error), error.name, error.native_code) == ("text", f"GPUIPC_{name}", 7)
        made.add(type(error))
    made.add(type(errors._make(43, "text", "call", "cuCall", "cuda", 901, "")))
    assert type(errors._make(82, "text", "call", "", "", 0, "")) is errors.LimitError
    assert issubclass(errors.LimitError, errors.ProtocolError)
    assert made == classes
    assert errors._make(999, "text", "", "", "", 0, "").name == "GPUIPC_UNKNOWN_STATUS"


def test_a_failing_driver_call_is_named(run_python: Run) -> None:
    run_python(
        "import gpuipc\n"
        "try: gpuipc.empty(8, 'int8')\n"
        "except gpuipc.errors.DriverError as error:\n"
        "    assert (error.operation, error.native_call) == ('gpuipc_buffer_create', 'cuMemCreate'), error\n"
        "else: raise SystemExit('no error')",
        GPUIPC_EMULATED_FAIL="cuMemCreate:*=999",
    )
