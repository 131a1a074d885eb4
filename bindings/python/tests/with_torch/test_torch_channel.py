# SPDX-License-Identifier: MIT
"""Channels of PyTorch's tensors, on those of the CPU."""

import copy
import gc
import os
import pickle
import sys
import warnings
import weakref
from collections.abc import Iterator
from multiprocessing.context import SpawnContext
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # an older PyTorch warns of a newer NumPy
    import torch

import torch_others

import gpuipc
import gpuipc.torch
from gpuipc import _native, _torch_channel

from conftest import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy")

TYPES = ["bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "complex64"]


def received(pipe: Any) -> Any:
    assert pipe.poll(PATIENCE), "the other process says nothing"
    return pipe.recv()


@pytest.fixture
def installed() -> Iterator[None]:
    gpuipc.torch.install()
    yield
    gpuipc.torch.uninstall()


@pytest.fixture
def channel() -> gpuipc.torch.Channel:
    return gpuipc.torch.Channel(like=torch.zeros(2, 3), slots=2)


def publish(channel: gpuipc.torch.Channel, value: float) -> None:
    with channel.loan(timeout=PATIENCE) as frame:
        frame.fill_(value)


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="PyTorch before 2.8 has no FP4")
def test_frames_of_numbers_of_4_bits() -> None:
    like = torch.arange(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with gpuipc.torch.Channel(like=like) as channel, gpuipc.torch.subscribe(channel.ticket()) as frames:
        with channel.loan(timeout=PATIENCE) as loan:
            loan.view(torch.uint8).copy_(torch.arange(8))
        with frames.take(PATIENCE) as frame:
            assert (frame.dtype, frame.view(torch.uint8).tolist()) == (like.dtype, list(range(8)))


def test_frames_without_elements() -> None:
    like = {"none": torch.empty(0, 4), "some": torch.zeros(2)}
    with gpuipc.torch.Channel(like=like) as channel, gpuipc.torch.subscribe(channel.ticket()) as frames:
        channel.loan(timeout=PATIENCE).publish()
        with frames.take(PATIENCE) as frame:
            assert {name: tuple(each.shape) for name, each in frame.items()} == {"none": (0, 4), "some": (2,)}


def test_devices_of_frames() -> None:
    for device in ("cpu", "cpu:0", torch.device("cpu"), torch.device("cpu:0")):
        with gpuipc.torch.Channel(shape=(2,), dtype=torch.float32, device=device) as channel:
            assert channel.native.buffer.transport == "host"
    with pytest.raises(ValueError, match="no device 'mps'"):
        gpuipc.torch.Channel(shape=(2,), dtype=torch.float32, device="mps")
    with pytest.raises(TypeError, match="did you mean 'slots'"):
        gpuipc.torch.Channel(like=torch.zeros(2), slot=3)


def test_frames_arrive(spawn: SpawnContext) -> None:
    here, there = spawn.Pipe()
    name = f"tensors-{os.getpid()}"
    channel = gpuipc.torch.Channel(name, like=torch.zeros(2, 2, dtype=torch.int32), slots=3)
    process = spawn.Process(target=torch_others.read_frames, args=(name, {}, there), daemon=True)
    process.start()
    assert received(here) == "subscribed"
    for value in range(1, 9):
        with channel.loan(timeout=PATIENCE) as frame:
            frame.copy_(torch.full((2, 2), value))
            frame.header = b"%d" % value
        assert received(here) == (value, 0, b"%d" % value, {".": ("torch.int32", [[value] * 2] * 2)})
    assert [reader.process_id for reader in channel.readers()] == [process.pid]
    channel.close()
    assert received(here) == "end"
    process.join(PATIENCE)
    assert process.exitcode == 0


def test_what_pytorch_moves_comes_back_to_its_slot(channel: gpuipc.torch.Channel) -> None:
    with gpuipc.torch.subscribe(channel.ticket()) as frames:
        for value in range(1, 9):
            with channel.loan(timeout=PATIENCE) as loan:
                loan.fill_(value)
                if value == 1:
                    loan.share_memory_()
            frame = frames.take(PATIENCE)
            assert frame.flatten().tolist() == [value] * 6
            if value == 3:
                frame.detach().share_memory_()
            frame.give_back()


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_is_written_after_pytorch_moved_it_is_published(by_hand: bool) -> None:
    like = {"a": torch.zeros(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16)}
    with gpuipc.torch.Channel(like=like, slots=2) as channel, gpuipc.torch.subscribe(channel.ticket()) as frames:
        for value in range(1, 6):
            with channel.loan(timeout=PATIENCE) as loan:
                ForkingPickler.dumps(loan["a"].detach()) if value % 2 else loan["b"].share_memory_()
                loan["a"].fill_(value)
                loan["b"].fill_(-value)
                if by_hand:
                    loan["b"].publish()
            with pytest.raises(gpuipc.errors.ReleasedError):
                loan.publish()
            with frames.take(PATIENCE) as frame:
                assert (frame["a"].unique().tolist(), frame["b"].unique().tolist()) == ([value], [-value])


@pytest.mark.parametrize("several", [False, True])
def test_a_loan_that_cannot_be_published_gives_its_slot_up(several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    like = {"a": torch.zeros(2, 3)} if several else torch.zeros(2, 3)
    with gpuipc.torch.Channel(like=like, slots=1) as channel:

        def fail(*_: object) -> None:
            raise RuntimeError("there is no memory")

        monkeypatch.setattr(gpuipc._torch_channel._Known, "bring_back", fail)
        with pytest.raises(RuntimeError, match="no memory"), channel.loan(timeout=PATIENCE) as loan:
            (loan["a"] if several else loan).share_memory_()
        with pytest.raises(gpuipc.errors.ReleasedError):
            loan.publish()
        with channel.loan(timeout=PATIENCE):
            pass


def test_more_shapes_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpuipc._torch_channel, "_KNOWN_MAX", 4)
    with gpuipc.torch.Channel(like=torch.zeros(16), slots=4) as channel:
        with gpuipc.torch.subscribe(channel.ticket()) as frames:
            for value in range(20):
                with channel.loan(torch.zeros(value % 7 + 1), timeout=PATIENCE) as loan:
                    loan.fill_(value)
                with frames.take(PATIENCE) as frame:
                    assert frame.tolist() == [value] * (value % 7 + 1)
                assert len(channel._slots._known) <= 4 and len(frames._slots._known) <= 4


def test_another_thread_forgets_meanwhile(channel: gpuipc.torch.Channel) -> None:
    class Forgetting(dict[Any, Any]):
        def get(self, *arguments: Any) -> Any:
            found = super().get(*arguments)
            self.clear()
            return found

    channel._slots._known = Forgetting()
    with gpuipc.torch.subscribe(channel.ticket()) as frames:
        for value in range(4):
            publish(channel, value)
            with frames.take(PATIENCE) as frame:
                assert frame.unique().tolist() == [value]


def test_all_types_and_several_tensors() -> None:
    like = {name: torch.arange(6).view(2, 3).to(getattr(torch, name)) for name in TYPES[:4]}
    for tensors in (like, {name: torch.ones(3).to(getattr(torch, name)) for name in TYPES[4:]}):
        with gpuipc.torch.Channel(like=tensors) as channel, gpuipc.torch.subscribe(channel.ticket()) as frames:
            with channel.loan() as loan:
                assert list(loan) == list(tensors)
                for name, each in tensors.items():
                    loan[name].copy_(each)
            frame = next(frames)
            assert {name: each.dtype for name, each in frame.items()} == {name: each.dtype for name, each in tensors.items()}
            assert all(torch.equal(frame[name], each) for name, each in tensors.items())
            part = frame["bool" if "bool" in frame else "float16"]
            del frame, each
            assert channel.readers()[0].held == 1 and part.sequence == 1  # it keeps the frame
            part.give_back()
            assert channel.readers()[0].held == 0


def test_shapes_that_change() -> None:
    channel = gpuipc.torch.Channel(shape=(4, 4), dtype=torch.float32, device="cpu")
    frames = gpuipc.torch.subscribe(channel.ticket())
    for like in (torch.zeros(2, 8), torch.zeros(3, dtype=torch.int64), torch.zeros(())):
        with channel.loan(like) as loan:
            assert (loan.shape, loan.dtype) == (like.shape, like.dtype)
            loan.fill_(7)
        with frames.take(0) as frame:
            assert torch.equal(frame, torch.full_like(like, 7))
    with pytest.raises(ValueError, match="larger than a slot"):
        channel.loan(shape=65, dtype=torch.float32)


def test_a_frame_is_a_tensor(channel: gpuipc.torch.Channel) -> None:
    frames = gpuipc.torch.subscribe(channel.ticket())
    publish(channel, 3)
    frame = frames.take(0)
    assert isinstance(frame, torch.Tensor) and type(frame).__name__ == "Frame"
    for made in (frame + 1, frame.clone(), torch.cat([frame, frame]), torch.nn.functional.relu(frame), frame.mean()):
        assert type(made) is torch.Tensor
    assert frame.sequence == 1 and frame.header == b"" and frame.missed == 0
    for use in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="clone"):
            use(frame)
    frame.give_back()
    with pytest.raises(gpuipc.errors.ReleasedError):
        frame.give_back()


