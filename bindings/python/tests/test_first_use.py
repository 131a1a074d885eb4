# SPDX-License-Identifier: MIT
"""What programs try first, and what they trip over: it works as in NumPy and PyTorch, or is refused with the remedy."""

import asyncio
import copy
import dataclasses
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from conftest import PATIENCE, Run
from test_wrap import Tensor

import gpuipc
from gpuipc import _devices, config


def opened(array: gpuipc.Array) -> gpuipc.Array:
    found = gpuipc.open(array.share())
    assert isinstance(found, gpuipc.Array)
    return found


# ---- comparisons


def objects() -> dict[str, Any]:
    array = gpuipc.empty((4, 4), "int8")
    return {
        "Array": array,
        "Arena": gpuipc.Arena({"a": (4, "int8")}),
        "Buffer": array.buffer,
        "Channel": gpuipc.Channel(None, 4, "int8"),
        "Context": gpuipc.Context.default(),
        "Device": gpuipc.devices()[0],
        "Manifest": gpuipc.Manifest.arrange({"a": (4, "int8")}),
        "Returns": gpuipc.Returns(array.buffer),
        "Server": gpuipc.Server(),
        "Ticket": array.share(),
    }


def test_everything_is_compared_with_everything() -> None:
    for name, one in objects().items():
        for other in (None, 5, "text", b"bytes", object(), *objects().values()):
            assert (one == other) is not (one != other), name
        assert one == one and one != None and None != one and one in [None, one], name  # noqa: E711
        assert one == mock.ANY and hash(one) == hash(one) and bool(one), name


def test_equal_are_those_of_one_thing() -> None:
    array = gpuipc.empty(4, "int8")
    ticket = array.share()
    assert ticket == gpuipc.Ticket(str(ticket)) == copy.deepcopy(ticket) and ticket != array.share()
    assert array.buffer == array.buffer and array.buffer != gpuipc.create(4)
    assert gpuipc.devices() == gpuipc.devices() and len(set(gpuipc.devices() * 2)) == len(gpuipc.devices())
    assert "a" in gpuipc.Manifest.arrange({"a": (4, "int8")}) and None not in gpuipc.Manifest.arrange({"a": (4, "int8")})

    @dataclasses.dataclass
    class Job:
        ticket: object

    assert Job(ticket) != Job(None) and Job(None) != Job(ticket)


# ---- settings


@pytest.fixture(autouse=True)
def settings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "open_device", config.open_device)


def test_open_device_is_that_of_all_threads() -> None:
    array = gpuipc.empty(4, "int8", device=0, openers=[0, 1])

    def device() -> int:
        return int(pickle.loads(pickle.dumps(array)).access_device)

    config.open_device = 1
    assert config.open_device == 1 and config.open_device.get() == 1
    found = [device()]
    thread = threading.Thread(target=lambda: found.append(device()))
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as executor:
        found.append(executor.submit(device).result())

    async def in_thread() -> int:
        return await asyncio.get_running_loop().run_in_executor(None, device)

    found.append(asyncio.run(in_thread()))
    assert found == [1] * 4
    with config.opening_for(0):
        assert device() == 0
        with config.opening_for(None):
            assert device() == 0
    assert device() == 1
    before = config.open_device
    config.open_device = None
    assert config.open_device == None and not config.open_device and device() == 0  # noqa: E711
    config.open_device = before
    config.open_device.set("cuda:0")
    assert (config.open_device == 0, before == 1, device()) == (True, True, 0)


