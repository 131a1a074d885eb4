# SPDX-License-Identifier: MIT
"""Two processes that hand memory over, round after round: what each side of a pair does for bench_handover.py.

A round: the owner makes the contents, and waits until they are there. It takes the time, and puts the memory into a
channel. The other side takes it out, makes a tensor of it that its stream may use, and takes the time: both read the one
monotonic clock of the machine. Then it reads three elements, lets go, and answers with what it has read.

A bare channel between two processes that do nothing else is no floor for that: their processors are awake, and have
nothing but the channel in their caches. So between two rounds there is one with a text, in all else the same.
"""

import importlib.util
import itertools
import os
import pickle
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

clock = time.perf_counter_ns

OWN_COUNT = 256
"""Of the elements that either side writes or reads in a round with a text."""
FRAMES = ("frame", "frame, looking")
LOOK_SECONDS = 0.05
"""Longer than from one frame to the next, so that a reader that looks never sleeps."""
STATE_TENSORS = 1000
STATE_BYTES = 64 << 10


@dataclass
class Plan:
    """What a pair is."""

    system: str  # "bare", "torch", "cuda.core", "gpuipc"
    owner: int = 0  # the GPU of the memory
    user: int = 0  # the GPU of who receives it
    on_host: bool = False  # no GPU: memory of the host, and NumPy
    name: str = ""  # of gpuipc's listener


@dataclass
class Block:
    """Some rounds of one kind."""

    case: str
    channel: str
    nbytes: int
    rounds: int
    seconds: float


@dataclass
class Result:
    times: list[int] = field(default_factory=list)  # of each round, in ns
    given: list[int] = field(default_factory=list)  # of them, until the owner's call returned
    taken: list[int] = field(default_factory=list)  # until it was out of the channel
    reads: list[int] = field(default_factory=list)  # of reading one element
    texts: list[int] = field(default_factory=list)  # of each round with a text in place of the tensor
    failure: str = ""  # of this kind alone


@dataclass
class Channels:
    """Between the two processes. What is not asked for by a system is not used."""

    link: Any  # answers, and what comes next
    queue: Any
    pipe: Any
    socket: Any


# ---- tensors of the library that is there


class Numpy:
    def __init__(self, device: int) -> None:
        import numpy

        self.np = numpy
        self.own = numpy.zeros(OWN_COUNT, dtype=numpy.int32)

    def synchronize(self) -> None: ...

    def await_room(self, nbytes: int) -> None: ...

    def of(self, array: Any) -> Any:
        return self.np.from_dlpack(array)

    def of_many(self, arrays: list[Any]) -> list[Any]:
        return [self.np.from_dlpack(each) for each in arrays]


class Torch:
    def __init__(self, device: int) -> None:
        import torch

        torch.cuda.set_device(device)
        torch.zeros(1, device="cuda")
        self.torch, self.device = torch, device
        self.synchronize = torch.cuda.synchronize
        # The stream of this whole program; 1 is how DLPack names the legacy default stream.
        self.stream = torch.cuda.current_stream(device).cuda_stream or 1
        self.own = torch.zeros(OWN_COUNT, dtype=torch.int32, device="cuda")
        self.patience = 5.0

    def await_room(self, nbytes: int) -> None:
        """What was dropped is freed behind the work of the GPUs, which takes longer than a round. Where the other pairs have
        the rest of a GPU's memory, that is found out once."""
        end = time.monotonic() + self.patience
        while self.torch.cuda.mem_get_info(self.device)[0] < 16 * nbytes:
            if time.monotonic() > end:
                self.patience = 0.05
                break
            time.sleep(0.005)

    def of(self, array: Any) -> Any:
        """As torch.from_dlpack(array), without looking for the stream each time."""
        return self.torch.from_dlpack(array.__dlpack__(stream=self.stream, max_version=(1, 0)))

    def of_many(self, arrays: list[Any]) -> list[Any]:
        make, stream = self.torch.from_dlpack, self.stream
        return [make(each.__dlpack__(stream=stream, max_version=(1, 0))) for each in arrays]


def places(tensor: Any) -> tuple[int, int, int]:
    count = tensor.shape[0]
    return 0, count // 2, count - 1


def stamp(tensor: Any, value: int) -> None:
    for place in places(tensor):
        tensor[place] = value


