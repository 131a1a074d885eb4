# SPDX-License-Identifier: MIT
"""asyncio: connections, channels, tickets, returns and servers that are waited for by an event loop.

    async with gpuipc.aio.listen("weights") as listener:
        connection = await listener.accept()
        await connection.send(b"step 7", [array])

    connection = await gpuipc.aio.connect("weights")
    message = await connection.receive()

    async for frame in await gpuipc.aio.subscribe("frames"):
        ...

What is cancelled, or whose time (asyncio.timeout) runs out, leaves nothing behind: a message that was not received yet
waits for the next call. The loop waits for the library's wait handles. Loops that cannot (Windows' default one) wait
in threads, a tenth of a second at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import gpuipc
from gpuipc import _native, errors

_T = TypeVar("_T")

_STRETCH = 0.1
"""How long a thread waits at a time: as long as it may outlive what was cancelled."""

_BETWEEN = 0.01
"""How often it is looked, at least, whether a listener has appeared, or a peer reads."""


# ---- waiting for wait handles


class _Handle(Protocol):
    def fileno(self) -> int: ...


class _Readers:
    """Who waits for which wait handle of one loop. Several may wait for the same."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waiting: dict[int, list[asyncio.Future[None]]] = {}

    async def readable(self, descriptor: int) -> None:
        future: asyncio.Future[None] = self.loop.create_future()
        if descriptor not in self.waiting:
            self.loop.add_reader(descriptor, self.wake, descriptor)
        self.waiting.setdefault(descriptor, []).append(future)
        try:
            await future
        finally:
            self.leave(descriptor, future)

    def leave(self, descriptor: int, future: "asyncio.Future[None]") -> None:
        """The last one takes the handle out of the loop."""
        futures = self.waiting.get(descriptor, [])
        if future in futures:
            futures.remove(future)
            if not futures:
                self.forget(descriptor)

    def forget(self, descriptor: int) -> None:
        if self.waiting.pop(descriptor, None) is not None:
            self.loop.remove_reader(descriptor)

    def wake(self, descriptor: int) -> None:
        """All look again, and those that find nothing come back. The handle stays readable until then."""
        futures = self.waiting.get(descriptor, [])
        self.forget(descriptor)
        for future in futures:
            if not future.done():
                future.set_result(None)


_readers: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Readers]" = WeakKeyDictionary()


def _readers_of(loop: asyncio.AbstractEventLoop) -> _Readers:
    if loop not in _readers:
        _readers[loop] = _Readers(loop)
    return _readers[loop]


class _Source:
    """Something that is waited for by its handle: calls that answer at once or raise errors.Timeout."""

    def __init__(self, handle: _Handle) -> None:
        self._handle = handle
        self._waited: tuple[_Readers, int] | None = None
        self._thread: asyncio.Future[Any] | None = None

    async def wait(self, call: Callable[[float], _T]) -> _T:
        """What the call answers, which is told how many seconds it may take."""
        while self._thread is None:
            try:
                return call(0)
            except errors.Timeout:
                pass
            try:
                await self.readable()
            except NotImplementedError:
                break
        return await self._in_threads(call)

    async def readable(self) -> None:
        self._waited = _readers_of(asyncio.get_running_loop()), self._handle.fileno()
        readers, descriptor = self._waited
        await readers.readable(descriptor)

    async def _in_threads(self, call: Callable[[float], _T]) -> _T:
        """A thread may have an answer when nobody waits for it any more: the next call takes it."""
        while True:
            if self._thread is None:
                self._thread = asyncio.get_running_loop().run_in_executor(None, call, _STRETCH)
                self._thread.add_done_callback(_seen)
            thread = self._thread
            await asyncio.wait([thread])
            if self._thread is not thread:
                continue  # another task was quicker
            self._thread = None
            try:
                return thread.result()  # type: ignore[no-any-return]
            except errors.Timeout:
                pass

    def closes(self) -> None:
        """Whoever waits looks again, and finds that it is closed."""
        if self._waited is not None:
            readers, descriptor = self._waited
            readers.wake(descriptor)


