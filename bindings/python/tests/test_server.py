# SPDX-License-Identifier: MIT
"""Servers of one's own, policies, and what comes back."""

import gc
import os
import pickle
import select
import threading
from collections.abc import Callable, Iterator
from multiprocessing.context import SpawnContext
from typing import Any

import numpy as np
import others
import pytest
from conftest import PATIENCE, Run
from test_connection import name
from test_process import ended, filled, received, started

import gpuipc

__all__ = ["name"]

# Whom a server refuses it tells no more than that it closes.
REFUSED = "TicketError"


@pytest.fixture
def opener(spawn: SpawnContext) -> Iterator[Callable[[object], Any]]:
    """Another process, which opens tickets and answers the shape, or the name of what was raised."""
    tickets, answers = spawn.Queue(), spawn.Queue()
    process = started(spawn, others.try_to_open, tickets, answers)

    def open(ticket: object) -> Any:
        tickets.put(str(ticket))
        return answers.get(timeout=PATIENCE)

    yield open
    tickets.put(None)
    ended(process)


# ---- servers


def test_a_server_of_ones_own(opener: Callable[[object], Any]) -> None:
    array = gpuipc.empty(16, "int8")
    with gpuipc.Server() as server:
        assert server.context == gpuipc.Context.default()
        ticket = server.share(array)
        assert opener(ticket) == (16,)
        assert opener(array.share(server=server)) == (16,)
        assert opener(server.share({"a": array, "b": array[3:]})) == ["a", "b"]
        assert opener(array.buffer.share(server=server, nbytes=3)) == (3,)
        assert server.holders(ticket) == []  # it has let go
        with pytest.raises(gpuipc.errors.TicketError):
            gpuipc.Context.default().revoke(ticket)
        server.revoke(ticket)
        assert opener(ticket) == "TicketRevoked"
        other = server.share(array)
    assert opener(other) == "ExporterGone"
    with pytest.raises(gpuipc.errors.ReleasedError):
        server.share(array)
    server.close()


def test_a_policy_is_asked(opener: Callable[[object], Any]) -> None:
    asked: list[gpuipc.Peer] = []

    def policy(peer: gpuipc.Peer) -> bool:
        asked.append(peer)
        return "now" in admitted

    admitted: list[str] = []
    with gpuipc.Server(policy=policy) as server:
        ticket = server.share(gpuipc.empty(16, "int8"))
        assert opener(ticket) == REFUSED
        admitted.append("now")
        assert opener(ticket) == (16,)
    assert asked[0].process_id == asked[-1].process_id != os.getpid()
    assert asked[0].user == str(os.getuid()) and asked[0].is_same_user and asked[0].is_running
    assert repr(asked[0]) == f"<gpuipc.Peer {asked[0].process_id} of user {os.getuid()}>"