def test_a_part_keeps_its_frame(channel: gpuipc.torch.Channel) -> None:
    frames = gpuipc.torch.subscribe(channel.ticket())
    publish(channel, 3)
    row = frames.take(0)[0]
    assert channel.readers()[0].held == 1
    assert row.tolist() == [3] * 3
    del row
    assert channel.readers()[0].held == 0


def test_a_part_is_not_handed_over(channel: gpuipc.torch.Channel, installed: None) -> None:
    """By gpuipc: a queue, a Bundle. Plain pickles have copies."""
    with gpuipc.torch.subscribe(channel.ticket()) as frames:
        publish(channel, 1)
        loan, frame = channel.loan(timeout=PATIENCE).fill_(2), frames.take(PATIENCE)
        for value, had in ((2, loan), (1, frame)):
            for part in (had[0], had.view(-1), had[:, 1:], had.detach(), gpuipc.torch.tensor(had._frame.array)):
                for use in (gpuipc.torch.Bundle, ForkingPickler.dumps, lambda each: gpuipc.torch.Bundle([torch.ones(1), each])):
                    with pytest.raises(TypeError, match="clone"):
                        use(part)
                assert pickle.loads(pickle.dumps(part)).unique().tolist() == [value]
            assert gpuipc.torch.Bundle(had.clone()).tensors.unique().tolist() == [value]
        del had, part


