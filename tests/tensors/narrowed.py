# SPDX-License-Identifier: MIT
"""Parts of what is shared, in other processes: bare memory, in which those place tensors of their own."""

import proof
import torch

import gpuipc.torch

ROWS, ROW = 4, 1024
ROW_BYTES = ROW * 4


def numbers() -> torch.Tensor:
    return torch.arange(ROWS * ROW, dtype=torch.int32).reshape(ROWS, ROW)


def refused(call: str, ticket: str, device: int) -> str:
    """The name of what it raises, or nothing."""
    try:
        getattr(gpuipc, call)(ticket, device=device)
    except gpuipc.GpuipcError as error:
        return error.name
    return ""


def use_row(ticket: str, device: int) -> list[int]:
    """What is in it. Then each number is negative."""
    torch.cuda.set_device(device)
    assert refused("open", ticket, device) == "GPUIPC_ERR_OUT_OF_RANGE"
    buffer = gpuipc.open_buffer(ticket, device=device)
    assert buffer.attachment is None and buffer.nbytes == ROW_BYTES
    try:
        gpuipc.place(buffer, ROW + 1, "int32")
        raise AssertionError("an array reaches beyond the part")
    except gpuipc.errors.OutOfRange:
        pass
    manifest = gpuipc.Manifest.arrange({"first": (ROW // 2, "int32"), "second": (ROW // 2, "int32")})
    halves = [torch.from_dlpack(each) for each in manifest.arrays(buffer).values()]
    assert {each.device.index for each in halves} == {device}
    found = [number for each in halves for number in each.tolist()]
    for each in halves:
        each.neg_()
    torch.cuda.synchronize()
    return found


def check_row(tensor: torch.Tensor, ticket: gpuipc.Ticket, row: int, device: int) -> None:
    tensor.copy_(numbers())
    torch.cuda.synchronize()
    expected = numbers()
    part = ticket.narrow(row * ROW_BYTES, ROW_BYTES)
    assert proof.Other(use_row, str(part), device).answer() == expected[row].tolist()
    expected[row].neg_()
    assert torch.equal(tensor.cpu(), expected)


def main() -> None:
    for device in {0, torch.cuda.device_count() - 1}:
        with proof.case(f"a row of an arena's first array, on GPU {device}"):
            arena = gpuipc.Arena({"rows": ((ROWS, ROW), "int32"), "more": (5, "int8")}, openers=[device])
            check_row(torch.from_dlpack(arena["rows"]), arena.ticket(), 2, device)
        with proof.case(f"a row of a pool's tensor, on GPU {device}"):
            with gpuipc.torch.MemPool(openers=[device]):
                first, tensor = (numbers().cuda(0) for _ in range(2))
            array = gpuipc.wrap(tensor)  # kept, for with it its ticket ends
            check_row(tensor, array.ticket(), 1, device)
            assert torch.equal(first.cpu(), numbers())
    with proof.case("open() of a part uses a ticket for one process up"):
        array = gpuipc.empty((ROWS, ROW), "int32")
        part = str(array.share(one_shot=True).narrow(0, ROW_BYTES))
        answers = [proof.Other(refused, call, part, 0).answer() for call in ("open", "open_buffer")]
        assert answers == ["GPUIPC_ERR_OUT_OF_RANGE", "GPUIPC_ERR_TICKET_USED_UP"], answers
    proof.end()


if __name__ == "__main__":
    main()