def test_a_policy_that_raises_has_refused(opener: Callable[[object], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", raised.append)

    def policy(peer: gpuipc.Peer) -> bool:
        raise LookupError("no such peer")

    with gpuipc.Server(policy=policy) as server:
        assert opener(server.share(gpuipc.empty(16, "int8"))) == REFUSED
    assert isinstance(raised[0].exc_value, LookupError)


def test_users(opener: Callable[[object], Any]) -> None:
    with gpuipc.Server(users=[12345, "nobody"]) as server:  # this user always may
        assert opener(server.share(gpuipc.empty(16, "int8"))) == (16,)
    with gpuipc.Server(users=[], policy=lambda peer: False) as server:
        assert opener(server.share(gpuipc.empty(16, "int8"))) == REFUSED
    wrong: dict[str, Any]
    for wrong in ({"users": "root"}, {"users": 5}, {"policy": 5}):
        with pytest.raises(TypeError):
            gpuipc.Server(**wrong)


def test_a_policy_is_no_limit_of_processes(run_python: Run) -> None:
    program = (
        "import gpuipc, sys\n"
        "try: gpuipc.open(sys.argv[1])\n"
        "except gpuipc.GpuipcError as error: print(error.name, 'policy' in str(error), getattr(error, '__notes__', []))\n"
    )
    with gpuipc.Server(policy=lambda peer: False) as server:
        refused = run_python(program, str(server.share(gpuipc.empty(16, "int8"))))
    assert refused.stdout == "GPUIPC_ERR_SERVER_BUSY True []\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("admitted", [True, False])
def test_another_user(spawn: SpawnContext, admitted: bool) -> None:
    """In a directory that is shared with its group."""
    directory = f"{os.environ['GPUIPC_RUNTIME_DIR']}-shared-{int(admitted)}"
    os.mkdir(directory)
    os.chown(directory, 0, 65534)
    os.chmod(directory, 0o2770)  # so that sockets have its group
    tickets, answers = spawn.Pipe()
    with gpuipc.Context(runtime_directory=directory, shared_directory=True) as context:
        with gpuipc.Server(users=[65534] if admitted else [], context=context) as server:
            ticket = str(server.share(gpuipc.empty(16, "int8", context=context)))
            process = started(spawn, others.open_as_nobody, directory, ticket, answers)
            assert received(tickets) == ((16,) if admitted else REFUSED)
            ended(process)
    for left in os.listdir(directory):
        os.remove(os.path.join(directory, left))
    os.rmdir(directory)


def test_a_server_that_is_polled(opener: Callable[[object], Any]) -> None:
    with gpuipc.Server(thread=False) as server:
        with pytest.raises(gpuipc.errors.Timeout):
            server.poll(0)
        ticket = server.share(gpuipc.empty(16, "int8"))
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(opener(ticket)))
        asking.start()
        assert select.select([server], [], [], PATIENCE)[0] == [server]
        while asking.is_alive():
            try:
                server.poll(0.01)
            except gpuipc.errors.Timeout:
                pass
        assert answers == [(16,)]
    with gpuipc.Server() as server:
        for call in (server.fileno, lambda: server.poll(0)):
            with pytest.raises(gpuipc.errors.BusyError):
                call()


def test_a_server_with_a_policy_ends_before_python(run_python: Run) -> None:
    run_python(
        "import gpuipc, subprocess, sys, os\n"
        "server = gpuipc.Server(policy=lambda peer: True)\n"
        "kept = gpuipc.empty(16, 'int8')\n"
        "ticket = server.share(kept)\n"
        "sys.server = server, kept\n"
        "program = 'import gpuipc, sys, time\\n'\\\n"
        "          'for _ in range(100):\\n'\\\n"
        "          '    try: gpuipc.Context(); gpuipc.open(sys.argv[1], context=gpuipc.Context())\\n'\\\n"
        "          '    except gpuipc.GpuipcError: break\\n'\n"
        "subprocess.Popen([sys.executable, '-c', program, str(ticket)])\n"
        "import time; time.sleep(0.3)\n"
    )


def test_a_policy_that_never_returns_does_not_keep_the_process(run_python: Run) -> None:
    run_python(
        "import gpuipc, subprocess, sys, threading\n"
        "begun = threading.Event()\n"
        "def policy(peer):\n"
        "    begun.set()\n"
        "    while True: [1] * 10\n"
        "server = gpuipc.Server(policy=policy)\n"
        "ticket = server.share(gpuipc.create(4096))\n"
        "code = 'import gpuipc, sys; gpuipc.open(sys.argv[1], timeout=60)'\n"
        "opener = subprocess.Popen([sys.executable, '-c', code, str(ticket)], stderr=subprocess.DEVNULL)\n"
        "assert begun.wait(60)\n"
        "opener.kill()\n"
        "opener.wait()",
    )


def test_listeners_have_policies(name: str) -> None:
    asked = []

    def policy(peer: gpuipc.Peer) -> bool:
        asked.append(peer.process_id)
        return len(asked) > 1

    with gpuipc.listen(name, policy=policy, users=[]) as listener, gpuipc.connect(name):
        with pytest.raises(gpuipc.errors.Timeout):
            listener.accept(0)
        with gpuipc.connect(name), listener.accept(PATIENCE):
            pass
        with pytest.raises(gpuipc.errors.AccessDenied):
            gpuipc.connect(name, policy=lambda peer: False)
    assert asked == [os.getpid()] * 2


# ---- what comes back


@pytest.fixture
def borrower(spawn: SpawnContext) -> Iterator[Any]:
    """Another process, which does with what it unpickles what it is told."""
    here, there = spawn.Pipe()
    process = started(spawn, others.borrow, there)
    yield here
    here.send(("end", None))
    ended(process)


def do(borrower: Any, what: str, argument: object = None) -> Any:
    borrower.send((what, argument))
    return received(borrower)


def test_a_pickle_is_out_until_it_was_let_go_of(borrower: Any) -> None:
    array = filled((4,))
    array.await_returns(0)
    text = pickle.dumps(array)
    assert array.buffer.lent_count == 1
    with pytest.raises(gpuipc.errors.Timeout, match="pickled"):
        array.await_returns(0.01)
    assert do(borrower, "take", text) == 6
    assert array.buffer.lent_count == 1
    with pytest.raises(gpuipc.errors.Timeout):
        array.await_returns(0.01)
    do(borrower, "let go")
    array.await_returns(PATIENCE)
    assert array.buffer.lent_count == 0


@pytest.mark.parametrize("as_ticket", [False, True])
def test_given_back_it_may_be_written_again(borrower: Any, as_ticket: bool) -> None:
    """Although there is a tensor of it still."""
    array = filled((4,))
    assert do(borrower, "take", array.ticket() if as_ticket else pickle.dumps(array)) == 6
    assert do(borrower, "give back, and keep a tensor") == "ReleasedError"
    if as_ticket:
        array.await_returns(PATIENCE)  # the tensor keeps the memory, and not the sender
    else:
        # The pickle is back. That the tensor keeps it open is another thing: it is told when it goes.
        while gpuipc._native.has_pickles_out(array.buffer):
            pass
    do(borrower, "let go")
    array.await_returns(PATIENCE)
    assert array.buffer.lent_count == 0


def test_what_was_let_go_of_goes_in_order(borrower: Any) -> None:
    """The sender takes back each of several hand-overs of one memory."""
    array = filled((4,))
    for i in range(5):
        assert do(borrower, "take", pickle.dumps(array)) == 6
        do(borrower, "let go")
        array.await_returns(PATIENCE)
    one, other = pickle.dumps(array), pickle.dumps(array[1:3])
    assert array.buffer.lent_count == 2
    assert do(borrower, "take", one) == 6
    assert do(borrower, "take", other) == 3
    do(borrower, "let go")
    with pytest.raises(gpuipc.errors.Timeout):
        array.await_returns(0.05)
    do(borrower, "let go")
    array.await_returns(PATIENCE)


def test_a_pickle_that_nobody_reads_is_out_until_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpuipc.config, "orphan_seconds", 0.2)
    array = filled((4,))
    pickle.dumps(array)
    with pytest.raises(gpuipc.errors.Timeout):
        array.await_returns(0.01)
    array.await_returns(PATIENCE)
    assert array.buffer.lent_count == 0


