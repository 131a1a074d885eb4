# SPDX-License-Identifier: MIT
"""What other processes do in the tests: functions, because multiprocessing wants to find them by name."""

import ctypes
import os
import pickle
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from typing import Any

import numpy as np

import gpuipc
from gpuipc import _native


def open_and_add(ticket: str, answer: "Queue[Any]") -> None:
    """Adds 1 to what a ticket of the host's memory opens, and says what it found there."""
    array = gpuipc.open(ticket)
    assert isinstance(array, gpuipc.Array)
    numpy = np.from_dlpack(array).view(np.int32)
    answer.put((array.shape, array.dtype, int(numpy.sum()), array.buffer.device))
    numpy += 1


def give_out(pipe: Any) -> None:
    """Keeps an array of 16 numbers until it is told to end."""
    array = gpuipc.empty(16, "int32", transport="host")
    np.from_dlpack(array)[...] = np.arange(16)
    pipe.send(str(array.ticket()))
    pipe.recv()


def send_arrays(pipe: Any, transport: str, count: int) -> None:
    """New arrays, each when the one before was taken."""
    for number in range(count):
        array = gpuipc.empty(64, "int32", transport=transport)
        array.buffer.write(number.to_bytes(4, "little"))
        pipe.send(array)
        assert pipe.recv() == number


def receive_and_add(arrays: "Queue[Any]", answer: "Queue[Any]") -> None:
    """The same with what comes as arrays, until None comes."""
    while (array := arrays.get()) is not None:
        numpy = np.from_dlpack(array).view(np.int32)
        answer.put((array.shape, int(numpy.sum())))
        numpy += 1


def name_shape(arrays: "Queue[Any]", answer: "Queue[Any]") -> None:
    """The same without looking at the contents."""
    while (array := arrays.get()) is not None:
        answer.put(array.shape)
        del array  # and not when the next one has come


def unpickle_and_add(pickles: "Queue[Any]", answer: "Queue[Any]") -> None:
    """What comes as bytes, or the name of what was raised."""
    while (text := pickles.get()) is not None:
        try:
            numpy = np.from_dlpack(pickle.loads(text)).view(np.int32)
            answer.put(int(numpy.sum()))
            numpy += 1
        except gpuipc.GpuipcError as error:
            answer.put(type(error).__name__)


def unpack_and_add(parcels: "Queue[Any]", answer: "Queue[Any]") -> None:
    """The same with arrays that come together."""
    while (parcel := parcels.get()) is not None:
        tensors = [np.from_dlpack(array).view(np.int32) for array in _native.unpack(parcel)]
        answer.put([(tensor.shape, int(tensor.sum())) for tensor in tensors])
        for tensor in tensors[1:2]:
            tensor += 1


def pass_on(arrays: "Queue[Any]", further: "Queue[Any]") -> None:
    """Puts what it gets on another queue, and waits until it may end."""
    while (array := arrays.get()) is not None:
        further.put(array)


def fill_and_send(transport: str, as_ticket: bool, values: list[int], pipe: Connection) -> None:
    """Puts fills on its stream, and hands the memory over before they are done. Ends when told so."""
    array = gpuipc.empty(1 << 16, "uint8", transport=transport)
    for value in values:
        array.buffer.fill(value)
        pipe.send(array.share(wait=False) if as_ticket else pickle.dumps(array))
        if pipe.recv() == "end":
            os._exit(0)
    pipe.recv()


def fill_on_a_stream_and_send(values: list[int], pipe: Connection) -> None:
    """Fills on a stream of its own, which does not wait for the default one, nor that for it."""
    array = gpuipc.empty(1 << 16, "uint8")
    array.buffer.write(b"first")  # so that there is a context of CUDA
    driver = ctypes.CDLL(gpuipc.Context.default().driver_path)
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    for value in values:
        array.buffer.fill(value, stream=stream.value)
        pipe.send(array.after(stream.value))
        pipe.recv()


def give_out_and_end(answer: "Queue[Any]") -> None:
    array = gpuipc.empty(16, "int8")
    answer.put(str(array.share()))
    array.buffer.fill(3)
    answer.close()
    answer.join_thread()


class Managed(ctypes.Structure):
    """DLManagedTensor of dlpack.h, as far as this needs it."""

    _fields_ = [("tensor", ctypes.c_uint8 * 48), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


def take(array: gpuipc.Array) -> "ctypes._Pointer[Managed]":
    """As a consumer in C takes it: from now on its deleter has to be called."""
    capsule = array.__dlpack__()
    get, rename = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    tensor = get(capsule, b"dltensor")
    take.names.append(ctypes.c_char_p(b"used_dltensor"))  # type: ignore[attr-defined]
    rename(capsule, take.names[-1])  # type: ignore[attr-defined]
    return ctypes.cast(tensor, ctypes.POINTER(Managed))


take.names = []  # type: ignore[attr-defined]


def delete_on_a_thread(tensor: "ctypes._Pointer[Managed]") -> None:
    """On one that Python knows nothing of, while this one waits without the GIL."""
    c = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    assert c.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(tensor.contents.deleter), tensor) == 0
    assert c.pthread_join(thread, None) == 0


