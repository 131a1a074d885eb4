#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long a time stamp takes from one process to another by iceoryx2, by a channel of gpuipc, and by a word in shared
memory; in host memory, without streams, all from Python, in turns in one run. Then what all calls of a frame take in one
thread.

Python's own time is in all three, so what they have in common is the word's. iceoryx2 is called by its own Python
package (pip install iceoryx2), gpuipc's C library by ctypes. It is no part of any test.

usage: bench_iceoryx2.py LIBGPUIPC [SAMPLES]     (GPUIPC_CUDA_DRIVER=emulated where there is no GPU)
"""
import ctypes
import mmap
import os
import subprocess
import sys
import tempfile
import time

import iceoryx2 as iox2

WAYS = ("word", "iceoryx2", "gpuipc")
BLOCK = 500
WARM = 20
PAUSE_NS = 30_000
LINE = 64
TURN, ANSWER, FIRST = 0, 1, 8  # words: each of the first on a line of its own, then the samples


class Board:
    """Words that both processes have mapped."""

    def __init__(self, path):
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), LINE * (FIRST + BLOCK + WARM))
        self.words = memoryview(self.memory).cast("Q")

    def read(self, word):
        return self.words[word * 8]

    def write(self, word, value):
        self.words[word * 8] = value


class Frame(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("id", ctypes.c_uint64), ("address", ctypes.c_uint64),
                ("capacity", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("sequence", ctypes.c_uint64),
                ("missed", ctypes.c_uint64), ("header", ctypes.c_void_p), ("header_bytes", ctypes.c_size_t)]


class BufferConfig(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("device", ctypes.c_uint32), ("transport", ctypes.c_uint32),
                ("bytes", ctypes.c_uint64), ("segment_bytes", ctypes.c_uint64), ("openers", ctypes.c_void_p),
                ("opener_count", ctypes.c_uint32), ("access_device_count", ctypes.c_uint32),
                ("access_devices", ctypes.c_void_p)]


class ChannelConfig(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("slots", ctypes.c_uint32),
                ("max_readers", ctypes.c_uint32), ("slot_bytes", ctypes.c_uint64), ("header_bytes", ctypes.c_uint32),
                ("max_held", ctypes.c_uint32), ("full", ctypes.c_uint32), ("drop_after_ms", ctypes.c_uint32),
                ("name", ctypes.c_char_p)]


class Gpuipc:
    """The library's calls; any failure ends the program with its sentence."""

    NO_STREAM = ctypes.c_void_p(-1)

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.gpuipc_error_text.restype = ctypes.c_char_p
        self.context = self.make("context_create", None)

    def __call__(self, name, *arguments):
        if getattr(self.library, "gpuipc_" + name)(*arguments) != 0:
            sys.exit(self.library.gpuipc_error_text().decode())

    def make(self, name, *arguments):
        made = ctypes.c_void_p()
        self(name, *arguments, ctypes.byref(made))
        return made


def sized(struct, **values):
    return struct(struct_size=ctypes.sizeof(struct), **values)


class ChannelWriter:
    def __init__(self, library):
        self.gpuipc = Gpuipc(library)
        server = self.gpuipc.make("server_create", self.gpuipc.context, None)
        memory = sized(BufferConfig, bytes=1 << 21)
        buffer = self.gpuipc.make("buffer_create", self.gpuipc.context, ctypes.byref(memory))
        config = sized(ChannelConfig, buffer=buffer, slots=4, slot_bytes=4096, header_bytes=8)
        self.channel = ctypes.c_void_p()
        ticket = (ctypes.c_uint8 * 64)()
        text = ctypes.create_string_buffer(95)
        self.gpuipc("channel_create", server, ctypes.byref(config), ctypes.byref(self.channel), ticket)
        self.gpuipc("ticket_to_text", ticket, text)
        self.text = text.value.decode()
        self.stamp = ctypes.c_uint64()
        self.frame = sized(Frame)

    def send(self):
        self.gpuipc("channel_loan", self.channel, Gpuipc.NO_STREAM, 1000, ctypes.byref(self.frame))
        self.stamp.value = time.monotonic_ns()
        self.frame.header = ctypes.addressof(self.stamp)
        self.frame.header_bytes = 8
        self.gpuipc("channel_publish", self.channel, ctypes.byref(self.frame), Gpuipc.NO_STREAM)