def _seen(future: "asyncio.Future[Any]") -> None:
    """An exception that nobody asks for is not to be complained of."""
    if not future.cancelled():
        future.exception()


async def _until(call: Callable[[float], _T]) -> _T:
    """The same for what has no handle, and does nothing but wait: a thread may outlive what was cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return call(0)
        except errors.Timeout:
            pass
        try:
            return await loop.run_in_executor(None, call, _STRETCH)
        except errors.Timeout:
            pass


async def _at_times(call: Callable[[float], _T]) -> _T:
    """The same for what must not be done any more when it was cancelled."""
    pause = 0.0005
    while True:
        try:
            return call(0)
        except errors.Timeout:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _BETWEEN)


# ---- memory


async def await_ready(memory: gpuipc.Buffer | gpuipc.Array) -> None:
    """Waits until the contents of received memory are there."""
    await _until(_buffer_of(memory).await_ready)


async def await_returns(memory: "gpuipc.Buffer | gpuipc.Array | gpuipc.Arena") -> None:
    """Waits until every process that it was handed to, also by a pickle, has returned it or has ended."""
    buffer = _buffer_of(memory)
    while _native.has_pickles_out(buffer):  # which nothing tells of
        await _until(buffer.await_returns)
    returns = gpuipc.Returns(buffer)
    await _Source(returns).wait(returns.wait)


async def open(
    ticket: gpuipc.Ticket | bytes | str, *, wait: bool = True, timeout: float | None = 5.0, **options: Any
) -> gpuipc.Array | dict[str, gpuipc.Array]:
    """As gpuipc.open(). timeout: for the server's answer, which a thread waits for."""
    loop = asyncio.get_running_loop()
    opened = await loop.run_in_executor(None, lambda: gpuipc.open(ticket, wait=False, timeout=timeout, **options))
    if wait:
        await await_ready(next(iter(opened.values())) if isinstance(opened, dict) else opened)
    return opened


def _buffer_of(memory: Any) -> gpuipc.Buffer:
    if not isinstance(memory, (gpuipc.Buffer, gpuipc.Array, gpuipc.Arena)):
        raise TypeError(f"what is waited for is a Buffer, an Array or an Arena, and not {type(memory).__name__}")
    return memory if isinstance(memory, gpuipc.Buffer) else memory.buffer


# ---- messages


class Connection:
    """A conversation with one process. Several tasks may send, and several receive: they take turns."""

    def __init__(self, connection: gpuipc.Connection) -> None:
        """Takes a connection over."""
        self._connection = connection
        self._source = _Source(connection)
        self._sending = asyncio.Lock()
        self._receiving = asyncio.Lock()
        self._came: gpuipc.Message | None = None

    @property
    def peer(self) -> gpuipc.Peer:
        """The process at the other end."""
        return self._connection.peer

    async def send(
        self,
        data: bytes = b"",
        arrays: Iterable[gpuipc.Array | gpuipc.Buffer] = (),
        *,
        stream: object | None = None,
        access: str | None = None,
    ) -> None:
        """Sends bytes and arrays. Nobody waits here for the work of the stream that makes their contents: who receives
        them does. Waits while the peer does not read.

        When it is cancelled nothing was sent. But a large message (32 KiB and more, or many arrays) may have left in
        part: that ends the connection.
        """
        if not isinstance(data, bytes):
            raise TypeError(f"the data of a message are bytes, and not {type(data).__name__}")
        items = list(arrays)
        if not all(isinstance(each, (gpuipc.Array, gpuipc.Buffer)) for each in items):
            raise TypeError("a message carries Arrays and Buffers")

        def call(timeout: float | None) -> None:
            self._connection.send(data, items, stream=stream, wait=False, access=access, timeout=timeout)

        async with self._sending:
            if _native.leaves_at_once(data, items):
                await _at_times(call)
            else:
                await self._send_in_parts(call)

    async def _send_in_parts(self, call: Callable[[float | None], None]) -> None:
        thread = asyncio.get_running_loop().run_in_executor(None, call, None)
        thread.add_done_callback(_seen)
        try:
            await asyncio.shield(thread)
        except asyncio.CancelledError:
            self.close()
            await asyncio.wait([thread])
            raise

    async def receive(
        self,
        *,
        device: object | None = None,
        access: str | None = None,
        stream: object | None = None,
        wait: bool = True,
    ) -> gpuipc.Message:
        """Waits for a message, and for the contents of its arrays; with wait=False, or a stream, not for these."""

        def call(timeout: float) -> gpuipc.Message:
            return self._connection.receive(timeout, device=device, access=access, stream=stream, wait=False)

        async with self._receiving:
            if self._came is None:
                self._came = await self._source.wait(call)
            message = self._came
            if wait and stream is None:
                await self._contents_of(message)
            self._came = None
            return message

    async def _contents_of(self, message: gpuipc.Message) -> None:
        """Cancelled, the message is for the next call; it is dropped when its contents never come."""
        try:
            for array in message.arrays:
                await await_ready(array)
        except errors.GpuipcError:
            self._came = None
            raise

    async def __aiter__(self) -> AsyncIterator[gpuipc.Message]:
        """Messages, until the peer ends the conversation."""
        while True:
            try:
                yield await self.receive()
            except errors.PeerClosed:
                return

    def close(self) -> None:
        """Ends the conversation. Who waits in it gets errors.ReleasedError."""
        self._source.closes()
        self._connection.close()

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(self, *args: object) -> None:
        self.close()


