"""Keeps simulated code from asking the real world: while it stands, clocks, chance and threads raise.

It replaces module attributes (`time.monotonic`, `os.urandom`, …) while a simulated loop runs, in the loop's own thread only. Code that took
such a function by `from time import monotonic` beforehand passes by it; the linter forbids those imports in the rooms that run here.
Allowed through: the logging module's timestamps, the `Date` header of uvicorn's answers, test tools, and `random.Random` with a seed of
its own.
"""

import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

_TRUSTED = ("logging", "_pytest", "pytest", "pluggy", "coverage", "hypothesis", "warnings", "traceback", "linecache", "importlib")
_TRUSTED_MODULES = ("uvicorn.server",)  # The `Date` header.

_FORBIDDEN: tuple[tuple[Any, str], ...] = (
    *((time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")),
    *((random, name) for name in ("random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform", "getrandbits")),
    *((random, name) for name in ("randbytes", "gauss", "expovariate", "triangular", "betavariate", "seed", "_urandom")),
    *((os, name) for name in ("urandom", "getrandom")),
    *((uuid, name) for name in ("uuid1", "uuid4")),
    (threading.Thread, "start"),
)


class Trespass(RuntimeError):
    """Simulated code asked the real world for something that no seed decides."""


class Fence:
    def __init__(self) -> None:
        self._kept: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> None:
        thread = threading.get_ident()
        for owner, name in _FORBIDDEN:
            real = getattr(owner, name)
            self._kept.append((owner, name, real))
            setattr(owner, name, _guarded(real, f"{owner.__name__}.{name}", thread))
        real_seed = random.Random.seed
        self._kept.append((random.Random, "seed", real_seed))
        random.Random.seed = _guarded_seed(real_seed, thread)  # type: ignore[method-assign]

    def __exit__(self, *exc: object) -> None:
        while self._kept:
            owner, name, real = self._kept.pop()
            setattr(owner, name, real)


def _guarded(real: Callable[..., Any], name: str, thread: int) -> Callable[..., Any]:
    def forbidden(*args: Any, **options: Any) -> Any:
        if threading.get_ident() != thread or _is_trusted():
            return real(*args, **options)
        raise Trespass(f"{name} was called in virtual time; ask Env instead")

    return forbidden


def _guarded_seed(real: Callable[..., None], thread: int) -> Callable[..., None]:
    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        if a is None and threading.get_ident() == thread and not _is_trusted():
            raise Trespass("a Random without a seed was made in virtual time; use Env's")
        real(self, a, version)

    return seed


def _is_trusted() -> bool:
    """Whether the function was called by a module that may: the second frame up is the caller's."""
    name = str(sys._getframe(2).f_globals.get("__name__", ""))
    return name.partition(".")[0] in _TRUSTED or name in _TRUSTED_MODULES