class ChannelReader:
    def __init__(self, library, text):
        self.gpuipc = Gpuipc(library)
        ticket = (ctypes.c_uint8 * 64)()
        self.gpuipc("ticket_from_text", text.encode(), ticket)
        self.subscription = self.gpuipc.make("subscription_open", self.gpuipc.context, ticket, None)
        self.frame = sized(Frame)

    def receive(self):
        self.gpuipc("subscription_take", self.subscription, Gpuipc.NO_STREAM, 60000, ctypes.byref(self.frame))
        end = time.monotonic_ns()
        begin = ctypes.c_uint64.from_address(self.frame.header).value
        self.gpuipc("subscription_give_back", self.subscription, ctypes.byref(self.frame), Gpuipc.NO_STREAM)
        return end - begin


def iceoryx2_service(name):
    node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
    return node, node.service_builder(iox2.ServiceName.new(name)).publish_subscribe(ctypes.c_uint64).open_or_create()


class IceoryxWriter:
    def __init__(self, name):
        self.node, self.service = iceoryx2_service(name)
        self.publisher = self.service.publisher_builder().create()

    def send(self):
        sample = self.publisher.loan_uninit()
        sample.write_payload(ctypes.c_uint64(time.monotonic_ns())).send()


class IceoryxReader:
    def __init__(self, name):
        self.node, self.service = iceoryx2_service(name)
        self.subscriber = self.service.subscriber_builder().create()

    def receive(self):
        sample = self.subscriber.receive()
        while sample is None:
            sample = self.subscriber.receive()
        end = time.monotonic_ns()
        return end - sample.payload().contents.value


class WordWriter:
    def __init__(self, board):
        self.board = board

    def send(self):
        self.board.write(TURN, time.monotonic_ns())


class WordReader:
    def __init__(self, board):
        self.board = board
        self.last = board.read(TURN)

    def receive(self):
        begin = self.board.read(TURN)
        while begin == self.last:
            begin = self.board.read(TURN)
        self.last = begin
        return time.monotonic_ns() - begin


def read_all(library, path, name, text):
    board = Board(path)
    readers = {"word": WordReader(board), "iceoryx2": IceoryxReader(name), "gpuipc": ChannelReader(library, text)}
    print("ready", flush=True)
    for line in sys.stdin:
        reader = readers[line.strip()]
        for i in range(BLOCK + WARM):
            board.write(FIRST + i, reader.receive())
            board.write(ANSWER, i + 1)
        print("ready", flush=True)


def block(way, writer, board, reader):
    board.write(ANSWER, 0)
    reader.stdin.write(way + "\n")
    reader.stdin.flush()
    for i in range(BLOCK + WARM):
        while board.read(ANSWER) != i:
            pass
        seen = time.monotonic_ns()
        while time.monotonic_ns() - seen < PAUSE_NS:
            pass
        writer.send()
    reader.stdout.readline()
    return [board.read(FIRST + i) for i in range(WARM, BLOCK + WARM)]


def at(ordered, share):
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000


def tell(way, what, samples):
    ordered = sorted(samples)
    print(f"{way:9} {what}: p50 {at(ordered, .5):.2f} us, p99 {at(ordered, .99):.2f}, p99.99 {at(ordered, .9999):.2f}"
          f" ({len(ordered)} samples)")


def in_one_thread(writer, reader, count):
    """What the calls of a frame take, sent and received by the same thread: nobody is waited for."""
    samples = []
    for i in range(count + WARM):
        begin = time.monotonic_ns()
        writer.send()
        reader.receive()
        if i >= WARM:
            samples.append(time.monotonic_ns() - begin)
    return samples


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "reader":
        return read_all(*sys.argv[2:])
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    library = os.path.abspath(sys.argv[1])
    blocks = max(1, int(sys.argv[2] if len(sys.argv) == 3 else 20000) // BLOCK)
    name = f"gpuipc-bench-{os.getpid()}"
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(LINE * (FIRST + BLOCK + WARM))
        board = Board(file.name)
        channel = ChannelWriter(library)
        writers = {"word": WordWriter(board), "iceoryx2": IceoryxWriter(name), "gpuipc": channel}
        command = [sys.executable, os.path.abspath(__file__), "reader", library, file.name, name, channel.text]
        samples = {way: [] for way in WAYS}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            reader.stdout.readline()
            for i in range(blocks):
                for way in WAYS[i % 3:] + WAYS[:i % 3]:
                    samples[way] += block(way, writers[way], board, reader)
            reader.stdin.close()
        for way in WAYS:
            tell(way, "between two processes", samples[way])
        readers = {"word": WordReader(board), "iceoryx2": IceoryxReader(name),
                   "gpuipc": ChannelReader(library, channel.text)}
        for way in WAYS:
            tell(way, "all calls in one thread", in_one_thread(writers[way], readers[way], blocks * BLOCK))


if __name__ == "__main__":
    main()
