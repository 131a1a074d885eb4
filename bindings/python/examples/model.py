# SPDX-License-Identifier: MIT
"""Uses the frames of camera.py: python model.py

Runs without a GPU, too: GPUIPC_CUDA_DRIVER=emulated for both. May be started before the camera.
"""

import gpuipc


def main() -> None:
    for frame in gpuipc.subscribe("camera", timeout=60):  # delivery="newest", where only that is wanted
        # In place of this: tensor = torch.from_dlpack(frame), and a network. The loop gives the frame back.
        brightness = sum(frame.array.buffer.read(frame.array.offset, 100)) / 100
        print(f"{frame.header.decode()}: {frame.array.shape}, brightness {brightness:.0f}")
    print("the camera has ended")


if __name__ == "__main__":
    main()