def hold_until_told(ticket: str, told: Connection) -> None:
    """Holds an array by a tensor alone; gives it up on a thread of C when told, and then stays."""
    array = gpuipc.open(ticket)
    assert isinstance(array, gpuipc.Array)
    tensor = take(array)
    del array
    told.send("holding")
    told.recv()
    delete_on_a_thread(tensor)
    told.send("gone")
    told.recv()


def interrupted(ready: Connection, wait: Callable[[], object], array: gpuipc.Array) -> None:
    """Waits in a call of the library until the test's SIGINT, and uses the library again. A signal that comes before
    the wait has begun comes again."""
    waiting = False

    def handle(number: int, frame: object) -> None:
        if not waiting:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
        else:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGALRM, handle)
    ready.send("waiting")
    try:
        waiting = True
        wait()
        ready.send("not interrupted")
    except KeyboardInterrupt:
        ready.send("interrupted")
        array.buffer.write(b"still usable")
        ready.send("usable")


def wait_for_returns(ready: Connection) -> None:
    array = gpuipc.empty(16, "int8")
    ready.send(array.ticket())
    ready.recv()  # it is open elsewhere
    interrupted(ready, array.buffer.await_returns, array)


def wait_for_contents(sent: Any, ready: Connection) -> None:
    array = gpuipc.empty(16, "int8")
    if isinstance(sent, bytes):
        interrupted(ready, pickle.loads(sent).buffer.read, array)
    else:
        interrupted(ready, lambda: gpuipc.open(sent, timeout=None), array)


def answer_messages(name: str) -> None:
    """Adds 1 to all arrays that come, and sends the bytes back, and with them those arrays' sums."""
    with gpuipc.connect(name, 60) as connection:
        while (message := connection.receive(60)).data != b"end":
            sums = []
            for array in message.arrays:
                numpy = np.from_dlpack(array).view(np.int32)
                sums.append(int(numpy.sum()))
                numpy += 1
            connection.send(message.data + repr(sums).encode())


def wait_for_message(name: str, ready: Connection) -> None:
    array = gpuipc.empty(16, "int8")
    with gpuipc.connect(name, 60) as connection:
        interrupted(ready, connection.receive, array)


class Read:
    """As tensors answer."""

    def __init__(self, address: int):
        self.shape, self.dtype, self._address = (256,), "int32", address

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def data_ptr(self) -> int:
        return self._address


def deliver(pipe: Connection) -> None:
    """Takes tensors as they come, says how many and what the first one holds, and gives back when told so."""
    while (came := pipe.recv()) is not None:
        delivery = _native.Delivery(came[0], came[1], lambda capsule: capsule)
        delivery.await_contents()
        (buffer,) = [gpuipc.open_buffer(came[0][0][0])]
        pipe.send((len(delivery), buffer.read(0, 1024)))
        if pipe.recv() != "give back":
            return
        delivery.give_back([0])
        del delivery, buffer
        pipe.send("given back")


def deliver_and_keep(pipe: Connection) -> None:
    """Keeps the first that comes, an Array or a tensor that was handed over, and lets go of all others."""
    kept: list[Any] = []
    while (came := pipe.recv()) is not None:
        if isinstance(came, bytes):
            one = pickle.loads(came)
        else:
            one = _native.Delivery(came[0], came[1], lambda capsule: capsule).tensor(0)
        if not kept:
            kept.append(one)
        elif isinstance(one, gpuipc.Array):
            tensor = take(one)
            del one  # before the tensor that was made of it
            delete_on_a_thread(tensor)
        one = None
        pipe.send(None)


def deliver_and_let_go(pipe: Connection, seconds: float) -> None:
    """Lets go of each tensor that comes, and closes its context when told so."""
    gpuipc.config.keep_segments_seconds = seconds
    while (came := pipe.recv()) is not None:
        if came == "close":
            gpuipc.Context.default().close()
        else:
            _native.Delivery(came[0], came[1], lambda capsule: capsule)
        pipe.send(None)


def deliver_further(pipe: Connection) -> None:
    """Tries to hand over what it was handed."""
    came = pipe.recv()
    delivery = _native.Delivery(came[0], came[1], lambda capsule: capsule)
    assert len(delivery) == 1
    address = gpuipc.open_buffer(came[0][0][0]).address
    try:
        _native.Parcel([Read(address)], None, True)
    except ValueError as error:
        pipe.send(str(error))
    pipe.recv()