@pytest.mark.parametrize("like", [torch.zeros(2, 3), {"a": torch.zeros(4), "b": torch.zeros(2)}])
def test_each_frame_is_a_new_object(like: Any) -> None:
    """Also where it was made before the frame came, and after a take that ran out of time."""
    channel = gpuipc.torch.Channel(like=like, slots=2)
    seen = []
    with gpuipc.torch.subscribe(channel.ticket()) as subscription:
        for value in range(8):
            with pytest.raises(TimeoutError):
                subscription.take(0)
            with channel.loan(timeout=PATIENCE) as loan:
                for each in loan.values() if isinstance(loan, dict) else [loan]:
                    each.fill_(value)
            frame = subscription.take(PATIENCE)
            tensors = list(frame.values()) if isinstance(frame, dict) else [frame]
            assert [each.unique().tolist() for each in tensors] == [[value]] * len(tensors)
            assert not any(hasattr(each, "mark") or each.requires_grad for each in tensors)
            assert frame.sequence == value + 1
            for each in tensors:
                each.mark = value
            seen.append(frame)
            frame.give_back()
    assert len({id(each) for each in seen}) == 8
    channel.close()


@pytest.fixture
def unmovable(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Tensors are had as those of a GPU are, which do not move. Answers the frames that were dressed by Python."""
    slow: list[Any] = []

    class Known(_torch_channel._Known):
        def __init__(self, tensors: Any):
            super().__init__(tensors)
            self.places = []

    class Slots(_torch_channel._Slots):
        def of(self, frame: Any) -> Any:
            slow.append(frame.sequence if isinstance(frame, _native.Frame) else None)
            return super().of(frame)

    monkeypatch.setattr(_torch_channel, "_Known", Known)
    monkeypatch.setattr(_torch_channel, "_Slots", Slots)
    return slow


@pytest.mark.parametrize("how", ["take", "next", "__next__"])
def test_what_was_prepared_is_dressed_in_one_call(channel: gpuipc.torch.Channel, how: str, unmovable: list[Any]) -> None:
    with gpuipc.torch.subscribe(channel.ticket()) as frames:
        seen = []
        for value in range(1, 9):
            publish(channel, value)
            frame = getattr(frames, how)()
            assert type(frame) is gpuipc.torch.Frame and frame.flatten().tolist() == [value] * 6
            assert frame.sequence == value
            seen.append(frame)
            frame.give_back()
        assert unmovable == [1, 2] and len({id(each) for each in seen}) == 8


def test_what_was_not_prepared_is_made(channel: gpuipc.torch.Channel, unmovable: list[Any]) -> None:
    with gpuipc.torch.subscribe(channel.ticket()) as frames:
        for value in range(1, 9):
            publish(channel, value)
            if value == 5:
                for spare in frames._slots.spare.values():
                    spare.clear()
            if value == 6:
                for place in list(frames._slots._known):
                    frames._slots._forget(place)
                assert not frames._slots.spare
            with frames.take(0) as frame:
                assert frame.flatten().tolist() == [value] * 6
        assert set(frames._slots.spare) == set(frames._slots._known) and len(frames._slots.spare) == 2
    assert unmovable[:2] == [1, 2] and 6 in unmovable and unmovable[-1] < 8


def test_of_more_shapes_than_are_kept_nothing_is_prepared(monkeypatch: pytest.MonkeyPatch, unmovable: list[Any]) -> None:
    monkeypatch.setattr(_torch_channel, "_KNOWN_MAX", 4)
    with gpuipc.torch.Channel(like=torch.zeros(16)) as channel, gpuipc.torch.subscribe(channel.ticket()) as frames:
        for value in range(20):
            with channel.loan(torch.zeros(value % 7 + 1), timeout=PATIENCE) as loan:
                loan.fill_(value)
            with frames.take(PATIENCE) as frame:
                assert frame.tolist() == [value] * (value % 7 + 1)
            assert len(frames._slots.spare) <= 4 and set(frames._slots.spare) == set(frames._slots._known)


def test_what_was_prepared_keeps_its_frame_and_nobody_else_does(
    channel: gpuipc.torch.Channel, unmovable: list[Any]
) -> None:
    with gpuipc.torch.subscribe(channel.ticket()) as frames:
        for value in range(1, 5):
            publish(channel, value)
            frames.take(0).give_back()
        gc.collect()
        gc.disable()
        try:
            publish(channel, 5)
            frame = frames.take(0)
            native, part = weakref.ref(frame._frame), frame[0]
            tensor = weakref.ref(frame)
            del frame
            assert native() is not None and channel.readers()[0].held == 1
            del part
            assert native() is None and tensor() is None and channel.readers()[0].held == 0
        finally:
            gc.enable()
        slots = weakref.ref(frames._slots)
    spare = next(each[0] for each in frames._slots.spare.values() if each)
    tensor = weakref.ref(spare)
    gc.disable()
    try:
        del spare, frames
        assert slots() is None and tensor() is None
    finally:
        gc.enable()
    assert unmovable == [1, 2]


class Bare:
    __slots__ = ()


def test_frames_are_dressed(channel: gpuipc.torch.Channel) -> None:
    with gpuipc.subscribe(channel.ticket()) as frames:
        publish(channel, 1)
        frame = frames.take(0)
        place, last, other = _native.frame_place(frame), [0], torch.zeros(1)
        made: list[Any] = []

        def otherwise(of: Any) -> Any:
            made.append(of)
            return other

        def dress(spare: Any) -> Any:
            return _native.frame_dressed(spare, last, otherwise, frame)

        nothing: list[Any] = [{}, {place + 1: [torch.ones(1)]}, {place: []}]
        for none in nothing:
            assert dress(none) is other and made.pop() is frame and last == [place]
            last[0] = 0
        first, second = torch.ones(1), torch.ones(1)
        spare = {place: [first, second]}
        count, had = sys.getrefcount(second), sys.getrefcount(frame)
        assert dress(spare) is second and second._frame is frame and spare == {place: [first]}
        assert not made and not hasattr(first, "_frame") and last == [place]
        assert (sys.getrefcount(second), sys.getrefcount(frame)) == (count - 1, had + 1)
        del second._frame

        wrong: list[Any] = [{place: [Bare()]}, {place: first}, []]
        for each, error in zip(wrong, (AttributeError, SystemError, TypeError), strict=True):
            with pytest.raises(error):
                dress(each)
            assert not made
        last.clear()
        with pytest.raises(IndexError):
            dress(spare)
        last.append(0)
        with pytest.raises(ZeroDivisionError):
            _native.frame_dressed({}, last, lambda of: 1 // 0, frame)
        with pytest.raises(TypeError):
            _native.frame_dressed(spare, last, print, object())  # type: ignore[arg-type, unused-ignore]
        assert spare == {place: [first]} and not hasattr(first, "_frame")
        assert sys.getrefcount(frame) == had and channel.readers()[0].held == 1
        del frame
        assert channel.readers()[0].held == 0


def test_the_loop_gives_back_what_is_not_kept(channel: gpuipc.torch.Channel) -> None:
    channel = gpuipc.torch.Channel(like=torch.zeros(2), slots=4)
    frames = gpuipc.torch.subscribe(channel.ticket(), hold=3)
    for value in (1, 2, 3):
        publish(channel, value)
    kept = [frame.keep() for frame, _ in zip(frames, range(2))]
    assert channel.readers()[0].held == 2  # what zip took and dropped is given back
    assert [frame.tolist() for frame in kept] == [[1, 1], [2, 2]]
    channel.close()
    assert [frame.sequence for frame in frames] == []


def test_exceptions_discard_and_with_gives_back(channel: gpuipc.torch.Channel) -> None:
    frames = gpuipc.torch.subscribe(channel.ticket())
    with pytest.raises(ZeroDivisionError), channel.loan() as loan:
        1 / 0  # noqa: B018
    with pytest.raises(gpuipc.errors.ReleasedError):
        loan.publish()
    for value in range(1, 5):  # every slot again and again
        publish(channel, value)
        with frames.take(0) as frame:
            assert frame.tolist() == [[value] * 3] * 2
    loan = channel.loan()
    loan.publish()
    assert frames.take(0).sequence == 5


def test_without_pytorch_on_the_other_side(channel: gpuipc.torch.Channel) -> None:
    with gpuipc.subscribe(channel.ticket()) as frames:
        publish(channel, 1)
        frame = frames.take(0)
        assert (frame.array.shape, frame.array.dtype) == ((2, 3), "float32")
        assert torch.equal(gpuipc.torch.tensor(frame.array), torch.ones(2, 3)) or frame.array.read_only


def test_tensors_outlive_all_of_it(channel: gpuipc.torch.Channel) -> None:
    frames = gpuipc.torch.subscribe(channel.ticket())
    publish(channel, 1)
    late = frames.take(0).detach()  # the trap: this does not keep the frame
    for value in (2, 3):
        publish(channel, value)
        next(frames)
    frames.close()
    channel.close()
    del channel, frames
    assert late.tolist() in ([[2] * 3] * 2, [[3] * 3] * 2)


def test_what_cannot_be(channel: gpuipc.torch.Channel) -> None:
    with pytest.raises(TypeError, match="on one device"):
        gpuipc.torch.Channel(like={"a": torch.zeros(2), "b": torch.zeros(2, device="meta")})
    for like in (4, {"a": 4}, [torch.zeros(2)]):
        with pytest.raises(TypeError, match="like a tensor, or like a dict of tensors"):
            gpuipc.torch.Channel(None, like)  # type: ignore[arg-type, unused-ignore]
    with pytest.raises(TypeError, match="shape, dtype"):
        channel.loan(4)  # type: ignore[arg-type, unused-ignore]
    with pytest.raises(TypeError, match="meta"):
        gpuipc.torch.Channel(like=torch.zeros(2, device="meta"))
    with pytest.raises(TypeError, match="a shape, a dtype and a device"):
        gpuipc.torch.Channel()
    for each in (channel, gpuipc.torch.subscribe(channel.ticket()), channel.loan()):
        with pytest.raises(TypeError):
            pickle.dumps(each)
