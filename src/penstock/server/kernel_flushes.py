"""Flushes that the kernel carries out by itself (Linux AIO): asked for by one call that does not wait, and reported through a descriptor
that an event loop watches. No thread of ours takes part, so a short flush costs neither a hand-over nor a wait for the interpreter.

It is fdatasync in all that matters: what it covers, when it ends, and that a failed write-back is reported once per open file.
Python has no name for these calls, and the C library none either; their numbers and structures are those of the kernel's interface
(linux/aio_abi.h), for the machines that are listed here. Everywhere else, or where the calls are forbidden, there is no `KernelFlushes`.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import NamedTuple, Self

FILES_MAX = 64  # At a time; the kernel keeps this much room for each of us.

_FDSYNC = 3  # IOCB_CMD_FDSYNC, which is carried out since Linux 4.18.
_TELLS_DESCRIPTOR = 1  # IOCB_FLAG_RESFD
# data, key, read-write flags, operation, priority, file, buffer, bytes, offset, reserved, flags, descriptor to be told
_ORDER = Struct("<QIiHhIQQqQII")
_REPORT = Struct("<QQqq")  # data, address of the order, outcome (0, or an error below it), more of it


class _Calls(NamedTuple):
    """Numbers of system calls."""

    setup: int
    destroy: int
    events: int
    submit: int


_CALLS = {"x86_64": _Calls(206, 207, 208, 209), "aarch64": _Calls(0, 1, 4, 2), "riscv64": _Calls(0, 1, 4, 2)}

_libc = ctypes.CDLL(None, use_errno=True)
_call = _libc.syscall
_call.restype = ctypes.c_long
_call.argtypes = [ctypes.c_long] * 6


class KernelFlushes:
    """For one thread."""

    def __init__(self, calls: _Calls) -> None:
        """Raises OSError where the kernel does not want to. Use `open`."""
        context = ctypes.c_ulong(0)
        _checked(_call(calls.setup, FILES_MAX, ctypes.addressof(context), 0, 0, 0))
        self._calls = calls
        self._context = context.value
        self.told = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # Becomes readable when a flush has ended.
        self._orders = ctypes.create_string_buffer(_ORDER.size * FILES_MAX)
        first = ctypes.addressof(self._orders)
        self._addresses = (ctypes.c_void_p * FILES_MAX)(*(first + _ORDER.size * place for place in range(FILES_MAX)))
        self._reports = ctypes.create_string_buffer(_REPORT.size * FILES_MAX)
        self._at_once = ctypes.create_string_buffer(16)  # struct timespec: do not wait.
        self._where = (ctypes.addressof(self._addresses), ctypes.addressof(self._reports), ctypes.addressof(self._at_once))

    @classmethod
    def open(cls) -> Self | None:
        calls = _CALLS.get(platform.machine()) if sys.platform == "linux" and sys.byteorder == "little" else None
        if calls is None or not hasattr(os, "eventfd") or ctypes.sizeof(ctypes.c_void_p) != 8:
            return None
        try:
            return cls(calls)
        except OSError:  # Forbidden, or others have used up what there is (fs.aio-max-nr).
            return None

    def begin(self, fds: Sequence[int]) -> int:
        """Asks for flushes of these files, `FILES_MAX` at most, none being under way. Returns how many of them, from the first, will be
        reported; where that is not all, the kernel does not take the next one."""
        for place, fd in enumerate(fds):
            _ORDER.pack_into(self._orders, _ORDER.size * place, place, 0, 0, _FDSYNC, 0, fd, 0, 0, 0, 0, _TELLS_DESCRIPTOR, self.told)
        begun = 0
        while begun < len(fds):
            addresses = self._where[0] + ctypes.sizeof(ctypes.c_void_p) * begun
            taken: int = _call(self._calls.submit, self._context, len(fds) - begun, addresses, 0, 0)
            if taken <= 0:
                break
            begun += taken
        return begun

    def ended(self) -> list[tuple[int, int]]:
        """(place, error number or 0) of each flush that has ended since this was last asked."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.told)
        _, reports, at_once = self._where
        count = _checked(_call(self._calls.events, self._context, 0, FILES_MAX, reports, at_once))
        found = (_REPORT.unpack_from(self._reports, _REPORT.size * place) for place in range(count))
        return [(place, -outcome) for place, _, outcome, _ in found]

    def close(self) -> None:
        """Waits for what is under way."""
        if self._context:
            _call(self._calls.destroy, self._context, 0, 0, 0, 0)
            self._context = 0
            os.close(self.told)


def _checked(answer: int) -> int:
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer
