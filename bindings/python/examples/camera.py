# SPDX-License-Identifier: MIT
"""A camera whose frames other processes get by a channel: python camera.py, and python model.py beside it.

Runs without a GPU, too: GPUIPC_CUDA_DRIVER=emulated for both.
"""

import time

import gpuipc


def main() -> None:
    with gpuipc.Channel("camera", (480, 640), "uint8", slots=3) as channel:
        while not channel.readers():  # a camera would not wait
            time.sleep(0.01)
        for number in range(1, 6):
            with channel.loan() as frame:
                # In place of this: torch, CuPy or a kernel of your own, over frame.
                channel.buffer.fill(number, offset=frame.array.offset, nbytes=frame.nbytes)
                frame.header = f"picture {number}".encode()
        for reader in channel.readers():
            print(f"{reader.delivery} frames for a reader that is {reader.state}")


if __name__ == "__main__":
    main()
