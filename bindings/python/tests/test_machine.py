# SPDX-License-Identifier: MIT
import ctypes
import json
from typing import Any

import numpy as np
import pytest
from conftest import Run
from test_wrap import Driver, Tensor

import gpuipc


def test_devices() -> None:
    one, other = gpuipc.devices()
    assert (one.number, other.number) == (0, 1) and one.uuid != other.uuid
    assert one.compute_capability >= (5, 0) and not one.is_mig and one.granularity_bytes > 0
    assert repr(one).startswith("<gpuipc.Device 0: ")


def test_transports_say_what_works() -> None:
    ways = gpuipc.transports(0, 1)
    assert list(ways) == ["vmm", "pool", "legacy", "p2p", "host", "fabric"]
    vmm = ways["vmm"]
    assert vmm.available and vmm.is_zero_copy and vmm.proof == "tried" and vmm.reason is None
    assert vmm.bandwidth is not None and "GB/s" in str(vmm) and str(vmm).startswith("vmm: without a copy, tried")
    assert ways["host"].available and not ways["host"].is_zero_copy and "staged copies" in str(ways["host"])
    for way in ways.values():
        if not way.available:
            assert way.reason and way.sentence and way.bandwidth is None
            assert str(way) == f"{way.name}: not available ({way.reason}): {way.sentence}"
    assert gpuipc.transports()["vmm"] == gpuipc.transports(0, 0)["vmm"]


def test_transports_say_why_not(run_python: Run) -> None:
    done = run_python(
        "import gpuipc\n"
        "way = gpuipc.transports(0, 1)['vmm']\n"
        "print(way.available, way.reason, gpuipc.topology()[0, 1].peer_access)\n"
        "try: gpuipc.select(0, 1)\n"
        "except gpuipc.GpuipcError as error: print(error.name)\n"
        "print(gpuipc.select(0, 1, policy='any').name)",
        GPUIPC_EMULATED_MACHINE="p2p=none",
    )
    assert done.stdout.split("\n")[:3] == ["False NO_P2P False", "GPUIPC_ERR_NO_TRANSPORT", "host"]


def test_selection() -> None:
    chosen = gpuipc.select(0, 1)
    assert chosen.name == "vmm" and chosen.refused["host"] == "POLICY" and "host POLICY" in str(chosen)
    host = gpuipc.create(64, transport="host")
    assert gpuipc.select(0, 1, buffer=host, policy="prefer-zero-copy").name == "host"
    wrong: dict[str, Any]
    for wrong in ({"policy": "fast"}, {"user": 9}):
        with pytest.raises((ValueError, gpuipc.errors.DriverError)):
            gpuipc.select(**wrong)


def test_measured_is_known_afterwards() -> None:
    measured = gpuipc.measure("vmm", 1, 0)
    assert measured.one_way > 0 and measured.both_ways is not None and measured.nbytes > 0
    assert "both ways" in str(measured)
    way = gpuipc.transports(1, 0)["vmm"]
    assert (way.bandwidth, way.bandwidth_source) == (measured.one_way, "measured")
    with pytest.raises(gpuipc.GpuipcError):
        gpuipc.measure("fabric", 1, 0)
    with pytest.raises(ValueError):
        gpuipc.measure("pigeon", 1, 0)


def test_topology() -> None:
    links = gpuipc.topology()
    assert set(links) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert links[0, 0].kind == "same" and links[0, 1].kind in ("nvlink", "pcie") and links[0, 1].peer_access
    assert str(links[0, 1]).startswith("0 -> 1: ") and str(links[1, 1]) == "1: its own memory"


# ---- kinds of memory


@pytest.mark.parametrize("transport", ["vmm", "pool", "legacy"])
def test_memory_made_here(transport: str) -> None:
    buffer = gpuipc.create(4096, device=1, transport=transport)
    memory = gpuipc.classify(buffer)
    assert transport in memory.transports and memory.device == 1
    assert (memory.address, memory.nbytes, memory.allocations) == (buffer.address, 4096, 1)
    assert memory.allocated_nbytes >= 4096 and memory.base <= memory.address
    assert transport in str(memory)


def test_things_that_are_looked_at() -> None:
    driver = Driver()
    address = driver.allocate(1 << 16)

    class Torch:
        def __init__(self, *strides: int) -> None:
            self.shape, self.strides = (4, 8), strides

        def data_ptr(self) -> int:
            return address

        def stride(self) -> tuple[int, ...]:
            return self.strides

        def element_size(self) -> int:
            return 4

    class Capsule:
        def __dlpack_device__(self) -> tuple[int, int]:
            return array.__dlpack_device__()

        def __dlpack__(self, **options: Any) -> Any:
            return array.__dlpack__(**options)

    array = gpuipc.empty((4, 8), "float32")
    for x, nbytes in (
        ((address, 128), 128), (Tensor(address), 128), (Tensor(address, strides=(64, 4)), 3 * 64 + 32),
        (Torch(8, 1), 128), (Torch(1, 4), 128), (array, 128), (array[:, ::2], 124), (Capsule(), 128), (array.buffer, 128),
    ):  # fmt: skip
        memory = gpuipc.classify(x)
        assert memory.nbytes == nbytes and memory.transports, x
        assert memory.kind == ("vmm" if memory.address == array.address else "device")
    driver.free(address)
    with pytest.raises(TypeError):
        gpuipc.classify(object())


def test_memory_that_cannot_be_shared() -> None:
    memory = gpuipc.classify(np.zeros(16))
    assert (memory.kind, memory.transports, memory.device, memory.nbytes) == ("unknown", (), None, 128)
    assert memory.sentence in str(memory) and "carried by nothing" in str(memory)
    driver = Driver()
    driver.allocate(16)
    pinned = ctypes.c_void_p()
    driver.call("cuMemHostAlloc", ctypes.byref(pinned), ctypes.c_size_t(4096), 0)
    memory = gpuipc.classify((pinned.value, 4096))
    assert memory.kind == "pinned" and memory.transports == ("host",) and memory.refused["vmm"] == "WRONG_MEMORY"
    driver.call("cuMemFreeHost", pinned)


def test_they_are_values() -> None:
    """For logs: dataclasses make dicts of plain values."""
    import dataclasses

    for value in (gpuipc.transports()["vmm"], gpuipc.topology()[0, 1], gpuipc.classify(gpuipc.create(4)), gpuipc.select()):
        assert json.loads(json.dumps(dataclasses.asdict(value)))
        assert eval(repr(value), vars(gpuipc)) == value