class Listener:
    """A name under which other processes connect."""

    def __init__(self, listener: gpuipc.Listener) -> None:
        """Takes a listener over."""
        self._listener = listener
        self._source = _Source(listener)

    async def accept(self) -> Connection:
        """Waits for a process to connect."""
        return Connection(await self._source.wait(self._listener.accept))

    async def __aiter__(self) -> AsyncIterator[Connection]:
        """Whoever connects."""
        while True:
            yield await self.accept()

    def close(self) -> None:
        """Frees the name. Connections stay."""
        self._source.closes()
        self._listener.close()

    async def __aenter__(self) -> "Listener":
        return self

    async def __aexit__(self, *args: object) -> None:
        self.close()


def listen(name: str, **options: Any) -> Listener:
    """As gpuipc.listen()."""
    return Listener(gpuipc.listen(name, **options))


async def connect(name: str, timeout: float | None = 5.0, **options: Any) -> Connection:
    """As gpuipc.connect(): waits for a listener to appear while there is time."""
    if timeout is not None and not timeout >= 0:
        raise ValueError("timeout is a number of seconds, 0 or more, or None")
    loop = asyncio.get_running_loop()
    end = None if timeout is None else loop.time() + timeout
    while True:
        try:
            return Connection(gpuipc.connect(name, 0, **options))
        except (errors.NotFound, errors.Timeout):
            if end is not None and loop.time() >= end:
                raise
        await asyncio.sleep(_BETWEEN)


# ---- channels


class _Loaning:
    """A loan that is waited for by `await`, or by `async with`."""

    def __init__(self, loan: Callable[[float], Any]) -> None:
        self._call = loan
        self._loan: Any = None

    def __await__(self) -> Generator[Any, None, Any]:
        return _at_times(self._call).__await__()

    async def __aenter__(self) -> Any:
        self._loan = await self
        return self._loan.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self._loan.__exit__(*error)


class Channel:
    """Frames for other processes.

        channel = aio.Channel(gpuipc.Channel("frames", (480, 640, 3), "uint8"))
        async with channel.loan() as frame:
            ...
    """

    def __init__(self, channel: Any) -> None:
        """Takes a channel over: a gpuipc.Channel, or a gpuipc.torch.Channel."""
        self._channel = channel

    def loan(self, *arguments: Any, **options: Any) -> _Loaning:
        """As the channel's own loan(), but for timeout: for `async with`, or `await`. While readers have all slots it is
        looked again, a hundred times a second at least."""
        return _Loaning(lambda timeout: self._channel.loan(*arguments, timeout=timeout, **options))

    def ticket(self) -> gpuipc.Ticket:
        """What readers open it by."""
        ticket: gpuipc.Ticket = self._channel.ticket()
        return ticket

    def readers(self) -> list[gpuipc.Reader]:
        """Those that read, and the last of those that did."""
        readers: list[gpuipc.Reader] = self._channel.readers()
        return readers

    def close(self) -> None:
        """Readers get what was published, and then the end. Takes some 20 ms."""
        self._channel.close()

    async def __aenter__(self) -> "Channel":
        return self

    async def __aexit__(self, *args: object) -> None:
        self.close()


