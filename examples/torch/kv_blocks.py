# SPDX-License-Identifier: MIT
"""Prefill and decode: one process fills the blocks of a KV cache, another one uses them, without a copy and without a
wait on the host.

    python kv_blocks.py

Prefill uses the first GPU, decode the last. Without a GPU, set GPUIPC_CUDA_DRIVER=emulated: the blocks are then in host
memory. It prints:

    request 0: 1 block, sum 512.0
    request 1: 2 blocks, sum 2048.0
    request 2: 3 blocks, sum 4608.0
    request 3: 1 block, sum 2048.0
    request 4: 2 blocks, sum 5120.0
    request 5: 3 blocks, sum 9216.0
"""

import multiprocessing
import os
import struct
from multiprocessing.connection import Connection

import torch

import gpuipc.torch

LAYERS, HEADS, TOKENS, SIZE = 2, 2, 16, 4
BLOCKS = 8  # prefill waits while decode has all of them
LONGEST = 3  # blocks of one request
HEADER = struct.Struct("<IHH")  # the request, the number of the block in it, how many blocks it has
PATIENCE = 60  # seconds


def decode(name: str, pipe: Connection) -> None:
    gpu = torch.cuda.device_count() - 1 if torch.cuda.is_available() else None
    blocks = []
    with gpuipc.torch.subscribe(name, hold=LONGEST, device=gpu, timeout=PATIENCE) as subscription:
        pipe.send("subscribed")
        for block in subscription:
            request, number, count = HEADER.unpack(block.header)
            blocks.append(block.keep())  # until give_back(), and not for one turn of the loop
            if number + 1 == count:
                total = sum(each.float().sum() for each in blocks)  # in place of this: attention over the blocks
                print(f"request {request}: {count} block{'s' * (count > 1)}, sum {total.item()}", flush=True)
                for each in blocks:
                    each.give_back()  # after preceding work of the current stream
                blocks.clear()


def prefill(channel: gpuipc.torch.Channel) -> None:
    for request in range(6):
        count = request % LONGEST + 1
        for number in range(count):
            with channel.loan(timeout=PATIENCE) as block:  # a tensor over a free block; published at the end of `with`
                block.fill_(request + 1)  # in place of this: the model writes keys and values
                block.header = HEADER.pack(request, number, count)


def main() -> None:
    spawn = multiprocessing.get_context("spawn")
    name, (here, there) = f"kv-{os.getpid()}", spawn.Pipe()
    process = spawn.Process(target=decode, args=(name, there), daemon=True)
    process.start()
    there.close()  # or the end of decode would not be seen
    block = torch.empty(LAYERS, 2, HEADS, TOKENS, SIZE, dtype=torch.bfloat16)
    if torch.cuda.is_available():
        block = block.to("cuda:0")
    openers = range(torch.cuda.device_count())
    with gpuipc.torch.Channel(name, like=block, slots=BLOCKS, openers=openers) as channel:
        if not here.poll(PATIENCE):
            raise TimeoutError("decode does not start")
        here.recv()
        prefill(channel)
    process.join(PATIENCE)  # decode gets all blocks, and then the end of the channel
    if process.exitcode != 0:
        raise SystemExit("decode failed")


if __name__ == "__main__":
    main()
