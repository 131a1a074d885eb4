# SPDX-License-Identifier: MIT
"""Arrays through a queue, there and back: python hand_over.py

Runs without a GPU, too: GPUIPC_CUDA_DRIVER=emulated python hand_over.py
"""

import multiprocessing
from multiprocessing.queues import Queue
from typing import Any

import gpuipc


def consumer(arrays: "Queue[Any]", answers: "Queue[int]") -> None:
    while (array := arrays.get()) is not None:
        answers.put(sum(array.buffer.read(array.offset, array.nbytes)))
        array.give_back()  # or let go of it; torch.from_dlpack(array) is a tensor over the same memory


def main() -> None:
    spawn = multiprocessing.get_context("spawn")
    arrays: "Queue[Any]" = spawn.Queue()
    answers: "Queue[int]" = spawn.Queue()
    process = spawn.Process(target=consumer, args=(arrays, answers))
    process.start()
    array = gpuipc.empty((16, 16), "uint8")
    for value in (1, 2, 3):
        array.buffer.fill(value)
        arrays.put(array)
        print("the other process found", answers.get())
        array.await_returns()  # before it is written again
    arrays.put(None)
    process.join()


if __name__ == "__main__":
    main()
