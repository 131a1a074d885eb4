# SPDX-License-Identifier: MIT
"""Each runs by wait handles, and in threads as on loops that cannot wait for these."""

import asyncio
import gc
import os
import pickle
import threading
from collections.abc import Awaitable, Callable, Coroutine
from multiprocessing.context import SpawnContext
from typing import Any

import numpy as np
import others
import pytest
from conftest import PATIENCE
from test_connection import name
from test_process import ended, filled, late, received, started

import gpuipc
from gpuipc import aio

__all__ = ["late", "name"]

Run = Callable[[Coroutine[Any, Any, None]], None]


class WithoutReaders(asyncio.SelectorEventLoop):
    def add_reader(self, *arguments: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


@pytest.fixture(params=["handles", "threads"])
def run(request: pytest.FixtureRequest) -> Run:
    factory = asyncio.SelectorEventLoop if request.param == "handles" else WithoutReaders

    def run(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            loop = runner.get_loop()
            runner.run(asyncio.wait_for(test, PATIENCE))
            readers = aio._readers.get(loop)
            assert readers is None or not readers.waiting

    return run


async def pair(name: str) -> tuple[aio.Connection, aio.Connection]:
    async with aio.listen(name) as listener:
        accepted = asyncio.create_task(listener.accept())
        one = await aio.connect(name)
        return one, await accepted


# ---- connections


def test_messages(run: Run, name: str) -> None:
    async def test() -> None:
        one, other = await pair(name)
        async with one, other:
            array = filled((4, 4))
            await one.send(b"two", [array[1:], array])
            message = await other.receive()
            assert message.data == b"two" and [each.shape for each in message.arrays] == [(3, 4), (4, 4)]
            waiting = asyncio.create_task(one.receive())
            await asyncio.sleep(0.01)
            assert not waiting.done()
            await other.send(b"later")
            assert (await waiting).data == b"later"
            assert one.peer.process_id == os.getpid() and one.peer.is_same_user and one.peer.is_running

    run(test())


def test_many_at_once(run: Run, name: str) -> None:
    async def test() -> None:
        one, other = await pair(name)
        async with one, other:
            tasks = [asyncio.create_task(other.receive()) for _ in range(20)]
            async with asyncio.TaskGroup() as group:
                for i in range(20):
                    group.create_task(one.send(bytes([i])))
            assert sorted([(await task).data for task in tasks]) == [bytes([i]) for i in range(20)]

    run(test())


def test_messages_until_the_peer_ends(run: Run, name: str) -> None:
    async def test() -> None:
        one, other = await pair(name)
        for i in range(3):
            await one.send(bytes([i]))
        one.close()
        assert [message.data async for message in other] == [b"\0", b"\1", b"\2"]
        with pytest.raises(gpuipc.errors.PeerClosed):
            await other.receive()
        other.close()

    run(test())


def test_with_another_process(run: Run, name: str, spawn: SpawnContext) -> None:
    async def test() -> None:
        async with aio.listen(name) as listener:
            process = started(spawn, others.answer_messages, name)
            async with await listener.accept() as connection:
                await connection.send(b"hello ", [filled((4,))])
                assert (await connection.receive()).data == b"hello [6]"
                await connection.send(b"end")
                with pytest.raises(gpuipc.errors.PeerClosed):
                    await connection.receive()
            ended(process)

    run(test())


def test_nobody_listens(run: Run) -> None:
    async def test() -> None:
        with pytest.raises(gpuipc.errors.NotFound):
            await aio.connect("nobody-listens", 0.05)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await aio.connect("nobody-listens", None)

    run(test())


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_a_time_that_is_none(run: Run, timeout: float) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="timeout"):
            await aio.connect("nobody", timeout)

    run(main())


def test_a_listener_that_comes_later(run: Run, name: str) -> None:
    async def test() -> None:
        connecting = asyncio.create_task(aio.connect(name))
        await asyncio.sleep(0.02)
        async with aio.listen(name) as listener:
            (await listener.accept()).close()
            (await connecting).close()

    run(test())


# ---- what ends before its time


def test_a_receive_whose_time_ran_out_loses_nothing(run: Run, name: str) -> None:
    async def test() -> None:
        one, other = await pair(name)
        async with one, other:
            for i in range(5):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await other.receive()
                await one.send(bytes([i]), [gpuipc.empty(4, "int8")])
                assert (await other.receive()).data == bytes([i])

    run(test())


def test_a_wait_for_contents_may_be_cancelled(run: Run, late: Any) -> None:
    async def test() -> None:
        ticket = received(late(200, "vmm", True, [9]))
        array = await aio.open(ticket, wait=False)
        assert isinstance(array, gpuipc.Array) and not array.buffer.is_ready
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await aio.await_ready(array)
        await aio.await_ready(array)
        assert set(array.buffer.read()) == {9}

    run(test())


def test_a_message_whose_contents_never_come(run: Run, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        one, other = await pair(name)
        async with one, other:
            await one.send(b"with", [gpuipc.empty(4, "int8")])
            calls = 0

            async def lost(array: gpuipc.Array) -> None:
                nonlocal calls
                calls += 1
                if calls == 1:
                    await asyncio.sleep(PATIENCE)
                if calls == 3:
                    raise gpuipc.errors.LostError("lost")

            monkeypatch.setattr(aio, "await_ready", lost)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await other.receive()
            assert (await other.receive()).data == b"with"
            await one.send(b"lost", [gpuipc.empty(4, "int8")])
            await one.send(b"and on")
            with pytest.raises(gpuipc.errors.LostError):
                await other.receive()
            assert (await other.receive()).data == b"and on"

    run(test())


def test_a_send_that_is_cancelled_was_not_sent(run: Run, name: str) -> None:
    async def test() -> None:
        one, other = await pair(name)
        async with one, other:
            sent = 0
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    while True:  # until nothing fits any more
                        await one.send(sent.to_bytes(4, "little") + bytes(30_000))
                        sent += 1
            assert sent > 0
            for i in range(sent):
                assert (await other.receive()).data[:4] == i.to_bytes(4, "little")
            await one.send(b"last")
            assert (await other.receive()).data == b"last"

    run(test())


def test_a_large_message_arrives_and_cancelled_ends_the_connection(run: Run, name: str) -> None:
    async def test() -> None:
        one, other = await pair(name)
        async with one, other:
            sending = asyncio.create_task(one.send(bytes(1 << 20)))
            assert len((await other.receive()).data) == 1 << 20
            await sending
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await one.send(bytes(1 << 20))
            with pytest.raises(gpuipc.errors.ReleasedError):
                await one.send(b"more")
            with pytest.raises(gpuipc.errors.PeerClosed):
                await other.receive()

    run(test())


def test_closing_wakes_who_waits(run: Run, name: str) -> None:
    async def test() -> None:
        one, other = await pair(name)
        listener = aio.listen(name)
        tasks = [asyncio.create_task(one.receive()), asyncio.create_task(listener.accept())]
        await asyncio.sleep(0.05)
        one.close()
        listener.close()
        for task in tasks:
            with pytest.raises(gpuipc.errors.ReleasedError):
                await task
        other.close()

    run(test())


def test_cancelled_it_leaves_nothing(run: Run, name: str) -> None:
    """No descriptor, no reader, no thread that waits."""

    async def test() -> None:
        one, other = await pair(name)
        async with one, other:
            array = gpuipc.empty(4, "int8")
            await one.send(b"", [array])  # which is not received, and so not returned

            async def cancelled(wait: Awaitable[Any]) -> None:
                task = asyncio.ensure_future(wait)
                await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

            before = 0
            for i in range(6):
                await cancelled(one.receive())
                await cancelled(aio.await_returns(array))
                await cancelled(aio.connect("nobody-listens", None))
                if i == 0:  # wait handles are made once
                    gc.collect()
                    before = len(os.listdir("/proc/self/fd"))
            assert len(os.listdir("/proc/self/fd")) <= before

    run(test())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("asyncio")]


# ---- tickets and returns


def test_opening(run: Run) -> None:
    async def test() -> None:
        array = filled((8,))
        opened = await aio.open(array.ticket())
        assert isinstance(opened, gpuipc.Array) and opened.shape == (8,)
        named = await aio.open(gpuipc.share({"a": array, "b": array[2:4]}))
        assert isinstance(named, dict) and list(named) == ["a", "b"]
        with pytest.raises(gpuipc.errors.TicketError):
            await aio.open("gpuipc1:")

    run(test())


def test_returns(run: Run, spawn: SpawnContext) -> None:
    async def test() -> None:
        array = gpuipc.empty(16, "int8")
        await aio.await_returns(array)
        here, there = spawn.Pipe()
        process = started(spawn, others.hold_until_told, str(array.ticket()), there)
        assert await asyncio.to_thread(received, here) == "holding"
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await aio.await_returns(array)
        here.send("let go")
        await asyncio.gather(aio.await_returns(array), aio.await_returns(array.buffer))
        assert array.buffer.lent_count == 0
        here.send("end")
        ended(process)

    run(test())


def test_returns_of_pickles(run: Run, spawn: SpawnContext) -> None:
    async def test() -> None:
        pickles, answers = spawn.Queue(), spawn.Queue()
        process = started(spawn, others.unpickle_and_add, pickles, answers)
        array = filled((4,))
        text = pickle.dumps(array)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await aio.await_returns(array)
        pickles.put(text)
        pickles.put(None)
        await aio.await_returns(array)
        assert array.buffer.lent_count == 0
        assert np.from_dlpack(array).tolist() == [1, 2, 3, 4]
        assert await asyncio.to_thread(answers.get, timeout=PATIENCE) == 6
        ended(process)

    run(test())


# ---- a server that the loop polls


def test_a_server_of_the_loop(run: Run, spawn: SpawnContext) -> None:
    async def test() -> None:
        array = gpuipc.empty(16, "int8")
        async with aio.Server() as server:
            ticket = server.share(array)
            here, there = spawn.Pipe()
            process = started(spawn, others.hold_until_told, str(ticket), there)
            assert await asyncio.to_thread(received, here) == "holding"
            (holder,) = server.holders(ticket)
            assert holder.process_id == process.pid
            server.revoke(ticket)
            here.send("let go")
            assert await asyncio.to_thread(received, here) == "gone"
            await aio.await_returns(array)
            while server.holders(ticket):  # the other one says first that it is returned, and then that it is closed
                await asyncio.sleep(0.001)
            here.send("end")
            ended(process)
        with pytest.raises(gpuipc.errors.ReleasedError):
            server.share(array)

    run(test())


def test_a_server_that_is_cancelled_goes_on_later(run: Run, spawn: SpawnContext) -> None:
    async def test() -> None:
        server = aio.Server()
        array = gpuipc.empty(16, "int8")
        serving = asyncio.create_task(server.serve())
        await asyncio.sleep(0.01)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        here, there = spawn.Pipe()
        process = started(spawn, others.hold_until_told, str(server.share(array)), there)
        serving = asyncio.create_task(server.serve())
        assert await asyncio.to_thread(received, here) == "holding"
        server.close()
        await serving
        here.send("let go")
        assert await asyncio.to_thread(received, here) == "gone"
        here.send("end")
        ended(process)

    run(test())