def stamps(tensor: Any) -> tuple[list[int], int]:
    """The contents, and how long reading one element took."""
    begin = clock()
    first = int(tensor[0])
    taken = clock() - begin
    return [first, *(int(tensor[place]) for place in places(tensor)[1:])], taken


# ---- the owner's side


TEXT = bytes(160)
"""As many bytes as a pickled Array has."""
END_OF_TEXTS = b"e" * len(TEXT)


class Bare:
    """Channels alone."""

    def __init__(self, plan: Plan) -> None: ...

    def prepare(self, block: Block) -> None: ...

    def make(self, block: Block, value: int) -> Any:
        return TEXT


class OfTorch:
    def __init__(self, plan: Plan) -> None:
        self.library = Torch(plan.owner)
        self.known: Any = None

    def _new(self, nbytes: int) -> Any:
        """Memory that nobody knows: the allocator has given back what it had."""
        self.library.torch.cuda.ipc_collect()
        self.library.torch.cuda.empty_cache()
        return self.library.torch.empty(nbytes // 4, dtype=self.library.torch.int32, device="cuda")

    def prepare(self, block: Block) -> None:
        self.known = None
        if block.case in ("part", "again"):
            self.known = self._new(8 * block.nbytes if block.case == "part" else block.nbytes)
        if block.case == "state":
            empty, int32 = self.library.torch.empty, self.library.torch.int32
            self.known = [empty(STATE_BYTES // 4, dtype=int32, device="cuda") for _ in range(STATE_TENSORS)]

    def make(self, block: Block, value: int) -> Any:
        if block.case == "state":
            self.library.torch._foreach_zero_(self.known)
            self.library.torch._foreach_add_(self.known, value)
            return {f"layer.{i}.weight": each for i, each in enumerate(self.known)}
        if block.case == "new":
            tensor = self._new(block.nbytes)
        elif block.case == "part":
            count = block.nbytes // 4
            tensor = self.known[value % 8 * count :][:count]
        else:
            tensor = self.known
        stamp(tensor, value)
        return tensor


class OfCudaCore:
    """Buffers of pools; the pool is sent along where it is new."""

    def __init__(self, plan: Plan) -> None:
        self.library = Torch(plan.owner)
        try:
            from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions
        except ImportError:
            from cuda.core.experimental import Device, DeviceMemoryResource, DeviceMemoryResourceOptions
        self.device = Device(plan.owner)
        self.device.set_current()
        self.stream = self.device.default_stream
        self.resource, self.options = DeviceMemoryResource, DeviceMemoryResourceOptions
        self.pool: Any = None
        self.is_sent = False

    def _pool(self, nbytes: int) -> Any:
        return self.resource(self.device, self.options(max_size=max(nbytes, 2 << 20), ipc_enabled=True))

    def prepare(self, block: Block) -> None:
        self.pool, self.is_sent = self._pool(8 * block.nbytes), False

    def make(self, block: Block, value: int) -> Any:
        pool = self._pool(block.nbytes) if block.case == "new" else self.pool
        buffer = pool.allocate(block.nbytes, stream=self.stream)
        self.device.sync()
        tensor = self.library.torch.from_dlpack(buffer).view(self.library.torch.int32)
        stamp(tensor, value)
        with_pool = block.case == "new" or not self.is_sent
        self.is_sent = True
        return (pool, buffer) if with_pool else (None, buffer)


class OfGpuipc:
    def __init__(self, plan: Plan) -> None:
        import gpuipc

        self.gpuipc, self.plan = gpuipc, plan
        self.library = Numpy(0) if plan.on_host else Torch(plan.owner)
        self.options = {"transport": "host"} if plan.on_host else {"device": plan.owner, "openers": [plan.user]}
        self.known: Any = None
        self.tensor: Any = None
        self.pool: Any = None
        self.frames: Any = None
        if has_pools(plan):
            import gpuipc.torch

            gpuipc.torch.install()
            self.pool = gpuipc.torch.MemPool(openers=[plan.user])

    def _new(self, count: int) -> Any:
        return self.gpuipc.empty(count, "int32", **self.options)

    def prepare(self, block: Block) -> None:
        self.known = self.tensor = None
        if block.case in ("part", "again", "ready"):
            self.known = self._new((8 if block.case == "part" else 1) * block.nbytes // 4)
            self.tensor = self.library.of(self.known)
        if block.case == "state":
            self.known = self._state()
        if block.case == "pool, again":
            self.known = self._of_pool(block.nbytes)
        if block.case == "bundle":
            self.known = self._tensors()
        if block.case in FRAMES:
            self.frames = self._channel(block.nbytes // 4)

    def _channel(self, count: int) -> Any:
        if self.frames is not None:
            self.frames.close()  # it has the name
        name, options = frames_of(self.plan), {"slots": 2, **self.options}
        if self.plan.on_host:
            return self.gpuipc.Channel(name, count, "int32", **options)
        return self.gpuipc.torch.Channel(name, shape=count, dtype=self.library.torch.int32, **options)

    def publish(self, frame: Any) -> None:
        if frame is None:
            frame = self.frames.loan()
            frame.header = END_OF_FRAMES
        frame.publish()

    def _of_pool(self, nbytes: int) -> Any:
        torch = self.library.torch
        with self.pool:
            return torch.empty(nbytes // 4, dtype=torch.int32, device="cuda")

    def _tensors(self) -> Any:
        return {f"layer.{i}.weight": self._of_pool(STATE_BYTES) for i in range(STATE_TENSORS)}

    def _make_of_pool(self, block: Block, value: int) -> Any:
        torch = self.library.torch
        if block.case.startswith("bundle"):
            if block.case == "bundle, new":
                self.pool = self.gpuipc.torch.MemPool(openers=[self.plan.user])
            tensors = self._tensors() if block.case == "bundle, new" else self.known
            torch._foreach_zero_(list(tensors.values()))
            torch._foreach_add_(list(tensors.values()), value)
            return tensors
        tensor = self.known if block.case == "pool, again" else self._of_pool(block.nbytes)
        stamp(tensor, value)
        return tensor

    def _state(self) -> Any:
        count = STATE_BYTES // 4
        whole = self._new(STATE_TENSORS * count)
        self.tensor = self.library.of(whole)
        return {f"layer.{i}.weight": whole[i * count : (i + 1) * count] for i in range(STATE_TENSORS)}

    def make(self, block: Block, value: int) -> Any:
        if block.case.startswith(("pool", "bundle")):
            return self._make_of_pool(block, value)
        if block.case.startswith("state"):
            arrays = self._state() if block.case == "state, new" else self.known
            self.tensor[...] = value
            return arrays
        count = block.nbytes // 4
        if block.case in FRAMES:
            loan = self.frames.loan()
            stamp(self.library.of(loan) if self.plan.on_host else loan, value)
            return loan
        if block.case == "wrapped":
            torch = self.library.torch
            torch.cuda.empty_cache()
            tensor = torch.empty(count, dtype=torch.int32, device="cuda")
            stamp(tensor, value)
            return tensor
        if block.case == "new":
            array = self._new(count)
            stamp(self.library.of(array), value)
            return array
        at = value % 8 * count if block.case == "part" else 0
        stamp(self.tensor[at : at + count], value)
        return self.known[at : at + count] if block.case == "part" else self.known

    def handing(self, block: Block) -> Callable[[Any], Any]:
        """What is done to what is put into the channel: this is a part of the hand-over. Which it is, a program knows."""
        if block.case.startswith("bundle"):
            return self.gpuipc.torch.Bundle
        if block.case == "wrapped":
            return self.gpuipc.wrap
        if block.case == "ready":  # as it is: what makes the contents was waited for
            return lambda made: made.after(-1)
        if block.case.startswith("state"):
            from gpuipc import _native

            return lambda made: (list(made), _native.pack(made.values()))
        return as_it_is


END_OF_FRAMES = b"end"


def frames_of(plan: Plan) -> str:
    """The name of the owner's channel."""
    return plan.name + "-frames"


def as_it_is(item: Any) -> Any:
    return item


def has_pools(plan: Plan) -> bool:
    """There is gpuipc.torch, and a GPU for it."""
    return not plan.on_host and importlib.util.find_spec("gpuipc.torch") is not None


def is_text(block: Block, plan: Plan, number: int) -> bool:
    """Whether that round of a block brings one. Both sides know."""
    return plan.system != "bare" and block.nbytes > 0 and number % 2 == 1


def text_channel(channel: str) -> str:
    """How a text goes: by the same channel, and where that is gpuipc's own, by what it stands on."""
    return channel if channel in ("queue", "pipe") else "socket"


def channel_of(block: Block, plan: Plan, number: int) -> str:
    """How that round of a block goes."""
    return text_channel(block.channel) if is_text(block, plan, number) else block.channel


SYSTEMS: dict[str, Any] = {"bare": Bare, "torch": OfTorch, "cuda.core": OfCudaCore, "gpuipc": OfGpuipc}


def senders(plan: Plan, channels: Channels, system: Any) -> dict[str, Any]:
    send: dict[str, Any] = {"queue": channels.queue.put, "pipe": channels.pipe.send}
    send["socket"] = lambda item: channels.socket.sendall(END_OF_TEXTS if item is None else item)
    if plan.system == "gpuipc":
        with system.gpuipc.listen(plan.name) as listener:
            channels.link.send("listening")
            connection = listener.accept(60)
        send["channel"] = system.publish
        send["connection"] = lambda item: (
            connection.send(b"end") if item is None else connection.send(b"", (item,), wait=False)
        )
        send["connection, pickled"] = lambda item: (
            connection.send(b"end") if item is None else connection.send(pickle.dumps(item))
        )
    return send


def run_block(block: Block, plan: Plan, channels: Channels, system: Any, sends: dict[str, Any]) -> Result:
    result, link = Result(), channels.link
    if plan.system != "bare":
        system.library.await_room(block.nbytes)
    system.prepare(block)
    handing = system.handing(block) if plan.system == "gpuipc" else as_it_is
    link.send(block)
    end = clock() + block.seconds * 1e9
    for number in range(6 * block.rounds):
        with_text = is_text(block, plan, number)
        send = sends[channel_of(block, plan, number)]
        if plan.system != "bare":
            system.library.await_room(block.nbytes)
        if with_text:
            stamp(system.library.own, number + 1)
        made = TEXT if with_text else system.make(block, number + 1)
        hand = as_it_is if with_text else handing
        if plan.system != "bare":
            system.library.synchronize()
        begin = clock()
        try:
            send(hand(made))
        except Exception:
            result.failure = traceback.format_exc(limit=4)
            number -= 1  # the other side still waits for it
            break
        given = clock()
        answer = link.recv()
        del made
        if isinstance(answer, str):
            result.failure = "the receiver: " + answer
            break
        taken, usable, contents, read = answer
        if contents != [number + 1] * len(contents):
            raise RuntimeError(f"round {number + 1} of {block} brought {contents[:8]}")
        if number > 3:  # the first ones meet what is not open yet
            if with_text:
                result.texts.append(usable - begin)
            else:
                result.times.append(usable - begin)
                result.given.append(given - begin)
                result.taken.append(taken - begin)
                result.reads.append(read)
        if len(result.times) >= block.rounds or (clock() > end and len(result.times) >= 3):
            break
    sends[channel_of(block, plan, number + 1)](None)
    return result


def own(plan: Plan, channels: Channels, orders: Any) -> None:
    """The process that has the memory."""
    try:
        system = SYSTEMS[plan.system](plan)
        send = senders(plan, channels, system)
        orders.send("ready")
        while (order := orders.recv()) is not None:
            if isinstance(order, Block):
                orders.send(run_block(order, plan, channels, system, send))
            else:
                import handover_calls

                orders.send(handover_calls.of_owner(plan, channels, system))
    except BaseException:
        orders.send(traceback.format_exc(limit=6))
    # Without the ends of libraries, which may wait for the other side.
    orders.close()
    os._exit(0)


# ---- the other side


class User:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.library: Any = None
        if plan.system != "bare":
            self.library = Numpy(0) if plan.on_host else Torch(plan.user)
        self.frames: Any = None
        if plan.system == "gpuipc":
            import gpuipc
            from gpuipc import _native

            self.gpuipc = gpuipc
            self.unpack, self.array = _native.unpack, gpuipc.Array
            if not plan.on_host:
                import gpuipc.torch

                gpuipc.config.open_device.set(plan.user)

    def subscribe(self, look: float | None) -> None:
        """To the owner's channel, from its first frame on."""
        options: dict[str, Any] = {"first": "oldest", "timeout": 30, "look": look}
        if self.plan.on_host:
            self.frames = self.gpuipc.subscribe(frames_of(self.plan), **options)
        else:
            self.frames = self.gpuipc.torch.subscribe(frames_of(self.plan), device=self.plan.user, **options)

    def take(self) -> Any:
        return self.frames.take()

    def using(self, block: Block) -> Callable[[Any], Any]:
        """What makes a tensor for this process's stream of what comes; or many. Which it is, a program knows."""
        if self.plan.system == "cuda.core":
            return lambda item: self.library.torch.from_dlpack(item[1]).view(self.library.torch.int32)
        if self.plan.system != "gpuipc":
            return as_it_is
        if block.case in FRAMES:
            return self.library.of if self.plan.on_host else as_it_is
        return self._tensors_of

    def _tensors_of(self, item: Any) -> Any:
        if isinstance(item, tuple):
            names, text = item
            return dict(zip(names, self.library.of_many(self.unpack(text))))
        if isinstance(item, self.array):
            return self.library.of(item)
        return item.tensors if hasattr(item, "tensors") else item  # a Bundle; a tensor is one already

    def contents(self, tensor: Any) -> tuple[list[int], int]:
        if isinstance(tensor, bytes):
            if self.library is not None:
                stamps(self.library.own)
            return [], 0
        if not isinstance(tensor, dict):
            return stamps(tensor)
        firsts = [each[-1:] for each in tensor.values()]
        if self.plan.on_host:
            return [int(each[0]) for each in firsts], 0
        return self.library.torch.cat(firsts).tolist(), 0


def receivers(plan: Plan, channels: Channels, user: User) -> dict[str, Any]:
    def from_socket() -> Any:
        return channels.socket.recv(len(TEXT), socket.MSG_WAITALL)

    receive: dict[str, Any] = {"queue": channels.queue.get, "pipe": channels.pipe.recv, "socket": from_socket}
    if plan.system == "gpuipc":
        import gpuipc

        assert channels.link.recv() == "listening"
        connection = gpuipc.connect(plan.name, 60)
        device = None if plan.on_host else plan.user

        def from_connection() -> Any:
            message = connection.receive(device=device, wait=False)
            return message.arrays[0] if message.arrays else None

        def from_connection_pickled() -> Any:
            data = connection.receive().data
            return None if data == b"end" else pickle.loads(data)

        receive["channel"] = user.take
        receive["connection"] = from_connection
        receive["connection, pickled"] = from_connection_pickled
    return receive


def use(plan: Plan, channels: Channels) -> None:
    """The process that gets the memory."""
    link = channels.link
    try:
        user = User(plan)
        receive = receivers(plan, channels, user)
        while True:
            order = link.recv()
            if isinstance(order, Block):
                use_block(order, user, receive, link)
            else:
                import handover_calls

                handover_calls.of_user(plan, channels, user)
    except EOFError:
        pass
    except BaseException:
        link.send(traceback.format_exc(limit=6))
    os._exit(0)


def is_end(item: Any, block: Block) -> bool:
    """The last of a block brings nothing."""
    if isinstance(item, bytes):
        return item == END_OF_TEXTS
    return block.case in FRAMES and item.header == END_OF_FRAMES


def use_block(block: Block, user: User, receives: dict[str, Any], link: Any) -> None:
    if block.case in FRAMES:
        user.subscribe(look=LOOK_SECONDS if block.case == "frame, looking" else None)
    kept: Any = None  # what is known is open somewhere
    using = user.using(block)
    is_known = block.case in ("part", "again", "ready", "state", "known pool", "pool, again", "bundle")
    for number in itertools.count():
        item = tensor = None
        with_text = is_text(block, user.plan, number)
        make = as_it_is if with_text else using
        try:
            if (item := receives[channel_of(block, user.plan, number)]()) is None:
                break
            taken = clock()
            tensor = make(item)
            now = clock()
            if is_end(item, block):  # looked at when the time is taken: a program does not ask
                del item, tensor
                break
            answer: Any = taken, now, *user.contents(tensor)
            if kept is None and is_known and not with_text:
                kept = item, tensor
        except EOFError:
            raise
        except Exception:
            answer = traceback.format_exc(limit=4)
        del item, tensor
        link.send(answer)
    if block.case in FRAMES:
        user.frames.close()