class Subscription:
    """A reader of a channel. A loop (async for) takes frame after frame until the writer has ended, and gives each back
    when it goes on to the next. For one task at a time."""

    def __init__(self, subscription: Any) -> None:
        """Takes one over: of gpuipc.subscribe(), or of gpuipc.torch.subscribe()."""
        self._subscription = subscription
        self._source = _Source(subscription)

    async def _wait(self, call: Callable[[float], _T]) -> _T:
        """Always here, and never in another thread, which has another current stream."""
        while True:
            try:
                return call(0)
            except errors.Timeout:
                pass
            try:
                await self._source.readable()
            except NotImplementedError:
                return await _at_times(call)

    async def take(self, *, stream: object | None = None) -> Any:
        """Waits for a frame. When it is cancelled, the frame is for the next call."""
        return await self._wait(lambda timeout: self._subscription.take(timeout, stream))

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Frames, until the writer has ended."""
        while True:
            try:
                frame = await self._wait(self._subscription.next)
            except errors.PeerClosed as error:
                if error.name == "GPUIPC_ERR_PEER_CLOSED":
                    return
                raise
            yield frame
            del frame

    def close(self) -> None:
        """Gives back what was taken, and ends it. Who waits in it gets errors.ReleasedError."""
        self._source.closes()
        self._subscription.close()

    async def __aenter__(self) -> "Subscription":
        return self

    async def __aexit__(self, *args: object) -> None:
        self.close()


async def subscribe(channel: gpuipc.Ticket | bytes | str, **options: Any) -> Subscription:
    """As gpuipc.subscribe(), in a thread: it waits for the channel's name and server."""
    loop = asyncio.get_running_loop()
    return Subscription(await loop.run_in_executor(None, lambda: gpuipc.subscribe(channel, **options)))


# ---- a server


class Server:
    """A gpuipc.Server without a thread: the loop answers tickets.

        async with gpuipc.aio.Server() as server:
            ticket = server.share(array)
            ...

    Tickets are answered while the loop runs, and not while a task of it computes.
    """

    def __init__(self, **options: Any) -> None:
        """The arguments are those of gpuipc.Server, but for thread."""
        self._server = gpuipc.Server(thread=False, **options)
        self._source = _Source(self._server)
        self._task: asyncio.Task[None] | None = None

    def share(self, shared: "gpuipc.Buffer | gpuipc.Array | dict[str, gpuipc.Array]", **options: Any) -> gpuipc.Ticket:
        """As gpuipc.share()."""
        return self._server.share(shared, **options)

    def revoke(self, ticket: gpuipc.Ticket | bytes | str) -> None:
        """Nobody opens the ticket from now on. Who has it open keeps it."""
        self._server.revoke(ticket)

    def holders(self, ticket: gpuipc.Ticket | bytes | str) -> list[gpuipc.Holder]:
        """Which processes opened the ticket and have it open still."""
        return self._server.holders(ticket)

    async def serve(self) -> None:
        """Answers until it is cancelled or closed."""
        while True:
            try:
                await self._source.wait(self._server.poll)
            except errors.ReleasedError:
                return

    def close(self) -> None:
        """Nobody opens its tickets any more. What is open stays open."""
        self._source.closes()
        self._server.close()

    async def __aenter__(self) -> "Server":
        self._task = asyncio.get_running_loop().create_task(self.serve())
        return self

    async def __aexit__(self, *args: object) -> None:
        self.close()
        if self._task is not None:
            await asyncio.wait([self._task])
            self._task.result()

