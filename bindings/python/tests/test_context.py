# SPDX-License-Identifier: MIT
import os
from pathlib import Path

import pytest
from conftest import Run

import gpuipc


def test_importing_touches_no_driver(run_python: Run) -> None:
    run_python("import gpuipc, gpuipc.testing", GPUIPC_CUDA_DRIVER="/nowhere/libcuda.so")


def test_a_missing_driver_is_said_at_first_use(run_python: Run) -> None:
    run_python(
        "import gpuipc\n"
        "try: gpuipc.empty(1, 'int8')\n"
        "except gpuipc.errors.DriverError as error: assert '/nowhere' in str(error), error\n"
        "else: raise SystemExit('no error')",
        GPUIPC_CUDA_DRIVER="/nowhere/libcuda.so",
    )


def test_the_default_is_one_and_emulated() -> None:
    context = gpuipc.Context.default()
    assert context == gpuipc.Context.default()
    assert hash(context) == hash(gpuipc.Context.default())
    assert context.is_emulated and context.device_count == 2
    assert [device.number for device in context.devices] == [0, 1]
    assert all(len(device.uuid) == 16 and device.can_share and not device.why_not for device in context.devices)
    assert "emulated" in context.driver_path


def test_another_context_is_another(tmp_path: Path) -> None:
    with gpuipc.Context(driver="emulated", max_cached_imports=4) as context:
        assert context != gpuipc.Context.default()
        array = gpuipc.empty(8, "int8", context=context)
        assert array.buffer.context == context
        ticket = array.ticket()
    with pytest.raises(gpuipc.errors.ReleasedError):
        context.device_count  # noqa: B018
    with pytest.raises(gpuipc.errors.TicketError):
        gpuipc.open(ticket)
    array.buffer.write(b"here")
    assert array.buffer.read(0, 4) == b"here"
    context.close()


def test_a_closed_default_is_made_anew(run_python: Run) -> None:
    run_python(
        "import gpuipc\n"
        "first = gpuipc.Context.default()\n"
        "first.close()\n"
        "assert gpuipc.Context.default() != first\n"
        "gpuipc.empty(1, 'int8')"
    )


def test_a_forked_child_is_told(run_python: Run) -> None:
    run_python(
        "import gpuipc, os\n"
        "array = gpuipc.empty(8, 'int8')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    code = 3\n"
        "    try: array.buffer.read()\n"
        "    except gpuipc.errors.ForkedError: code = 0\n"
        "    try: gpuipc.empty(8, 'int8')\n"
        "    except gpuipc.errors.ForkedError: pass\n"
        "    else: code = 4\n"
        "    del array\n"
        "    os._exit(code)\n"
        "_, status = os.waitpid(child, 0)\n"
        "assert os.waitstatus_to_exitcode(status) == 0, status\n"
        "array.buffer.write(bytes(8))"
    )


def test_a_daemon_thread_in_its_calls_leaves_the_end_alone(run_python: Run) -> None:
    for _ in range(5):
        run_python(
            "import gpuipc, threading, time\n"
            "array = gpuipc.empty(4, 'uint8')\n"
            "begun = threading.Event()\n"
            "def read():\n"
            "    while True:\n"
            "        array.buffer.read(0, 4)\n"
            "        begun.set()\n"
            "threading.Thread(target=read, daemon=True).start()\n"
            "begun.wait()\n"
            "time.sleep(0.02)"
        )


CALLS_OF_PYTHON = {
    "__dlpack__": "lambda: gpuipc.wrap(asked)",
    "__cuda_stream__": "lambda: gpuipc.empty(4, 'uint8').buffer.fill(0, stream=asked)",
    "__index__": "lambda: gpuipc.empty((asked,), 'uint8')",
    "__iter__": "lambda: gpuipc.empty(asked, 'uint8')",
    "__next__": "lambda: gpuipc.listen(f'stays-{os.getpid()}-too', users=asked)",
    "__str__": "lambda: gpuipc.empty(4, asked)",
    "__getitem__": "lambda: gpuipc.empty(4, 'uint8', transport='host').__dlpack__(max_version=asked)",
    "share": "lambda: gpuipc.share(asked)",
    "source": "lambda: gpuipc.Channel(None, 4, 'uint8').loan()",
    "shape": "lambda: gpuipc.Arena({'a': asked})",
    "policy": "lambda: listener.accept()",
    "unraisablehook": "lambda: listener.accept()",
}


@pytest.mark.parametrize("name", CALLS_OF_PYTHON)
def test_a_daemon_thread_in_a_function_of_its_own_leaves_the_end_alone(run_python: Run, name: str) -> None:
    for _ in range(3):
        run_python(
            "import gpuipc, os, sys, threading, time\n"
            "begun = threading.Event()\n"
            "def stay(self, *_, **__):\n"
            "    begun.set()\n"
            "    while True: [1] * 10\n"
            "class Asked:\n"
            "    dtype = 'uint8'\n"
            "    def __dlpack_device__(self): return (2, 0)\n"
            f"    {name} = {'property(stay)' if name == 'shape' else 'stay'}\n"
            f"{'Asked.__iter__ = lambda self: self' if name == '__next__' else ''}\n"
            f"{'gpuipc._native.set_stream_source(stay)' if name == 'source' else ''}\n"
            "asked = Asked()\n"
            f"policy = {'lambda peer: 1 / 0' if name == 'unraisablehook' else 'stay'}\n"
            f"sys.unraisablehook = {'stay' if name == 'unraisablehook' else 'sys.unraisablehook'}\n"
            "listener = gpuipc.listen(f'stays-{os.getpid()}', policy=policy)\n"
            "def connect(): gpuipc.connect(f'stays-{os.getpid()}')\n"
            f"for call in ({CALLS_OF_PYTHON[name]}, {'connect' if 'accept' in CALLS_OF_PYTHON[name] else 'int'}):\n"
            "    threading.Thread(target=call, daemon=True).start()\n"
            "assert begun.wait(60)\n"
            "time.sleep(0.02)"
        )


def test_a_child_forked_before_has_a_context_of_its_own(run_python: Run) -> None:
    run_python(
        "import gpuipc, os\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    gpuipc.empty(8, 'int8').ticket()\n"
        "    os._exit(0)\n"
        "_, status = os.waitpid(child, 0)\n"
        "assert os.waitstatus_to_exitcode(status) == 0, status"
    )


def test_emulated_is_for_those_begun_from_here_too(run_python: Run) -> None:
    done = run_python(
        "import gpuipc.testing, os\n"
        "gpuipc.testing.emulated()\n"
        "print(os.environ['GPUIPC_CUDA_DRIVER'])",
        GPUIPC_CUDA_DRIVER="",
    )
    assert done.stdout.strip() == "emulated"


def test_what_comes_with_the_package() -> None:
    assert os.path.isfile(gpuipc.get_library())
    assert (Path(gpuipc.get_include()) / "gpuipc" / "gpuipc.h").is_file()
    assert gpuipc.__version__ == gpuipc.version()
