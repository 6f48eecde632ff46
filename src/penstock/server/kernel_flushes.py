"""Flushes that the kernel carries out by itself (Linux AIO): asked for by one call that does not wait, and reported through a descriptor
that an event loop watches. No thread of ours takes part, so a short flush costs neither a hand-over nor a wait for the interpreter.

It is fdatasync in all that matters: what it covers, when it ends, and that a failed write-back is reported once per open file.
Python has no name for these calls, and the C library none either; their numbers and structures are those of the kernel's interface
(linux/aio_abi.h), for the machines that are listed here. Reports are read where the kernel leaves them, in memory that it shares with us
since there is this interface (struct aio_ring). Everywhere else, or where the calls are forbidden, there is no `KernelFlushes`.
Hot path: `begin` and `ended`, once for each round.
"""

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, Self

FILES_MAX = 64  # At a time; the kernel keeps this much room for each of us.

_FDSYNC = 3  # IOCB_CMD_FDSYNC, which is carried out since Linux 4.18.
_TELLS_DESCRIPTOR = 1  # IOCB_FLAG_RESFD
# data, key, read-write flags, operation, priority, file, buffer, bytes, offset, reserved, flags, descriptor to be told
_ORDER = Struct("<QIiHhIQQqQII")
_FILE_AT = 20  # Where an order names its file: all that changes in it.
_REPORT = Struct("<QQqq")  # data, address of the order, outcome (0, or an error below it), more of it
_RING_WORDS = 8  # id, places in all, first report, place after the last, then what follows: magic, features twice, bytes of this header
_RING_MAGIC, _RING_FEATURES, _RING_NEW_FEATURES = 0xA10A10A1, 1, 0


class _Calls(NamedTuple):
    """Numbers of system calls."""

    setup: int
    destroy: int
    submit: int


_CALLS = {"x86_64": _Calls(206, 207, 209), "aarch64": _Calls(0, 1, 2), "riscv64": _Calls(0, 1, 2)}

_ADDRESS_BYTES = ctypes.sizeof(ctypes.c_void_p)

_libc = ctypes.CDLL(None, use_errno=True)
_call = _libc.syscall
_call.restype = ctypes.c_long
_call.argtypes = [ctypes.c_long] * 4


class KernelFlushes:
    """For one thread."""

    def __init__(self, calls: _Calls) -> None:
        """Raises OSError where the kernel does not want to. Use `open`."""
        context = ctypes.c_ulong(0)
        _checked(_call(calls.setup, FILES_MAX, ctypes.addressof(context), 0))
        self._calls = calls
        self._context = context.value
        self.told = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # Becomes readable when a flush has ended.
        self._orders = ctypes.create_string_buffer(_ORDER.size * FILES_MAX)
        for place in range(FILES_MAX):
            _ORDER.pack_into(self._orders, _ORDER.size * place, place, 0, 0, _FDSYNC, 0, 0, 0, 0, 0, 0, _TELLS_DESCRIPTOR, self.told)
        self._order_words = memoryview(self._orders).cast("B").cast("I")
        first = ctypes.addressof(self._orders)
        self._addresses = (ctypes.c_void_p * FILES_MAX)(*(first + _ORDER.size * place for place in range(FILES_MAX)))
        self._first_address = ctypes.addressof(self._addresses)
        self._look_at_ring()

    def _look_at_ring(self) -> None:
        """The context is the address of the memory in which the kernel reports."""
        header = (ctypes.c_uint32 * _RING_WORDS).from_address(self._context)
        _, self._ring_places, _, _, *kind, header_bytes = header
        if kind != [_RING_MAGIC, _RING_FEATURES, _RING_NEW_FEATURES] or header_bytes != ctypes.sizeof(header):
            self.close()
            raise OSError(errno.ENOSYS, "the kernel reports in another way")
        self._ring = memoryview(header).cast("B").cast("I")
        self._reports = (ctypes.c_char * (_REPORT.size * self._ring_places)).from_address(self._context + header_bytes)

    @classmethod
    def open(cls) -> Self | None:
        calls = _CALLS.get(platform.machine()) if sys.platform == "linux" and sys.byteorder == "little" else None
        if calls is None or not hasattr(os, "eventfd") or _ADDRESS_BYTES != 8:
            return None
        try:
            return cls(calls)
        except OSError:  # Forbidden, or others have used up what there is (fs.aio-max-nr).
            return None

    def begin(self, fds: Sequence[int]) -> int:
        """Asks for flushes of these files, `FILES_MAX` at most, none being under way. Returns how many of them, from the first, will be
        reported; where that is not all, the kernel does not take the next one."""
        words = self._order_words
        for place, fd in enumerate(fds):
            words[(_ORDER.size * place + _FILE_AT) // 4] = fd
        begun, count = 0, len(fds)
        while begun < count:
            taken: int = _call(self._calls.submit, self._context, count - begun, self._first_address + _ADDRESS_BYTES * begun)
            if taken <= 0:
                break
            begun += taken
        return begun

    def ended(self) -> list[tuple[int, int]]:
        """(place, error number or 0) of each flush that has ended since this was last asked."""
        if not self._context:
            return []  # The ring is gone.
        try:
            os.eventfd_read(self.told)  # First: what it tells of is in the ring then.
        except BlockingIOError:
            return []
        ring, found = self._ring, []
        first, end = ring[2], ring[3]
        while first != end:
            place, _, outcome, _ = _REPORT.unpack_from(self._reports, _REPORT.size * first)
            found.append((place, -outcome))
            first = (first + 1) % self._ring_places
        ring[2] = first
        return found

    def close(self) -> None:
        """Waits for what is under way."""
        if self._context:
            _call(self._calls.destroy, self._context, 0, 0)
            self._context = 0
            os.close(self.told)


def _checked(answer: int) -> int:
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer
