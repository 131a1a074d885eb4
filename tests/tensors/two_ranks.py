# SPDX-License-Identifier: MIT
"""Two ranks that read and write each other's tensor through one physical memory.

    LD_PRELOAD=libgpuipc-preload.so torchrun --nproc_per_node=2 two_ranks.py [--hooked]

It knows nothing of gpuipc: torch's own reduction makes a handle of cudaIpcGetMemHandle, which goes to the other rank as
an object, and is opened there for that rank's GPU. --hooked: fails unless the memory is of the kind that the hook gives.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import reduce_tensor

from memory_kind import is_shareable

COUNT = 256 << 20  # float32: 1 GiB


def open_peer(own: torch.Tensor, rank: int, device: int) -> torch.Tensor:
    """The other rank's tensor, for kernels of this rank's GPU."""
    rebuild, arguments = reduce_tensor(own)
    gathered = [None, None]
    dist.all_gather_object(gathered, (rebuild, arguments))
    rebuild, arguments = gathered[1 - rank]
    arguments = list(arguments)
    arguments[6] = device  # rebuild_cuda_tensor(): the device that it is opened for
    return rebuild(*arguments)


def bandwidth(peer: torch.Tensor) -> float:
    """GB/s of a kernel on this GPU that reads the peer's memory."""
    out = torch.empty_like(peer)
    times = []
    for _ in range(6):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        torch.add(peer, 1.0, out=out)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return peer.numel() * peer.element_size() / min(times) / 1e6


def main() -> None:
    rank = int(os.environ["LOCAL_RANK"])
    device = rank % torch.cuda.device_count()
    torch.cuda.set_device(device)
    dist.init_process_group("gloo")
    own = torch.arange(COUNT, device=f"cuda:{device}", dtype=torch.float32) % 4096 + rank
    if "--hooked" in sys.argv:
        assert is_shareable(own), "the memory is not of the hook"
    torch.cuda.synchronize()
    peer = open_peer(own, rank, device)

    expected = torch.arange(COUNT, device=own.device, dtype=torch.float32) % 4096
    assert torch.equal(peer, expected + (1 - rank)), "the peer's tensor has other contents"
    torch.cuda.synchronize()
    dist.barrier()
    peer[COUNT // 2 :] += 10000  # into the other rank's memory
    torch.cuda.synchronize()
    dist.barrier()
    assert torch.equal(own[: COUNT // 2], expected[: COUNT // 2] + rank), "what nobody wrote changed"
    assert torch.equal(own[COUNT // 2 :], expected[COUNT // 2 :] + rank + 10000), "the peer's writing is not here"
    dist.barrier()
    del expected
    for turn in range(2):  # one at a time
        if turn == rank:
            print(f"rank {rank}: device {device}, both ways verified, "
                  f"{'shareable' if is_shareable(own) else 'ordinary'} memory, "
                  f"a kernel reads the peer's at {bandwidth(peer):.0f} GB/s", flush=True)
        dist.barrier()
    del peer
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