def test_what_is_not_given_back() -> None:
    array = filled((4,))
    for own in (array, array.buffer, gpuipc.wrap(gpuipc.empty(4, "int8"))):
        with pytest.raises(ValueError, match="made or wrapped here"):
            own.give_back()
    opened = gpuipc.open(array.ticket())
    assert isinstance(opened, gpuipc.Array)
    opened.give_back()  # of this very process: it is closed
    with pytest.raises(gpuipc.errors.ReleasedError):
        opened.give_back()
    assert np.from_dlpack(array).sum() == 6


def test_messages_are_given_back(name: str) -> None:
    with gpuipc.listen(name) as listener, gpuipc.connect(name) as one, listener.accept(PATIENCE) as other:
        array = gpuipc.empty(16, "int8")
        for stream in (None, 1):
            one.send(b"", [array])
            (came,) = other.receive(PATIENCE).arrays
            with pytest.raises(gpuipc.errors.Timeout):
                array.await_returns(0.01)
            came.give_back(stream)
            array.await_returns(PATIENCE)


def test_returns_for_event_loops(borrower: Any) -> None:
    array = filled((4,))
    returns = gpuipc.Returns(array.buffer)
    assert select.select([returns], [], [], PATIENCE)[0] == [returns]
    assert do(borrower, "take", array.ticket()) == 6
    assert select.select([returns], [], [], 0)[0] == []
    with pytest.raises(gpuipc.errors.Timeout):
        returns.wait(0)
    array.close()  # they keep the memory
    do(borrower, "let go")
    assert select.select([returns], [], [], PATIENCE)[0] == [returns]
    returns.wait(0)
    with pytest.raises(gpuipc.errors.ReleasedError):
        gpuipc.Returns(array.buffer)
    del returns
    gc.collect()
