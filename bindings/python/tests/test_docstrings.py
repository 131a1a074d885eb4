# SPDX-License-Identifier: MIT
"""Every public name says what it is, in sentences that can be read, and whatever takes a number says of what."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import gpuipc

WORDS_MAX = 30
# Need a library that is not everywhere.
OF_OTHERS = {"torch", "cupy", "numba", "jax"}
# A parameter of this name, and a word that tells its unit.
UNITS = {"timeout": "second", "nbytes": "byte", "offset": "byte", "expires": "second", "alignment": "byte"}


def modules() -> Iterator[ModuleType]:
    yield gpuipc
    for found in pkgutil.iter_modules(gpuipc.__path__):
        if not found.name.startswith("_") and found.name not in OF_OTHERS:
            yield importlib.import_module(f"gpuipc.{found.name}")


def names_of(module: ModuleType) -> list[str]:
    named: list[str] | None = getattr(module, "__all__", None)
    if named is not None:
        return named
    return [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]


def public() -> Iterator[tuple[str, Any]]:
    for module in modules():
        yield module.__name__, module
        for name in names_of(module):
            value = getattr(module, name)
            if name.startswith("_") or isinstance(value, ModuleType):
                continue
            yield f"{module.__name__}.{name}", value
            if inspect.isclass(value) and value.__module__.startswith("gpuipc"):
                yield from members_of(f"{module.__name__}.{name}", value)


def members_of(path: str, owner: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(owner).items():
        if not name.startswith("_") and (callable(value) or isinstance(value, (property, staticmethod, classmethod))):
            yield f"{path}.{name}", value


def lines_of(value: Any) -> list[str]:
    text = inspect.getdoc(value) or ""
    return text.splitlines()


def signature_of(value: Any) -> str:
    """What is compiled has its signature in its first line, or keeps it apart."""
    kept = getattr(value, "__nb_signature__", None)
    if kept:
        return str(kept[0][0])
    try:
        return str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""


def words_of(value: Any) -> str:
    """The docstring without signatures, code, and what other classes say."""
    if isinstance(value, (int, str)):
        return "a value, which its module speaks of"
    lines = [line for line in lines_of(value) if not re.match(r"(\w+\(.*\)|\(self.*\)) -> ", line)]
    return "\n".join(line for line in lines if not line.startswith("    ")).strip()


ALL = dict(public())


def test_they_are_found() -> None:
    assert {"gpuipc.Buffer.share", "gpuipc.Array.address", "gpuipc.open", "gpuipc.errors.Timeout"} <= set(ALL)


@pytest.mark.parametrize("name", sorted(ALL))
def test_it_says_what_it_is(name: str) -> None:
    text = words_of(ALL[name])
    assert len(text.split()) >= 2, "no docstring"
    for sentence in re.split(r"(?<=[.:;?!])\)?\s+", text):
        count = sum(1 for word in sentence.split() if re.search(r"\w", word))
        assert count <= WORDS_MAX, sentence
    for parameter, unit in UNITS.items():
        if not inspect.isclass(ALL[name]) and re.search(rf"\b{parameter}: ", signature_of(ALL[name])):
            assert unit in text.lower() or re.search(r"\bas\b.*\(\)", text, re.I), f"in what is {parameter} counted?"
