# SPDX-License-Identifier: MIT
"""Many named arrays in one buffer, over a connection of asyncio: python weights.py

Runs without a GPU, too: GPUIPC_CUDA_DRIVER=emulated python weights.py
"""

import asyncio
import multiprocessing
import os

import gpuipc
from gpuipc import aio

SHAPES = {f"layer.{i}.weight": ((64, 64), "bfloat16") for i in range(100)}


async def read(name: str) -> None:
    async with await aio.connect(name) as connection:
        async for message in connection:
            (whole,) = message.arrays
            arrays = gpuipc.Manifest(message.data, whole.nbytes).arrays(whole.buffer)
            last = list(arrays.values())[-1]
            first_bytes = last.buffer.read(last.offset, 4)
            whole.give_back()  # all arrays of it
            await connection.send(f"{len(arrays)} arrays, {first_bytes.hex()}".encode())


def reader(name: str) -> None:
    asyncio.run(read(name))


async def publish(name: str) -> None:
    arena = gpuipc.Arena(SHAPES)
    async with aio.listen(name) as listener:
        process = multiprocessing.get_context("spawn").Process(target=reader, args=(name,))
        process.start()
        async with await listener.accept() as connection:
            for step in (1, 2):
                arena.buffer.fill(step)
                await connection.send(bytes(arena.manifest), [arena.buffer])
                print("the reader has", (await connection.receive()).data.decode())
                await aio.await_returns(arena)  # before it is written again
    process.join()


if __name__ == "__main__":
    asyncio.run(publish(f"weights-{os.getpid()}"))
