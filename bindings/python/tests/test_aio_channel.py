# SPDX-License-Identifier: MIT
"""Channels in an event loop, by wait handles and without."""

import asyncio
import gc
import os
from multiprocessing.context import SpawnContext
from typing import Any

import numpy as np
import others
import pytest
from conftest import PATIENCE
from test_aio import Run, run
from test_process import ended, received, started

import gpuipc
from gpuipc import aio

__all__ = ["run"]


def made(name: str | None = None, **options: Any) -> gpuipc.Channel:
    return gpuipc.Channel(name, 16, "int32", transport="host", **options)


async def publish(channel: aio.Channel, value: int) -> None:
    async with channel.loan() as frame:
        np.from_dlpack(frame)[...] = value


def test_a_loop_over_frames(run: Run, spawn: SpawnContext) -> None:
    here, there = spawn.Pipe()
    process = started(spawn, others.write_frames, there)
    ticket = received(here)

    async def write() -> None:
        loop = asyncio.get_running_loop()
        for value in (1, 2, 3, 4, 5, 6):
            await loop.run_in_executor(None, here.send, value)
            await loop.run_in_executor(None, received, here)
        here.send("close")

    async def test() -> None:
        async with await aio.subscribe(ticket) as frames:
            writing = asyncio.create_task(write())
            found = [(frame.sequence, int(np.from_dlpack(frame)[0])) async for frame in frames]
            assert found == [(value, value) for value in (1, 2, 3, 4, 5, 6)]
            await writing

    run(test())
    ended(process)


def test_a_loan_waits_and_is_cancelled(run: Run) -> None:
    async def test() -> None:
        async with aio.Channel(made(slots=1)) as channel, await aio.subscribe(channel.ticket()) as frames:
            await publish(channel, 1)
            frame = await frames.take()
            waiting = [asyncio.create_task(publish(channel, value)) for value in (2, 3)]
            await asyncio.sleep(0.02)
            assert not any(task.done() for task in waiting)
            waiting[1].cancel()
            frame.give_back()
            await waiting[0]
            (await frames.take()).give_back()
            with pytest.raises(ZeroDivisionError):
                async with channel.loan():
                    1 / 0  # noqa: B018
            loan = await channel.loan()
            loan.discard()
            assert channel.readers()[0].lag == 0

    run(test())


def test_a_take_that_is_cancelled_loses_nothing(run: Run) -> None:
    async def test() -> None:
        async with aio.Channel(made()) as channel, await aio.subscribe(channel.ticket()) as frames:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(frames.take(), 0.01)
            waiting = asyncio.create_task(frames.take())
            await asyncio.sleep(0.01)
            assert not waiting.done()
            await publish(channel, 1)
            assert (await waiting).sequence == 1

    run(test())


def test_the_loop_gives_back_what_is_not_kept(run: Run) -> None:
    async def test() -> None:
        channel = aio.Channel(made(slots=3))
        frames = aio.Subscription(gpuipc.subscribe(channel.ticket(), hold=2))
        kept = None
        for value in range(1, 7):
            await publish(channel, value)
            if value == 6:
                channel.close()
            frame = await anext(aiter(frames))
            assert frame.sequence == value
            if value == 6:
                kept = frame.keep()
        assert [frame async for frame in frames] == []
        assert kept is not None and not kept.is_over
        frames.close()
        assert kept.is_over

    run(test())


def test_one_that_was_dropped_is_told_so(run: Run) -> None:
    async def test() -> None:
        channel = aio.Channel(made(slots=1, full="drop", drop_after=0.05))  # longer than a loan waits at a time
        frames = await aio.subscribe(channel.ticket(), hold=1)
        await publish(channel, 1)
        frame = await frames.take()
        await publish(channel, 2)
        assert not frame.is_over and channel.readers()[0].state == "dropped"
        frame.give_back()
        with pytest.raises(gpuipc.errors.PeerClosed, match="too slow"):
            async for _ in frames:
                pass

    run(test())


def test_closing_while_a_task_waits(run: Run) -> None:
    async def test() -> None:
        async with aio.Channel(made()) as channel:
            frames = await aio.subscribe(channel.ticket())
            waiting = asyncio.create_task(frames.take())
            await asyncio.sleep(0.01)
            frames.close()
            with pytest.raises(gpuipc.errors.ReleasedError):
                await waiting

    run(test())


def test_a_name_is_waited_for(run: Run) -> None:
    async def test() -> None:
        name = f"aio-frames-{os.getpid()}"
        waiting = asyncio.create_task(aio.subscribe(name, timeout=PATIENCE))
        await asyncio.sleep(0.01)
        async with aio.Channel(made(name)):
            async with await waiting:
                pass
        with pytest.raises(gpuipc.errors.NotFound):
            await aio.subscribe(name, timeout=0)

    run(test())
    gc.collect()
