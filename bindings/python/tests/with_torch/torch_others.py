# SPDX-License-Identifier: MIT
"""What other processes do in the tests of gpuipc.torch."""

import warnings
from multiprocessing.queues import Queue
from multiprocessing.reduction import ForkingPickler
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch

import gpuipc
import gpuipc.torch


class Subclass(torch.Tensor):  # type: ignore[misc]
    pass


def storage(of: Any) -> int:
    """Which storage it is."""
    return int(of.untyped_storage().data_ptr() if hasattr(of, "untyped_storage") else of.storage().data_ptr())


def described(value: Any) -> Any:
    """As plain values, to be compared: where in memory tensors lie is not the same in two processes."""
    if isinstance(value, torch.Tensor):
        kind = type(value).__name__
        return (kind, str(value.dtype), tuple(value.shape), value.stride(), value.requires_grad, str(value.tolist()))
    if isinstance(value, dict):
        return type(value).__name__, {key: described(each) for key, each in value.items()}, getattr(value, "_metadata", 0)
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [described(each) for each in value]
    return value


def _tensor(tensor: Any) -> Any:
    found = ([int(each) for each in tensor.flatten().tolist()], tuple(tensor.shape), tensor.stride())
    with torch.no_grad():
        tensor += 1
    return (*found, type(tensor).__name__, tensor.requires_grad)


def _passed_on(tensor: Any) -> str:
    gpuipc.torch.install()
    try:
        ForkingPickler.dumps(tensor)
    except ValueError as error:
        return str(error)
    return "passed on"


def serve(queue: "Queue[Any]", answers: "Queue[Any]") -> None:
    """Answers what it gets, until None comes; keeps the last of it if it was told to."""
    keeps, kept = False, None
    while (value := queue.get()) is not None:
        answer: Any
        if isinstance(value, str):
            if value == "keep":
                keeps, answer = True, "kept"
            elif value == "let go":
                keeps, kept, answer = False, None, "gone"
            elif value == "pass on":
                answer = _passed_on(kept)
            elif value == "give back":
                assert isinstance(kept, gpuipc.torch.Bundle)
                kept.give_back()
                try:
                    answer = kept.tensors
                except gpuipc.errors.ReleasedError as error:
                    answer = type(error).__name__
        else:
            answer = described(value.tensors) if isinstance(value, gpuipc.torch.Bundle) else _tensor(value)
            kept = value if keeps else None
        del value  # and not when the next one has come
        answers.put(answer)


def read_frames(channel: Any, options: dict[str, Any], pipe: Any) -> None:
    """Takes frames until there are none any more, and says what is in each."""
    with gpuipc.torch.subscribe(channel, **options) as frames:
        pipe.send("subscribed")
        for frame in frames:
            parts = frame if isinstance(frame, dict) else {".": frame}
            said = {name: (str(each.dtype), each.tolist()) for name, each in parts.items()}
            pipe.send((frame.sequence, frame.missed, frame.header, said))
    pipe.send("end")
