# SPDX-License-Identifier: MIT
"""gpuipc.torch with PyTorch itself, on tensors of the CPU: those over memory of transport host are gpuipc's."""

import contextlib
import errno
import gc
import os
import pickle
import re
import signal
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from multiprocessing.context import SpawnContext
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # an older PyTorch warns of a newer NumPy
    import torch
    import torch.multiprocessing

import torch_others

import gpuipc
import gpuipc.torch

from conftest import PATIENCE

# An older PyTorch finds NumPy newer than it knows.
pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy")
IS_OLD = not hasattr(torch.Tensor, "untyped_storage")  # PyTorch 1 takes no bool by DLPack

TYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
]  # fmt: skip


class Arena:
    """Tensors of the CPU in one piece of gpuipc's memory."""

    def __init__(self, nbytes: int = 1 << 20):
        self._buffer = gpuipc.create(nbytes, transport="host")
        self._end = 0

    def make(self, *shape: int, dtype: str = "int64") -> Any:
        array = gpuipc.place(self._buffer, shape, "uint8" if dtype == "bool" and IS_OLD else dtype, self._end)
        self._end += -(-array.nbytes // 64) * 64
        return gpuipc.torch.tensor(array).zero_().view(getattr(torch, dtype))


@pytest.fixture
def arena() -> Arena:
    return Arena()


class Other:
    """A process that does with what it gets what torch_others.serve() does."""

    def __init__(self, spawn: SpawnContext):
        self.queue, self._answers = spawn.Queue(), spawn.Queue()
        self._process = spawn.Process(target=torch_others.serve, args=(self.queue, self._answers))
        self._process.start()

    def __call__(self, value: Any) -> Any:
        self.queue.put(value)
        return self._answers.get(timeout=PATIENCE)

    def end(self) -> None:
        self.queue.put(None)
        self._process.join(PATIENCE)
        assert self._process.exitcode == 0


@pytest.fixture
def other(spawn: SpawnContext) -> Iterator[Other]:
    one = Other(spawn)
    yield one
    one.end()


@pytest.fixture
def installed() -> Iterator[None]:
    gpuipc.torch.install()
    yield
    gpuipc.torch.uninstall()


# ---- one tensor


def test_a_tensor_of_an_array_is_its_memory() -> None:
    for name in TYPES:
        if name == "bool" and IS_OLD:
            continue
        array = gpuipc.empty((4, 6), name, transport="host")
        tensor = gpuipc.torch.tensor(array[1:3, ::2])
        assert tensor.data_ptr() == array[1:3, ::2].address
        assert (tuple(tensor.shape), tensor.stride(), str(tensor.dtype)) == ((2, 3), (6, 2), f"torch.{name}")


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")  # deprecated since PyTorch 2.15
def test_what_is_no_memory_of_a_gpu_is_refused_with_the_reason() -> None:
    for wrong, text in (
        (torch.ones(3), "its own process"),
        (torch.empty(0), "its own process"),
        (torch.eye(3).to_sparse(), "sparse"),
        (torch.empty(3, device="meta"), "meta"),
        (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantized"),
        (torch.ones(3, dtype=torch.complex64).conj(), "conj"),
        (torch.ones(3, requires_grad=True) * 2, "no leaf"),
        (torch_others.Subclass(torch.ones(3)), "subclass"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            gpuipc.torch.wrap(wrong)


def test_what_memory_a_tensor_has(arena: Arena) -> None:
    own = gpuipc.torch.classify(arena.make(4))
    assert (own.is_known, own.transports, own.reason) == (True, ("host",), "")
    ordinary = gpuipc.torch.classify(torch.ones(4))
    assert not ordinary.is_known and not ordinary.transports and "its own process" in ordinary.reason


def test_a_pool_wants_cuda() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: tests/tensors")
    with pytest.raises((RuntimeError, AssertionError)):
        gpuipc.torch.MemPool()


# ---- torch.multiprocessing


def test_importing_changes_nothing_in_pytorch() -> None:
    own = torch.multiprocessing.reductions.reduce_tensor
    registered = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    assert registered[torch.Tensor] is own
    gpuipc.torch.install()
    gpuipc.torch.install()  # once is enough
    assert registered[torch.Tensor] is not own
    gpuipc.torch.uninstall()
    assert registered[torch.Tensor] is own and registered[torch.nn.Parameter] is own
    gpuipc.torch.uninstall()


def test_a_tensor_is_the_same_memory_in_another_process(arena: Arena, other: Other, installed: None) -> None:
    for tensor in (arena.make(4, 4), arena.make(2, 3, 4)[:, 1:, ::2], arena.make(3, 3).t(), arena.make()):
        tensor.fill_(5)
        assert other(tensor) == ([5] * tensor.numel(), tuple(tensor.shape), tensor.stride(), "Tensor", False)
        assert (tensor == 6).all()


def test_parameters_and_gradients(arena: Arena, other: Other, installed: None) -> None:
    parameter = torch.nn.Parameter(arena.make(4, dtype="float32"))
    frozen = torch.nn.Parameter(arena.make(4, dtype="float32"), requires_grad=False)
    leaf = arena.make(4, dtype="float32").requires_grad_()
    assert other(parameter)[-2:] == ("Parameter", True)
    assert other(frozen)[-2:] == ("Parameter", False)
    assert other(leaf)[-2:] == ("Tensor", True)
    with pytest.raises(RuntimeError, match="no leaf"):
        ForkingPickler.dumps(leaf.view(2, 2))


def test_other_tensors_go_pytorchs_own_way(other: Other, installed: None) -> None:
    tensor = torch.full((4,), 5)
    assert other(tensor) == ([5] * 4, (4,), (1,), "Tensor", False)
    assert (tensor == 6).all()  # its own shared memory
    assert ForkingPickler.loads(ForkingPickler.dumps(torch.empty(0, 3))).shape == (0, 3)


def test_the_memory_is_kept_until_it_is_given_back(arena: Arena, other: Other, installed: None) -> None:
    before = gpuipc.lingering()
    tensor = arena.make(4)
    assert other("keep") == "kept"
    assert other(tensor)[0] == [0] * 4
    del tensor
    gc.collect()
    assert gpuipc.lingering() == before + 1
    assert other("let go") == "gone"
    while gpuipc.lingering() > before:
        pass


def ticket_of(tensor: Any) -> bytes:
    """By which it is handed over. Whoever is to get it lets go at once."""
    rebuild, arguments = gpuipc.torch._reduce(tensor)
    rebuild(*arguments)
    (((ticket, _),), _, _) = arguments
    return bytes(ticket)


def test_all_hand_overs_of_an_array_are_by_one_ticket(installed: None) -> None:
    array, before = gpuipc.empty(8, "int64", transport="host"), gpuipc.lingering()
    tensor = gpuipc.torch.tensor(array)
    tickets = set()
    for _ in range(3):
        tickets.add(ticket_of(tensor))
        while gpuipc.lingering() > before:
            pass
    assert len(tickets) == 1
    array.close()  # whose tickets end with it
    assert ticket_of(tensor) not in tickets


def test_an_array_waits_for_its_tensors(installed: None) -> None:
    array = gpuipc.empty(8, "int64", transport="host")
    rebuild, arguments = gpuipc.torch._reduce(gpuipc.torch.tensor(array))
    assert array.buffer.lent_count == 1
    with pytest.raises(gpuipc.errors.Timeout):
        array.await_returns(0)
    rebuild(*arguments)
    array.await_returns(PATIENCE)


def test_what_is_out_stays_when_its_array_is_closed(installed: None) -> None:
    array = gpuipc.empty(8, "int64", transport="host")
    text = ForkingPickler.dumps(gpuipc.torch.tensor(array).fill_(7))
    array.close()
    assert pickle.loads(text).tolist() == [7] * 8


def test_a_tensor_that_arrived_is_not_passed_on(arena: Arena, other: Other, installed: None) -> None:
    assert other("keep") == "kept"
    other(arena.make(4))
    assert "clone() it" in other("pass on")
    assert other("let go") == "gone"


# ---- bundles


def everything(arena: Arena) -> dict[str, Any]:
    """A structure with every kind of thing in it."""
    square = arena.make(4, 4)
    square.copy_(torch.arange(16).view(4, 4))
    values: dict[str, Any] = {
        "square": square,
        "again": square,
        "rows": square[1:3],
        "transposed": square.t(),
        "wide": arena.make(1).expand(3),
        "many": arena.make(1).view([1] * 11),
        "parameter": torch.nn.Parameter(arena.make(4, dtype="float32")),
        "nested": [arena.make(2), {"deep": (arena.make(3), "text", 5, None)}],
        "by value": torch.arange(3),
        "nothing": torch.empty(0, 3),
    }
    values.update({name: arena.make(5, dtype=name) for name in TYPES})
    return values


def test_a_bundle_arrives_as_it_was(arena: Arena, other: Other) -> None:
    values = everything(arena)
    expected = torch_others.described(values)
    bundle = gpuipc.torch.Bundle(values)
    assert other(bundle) == expected
    assert bundle.tensors is values


def test_a_state_dict_arrives_with_all_that_it_has(arena: Arena, other: Other) -> None:
    state: Any = OrderedDict((f"layer.{i}", arena.make(8, 8, dtype="float32")) for i in range(50))
    state._metadata = {"version": 2}
    for number, each in enumerate(state.values()):
        each.fill_(number)
    assert other(gpuipc.torch.Bundle(state)) == torch_others.described(state)


def test_what_is_shared_at_home_is_shared_where_it_arrives(arena: Arena) -> None:
    square = arena.make(4, 4)
    bundle = pickle.loads(pickle.dumps(gpuipc.torch.Bundle([square, square, square[1:], square.view(-1), arena.make(2)])))
    one, same, rows, flat, apart = bundle.tensors
    assert one is same
    assert torch_others.storage(one) == torch_others.storage(rows) == torch_others.storage(flat)
    assert torch_others.storage(apart) != torch_others.storage(one)
    rows += 1
    assert square.sum() == 12


def test_bundles_are_read_like_what_they_hold(arena: Arena) -> None:
    bundle = pickle.loads(pickle.dumps(gpuipc.torch.Bundle({"a": arena.make(2), "b": 5})))
    assert len(bundle) == 2 and list(bundle) == list(bundle.keys()) == ["a", "b"] and bundle["b"] == 5
    assert bundle["a"] is bundle["a"]
    assert [type(each) for each in bundle.values()] == [torch.Tensor, int] and dict(bundle.items())["b"] == 5
    assert repr(bundle) == "<gpuipc.torch.Bundle of 1 tensors>"
    assert gpuipc.torch.Bundle([]).tensors == [] and pickle.loads(pickle.dumps(gpuipc.torch.Bundle([1]))).tensors == [1]


def test_a_bundle_is_out_until_it_is_given_back(arena: Arena, other: Other) -> None:
    bundle = gpuipc.torch.Bundle({"a": arena.make(4), "b": arena.make(4)})
    assert bundle.lent_count == 0
    assert other("keep") == "kept"
    other(bundle)
    assert bundle.lent_count == 1
    with pytest.raises(gpuipc.errors.Timeout):
        bundle.await_returns(0.01)
    assert other("let go") == "gone"
    bundle.await_returns(PATIENCE)
    assert bundle.lent_count == 0
    other("keep")
    other(bundle)
    assert other("give back") == "ReleasedError"
    bundle.await_returns(PATIENCE)
    other("let go")


def test_a_bundle_is_lent_before_it_leaves(arena: Arena, other: Other) -> None:
    bundle = gpuipc.torch.Bundle([arena.make(4)])
    lent = bundle.lend()
    assert bundle.lent_count == 1  # as yet no queue has pickled it
    assert other(lent) == torch_others.described(bundle.tensors)
    bundle.await_returns(PATIENCE)
    assert bundle.lent_count == 0


def test_a_bundle_is_for_one_receiver(arena: Arena) -> None:
    text = pickle.dumps(gpuipc.torch.Bundle([arena.make(4)]))
    first = pickle.loads(text)
    with pytest.raises(gpuipc.errors.TicketError, match="one receiver"):
        pickle.loads(text)
    with pytest.raises(TypeError, match="another process"):
        pickle.dumps(first)


def test_a_bundle_that_nobody_reads_is_let_go(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpuipc.config, "orphan_seconds", 0.05)
    before = gpuipc.lingering()
    text = pickle.dumps(gpuipc.torch.Bundle([arena.make(4)]))
    while gpuipc.lingering() > before:
        pass
    with pytest.raises(gpuipc.errors.TicketError):
        pickle.loads(text)


def unread(queue: Any) -> None:
    """A worker that does not come to read."""
    queue.get()


def test_what_was_lent_is_cancelled(arena: Arena, other: Other) -> None:
    bundle = gpuipc.torch.Bundle([arena.make(4)])
    lent = bundle.lend()
    assert bundle.lent_count == 1 and lent.cancel() and lent.cancel() and bundle.lent_count == 0
    bundle.await_returns(PATIENCE)
    with pytest.raises(gpuipc.errors.TicketError, match="cancelled"):
        pickle.loads(pickle.dumps(lent))
    other("keep")
    taken, kept_here = bundle.lend(), bundle.lend()
    other(taken)
    assert not taken.cancel() and bundle.lent_count == 2
    bundle.cancel_lent()
    assert bundle.lent_count == 1 and kept_here.cancel()
    other("let go")
    bundle.await_returns(PATIENCE)
    assert taken.cancel()


def test_what_is_lent_to_a_process_ends_with_it(arena: Arena, spawn: SpawnContext) -> None:
    queue = spawn.Queue()
    process = spawn.Process(target=unread, args=(queue,))
    bundle = gpuipc.torch.Bundle([arena.make(4)])
    with pytest.raises(TypeError, match="was started"):
        bundle.lend(to=process)
    process.start()
    descriptors = len(os.listdir("/proc/self/fd"))
    lent = [bundle.lend(to=process), bundle.lend(to=process.pid), bundle.lend(to=process)]
    assert bundle.lent_count == 3 and len(os.listdir("/proc/self/fd")) <= descriptors + 2
    with pytest.raises(gpuipc.errors.Timeout) as failed:
        bundle.await_returns(0.01)
    assert "Lent.cancel()" in "".join(failed.value.__notes__)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    bundle.await_returns(PATIENCE)  # its parent has not waited for it
    assert bundle.lent_count == 0 and all(each.cancel() for each in lent)
    for ended in (process.pid, process):
        with pytest.raises(ProcessLookupError, match=f"process {process.pid} has ended"):
            bundle.lend(to=ended)
    process.join(PATIENCE)
    for ended in (process, process.pid):
        with pytest.raises(ProcessLookupError, match=f"process {process.pid} has ended"):
            bundle.lend(to=ended)
    for wrong, error in (("5", TypeError), (True, TypeError), (-5, ValueError), (0, ValueError), (2**40, ValueError)):
        with pytest.raises(error, match=re.escape(repr(wrong))):
            bundle.lend(to=wrong)
    pickle.loads(pickle.dumps(bundle.lend(to=os.getpid())))
    bundle.await_returns(PATIENCE)


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_a_system_that_tells_of_no_process(arena: Arena, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refused(process: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pidfd_open", refused)
    bundle = gpuipc.torch.Bundle([arena.make(4)])
    with pytest.raises(gpuipc.errors.NotSupported, match=r"pidfd_open\(\) is not available here: omit 'to'"):
        bundle.lend(to=os.getppid())
    assert bundle.lent_count == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12's, of fork() beside threads
def test_a_forked_child_cancels_nothing(arena: Arena) -> None:
    bundle = gpuipc.torch.Bundle([arena.make(4)])
    lent = bundle.lend()
    child = os.fork()
    if child == 0:
        refused = 0
        for cancel in (lent.cancel, bundle.cancel_lent):
            try:
                cancel()
            except gpuipc.errors.ForkedError:
                refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert bundle.lent_count == 1 and lent.cancel() and bundle.lent_count == 0


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="PyTorch before 2.8 has no FP4")
def test_numbers_of_4_bits(installed: None, arena: Arena) -> None:
    whole = arena.make(8, dtype="uint8")
    whole.copy_(torch.arange(8))
    tensor = whole.view(torch.float4_e2m1fn_x2)
    made = [
        ForkingPickler.loads(ForkingPickler.dumps(tensor)),
        pickle.loads(pickle.dumps(gpuipc.torch.Bundle({"alone": tensor})))["alone"],
        pickle.loads(pickle.dumps(gpuipc.torch.Bundle({"one": tensor, "both": whole})))["one"],
    ]
    for each in made:
        assert (each.dtype, each.view(torch.uint8).tolist()) == (torch.float4_e2m1fn_x2, list(range(8)))
    array = gpuipc.empty(4, torch.float4_e2m1fn_x2, transport="host")
    assert gpuipc.torch.tensor(array).dtype is torch.float4_e2m1fn_x2


def test_memory_that_may_only_be_read() -> None:
    array = gpuipc.empty(4, "float32", transport="host")
    opened = gpuipc.open(array.share(access="r"))
    assert isinstance(opened, gpuipc.Array)
    if hasattr(torch._C, "_to_dlpack_versioned"):
        assert gpuipc.torch.tensor(opened).data_ptr() == opened.address
    else:
        with pytest.raises(BufferError, match="may only be read"):
            gpuipc.torch.tensor(opened)


def test_devices_of_pytorch() -> None:
    for device in (torch.device("cuda", 1), torch.device("cuda:1"), "cuda:1"):
        assert gpuipc.empty(4, "int8", device=device, openers=[device]).device == 1
    assert gpuipc.empty(4, torch.int8, device=torch.device("cuda")).device == 0
    with pytest.raises(ValueError, match="transport='host'"):
        gpuipc.empty(4, "int8", device=torch.device("cpu"))


def test_tensors_without_elements(arena: Arena, other: Other) -> None:
    none = gpuipc.torch.tensor(gpuipc.empty((0, 4), "float32", transport="host"))
    assert (tuple(none.shape), none.dtype) == ((0, 4), torch.float32)
    tensors = {"none": none, "own": torch.empty(3, 0), "some": arena.make(2)}
    assert other(gpuipc.torch.Bundle(tensors)) == torch_others.described(tensors)


LOANS = 2047
"""How many of a context can be out."""


@pytest.fixture
def lent(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[gpuipc.torch.Lent]]:
    """As many hand-overs as there may be."""
    bundle = gpuipc.torch.Bundle([arena.make(4)])
    made: list[gpuipc.torch.Lent] = []
    with monkeypatch.context() as patch, contextlib.suppress(gpuipc.errors.LimitError):
        patch.setattr(gpuipc.config, "room_seconds", 0)
        while len(made) <= LOANS:
            made.append(bundle.lend())
    yield made
    for each in made:
        with contextlib.suppress(gpuipc.errors.TicketError):  # read by the test
            pickle.loads(pickle.dumps(each))
    bundle.await_returns(PATIENCE)


def test_more_hand_overs_than_may_be_out_are_refused(
    lent: list[gpuipc.torch.Lent], arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpuipc.config, "room_seconds", 0)
    with pytest.raises(gpuipc.errors.LimitError, match=f"{LOANS} loans"):
        gpuipc.torch.Bundle([arena.make(4)]).lend()


def test_more_hand_overs_than_may_be_out_wait_for_room(lent: list[gpuipc.torch.Lent], arena: Arena) -> None:
    bundle = gpuipc.torch.Bundle([arena.make(4)])
    reader = threading.Thread(target=lambda: pickle.loads(pickle.dumps(lent[0])))
    reader.start()
    last = bundle.lend()
    reader.join()
    assert bundle.lent_count == 1
    pickle.loads(pickle.dumps(last))


def test_bundles_refuse_what_they_cannot_hand_over(arena: Arena) -> None:
    own = arena.make(4, dtype="complex64")
    part = arena.make(4, dtype="float32").requires_grad_()[1:]
    for wrong in (own.conj(), own.conj().imag, arena.make(4).as_subclass(torch_others.Subclass), part):
        with pytest.raises(TypeError):
            gpuipc.torch.Bundle([wrong])


def test_a_bundle_keeps_the_memory_that_its_tensors_had(arena: Arena) -> None:
    tensor = arena.make(4)
    tensor.fill_(3)
    bundle = gpuipc.torch.Bundle([tensor])
    tensor.set_(torch.zeros(4, dtype=torch.int64))
    assert pickle.loads(pickle.dumps(bundle))[0].tolist() == [3] * 4