def add_to_all(arenas: "Queue[Any]", answer: "Queue[Any]") -> None:
    """Adds 1 to every array of the arenas that come, and answers their sums before."""
    while (arena := arenas.get()) is not None:
        sums = {}
        for name, array in arena.items():
            numpy = np.from_dlpack(array).view(np.int32)
            sums[name] = int(numpy.sum())
            numpy += 1
        answer.put(sums)
        del arena, array, numpy  # and not when the next one has come


def outcome(ticket: object, **options: Any) -> object:
    try:
        opened = gpuipc.open(ticket, **options)  # type: ignore[arg-type]
    except gpuipc.GpuipcError as error:
        print(error, file=sys.stderr)
        return type(error).__name__
    return list(opened) if isinstance(opened, dict) else opened.shape


def try_to_open(tickets: "Queue[Any]", answer: "Queue[Any]") -> None:
    """Each in a context of its own, as another process would."""
    while (ticket := tickets.get()) is not None:
        with gpuipc.Context() as context:
            answer.put(outcome(ticket, context=context))


def open_as_nobody(directory: str, ticket: str, answer: Connection) -> None:
    os.setgroups([65534])
    os.setgid(65534)
    os.setuid(65534)
    with gpuipc.Context(runtime_directory=directory, shared_directory=True) as context:
        answer.send(outcome(ticket, users=[0], context=context))


def borrow(told: Connection) -> None:
    """Takes arrays, and lets go of them or gives them back, the first one first."""
    held: list[Any] = []
    tensors: list[Any] = []
    while (message := told.recv())[0] != "end":
        what, argument = message
        if what == "take":
            array: Any = pickle.loads(argument) if isinstance(argument, bytes) else gpuipc.open(argument)
            held.append(array)
            contents = array.buffer.read(array.offset, array.nbytes)
            told.send(int(np.frombuffer(contents, np.int32).sum()))
            del array
        elif what == "let go":
            if held:
                held.pop(0)
            else:
                delete_on_a_thread(tensors.pop(0))
            told.send(None)
        else:
            array = held.pop(0)
            tensors.append(take(array))
            array.give_back()
            try:
                array.__dlpack__()
            except gpuipc.GpuipcError as error:
                told.send(type(error).__name__)
            del array


def read_frames(ticket: object, options: dict[str, Any], pipe: Connection) -> None:
    """Takes frames of the host's memory until there are none any more, and says what is in each."""
    with gpuipc.subscribe(ticket, **options) as frames:  # type: ignore[arg-type]
        pipe.send("subscribed")
        try:
            for frame in frames:
                arrays = {name: np.from_dlpack(each).tolist() for name, each in frame.arrays.items()}
                pipe.send((frame.sequence, frame.missed, frame.header, arrays))
        except gpuipc.GpuipcError as error:
            pipe.send(error.name)
            return
    pipe.send("end")


def take_when_told(ticket: object, pipe: Connection) -> None:
    """Takes a frame each time, and says what arrays it tells of."""
    reader = gpuipc.subscribe(ticket)  # type: ignore[arg-type]
    pipe.send("subscribed")
    while pipe.recv() is not None:
        try:
            with reader.take(60) as frame:
                pipe.send(({name: (each.shape, each.dtype) for name, each in frame.arrays.items()}, frame.header))
        except (gpuipc.errors.ProtocolError, gpuipc.errors.OutOfRange):
            pipe.send("refused")


def hold_a_frame(ticket: object, pipe: Connection) -> None:
    """Takes one, and has it until it is killed."""
    frame = gpuipc.subscribe(ticket).take(60)  # type: ignore[arg-type]
    pipe.send(frame.sequence)
    pipe.recv()


def write_frames(pipe: Connection) -> None:
    """Publishes a frame for each value that comes; with None it loans one and keeps it."""
    channel = gpuipc.Channel(None, 16, "int32", slots=4, transport="host")
    pipe.send(channel.ticket())
    loan = None
    while (value := pipe.recv()) != "close":
        loan = channel.loan()
        if value is not None:
            np.from_dlpack(loan)[...] = value
            loan.publish()
        pipe.send(None)
    channel.close()
    del loan


def wait_for_a_frame(ticket: object, ready: Connection) -> None:
    frames = gpuipc.subscribe(ticket)  # type: ignore[arg-type]
    interrupted(ready, lambda: next(frames), gpuipc.empty(16, "int8"))


def wait_for_a_slot(full: str, ready: Connection) -> None:
    after = 3600 if full == "drop" else None
    channel = gpuipc.Channel(None, 16, "int8", slots=1, transport="host", full=full, drop_after=after)
    reader = gpuipc.subscribe(channel.ticket())
    channel.loan().publish()
    frame = reader.take()
    interrupted(ready, channel.loan, gpuipc.empty(16, "int8"))
    frame.give_back()
