# SPDX-License-Identifier: MIT
"""Two ranks of torchrun share tensors: each reads the other's tensor, and writes into it.

    torchrun --nproc_per_node=2 two_ranks.py

With two GPUs each rank has one; with one GPU both use it. Without a GPU, set GPUIPC_CUDA_DRIVER=emulated: the tensors are
then in host memory. It prints, in any order:

    rank 0: the tensor of rank 1 contains 1.0
    rank 1: the tensor of rank 0 contains 0.0
    rank 0: rank 1 has written 100.0
    rank 1: rank 0 has written 101.0
"""

import torch
import torch.distributed as dist

import gpuipc

COUNT = 1 << 20


def say(line: str) -> None:
    """Writes a line at once: torchrun's ranks share one output, and print() may write the end of a line by itself."""
    print(f"{line}\n", end="", flush=True)


def barrier() -> None:
    """All work of both ranks is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    dist.barrier()


def main() -> None:
    dist.init_process_group("gloo")
    if dist.get_world_size() != 2:
        raise SystemExit("this program is for two ranks: torchrun --nproc_per_node=2 two_ranks.py")
    rank, peer = dist.get_rank(), 1 - dist.get_rank()
    if torch.cuda.is_available():
        gpu = rank % torch.cuda.device_count()
        torch.cuda.set_device(gpu)
        array = gpuipc.empty((COUNT,), "float32", device=gpu, openers=range(torch.cuda.device_count()))
    else:
        gpu = None
        array = gpuipc.empty((COUNT,), "float32", transport="host")
    own = torch.from_dlpack(array)  # over the same memory
    own.fill_(rank)

    # A ticket is a line of text. It opens the memory in any process of this user, once its contents are ready.
    tickets = [""] * dist.get_world_size()
    dist.all_gather_object(tickets, str(array.ticket()))
    other = torch.from_dlpack(gpuipc.open(tickets[peer], device=gpu))
    say(f"rank {rank}: the tensor of rank {peer} contains {other[0].item()}")
    barrier()

    other.add_(100)  # into the memory of the other rank, and on another GPU over NVLink or PCI Express
    barrier()
    say(f"rank {rank}: rank {peer} has written {own[-1].item()}")

    del other
    barrier()  # both have finished with the memory
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