def test_open_device_is_patched_and_reset() -> None:
    for before in (None, 0):
        config.open_device = before
        with mock.patch.object(config, "open_device", 1):
            assert config.open_device == 1
        assert config.open_device == before
    del config.open_device
    assert config.open_device == None and config.open_device.get() is None  # noqa: E711


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("open_device", -1, ValueError, "a number, 0 or more, not -1"), ("open_device", "cuda:x", ValueError, "no device 'cuda:x'"),
        ("open_device", 1.5, TypeError, "not 1.5"),
        ("orphan_seconds", "long", ValueError, "orphan_seconds must be a finite number of seconds, 0 or more, not 'long'"),
        ("orphan_seconds", 0, ValueError, "orphan_seconds must be above 0, not 0"), ("orphan_seconds", None, TypeError, "not None"),
        ("room_seconds", -1, ValueError, "room_seconds must be .*, not -1"),
        pytest.param("room_seconds", 10**400, ValueError, "room_seconds must be .*, not 1000", id="room_seconds-huge"),
        ("keep_segments_seconds", float("nan"), ValueError, "keep_segments_seconds must be .*, not nan"),
        ("max_connections_per_user", -1, ValueError, "max_connections_per_user must be .*, not -1"),
        ("max_connections_per_user", 1.5, TypeError, "max_connections_per_user must be .*, not 1.5"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense(name: str, value: Any, error: type[Exception], text: str) -> None:
    before = getattr(config, name)
    with pytest.raises(error, match=text):
        setattr(config, name, value)
    assert getattr(config, name) == before


def test_settings_that_there_are_not() -> None:
    with pytest.raises(AttributeError, match="no setting 'open_devise'; did you mean 'open_device'"):
        setattr(config, "open_devise", 1)
    with pytest.raises(AttributeError, match="no setting 'xyz'; there are orphan_seconds"):
        setattr(config, "xyz", 1)
    with pytest.raises(AttributeError, match="no setting '__open_device'"):
        setattr(config, "__open_device", 1)
    with pytest.raises(AttributeError, match="not deleted"):
        del config.orphan_seconds
    assert {"open_device", "orphan_seconds"} <= set(dir(config))


# ---- devices


@pytest.mark.parametrize(
    "device",
    [1, np.int64(1), "cuda:1", SimpleNamespace(type="cuda", index=1), SimpleNamespace(id=1), SimpleNamespace(id=1, platform="gpu")],
)  # fmt: skip
def test_a_device_by_whatever_names_it(device: Any) -> None:
    array = gpuipc.empty(4, "float32", device=device, openers=[device], access_devices=[device])
    assert array.device == array.access_device == 1
    assert gpuipc.create(4, device=device).device == 1
    assert gpuipc.Arena({"a": (4, "int8")}, device=device).buffer.device == 1
    ticket = gpuipc.empty(4, "int8", openers=[0, 1]).share()
    for found in (gpuipc.open(ticket, device=device), gpuipc.open_buffer(ticket, device=device)):
        assert not isinstance(found, dict) and found.access_device == 1
    channel = gpuipc.Channel(None, 4, "int8", device=device)
    assert channel.buffer.device == 1
    gpuipc.subscribe(channel.ticket(), device=device).close()
    assert set(gpuipc.transports(device, device)) == set(gpuipc.transports(1, 1))
    assert gpuipc.select(device).name == gpuipc.select(1).name
    config.open_device = device
    assert config.open_device == 1


def test_a_device_of_gpuipc() -> None:
    assert gpuipc.empty(4, "int8", device=gpuipc.devices()[1]).device == 1


def test_cuda_alone_is_the_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert _devices.number("cuda") == 0
    for is_initialized, number in ((False, 0), (True, 1)):
        cuda = SimpleNamespace(is_initialized=lambda it=is_initialized: it, current_device=lambda: 1)
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
        assert _devices.number("cuda") == _devices.number(SimpleNamespace(type="cuda", index=None)) == number


@pytest.mark.parametrize(
    ("device", "error", "text"),
    [
        ("cpu", ValueError, "transport='host'"), (SimpleNamespace(type="cpu", index=None), ValueError, "transport='host'"),
        ("cuda:", ValueError, "no device"), ("cuda:-1", ValueError, "no device"), ("gpu", ValueError, "no device"),
        (1.0, TypeError, "a device is"), (True, TypeError, "a device is"), (-1, ValueError, "not -1"), (2**70, ValueError, str(2**70)), ([0], TypeError, "a device is"),
        (SimpleNamespace(id=0, platform="cpu"), TypeError, "a device is"),
    ],
)  # fmt: skip
def test_what_is_no_device(device: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        gpuipc.empty(4, "int8", device=device)


def test_several_devices_are_no_text() -> None:
    with pytest.raises(TypeError, match="openers must be a list of devices, not a str or bytes"):
        gpuipc.empty(4, "int8", openers="cuda:0")


# ---- types of elements


def test_types_of_python_are_those_of_numpy() -> None:
    for kind in (float, int, bool, complex):
        assert gpuipc.empty(4, kind).dtype == np.dtype(kind).name
    with pytest.raises(ValueError, match="'float4_e2m1fn'; did you mean 'float4_e2m1fn_x2'"):
        gpuipc.empty(4, "float4_e2m1fn")
    with pytest.raises(ValueError, match="'nonsense'; the types are bool"):
        gpuipc.empty(4, "nonsense")


def test_elements_of_several_lanes() -> None:
    array = gpuipc.empty((2, 8), "float4_e2m1fn_x2", transport="host")
    assert (array.itemsize, array.nbytes, array.dlpack_dtype) == (1, 16, (17, 4, 2))
    array.buffer.write(bytes(range(16)))
    for arrived in (opened(array), pickle.loads(pickle.dumps(array))):
        assert (arrived.dtype, arrived.shape) == ("float4_e2m1fn_x2", (2, 8))
        assert np.from_dlpack(arrived.view(dtype="uint8")).tolist() == np.arange(16).reshape(2, 8).tolist()
    assert gpuipc.wrap(gpuipc.empty(4, (17, 4, 2))).dtype == "float4_e2m1fn_x2"
    assert gpuipc.empty(4, (2, 32, 4)).itemsize == 16
    for wrong in ((17, 4, 1), (17, 4, 3), (1, 0, 8), (1, 8, 0)):
        with pytest.raises(ValueError, match="whole bytes"):
            gpuipc.empty(4, wrong)


# ---- arrays without elements


SHAPES = [(0,), (0, 4), (3, 0, 2)]


def is_alike(array: Any, shape: tuple[int, ...]) -> bool:
    usual = np.empty(shape, "float32")
    return (array.shape, array.size, array.nbytes, array.dtype) == (shape, 0, 0, "float32") and len(array) == len(usual)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transport", ["vmm", "host"])
def test_without_elements(shape: tuple[int, ...], transport: str) -> None:
    array = gpuipc.empty(shape, "float32", transport=transport)
    assert is_alike(array, shape) and array.is_contiguous and array.strides == np.empty(shape, "float32").strides or array.size == 0
    for arrived in (
        gpuipc.open(array.share()), gpuipc.open(array.ticket()), pickle.loads(pickle.dumps(array)), gpuipc.wrap(array)
        if transport == "vmm" else array, array[:], array.view(shape),
    ):  # fmt: skip
        assert is_alike(arrived, shape)
    assert array.view(dtype="uint8").size == 0 and array.view((7, 0)).shape == (7, 0)
    with pytest.raises(ValueError):
        array.view((0, -1))
    if transport == "host":
        assert np.from_dlpack(array).shape == shape
    else:
        assert array.__cuda_array_interface__["data"] == (0, False)
    array.await_returns(PATIENCE)


def test_slices_without_elements() -> None:
    array = gpuipc.empty((6, 8), "int32", transport="host")
    for index in (np.s_[3:3], np.s_[6:, 4:], np.s_[:, 8:], np.s_[9:, 9:]):
        part = array[index]
        assert part.shape == np.empty((6, 8))[index].shape and np.from_dlpack(part).shape == part.shape
        assert pickle.loads(pickle.dumps(part)).shape == part.shape == opened(part).shape
        assert part[:, 0:0].shape[1] == 0 and gpuipc.place(array.buffer, (0,), "int8", array.nbytes).size == 0


def test_without_elements_among_others() -> None:
    arena = gpuipc.Arena({"none": ((0, 4), "float32"), "some": ((3,), "float32"), "last": ((0,), "int8")}, transport="host")
    every: list[Any] = [arena, gpuipc.open(arena.ticket()), pickle.loads(pickle.dumps(arena))]
    for arrays in [*every, gpuipc.open(gpuipc.share(dict(arena)))]:
        assert {name: each.shape for name, each in arrays.items()} == {"none": (0, 4), "some": (3,), "last": (0,)}
    assert gpuipc.Arena({"none": ((0,), "int8")})["none"].size == 0
    assert is_alike(gpuipc.wrap(Tensor(0, shape=(0, 4))), (0, 4))


def test_without_elements_by_messages_and_channels() -> None:
    def serve() -> None:
        with listener.accept(PATIENCE) as connection:
            connection.send(b"", [gpuipc.empty((0, 4), "float32"), gpuipc.empty(3, "int8")])

    with gpuipc.listen("none") as listener, ThreadPoolExecutor(1) as executor:
        served = executor.submit(serve)
        with gpuipc.connect("none", PATIENCE, context=gpuipc.Context()) as connection:
            assert [each.shape for each in connection.receive(PATIENCE).arrays] == [(0, 4), (3,)]
        served.result()
    channel = gpuipc.Channel(None, {"none": ((0, 4), "float32"), "some": ((2,), "int8")})
    with gpuipc.subscribe(channel.ticket()) as subscription:
        channel.loan().publish()
        with subscription.take(PATIENCE) as frame:
            assert (frame["none"].shape, frame["some"].shape) == ((0, 4), (2,))
    channel = gpuipc.Channel(None, (0, 4), "float32")
    with gpuipc.subscribe(channel.ticket()) as subscription:
        channel.loan().publish()
        with subscription.take(PATIENCE) as frame:
            assert frame.array.shape == (0, 4)


# ---- parts by numbers


def test_numbers_take_dimensions_away() -> None:
    array = gpuipc.empty((4, 6), "int32", transport="host")
    numpy = np.from_dlpack(array)
    numpy[:] = np.arange(24).reshape(4, 6)
    for index in (0, -1, np.int64(2), (1, 2), (slice(1, 3), 4), (..., -1), (2, slice(None, None, 2)), (0, ...)):
        assert np.array_equal(np.from_dlpack(array[index]), numpy[index]), index
    assert [np.from_dlpack(each).tolist() for each in array] == numpy.tolist()
    assert array[1, 2].shape == () and bool(array[1, 2])
    with pytest.raises(IndexError, match="index 4 is outside dimension 0, which has 4 elements"):
        array[4]
    with pytest.raises(TypeError):
        iter(array[1, 2])
    wrong: Any
    for wrong in (True, None, 1.0, [0, 1], "name"):
        with pytest.raises(TypeError, match="numbers, slices and ...; for anything else make a tensor"):
            array[wrong]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: gpuipc.empty(-1, "int8"), ValueError, "a dimension must be 0 or more, not -1"),
        (lambda: gpuipc.empty((2, 2**70), "int8"), ValueError, str(2**70)), (lambda: gpuipc.empty(2**70, "int8"), ValueError, str(2**70)),
        (lambda: gpuipc.empty(4, "int8")[2**70], IndexError, f"index {2**70} is outside dimension 0, which has 4 elements"),
        (lambda: gpuipc.empty(4, "int8")[-(2**70)], IndexError, f"index -{2**70} is outside"),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_an_array_has_no_values() -> None:
    text = r"an Array has no values: use numpy.from_dlpack\(\)"
    array = gpuipc.empty((1000, 1000), "float32")
    for call in (np.asarray, np.array, lambda it: np.asarray(it, "float64"), lambda it: np.array([it]), lambda it: np.ones(2) + it):
        with pytest.raises(TypeError, match=text):
            call(array)
    for value in (5, None, array):
        with pytest.raises(TypeError, match=text):
            assert value not in array
    channel = gpuipc.Channel(None, 4, "int8")
    with channel.loan() as loan, pytest.raises(TypeError, match="a frame has no values"):
        np.asarray(loan)


# ---- names of arguments


loose: Any = gpuipc
"""Without types, which would not let these calls be written."""


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: loose.empty(4, "int8", devise=0), r"empty\(\) has no argument 'devise'; did you mean 'device'"),
        (lambda: loose.create(4, opener=[0]), "did you mean 'openers'"),
        (lambda: loose.share(loose.empty(4, "int8"), acess="r"), r"share\(\) has no argument 'acess'; did you mean 'access'"),
        (lambda: loose.share({"a": loose.empty(4, "int8")}, expire=1), "did you mean 'expires'"),
        (lambda: loose.empty(4, "int8").share(oneshot=True), "did you mean 'one_shot'"),
        (lambda: loose.Server().share(loose.empty(4, "int8"), acess="r"), "did you mean 'access'"),
        (lambda: loose.Arena({"a": (4, "int8")}).share(acess="r"), "did you mean 'access'"),
        (lambda: loose.open(loose.empty(4, "int8").share(), devise=0), "did you mean 'device'"),
        (lambda: loose.Context(runtime_dir="/tmp"), r"Context\(\) has no argument .runtime_dir.; did you mean 'runtime_directory'"),
        (lambda: loose.Server(max_connection=3), "did you mean 'max_connections'"),
        (lambda: loose.Channel("misspelt", 4, "int8", slot=3), "did you mean 'slots'"),
        (lambda: loose.subscribe("misspelt", delivry="all"), "did you mean 'delivery'"),
        (lambda: loose.connect("misspelt", 0, user=[1]), "did you mean 'users'"),
        (lambda: loose.empty(4, "int8", xyz=0), "'xyz'; it has shape, dtype, device"),
        (lambda: loose.place(loose.create(4), 4, "int8", ofset=0), r"place\(\) has no argument 'ofset'; did you mean 'offset'"),
        (lambda: loose.empty(4, "int8").view(dtyp="uint8"), r"view\(\) has no argument 'dtyp'; did you mean 'dtype'"),
        (lambda: loose.empty(4, "int8").await_returns(timeot=1), "did you mean 'timeout'"),
        (lambda: loose.create(4).read(nbyte=1), "did you mean 'nbytes'"),
        (lambda: loose.Manifest.arrange({}, aligment=1), r"arrange\(\) has no argument 'aligment'; did you mean 'alignment'"),
        (lambda: loose.Manifest(b"", nbyte=1), r"Manifest\(\) has no argument 'nbyte'; did you mean 'nbytes'"),
        (lambda: loose.Server(thread=False).poll(time_out=0), "did you mean 'timeout'"),
    ],
)  # fmt: skip
def test_names_that_are_misspelt(call: Callable[[], object], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call()


# ---- whether there is something


def test_is_available(run_python: Run) -> None:
    assert gpuipc.is_available()
    run_python("import gpuipc; assert gpuipc.is_available() is False", GPUIPC_CUDA_DRIVER="/nowhere/libcuda.so")
    run_python("import gpuipc; assert gpuipc.is_available() is False", CUDA_VISIBLE_DEVICES="")


def test_a_subinterpreter_is_refused(run_python: Run) -> None:
    name = "_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters"
    for first in ("", "import gpuipc; kept = gpuipc.empty(4, 'int8')"):
        for last in ("destroy(i)", "list_all()"):
            run_python(
                f"import {name} as s\n{first}\n"
                "i = s.create()\n"
                "program = 'try: import gpuipc\\nexcept ImportError as e: print(type(e).__name__, e)'\n"
                f"s.run_string(i, program)\ns.{last}"
            )


# ---- limits


def test_an_arena_of_many_arrays() -> None:
    specs = {f"model.layers.{number}.weight": ((17,), "float32") for number in range(20000)}
    arena = gpuipc.Arena(specs)
    arrays = gpuipc.open(arena.ticket())
    assert isinstance(arrays, dict) and list(arrays) == list(specs)
    assert arrays["model.layers.19999.weight"].offset == arena["model.layers.19999.weight"].offset
    assert len(pickle.loads(pickle.dumps(arena))) == 20000


OPENS = "import gpuipc, sys\na = gpuipc.open(sys.argv[1])\nprint('open', flush=True)\nsys.stdin.read()"
SHARES = """
import logging, subprocess, sys, gpuipc
logging.disable()
{setting}
array = gpuipc.empty(4, "int8", context={context})
def opened():
    return subprocess.Popen([sys.executable, "-c", {opens!r}, str(array.ticket())], text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
first, second = opened(), None
assert first.stdout.readline() == "open\\n"
second = opened()
said, failed = second.communicate("")
assert said == "" and "gpuipc.config.max_connections_per_user" in failed, (said, failed)
first.communicate("")
try: gpuipc.config.max_connections_per_user = 2
except RuntimeError as error: assert "before the first ticket" in str(error)
else: assert {context} is not None
"""


@pytest.mark.parametrize(
    ("setting", "context"),
    [
        ("gpuipc.config.max_connections_per_user = 1", "None"),
        ("gpuipc.config.max_connections_per_user = 9", "gpuipc.Context(max_connections_per_user=1)"),
    ],
)
def test_the_limit_of_processes_of_one_user(setting: str, context: str, run_python: Run) -> None:
    run_python(SHARES.format(setting=setting, context=context, opens=OPENS))


# ---- pickles of receivers that have ended


def test_pickles_are_cancelled() -> None:
    array = gpuipc.empty(4, "int8", transport="host")
    read, unread = pickle.dumps(array), pickle.dumps(array)
    assert array.buffer.lent_count == 2
    kept = pickle.loads(read)
    for cancel in (array.cancel_lent, array.buffer.cancel_lent):
        cancel()
        cancel()
    array.await_returns(PATIENCE)
    del kept
    assert array.buffer.lent_count == 0
    assert pickle.loads(pickle.dumps(array)).shape == (4,)
    opener = "import pickle, sys\npickle.loads(bytes.fromhex(sys.argv[1]))"
    failed = subprocess.run([sys.executable, "-c", opener, unread.hex()], capture_output=True, text=True, timeout=PATIENCE)
    assert "TicketRevoked" in failed.stderr, failed
    arena = gpuipc.Arena({"a": (4, "int8")})
    pickle.dumps(arena)
    arena.cancel_lent()
    arena.await_returns(PATIENCE)
